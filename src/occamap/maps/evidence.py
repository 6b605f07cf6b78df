"""Moves that stand out from noise: a penalty for each neighbourhood and feature, set by a false-discovery rate.

A neighbourhood has weights w over the source samples, and v = Σ_i w_i p(x_i) over the targets of these. Its shift
Σ_j v_j y_j − Σ_i w_i x_i has the squared standard error Σw²/(1 − Σw²) Var_w(x) + Σv²/(1 − Σv²) Var_v(y), which is that
of Welch's test if all weights are equal. With replicates, it is the part of this that comes from the spread
within replicates, times the ratio of the variance between replicates to that part, moderated over features; and never
less than without replicates. The penalty is a multiple of the standard error: a feature moves
where its shift is larger. The multiple is the smallest at which the false-discovery rate over all samples and features,
by Benjamini and Hochberg, is at most the one asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy import special

from occamap._kernels.evidence import count_scores, find_scores, moderate_ratios, replicate_ratios
from occamap._kernels.jit import LANES
from occamap._kernels.pool import pool_tile
from occamap._memory import Budget
from occamap._validate import Samples
from occamap._workers import Workers
from occamap.costs.base import Tick
from occamap.costs.lanes import aligned
from occamap.inference import FEWEST_REPLICATES, balance
from occamap.inference.shares import PRESENT, Shares
from occamap.maps.pooling import Neighbours, Pool, PooledSide, as_rows
from occamap.maps.replicates import Replicates, learn_priors
from occamap.maps.side import Side, Span, row_spans
from occamap.sinkhorn import CostBlocks

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BINS_PER_UNIT, LARGEST = 256, 40  # of scores: there is no p-value in float64 beyond 38 standard errors
N_BINS = BINS_PER_UNIT * LARGEST + 1
LEARNED = 256  # neighbourhoods from which the variance between replicates is learned
SAMPLED = 4096  # neighbourhoods whose scores set the threshold, spread evenly, if there are more
LEAST_WEIGHT = 1e-4  # of the largest weight of a sample: targets below it are left out
WIDTH = 1024  # features in a tile
UNIFORM = 1 - 1e-9  # Σ w² of a neighbourhood that is one sample: it has no spread
ROUNDING = {np.dtype(np.float32): 4e-6, np.dtype(np.float64): 1e-13}  # of a mean square, which a variance is not below
LEAST_Q = float(np.finfo(np.float32).tiny)  # smaller ones would be 0 in float32, and no entry of a sparse matrix

NONE = np.empty(0)


@dataclass(frozen=True, eq=False)
class Threshold:
    """The score that a move needs, from how often each score occurs among the fitted samples.

    Attributes
    ----------
    fdr
        The false-discovery rate that was asked for.
    counts
        The number of entries (sample × feature) by score, in bins of 1/256; the last has all from 40 on.
    priors
        With replicates, what `learn_priors` found.
    """

    fdr: float
    counts: Ints
    priors: Floats | None = None

    @cached_property
    def q(self) -> Floats:
        """The lowest false-discovery rate at which an entry in each bin is found."""
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
        """The smallest score (z) of a move; infinite if nothing is found."""
        found = np.flatnonzero((self.q <= self.fdr) & (np.cumsum(self.counts[::-1])[::-1] > 0))
        return float(found[0] / BINS_PER_UNIT) if found.size else np.inf

    @property
    def n_tested(self) -> int:
        return int(self.counts.sum())

    def q_of(self, scores: Floats) -> Floats:
        """Of entries with these scores."""
        bins = np.minimum((scores * BINS_PER_UNIT).astype(np.int64), self.counts.size - 1)
        return np.maximum(self.q[bins], LEAST_Q)


class ScoredSide(PooledSide):
    """A side that moves points where the shift of their neighbourhood stands out; `threshold` says by how much."""

    def __init__(
        self,
        plain: Side,
        source: Samples,
        pool: Pool,
        threshold: Callable[[], Threshold],
        replicates: Replicates | None = None,
    ) -> None:
        super().__init__(plain, source, pool)
        self.threshold, self.replicates = threshold, replicates

    def calibrate(self, fdr: float, workers: Workers, budget: Budget) -> Threshold:
        """The threshold at this false-discovery rate over the fitted samples."""
        neighbours = self.neighbours(workers, budget)
        W, of = self.pool(self.source, neighbours, self, workers, budget)
        times = np.bincount(of, minlength=W.shape[0])
        every = np.flatnonzero(times)
        some = every[np.linspace(0, every.size - 1, min(SAMPLED, every.size)).astype(np.int64)]
        evidence = _Evidence(neighbours, sp.csr_array(W[some]), workers, budget, None, self.replicates)
        if self.replicates is not None:
            evidence.learn()
        return Threshold(fdr, evidence.counts(times[some]), evidence.priors)

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
        threshold = self.threshold()
        evidence = _Evidence(neighbours, W, workers, budget, tick, self.replicates, threshold.priors)
        found = evidence.moves(threshold, relax, X.dtype)
        if not np.array_equal(of, np.arange(W.shape[0])):
            return sp.csr_array(found[0][of]), sp.csr_array(found[1][of])
        return found


@dataclass(frozen=True, eq=False)
class _Columns:
    """Samples by columns: where each begins, the rows that it stores, its values and their squares."""

    colptr: Ints
    rows: NDArray[np.int32]
    values: NDArray[Any]
    squares: NDArray[Any]

    def pool(
        self, start: int, stop: int, weights: NDArray[Any], mean: NDArray[Any], square: NDArray[Any] | None = None
    ) -> None:
        """Write the weighted sums of some columns, and those of their squares."""
        low, high = self.colptr[start], self.colptr[stop]
        indptr, rows = self.colptr[start : stop + 1] - low, self.rows[low:high]
        pool_tile(indptr, rows, self.values[low:high], weights, mean)
        if square is not None:
            pool_tile(indptr, rows, self.squares[low:high], weights, square)


class _Tile(NamedTuple):
    """Some features of LANES neighbourhoods: means and mean squares of both sides, as the kernels take them.

    `ratios`, `inner` and `shares` are empty and None without replicates.
    """

    start: int
    moments: list[NDArray[Any]]
    sizes: Floats
    ratios: Floats
    inner: Floats
    shares: Shares | None


class _Evidence:
    """Shifts of neighbourhoods and their standard errors: all features of LANES neighbourhoods a task."""

    def __init__(
        self,
        neighbours: Neighbours,
        W: sp.csr_array,
        workers: Workers,
        budget: Budget,
        tick: Tick,
        replicates: Replicates | None = None,
        priors: Floats | None = None,
    ) -> None:
        source, target = neighbours.source, neighbours.side.anchors
        self.W, self.workers, self.tick = sp.csr_array(W), workers, tick
        self.replicates, self.priors = replicates, priors
        self.dtype = np.dtype(neighbours.displacer.dtype)
        self.d = source.shape[1]
        parts = 0 if replicates is None else replicates.names.size
        self.width = min(WIDTH if replicates is None else max(LANES, WIDTH // parts), self.d)
        block = (6.0 + 2 * parts) * self.width * LANES * self.dtype.itemsize
        block += 16.0 * LANES * (source.shape[0] + target.shape[0])
        columns = 3.0 * (source.data.nbytes + target.data.nbytes) * (1 if replicates is None else 2)
        budget.require(workers.count * block + columns, f"comparing the neighbourhoods of {W.shape[0]} samples")
        self.P = _matched(neighbours, workers)
        self.detected = _detected(source) + _detected(target)
        self.totals = np.asarray(source.csr().sum(axis=1), dtype=np.float64).ravel()
        self.sides = _columns(source, target, self.dtype)
        self.parts: list[list[_Columns]] = []
        if replicates is not None:
            codes = replicates.source, replicates.target
            self.parts = [_split(side, code, parts) for side, code in zip(self.sides, codes, strict=True)]

    def learn(self) -> None:
        """Find the priors of the ratios, from some of the neighbourhoods."""
        n, replicates = self.W.shape[0], cast(Replicates, self.replicates)
        ordered = np.argsort(self.W @ self.totals, kind="stable")  # whatever the order of the samples
        some = ordered[np.linspace(0, n - 1, min(LEARNED, n)).astype(np.int64)]
        whole, self.W = self.W, sp.csr_array(self.W[some])
        found = [self._ratios(span) for span in row_spans(some.size)]
        self.W = whole
        degrees, ratios = np.concatenate([part for part, _ in found]), np.hstack([part for _, part in found])
        known = degrees > 0
        ratios[:, ~known] = -1.0
        most = replicates.names.size - (1 if replicates.paired else 2)
        typical = float(np.median(degrees[known])) if known.any() else 1.0
        self.priors = learn_priors(ratios, self.detected, max(float(most), 1.0), typical)

    def _ratios(self, span: Span) -> tuple[Floats, Floats]:
        """Of these neighbourhoods: degrees of freedom between replicates, and the ratios of variances by feature."""
        count = span[1] - span[0]
        tiles = [(tile.ratios[:, :count].copy(), cast(Shares, tile.shares)) for tile in self._tiles(span)]
        return tiles[0][1].degrees[:count], np.concatenate([ratios for ratios, _ in tiles])

    def counts(self, times: Ints) -> Ints:
        """How often each score occurs; times[q] is the number of samples with neighbourhood q."""

        def block(span: Span) -> Ints:
            counts = np.zeros(N_BINS, np.int64)
            weight = np.zeros(LANES, np.int64)
            weight[: span[1] - span[0]] = times[slice(*span)]
            for tile in self._tiles(span):
                count_scores(*self._tested(tile), weight, ROUNDING[self.dtype], BINS_PER_UNIT, counts)
            return counts

        return np.asarray(sum(self._over(block)))

    def moves(self, threshold: Threshold, relax: float, dtype: Any) -> tuple[sp.csr_array, sp.csr_array]:
        """Moves where the score is large enough, and their q-values."""
        critical = threshold.critical

        def block(span: Span) -> tuple[sp.csr_array, sp.csr_array]:
            most = self.width * LANES
            room = [np.empty(most, kind) for kind in (np.int64, np.int64, np.float64, np.float64, np.float64)]
            found = []
            for tile in self._tiles(span) if np.isfinite(critical) else ():
                features, *rest = _found(self._tested(tile), ROUNDING[self.dtype], critical, room)
                found.append((tile.start + features, *rest))
            columns, rows, shifts, scores, penalties = (
                np.concatenate([NONE, *part]) for part in (zip(*found, strict=True) if found else [()] * 5)
            )
            moved = shifts - (1 - relax) * np.sign(shifts) * penalties
            where, shape = (rows.astype(np.int64), columns.astype(np.int64)), (span[1] - span[0], self.d)
            q = threshold.q_of(scores).astype(np.float32)
            return sp.csr_array((moved.astype(dtype), where), shape=shape), sp.csr_array((q, where), shape=shape)

        parts = list(self._over(block))
        moves, q = (sp.csr_array(sp.vstack([part[k] for part in parts], format="csr")) for k in range(2))
        return moves, q

    def _over(self, block: Callable[[Span], Any]) -> Iterator[Any]:
        n = self.W.shape[0]
        for done, result in enumerate(self.workers.map(block, row_spans(n)), start=1):
            if self.tick is not None:
                self.tick(min(1.0, done * LANES / n))
            yield result

    def _tiles(self, span: Span) -> Iterator[_Tile]:
        """Means and mean squares of these neighbourhoods and of their targets, some features at a time."""
        W = sp.csr_array(self.W[slice(*span)])
        sides = W, sp.csr_array(W @ self.P)
        if self.replicates is not None:
            sides = balance(*sides, self.replicates.source, self.replicates.target)
        weights = [self._lanes(side) for side in sides]
        sizes = np.zeros((4, LANES))
        for k, side in enumerate(sides):
            norm = np.asarray(side.power(2).sum(axis=1)).ravel()
            held = norm < UNIFORM
            sizes[2 * k, : norm.size][held] = (norm / (1 - np.where(held, norm, 0.0)))[held]
            sizes[2 * k + 1, : norm.size] = np.maximum(1 / norm - 1, 1e-9)
        sizes[:, sizes[2] <= 0] = 0.0
        shares = self._shares(weights)
        inner_sizes = None if shares is None else self._inner_sizes(weights, sizes, shares)
        room = [aligned((self.width, LANES), self.dtype) for _ in range(4)]
        count = len(self.parts[0]) if self.parts else 0
        parts = [aligned((count, self.width, LANES), self.dtype) for _ in range(2)]
        for start in range(0, self.d, self.width):
            stop = min(start + self.width, self.d)
            tile = [part[: stop - start] for part in room]
            for k, columns in enumerate(self.sides):
                columns.pool(start, stop, weights[k], tile[2 * k], tile[2 * k + 1])
            ratios, inner = np.empty((0, LANES)), np.empty((0, LANES))
            if shares is not None:
                mine = [np.ascontiguousarray(part[:, : stop - start]) for part in parts]
                for k, split in enumerate(self.parts):
                    for r, columns in enumerate(split):
                        columns.pool(start, stop, weights[k], mine[k][r])
                ratios, inner = np.empty((stop - start, LANES)), np.empty((stop - start, LANES))
                given = *mine, shares.source, shares.target, shares.left
                replicate_ratios(*tile, sizes, inner_sizes, ROUNDING[self.dtype], *given, inner, ratios)
            yield _Tile(start, tile, sizes, ratios, inner, shares)

    def _tested(self, tile: _Tile) -> tuple[NDArray[Any], ...]:
        """What the kernels take: the tile, and how much wider its differences are than those of samples."""
        known, borrowed = np.empty(tile.ratios.shape), np.empty(tile.ratios.shape)
        if tile.shares is not None and self.priors is not None:
            priors = np.ascontiguousarray(self.priors[:, tile.start : tile.start + tile.ratios.shape[0]])
            moderate_ratios(tile.ratios, tile.inner, tile.shares.degrees, priors, known, borrowed)
        return *tile.moments, tile.sizes, tile.ratios, known, borrowed

    def _shares(self, weights: list[NDArray[Any]]) -> Shares | None:
        """What each replicate weighs in each lane; lanes with too few of them have no degrees of freedom."""
        if self.replicates is None:
            return None
        count = self.replicates.names.size
        sums = [np.zeros((count, LANES)) for _ in range(2)]
        for k, codes in enumerate((self.replicates.source, self.replicates.target)):
            np.add.at(sums[k], codes, weights[k].astype(np.float64))
        found, present = Shares.of(*sums), min(PRESENT, 0.5 / count)
        return replace(found, degrees=np.where(found.count(present) >= FEWEST_REPLICATES, found.degrees, 0.0))

    def _inner_sizes(self, weights: list[NDArray[Any]], sizes: Floats, shares: Shares) -> Floats:
        """Of each side and lane: Σw²/(1 − λ), where λ is the sum of Σw² of each replicate over its share."""
        replicates = cast(Replicates, self.replicates)
        found = np.zeros((2, LANES))
        for k, (codes, share) in enumerate(((replicates.source, shares.source), (replicates.target, shares.target))):
            squares = np.zeros(share.shape)
            np.add.at(squares, codes, weights[k].astype(np.float64) ** 2)
            lost = np.divide(squares, share, out=np.zeros(share.shape), where=share > 0).sum(axis=0)
            norm, held = squares.sum(axis=0), (lost < UNIFORM) & (sizes[2 * k] > 0)
            found[k, held] = norm[held] / (1 - lost[held])
        return found

    def _lanes(self, side: sp.csr_array) -> NDArray[Any]:
        """The weights of up to LANES neighbourhoods, a lane each."""
        out = aligned((side.shape[1], LANES), self.dtype, fill=0.0)
        rows = np.repeat(np.arange(side.shape[0]), np.diff(side.indptr))
        out[side.indices, rows] = side.data
        return out


def _found(
    tested: tuple[NDArray[Any], ...], rounding: float, critical: float, room: list[NDArray[Any]]
) -> tuple[NDArray[Any], ...]:
    """Features, lanes, differences, scores and penalties of the entries beyond the critical score."""
    count = find_scores(*tested, rounding, critical, *room)
    return tuple(part[:count].copy() for part in room)


def _matched(neighbours: Neighbours, workers: Workers) -> sp.csr_array:
    """The weights of the targets of each source sample, without those that hardly count."""

    def block(span: Span) -> sp.csr_array:
        weights = neighbours.weights(np.arange(*span))
        weights = np.where(weights < LEAST_WEIGHT * weights.max(axis=1, keepdims=True), 0.0, weights)
        return sp.csr_array(weights / weights.sum(axis=1, keepdims=True))

    parts = list(workers.map(block, row_spans(neighbours.source.shape[0])))
    return sp.csr_array(sp.vstack(parts, format="csr"))


def _detected(samples: Samples) -> Floats:
    """In how many samples each feature is not 0."""
    if samples.is_sparse:
        colptr, _, values = samples.columns
        held = np.concatenate([[0], np.cumsum(values != 0)])
        return np.diff(held[colptr]).astype(np.float64)
    return np.asarray(np.count_nonzero(samples.data, axis=0), dtype=np.float64)


def _columns(source: Samples, target: Samples, dtype: Any) -> list[_Columns]:
    """Both samples by columns.

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
        made.append(_Columns(colptr, rows, values, values * values))
    return made


def _split(side: _Columns, codes: Ints, count: int) -> list[_Columns]:
    """The columns of each replicate by itself."""
    owner = codes[side.rows]
    made = []
    for code in range(count):
        mine = owner == code
        colptr = np.concatenate([[0], np.cumsum(mine)])[side.colptr]
        made.append(_Columns(colptr, side.rows[mine], side.values[mine], side.values[:0]))
    return made
