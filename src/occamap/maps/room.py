"""What fitting a map and moving samples by it take of memory: their code, and bytes at the least."""

from __future__ import annotations

import numpy as np

from occamap._memory import Budget
from occamap._validate import Samples
from occamap._workers import Workers
from occamap.costs import Cost
from occamap.maps.side import Side, move_bytes
from occamap.sinkhorn import RecomputedCost, solve
from occamap.sinkhorn.places import scratch_bytes


def map_bytes(cost: Cost, target: Samples, threads: int) -> int:
    """What it takes to fit a map and then move samples, where costs are computed again and again."""
    return max(scratch_bytes(cost, target, threads), move_bytes(cost, target, threads))


def rehearse(cost: Cost, source: Samples, target: Samples) -> None:
    """Load the kernels by a tiny job: they take memory, too, and a budget should see it before it is spent."""
    frozen = cost._frozen(source.shape[1])
    x, y = source.rows(0, 1).without(frozen), target.rows(0, 1).without(frozen)
    with Workers(1) as workers:
        side = Side(cost, y, np.ones(1), np.zeros(1), 1.0)
        side.displace(x, lambda _, moves: moves, 0, 0.0, workers, Budget(None))
        for dtype in (np.float64, np.float32):
            solve(RecomputedCost(cost, x, y, dtype), np.ones(1), np.ones(1), [1.0], workers=workers)
