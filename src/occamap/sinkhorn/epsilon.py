"""From a rule to ε: a multiple of a statistic of the costs, an absolute number, or a number of effective targets."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import occamap.sinkhorn.passes as passes
from occamap._validate import check_choice, check_number
from occamap._workers import Workers
from occamap.errors import InputError
from occamap.sinkhorn.operator import Costs

if TYPE_CHECKING:
    from occamap.sinkhorn.solution import Solution

Floats = NDArray[np.float64]
SolveAt = Callable[[float, "Floats | None"], "Solution"]

SCALES = ("mean", "median", "std", "max", "absolute", "perplexity")
STEP = 4.0  # between steps of the ε schedule
FOUND = 0.05  # by which effective targets may differ from those asked for
GENTLE = 0.02  # × typical cost: from here up no schedule is needed


@dataclass(frozen=True)
class EpsilonRule:
    """`value` × a statistic of the costs under a ⊗ b ("mean", "median", "std", "max"), `value` itself
    ("absolute"), or the ε at which a sample has `value` effective targets on average ("perplexity")."""

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

    def check(self, effective_targets: float, max_iter: int) -> None:
        """Raise unless a solve that converged has the targets asked for: those on the way to its ε may not have."""
        if self.scale == "perplexity" and abs(math.log(effective_targets / self.value)) > FOUND:
            raise InputError(
                f"epsilon={self.value:g} effective targets were not found: the solves of the search ended after "
                f"max_iter={max_iter} iterations, and there are {effective_targets:.4g}: raise max_iter"
            )

    def resolve(
        self,
        costs: Costs,
        a: Floats,
        b: Floats,
        workers: Workers,
        solve_at: SolveAt,
        near: tuple[float, Floats] | None = None,
    ) -> tuple[list[float], Floats | None]:
        """The schedule of ε that ends at the one asked for, and a potential to start from if one is at hand.

        `near` are an ε and potentials of a similar problem, which a search begins with.
        """
        mean, typical, top = _statistics(costs, a, b, workers)
        if self.scale == "perplexity":
            return _by_targets(self.value, typical, b, solve_at, near)
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
        return schedule(epsilon, typical), None


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


def _by_targets(
    wanted: float, typical: float, b: Floats, solve_at: SolveAt, near: tuple[float, Floats] | None
) -> tuple[list[float], Floats | None]:
    """ε by its effective number of targets, which grows with it: bracketed, then false position in the logs."""
    most = math.exp(-float(np.sum(b[b > 0] * np.log(b[b > 0]))))
    if not 1 <= wanted < most:
        raise InputError(
            f"epsilon must be at least 1 and less than the effective number of all targets, {most:.4g}, "
            f"for epsilon_scale='perplexity'; got {wanted:g}"
        )
    if typical < 1e-280:
        raise InputError("epsilon_scale='perplexity' needs costs that are not all 0: X and Y are one point")
    if near is not None and not 1e-5 * typical < near[0] < typical:
        near = None
    first, start = (0.1 * typical, None) if near is None else near
    stride = math.log(STEP if near is None else 1.2)

    def gap(log_epsilon: float) -> float:
        nonlocal start
        solution = solve_at(math.exp(log_epsilon), start)
        start = solution.g
        return math.log(solution.effective_targets / wanted)

    low = high = math.log(first)
    low_gap = high_gap = gap(low)
    while low_gap > 0:
        high, high_gap, low, stride = low, low_gap, low - stride, min(2 * stride, math.log(STEP))
        if low < math.log(1e-5 * typical):
            reached = wanted * math.exp(low_gap)
            raise InputError(
                f"epsilon={wanted:g} effective targets cannot be reached: even at ε = {math.exp(high):.3g} "
                f"there are {reached:.3g}; ask for more, or give epsilon with another epsilon_scale"
            )
        low_gap = gap(low)
    while high_gap < 0:
        low, low_gap, high, stride = high, high_gap, high + stride, min(2 * stride, math.log(STEP))
        if high > math.log(1e6 * typical):
            raise InputError(f"epsilon={wanted:g} effective targets are too close to all of them ({most:.4g})")
        high_gap = gap(high)
    while True:
        share = min(0.9, max(0.1, low_gap / (low_gap - high_gap))) if low_gap < high_gap else 0.5
        middle = low + share * (high - low)
        value = gap(middle)
        if abs(value) < 2e-3 or high - low < 1e-9:
            return [math.exp(middle)], start
        if value < 0:
            low, low_gap = middle, value
        else:
            high, high_gap = middle, value
