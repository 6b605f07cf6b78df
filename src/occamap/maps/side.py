"""One side of a fitted problem: samples with mass and potentials, and what they do to any point."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from occamap._kernels import softmin
from occamap._kernels.jit import LANES
from occamap._memory import Budget
from occamap._validate import Samples, as_csr
from occamap._workers import Workers
from occamap.costs.base import Cost, Tick
from occamap.costs.generic import Displacer, Field
from occamap.costs.lanes import pairs_bytes
from occamap.errors import InputError
from occamap.maps.matching import MatchingSpace
from occamap.sinkhorn import CostBlocks
from occamap.sinkhorn.solve import log_weights

Floats = NDArray[np.float64]
Span = tuple[int, int]


class Side:
    """Points x see the anchors y_j through p_j(x) ∝ b_j exp((g_j − c(x, y_j))/ε).

    The cost c of a match is h(x − y_j), or ½‖·‖² between coordinates in a `space` of their own.
    """

    def __init__(
        self,
        cost: Cost,
        anchors: Samples,
        weights: Floats,
        potentials: Floats,
        epsilon: float,
        space: MatchingSpace | None = None,
    ) -> None:
        self.cost, self.epsilon, self.g, self.log_b = cost, epsilon, potentials, log_weights(weights)
        self.frozen = cost._frozen(anchors.shape[1])
        self.anchors, self.space = anchors.without(self.frozen), space
        self._prepared: dict[np.dtype[Any], Displacer] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_prepared": {}}

    def release(self) -> None:
        """Free what was prepared to move samples; it is prepared again when it is needed."""
        self._prepared.clear()

    def holding(self, X: Samples) -> Samples:
        """X in a precision that can hold where it moves: float32 ends at 3e38."""
        return X if self.anchors.largest() < 1e38 else X.astype(np.float64)

    def potential(self, X: Samples, workers: Workers, budget: Budget) -> Floats:
        """−ε log Σ_j b_j exp((g_j − h(x − y_j))/ε) of each row."""
        X, displacer = self._prepare(X, budget, workers)
        costs = self._costs(X, displacer, workers)
        blocks = workers.map(lambda span: self._gibbs(costs(span))[1], row_spans(X.shape[0]))
        return np.concatenate(list(blocks))

    def weights(self, X: Samples, workers: Workers, budget: Budget) -> Floats:
        """The Gibbs weights, one row a sample."""
        budget.require(8.0 * X.shape[0] * self.g.size, f"the weights of {X.shape[0]} × {self.g.size} samples")
        X, displacer = self._prepare(X, budget, workers)
        out, costs = np.empty((X.shape[0], self.g.size)), self._costs(X, displacer, workers)

        def block(span: Span) -> None:
            out[slice(*span)] = self._gibbs(costs(span))[0]

        for _ in workers.map(block, row_spans(X.shape[0])):
            pass
        return out

    def largest_weights(self, X: Samples, least: float, workers: Workers, budget: Budget) -> sp.csr_array:
        """The Gibbs weights that are at least this share of the largest of their row."""
        X, displacer = self._prepare(X, budget, workers)
        costs = self._costs(X, displacer, workers)

        def block(span: Span) -> sp.csr_array:
            weights = self._gibbs(costs(span))[0]
            weights[weights < least * weights.max(axis=1, keepdims=True)] = 0.0
            return sp.csr_array(weights.astype(np.float32))

        return sp.csr_array(sp.vstack(list(workers.map(block, row_spans(X.shape[0]))), format="csr"))

    def effective_targets(self, costs: CostBlocks, workers: Workers) -> Floats:
        """exp of the entropy of the weights of points whose costs to the anchors are known."""

        def block(span: tuple[int, int]) -> Floats:
            C = costs.block(span)
            potential, out = self._gibbs(C)[1], np.empty(C.shape[0])
            softmin.perplexities(C, self.g, self.log_b, self.epsilon, potential, out)
            return out

        return np.concatenate(list(workers.map(block, costs.spans())))

    def field(self, X: Samples, workers: Workers, budget: Budget) -> Floats:
        """∇f_ε(x) = Σ_j p_j ∇h(x − y_j) of each row, dense."""
        X, displacer = self._prepare(X, budget, workers)
        budget.require(X.shape[0] * X.shape[1] * displacer.dtype.itemsize, f"the field of {X.shape[0]} samples")
        found = Field.empty(*X.shape, displacer.dtype, shifts=False, balls=None)
        costs = self._costs(X, displacer, workers)

        def block(span: Span) -> None:
            displacer.field(X.rows(*span), self._gibbs(costs(span))[0], found.rows(*span))

        for _ in workers.map(block, row_spans(X.shape[0])):
            pass
        return found.slopes.astype(np.float64, copy=False)

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
        """The rows finish(span, displacements of these rows), below each other; None stands for none.

        `costs` are those of X to the anchors, if they are known.
        """
        X, displacer = self._prepare(X, budget, workers)
        found: Callable[[Span], Floats] | None = None if costs is None else costs.block
        if found is None and self.space is not None:
            found = self._costs(X, displacer, workers)

        def block(span: Span) -> sp.csr_array | None:
            C = None if found is None else found(span)
            moves = displacer.block(X.rows(*span), lambda C: self._gibbs(C)[0], ties, relax, C)
            return finish(span, moves)

        return self._gather(workers.map(block, row_spans(X.shape[0])), X, budget, tick)

    def _gather(
        self, pieces: Iterable[sp.csr_array | None], X: Samples, budget: Budget, tick: Tick
    ) -> sp.csr_array:
        """What was made of the rows of X, LANES at a time, below each other."""
        rows = _Rows(X.shape[0], X.dtype)
        for done, piece in enumerate(pieces, start=1):
            if tick is not None:
                tick(min(1.0, done * LANES / X.shape[0]))
            if piece is not None:
                rows.append(piece)
                whole = rows.bytes * X.shape[0] / min(X.shape[0], done * LANES)  # and half of it once more, to finish
                enough = 2.0 * whole - rows.bytes  # rows that come later may have more entries
                budget.require(1.5 * whole - rows.bytes, f"moving {X.shape[0]} samples at once", enough)
        return rows.csr(X.shape[1])

    def _costs(self, X: Samples, displacer: Displacer, workers: Workers) -> Callable[[Span], Floats]:
        """The costs of some rows of X to the anchors; X as it was prepared."""
        if self.space is None:
            return lambda span: displacer.pairs.block(X.rows(*span))
        space, coordinates = self.space, self.space.locate(X, workers)
        return lambda span: space.costs(coordinates.rows(*span))

    def _gibbs(self, C: Floats) -> tuple[Floats, Floats]:
        weights, potential = np.empty(C.shape), np.empty(C.shape[0])
        softmin.gibbs(C, self.g, self.log_b, self.epsilon, weights, potential)
        if not np.isfinite(potential).all():
            raise InputError("samples must be near enough to the fitted ones for float64 to divide their costs by ε: "
                             "leave out those that are further away, or fit with a larger epsilon")
        return weights, potential

    def _prepare(self, X: Samples, budget: Budget, workers: Workers) -> tuple[Samples, Displacer]:
        dtype = self.cost._work_dtype(X, self.anchors)
        what = f"moving {LANES} samples a thread"
        if dtype in self._prepared:
            budget.require(_block_bytes(self.cost, self.anchors, workers.count), what)
        else:
            budget.require(move_bytes(self.cost, self.anchors, workers.count), what)
            self._prepared[dtype] = self.cost._displacer(self.anchors.astype(dtype))
        return X.without(self.frozen).astype(dtype), self._prepared[dtype]


def row_spans(n: int) -> Iterator[Span]:
    """n rows, LANES at a time."""
    for start in range(0, n, LANES):
        yield start, min(start + LANES, n)


def move_bytes(cost: Cost, anchors: Samples, threads: int) -> int:
    """Bytes that it takes to move LANES samples a thread: the targets by columns, and blocks under way."""
    columns = 3 * anchors.data.nbytes + 8 * anchors.shape[1]
    return pairs_bytes(anchors) + cost._more_bytes(anchors) + columns + _block_bytes(cost, anchors, threads)


def _block_bytes(cost: Cost, anchors: Samples, threads: int) -> int:
    return threads * LANES * cost._lane_bytes(*anchors.shape)


class _Rows:
    """CSR rows put below each other, in arrays whose size the first of them foretell."""

    def __init__(self, n: int, dtype: Any) -> None:
        self.n, self.stored = n, 0
        self.indices, self.data = np.empty(0, np.int32), np.empty(0, dtype)
        self.counts: list[NDArray[np.int64]] = [np.zeros(1, np.int64)]

    @property
    def bytes(self) -> int:
        return self.stored * (self.indices.itemsize + self.data.itemsize)

    def append(self, piece: sp.csr_array) -> None:
        end = self.stored + piece.nnz
        self.counts.append(np.diff(piece.indptr).astype(np.int64))
        if end > self.data.size:
            done = sum(count.size for count in self.counts) - 1
            self._resize(int(1.1 * end * max(1.0, self.n / done)))
        self.indices[self.stored : end], self.data[self.stored : end] = piece.indices, piece.data
        self.stored = end

    def csr(self, d: int) -> sp.csr_array:
        indptr = np.cumsum(np.concatenate(self.counts))
        return as_csr(self.data[: self.stored], self.indices[: self.stored], indptr, (indptr.size - 1, d))

    def _resize(self, size: int) -> None:
        """New arrays; pages that are never written to take no memory."""
        indices, data = np.empty(size, np.int32), np.empty(size, self.data.dtype)
        indices[: self.stored], data[: self.stored] = self.indices[: self.stored], self.data[: self.stored]
        self.indices, self.data = indices, data
