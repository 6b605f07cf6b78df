"""One generated problem: what the package makes of it, next to the reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

import occamap as oc
from occamap._workers import Workers
from occamap.errors import InputError, OccamapError
from soak import reference, reference_pool
from soak.generate import Problem
from soak.problems_again import check_again
from soak.problems_bounds import COST, EPS, Floats, ask, close, dense, finite, logs, require, spread_of
from soak.problems_costs import Costs
from soak.problems_epsilon import check_epsilon
from soak.problems_match import Coordinates
from soak.problems_moves import Field, Moves
from soak.problems_pool import Neighbourhoods


@dataclass
class Outcome:
    """How a problem ended, and what rounding leaves open of its marginal error."""

    ending: str
    rounding: float


def examine(problem: Problem) -> Outcome:
    """Raises `FaultError` for anything but a right result or a typed refusal."""
    examined = _Examined(problem)
    with np.errstate(all="ignore"):  # what the reference does; the package is asked with NumPy's usual warnings
        try:
            ending = examined.run()
        except OccamapError as error:
            ending = f"refused: {type(error).__name__}: {' '.join(str(error).split()[:6])}"
    return Outcome(ending, examined.rounding)


class _Examined:
    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.status: str | None = None
        self.rounding = 0.0
        self.X, self.Y = dense(problem.X), dense(problem.Y)
        self.dtype = np.result_type(problem.X.dtype, problem.Y.dtype)
        self.costs = Costs(problem)
        self.frozen = self.costs.frozen

    def run(self) -> str:
        problem = self.problem
        self.costs.check_pairs()
        if problem.vectors:
            self.costs.check_vectors()
        model = oc.MongeMap(problem.cost, n_jobs=1, **problem.parameters)
        _, warned = ask(model.fit, problem.X, problem.Y, problem.a, problem.b)
        require(not problem.reading.flaw, f"{problem.reading.flaw} is not refused")
        self.status = str(model.report_.status)
        require(warned == (self.status != "converged"), f"status {self.status}, warned: {warned}")
        self.coordinates = Coordinates(model, problem, ~self.frozen)
        fitted = max(np.abs(self.X).max(), np.abs(self.Y).max())
        self.moves = Moves(model, problem.penalty, fitted, self.costs.latent)
        self._fit(model)
        odd = problem.X.shape[0] % 2 == 1
        self._forth(model, odd)
        self._back(model, odd)
        if problem.vectors:
            check_again(model, problem)
        return "right" if self.status == "converged" else "right, not converged"

    # -- the fit -----------------------------------------------------------------------------------------------

    def _fit(self, model: Any) -> None:
        a, b, f, g, epsilon, reach = model.a_, model.b_, model.f_, model.g_, model.epsilon_, model.reach_
        for values, name in ((f, "f_"), (g, "g_"), ([epsilon, model.report_.error, model.report_.mass], "report_")):
            finite(values, name)
        C, relative = self._match(self.problem.X, self.problem.Y)
        delta = self._delta(model, C, relative)
        check_epsilon(model, C, 2 * relative + 2e-12, delta)
        damping = 1.0 if reach is None else reach / (reach + epsilon)
        p, potential = reference.gibbs(C, g, b, epsilon)
        spread = spread_of(p, delta)
        close(f, damping * potential, epsilon * spread + 1e-300, "f_")
        log_goal = logs(b) if reach is None else logs(b) - g / reach
        log_column = logs(b) + g / epsilon + reference.log_sum((f[:, None] - C) / epsilon, a[:, None], 0)
        held = b > 0
        top = max(log_goal[held].max(), log_column[held].max())
        goal, column = np.exp(log_goal[held] - top), np.exp(log_column[held] - top)
        log_plan = logs(a)[:, None] + logs(b) + (f[:, None] + g - C) / epsilon - top
        unsure = delta + spread[:, None]  # and log_plan itself is so far off
        off = np.exp(np.minimum(log_plan + unsure, 50.0)) * np.expm1(np.minimum(unsure, 50.0))
        error = float(np.abs(column - goal).sum() / goal.sum())
        rounding = float(off[a > 0][:, held].sum() / goal.sum()) + 1e-12
        self.rounding = rounding
        reported, tol = model.report_.error, model.tol
        if rounding < 1:
            told = f"marginal error {error:.3g}, reported {reported:.3g}, rounding {rounding:.3g}"
            require(abs(error - reported) <= rounding, told)
        if self.status == "converged":
            require(reported <= tol * (1 + 1e-6) + 1e-13, f"converged at {reported:.3g}, tol {tol:g}")
        else:
            require(not model.converged_, "converged_ is not the status")

    def _match(self, points: Any, targets: Any) -> tuple[Floats, float]:
        """The costs that decide about weights, and how far they are off relative to themselves."""
        if self.problem.reading.match is None:
            dtype = np.result_type(points.dtype, targets.dtype)
            return self.costs.between(dense(points), dense(targets)), self.costs.relative(dtype)
        U, V = self.coordinates.of(points), self.coordinates.of(targets)
        double = np.dtype(np.float64)
        return 0.5 * reference_pool.squares_between(U, V), COST[double] * EPS[double] / 2

    def _delta(self, model: Any, C: Floats, relative: float) -> Floats:
        largest = C.max() + np.abs(model.f_).max() + np.abs(model.g_).max()
        return (relative * C + 8 * EPS[np.dtype(np.float64)] * largest) / model.epsilon_ + 1e-14

    # -- moves -------------------------------------------------------------------------------------------------

    def _forth(self, model: Any, odd: bool) -> None:
        """Where fitted and other samples move."""
        problem, pool = self.problem, self.problem.reading.pool
        weights, found = self._weights(model, problem.X, forth=True), None
        if pool is not None:
            found = Neighbourhoods(model, self.coordinates, True, weights)
            if not found.nearest and reference_pool.neighbourhoods(pool, model.a_) is None:
                model.displacement(problem.X)
                require(False, "labels without mass are not refused")
        W = None if found is None else found.of_fitted()
        self._moves(model, problem.X, weights, weights, W, odd)
        if self.coordinates.is_pair:
            self._refuse(problem.new, model.displacement, model.weights, model.inverse_transform)
            return
        other = self._weights(model, problem.new, forth=True)
        W = None if found is None else found.of_points(problem.new, other)
        self._moves(model, problem.new, weights, other, W, not odd)

    def _weights(self, model: Any, points: Any, forth: bool) -> Floats:
        """Weights and potentials of points, checked."""
        if forth:
            targets, g, b = self.problem.Y, model.g_, model.b_
            weights, potential = ask(model.weights, points)[0], ask(model.potential, points)[0]
        else:
            targets, g, b, potential = self.problem.X, model.f_, model.a_, None
            weights = ask(_weights_back, model, points)[0]
        finite(weights, "weights")
        close(weights.sum(axis=1), 1.0, 1e-12, "sums of weights")
        C, relative = self._match(points, targets)
        delta = self._delta(model, C, relative)
        p, wanted = reference.gibbs(C, g, b, model.epsilon_)
        spread = spread_of(p, delta)
        damping = 1.0 if model.reach_ is None else model.reach_ / (model.reach_ + model.epsilon_)
        if potential is not None:
            close(potential, damping * wanted, model.epsilon_ * spread + 1e-300, "potential")
        off = delta + spread[:, None]
        close(weights, p, np.where(off < 1, p * np.expm1(np.minimum(off, 1.0)) + 1e-290, np.inf), "weights")
        return np.asarray(weights)

    def _moves(
        self, model: Any, points: Any, fitted: Floats, weights: Floats, W: Floats | None, there: bool
    ) -> None:
        """Where points with these weights of targets and of fitted samples move, or by how much."""
        x, thawed = dense(points), ~self.frozen
        dtype = np.result_type(points.dtype if W is None else self.problem.X.dtype, self.problem.Y.dtype)
        field = Field(x * thawed, self.Y * thawed, weights, np.zeros_like(weights))
        if W is not None:
            field = Field(self.X * thawed, self.Y * thawed, fitted, np.zeros_like(fitted), W)
        if there:
            moved, _ = ask(model.transform, points)
            same = moved.dtype == points.dtype and sp.issparse(moved) == sp.issparse(points)
            require(same, "transform changes the container")
            self.moves.compare("transform", points, x, field, dense(moved) - x, dtype)
        else:
            moved, _ = ask(model.displacement, points)
            require(moved.data.all(), "zeros stored in a displacement")
            self.moves.compare("displacement", points, x, field, dense(moved), dtype)

    def _back(self, model: Any, odd: bool) -> None:
        problem, pool, thawed = self.problem, self.problem.reading.pool, ~self.frozen
        points = problem.Y if self.coordinates.is_pair or (pool is not None and odd) else problem.back
        y, X = dense(points), self.X * thawed
        dtype = np.result_type(points.dtype, problem.X.dtype)
        if pool is not None and not isinstance(pool, int | str | np.integer):
            self._refuse(points, model.inverse_transform)
            return
        C, relative = self._match(points, problem.X)
        delta = self._delta(model, C, relative)
        p, _ = reference.gibbs(C, model.f_, model.a_, model.epsilon_)
        off = p * np.expm1(np.minimum(delta + spread_of(p, delta)[:, None], 50.0))
        field = Field(y * thawed, X, p, off)
        if pool is not None:
            fitted = self._weights(model, problem.Y, forth=False)
            found = Neighbourhoods(model, self.coordinates, False, fitted)
            W = found.of_fitted()
            if points is not problem.Y:
                W = found.of_points(points, self._weights(model, points, forth=False))
            field = Field(self.Y * thawed, X, fitted, np.zeros_like(fitted), W)
            dtype = self.dtype
        there = dense(ask(model.inverse_transform, points)[0])
        self.moves.compare("inverse_transform", points, y, field, there - y, dtype)

    def _refuse(self, points: Any, *methods: Any) -> None:
        """Each of the methods refuses these points, unless they are the fitted ones but for frozen features."""
        thawed = ~self.frozen
        fitted = any(np.array_equal(dense(points) * thawed, side * thawed) for side in (self.X, self.Y))
        for method in () if fitted and self.coordinates.is_pair else methods:
            try:
                ask(method, points)
            except InputError:
                continue
            require(False, f"{method.__name__} is not refused")


def _weights_back(model: Any, points: Any) -> Floats:
    with Workers(1) as workers:
        return np.asarray(model._back.weights(model._check_new(points), workers, model._budget()))
