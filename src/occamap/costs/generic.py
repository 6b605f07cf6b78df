"""Pairs and displacements of any cost from its value, gradient and prox alone: plain, dense and slow.

A new penalty works at once through these; the built-in ones are faster and tested against them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

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


@dataclass(frozen=True, eq=False)
class Field:
    """The field Σ_j p_j ∇h(x − y_j) of some rows in some features, and what `ties` and `relax` need beside it.

    Every part is linear in the weights: the field of a neighbourhood is the average of the fields in it, part by part.

    Attributes
    ----------
    slopes
        The field with sign(0) = 0, rows × features.
    shifts
        Σ_j p_j y_j − x, rows × features; empty unless it is wanted.
    slack, balls
        At kinks the field is the set slopes + [−slack, slack] + Σ_b balls_b B_b: rows × features, and rows × balls,
        where B_b are those of `Cost._least`; empty unless they are wanted.
    """

    slopes: NDArray[Any]
    shifts: NDArray[Any]
    slack: NDArray[Any]
    balls: Floats

    @classmethod
    def empty(
        cls, n: int, d: int, dtype: Any, *, shifts: bool, balls: int | None, order: Literal["C", "F"] = "C"
    ) -> Field:
        """Room for n rows and d features; `balls` is how many there are, None where no sets are wanted.

        In memory one row follows the other, or one feature the other, in the `order` "F".
        """
        return cls(
            np.empty((n, d), dtype, order),
            np.empty((n if shifts else 0, d), dtype, order),
            np.empty((n if balls is not None else 0, d), dtype, order),
            np.zeros((n, balls or 0)),
        )

    def rows(self, start: int, stop: int) -> Field:
        """Rows start:stop, without a copy."""
        parts = self.slopes, self.shifts, self.slack, self.balls
        return Field(*(part[start:stop] for part in parts))

    def features(self, count: int) -> Field:
        """The first features, without a copy."""
        return Field(self.slopes[:, :count], self.shifts[:, :count], self.slack[:, :count], self.balls)

    def put(self, slopes: Floats, shifts: Floats, slack: Floats | None = None, balls: Floats | None = None) -> None:
        """Write those parts that are wanted."""
        self.slopes[:] = slopes
        if self.shifts.size:
            self.shifts[:] = shifts
        if self.slack.size:
            self.slack[:] = 0.0 if slack is None else slack
        if self.balls.size:
            self.balls[:] = balls


class Displacer(Protocol):
    """The displacements of a few rows towards a prepared Y."""

    pairs: Pairs
    by_feature: bool
    """Whether the field of some features takes its share of the time that all of them take."""

    dtype: np.dtype[Any]
    """The precision in which fields are worth keeping."""

    def field(self, X: Samples, weights: Floats, out: Field, start: int = 0) -> None:
        """Write the field of rows with these weights of the targets, in the features from `start` on.

        `out` has a row for each of X, at most LANES, and a column for each of the features that are wanted.
        """

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

    by_feature, dtype = False, np.dtype(np.float64)

    def __init__(self, cost: Cost, Y: Samples) -> None:
        self.cost, self.Y, self.pairs = cost, Y.dense(), cast(Pairs, GenericPairs(cost, Y))
        self._differences = GenericPairs(cost, Y).differences

    def block(self, X: Samples, gibbs: Gibbs, ties: int, relax: float, C: Floats | None = None) -> sp.csr_array:
        dense = X.dense()
        weights = gibbs(self.pairs.block(X) if C is None else C)
        moves = np.stack([self._move(x, p, ties, relax) for x, p in zip(dense, weights, strict=True)])
        return sp.csr_array(moves.astype(X.dtype))

    def field(self, X: Samples, weights: Floats, out: Field, start: int = 0) -> None:
        wanted = slice(start, start + out.slopes.shape[1])
        for i, (x, p) in enumerate(zip(X.dense(), weights, strict=True)):
            z = self._differences(x)
            slack, balls = self.cost._slack(z, p) if out.slack.size else (None, None)
            shift = (p @ self.Y - x)[wanted]
            out.rows(i, i + 1).put(
                (p @ self.cost._gradient(z))[wanted], shift, None if slack is None else slack[wanted], balls
            )

    def _move(self, x: NDArray[Any], p: Floats, ties: int, relax: float) -> Floats:
        z = self._differences(x)
        field = p @ self.cost._gradient(z)
        if ties:
            field = self.cost._least(field, *self.cost._slack(z, p))
        move = -self.cost._prox(Samples((1, field.size), field[None, :]))[0]
        shift = p @ self.Y - x
        relaxed: Floats = np.where(move != 0, move + relax * (shift - move), 0.0)
        return relaxed
