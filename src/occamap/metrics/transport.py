"""Distances between measures, on the solver of the maps."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from occamap._memory import Budget
from occamap._validate import Samples, check_count, check_number, check_same_features, check_samples, check_weights
from occamap._workers import Workers
from occamap.costs import Cost, SqL2
from occamap.errors import InputError, NotConvergedWarning
from occamap.sinkhorn import CostBlocks, EpsilonRule, Solver, Status, cost_blocks
from occamap.sinkhorn.solution import describe

__all__ = ["ot_cost", "sinkhorn_divergence"]

Floats = NDArray[np.float64]


class Measure(NamedTuple):
    """Samples that passed the gate, with masses that sum to one."""

    samples: Samples
    masses: Floats


class Value(NamedTuple):
    """A number that solves led to, and the sentence on the first of them that did not converge, if any."""

    value: float
    trouble: str = ""


@dataclass(frozen=True)
class Transport:
    """OT_ε between two measures, as the rule says: the value, and the ε it was taken at."""

    rule: EpsilonRule
    cost: Cost
    tol: float
    max_iter: int
    budget: Budget = field(default_factory=lambda: Budget(None))

    def __call__(self, mu: Measure, nu: Measure, workers: Workers) -> tuple[Value, float]:
        return self.solve(self.costs(mu, nu, workers), mu.masses, nu.masses, workers)

    def solve(self, costs: CostBlocks, a: Floats, b: Floats, workers: Workers) -> tuple[Value, float]:
        """The same from costs that are known."""
        solver = Solver(self.rule, None, self.tol, self.max_iter)
        solution = solver(costs, a, b, workers)
        converged = solution.status is Status.CONVERGED
        trouble = "" if converged else describe(solution.status, solution.error, self.tol, self.max_iter)
        return Value(float(a @ solution.f + b @ solution.g), trouble), solution.epsilon

    def costs(self, mu: Measure, nu: Measure, workers: Workers) -> CostBlocks:
        """All costs between the two, but for features that the cost freezes."""
        frozen = self.cost._frozen(mu.samples.shape[1])
        sides = mu.samples.without(frozen), nu.samples.without(frozen)
        return cost_blocks(self.cost, *sides, self.budget, workers)


class DivergenceTo:
    """S_ε(·, ν) for one ν, whose ε and self-transport are computed once.

    Where ν is a single point, no cost within it can scale ε: then those from `like` to ν do.
    """

    def __init__(self, nu: Measure, transport: Transport, workers: Workers, like: Measure) -> None:
        self.nu, self.workers = nu, workers
        within, across = (_largest(transport, side, nu, workers) for side in (nu, like))
        self._own, epsilon = transport(nu if within > 1e-12 * across else like, nu, workers)
        self._transport = replace(transport, rule=EpsilonRule(epsilon, "absolute"))
        if within <= 1e-12 * across:
            self._own, _ = self._transport(nu, nu, workers)

    def __call__(self, mu: Measure) -> Value:
        """OT_ε(μ, ν) − ½OT_ε(μ, μ) − ½OT_ε(ν, ν)."""
        across, own = (self._transport(mu, other, self.workers)[0] for other in (self.nu, mu))
        value = across.value - 0.5 * own.value - 0.5 * self._own.value
        return Value(value, across.trouble or own.trouble or self._own.trouble)


def _largest(transport: Transport, mu: Measure, nu: Measure, workers: Workers) -> float:
    """The largest cost from the first sample of μ."""
    first = Measure(mu.samples.rows(0, 1), np.ones(1))
    return float(transport.costs(first, nu, workers).block((0, 1)).max())


def ot_cost(
    X: Any,
    Y: Any,
    a: ArrayLike | None = None,
    b: ArrayLike | None = None,
    *,
    cost: Cost | None = None,
    epsilon: float = 0.1,
    epsilon_scale: str = "mean",
    tol: float = 1e-4,
    max_iter: int = 2000,
    n_jobs: int | None = None,
) -> float:
    """OT_ε(μ, ν) = min ⟨P, C⟩ + ε KL(P | a ⊗ b), the entropic transport cost, entropic term included.

    The cost is ½‖x − y‖² unless another is given, and ε a multiple of a statistic of the costs from X to Y, as for
    `MongeMap`. Features that the cost freezes are left out.

    >>> import numpy as np, occamap as oc
    >>> round(oc.metrics.ot_cost(np.zeros((3, 2)), np.ones((4, 2))), 6)
    1.0
    """
    mu, nu = _check_measures(X, Y, a, b, cost)
    transport = _check_transport(epsilon, epsilon_scale, cost, tol, max_iter)
    with Workers(n_jobs) as workers:
        found, _ = transport(mu, nu, workers)
    return _told(found)


def sinkhorn_divergence(
    X: Any,
    Y: Any,
    a: ArrayLike | None = None,
    b: ArrayLike | None = None,
    *,
    cost: Cost | None = None,
    epsilon: float = 0.1,
    epsilon_scale: str = "mean",
    tol: float = 1e-4,
    max_iter: int = 2000,
    n_jobs: int | None = None,
) -> float:
    """S_ε(μ, ν) = OT_ε(μ, ν) − ½OT_ε(μ, μ) − ½OT_ε(ν, ν), entropic terms included.

    The cost is ½‖x − y‖² unless another is given. ε is `epsilon` × the mean (or another statistic, as for `MongeMap`)
    of the costs *among the samples of Y*, the same for all three terms: scores against one Y can be compared. (Where Y
    is a single point, it is that of the costs from X to Y.)

    >>> import numpy as np, occamap as oc
    >>> Y = np.random.default_rng(0).normal(size=(50, 3))
    >>> round(oc.metrics.sinkhorn_divergence(Y + [2, 0, 0], Y), 3), abs(oc.metrics.sinkhorn_divergence(Y, Y)) < 1e-9
    (2.0, True)
    """
    mu, nu = _check_measures(X, Y, a, b, cost)
    transport = _check_transport(epsilon, epsilon_scale, cost, tol, max_iter)
    with Workers(n_jobs) as workers:
        found = DivergenceTo(nu, transport, workers, like=mu)(mu)
    return _told(found)


def _told(found: Value) -> float:
    if found.trouble:
        warnings.warn(found.trouble, NotConvergedWarning, stacklevel=3)
    return found.value


def _check_measures(
    X: Any, Y: Any, a: ArrayLike | None, b: ArrayLike | None, cost: Cost | None
) -> tuple[Measure, Measure]:
    source, target = check_samples(X, "X"), check_samples(Y, "Y")
    check_same_features(target, "Y", source.shape[1], source.names, "X")
    if isinstance(cost, Cost):
        cost._check_features(source.shape[1])
    masses = check_weights(a, source.shape[0], "a"), check_weights(b, target.shape[0], "b")
    return Measure(source, masses[0]), Measure(target, masses[1])


def _check_transport(epsilon: float, scale: str, cost: Cost | None, tol: float, max_iter: int) -> Transport:
    chosen = SqL2() if cost is None else cost
    if not isinstance(chosen, Cost):
        raise InputError(f"cost must be a cost such as L1(1.0); got {cost!r}")
    rule, iterations = EpsilonRule(epsilon, scale), check_count(max_iter, "max_iter")
    return Transport(rule, chosen, check_number(tol, "tol", 0, open_low=True), iterations)
