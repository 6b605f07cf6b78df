"""One generated problem: what the package makes of it, next to the reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

import occamap as oc
from occamap.errors import OccamapError
from soak import reference
from soak.generate import Problem
from soak.problems_bounds import (
    COST,
    EPS,
    GROUPS,
    LATENT,
    LATENT_MOVE,
    MOVE,
    WORST,
    Floats,
    ask,
    close,
    dense,
    finite,
    logs,
    require,
    spread_of,
)
from soak.problems_epsilon import check_epsilon


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
        self.problem, self.penalty = problem, problem.penalty
        self.status: str | None = None
        self.rounding = 0.0
        self.X, self.Y = dense(problem.X), dense(problem.Y)
        self.dtype = np.result_type(problem.X.dtype, problem.Y.dtype)
        self.latent = problem.kind == "GroupLasso overlap" and self.penalty.grouped(self.X.shape[1]).overlap
        self.frozen = self.penalty.frozen(self.X.shape[1])

    def run(self) -> str:
        problem = self.problem
        self._pairwise()
        if problem.vectors:
            self._vectors()
        model = oc.MongeMap(problem.cost, n_jobs=1, **problem.options)
        _, warned = ask(model.fit, problem.X, problem.Y, problem.a, problem.b)
        self.status = str(model.report_.status)
        require(warned == (self.status != "converged"), f"status {self.status}, warned: {warned}")
        self._fit(model)
        odd = problem.X.shape[0] % 2 == 1
        self._moves(model, problem.X, odd)
        self._moves(model, problem.new, not odd)
        self._back(model, problem.back)
        return "right" if self.status == "converged" else "right, not converged"

    # -- costs -------------------------------------------------------------------------------------------------

    def _relative(self, *dtypes: Any) -> float:
        dtype = np.result_type(*dtypes)
        groups = GROUPS if self.penalty.name == "GroupLasso" else 0.0
        return COST[dtype] * EPS[dtype] / 2 + groups + (4 * LATENT if self.latent else 0.0)

    def _pairwise(self) -> None:
        got, _ = ask(self.problem.cost.pairwise, self.problem.X, self.problem.Y, n_jobs=1)
        z = self.X[:, None, :] - self.Y[None, :, :]
        moved = (z[..., self.frozen] != 0).any(axis=-1)
        require(np.array_equal(np.isinf(got), moved), "pairwise is infinite elsewhere than frozen features differ")
        wanted = self._costs(self.X, self.Y)
        allowed = self._relative(self.dtype) * wanted
        if self.latent:  # what the reference has is a bound from above; there is one from below
            allowed = allowed + wanted - self._costs(self.X, self.Y, least=True)
        close(got[~moved], wanted[~moved], allowed[~moved], "pairwise")

    def _costs(self, X: Floats, Y: Floats, least: bool = False) -> Floats:
        thawed = ~self.frozen
        z = (X * thawed)[:, None, :] - (Y * thawed)[None, :, :]
        if least:
            return 0.5 * (z * z).sum(axis=-1) + self.penalty.grouped(X.shape[1]).bounds(z)[0]
        return self.penalty.value(z)

    def _vectors(self) -> None:
        """value, grad and prox of the first rows."""
        rows = self.problem.X[: min(3, self.X.shape[0])]
        z, cost, unit = self.X[:3], self.problem.cost, EPS[self.problem.X.dtype]
        if (z[:, self.frozen] != 0).any():
            return
        value, grad, prox = (dense(ask(method, rows)[0]) for method in (cost.value, cost.grad, cost.prox))
        wanted = self.penalty.value(z)
        close(value, wanted, self._relative(np.float64) * wanted + (1e-3 * wanted if self.latent else 0.0), "value")
        wanted = self.penalty.gradient(z)
        separable = self.penalty.name in ("SqL2", "L1", "STVS")
        size = np.abs(wanted) if separable else np.abs(wanted).max(axis=1, keepdims=True)
        if self.penalty.name == "Subspace":  # the part out of the span is a difference, times 1 + γ
            size = (1 + self.penalty.gamma) * np.abs(z).max(axis=1, keepdims=True)
        close(grad, wanted, (MOVE * unit + LATENT_MOVE * self.latent) * size + 1e-44, "grad")
        wanted, size = self.penalty.prox(z), np.abs(z)
        if not separable:
            size = size.max(axis=1, keepdims=True)
        close(prox, wanted, (MOVE * unit + LATENT_MOVE * self.latent) * size + 1e-44, "prox")

    # -- the fit -----------------------------------------------------------------------------------------------

    def _fit(self, model: Any) -> None:
        a, b, f, g, epsilon, reach = model.a_, model.b_, model.f_, model.g_, model.epsilon_, model.reach_
        for values, name in ((f, "f_"), (g, "g_"), ([epsilon, model.report_.error, model.report_.mass], "report_")):
            finite(values, name)
        C = self._costs(self.X, self.Y)
        delta = self._delta(model, C, self.dtype)
        check_epsilon(model, C, 2 * self._relative(self.dtype) + 2e-12, delta)
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

    def _delta(self, model: Any, C: Floats, dtype: Any) -> Floats:
        largest = C.max() + np.abs(model.f_).max() + np.abs(model.g_).max()
        return (self._relative(dtype) * C + 8 * EPS[np.dtype(np.float64)] * largest) / model.epsilon_ + 1e-14

    # -- moves -------------------------------------------------------------------------------------------------

    def _moves(self, model: Any, points: Any, there: bool) -> None:
        """Weights and potentials of points, and where they move, or by how much."""
        x, dtype = dense(points), np.result_type(points.dtype, self.problem.Y.dtype)
        weights, potential = ask(model.weights, points)[0], ask(model.potential, points)[0]
        finite(weights, "weights")
        close(weights.sum(axis=1), 1.0, 1e-12, "sums of weights")
        C = self._costs(x, self.Y)
        delta = self._delta(model, C, dtype)
        p, wanted = reference.gibbs(C, model.g_, model.b_, model.epsilon_)
        spread = spread_of(p, delta)
        damping = 1.0 if model.reach_ is None else model.reach_ / (model.reach_ + model.epsilon_)
        close(potential, damping * wanted, model.epsilon_ * spread + 1e-300, "potential")
        off = delta + spread[:, None]
        close(weights, p, np.where(off < 1, p * np.expm1(np.minimum(off, 1.0)) + 1e-290, np.inf), "weights")
        exact = np.zeros_like(weights)
        if there:
            moved, _ = ask(model.transform, points)
            same = moved.dtype == points.dtype and sp.issparse(moved) == sp.issparse(points)
            require(same, "transform changes the container")
            self._compare(model, "transform", points, self.Y, weights, exact, dense(moved) - x, dtype)
        else:
            moved, _ = ask(model.displacement, points)
            require(moved.data.all(), "zeros stored in a displacement")
            self._compare(model, "displacement", points, self.Y, weights, exact, dense(moved), dtype)

    def _back(self, model: Any, points: Any) -> None:
        y, dtype = dense(points), np.result_type(points.dtype, self.problem.X.dtype)
        C = self._costs(y, self.X)
        delta = self._delta(model, C, dtype)
        p, _ = reference.gibbs(C, model.f_, model.a_, model.epsilon_)
        off = p * np.expm1(np.minimum(delta + spread_of(p, delta)[:, None], 50.0))
        there = dense(ask(model.inverse_transform, points)[0])
        self._compare(model, "inverse_transform", points, self.X, p, off, there - y, dtype)

    def _compare(
        self, model: Any, what: str, points: Any, Y: Floats, p: Floats, off: Floats, got: Floats, dtype: Any
    ) -> None:
        """Moves by the reference from these weights, which may be `off` by so much."""
        x, given = dense(points), points.dtype
        finite(got, what)
        thawed = ~self.frozen
        at, targets = x * thawed, Y * thawed
        given_to = self.penalty, at, targets, p, model.ties == "occam", model.relax
        wanted, margin = reference.displacement(*given_to)
        if self.penalty.name == "L1":  # a mass that rounding cannot tell from 0, times γ, may decide about a feature
            without, low = reference.displacement(*given_to, least=MOVE * EPS[dtype])
            wanted = np.clip(got, np.minimum(wanted, without), np.maximum(wanted, without))
            margin = np.maximum(margin, low)
        size = np.abs(at) + np.abs(targets).max(axis=0)
        strength = self._strength(size)
        relative = MOVE * EPS[dtype] + (GROUPS if self.penalty.name == "GroupLasso" else 0.0)
        fitted = max(np.abs(self.X).max(), np.abs(self.Y).max())
        largest = max(np.abs(x).max(), fitted) if fitted > 0 else np.inf
        rounding = np.minimum(relative * (size + strength), WORST * largest)
        allowed = rounding + LATENT_MOVE * self.latent * (size + strength)
        if self.latent:  # a prox brings no two fields further apart
            slack = self.penalty.grouped(at.shape[1]).open(at[:, None] - targets, LATENT)
            allowed = allowed + np.linalg.norm(np.einsum("ij,ijt->it", p, slack), axis=1)[:, None]
        allowed = allowed + (np.minimum(off.sum(axis=1), 1.0))[:, None] * 3 * (size + strength)
        shown = allowed + 2 * EPS[given] * (np.abs(wanted) + (what != "displacement") * np.abs(x)) + 1e-44
        if model.debias:  # it keeps some moves as they are, and leaves out the others
            wanted = np.where(got == 0, 0.0, wanted)
        elif what == "displacement":
            clear = (margin < -allowed) & (got != 0)
            require(not clear.any(), f"{what} moves a feature below its threshold")
        close(got, wanted, shown, what)

    def _strength(self, size: Floats) -> Floats:
        penalty, d = self.penalty, size.shape[1]
        if penalty.name in ("SqL2", "L1"):
            return np.where(np.isinf(penalty.strengths(d)), 0.0, penalty.strengths(d))
        if penalty.name == "STVS":
            return np.full_like(size, penalty.gamma)
        largest = size.max(axis=1, keepdims=True)
        if penalty.name == "KOverlap":
            return 8 * (1 + penalty.gamma) * largest if penalty.squared else largest + penalty.gamma
        if penalty.name == "GroupLasso":
            return largest + penalty.gamma + max((r for _, r in penalty.grouped(d).members), default=0.0)
        return 0 * size
