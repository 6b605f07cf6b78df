"""The default grid of γ, found from the data: the range in which the density of displacements changes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import norm

from occamap._memory import Budget
from occamap._validate import Samples
from occamap._workers import Workers
from occamap.costs import L1
from occamap.errors import InputError
from occamap.maps.problem import Floats, Problem
from occamap.maps.side import Side
from occamap.sinkhorn import CostFamily, Solver, cost_family

NOTICEABLE = 0.01
MOVE = 12.0  # bytes of an entry of a displacement
STRIDE = 4.0
FARTHEST = 1e8  # times the scale of the data: no γ beyond is looked at
LARGEST = 1e90  # so that FARTHEST times it is a γ that costs take
SOURCES, TARGETS = 128, 1024  # of the samples, evenly spaced: a range needs no more
SPARE = 4  # a plan gives m / n targets to a source at least: so many times fewer than are asked for

GRID = (
    "from the γ, within a factor of two, that changes the displacements of γ = 0 by 1 % (in root mean square) to "
    "the first, in steps of four, from which another step lowers their density by less than 1 % of that at γ = 0"
)


def default_gammas(
    family: CostFamily, problem: Problem, solvers: Sequence[Solver], ties: int, count: int, workers: Workers
) -> Floats:
    """`count` γ, evenly spaced in their logarithm, that cover the range of each solver; GRID says which that is."""
    sources, targets = _sizes(family.shape[1], solvers)
    by_targets = any(solver.rule.scale == "perplexity" for solver in solvers)
    columns = np.arange(targets) if by_targets else evenly(problem.b, targets)
    rows = evenly(problem.a, sources)
    some, few = family.restricted(rows, columns), problem.restricted(rows, columns)
    scale = _scale(some, workers)
    ranges = [_range(_Probe(some, few, solver, ties, workers), scale) for solver in solvers]
    low, high = min(low for low, _ in ranges), max(high for _, high in ranges)
    return np.geomspace(low, high, count)


def grid_bytes(source: Samples, target: Samples, solvers: Sequence[Solver]) -> float:
    """What is needed to look for a range of γ: some of the samples, their costs, and their moves at two γ."""
    (n, d), m = source.shape, target.shape[0]
    sources, targets = _sizes(m, solvers)
    sources, targets = min(n, sources), min(m, targets)
    some = source.__sizeof__() * sources / n + target.__sizeof__() * targets / m
    return 2 * some + 3 * 8.0 * sources * targets + 3 * MOVE * sources * d


def _sizes(m: int, solvers: Sequence[Solver]) -> tuple[int, int]:
    """At most so many sources and targets are enough to find the range with."""
    wanted = [solver.rule.value for solver in solvers if solver.rule.scale == "perplexity"]
    if not wanted:
        return SOURCES, TARGETS
    # so many effective targets mean something among all of them only
    return max(SOURCES, math.ceil(SPARE * m / max(1.0, min(wanted)))), m


def evenly(masses: Floats, at_most: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Indices of at most so many of the samples that have mass, evenly spaced."""
    held = np.flatnonzero(masses)
    return held[np.linspace(0, held.size - 1, min(held.size, at_most)).round().astype(np.int64)]


class _Probe:
    """What displacements are like at any γ, each computed once."""

    def __init__(self, family: CostFamily, problem: Problem, solver: Solver, ties: int, workers: Workers) -> None:
        self.family, self.problem, self.ties, self.workers = family, problem, ties, workers
        self.solver = replace(solver, tol=max(solver.tol, 1e-3))
        self._none = self._moves(0.0)
        self._known: dict[float, tuple[float, float]] = {0.0: (self._density(self._none), 0.0)}

    def density(self, gamma: float) -> float:
        return self._at(gamma)[0]

    def change(self, gamma: float) -> float:
        """‖Δ(γ) − Δ(0)‖ / ‖Δ(0)‖."""
        return self._at(gamma)[1]

    def _at(self, gamma: float) -> tuple[float, float]:
        if gamma not in self._known:
            moves = self._moves(gamma)
            self._known[gamma] = self._density(moves), float(norm(moves - self._none) / norm(self._none))
        return self._known[gamma]

    def _density(self, moves: sp.csr_array) -> float:
        return float(moves.nnz) / (moves.shape[0] * moves.shape[1])

    def _moves(self, gamma: float) -> sp.csr_array:
        problem, cost = self.problem, self.family.cost._with_gamma(gamma)
        costs = self.family.at(gamma, self.workers)
        solution = self.solver(costs, problem.a, problem.b, self.workers)
        side = Side(cost, problem.target, problem.b, solution.g, solution.epsilon)
        given = self.ties, 0.0, self.workers, self.family.budget.keeping(0)
        found = side.displace(problem.source, lambda _, moves: moves, *given, costs=costs)
        problem.target.release()
        return found


def _range(probe: _Probe, scale: float) -> tuple[float, float]:
    full = probe.density(0.0)
    if full == 0 or not 0 < scale < math.inf:
        raise InputError("gammas must be given: no feature moves even at γ = 0, so there is no range to find")
    low = scale
    while probe.change(low) > NOTICEABLE and low > scale / FARTHEST:
        low /= STRIDE
    if probe.change(2 * low) <= NOTICEABLE:
        low *= 2
    high = max(scale, low)
    while probe.density(high) - probe.density(high * STRIDE) > NOTICEABLE * full and high < scale * FARTHEST:
        high *= STRIDE
    return low, max(high, STRIDE * low)


def _scale(family: CostFamily, workers: Workers) -> float:
    """The γ at which the penalty weighs as much as ½‖z‖² on average; that of ℓ1 where it is not linear in γ."""
    if family.parts is None or family.gammas is not None:
        family = cost_family(L1(1.0), family.X, family.Y, None, Budget(None), workers)
    half, penalty = family.parts or (np.zeros(1), np.zeros(1))
    if penalty.mean() == 0:
        raise InputError("gammas must be given: the penalty is 0 between all samples, so there is no range to find")
    scale = float(half.mean() / penalty.mean())
    if scale > LARGEST:
        raise InputError(f"gammas must be given for data of this magnitude, or X and Y rescaled; γ begins at {scale:g}")
    return scale
