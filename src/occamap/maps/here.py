"""A fit by the threads of this process, within a budget."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from occamap._memory import Budget
from occamap._workers import Workers
from occamap.costs import Cost
from occamap.maps.problem import Problem
from occamap.maps.progress import Progress, Told
from occamap.sinkhorn import CostBlocks, Solution, Solver, cost_blocks

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
        frozen, told = cost._frozen(source.shape[1]), Told(progress.tell)
        pair = source.without(frozen), target.without(frozen)

        def costs(single: bool) -> CostBlocks:
            return cost_blocks(cost, *pair, budget, workers, progress.costs, single=single, note=told)

        solution, used = solver.within(costs, problem.a, problem.b, workers, near, progress.iteration)
    return solution, used.place, str(told)
