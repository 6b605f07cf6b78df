"""The cost of soft thresholding with vanishing shrinkage (Schreck et al. 2015)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from occamap._kernels import displace, field, stvs
from occamap._kernels.jit import LANES
from occamap._kernels.rows import ragged_sums
from occamap._validate import Samples, check_number
from occamap.costs.base import check_strength
from occamap.costs.generic import Displacer, Floats, Pairs
from occamap.costs.l1 import SqL2
from occamap.costs.lanes import LaneDisplacer, LanePairs, aligned, tile_of, walk
from occamap.costs.separable import Separable

SERIES = (1.0, 2.0, 1 / 3, -1 / 20, 1 / 56, -5 / 576)


@dataclass(frozen=True, eq=False)
class STVS(Separable):
    """½‖z‖² + γ² Σ_t (σ_t + ½ − ½e^{−2σ_t}), σ_t = asinh(|z_t|/2γ); large displacements are hardly shrunk.

    With u = |z|/2γ and v = u + √(1 + u²), h is γ²(u·v + log v) and h′ is sign(z)·γ·v; the prox is
    (1 − γ²/w²)₊ w.

    Parameters
    ----------
    gamma
        Strength γ ≥ 0: a feature moves where the field exceeds γ. At 0 the cost is ½‖z‖².

    Examples
    --------
    >>> STVS(1.0).prox([2.0, 0.5]).tolist()
    [1.5, 0.0]
    """

    gamma: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "gamma", check_number(self.gamma, "gamma", 0, 1e100))

    def _entries(self, z: Floats, features: Any) -> Floats:
        if self.gamma < 1e-100:  # γ² is nothing
            return 0.5 * z * z
        size = np.abs(z)
        logs: Floats = self.gamma**2 * np.arcsinh(size / (2 * self.gamma))
        return np.asarray(0.25 * size * (size + np.hypot(size, 2 * self.gamma)) + logs)

    def _slopes(self, z: Floats, features: Any) -> Floats:
        slopes: Floats = 0.5 * np.sign(z) * (np.abs(z) + np.hypot(z, 2 * self.gamma))
        return slopes

    def _shrink(self, w: Floats, features: Any) -> Floats:
        size = np.abs(w)
        kept = size > self.gamma
        safe = np.where(kept, size, 1.0)
        return np.where(kept, np.sign(w) * (safe - self.gamma * (self.gamma / safe)), 0.0)

    def _kink(self, z: Samples) -> Floats:
        return np.full(z.shape[1], self.gamma)

    def _check_scale(self, largest: float) -> None:
        check_strength(self.gamma, largest, "gamma", "L1, which it comes close to")

    def _fits_float32(self, largest: float) -> bool:
        return super()._fits_float32(largest) and 1e-9 * largest < self.gamma < 10 * largest

    def _vanishes(self, Y: Samples) -> bool:
        """Whether γ is 0 next to the data in float64, so that only ½‖z‖² is left."""
        return self.gamma <= 1e-100 * max(1.0, Y.largest())

    def _pairs(self, Y: Samples) -> Pairs:
        return SqL2()._pairs(Y) if self._vanishes(Y) else _STVSPairs(self, Y)

    def _displacer(self, Y: Samples) -> Displacer:
        if self._vanishes(Y):
            return SqL2()._displacer(Y)
        strength = np.array([self.gamma])
        return LaneDisplacer(_STVSPairs(self, Y), displace.stvs_displace, field.stvs_field, strength)


class _STVSPairs(LanePairs):
    """h(x) plus the excess h(x − y) − h(x) over the stored entries of y; plain sums where Y is dense."""

    cost: STVS

    def __init__(self, cost: STVS, Y: Samples) -> None:
        super().__init__(cost, Y)
        self.y_largest, self.tiny = Y.largest(), max(self.tiny, 1e-30 * cost.gamma**2)
        if Y.is_sparse:
            stored = np.diff(Y.stored()[0])
            self.series = None if np.all(self.y_values >= 0.3 * cost.gamma**2 * stored) else True

    def _sums(self, X: Samples) -> Floats:
        gamma, m = self.cost.gamma, self.Y.shape[0]
        if X.largest() > 1e130 * gamma:  # γ is nothing next to these rows, and (z/γ)² too large for float64
            return SqL2()._pairs(self.Y)._sums(X)  # type: ignore[attr-defined, no-any-return]
        small = 0.25 if X.dtype == np.float32 else 0.01  # below it the series is exact to the last digits
        scale = tuple(X.dtype.type(c) for c in (1 / (2 * gamma), small, *SERIES))
        mantissa: Floats = aligned((m, LANES), np.float64, fill=1)
        out: Floats = aligned((m, LANES), np.float64, fill=0)
        if not self.Y.is_sparse:
            stvs.stvs_sums(X.data, self.Y.data, scale, self._flush(X), tile_of(X), mantissa, out)
            return gamma**2 * (out + np.log(mantissa))
        x = walk(X)
        entries = np.empty(x[0][2].size)
        stvs.stvs_entries(x[0][2], gamma, entries)
        h = walk(X, entries.astype(X.dtype))[:3]
        stvs.stvs_excess(*x, *h, *self.entries, scale, self.series, self._flush(X), mantissa, out)
        values = np.empty(X.shape[0])
        ragged_sums(x[0][0], entries, values)
        out = gamma**2 * (out + np.log(mantissa))
        out[:, : X.shape[0]] += gamma**2 * values
        self._recompute(stvs.stvs_pairs, gamma, X, out, gamma**2 * values + self.y_values[:, None])
        return out

    def _flush(self, X: Samples) -> int:
        """How many factors v = u + √(1 + u²) may enter one product."""
        u = (X.largest() + self.y_largest) / (2 * self.cost.gamma)
        digits = 36 if X.dtype == np.float32 else 145
        factors = digits / max(math.log10(1 + 2 * u), 1.0)
        return 32 if factors >= 32 else 8 if factors >= 8 else 1
