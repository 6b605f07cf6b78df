"""Anderson acceleration of a fixed-point iteration, on vectors alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Anderson:
    """Extrapolates from the last few residuals: the affine combination of them that is smallest.

    `weights` is the measure in which residuals are compared.
    """

    def __init__(self, weights: Floats, depth: int = 6) -> None:
        self.root, self.depth = np.sqrt(weights), depth
        self.clear()

    def clear(self) -> None:
        """Forget the past; the next step is a plain one."""
        self._last: tuple[Floats, Floats] | None = None
        self._steps: list[Floats] = []
        self._changes: list[Floats] = []

    def step(self, x: Floats, image: Floats) -> Floats:
        """The next iterate, given x and its image under the map."""
        residual = image - x
        if self._last is not None:
            self._steps.append(image - self._last[0])
            self._changes.append(residual - self._last[1])
            del self._steps[: -self.depth], self._changes[: -self.depth]
        self._last = image, residual
        if not self._changes:
            return image
        basis = np.stack(self._changes) * self.root
        gram = np.einsum("im,jm->ij", basis, basis)
        gram[np.diag_indices_from(gram)] += 1e-10 * np.trace(gram) + 1e-300
        mix = np.linalg.solve(gram, np.einsum("im,m->i", basis, residual * self.root))
        return np.asarray(image - np.einsum("i,im->m", mix, np.stack(self._steps)))
