"""From costs, masses and a rule for ε to potentials: the ε is found, then the loop is run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from occamap._workers import Workers
from occamap.sinkhorn.epsilon import EpsilonRule
from occamap.sinkhorn.operator import CostBlocks
from occamap.sinkhorn.solution import Floats, Solution
from occamap.sinkhorn.solve import solve


@dataclass(frozen=True)
class Solver:
    """How potentials are looked for: the rule for ε, the reach of unbalanced transport, and when to stop."""

    rule: EpsilonRule
    reach: float | None = None
    tol: float = 1e-4
    max_iter: int = 2000

    def __call__(
        self,
        costs: CostBlocks,
        a: Floats,
        b: Floats,
        workers: Workers,
        near: tuple[float, Floats] | None = None,
        progress: Callable[[int, float], None] | None = None,
    ) -> Solution:
        """`near` are an ε and potentials of the targets to start from, of a problem that is similar."""

        def at(epsilons: list[float], tol: float, start: Floats | None) -> Solution:
            return solve(
                costs,
                a,
                b,
                epsilons,
                reach=self.reach,
                tol=tol,
                max_iter=self.max_iter,
                start=start,
                workers=workers,
                progress=progress,
            )

        coarse = max(self.tol, 1e-3)
        found = self.rule.resolve(costs, a, b, workers, lambda eps, start: at([eps], coarse, start), near)
        epsilons, start = found
        if start is None and near is not None and np.ptp(near[1]) <= 1e6 * epsilons[-1]:  # else of another scale
            epsilons, start = epsilons[-1:], near[1]
        return at(epsilons, self.tol, start)
