"""What every cost h(z) = ½‖z‖² + τ(z) has; a penalty supplies value, gradient, prox and the size of its kink."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from occamap._kernels.rows import ragged_sums
from occamap._validate import Samples, check_same_features, check_samples
from occamap._workers import Workers
from occamap.costs.generic import Displacer, GenericDisplacer, GenericPairs, LinearPairs, Pairs
from occamap.errors import InputError

Floats = NDArray[np.float64]
Tick = Callable[[float], None] | None
STRONGEST = 1e8  # a penalty next to the samples: half of the digits of float64 are left for the moves
Rows = ArrayLike | sp.sparray | sp.spmatrix


class Cost(ABC):
    """A translation-invariant cost c(x, y) = h(x − y), with h = ½‖·‖² + τ even and strongly convex.

    All methods take one vector (d,) or rows (n, d), dense or sparse; gradients and proxes come back in the
    same form, a sparse one for a sparse one, since both map 0 to 0. Sub-classes are frozen dataclasses.

    >>> import occamap as oc
    >>> cost = oc.L1(1.0)
    >>> cost.value([3.0, -0.5]), cost.grad([3.0, -0.5]).tolist()
    (8.125, [4.0, -1.5])
    >>> cost.prox([4.0, -1.5]).tolist(), cost.conjugate([4.0, -1.5])  # the prox inverts the gradient
    ([3.0, -0.5], 4.625)
    >>> cost.divergence([3.0, -0.5], [3.0, 0.0])  # h(x) − h(y) − sup ⟨∂h(y), x − y⟩
    0.125
    """

    # -- what a penalty supplies: rows in, one number a row or new entries for the same pattern out ------------

    @abstractmethod
    def _values(self, z: Samples) -> Floats:
        """h of each row."""

    @abstractmethod
    def _gradient(self, z: Samples) -> NDArray[Any]:
        """∇h at the entries of z, with sign(0) = 0."""

    @abstractmethod
    def _prox(self, w: Samples) -> NDArray[Any]:
        """prox_τ at the entries of w."""

    @abstractmethod
    def _kink(self, z: Samples) -> Floats:
        """Half the width of ∂τ in a feature that is 0: (d,) or, where it depends on the row, (n, 1)."""

    def _n_balls(self, d: int) -> int:
        """How many balls B_b the set Σ_j p_j ∂h(z_j) has, beside an interval for each feature."""
        return 0

    def _slack(self, z: Samples, p: Floats) -> tuple[Floats, Floats]:
        """The set Σ_j p_j ∂h(z_j) around its element with sign(0) = 0: half the width in each feature, and how much
        of each ball; the z_j are dense rows."""
        return p @ ((z.data == 0) * np.broadcast_to(self._kink(z), z.shape)), np.empty(0)

    def _least(self, field: Floats, slack: Floats, balls: Floats) -> Floats:
        """The element of field + [−slack, slack] + Σ_b balls_b B_b that moves least."""
        return np.asarray(np.sign(field) * np.maximum(np.abs(field) - slack, 0.0))

    def _check_features(self, d: int) -> None:  # noqa: B027  (most penalties fit any number of features)
        """Raise if the penalty cannot be used with d features."""

    def _frozen(self, d: int) -> NDArray[np.bool_]:
        """The features that must not move."""
        return np.zeros(d, dtype=bool)

    def _pairs(self, Y: Samples) -> Pairs:
        """A prepared evaluation of h(x − y_j) for all rows of Y; both sides of one float type."""
        return GenericPairs(self, Y)

    def _displacer(self, Y: Samples) -> Displacer:
        """A prepared evaluation of −prox(Σ_j p_j ∇h(x − y_j)); both sides of one float type."""
        return GenericDisplacer(self, Y)

    def _more_bytes(self, Y: Samples) -> int:
        """Bytes of what is prepared of Y for pairs, beside its entries once more."""
        return 0

    def _lane_bytes(self, m: int, d: int) -> int:
        """Bytes that are under way for each sample that is moved towards m targets."""
        return 48 * m + 4 * min(d, 2**17)

    def _linear(self, Y: Samples) -> LinearPairs | None:
        """A prepared evaluation of ½‖z‖² and τ(z)/γ of all pairs, where τ is linear in γ; else None."""
        return None

    # -- what follows from it ----------------------------------------------------------------------------------

    def value(self, z: Rows) -> Any:
        """h(z): a number for one vector, one a row for rows."""
        rows, single = self._rows(z, "z")
        values = self._values(rows)
        return float(values[0]) if single else values

    def grad(self, z: Rows) -> Any:
        """∇h(z), with sign(0) = 0 at a kink."""
        rows, single = self._rows(z, "z")
        return like_rows(rows, in_range(self._gradient, rows), single)

    def prox(self, w: Rows) -> Any:
        """prox_τ(w) = ∇h*(w) = argmin_z ½‖z − w‖² + τ(z)."""
        rows, single = self._rows(w, "w")
        return like_rows(rows, self._prox(rows), single)

    def conjugate(self, w: Rows) -> Any:
        """h*(w) = sup_z ⟨w, z⟩ − h(z), attained at the prox."""
        rows, single = self._rows(w, "w")
        rows = rows.astype(np.float64)
        z = _with_data(rows, self._prox(rows))
        values = row_sums(rows, rows.data * z.data) - self._values(z)
        return float(values[0]) if single else values

    def divergence(self, x: Rows, y: Rows) -> Any:
        """The Bregman divergence h(x) − h(y) − sup ⟨∂h(y), x − y⟩, row by row; never negative."""
        (left, single), (right, _) = self._rows(x, "x"), self._rows(y, "y")
        if left.shape != right.shape:
            raise InputError(f"y must have the shape of x, {left.shape}; got {right.shape}")
        step = sp.csr_array(left.csr().astype(np.float64) - right.csr().astype(np.float64))
        slope = _with_data(right, self._gradient(right)).csr().astype(np.float64)
        zero_there = (step - step.multiply(right.csr().astype(bool))).tocsr()
        off = abs(zero_there)
        with np.errstate(invalid="ignore", over="ignore"):
            linear = (slope.multiply(step)).sum(axis=1) + self._kink_sum(off, right)
            values = self._values(left) - self._values(right) - np.asarray(linear).ravel()
        values = np.where(np.isnan(values), np.inf, np.maximum(values, 0.0))
        return float(values[0]) if single else values

    def pairwise(self, X: Rows, Y: Rows, n_jobs: int | None = None) -> Floats:
        """C[i, j] = h(x_i − y_j) as float64; X and Y may be dense or sparse, each as it is.

        >>> import numpy as np, occamap as oc
        >>> oc.L1(1.0).pairwise(np.eye(2), np.zeros((1, 2)))
        array([[1.5],
               [1.5]])
        """
        left, right = check_samples(X, "X"), check_samples(Y, "Y")
        check_same_features(right, "Y", left.shape[1], left.names, "X")
        self._check_features(left.shape[1])
        out = np.empty((left.shape[0], right.shape[0]))
        with Workers(n_jobs) as workers:
            self._fill(left, right, out, workers)
        return out

    # -- details -----------------------------------------------------------------------------------------------

    def _check_scale(self, largest: float) -> None:  # noqa: B027
        """Raise where moves of samples of this magnitude would lose their digits under this penalty."""

    def _check_field(self, largest: float, d: int) -> None:  # noqa: B027
        """Raise where the field of d features would lose its digits, though a sample by itself moves without it."""

    def _work_dtype(self, X: Samples, Y: Samples) -> np.dtype[Any]:
        """float32 where both sides have it and its range leaves room for what is computed, else float64."""
        if np.result_type(X.dtype, Y.dtype) == np.float32 and self._fits_float32(max(X.largest(), Y.largest())):
            return np.dtype(np.float32)
        return np.dtype(np.float64)

    def _fits_float32(self, largest: float) -> bool:
        return 1e-9 < largest < 1e9

    def _fill(self, X: Samples, Y: Samples, out: Floats, workers: Workers, tick: Tick = None) -> None:
        """out[i, j] = h(x_i − y_j), a block of rows a task; tick(share done) after each."""
        dtype = self._work_dtype(X, Y)
        pairs = self._pairs(Y.astype(dtype))
        fill_rows(lambda x: (pairs.block(x),), pairs.rows, X.astype(dtype), (out,), workers, tick)

    def _fill_parts(
        self, X: Samples, Y: Samples, half: Floats, penalty: Floats, workers: Workers, tick: Tick = None
    ) -> None:
        """½‖x_i − y_j‖² and τ(x_i − y_j)/γ, of a penalty that is linear in γ, in one pass."""
        dtype = self._with_gamma(1.0)._work_dtype(X, Y)
        pairs = self._linear(Y.astype(dtype))
        assert pairs is not None
        fill_rows(pairs.parts, pairs.rows, X.astype(dtype), (half, penalty), workers, tick)

    def _with_gamma(self, gamma: float) -> Self:
        """The same penalty at another strength."""
        return replace(self, gamma=gamma)  # type: ignore[type-var, call-arg, unused-ignore]

    def _kink_sum(self, off: sp.csr_array, y: Samples) -> Floats:
        kink = np.broadcast_to(self._kink(y), off.shape) if off.nnz else np.zeros(off.shape)
        rows = np.repeat(np.arange(off.shape[0]), np.diff(off.indptr))
        stored = off.data > 0
        rows, columns, size = rows[stored], off.indices[stored], off.data[stored]
        return np.bincount(rows, weights=kink[rows, columns] * size, minlength=off.shape[0]).astype(np.float64)

    def _rows(self, raw: Rows, name: str) -> tuple[Samples, bool]:
        single = not sp.issparse(raw) and np.ndim(raw) == 1  # type: ignore[arg-type]
        rows = check_samples(np.asarray(raw)[None, :] if single else raw, name)
        self._check_features(rows.shape[1])
        return rows, single

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        mine = [getattr(self, f.name) for f in fields(self)]  # type: ignore[arg-type]
        theirs = [getattr(other, f.name) for f in fields(other)]  # type: ignore[arg-type]
        return all(_same(p, q) for p, q in zip(mine, theirs, strict=True))

    def __hash__(self) -> int:
        return hash(repr(self))


def check_strength(strength: float, largest: float, name: str, other: str) -> None:
    """Raise where a penalty is so strong next to the samples that its gradient has no digits left for them."""
    if strength > STRONGEST * largest > 0:
        raise InputError(
            f"{name} must be at most 1e8 times the largest entry, {largest:g}, else float64 cannot tell the "
            f"moves from rounding; got {strength:g}: take a smaller one, or {other}"
        )


def in_range(function: Callable[[Samples], NDArray[Any]], rows: Samples) -> NDArray[Any]:
    """function(rows), or an error where that is beyond the range of float32 and in that of float64."""
    with np.errstate(over="ignore"):
        values = function(rows)
    if rows.dtype == np.float32 and not np.isfinite(values).all():
        wide = function(rows.astype(np.float64))[~np.isfinite(values)]
        if np.isfinite(wide).any():
            largest = np.max(np.abs(wide), where=np.isfinite(wide), initial=0.0)
            raise InputError(f"z must be float64 for gradients as large as {largest:.3g}: float32 ends at 3e38")
    return values


def fill_rows(
    block: Callable[[Samples], tuple[Floats, ...]],
    rows: int,
    X: Samples,
    outs: tuple[Floats, ...],
    workers: Workers,
    tick: Tick,
) -> None:
    """outs[k][i] = block(X)[k][i], so many rows a task; tick(share done) after each."""

    def work(start: int) -> None:
        stop = min(start + rows, X.shape[0])
        for out, part in zip(outs, block(X.rows(start, stop)), strict=True):
            out[start:stop] = part

    for done, _ in enumerate(workers.map(work, range(0, X.shape[0], rows)), start=1):
        if tick is not None:
            tick(min(1.0, done * rows / X.shape[0]))


def _same(p: Any, q: Any) -> bool:
    if isinstance(p, dict) and isinstance(q, dict):
        return list(p) == list(q) and all(np.array_equal(p[key], q[key]) for key in p)
    return bool(np.array_equal(p, q))


def _with_data(rows: Samples, data: NDArray[Any]) -> Samples:
    return Samples(rows.shape, data, rows.indices, rows.indptr)


def row_sums(rows: Samples, entries: NDArray[Any]) -> Floats:
    """Sums of entries by row, in float64."""
    if rows.indptr is None:
        return np.asarray(entries.sum(axis=1, dtype=np.float64))
    sums = np.empty(rows.shape[0])
    ragged_sums(rows.indptr, entries, sums)
    return sums


def like_rows(rows: Samples, data: NDArray[Any], single: bool) -> Any:
    """Entries in the container that the rows came in; of a single sample, without the axis of rows."""
    if not rows.is_sparse:
        return data[0] if single else data
    out = _with_data(rows, data).csr().copy()  # the pattern may be the caller's own arrays
    out.eliminate_zeros()
    return out if isinstance(rows.template, sp.sparray) else sp.csr_matrix(out)
