"""Where to start the solver at the next γ of a path."""

from __future__ import annotations

from occamap.sinkhorn import Solution
from occamap.sinkhorn.solution import Floats


class Continuation:
    """Potentials and ε of the last two γ, continued in a straight line: they are smooth in γ, at its ends linear."""

    def __init__(self) -> None:
        self._last: list[tuple[float, float, Floats]] = []

    def add(self, gamma: float, solution: Solution) -> None:
        self._last = [*self._last[-1:], (gamma, solution.epsilon, solution.g)]

    def near(self, gamma: float) -> tuple[float, Floats] | None:
        """An ε and potentials to start from, if there is a γ behind."""
        if not self._last:
            return None
        at, epsilon, g = self._last[-1]
        if len(self._last) == 1:
            return epsilon, g
        before, epsilon_before, g_before = self._last[0]
        share = (gamma - at) / (at - before)
        return max(epsilon + share * (epsilon - epsilon_before), 0.5 * epsilon), g + share * (g - g_before)
