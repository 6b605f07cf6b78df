"""The k-overlap norm (Argyriou et al. 2012), squared or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from occamap._kernels import koverlap
from occamap._kernels.jit import LANES
from occamap._validate import Samples, check_count, check_number
from occamap.costs.base import STRONGEST, Cost, check_strength, row_sums
from occamap.costs.generic import Displacer, Field, Floats, Gibbs, LinearPairs, Pairs
from occamap.costs.l1 import SqL2
from occamap.costs.lanes import walk
from occamap.errors import InputError

NEAR = 50.0  # x next to x − y, under Gibbs weights
CHUNK = 2**20  # entries that are dense at a time then


@dataclass(frozen=True, eq=False)
class KOverlap(Cost):
    """½‖z‖² + ½γ‖z‖²_ovk or, not squared, ½‖z‖² + γ‖z‖_ovk.

    The prox of the squared norm keeps between k (large γ) and all features (small γ); that of the norm
    itself may return 0.

    Parameters
    ----------
    gamma
        Strength γ ≥ 0.
    k
        How many features at the least, 1 ≤ k ≤ d.
    squared
        Whether the norm is squared, as in the paper's algorithm.

    Examples
    --------
    >>> KOverlap(1.0, k=1).prox([3.0, 1.0, 0.0]).tolist()
    [1.5, 0.0, 0.0]
    """

    gamma: float
    k: int
    squared: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "gamma", check_number(self.gamma, "gamma", 0, 1e100))
        object.__setattr__(self, "k", check_count(self.k, "k"))
        if not isinstance(self.squared, bool | np.bool_):
            raise InputError(f"squared must be True or False; got {self.squared!r}")

    def _check_features(self, d: int) -> None:
        if self.k > d:
            raise InputError(f"k must be at most the number of features, {d}; got {self.k}")

    def _penalty(self, square: Floats) -> Floats:
        """τ from ‖z‖²_ovk."""
        return 0.5 * self.gamma * square if self.squared else self.gamma * np.sqrt(square)

    def _slope(self, square: Floats) -> Floats:
        """What ∇½‖z‖² is multiplied by in ∇τ; 0 at z = 0."""
        if self.squared:
            return np.full_like(square, self.gamma)
        return np.divide(self.gamma, np.sqrt(square), out=np.zeros_like(square), where=square > 0)

    def _norms(self, z: Samples) -> tuple[Floats, Floats]:
        """T and ‖z‖² of each row."""
        T, square = np.empty((2, z.shape[0]))
        indptr = _pointers(z)
        scratch = np.empty(int(np.diff(indptr).max()))
        koverlap.norms(indptr, z.data.astype(np.float64).ravel(), self.k, scratch, T, square)
        return T, square

    def _values(self, z: Samples) -> Floats:
        data = z.data.astype(np.float64)
        return 0.5 * row_sums(z, data * data) + self._penalty(self._norms(z)[1])

    def _gradient(self, z: Samples) -> NDArray[Any]:
        T, square = self._norms(z)
        T, slope = _spread(z, T), _spread(z, self._slope(square))
        gradient = z.data + slope * np.sign(z.data) * np.maximum(np.abs(z.data), T)
        return np.asarray(gradient, z.dtype)

    def _kink(self, z: Samples) -> Floats:
        T, square = self._norms(z)
        return (self._slope(square) * T)[:, None]

    def _kink_sum(self, off: sp.csr_array, y: Samples) -> Floats:
        sums = super()._kink_sum(off, y)
        if self.squared:
            return sums
        origin = self._norms(y)[1] == 0  # there ∂τ is γ times the dual ball, and the sup is τ itself
        steps = Samples(off.shape, off.data, off.indices.astype(np.int32), off.indptr.astype(np.int64))
        return np.where(origin, self._penalty(self._norms(steps)[1]), sums)

    def _n_balls(self, d: int) -> int:
        return 0 if self.squared else 1

    def _slack(self, z: Samples, p: Floats) -> tuple[Floats, Floats]:
        slack, none = super()._slack(z, p)
        return slack, none if self.squared else np.array([p[~z.data.any(axis=1)].sum()])

    def _least(self, field: Floats, slack: Floats, balls: Floats) -> Floats:
        least = super()._least(field, slack, balls)
        return least if self.squared else self._least_from_origin(least, float(balls[0]))

    def _least_from_origin(self, field: Floats, weight: float) -> Floats:
        """Of field + weight·∂τ(0), weight being that of the targets that equal the sample: what moves least.

        ∂τ(0) is γ times the dual ball B, and the prox at v is v minus its projection on γB. So it is shortest if it is
        what is left of the field beside its projection on (1 + weight)γB, of which the prox takes off its share.
        """
        if self.squared or weight == 0:
            return field
        rest = self._with_gamma((1 + weight) * self.gamma)._prox(Samples((1, field.size), field[None, :]))[0]
        return np.asarray(field - weight / (1 + weight) * (field - rest))

    def _prox(self, w: Samples) -> NDArray[Any]:
        data = w.data.astype(np.float64).ravel()
        out, indptr = np.empty_like(data), _pointers(w)
        prox = koverlap.prox_squared if self.squared else koverlap.prox_norm
        prox(indptr, data, self.k, self.gamma, np.empty(int(np.diff(indptr).max())), out)
        return out.reshape(w.data.shape).astype(w.dtype)

    def _check_scale(self, largest: float) -> None:
        if not self.squared:
            check_strength(self.gamma, largest, "gamma", "L1, whose moves stay exact")
        elif self.gamma > STRONGEST:
            raise InputError(f"gamma must be at most 1e8 for KOverlap, else float64 cannot tell the moves from "
                             f"rounding; got {self.gamma:g}: take a smaller one")

    def _pairs(self, Y: Samples) -> Pairs:
        return SqL2()._pairs(Y) if self.gamma == 0 else _KOverlapPairs(self, Y)

    def _lane_bytes(self, m: int, d: int) -> int:
        return 128 * m + 40 * d

    def _linear(self, Y: Samples) -> LinearPairs | None:
        return _KOverlapPairs(self._with_gamma(1.0), Y)

    def _displacer(self, Y: Samples) -> Displacer:
        return SqL2()._displacer(Y) if self.gamma == 0 else _KOverlapDisplacer(_KOverlapPairs(self, Y))


def _pointers(z: Samples) -> NDArray[np.int64]:
    return np.arange(z.shape[0] + 1, dtype=np.int64) * z.shape[1] if z.indptr is None else z.indptr


def _spread(z: Samples, per_row: Floats) -> Floats:
    """One number a row → one an entry."""
    return per_row[:, None] if z.indptr is None else np.repeat(per_row, np.diff(z.indptr))


class _Norms(NamedTuple):
    """Of each pair: ‖z‖₂², ‖z‖²_ovk and T."""

    l2: Floats
    square: Floats
    T: Floats


class _KOverlapPairs:
    rows = LANES

    def __init__(self, cost: KOverlap, Y: Samples) -> None:
        self.cost, self.Y = cost, Y

    def block(self, X: Samples) -> Floats:
        half, penalty = self.parts(X)
        return half + penalty

    def parts(self, X: Samples) -> tuple[Floats, Floats]:
        norms = self.norms(X)
        return 0.5 * norms.l2, self.cost._penalty(norms.square)

    def norms(self, X: Samples) -> _Norms:
        (n, d), m, k = X.shape, self.Y.shape[0], self.cost.k
        norms = _Norms(*np.empty((3, n, m)))
        if not X.is_sparse and not self.Y.is_sparse:
            koverlap.pairs_dense(X.data, 0, n, self.Y.data, k, np.empty(d), *norms)
            return norms
        x, y = X.stored(), self.Y.stored()
        scratch = np.empty(int(np.diff(x[0]).max() + np.diff(y[0]).max()) + 1)
        koverlap.pairs_csr(*x, 0, n, *y, k, np.zeros(d), np.zeros(d, np.int64), scratch, *norms)
        return norms


class _KOverlapDisplacer:
    """The field feature by feature in lanes, then the prox row by row."""

    by_feature, dtype = False, np.dtype(np.float64)

    def __init__(self, pairs: _KOverlapPairs) -> None:
        self.pairs: Pairs = pairs
        self.Y, self.cost, self._norms = pairs.Y, pairs.cost, pairs.norms
        columns: Any
        if self.Y.is_sparse:
            columns = self.Y.csr().tocsc()
        else:  # the columns of Y are the rows of its transpose, without CSR of Y on the way
            columns = Samples(self.Y.shape[::-1], np.ascontiguousarray(self.Y.data.T)).csr()
        self.columns = columns.indptr.astype(np.int64), columns.indices.astype(np.int32, copy=False), columns.data

    def block(self, X: Samples, gibbs: Gibbs, ties: int, relax: float, C: Floats | None = None) -> sp.csr_array:
        spans = [(start, min(start + LANES, X.shape[0])) for start in range(0, X.shape[0], LANES)]
        known = (None if C is None else C[slice(*span)] for span in spans)
        moved = [self._lanes(X.rows(*span), gibbs, ties, relax, C) for span, C in zip(spans, known, strict=True)]
        return moved[0] if len(moved) == 1 else sp.csr_array(sp.vstack(moved))

    def _lanes(self, X: Samples, gibbs: Gibbs, ties: int, relax: float, C: Floats | None) -> sp.csr_array:
        norms = self._norms(X)
        p = gibbs(0.5 * norms.l2 + self.cost._penalty(norms.square) if C is None else C)
        field, mean = self._fields(X, norms, p, ties, np.empty((0, 0)))
        if ties and not self.cost.squared:
            equal = _equal(norms, p)
            for i in np.flatnonzero(equal).tolist():
                field[i] = self.cost._least_from_origin(field[i], equal[i])
        rows = Samples(X.shape, field)
        moves = -self.cost._prox(rows)
        if relax > 0:
            shift = mean - X.dense()
            moves = np.where(moves != 0, moves + relax * (shift - moves), 0.0)
        return sp.csr_array(moves.astype(X.dtype))

    def field(self, X: Samples, weights: Floats, out: Field, start: int = 0) -> None:
        norms, slack = self._norms(X), np.empty(X.shape if out.slack.size else (0, 0))
        field, mean = self._fields(X, norms, weights, 0, slack)
        wanted = slice(start, start + out.slopes.shape[1])
        balls = None if self.cost.squared else _equal(norms, weights)[:, None]
        out.put(field[:, wanted], (mean - X.dense())[:, wanted], slack[:, wanted] if slack.size else None, balls)

    def _fields(
        self, X: Samples, norms: _Norms, p: Floats, ties: int, slack: Floats
    ) -> tuple[Floats, Floats]:
        """The field and Σ_j p_j y_j of each row: with `ties`, nearer to 0 by the slack, which is written, if wanted."""
        (n, d), m = X.shape, self.Y.shape[0]
        slopes = p * self.cost._slope(norms.square)
        lanes = np.zeros((3, m, LANES))
        lanes[0, :, :n], lanes[1, :, :n], lanes[2, :, :n] = p.T, slopes.T, norms.T.T
        order = np.argsort(norms.T, axis=1)
        levels = np.take_along_axis(norms.T, order, axis=1)
        sorted_slopes = np.take_along_axis(slopes, order, axis=1)
        below = np.zeros((n, m + 1))
        np.cumsum(sorted_slopes, axis=1, out=below[:, 1:])
        above = np.zeros((n, m + 1))
        above[:, :-1] = np.cumsum((sorted_slopes * levels)[:, ::-1], axis=1)[:, ::-1]
        field, mean = np.empty((2, n, d))
        sums = np.empty((3, LANES))
        koverlap.field(*walk(X), *self.columns, *lanes, levels, below, above, ties, sums, field, mean, slack)
        if not self.cost.squared:
            size = np.abs(X.data).max(initial=0.0) if X.is_sparse else np.abs(X.data).max(axis=1)
            near = (slopes * np.reshape(size, (-1, 1))).max(axis=1) > NEAR * self.cost.gamma
            for i in np.flatnonzero(near).tolist():
                exact, width = self._field(X.rows(i, i + 1), p[i])
                field[i] = np.sign(exact) * np.maximum(np.abs(exact) - ties * width, 0.0)
                if slack.size:
                    slack[i] = width
        return field, mean

    def _field(self, x: Samples, p: Floats) -> tuple[Floats, Floats]:
        """The field of one row and its slack from the definition, where γ/‖x − y‖ of a near target costs digits."""
        kept = np.flatnonzero(p > 1e-13 * p.max())
        field, slack = np.zeros((2, x.shape[1]))
        for part in np.array_split(kept, -(-kept.size * x.shape[1] // CHUNK)):
            z = x.dense().astype(np.float64) - self.Y.take(part).dense()
            rows, weights = Samples(z.shape, z), p[part] / p[kept].sum()
            field += weights @ self.cost._gradient(rows)
            slack += weights @ ((z == 0) * self.cost._kink(rows))
        return field, slack


def _equal(norms: _Norms, p: Floats) -> Floats:
    """The weight of the targets that equal the sample."""
    return np.asarray(np.where(norms.square == 0, p, 0.0).sum(axis=1))
