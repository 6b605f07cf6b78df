"""One side of a fitted problem: samples with mass and potentials, and what they do to any point."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from occamap._kernels import softmin
from occamap._kernels.jit import LANES
from occamap._memory import Budget
from occamap._validate import Samples
from occamap._workers import Workers
from occamap.costs.base import Cost
from occamap.costs.generic import Displacer, GenericPairs
from occamap.sinkhorn.solve import log_weights

Floats = NDArray[np.float64]


class Side:
    """Points x see the anchors y_j through p_j(x) ∝ b_j exp((g_j − h(x − y_j))/ε)."""

    def __init__(self, cost: Cost, anchors: Samples, weights: Floats, potentials: Floats, epsilon: float) -> None:
        self.cost, self.epsilon, self.g, self.log_b = cost, epsilon, potentials, log_weights(weights)
        self.frozen = cost._frozen(anchors.shape[1])
        self.anchors = anchors.without(self.frozen)
        self._prepared: dict[np.dtype[Any], Displacer] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_prepared": {}}

    def potential(self, X: Samples, workers: Workers, budget: Budget) -> Floats:
        """−ε log Σ_j b_j exp((g_j − h(x − y_j))/ε) of each row."""
        X, displacer = self._prepare(X, budget, workers)
        blocks = workers.map(lambda span: self._gibbs(displacer.pairs.block(X.rows(*span)))[1], _spans(X))
        return np.concatenate(list(blocks))

    def weights(self, X: Samples, workers: Workers, budget: Budget) -> Floats:
        """The Gibbs weights, one row a sample."""
        budget.require(8.0 * X.shape[0] * self.g.size, f"the weights of {X.shape[0]} × {self.g.size} samples")
        X, displacer = self._prepare(X, budget, workers)
        out = np.empty((X.shape[0], self.g.size))

        def block(span: tuple[int, int]) -> None:
            out[slice(*span)] = self._gibbs(displacer.pairs.block(X.rows(*span)))[0]

        for _ in workers.map(block, _spans(X)):
            pass
        return out

    def field(self, X: Samples, workers: Workers, budget: Budget) -> Floats:
        """∇f_ε(x) = Σ_j p_j ∇h(x − y_j) of each row, dense and straight from the definition."""
        differences = GenericPairs(self.cost, self.anchors).differences
        rows = zip(X.without(self.frozen).dense(), self.weights(X, workers, budget), strict=True)
        return np.stack(list(workers.map(lambda row: row[1] @ self.cost._gradient(differences(row[0])), rows)))

    def displace(
        self,
        X: Samples,
        finish: Callable[[tuple[int, int], sp.csr_array], sp.csr_array | None],
        ties: int,
        relax: float,
        workers: Workers,
        budget: Budget,
    ) -> Iterator[sp.csr_array | None]:
        """finish(rows, their displacements), block by block in the order of the rows."""
        X, displacer = self._prepare(X, budget, workers)

        def block(span: tuple[int, int]) -> sp.csr_array | None:
            moves = displacer.block(X.rows(*span), lambda C: self._gibbs(C)[0], ties, relax)
            return finish(span, moves)

        for piece in workers.map(block, _spans(X)):
            budget.require(0, f"moving {X.shape[0]} samples at once")
            yield piece

    def _gibbs(self, C: Floats) -> tuple[Floats, Floats]:
        weights, potential = np.empty_like(C), np.empty(C.shape[0])
        softmin.gibbs(C, self.g, self.log_b, self.epsilon, weights, potential)
        return weights, potential

    def _prepare(self, X: Samples, budget: Budget, workers: Workers) -> tuple[Samples, Displacer]:
        dtype = self.cost._work_dtype(X, self.anchors)
        if dtype not in self._prepared:
            anchors = self.anchors.astype(dtype)
            self._prepared[dtype] = self.cost._displacer(anchors)
        each = LANES * (8 * 5 * self.g.size + 4 * min(X.shape[1], 2**17))
        budget.require(each * workers.count, f"moving {LANES} samples a thread")
        return X.without(self.frozen).astype(dtype), self._prepared[dtype]


def _spans(X: Samples) -> Iterator[tuple[int, int]]:
    for start in range(0, X.shape[0], LANES):
        yield start, min(start + LANES, X.shape[0])


def stack(pieces: list[sp.csr_array], d: int, dtype: Any) -> sp.csr_array:
    """The pieces below each other; each is let go as it is copied, so that they are never held twice."""
    stored = sum(piece.nnz for piece in pieces)
    indices, data = np.empty(stored, np.int32), np.empty(stored, dtype)
    counts = [np.zeros(1, np.int64)]
    at = 0
    pieces.reverse()
    while pieces:
        piece = pieces.pop()
        indices[at : at + piece.nnz], data[at : at + piece.nnz] = piece.indices, piece.data
        counts.append(np.diff(piece.indptr).astype(np.int64))
        at += piece.nnz
    indptr = np.cumsum(np.concatenate(counts))
    return sp.csr_array((data, indices, indptr), shape=(indptr.size - 1, d))
