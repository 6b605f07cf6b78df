"""From a rule to ε: a multiple of a statistic of the costs, an absolute number, or a number of effective targets."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import occamap.sinkhorn.passes as passes
from occamap._validate import check_choice, check_number
from occamap._workers import Workers
from occamap.errors import InputError
from occamap.sinkhorn.operator import Costs
from occamap.sinkhorn.target_search import FOUND, STEP, EpsilonChoice, SolveAt, format_targets, search_epsilon

Floats = NDArray[np.float64]

SCALES = ("mean", "median", "std", "max", "absolute", "perplexity")
GENTLE = 0.02  # × typical cost: from here up no schedule is needed


@dataclass(frozen=True)
class EpsilonRule:
    """`value` × a statistic of the costs under a ⊗ b ("mean", "median", "std", "max"), `value` itself
    ("absolute"), or the ε at which a sample has `value` effective targets on average, or as near to that number as the
    samples allow ("perplexity")."""

    value: float
    scale: str = "mean"

    def __post_init__(self) -> None:
        check_choice(self.scale, "epsilon_scale", SCALES)
        object.__setattr__(self, "value", check_number(self.value, "epsilon", 0, open_low=True))
        if self.scale == "perplexity" and self.value < 1:
            raise InputError(f"epsilon must be at least 1 for epsilon_scale='perplexity'; got {self.value:g}")

    def __str__(self) -> str:
        if self.scale == "absolute":
            return "absolute"
        return f"perplexity {self.value:g}" if self.scale == "perplexity" else f"{self.value:g} × {self.scale} cost"

    def describe(self, effective_targets: float, reason: str) -> str:
        """The rule and, if it led to another number of effective targets than `value`, to which and why."""
        if not reason or abs(math.log(effective_targets / self.value)) <= FOUND:
            return str(self)
        change = "raised" if effective_targets > self.value else "lowered"
        number = format_targets(effective_targets)
        return f"{self}, {change} to {number} effective target{'s' * (number != '1')}, since {reason}"

    def resolve(
        self,
        costs: Costs,
        a: Floats,
        b: Floats,
        workers: Workers,
        solve_at: SolveAt,
        near: tuple[float, Floats] | None = None,
        balanced: bool = True,
    ) -> EpsilonChoice:
        """The ε of these costs and masses, with the steps that lead to it.

        `near` are an ε and potentials of a similar problem, which a search begins with; `balanced` says whether
        marginals are met, which bounds the effective targets.
        """
        mean, typical, top = _statistics(costs, a, b, workers)
        if self.scale == "perplexity":
            return search_epsilon(self.value, (typical, top), (a, b), balanced, solve_at, near)
        statistic = 1.0 if self.scale == "absolute" else _statistic(self.scale, mean, top, costs, a, b, workers)
        if statistic == 0 or (self.scale == "std" and statistic <= 1e-12 * mean):
            statistic = 1.0 if mean == 0 else mean  # all costs are equal: any ε gives the same plan
        epsilon = self.value * statistic
        if not 1e-290 < epsilon < 1e290:
            raise InputError(
                f"epsilon must lead to an ε that float64 can divide by; {self} gives {epsilon:g}: take another, or "
                "rescale X and Y"
            )
        if epsilon < 1e-13 * mean:
            raise InputError(
                f"epsilon must be at least 1e-13 of the mean cost, {mean:g}, else float64 cannot tell costs apart; "
                f"{self} gives {epsilon:g}"
            )
        return EpsilonChoice(schedule(epsilon, typical))


def schedule(epsilon: float, typical: float) -> list[float]:
    """From GENTLE × the typical cost down to ε, or ε alone where it is not small."""
    steps = [epsilon]
    while steps[0] * STEP <= GENTLE * typical:
        steps.insert(0, steps[0] * STEP)
    return steps


def _statistics(costs: Costs, a: Floats, b: Floats, workers: Workers) -> tuple[float, float, float]:
    """The mean cost; the smaller of the median row and column mean, which no outlying sample moves; the largest."""
    rows, columns, largest = zip(*costs.over(passes.means, workers, (a,), b), strict=True)
    by_row, by_column = np.concatenate(rows), np.sum(columns, axis=0)
    mean = float(a @ by_row)
    typical = float(min(np.median(by_row[a > 0]), np.median(by_column[b > 0])))
    return mean, typical or mean, max(largest)


def _statistic(
    scale: str, mean: float, top: float, costs: Costs, a: Floats, b: Floats, workers: Workers
) -> float:
    def below(cost: float) -> float:
        return float(sum(costs.over(passes.mass_below, workers, (a,), b, cost)))

    if scale == "mean":
        return mean
    if scale == "max":
        return top
    if scale == "std":
        return mean * math.sqrt(sum(costs.over(passes.variance, workers, (a,), b, mean))) if mean > 0 else 0.0

    def smallest(mass: float) -> float:
        """The smallest cost at or below which there is this much of the mass of a ⊗ b."""
        low, high = 0.0, top
        if below(0.0) >= mass:
            return 0.0
        while True:
            middle = 0.5 * (low + high)
            if not low < middle < high or high - low < 1e-12 * high:
                return high
            low, high = (low, middle) if below(middle) >= mass else (middle, high)

    return 0.5 * (smallest(0.5 - 1e-9) + smallest(0.5 + 1e-9))
