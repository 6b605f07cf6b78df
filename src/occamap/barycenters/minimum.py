"""argmin_x Σ_j w_j h(x − y_j): the point that given weights of the targets pull to, exact where h is separable."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from occamap._validate import Samples
from occamap._workers import Workers
from occamap.costs import L1, Cost, SqL2
from occamap.costs.separable import Separable

Floats = NDArray[np.float64]

FEATURES = 64  # a task
INNER, SETTLED = 100, 1e-7  # iterations of ADMM, and the move (of the largest entry) that ends them earlier


class ByFeature:
    """For separable costs: an exact minimum feature by feature, from the sorted entries that the targets store."""

    def __init__(self, cost: Separable, targets: list[Samples]) -> None:
        self.cost, self.d, self.m = cost, targets[0].shape[1], sum(target.shape[0] for target in targets)
        self.sparse = all(target.is_sparse for target in targets)
        pooled = pool(targets)
        pooled.eliminate_zeros()
        self.columns = sp.csc_array(pooled)
        self.strengths = cost._strengths(self.d) if isinstance(cost, L1 | SqL2) else None
        self.kinks = cost._kink(Samples((1, self.d), np.zeros((1, self.d))))

    def minimum(self, weights: Floats, support: Samples, workers: Workers) -> Any:
        """One row a column of the weights; CSR if all targets are."""
        def block(start: int) -> Any:
            stop = min(start + FEATURES, self.d)
            found = np.zeros((stop - start, weights.shape[1]))
            for t in range(start, stop):
                low, high = self.columns.indptr[t : t + 2]
                rows, entries = self.columns.indices[low:high], self.columns.data[low:high]
                if entries.size:
                    found[t - start] = self._feature(t, rows, entries, weights)
            return sp.csr_array(found) if self.sparse else found

        pieces = list(workers.map(block, range(0, self.d, FEATURES)))
        if self.sparse:
            return sp.csr_array(sp.vstack(pieces).T.tocsr())
        return np.ascontiguousarray(np.concatenate(pieces).T)

    def _feature(self, t: int, rows: NDArray[Any], entries: Floats, weights: Floats) -> Floats:
        """The minima of one feature: from sorted values and their weights, 0 among them for what is not stored."""
        order = np.argsort(entries, kind="stable")
        values, held = entries[order], weights[rows[order]]
        if values.size < self.m:
            at = int(np.searchsorted(values, 0.0))
            rest = np.maximum(1.0 - held.sum(axis=0), 0.0)
            values, held = np.insert(values, at, 0.0), np.insert(held, at, rest, axis=0)
        if values[0] == values[-1]:
            return np.full(held.shape[1], values[0])
        if self.strengths is not None:
            return _elastic_minimum(values, held, float(self.strengths[t]))
        return _separable_minimum(self.cost, t, values, held, float(self.kinks[t]))


def _elastic_minimum(values: Floats, held: Floats, strength: float) -> Floats:
    """Of ½x² − x·mean + strength Σ_r held_r |x − values_r|: between the values the slope is a line."""
    mean = values @ held
    if strength == 0:
        return np.asarray(mean)
    below = np.cumsum(held, axis=0)
    total = below[-1].copy()
    roots = np.empty((values.size + 1, mean.size))  # of the line left of each value, and of the last one
    roots[0], roots[1:] = mean + strength * total, mean + strength * (total - 2 * below)
    first = np.argmax(np.vstack([roots[1:] <= values[:, None], np.ones((1, mean.size), bool)]), axis=0)
    ends = np.append(values, np.inf)
    return np.asarray(np.minimum(ends[first], np.take_along_axis(roots, first[None, :], axis=0)[0]))


def _separable_minimum(cost: Separable, t: int, values: Floats, held: Floats, kink: float) -> Floats:
    """The zero of the rising slope Σ_r held_r h′(x − values_r): at a value, where it jumps, or between two of them."""
    values, starts = np.unique(values, return_index=True)
    held = np.add.reduceat(held, starts, axis=0)

    def slope(x: Floats, columns: Any = slice(None)) -> Floats:
        z = x[None, :] - values[:, None]
        slopes = cost._slopes(z.T, np.full(values.size, t)).T
        return np.asarray((held[:, columns] * slopes).sum(axis=0))

    n = held.shape[1]
    low, high = np.zeros(n, np.int64), np.full(n, values.size - 1)  # the first value that the slope is ≥ 0 right of
    while np.any(low < high):
        middle = (low + high) // 2
        risen = slope(values[middle]) + kink * held[middle, np.arange(n)] >= 0
        low, high = np.where(risen, low, np.minimum(middle + 1, high)), np.where(risen, middle, high)
    found: Floats = values[high].copy()
    jump = kink * held[high, np.arange(n)]
    inside = np.flatnonzero((slope(found) - jump > 0) & (high > 0))
    if inside.size:
        left, right = values[high[inside] - 1], values[high[inside]]
        found[inside] = _root(lambda x: slope(x, inside), left, right)
    return found


def _root(slope: Any, left: Floats, right: Floats) -> Floats:
    """Of slopes that rise from below to above 0 strictly between the ends: false position, the stale end halved."""
    left, right = left.copy(), right.copy()
    nudge = 1e-9 * (right - left)  # at the ends themselves the slope is the middle of a jump
    low, high = slope(left + nudge), slope(right - nudge)
    x, side = 0.5 * (left + right), np.zeros(left.size, np.int8)
    for _ in range(100):
        safe = (low < 0) & (high > 0)
        share = np.where(safe, -low / np.where(safe, high - low, 1.0), 0.5)
        new = left + np.clip(share, 1e-3, 1 - 1e-3) * (right - left)
        if np.all(np.abs(new - x) <= 1e-14 * (np.abs(left) + np.abs(right))):
            return new
        x, value = new, slope(new)
        above = value > 0
        low = np.where(above, np.where(side > 0, 0.5 * low, low), value)
        high = np.where(above, value, np.where(side < 0, 0.5 * high, high))
        left, right = np.where(above, left, x), np.where(above, x, right)
        side = np.where(above, 1, -1).astype(np.int8)
    return x


class ByPoint:
    """For any cost: z_j = x − y_j as unknowns of their own (ADMM), which takes no more of h than the prox of τ."""

    def __init__(self, cost: Cost, targets: list[Samples]) -> None:
        self.cost, self.sparse = cost, all(target.is_sparse for target in targets)
        self.Y = pool(targets).toarray()

    def minimum(self, weights: Floats, support: Samples, workers: Workers) -> Any:
        """One row a column of the weights; CSR if all targets are."""
        points = zip(support.dense().astype(np.float64), weights.T, strict=True)
        found = np.stack(list(workers.map(lambda pair: self._point(*pair), points)))
        return sp.csr_array(found) if self.sparse else found

    def _point(self, x: Floats, w: Floats) -> Floats:
        near = w > 1e-12 * w.max()
        w, Y = w[near] / w[near].sum(), self.Y[near]
        mean, scale = w @ Y, SETTLED * max(float(np.abs(Y).max()), float(np.abs(x).max()))
        start, z = x, x - Y
        u = self._gradient(z) - z
        for _ in range(INNER):
            z = self._prox(x - Y + u)
            new = mean + 0.5 * (w @ (z - u))
            apart = new - Y - z
            u += apart
            if max(np.abs(new - x).max(), np.abs(apart).max()) <= scale:
                break
            x = new
        tied = np.where(z == 0, np.abs(new - Y), np.inf)
        nearest = np.take_along_axis(Y, tied.argmin(axis=0)[None, :], axis=0)[0]
        exact = np.where(np.isfinite(tied.min(axis=0)), nearest, new)
        candidates = np.stack([exact, new, start])
        return np.asarray(candidates[np.argmin([w @ self.cost._values(_dense(c - Y)) for c in candidates])])

    def _prox(self, w: Floats) -> Floats:
        return np.asarray(self.cost._prox(_dense(w)), np.float64)

    def _gradient(self, z: Floats) -> Floats:
        return np.asarray(self.cost._gradient(_dense(z)), np.float64)


def minimiser(cost: Cost, targets: list[Samples]) -> ByFeature | ByPoint:
    """What finds argmin_x Σ_j w_j h(x − y_j) of the pooled targets, for each column w of the weights."""
    return ByFeature(cost, targets) if isinstance(cost, Separable) else ByPoint(cost, targets)


def pool(targets: list[Samples]) -> sp.csr_array:
    """All samples below each other."""
    return sp.csr_array(sp.vstack([target.csr().astype(np.float64) for target in targets]))


def _dense(z: Floats) -> Samples:
    return Samples(z.shape, np.ascontiguousarray(z))
