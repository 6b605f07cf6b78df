"""½‖z‖² + ½γ‖A⊥z‖²: moves within a subspace are cheap, those out of it cost 1 + γ times as much."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from occamap._kernels import displace, field
from occamap._kernels.jit import LANES
from occamap._validate import Samples, check_number, check_reals
from occamap.costs.base import STRONGEST as STRONGEST_FIELD
from occamap.costs.base import Cost, Rows, in_range, like_rows, row_sums
from occamap.costs.generic import Displacer, Field, Floats, Gibbs, LinearPairs, Pairs
from occamap.costs.l1 import SqL2
from occamap.costs.lanes import LaneDisplacer, LanePairs
from occamap.errors import InputError

SKEW = 1e-6  # by which AAᵀ may differ from the identity; what is left of it is then removed
STRONGEST = 1e16  # γ: its square root times the rounding error is that of a cost
ROUNDING = 1e-15  # of sums of products, relative to the sizes of their factors
ACCURACY = 1e-13  # of a cost: where ‖z‖² − ‖Az‖² leaves less, ‖A⊥z‖² is summed instead
CHUNK = 2**20  # entries that are dense at a time then


@dataclass(frozen=True, eq=False, repr=False)
class Subspace(Cost):
    """½‖z‖² + ½γ‖A⊥z‖², with A⊥ the projector on the complement of the span of the rows of A (Klein et al., 2024).

    The prox shrinks what is out of the span by 1/(1 + γ). As h is quadratic, so is the whole map: T(x) is the mean of
    the targets under their Gibbs weights, γ acts through these alone, and every feature moves. There is no shrinkage
    that `relax` could undo and no kink for `ties`.

    Parameters
    ----------
    gamma
        Strength γ ≥ 0, without a unit: a move out of the span costs 1 + γ times what it costs within.
    basis
        A, one direction a row: (k, d), orthonormal. `learn_subspace` finds one.

    Examples
    --------
    >>> Subspace(1.0, [[1.0, 0.0, 0.0]]).prox([3.0, -1.0, 0.5]).tolist()
    [3.0, -0.5, 0.25]
    """

    gamma: float
    basis: ArrayLike

    def __post_init__(self) -> None:
        object.__setattr__(self, "gamma", check_number(self.gamma, "gamma", 0, 1e100))
        if hasattr(self.basis, "index") and hasattr(self.basis, "to_numpy"):
            raise InputError("basis must be a plain array, its columns in the order of the features, a data frame is "
                             "not aligned: put its columns in that order and pass basis.to_numpy()")
        basis = check_reals(self.basis, "basis")
        if basis.ndim != 2 or not 1 <= basis.shape[0] <= basis.shape[1]:
            raise InputError(f"basis must be k directions × d features with 1 ≤ k ≤ d; got shape {basis.shape}")
        if not np.isfinite(basis).all():
            raise InputError(f"basis must be finite; got {basis[~np.isfinite(basis)][0]}")
        basis = _orthonormal(basis) + 0.0  # no −0: equal bases have equal bytes
        basis.setflags(write=False)
        object.__setattr__(self, "basis", basis)

    def __repr__(self) -> str:
        k, d = np.shape(self.basis)
        return f"Subspace(gamma={self.gamma}, basis=<{k} directions × {d} features>)"

    def __hash__(self) -> int:
        return hash((self.gamma, np.asarray(self.basis).tobytes()))

    def _check_features(self, d: int) -> None:
        if np.shape(self.basis)[1] != d:
            raise InputError(f"basis must have one column for each of the {d} features; got {np.shape(self.basis)[1]}")

    def _check_scale(self, largest: float) -> None:
        if self.gamma > STRONGEST:
            raise InputError("gamma must be at most 1e16 for Subspace, else float64 cannot tell what is in the span "
                             f"from what is not; got {self.gamma:g}: take a smaller one")

    def _check_field(self, largest: float, d: int) -> None:
        if self.gamma > STRONGEST_FIELD:
            raise InputError("gamma must be at most 1e8 for Subspace with pool, else float64 cannot tell the moves "
                             f"from rounding; got {self.gamma:g}: take a smaller one, or pool=None")

    @cached_property
    def _directions(self) -> Floats:
        """Aᵀ."""
        return np.ascontiguousarray(np.asarray(self.basis).T)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_directions"}

    def _inside(self, z: Samples) -> Floats:
        """Az of each row; by SciPy, not BLAS, so that it depends on nothing but the row."""
        return cast(Floats, z.astype(np.float64).csr() @ self._directions)

    def _split(self, z: Samples) -> tuple[Floats, Floats]:
        """A⊤Az and A⊥z of each row, dense."""
        within = cast(Floats, sp.csr_array(self._inside(z)) @ np.asarray(self.basis))
        return within, z.dense() - within

    def _scaled(self, raw: Rows, name: str, factor: float) -> Any:
        """What is out of the span times a factor, in the container of the input."""
        rows, single = self._rows(raw, name)
        out = in_range(lambda z: self._scaled_rows(z, factor), rows)
        if rows.is_sparse:
            csr = sp.csr_array(out)
            rows = replace(rows, indices=csr.indices, indptr=csr.indptr.astype(np.int64))
            out = csr.data
        return like_rows(rows, out, single)

    def _scaled_rows(self, z: Samples, factor: float) -> NDArray[Any]:
        if factor == 1:
            return z.dense()
        within, out = self._split(z)
        return np.asarray(within + factor * out, z.dtype)

    # -- h is quadratic: all of it in closed form, and dense where the input is sparse -----------------------------

    def grad(self, z: Rows) -> Any:
        """∇h(z) = z + γA⊥z; sparse for sparse rows, though few of its entries are 0."""
        return self._scaled(z, "z", 1 + self.gamma)

    def prox(self, w: Rows) -> Any:
        """prox_τ(w) = w − γ/(1 + γ)·A⊥w; sparse for sparse rows, though few of its entries are 0."""
        return self._scaled(w, "w", 1 / (1 + self.gamma))

    def conjugate(self, w: Rows) -> Any:
        """h*(w) = ½‖Aw‖² + ½‖A⊥w‖²/(1 + γ)."""
        rows, single = self._rows(w, "w")
        half, penalty = self._row_parts(rows)
        values = half - self.gamma / (1 + self.gamma) * penalty
        return float(values[0]) if single else values

    def divergence(self, x: Rows, y: Rows) -> Any:
        """The Bregman divergence of a quadratic function: h(x − y), row by row."""
        (left, single), (right, _) = self._rows(x, "x"), self._rows(y, "y")
        if left.shape != right.shape:
            raise InputError(f"y must have the shape of x, {left.shape}; got {right.shape}")
        step = left.csr().astype(np.float64) - right.csr().astype(np.float64)
        values = self._values(self._rows(step, "x")[0])
        return float(values[0]) if single else values

    def _values(self, z: Samples) -> Floats:
        half, penalty = self._row_parts(z)
        return half + self.gamma * penalty

    def _gradient(self, z: Samples) -> NDArray[Any]:
        return self._scaled_rows(z, 1 + self.gamma)

    def _prox(self, w: Samples) -> NDArray[Any]:
        return self._scaled_rows(w, 1 / (1 + self.gamma))

    def _kink(self, z: Samples) -> Floats:
        return np.zeros(z.shape[1])

    def _row_parts(self, z: Samples) -> tuple[Floats, Floats]:
        """½‖z‖² and ½‖A⊥z‖² of each row."""
        data = z.data.astype(np.float64)
        half = 0.5 * row_sums(z, data * data)
        if not z.is_sparse:
            return half, 0.5 * np.sum(self._split(z)[1] ** 2, axis=1)
        penalty = np.maximum(half - 0.5 * np.sum(self._inside(z) ** 2, axis=1), 0.0)
        again = np.flatnonzero(self._is_lost(half, penalty, 0.0))
        for rows in _chunks(again, z.shape[1]):
            penalty[rows] = 0.5 * np.sum(self._split(z.take(rows))[1] ** 2, axis=1)
        return half, penalty

    def _is_lost(self, half: Floats, penalty: Floats, sizes: Any) -> NDArray[np.bool_]:
        """Where rounding of Az shows in the cost; `sizes` are the norms of what Az was a difference of."""
        error = ROUNDING * np.sqrt(2 * half) * (np.sqrt(2 * half) + sizes)
        return np.asarray(self.gamma * error > ACCURACY * (half + self.gamma * penalty))

    # -- pairs -------------------------------------------------------------------------------------------------

    def _pairs(self, Y: Samples) -> Pairs:
        return _SubspacePairs(self, Y)

    def _more_bytes(self, Y: Samples) -> int:
        # pairs are float64, whatever the samples are
        return int(16 * Y.data.size + 8 * Y.shape[0] * self._directions.shape[1])

    def _lane_bytes(self, m: int, d: int) -> int:
        return 72 * m + 8 * d

    def _linear(self, Y: Samples) -> LinearPairs | None:
        return _SubspacePairs(self._with_gamma(1.0), Y)

    def _displacer(self, Y: Samples) -> Displacer:
        return _SubspaceDisplacer(_SubspacePairs(self, Y))


def _orthonormal(basis: Floats) -> Floats:
    """The basis itself if its rows are orthonormal, a nearby one if they nearly are."""

    def skew(A: Floats) -> Floats:
        return A @ A.T - np.eye(A.shape[0])

    worst = float(np.abs(skew(basis)).max())
    if worst > SKEW:
        raise InputError(
            f"basis must have orthonormal rows; AAᵀ differs from the identity by up to {worst:.2g}: "
            "take np.linalg.qr(basis.T)[0].T, which spans the same"
        )
    for _ in range(2 if worst > 1e-12 else 0):  # Newton's steps to the nearest one, each squaring the error
        basis = basis - 0.5 * skew(basis) @ basis
    return basis


def _chunks(index: NDArray[np.int64], d: int) -> list[NDArray[np.int64]]:
    """The indices, in parts of as many rows as are dense at a time."""
    return np.split(index, range(max(1, CHUNK // d), index.size, max(1, CHUNK // d))) if index.size else []


class _SubspacePairs:
    """½‖x − y‖² of all features and of the k coordinates in the span, of which ½‖A⊥(x − y)‖² is the difference.

    In float64: the difference of two parts rounded to float32 would not do. Dense rows are centred first, which keeps
    the digits of coordinates that would else be lost to a common mean.
    """

    rows = LANES

    def __init__(self, cost: Subspace, Y: Samples) -> None:
        self.cost, self.Y = cost, Y.astype(np.float64)
        self.centre = None if Y.is_sparse else self.Y.data.mean(axis=0)
        self.square = cast(LanePairs, SqL2()._pairs(self.Y))
        self.coordinates, self.sizes = self._coordinates(self.Y)
        self.inside = SqL2()._pairs(_samples(self.coordinates))

    def _coordinates(self, X: Samples) -> tuple[Floats, Floats]:
        """Ax, about the centre if there is one, and the size of what it is a sum of."""
        coordinates, sizes = np.empty((X.shape[0], self.cost._directions.shape[1])), np.empty(X.shape[0])
        for rows, part in X.pieces():
            coordinates[rows], sizes[rows] = self._centred(part)
        return coordinates, sizes

    def _centred(self, X: Samples) -> tuple[Floats, Floats]:
        if self.centre is not None and not X.is_sparse:
            X = _samples(X.data - self.centre)
        coordinates, sizes = self.cost._inside(X), np.sqrt(row_sums(X, X.data * X.data))
        if self.centre is not None and X.is_sparse:
            coordinates -= self.cost._inside(_samples(self.centre[None, :]))
            sizes += np.linalg.norm(self.centre)
        return coordinates, sizes

    def block(self, X: Samples) -> Floats:
        half, penalty = self.parts(X)
        penalty *= self.cost.gamma
        penalty += half
        return penalty

    def parts(self, X: Samples) -> tuple[Floats, Floats]:
        X = X.astype(np.float64)
        half = self.square.block(X)
        if self.cost.gamma == 0:
            return half, np.zeros_like(half)
        coordinates, sizes = self._coordinates(X)
        penalty = np.maximum(half - self.inside.block(_samples(coordinates)), 0.0)
        i, j = np.nonzero(self.cost._is_lost(half, penalty, sizes[:, None] + self.sizes))
        for part in _chunks(np.arange(i.size), X.shape[1]):
            z = X.take(i[part]).dense() - self.Y.take(j[part]).dense()
            penalty[i[part], j[part]] = self.cost._row_parts(_samples(z))[1]
        return half, penalty


def _samples(rows: Floats) -> Samples:
    return Samples((rows.shape[0], rows.shape[1]), np.ascontiguousarray(rows))


class _SubspaceDisplacer:
    """x moves to the mean of its targets, as under ½‖·‖², but with the Gibbs weights of this cost."""

    by_feature, dtype = False, np.dtype(np.float64)

    def __init__(self, pairs: _SubspacePairs) -> None:
        self.pairs: Pairs = pairs
        self.cost = pairs.cost
        self.mean = LaneDisplacer(pairs.square, displace.l1_displace, field.l1_field, np.zeros(pairs.Y.shape[1]))

    def field(self, X: Samples, weights: Floats, out: Field, start: int = 0) -> None:
        towards = Field.empty(*X.shape, np.float64, shifts=False, balls=None)
        self.mean.field(X.astype(np.float64), weights, towards)
        slopes = self.cost._gradient(Samples(X.shape, towards.slopes))
        wanted = slice(start, start + out.slopes.shape[1])
        out.put(slopes[:, wanted], -towards.slopes[:, wanted])

    def block(self, X: Samples, gibbs: Gibbs, ties: int, relax: float, C: Floats | None = None) -> sp.csr_array:
        return self.mean.block(X, gibbs, ties, relax, self.pairs.block(X) if C is None else C)
