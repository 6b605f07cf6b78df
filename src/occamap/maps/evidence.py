"""Moves that stand out from noise: a penalty for each neighbourhood and feature, set by a false-discovery rate.

A neighbourhood has weights w over the source samples, and v = Σ_i w_i p(x_i) over the targets of these. Its shift
Σ_j v_j y_j − Σ_i w_i x_i has the squared standard error Σw²/(1 − Σw²) Var_w(x) + Σv²/(1 − Σv²) Var_v(y), which is that
of Welch's test if all weights are equal. The penalty is a multiple of the standard error: a feature moves where its
shift is larger. The multiple is the smallest at which the false-discovery rate over all samples and features, by
Benjamini and Hochberg, is at most the one asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy import special

from occamap._kernels.evidence import count_scores, find_scores
from occamap._kernels.jit import LANES
from occamap._kernels.pool import pool_tile
from occamap._memory import Budget
from occamap._validate import Samples
from occamap._workers import Workers
from occamap.costs.base import Tick
from occamap.costs.lanes import aligned
from occamap.maps.pooling import Neighbours, Pool, PooledSide, as_rows
from occamap.maps.side import Side, Span, row_spans
from occamap.sinkhorn import CostBlocks

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BINS_PER_UNIT, LARGEST = 256, 40  # of scores: there is no p-value in float64 beyond 38 standard errors
N_BINS = BINS_PER_UNIT * LARGEST + 1
SAMPLED = 4096  # neighbourhoods whose scores set the threshold, spread evenly, if there are more
LEAST_WEIGHT = 1e-4  # of the largest weight of a sample: targets below it are left out
WIDTH = 1024  # features in a tile
UNIFORM = 1 - 1e-9  # Σ w² of a neighbourhood that is one sample: it has no spread
ROUNDING = {np.dtype(np.float32): 4e-6, np.dtype(np.float64): 1e-13}  # of a mean square, which a variance is not below
LEAST_Q = float(np.finfo(np.float32).tiny)  # smaller ones would be 0 in float32, and no entry of a sparse matrix

Columns = tuple[Ints, NDArray[np.int32], NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Threshold:
    """The score that a move needs, from how often each score occurs among the fitted samples.

    Attributes
    ----------
    fdr
        The false-discovery rate that was asked for.
    counts
        The number of entries (sample × feature) by score, in bins of 1/256; the last has all from 40 on.
    """

    fdr: float
    counts: Ints

    @cached_property
    def q(self) -> Floats:
        """The false-discovery rate at which an entry in each bin is found."""
        if self.counts.sum() == 0:
            return np.ones(self.counts.size)
        beyond = np.cumsum(self.counts[::-1])[::-1]
        p = 2 * special.ndtr(-np.arange(self.counts.size) / BINS_PER_UNIT)
        expected = p * float(self.counts.sum())
        rate = np.divide(expected, beyond, out=np.full(p.size, np.inf), where=beyond > 0)
        found = np.minimum(np.minimum.accumulate(rate), 1.0)
        # beyond the largest score, as if one entry were there
        return np.minimum(found, np.maximum(np.minimum(expected, 1.0), LEAST_Q))

    @property
    def critical(self) -> float:
        """The smallest score of a move, in standard errors; infinite if nothing is found."""
        found = np.flatnonzero((self.q <= self.fdr) & (np.cumsum(self.counts[::-1])[::-1] > 0))
        return float(found[0] / BINS_PER_UNIT) if found.size else np.inf

    @property
    def n_tested(self) -> int:
        return int(self.counts.sum())

    def q_of(self, scores: Floats) -> Floats:
        """Of entries with these scores."""
        bins = np.minimum((scores * BINS_PER_UNIT).astype(np.int64), self.counts.size - 1)
        return np.maximum(self.q[bins], LEAST_Q)


class TestedSide(PooledSide):
    """A side that moves points where the shift of their neighbourhood stands out; `threshold` says by how much."""

    def __init__(
        self,
        plain: Side,
        source: Samples,
        pool: Pool,
        threshold: Callable[[], Threshold],
        source_costs: CostBlocks | None = None,
    ) -> None:
        super().__init__(plain, source, pool, source_costs)
        self.threshold = threshold

    def calibrate(self, fdr: float, workers: Workers, budget: Budget) -> Threshold:
        """The threshold at this false-discovery rate over the fitted samples."""
        neighbours = self.neighbours(workers, budget)
        W, of = self.pool(self.source, neighbours, self, workers, budget)
        times = np.bincount(of, minlength=W.shape[0])
        every = np.flatnonzero(times)
        some = every[np.linspace(0, every.size - 1, min(SAMPLED, every.size)).astype(np.int64)]
        return Threshold(fdr, _Evidence(neighbours, W[some], workers, budget, None).counts(times[some]))

    def displace(
        self,
        X: Samples,
        finish: Callable[[Span, sp.csr_array], sp.csr_array | None],
        ties: int,
        relax: float,
        workers: Workers,
        budget: Budget,
        tick: Tick = None,
        costs: CostBlocks | None = None,
    ) -> sp.csr_array:
        moves, _ = self.tested(X, relax, workers, budget, tick, costs)
        pieces = (finish(span, as_rows(moves, span)) for span in row_spans(X.shape[0]))
        return self._gather(pieces, X, budget, None)

    def tested(
        self,
        X: Samples,
        relax: float,
        workers: Workers,
        budget: Budget,
        tick: Tick = None,
        costs: CostBlocks | None = None,
    ) -> tuple[sp.csr_array, sp.csr_array]:
        """The moves of X, and the q-values of the same entries."""
        neighbours = self.neighbours(workers, budget)
        W, of = self.pool(X, neighbours, self, workers, budget, costs)
        found = _Evidence(neighbours, W, workers, budget, tick).moves(self.threshold(), relax, X.dtype)
        if not np.array_equal(of, np.arange(W.shape[0])):
            return sp.csr_array(found[0][of]), sp.csr_array(found[1][of])
        return found


class _Evidence:
    """Shifts of neighbourhoods and their standard errors: all features of LANES neighbourhoods a task."""

    def __init__(self, neighbours: Neighbours, W: sp.csr_array, workers: Workers, budget: Budget, tick: Tick) -> None:
        source, target = neighbours.source, neighbours.side.anchors
        self.W, self.workers, self.tick = sp.csr_array(W), workers, tick
        self.dtype = np.dtype(neighbours.displacer.dtype)
        self.d = source.shape[1]
        width = min(WIDTH, self.d)
        block = 4.0 * width * LANES * self.dtype.itemsize + 16.0 * LANES * (source.shape[0] + target.shape[0])
        columns = 3.0 * (source.data.nbytes + target.data.nbytes)
        budget.require(workers.count * block + columns, f"comparing the neighbourhoods of {W.shape[0]} samples")
        self.P = _matched(neighbours, workers)
        self.sides = _columns(source, target, self.dtype)

    def counts(self, times: Ints) -> Ints:
        """How often each score occurs; times[q] is the number of samples with neighbourhood q."""

        def block(span: Span) -> Ints:
            counts = np.zeros(N_BINS, np.int64)
            weight = np.zeros(LANES, np.int64)
            weight[: span[1] - span[0]] = times[slice(*span)]
            for _, tile, sizes in self._tiles(span):
                count_scores(*tile, sizes, weight, ROUNDING[self.dtype], BINS_PER_UNIT, counts)
            return counts

        return np.asarray(sum(self._over(block)))

    def moves(self, threshold: Threshold, relax: float, dtype: Any) -> tuple[sp.csr_array, sp.csr_array]:
        """Moves where the score is large enough, and their q-values."""
        critical = threshold.critical

        def block(span: Span) -> tuple[sp.csr_array, sp.csr_array]:
            features, lanes, values, scores = [], [], [], []
            for start, tile, sizes in self._tiles(span) if np.isfinite(critical) else ():
                t, lane, shift, score, penalty = _found(tile, sizes, ROUNDING[self.dtype], critical)
                values.append(shift - (1 - relax) * np.sign(shift) * penalty)
                features.append(t + start)
                lanes.append(lane)
                scores.append(score)
            shape = span[1] - span[0], self.d
            where = (np.concatenate(part) if part else np.empty(0, np.int64) for part in (lanes, features))
            rows, columns = where
            q = threshold.q_of(np.concatenate(scores)) if scores else np.empty(0)
            moved = np.concatenate(values) if values else np.empty(0)
            entries = ((moved.astype(dtype), (rows, columns)), (q.astype(np.float32), (rows, columns)))
            first, second = (sp.csr_array(entry, shape=shape) for entry in entries)
            return first, second

        parts = list(self._over(block))
        moves, q = (sp.csr_array(sp.vstack([part[k] for part in parts], format="csr")) for k in range(2))
        return moves, q

    def _over(self, block: Callable[[Span], Any]) -> Iterator[Any]:
        n = self.W.shape[0]
        for done, result in enumerate(self.workers.map(block, row_spans(n)), start=1):
            if self.tick is not None:
                self.tick(min(1.0, done * LANES / n))
            yield result

    def _tiles(self, span: Span) -> Iterator[tuple[int, list[NDArray[Any]], Floats]]:
        """Means and mean squares of these neighbourhoods and of their targets, WIDTH features at a time."""
        W = sp.csr_array(self.W[slice(*span)])
        sides = W, sp.csr_array(W @ self.P)
        weights = [self._lanes(side) for side in sides]
        sizes = np.zeros((4, LANES))
        for k, side in enumerate(sides):
            norm = np.asarray(side.power(2).sum(axis=1)).ravel()
            held = norm < UNIFORM
            sizes[2 * k, : norm.size][held] = (norm / (1 - np.where(held, norm, 0.0)))[held]
            sizes[2 * k + 1, : norm.size] = np.maximum(1 / norm - 1, 1e-9)
        sizes[:, sizes[2] <= 0] = 0.0
        width = min(WIDTH, self.d)
        room = [aligned((width, LANES), self.dtype) for _ in range(4)]
        for start in range(0, self.d, width):
            stop = min(start + width, self.d)
            tile = [part[: stop - start] for part in room]
            for k, (colptr, rows, values, squares) in enumerate(self.sides):
                low, high = colptr[start], colptr[stop]
                indptr = colptr[start : stop + 1] - low
                for data, out in ((values, tile[2 * k]), (squares, tile[2 * k + 1])):
                    pool_tile(indptr, rows[low:high], data[low:high], weights[k], out)
            yield start, tile, sizes

    def _lanes(self, side: sp.csr_array) -> NDArray[Any]:
        """The weights of up to LANES neighbourhoods, a lane each."""
        out = aligned((side.shape[1], LANES), self.dtype, fill=0.0)
        rows = np.repeat(np.arange(side.shape[0]), np.diff(side.indptr))
        out[side.indices, rows] = side.data
        return out


def _found(tile: list[NDArray[Any]], sizes: Floats, rounding: float, critical: float) -> tuple[NDArray[Any], ...]:
    """Features, lanes, differences, scores and penalties of the entries beyond the critical score."""
    none = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0), np.empty(0), np.empty(0)
    count = find_scores(*tile, sizes, rounding, critical, *none)
    if not count:
        return none
    found = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count), np.empty(count), np.empty(count)
    find_scores(*tile, sizes, rounding, critical, *found)
    return found


def _matched(neighbours: Neighbours, workers: Workers) -> sp.csr_array:
    """The weights of the targets of each source sample, without those that hardly count."""

    def block(span: Span) -> sp.csr_array:
        weights = neighbours.weights(np.arange(*span))
        weights = np.where(weights < LEAST_WEIGHT * weights.max(axis=1, keepdims=True), 0.0, weights)
        return sp.csr_array(weights / weights.sum(axis=1, keepdims=True))

    parts = list(workers.map(block, row_spans(neighbours.source.shape[0])))
    return sp.csr_array(sp.vstack(parts, format="csr"))


def _columns(source: Samples, target: Samples, dtype: Any) -> list[tuple[Ints, NDArray[np.int32], Any, Any]]:
    """Both samples by columns: where each begins, rows, values and their squares.

    From dense ones the mean of the source is subtracted first: squares of large offsets would round.
    """
    offset = None if source.is_sparse or target.is_sparse else source.data.mean(axis=0, dtype=np.float64)
    made = []
    for side in (source, target):
        if offset is not None:
            values = np.ascontiguousarray((side.data - offset).T, dtype).ravel()
            colptr, rows = np.arange(side.shape[1] + 1, dtype=np.int64) * side.shape[0], None
        else:
            colptr, rows, values = side.columns
            values = values.astype(dtype, copy=False)
        if rows is None:
            rows = np.tile(np.arange(side.shape[0], dtype=np.int32), side.shape[1])
        made.append((colptr, rows, values, values * values))
    return made
