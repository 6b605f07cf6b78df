"""One split of the evaluation: every cell of the grid, fitted on the train part and scored on the test part."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from occamap._validate import Samples, check_samples
from occamap._workers import Workers
from occamap.errors import InputError
from occamap.maps.matching import Coordinates
from occamap.maps.neighbourhoods import JointPool, JointSpace
from occamap.maps.pooling import PooledSide
from occamap.maps.problem import Problem
from occamap.maps.side import Side
from occamap.selection.continuation import Continuation
from occamap.selection.plan import Chain, Plan, Pool
from occamap.selection.scoring import Baselines, Scorer
from occamap.selection.splits import Split
from occamap.sinkhorn import CostBlocks, CostFamily, Status
from occamap.sinkhorn.solution import describe

Tick = Callable[[int], None]

SCORE_FAILED, NO_EPSILON = "score not converged", "no epsilon"


@dataclass(frozen=True)
class Candidate:
    """One cell in one split: how held-out source samples move (None: the rule led to no ε), and how that came about.

    Seconds to fit are those of the solve, which the readings of a map share.
    """

    moves: sp.csr_array | None
    epsilon: float
    effective_targets: float
    status: str
    message: str
    fit_seconds: float
    map_seconds: float


@dataclass(frozen=True)
class Score:
    """Of one cell in one split."""

    divergence: float
    density: float
    effective_targets: float
    status: str
    message: str
    fit_seconds: float
    map_seconds: float
    score_seconds: float


@dataclass(frozen=True)
class SplitScores:
    """Of one split: a score a cell, and the baselines."""

    scores: tuple[Score, ...]
    baselines: Baselines
    n_targets: int


def evaluate_split(plan: Plan, split: Split, threads: int, tick: Tick | None = None) -> SplitScores:
    """Fit every cell on the train part, map and score the test part.

    tick(1) is called after each cell and tick(0) in between, often: it may raise to stop the evaluation.
    """
    tell = tick or (lambda done: None)
    with Workers(threads) as workers:
        candidates = Candidates(plan, split, workers, tell)
        train, test = candidates.train, candidates.test
        scorer = Scorer(plan.projection, train, test, plan.seed, plan.budget, workers)
        scores = []
        for candidate in candidates:
            scores.append(_score(candidate, test, scorer))
            tell(1)
        return SplitScores(tuple(scores), scorer.baselines(), train.target.shape[0])


def _score(candidate: Candidate, test: Problem, scorer: Scorer) -> Score:
    begun, status, message = time.perf_counter(), candidate.status, candidate.message
    divergence, density = np.nan, np.nan
    if candidate.moves is not None:
        found = scorer(moved(test.source, candidate.moves))
        held = np.flatnonzero(test.a)
        divergence = found.value
        density = candidate.moves[held].nnz / (held.size * test.source.shape[1])
        if found.trouble and not message:
            status, message = SCORE_FAILED, found.trouble
    seconds = candidate.fit_seconds, candidate.map_seconds, time.perf_counter() - begun
    return Score(divergence, density, candidate.effective_targets, status, message, *seconds)


class Candidates:
    """Every cell of the grid, in its order: fitted on the train part of a split, moving its test part."""

    def __init__(self, plan: Plan, split: Split, workers: Workers, tick: Tick) -> None:
        self.plan, self.split, self.workers, self.tick = plan, split, workers, tick
        self.train = plan.problem.restricted(split.source_train, split.target_train)
        self.test = plan.problem.restricted(split.source_test, split.target_test)
        self._cut: tuple[int, CostFamily, CostFamily] | None = None
        self._coordinates: Coordinates | None = None

    def __iter__(self) -> Iterator[Candidate]:
        for chain in self.plan.chains():
            yield from self.chain(chain)

    def chain(self, chain: Chain) -> Iterator[Candidate]:
        """Those of some γ, each solve started from those before it."""
        within, across = self._costs(chain.family)
        solver, behind = self.plan.solvers[chain.solver], Continuation()
        for gamma in chain.gammas:
            begun = time.perf_counter()
            costs = within.at(gamma, self.workers)
            try:
                solution = solver(
                    costs, self.train.a, self.train.b, self.workers, behind.near(gamma), lambda *_: self.tick(0)
                )
            except InputError as error:  # the rule leads to no ε here: no reason to lose the other cells
                for _ in self.plan.readings():
                    yield Candidate(None, np.nan, np.nan, NO_EPSILON, str(error), 0.0, 0.0)
                continue
            behind.add(gamma, solution)
            seconds = (time.perf_counter() - begun) / len(self.plan.readings())
            cost = within.cost._with_gamma(gamma)
            side = Side(cost, self.train.target, self.train.b, solution.g, solution.epsilon)
            outcome = str(solution.status), ""
            if solution.status is not Status.CONVERGED:
                outcome = outcome[0], describe(solution.status, solution.error, solver.tol, solver.max_iter)
            sides: dict[Pool, Side] = {None: side}
            if self.plan.pools != (None,):
                sides = self._pooled(side, costs)
            del costs  # what is left is to move and to score
            yield from self._readings(sides, across.at(gamma, self.workers), outcome, seconds)
            del sides
            if self.plan.budget.limit is not None:
                self.train.target.release()  # else it takes room beside the next costs

    def _costs(self, number: int) -> tuple[CostFamily, CostFamily]:
        """Of a family: within the train samples, and from the test samples to them; the last is remembered."""
        if self._cut is None or self._cut[0] != number:
            self._cut = None  # else there are two of them
            family, split = self.plan.families[number], self.split
            within = family.restricted(split.source_train, split.target_train)
            self._cut = number, within, family.restricted(split.source_test, split.target_train)
        return self._cut[1:]

    def _pooled(self, side: Side, costs: CostBlocks) -> dict[Pool, Side]:
        """The side as each pool reads it; `costs` are those of the train samples."""
        source, target = self.train.source.without(side.frozen), side.anchors
        space = JointSpace(source, target)
        if not side.frozen.any():  # components are the same at every γ
            space.learned = self._coordinates
        if space.learned is None:
            space.coordinates(source, self.workers)
            self._coordinates = space.learned
        pools = {pool: JointPool(space, True, pool, self.train.a) for pool in self.plan.pools if pool is not None}
        sides = {pool: PooledSide(side, self.train.source, joint, costs) for pool, joint in pools.items()}
        return {pool: side if pool is None else sides[pool] for pool in self.plan.pools}

    def _readings(
        self, sides: dict[Pool, Side], costs: CostBlocks, outcome: tuple[str, str], fit_seconds: float
    ) -> Iterator[Candidate]:
        """The maps of one solve, which ended with this status and message, in every reading."""
        side = next(iter(sides.values()))
        targets = float(self.test.a @ side.effective_targets(costs, self.workers))
        source, budget = side.holding(self.test.source), self.plan.budget
        for ties, relax, pool in self.plan.readings():
            begun, side = time.perf_counter(), sides[pool]
            moves = side.displace(source, lambda _, rows: rows, ties, relax, self.workers, budget, costs=costs)
            moves = moves.astype(self.test.source.dtype, copy=False)
            moves.eliminate_zeros()
            seconds = time.perf_counter() - begun
            yield Candidate(moves, side.epsilon, targets, *outcome, fit_seconds, seconds)


def moved(source: Samples, moves: sp.csr_array) -> Samples:
    """x + Δ, dense where x is."""
    if source.is_sparse:
        return check_samples(sp.csr_array(source.csr() + moves), "moved samples")
    return check_samples(source.data + moves.toarray(), "moved samples")
