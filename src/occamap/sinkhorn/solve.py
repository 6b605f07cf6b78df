"""The Sinkhorn loop, one for all: the schedule of ε is data, unbalanced is a damping, costs are an operator."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

import occamap.sinkhorn.passes as passes
from occamap._workers import Workers
from occamap.sinkhorn.anderson import Anderson
from occamap.sinkhorn.operator import Costs
from occamap.sinkhorn.solution import Solution, Status

Floats = NDArray[np.float64]

NEVER = -1e300  # stands for log 0: finite, so that differences stay numbers
COARSE = 0.05  # the marginal error at which a step of the ε schedule is left


def solve(
    costs: Costs,
    a: Floats,
    b: Floats,
    epsilons: list[float],
    *,
    reach: float | None = None,
    tol: float = 1e-4,
    max_iter: int = 2000,
    start: Floats | None = None,
    workers: Workers,
    accelerate: bool = True,
    progress: Callable[[int, float], None] | None = None,
) -> Solution:
    """Potentials for the last of `epsilons`, the others being steps on the way to it.

    Stops when Σ_j |(Pᵀ1)_j − b_j|, rows being exact, is at most tol (unbalanced: against the relaxed marginal,
    relative to its mass). `start` is a potential of the targets to start from.
    """
    sweep = _Sweep(costs, a, b, reach, workers)
    g = sweep.centred(np.zeros(b.size) if start is None else np.array(start, dtype=np.float64))
    errors: list[float] = []
    status, chosen = Status.MAX_ITER, g
    for step, epsilon in enumerate(epsilons):
        last = step == len(epsilons) - 1
        goal = tol if last else max(tol, COARSE)
        anderson, safe, best, least, stale = Anderson(b), g, np.inf, np.inf, 0
        chosen = g
        sweep.start(epsilon)
        while len(errors) < max_iter:
            error, image = sweep(g)
            errors.append(error)
            if progress is not None:
                progress(len(errors), error)
            stale += 1
            if error < least:
                least, chosen, stale = error, g, 0
            if error <= goal:
                status = Status.CONVERGED if last else status
                break
            if error < best:
                best, safe = error, image
            if stale > 400 and least < 1e-8:
                status = Status.STALLED
                break
            if not accelerate:
                g = image
            elif error > 3 * best:  # the extrapolation went astray: back to the best plain step
                anderson.clear()
                g, best = safe, np.inf
            else:
                g = epsilon * anderson.step(g / epsilon, image / epsilon)
        g = chosen
    f, g, error = sweep.finish(chosen)
    if status is Status.CONVERGED and error > (1 + 1e-6) * tol:  # the same potentials, rounded otherwise
        status = Status.STALLED
    return Solution(f, g, epsilons[-1], status, error, tuple(errors), sweep.effective_targets(f, g))


class _Sweep:
    """One pass over the costs: f from g, the column sums of the plan of (f, g), and the next g."""

    def __init__(self, costs: Costs, a: Floats, b: Floats, reach: float | None, workers: Workers) -> None:
        self.costs, self.a, self.b, self.reach, self.workers = costs, a, b, reach, workers
        self.log_a, self.log_b = log_weights(a), log_weights(b)
        self.f = np.zeros(a.size)

    def start(self, epsilon: float) -> None:
        self.epsilon = epsilon
        self.damping = 1.0 if self.reach is None else self.reach / (self.reach + epsilon)
        self.shift = 0.0

    def __call__(self, g: Floats) -> tuple[float, Floats]:
        """The marginal error of (f(g), g) and the image of g."""
        column, potentials, shift = np.zeros(self.b.size), [], -np.inf
        shared = g, self.log_b, self.epsilon, self.damping, self.shift
        for f, part, most in self.costs.over(passes.sweep, self.workers, (self.a, self.f), *shared):
            column += part
            potentials.append(f)
            shift = max(shift, most)
        self.f = np.concatenate(potentials)
        with np.errstate(divide="ignore", over="ignore"):
            log_column = np.log(column) + self.shift
        lost = (self.b > 0) & ~np.isfinite(log_column)
        if lost.any():  # these columns under- or overflowed: their sums are taken in the log domain
            log_column[lost] = self.log_b[lost] + (g[lost] - self._softmin(np.flatnonzero(lost))) / self.epsilon
        held = self.b > 0
        image = g.copy()
        image[held] = self.damping * (g[held] + self.epsilon * (self.log_b[held] - log_column[held]))
        self.shift = 0.0 if self.reach is None else shift
        return self._error(g, log_column, held), self.centred(image)

    def centred(self, g: Floats) -> Floats:
        """g of balanced transport without the constant that is free: extrapolated, it would grow, and cost digits."""
        return g if self.reach is not None else g - float(np.sum(self.b * g))

    def _error(self, g: Floats, log_column: Floats, held: NDArray[np.bool_]) -> float:
        log_goal = self.log_b[held] if self.reach is None else self.log_b[held] - g[held] / self.reach
        top = max(float(log_goal.max()), float(log_column[held].max()))
        goal, reached = np.exp(log_goal - top), np.exp(log_column[held] - top)
        with np.errstate(divide="ignore", over="ignore"):
            return float(np.abs(reached - goal).sum() / goal.sum())

    def _softmin(self, columns: NDArray[np.int64]) -> Floats:
        """−ε log Σ_i a_i exp((f_i − C_ij)/ε) for these columns."""
        rows = self.f, self.log_a
        found = list(self.costs.over(passes.column_softmins, self.workers, rows, self.epsilon, columns))
        tops, totals = (np.stack(part) for part in zip(*found, strict=True))
        top = tops.max(axis=0)
        return np.asarray(-self.epsilon * (top + np.log(np.sum(totals * np.exp(tops - top), axis=0))))

    def finish(self, g: Floats) -> tuple[Floats, Floats, float]:
        """f, the soft minimum of g; g, extended to targets without mass; their marginal error.

        Balanced potentials are shifted so that ⟨a, f⟩ = ⟨b, g⟩.
        """
        error, _ = self(g)
        empty = np.flatnonzero(self.b == 0)
        if empty.size:
            g = g.copy()
            g[empty] = self.damping * self._softmin(empty)
        f = self.f.copy()
        if self.reach is None:
            half = 0.5 * float(self.a @ f - self.b @ g)
            f, g = f - half, g + half
        return f, g, error

    def effective_targets(self, f: Floats, g: Floats) -> float:
        """Σ_i a_i exp(entropy of the Gibbs weights of x_i)."""
        rows, shared = (self.a, f / self.damping), (g, self.log_b, self.epsilon)
        return float(sum(self.costs.over(passes.effective_targets, self.workers, rows, *shared)))


def log_weights(weights: Floats) -> Floats:
    """log of the weights, with a finite stand-in for log 0."""
    return np.log(weights, out=np.full_like(weights, NEVER), where=weights > 0)
