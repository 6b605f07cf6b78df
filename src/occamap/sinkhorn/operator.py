"""The cost matrix as blocks of rows, held in memory or computed again when asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from occamap._kernels.jit import LANES
from occamap._memory import Budget
from occamap._validate import Samples
from occamap._workers import Workers
from occamap.costs.base import Cost, Tick
from occamap.costs.lanes import pairs_bytes
from occamap.errors import InputError

Floats = NDArray[np.float64]

BLOCK = 2**17  # entries a block: enough work for a task, few enough for many cores


class CostBlocks(Protocol):
    """What the solver needs of a cost matrix."""

    shape: tuple[int, int]

    def spans(self) -> Iterator[tuple[int, int]]:
        """The row ranges of the blocks; they never depend on the number of threads."""

    def block(self, span: tuple[int, int]) -> Floats:
        """Rows start:stop of the matrix."""


class _Blocks:
    def __init__(self, shape: tuple[int, int], rows: int) -> None:
        self.shape, self.rows = shape, rows

    def spans(self) -> Iterator[tuple[int, int]]:
        for start in range(0, self.shape[0], self.rows):
            yield start, min(start + self.rows, self.shape[0])


class StoredCost(_Blocks):
    """The matrix in memory."""

    def __init__(self, C: Floats) -> None:
        super().__init__(C.shape, block_rows(C.shape[1]))
        self.C = C

    def block(self, span: tuple[int, int]) -> Floats:
        return self.C[span[0] : span[1]]


class RecomputedCost(_Blocks):
    """Blocks computed from the samples each time: slower by the cost of the pairs, in next to no memory."""

    def __init__(self, cost: Cost, X: Samples, Y: Samples) -> None:
        dtype = cost._work_dtype(X, Y)
        self.X, self.pairs = X.astype(dtype), cost._pairs(Y.astype(dtype))
        super().__init__((X.shape[0], Y.shape[0]), block_rows(Y.shape[0]))

    def block(self, span: tuple[int, int]) -> Floats:
        C = self.pairs.block(self.X.rows(*span))
        check_finite(C)
        return C


def block_rows(m: int) -> int:
    """Rows a block for m targets, a multiple of the lanes."""
    return max(1, BLOCK // (m * LANES)) * LANES


def check_finite(C: Floats) -> None:
    """Raise where a cost overflowed."""
    if not np.isfinite(C).all():
        raise InputError("the costs must be finite, and some overflow: rescale X and Y, or gamma, to smaller numbers")


def cost_blocks(
    cost: Cost, X: Samples, Y: Samples, budget: Budget, workers: Workers, tick: Tick = None
) -> CostBlocks:
    """The matrix in memory where the budget has room for it, else computed again a block at a time."""
    n, m = X.shape[0], Y.shape[0]
    stored, scratch = 8 * n * m, working_bytes(m, workers.count) + pairs_bytes(Y)
    budget.require(scratch, f"fitting {n} × {m} samples")
    if stored + scratch > budget.left():
        return RecomputedCost(cost, X, Y)
    C = np.empty((n, m))
    cost._fill(X, Y, C, workers, tick)
    check_finite(C)
    return StoredCost(C)


def working_bytes(m: int, threads: int) -> int:
    """Bytes that the threads use beside data and results: tiles, sums of lanes, blocks under way."""
    lanes = 3 * 2**18 + 8 * LANES * m * 3
    return threads * (lanes + 3 * 8 * block_rows(m) * m)


