"""Distances between measures. Each says exactly what it computes."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from occamap._memory import Budget
from occamap._validate import Samples, check_count, check_number, check_same_features, check_samples, check_weights
from occamap._workers import Workers
from occamap.costs import Cost, SqL2
from occamap.errors import InputError, NotConvergedWarning
from occamap.sinkhorn import EpsilonRule, Solver, Status, cost_blocks
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


class DivergenceTo:
    """S_ε(·, ν) for one ν, whose ε and self-transport are computed once."""

    def __init__(self, nu: Measure, rule: EpsilonRule, cost: Cost, tol: float, max_iter: int, workers: Workers) -> None:
        self.nu, self.cost, self.tol, self.max_iter, self.workers = nu, cost, tol, max_iter, workers
        self.epsilon: float | None = None
        own = self._transport(nu, nu, rule)
        self.epsilon, self._own = own[1], own[0]

    def __call__(self, mu: Measure) -> Value:
        """OT_ε(μ, ν) − ½OT_ε(μ, μ) − ½OT_ε(ν, ν)."""
        across, own = self.transport(mu, self.nu), self.transport(mu, mu)
        value = across.value - 0.5 * own.value - 0.5 * self._own.value
        return Value(value, across.trouble or own.trouble or self._own.trouble)

    def transport(self, mu: Measure, nu: Measure) -> Value:
        """OT_ε(μ, ν), with the ε of this divergence."""
        assert self.epsilon is not None
        return self._transport(mu, nu, EpsilonRule(self.epsilon, "absolute"))[0]

    def _transport(self, mu: Measure, nu: Measure, rule: EpsilonRule) -> tuple[Value, float]:
        costs = cost_blocks(self.cost, mu.samples, nu.samples, Budget(None), self.workers)
        solution = Solver(rule, None, self.tol, self.max_iter)(costs, mu.masses, nu.masses, self.workers)
        trouble = ""
        if solution.status is not Status.CONVERGED:
            trouble = describe(solution.status, solution.error, self.tol, self.max_iter)
        return Value(float(mu.masses @ solution.f + nu.masses @ solution.g), trouble), solution.epsilon


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
    `MongeMap`.

    >>> import numpy as np, occamap as oc
    >>> round(oc.metrics.ot_cost(np.zeros((3, 2)), np.ones((4, 2))), 6)
    1.0
    """
    mu, nu, chosen = _check(X, Y, a, b, cost, tol, max_iter)
    with Workers(n_jobs) as workers:
        costs = cost_blocks(chosen, mu.samples, nu.samples, Budget(None), workers)
        solver = Solver(EpsilonRule(epsilon, epsilon_scale), None, float(tol), max_iter)
        solution = solver(costs, mu.masses, nu.masses, workers)
    if solution.status is not Status.CONVERGED:
        warnings.warn(describe(solution.status, solution.error, tol, max_iter), NotConvergedWarning, stacklevel=2)
    return float(mu.masses @ solution.f + nu.masses @ solution.g)


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
    of the costs *among the samples of Y*, the same for all three terms: scores against one Y can be compared.

    >>> import numpy as np, occamap as oc
    >>> Y = np.random.default_rng(0).normal(size=(50, 3))
    >>> round(oc.metrics.sinkhorn_divergence(Y + [2, 0, 0], Y), 3), abs(oc.metrics.sinkhorn_divergence(Y, Y)) < 1e-9
    (2.0, True)
    """
    mu, nu, chosen = _check(X, Y, a, b, cost, tol, max_iter)
    with Workers(n_jobs) as workers:
        rule = EpsilonRule(epsilon, epsilon_scale)
        found = DivergenceTo(nu, rule, chosen, float(tol), max_iter, workers)(mu)
    if found.trouble:
        warnings.warn(found.trouble, NotConvergedWarning, stacklevel=2)
    return found.value


def _check(
    X: Any, Y: Any, a: ArrayLike | None, b: ArrayLike | None, cost: Cost | None, tol: float, max_iter: int
) -> tuple[Measure, Measure, Cost]:
    source, target = check_samples(X, "X"), check_samples(Y, "Y")
    check_same_features(target, "Y", source.shape[1], source.names, "X")
    chosen = SqL2() if cost is None else cost
    if not isinstance(chosen, Cost):
        raise InputError(f"cost must be a cost such as L1(1.0); got {cost!r}")
    chosen._check_features(source.shape[1])
    check_number(tol, "tol", 0, open_low=True)
    check_count(max_iter, "max_iter")
    masses = check_weights(a, source.shape[0], "a"), check_weights(b, target.shape[0], "b")
    return Measure(source, masses[0]), Measure(target, masses[1]), chosen
