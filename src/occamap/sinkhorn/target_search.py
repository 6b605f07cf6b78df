"""The ε at which a source sample has a number of effective targets, or as near to it as the samples allow."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from occamap.errors import InputError
from occamap.sinkhorn.solution import Solution, Status

Floats = NDArray[np.float64]
SolveAt = Callable[[float, Floats | None], Solution]

STEP = 4.0  # between the ε of a schedule, and of a search that has not yet bracketed its number
FOUND = 0.05  # by which the logarithm of the effective targets may differ from that of their aim
CLOSE = 2e-3  # the same, for a search to end
FIRST, LOWEST, HIGHEST = 0.1, 1e-5, 1e6  # × typical cost: where a search starts, and how far it goes
SPARE = 2.0  # × the fewest targets that equal masses allow: as accurate as fewer, and reached in a few iterations
NEAR_FEWEST = 1.1  # × the fewest targets of all solves: nearer to them, ε would be far smaller for little
HALVINGS = 2  # of the step between two ε around that number
FAR = 4.0  # × the targets wanted: from here up, a search may stop early
ALIKE = 1.02  # the most targets are at most this many times the fewest: ε hardly matters


@dataclass(frozen=True)
class EpsilonChoice:
    """The ε that a rule leads to, as the last of `steps`, and a potential of the targets to start from, if any.

    A rule for effective targets aims at `targets` of them, if ε changes their number; `reason` says why they are not
    the number that was given.
    """

    steps: list[float]
    start: Floats | None = None
    targets: float | None = None
    reason: str = ""

    def check(self, effective_targets: float, max_iter: int) -> None:
        """Raise unless a solve that converged has these targets: solves of the search may not have converged."""
        if self.targets is not None and abs(math.log(effective_targets / self.targets)) > FOUND:
            raise InputError(
                f"epsilon={self.targets:.4g} effective targets were not found: the solves of the search ended after "
                f"max_iter={max_iter} iterations, and there are {effective_targets:.4g}: raise max_iter"
            )


@dataclass(frozen=True)
class TargetRange:
    """How many effective targets a source sample can have on average, by the masses alone.

    Balanced masses a and b give it at least exp(H(b) − H(a)) of them, since a plan has at least the entropy of b; for
    uniform masses this is m/n. An infinite ε gives it exp H(b) of them.
    """

    fewest: float
    most: float
    weighted: bool

    @classmethod
    def of(cls, a: Floats, b: Floats, balanced: bool) -> TargetRange:
        most = _perplexity(b)
        uneven = any(np.ptp(masses) > 1e-9 * masses.max() for masses in (a, b))
        return cls(max(1.0, most / _perplexity(a)) if balanced else 1.0, most, uneven)

    @property
    def middle(self) -> float:
        """Between the two bounds, and so within reach of some ε, unless targets coincide."""
        return 0.5 * (self.fewest + self.most)

    def aim(self, wanted: float) -> tuple[float, str]:
        """The number to look for, and why if it is not the one wanted."""
        if wanted >= self.most:
            return self.middle, self._few()
        if self.fewest > wanted * math.exp(FOUND):
            return self._above_fewest()
        return wanted, ""

    def aim_again(self, wanted: float, below: bool) -> tuple[float, str]:
        """The same after a search that did not find the number wanted, and was `below` it or above it at its end."""
        if below:
            return self.middle, self._few()
        aim, reason = self._above_fewest()
        return (aim, reason) if aim > wanted else (wanted, "")

    def _above_fewest(self) -> tuple[float, str]:
        weights = "by their weights " if self.weighted else ""
        return (
            min(SPARE * self.fewest, self.middle),
            f"{weights}there are {format_targets(self.fewest)} targets for each source sample",
        )

    def _few(self) -> str:
        if self.weighted:
            return f"by their weights the targets count as only {format_targets(self.most)}"
        return "there is only 1 target" if self.most < 1.5 else f"there are only {self.most:,.0f} targets"


def format_targets(number: float) -> str:
    """A number of effective targets, to three digits or as an integer."""
    number *= 1 + 1e-9  # 18.75, rounded up though it may be just below
    return f"{number:.3g}" if number < 100 else f"{number:,.0f}"


def search_epsilon(
    wanted: float,
    costs: tuple[float, float],
    masses: tuple[Floats, Floats],
    balanced: bool,
    solve_at: SolveAt,
    near: tuple[float, Floats] | None = None,
) -> EpsilonChoice:
    """The ε of `wanted` effective targets, or of the nearest number that is within easy reach.

    `costs` are a typical cost and the largest; `near` are an ε and potentials of a similar problem, to begin with.
    """
    typical, largest = costs
    if typical < 1e-280:
        return EpsilonChoice([1.0], reason="all costs are 0, so that ε makes no difference")
    bounds = TargetRange.of(*masses, balanced)
    aim, reason = bounds.aim(wanted)
    if reason and bounds.most <= ALIKE * bounds.fewest:
        return EpsilonChoice([FIRST * typical], reason=reason)
    search = _Search(bounds.most, typical, solve_at, near)
    found = search.find(aim)
    if found is None and not reason:
        aim, reason = bounds.aim_again(wanted, below=search.last.targets < wanted)
        found = search.find(aim) if reason else None
    if found is not None:
        return EpsilonChoice([math.exp(found)], search.start, aim, reason)
    probe = search.near_fewest(FIRST * largest)
    reason = "these samples allow hardly fewer, as when many targets are equal"
    return EpsilonChoice([math.exp(probe.log_epsilon)], search.start, probe.targets, reason)


@dataclass(frozen=True)
class _Probe:
    log_epsilon: float
    targets: float
    converged: bool


class _Search:
    """Solves at one ε after another, each from the potentials of the one before."""

    def __init__(self, most: float, typical: float, solve_at: SolveAt, near: tuple[float, Floats] | None) -> None:
        if near is not None and not LOWEST * typical < near[0] < typical:
            near = None
        self.most, self.typical, self.solve_at = most, typical, solve_at
        first: float = FIRST * typical if near is None else near[0]
        self.start: Floats | None = None if near is None else near[1]
        self.first, self.stride = math.log(first), math.log(STEP if near is None else 1.2)
        self.probes: list[_Probe] = []

    @property
    def last(self) -> _Probe:
        return self.probes[-1]

    def probe(self, log_epsilon: float) -> _Probe:
        solution = self.solve_at(math.exp(log_epsilon), self.start)
        self.start = solution.g
        self.probes.append(_Probe(log_epsilon, solution.effective_targets, solution.status is Status.CONVERGED))
        return self.last

    def _stuck(self, wanted: float) -> bool:
        """Whether the last solve did not converge, has far more targets than wanted, and about as many as the one
        before it, or as an infinite ε gives: smaller ε would take as long and change as little."""
        before = self.most if len(self.probes) < 2 else self.probes[-2].targets
        last = self.last
        return not last.converged and last.targets > max(FAR * wanted, math.exp(-FOUND) * before)

    def find(self, wanted: float) -> float | None:
        """log ε, by a bracket and then false position in the logarithms; None if no ε gives so few, or so many."""

        def gap(log_epsilon: float) -> float:
            return math.log(self.probe(log_epsilon).targets / wanted)

        stride = self.stride
        low = high = self.first
        low_gap = high_gap = gap(low)
        while low_gap > 0:
            high, high_gap, low, stride = low, low_gap, low - stride, min(2 * stride, math.log(STEP))
            if low < math.log(LOWEST * self.typical) or self._stuck(wanted):
                return None
            low_gap = gap(low)
        while high_gap < 0:
            low, low_gap, high, stride = high, high_gap, high + stride, min(2 * stride, math.log(STEP))
            if high > math.log(HIGHEST * self.typical):
                return None
            high_gap = gap(high)
        while True:
            share = min(0.9, max(0.1, low_gap / (low_gap - high_gap))) if low_gap < high_gap else 0.5
            middle = low + share * (high - low)
            value = gap(middle)
            if abs(value) < CLOSE or high - low < 1e-9:
                return middle
            if value < 0:
                low, low_gap = middle, value
            else:
                high, high_gap = middle, value

    def near_fewest(self, largest: float) -> _Probe:
        """The largest ε, up to `largest`, whose targets are nearly the fewest that a solve has found."""
        top = math.log(largest)
        probes = [probe for probe in self.probes if probe.converged and probe.log_epsilon <= top]
        if not probes:
            probes = [self._converged()]
        aim = NEAR_FEWEST * min(probe.targets for probe in probes)
        low = max((probe for probe in probes if probe.targets <= aim), key=lambda probe: probe.log_epsilon)
        high = min((probe.log_epsilon for probe in probes if probe.log_epsilon > low.log_epsilon), default=math.inf)
        while high == math.inf and low.log_epsilon < top:
            above = self.probe(min(top, low.log_epsilon + math.log(STEP)))
            if above.targets <= aim:
                low = above
            else:
                high = above.log_epsilon
        for _ in range(HALVINGS if high < math.inf else 0):
            middle = self.probe(0.5 * (low.log_epsilon + high))
            if middle.converged and middle.targets <= aim:
                low = middle
            else:
                high = middle.log_epsilon
        return low

    def _converged(self) -> _Probe:
        """The first of ever larger ε at which a solve converges, provided that its targets are hardly more."""
        fewest = min(probe.targets for probe in self.probes)
        log_epsilon, self.start = max(probe.log_epsilon for probe in self.probes), None
        while log_epsilon < math.log(HIGHEST * self.typical) and self.last.targets <= NEAR_FEWEST * fewest:
            log_epsilon += 2 * math.log(STEP)
            if self.probe(log_epsilon).converged and self.last.targets <= NEAR_FEWEST * fewest:
                return self.last
        raise InputError("epsilon was not found, since no solve of the search converged: raise max_iter")


def _perplexity(masses: Floats) -> float:
    """exp of the entropy: the number of equal masses that are as spread out."""
    held = masses[masses > 0]
    return math.exp(-float(np.sum(held * np.log(held))))
