"""From costs, masses and a rule for ε to potentials: the ε is found, then the loop is run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from occamap._workers import Workers
from occamap.sinkhorn.epsilon import EpsilonRule
from occamap.sinkhorn.operator import Costs
from occamap.sinkhorn.solution import Floats, Solution, Status
from occamap.sinkhorn.solve import solve

C = TypeVar("C", bound=Costs)

COARSE = 1e-3  # the tolerance while an ε is looked for
FINEST = 1e-6  # below this tolerance costs are float64
SHOWS = 0.1  # of the tolerance: by so much rounding may change entries of the plan, relative to them


@dataclass(frozen=True)
class Solver:
    """How potentials are looked for: the rule for ε, the reach of unbalanced transport, and when to stop."""

    rule: EpsilonRule
    reach: float | None = None
    tol: float = 1e-4
    max_iter: int = 2000

    def __call__(
        self,
        costs: Costs,
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

        def solve_at(epsilon: float, start: Floats | None) -> Solution:
            return at([epsilon], COARSE, start)

        choice = self.rule.resolve(costs, a, b, workers, solve_at, near, balanced=self.reach is None)
        epsilons, start = choice.steps, choice.start
        if start is None and near is not None and np.ptp(near[1]) <= 1e6 * epsilons[-1]:  # else of another scale
            epsilons, start = epsilons[-1:], near[1]
        solution = at(epsilons, self.tol, start)
        if solution.status is Status.CONVERGED:
            choice.check(solution.effective_targets, self.max_iter)
        return replace(solution, epsilon_rule=self.rule.describe(solution.effective_targets, choice.reason))

    def within(
        self,
        make: Callable[[bool], C],
        a: Floats,
        b: Floats,
        workers: Workers,
        near: tuple[float, Floats] | None = None,
        progress: Callable[[int, float], None] | None = None,
    ) -> tuple[Solution, C]:
        """Potentials of costs that make(True) may round to float32, or, where that shows, of make(False)."""
        costs = make(self.tol >= FINEST)
        solution = self(costs, a, b, workers, near, progress)
        if costs.rounding <= SHOWS * self.tol * solution.epsilon:
            return solution, costs
        del costs  # else there are two of them
        costs = make(False)
        return self(costs, a, b, workers, (solution.epsilon, solution.g), progress), costs
