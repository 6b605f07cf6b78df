"""Pairs and displacements of any cost from its value, gradient and prox alone: plain, dense and slow.

A new penalty works at once through these; the built-in ones are faster and tested against them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from occamap._kernels.jit import LANES
from occamap._validate import Samples

if TYPE_CHECKING:
    from occamap.costs.base import Cost

Floats = NDArray[np.float64]
Gibbs = Callable[[Floats], Floats]


class Pairs(Protocol):
    """The costs of a few rows against all of a prepared Y."""

    rows: int

    def block(self, X: Samples) -> Floats:
        """h(x_i − y_j), one row a sample; any number of rows, `rows` at a time are best."""


class LinearPairs(Protocol):
    """The two parts of a cost that is linear in γ: h = ½‖·‖² + γ·(τ/γ)."""

    rows: int

    def parts(self, X: Samples) -> tuple[Floats, Floats]:
        """½‖x_i − y_j‖² and τ(x_i − y_j)/γ, each one row a sample."""


class Displacer(Protocol):
    """The displacements of a few rows towards a prepared Y."""

    pairs: Pairs

    def block(self, X: Samples, gibbs: Gibbs, ties: int, relax: float, C: Floats | None = None) -> sp.csr_array:
        """−prox(Σ_j p_j ∇h(x − y_j)) with p = gibbs(costs); exact zeros are not stored. C: the costs, if known."""


class GenericPairs:
    """One row at a time against a dense Y."""

    rows = LANES

    def __init__(self, cost: Cost, Y: Samples) -> None:
        self.cost, self.Y = cost, Y.dense()

    def differences(self, x: NDArray[Any]) -> Samples:
        z = x[None, :].astype(np.float64) - self.Y
        return Samples(z.shape, z)

    def block(self, X: Samples) -> Floats:
        return np.stack([self.cost._values(self.differences(x)) for x in X.dense()])


class GenericDisplacer:
    """The definition, written down."""

    def __init__(self, cost: Cost, Y: Samples) -> None:
        self.cost, self.Y, self.pairs = cost, Y.dense(), cast(Pairs, GenericPairs(cost, Y))
        self._differences = GenericPairs(cost, Y).differences

    def block(self, X: Samples, gibbs: Gibbs, ties: int, relax: float, C: Floats | None = None) -> sp.csr_array:
        dense = X.dense()
        weights = gibbs(self.pairs.block(X) if C is None else C)
        moves = np.stack([self._move(x, p, ties, relax) for x, p in zip(dense, weights, strict=True)])
        return sp.csr_array(moves.astype(X.dtype))

    def _move(self, x: NDArray[Any], p: Floats, ties: int, relax: float) -> Floats:
        z = self._differences(x)
        field = p @ self.cost._gradient(z)
        if ties:
            field = self.cost._least(field, z, p)
        move = -self.cost._prox(Samples((1, field.size), field[None, :]))[0]
        shift = p @ self.Y - x
        relaxed: Floats = np.where(move != 0, move + relax * (shift - move), 0.0)
        return relaxed
