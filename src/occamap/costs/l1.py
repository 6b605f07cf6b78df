"""½‖z‖² + γ Σ_t w_t|z_t|, and ½‖z‖² alone."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from occamap._kernels import displace, field, l1
from occamap._kernels.jit import LANES
from occamap._validate import Samples, check_number, check_reals
from occamap._workers import Workers
from occamap.costs.base import Tick, check_strength
from occamap.costs.generic import Displacer, Floats, LinearPairs, Pairs
from occamap.costs.lanes import LaneDisplacer, LinearLanePairs, aligned, tile_of, walk
from occamap.costs.separable import Separable
from occamap.errors import InputError


class _Elastic(Separable):
    """½z² + g_t|z|, with the strengths g from `_strengths`."""

    @abstractmethod
    def _strengths(self, d: int) -> Floats:
        """g of each feature."""

    @abstractmethod
    def _strength(self, features: Any) -> Any:
        """g of these features, or one number where all have the same."""

    def _values(self, z: Samples) -> Floats:
        if not z.is_sparse:
            return super()._values(z)
        values = np.empty(z.shape[0])
        l1.l1_values(z.indptr, z.indices, z.data, 0.5, self._strengths(z.shape[1]), values)
        return values

    def _entries(self, z: Floats, features: Any) -> Floats:
        size = np.abs(z)
        with np.errstate(invalid="ignore"):
            values = size * (0.5 * size + self._strength(features))
        return np.where(size == 0, 0.0, values)

    def _slopes(self, z: Floats, features: Any) -> Floats:
        sign = np.sign(z)
        with np.errstate(invalid="ignore"):
            slopes = z + self._strength(features) * sign
        return np.where(sign == 0, 0.0, slopes)

    def _shrink(self, w: Floats, features: Any) -> Floats:
        return np.asarray(np.sign(w) * np.maximum(np.abs(w) - self._strength(features), 0.0) + 0.0)

    def _kink(self, z: Samples) -> Floats:
        return self._strengths(z.shape[1])

    def _check_field(self, largest: float, d: int) -> None:
        strengths = self._strengths(d)
        strongest = float(np.max(strengths, initial=0.0, where=np.isfinite(strengths)))
        other = "pool=None, whose moves stay exact"
        check_strength(strongest, largest, "gamma times the weight of a feature, with pool,", other)

    def _fits_float32(self, largest: float) -> bool:
        strengths = np.atleast_1d(self._strength(slice(None)))
        return super()._fits_float32(largest) and strengths[np.isfinite(strengths)].max(initial=0.0) < 1e9

    def _pairs(self, Y: Samples) -> Pairs:
        return ElasticPairs(self, Y)

    def _displacer(self, Y: Samples) -> Displacer:
        strengths = self._strengths(Y.shape[1])
        return LaneDisplacer(ElasticPairs(self, Y), displace.l1_displace, field.l1_field, strengths)


@dataclass(frozen=True, eq=False)
class SqL2(_Elastic):
    """The cost ½‖z‖², of the usual entropic map: every feature moves.

    >>> SqL2().value([3.0, 4.0])
    12.5
    """

    def _strengths(self, d: int) -> Floats:
        return np.zeros(d)

    def _strength(self, features: Any) -> Any:
        return 0.0


@dataclass(frozen=True, eq=False)
class L1(_Elastic):
    """The elastic cost ½‖z‖² + γ Σ_t w_t|z_t|; its prox is soft thresholding at γ w_t.

    Parameters
    ----------
    gamma
        Strength γ ≥ 0 of the penalty, in units of the features.
    weights
        One weight w_t ≥ 0 a feature; 0 leaves a feature free, ∞ forbids it to move. A cost with frozen
        features is infinite between samples that differ in them; a fitted map leaves them out of the match.

    Examples
    --------
    >>> L1(1.0).prox([3.0, -0.5, 0.2]).tolist()
    [2.0, 0.0, 0.0]
    """

    gamma: float
    weights: ArrayLike | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "gamma", check_number(self.gamma, "gamma", 0, 1e100))
        if self.weights is None:
            return
        if hasattr(self.weights, "index") and hasattr(self.weights, "to_numpy"):
            raise InputError("weights must be a plain array in the order of the features, a Series is not aligned: "
                             "reindex it by the feature names and pass weights.to_numpy()")
        weights = check_reals(self.weights, "weights")
        if weights.ndim != 1 or weights.size == 0 or not np.all(weights >= 0):
            bad = weights.shape if weights.ndim != 1 or weights.size == 0 else weights[~(weights >= 0)][0]
            raise InputError(f"weights must be one number ≥ 0 (or infinity) a feature; got {bad}")
        if max(1.0, self.gamma) * min(1e200, weights[np.isfinite(weights)].max(initial=0.0)) > 1e100:
            raise InputError("weights times gamma must not exceed 1e100; use infinity to freeze a feature")
        weights.setflags(write=False)
        object.__setattr__(self, "weights", weights)

    def _check_features(self, d: int) -> None:
        if self.weights is not None and np.size(self.weights) != d:
            raise InputError(f"weights must have one entry for each of the {d} features; got {np.size(self.weights)}")

    def _strengths(self, d: int) -> Floats:
        return np.full(d, self.gamma) if self.weights is None else self._weighted()

    def _strength(self, features: Any) -> Any:
        return self.gamma if self.weights is None else self._weighted()[features]

    def _weighted(self) -> Floats:
        weights = np.asarray(self.weights)
        return np.where(np.isinf(weights), np.inf, self.gamma * np.where(np.isinf(weights), 0.0, weights))

    def _frozen(self, d: int) -> NDArray[np.bool_]:
        return np.zeros(d, bool) if self.weights is None else np.isinf(np.asarray(self.weights))

    def _linear(self, Y: Samples) -> LinearPairs | None:
        return ElasticPairs(self._with_gamma(1.0), Y)

    def _fill(self, X: Samples, Y: Samples, out: Floats, workers: Workers, tick: Tick = None) -> None:
        frozen = self._frozen(X.shape[1])
        super()._fill(X.without(frozen), Y.without(frozen), out, workers, tick)
        forbid(X, Y, frozen, out, workers)


def forbid(X: Samples, Y: Samples, frozen: NDArray[np.bool_], out: Floats, workers: Workers) -> None:
    """Make the cost infinite between samples that differ in a frozen feature."""
    if frozen.any():
        differ = np.empty_like(out)
        L1(1.0)._fill(X.without(~frozen), Y.without(~frozen), differ, workers)
        out[differ > 0] = np.inf


class ElasticPairs(LinearLanePairs):
    """h(x) + h(y) minus the overlap over the stored entries of y; plain sums where Y is dense."""

    cost: _Elastic

    def __init__(self, cost: _Elastic, Y: Samples) -> None:
        super().__init__(cost, Y)
        strengths = cost._strengths(Y.shape[1])
        self.strengths = np.where(np.isinf(strengths), 0.0, strengths)  # frozen features are the same on both sides
        self.g = self.strengths.astype(Y.dtype)
        self.plain = bool(np.min(Y.data, initial=0.0) >= 0 and np.ptp(self.g) == 0)

    def _sums(self, X: Samples) -> Floats:
        out: Floats = aligned((self.Y.shape[0], LANES), np.float64, fill=0)
        if not self.Y.is_sparse:
            l1.l1_sums(X.data, self.Y.data, self.g, tile_of(X), out, None)
            out *= 0.5
            return out
        l1.l1_overlap(*self._stored(X), self._is_plain(X), out, None)
        scale = self.cost._values(X)[None, :] + self.y_values[:, None]
        np.subtract(scale, out[:, : X.shape[0]], out=out[:, : X.shape[0]])
        self._recompute(_pair_costs, self.strengths, X, out, scale)
        return out

    def _part_sums(self, X: Samples) -> tuple[Floats, Floats]:
        """½‖x − y‖² and τ(x − y) of at most LANES rows, transposed; close pairs computed again, as for costs."""
        n, shape = X.shape[0], (self.Y.shape[0], LANES)
        half, penalty = aligned(shape, np.float64, fill=0), aligned(shape, np.float64, fill=0)
        if not self.Y.is_sparse:
            l1.l1_sums(X.data, self.Y.data, self.g, tile_of(X), half, penalty)
            return 0.5 * half[:, :n], 0.5 * penalty[:, :n]
        l1.l1_overlap(*self._stored(X), self._is_plain(X), half, penalty)
        scales, parts = self._scales(X), (half[:, :n], penalty[:, :n])
        for scale, part in zip(scales, parts, strict=True):
            np.subtract(scale, part, out=part)
        close = self._close(X, parts[0], scales[0]) | self._close(X, parts[1], scales[1])
        j, i = np.nonzero(close)
        if self._too_many(X, j, scales[0]):
            return self._widened()._part_sums(X.astype(np.float64))
        if j.size:
            l1.l1_pairs(*self._pair_rows(X), self.strengths, i, j, *self._pair_scratch(X), half, penalty)
        return parts

    def _scales(self, X: Samples) -> tuple[Floats, Floats]:
        """½‖x‖² + ½‖y‖² and τ(x) + τ(y) of all pairs, transposed."""
        x_half, x_penalty = self._row_parts(X)
        y_half, y_penalty = self._y_parts
        return x_half + y_half[:, None], x_penalty + y_penalty[:, None]

    @cached_property
    def _y_parts(self) -> tuple[Floats, Floats]:
        return self._row_parts(self.Y)

    def _row_parts(self, rows: Samples) -> tuple[Floats, Floats]:
        half, penalty = np.empty((2, rows.shape[0]))
        indptr, indices, data = rows.stored()
        l1.l1_values(indptr, indices, data, 0.5, np.zeros_like(self.strengths), half)
        l1.l1_values(indptr, indices, data, 0.0, self.strengths, penalty)
        return half, penalty

    def _stored(self, X: Samples) -> tuple[Any, ...]:
        return *walk(X), *self.entries, self.g

    def _is_plain(self, X: Samples) -> bool:
        return self.plain and bool(np.min(X.data, initial=0.0) >= 0)


def _pair_costs(*arguments: Any) -> None:
    l1.l1_pairs(*arguments, None)
