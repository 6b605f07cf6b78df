"""Displacements of neighbourhoods: the field is averaged over some source samples before the prox is taken.

With weights w_i(x) of the source samples, Σ_i w_i = 1, a sample moves by −prox(Σ_i w_i(x) ∇f_ε(x_i)), minus the Bregman
centroid of the pairs x_i − y_j under the weights w_i(x) p_j(x_i). With w at x alone it is the map of the paper.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from occamap._kernels import pool
from occamap._kernels.jit import LANES
from occamap._memory import Budget
from occamap._validate import Samples, as_csr
from occamap._workers import Workers
from occamap.costs import Cost
from occamap.costs.base import Tick
from occamap.costs.generic import Field
from occamap.costs.lanes import aligned
from occamap.costs.separable import Separable
from occamap.maps.side import Side, Span, row_spans
from occamap.sinkhorn import CostBlocks

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

ROOM = 2**28  # bytes of fields that are kept at a time, if their features can be taken one after the other
CLEAR = 1 - 1e-4  # of the kink: a bound that is nearer to it may have been rounded
WIDTH = 2048  # features whose fields are computed at a time, if nothing has to be computed again for each part of them


class Neighbours:
    """Source samples, whose fields are pooled, and the weights of their targets; computed once, if there is room."""

    def __init__(self, side: Side, source: Samples, costs: CostBlocks | None, workers: Workers, budget: Budget) -> None:
        self.source, self.displacer = side._prepare(source, budget, workers)
        self.side, self._known = side, costs
        self._coordinates = None if side.space is None else side.space.locate(self.source, workers)
        self._weights: Floats | None = None
        n, m = self.source.shape[0], side.g.size
        if 8.0 * n * m <= min(ROOM, 0.5 * budget.left()):
            weights = np.empty((n, m))

            def fill(span: Span) -> None:
                weights[slice(*span)] = self.weights(np.arange(*span))

            for _ in workers.map(fill, row_spans(n)):
                pass
            self._weights = weights

    @property
    def known(self) -> bool:
        """Whether the weights are there, not to be computed again whenever they are needed."""
        return self._weights is not None

    def weights(self, rows: Rows) -> Floats:
        """Those of these source samples, at most LANES."""
        return self.side._gibbs(self._costs(rows))[0] if self._weights is None else self._weights[rows]

    def _costs(self, rows: Rows) -> Floats:
        if self._known is not None:
            spans = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)
            return np.concatenate([self._known.block((int(span[0]), int(span[-1]) + 1)) for span in spans])
        if self._coordinates is not None and self.side.space is not None:
            return self.side.space.costs(self._coordinates.take(rows))
        return self.displacer.pairs.block(self.source.take(rows))


class Neighbourhoods(NamedTuple):
    """Row-stochastic weights over the source samples, one row per neighbourhood, and the one that each point has."""

    weights: sp.csr_array
    of: Rows


class Pool(Protocol):
    """What finds the neighbourhoods of points."""

    def __call__(
        self,
        X: Samples,
        neighbours: Neighbours,
        side: PooledSide,
        workers: Workers,
        budget: Budget,
        costs: CostBlocks | None = None,
    ) -> Neighbourhoods:
        """Those of X; `costs` are its costs to the anchors, if they are known."""


class PooledSide(Side):
    """A side that moves points by the field of their neighbourhoods, which `pool` finds among the `source` samples.

    `source_costs` are the costs of the latter to the anchors, if they are known.
    """

    def __init__(self, plain: Side, source: Samples, pool: Pool, source_costs: CostBlocks | None = None) -> None:
        self.__dict__.update(plain.__dict__)  # what is prepared for one serves the other
        self.source, self.pool, self.source_costs = source, pool, source_costs

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
        known = costs if self.source_costs is None and costs is not None and X.equals(self.source) else None
        neighbours = self.neighbours(workers, budget, known)
        W, of = self.pool(X, neighbours, self, workers, budget, costs)
        moves = _Pooled(self.cost, neighbours, W, bool(ties), relax, workers, budget, tick).moves(X.dtype)
        if not np.array_equal(of, np.arange(moves.shape[0])):
            moves = sp.csr_array(moves[of])
        pieces = (finish(span, as_rows(moves, span)) for span in row_spans(X.shape[0]))
        return self._gather(pieces, X, budget, None)

    def neighbours(self, workers: Workers, budget: Budget, costs: CostBlocks | None = None) -> Neighbours:
        """The source samples, prepared; `costs` are theirs, if they are known by now."""
        known = self.source_costs if costs is None else costs
        return Neighbours(self, self.source, known, workers, budget)


def as_rows(moves: sp.csr_array, span: Span) -> sp.csr_array:
    """Rows of a matrix in CSR, without a copy of their entries."""
    low, high = moves.indptr[span[0]], moves.indptr[span[1]]
    indptr = moves.indptr[span[0] : span[1] + 1] - low
    return as_csr(moves.data[low:high], moves.indices[low:high], indptr, (span[1] - span[0], moves.shape[1]))


@dataclass(frozen=True, eq=False)
class _Entries:
    """Moves of some features: rows, features and values, by feature."""

    rows: NDArray[np.int64]
    features: NDArray[np.int64]
    values: Floats


class _Pooled:
    """One pass over the features: fields of all neighbours, averages over neighbourhoods, and their moves."""

    def __init__(
        self,
        cost: Cost,
        neighbours: Neighbours,
        W: sp.csr_array,
        ties: bool,
        relax: float,
        workers: Workers,
        budget: Budget,
        tick: Tick,
    ) -> None:
        self.cost, self.displacer, self.neighbours = cost, neighbours.displacer, neighbours
        self.ties, self.relax, self.workers, self.budget, self.tick = ties, relax, workers, budget, tick
        self.used = np.flatnonzero(np.bincount(W.indices, minlength=W.shape[1]))
        place = np.full(W.shape[1], -1)
        place[self.used] = np.arange(self.used.size)
        every = self.used.size == W.shape[1]
        self.source = neighbours.source if every else neighbours.source.take(self.used)
        self.n, self.d = self.source.shape
        # in the order of W, whatever that of the samples is: sums must not depend on which others are moved
        self.indptr, self.indices = W.indptr.astype(np.int64), place[W.indices]
        self.weights = W.data.astype(np.float64)
        self._weights = W.data.astype(self.displacer.dtype)
        self._local = threading.local()

    def moves(self, dtype: Any) -> sp.csr_array:
        """−prox of the pooled field of each neighbourhood, relaxed."""
        if isinstance(self.cost, Separable) and self.displacer.by_feature:
            return self._by_feature(self.cost, dtype)
        return self._by_row(dtype)

    def _room(self, features: int, order: Literal["C", "F"]) -> Field:
        """Room for the fields of all neighbours in so many features."""
        balls = self.cost._n_balls(self.d) if self.ties else None
        return Field.empty(self.n, features, self.displacer.dtype, shifts=self.relax > 0, balls=balls, order=order)

    def _write_fields(self, out: Field, start: int) -> None:
        """Those of all neighbours in the features from `start` on; each is computed once."""
        features = out.slopes.shape[1]

        def block(span: Span) -> None:
            weights = self.neighbours.weights(self.used[slice(*span)])
            self.displacer.field(self.source.rows(*span), weights, out.rows(*span), start)

        for done, _ in enumerate(self.workers.map(block, row_spans(self.n)), start=1):
            if self.tick is not None:
                self.tick((start + features * min(1.0, done * LANES / self.n)) / self.d)

    def _bytes(self, features: int) -> float:
        parts = 1 + (self.relax > 0) + self.ties
        return float(parts * self.displacer.dtype.itemsize * self.n * features)

    # -- costs that are a sum over features: a few of them at a time, each cut off where its kink is ----------------

    def _by_feature(self, cost: Separable, dtype: Any) -> sp.csr_array:
        tile = 2.0 * self.workers.count * LANES * (self.n + 3 * self.indptr.size) * 8
        least = self._bytes(LANES) + tile
        self.budget.require(least, f"pooling the field of {self.n} samples")
        room = min(ROOM, 0.5 * max(self.budget.left() - tile, 2 * self._bytes(LANES)))
        once = self.source.is_sparse and self.neighbours.known
        width = int(min(self.d, WIDTH if once else self.d, max(LANES, room // self._bytes(1))))
        fields, entries = self._room(width, "F"), list[_Entries]()
        for start in range(0, self.d, width):
            part = fields.features(min(width, self.d - start))
            self._write_fields(part, start)
            entries += self._chunk(cost, part, start)
        return self._assembled(entries, dtype)

    def _chunk(self, cost: Separable, fields: Field, start: int) -> list[_Entries]:
        """The moves in the features of these fields."""
        kink = cost._kink(Samples((1, self.d), np.zeros((1, self.d))))[start : start + fields.slopes.shape[1]]
        active = np.flatnonzero(self._bounds(fields.slopes) > CLEAR * kink)

        def tile(first: int) -> _Entries:
            columns = active[first : first + LANES]
            q, lanes, w = self._beyond(fields, columns, kink[columns])
            features = start + columns[lanes]
            move = -cost._shrink(w, features)
            if self.relax > 0 and q.size:
                shift = self._pool(fields.shifts, columns)[q, lanes].astype(np.float64)
                move = move + self.relax * (shift - move)
            return _Entries(q, features, move)

        return list(self.workers.map(tile, range(0, active.size, LANES)))

    def _bounds(self, slopes: NDArray[Any]) -> Floats:
        """What no average over a neighbourhood exceeds, for each feature."""
        heaviest, norm = self._heaviest
        bounds = np.empty(slopes.shape[1])

        def some(first: int) -> None:
            part = slice(first, first + LANES)
            pool.largest_averages(slopes[:, part], heaviest, norm, bounds[part])

        for _ in self.workers.map(some, range(0, bounds.size, LANES)):
            pass
        return bounds

    @cached_property
    def _heaviest(self) -> tuple[Floats, float]:
        """The largest weight that each sample has in a neighbourhood, and the largest norm of the weights of one."""
        heaviest = np.zeros(self.n)
        np.maximum.at(heaviest, self.indices, self.weights)
        return heaviest, float(np.sqrt(np.add.reduceat(self.weights**2, self.indptr[:-1]).max()))

    def _beyond(
        self, fields: Field, columns: NDArray[np.int64], kink: Floats
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
        """Rows, columns and values of the pooled field where it leaves the kink."""
        slack = self._pool(fields.slack, columns, "slack") if self.ties else np.empty((0, LANES), fields.slack.dtype)
        pooled = self._pool(fields.slopes, columns)
        ends = aligned((1, LANES), np.float64, fill=np.inf)
        ends[0, : columns.size] = kink
        found = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
        if count := pool.beyond_kink(pooled, slack, ends, *found):
            found = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count)
            pool.beyond_kink(pooled, slack, ends, *found)
        return found

    def _pool(self, part: NDArray[Any], columns: NDArray[np.int64], name: str = "average") -> NDArray[Any]:
        """These columns, at most LANES, averaged over each neighbourhood; valid until the thread calls it again."""
        tile = self._scratch("tile", self.n, part.dtype)
        out = self._scratch(name, self.indptr.size - 1, part.dtype)
        pool.take_features(part, columns, tile)
        pool.pool_tile(self.indptr, self.indices, self._weights, tile, out)
        return out

    def _scratch(self, name: str, rows: int, dtype: Any) -> NDArray[Any]:
        """Room for a tile, the same whenever this thread wants it: fresh memory would take longer than pooling."""
        held: dict[str, NDArray[Any]] = self._local.__dict__
        if name not in held:
            held[name] = aligned((rows, LANES), dtype)
        return held[name]

    def _assembled(self, entries: list[_Entries], dtype: Any) -> sp.csr_array:
        """All moves but those that were rounded to 0, as CSR."""
        n = self.indptr.size - 1
        kept = []
        for part in entries:
            values = part.values.astype(dtype)
            held = values != 0
            kept.append((part.rows[held], part.features[held], values[held]))
        counts = np.zeros(n, np.int64)
        for rows, _, _ in kept:
            counts += np.bincount(rows, minlength=n)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        indices, data, cursor = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], dtype), indptr[:-1].copy()
        for entry in kept:
            pool.scatter_rows(*entry, cursor, indices, data)
        return as_csr(data, indices, indptr, (n, self.d))

    # -- costs that are not: all features of some neighbourhoods at a time ------------------------------------------

    def _by_row(self, dtype: Any) -> sp.csr_array:
        what = f"pooling the field of {self.n} samples under {type(self.cost).__name__}, whose features go together,"
        self.budget.require(1.2 * self._bytes(self.d) + self.workers.count * 6 * 8.0 * LANES * self.d, what)
        fields = self._room(self.d, "C")
        self._write_fields(fields, 0)

        def block(span: Span) -> sp.csr_array:
            slopes = self._averages(fields.slopes, span)
            if self.ties:
                slack, balls = self._averages(fields.slack, span), self._averages(fields.balls, span)
                slopes = np.stack([self.cost._least(*rows) for rows in zip(slopes, slack, balls, strict=True)])
            moves = -self.cost._prox(Samples(slopes.shape, slopes))
            if self.relax > 0:
                shifts = self._averages(fields.shifts, span)
                moves = np.where(moves != 0, moves + self.relax * (shifts - moves), 0.0)
            return sp.csr_array(moves.astype(dtype))

        blocks = list(self.workers.map(block, row_spans(self.indptr.size - 1)))
        return sp.csr_array(sp.vstack(blocks, format="csr"))

    def _averages(self, part: NDArray[Any], span: Span) -> Floats:
        """All columns, averaged over these neighbourhoods."""
        low, high = self.indptr[span[0]], self.indptr[span[1]]
        out = np.empty((span[1] - span[0], part.shape[1]))
        indptr = self.indptr[span[0] : span[1] + 1] - low
        pool.pool_rows(indptr, self.indices[low:high], self.weights[low:high], part, out)
        return out
