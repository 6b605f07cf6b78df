"""A fit by the threads of this process, within a budget."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from occamap._memory import Budget
from occamap._validate import Samples
from occamap._workers import Workers
from occamap.costs import Cost
from occamap.maps.problem import Problem
from occamap.maps.progress import Progress, Told
from occamap.maps.side import Side, move_bytes
from occamap.sinkhorn import CostBlocks, RecomputedCost, Solution, Solver, cost_blocks, solve

Floats = NDArray[np.float64]


def solve_here(
    cost: Cost,
    solver: Solver,
    problem: Problem,
    max_memory: int | str | None,
    n_jobs: int | None,
    near: tuple[float, Floats] | None,
    progress: Progress,
) -> tuple[Solution, str, str]:
    """Potentials, where the costs were, and why; `near` are the ε and g of a problem like it, to start from."""
    source, target, budget = problem.source, problem.target, Budget(max_memory, problem.lent)
    with Workers(n_jobs) as workers:
        if budget.limit is not None:
            _rehearse(cost, source, target)
            budget.require(move_bytes(cost, target, workers.count), "fitting, and moving samples later,")
        frozen, told = cost._frozen(source.shape[1]), Told(progress.tell)
        pair = source.without(frozen), target.without(frozen)

        def costs(single: bool) -> CostBlocks:
            return cost_blocks(cost, *pair, budget, workers, progress.costs, single=single, note=told)

        solution, used = solver.within(costs, problem.a, problem.b, workers, near, progress.iteration)
    return solution, used.place, str(told)


def _rehearse(cost: Cost, source: Samples, target: Samples) -> None:
    """Load the kernels by a tiny job: they take memory, too, and a budget should see it before it is spent."""
    x, y = source.rows(0, 1), target.rows(0, 1)
    with Workers(1) as workers:
        side = Side(cost, y, np.ones(1), np.zeros(1), 1.0)
        side.displace(x, lambda _, moves: moves, 0, 0.0, workers, Budget(None))
        for dtype in (np.float64, np.float32):
            solve(RecomputedCost(cost, x, y, dtype), np.ones(1), np.ones(1), [1.0], workers=workers)
