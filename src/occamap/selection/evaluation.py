"""One split of the evaluation: every cell of the grid, fitted on the train part and scored on the test part."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import scipy.sparse as sp

from occamap._memory import Budget
from occamap._validate import Samples, check_samples
from occamap._workers import Workers
from occamap.errors import InputError
from occamap.maps.side import Side
from occamap.selection.continuation import Continuation
from occamap.selection.plan import Plan
from occamap.selection.scoring import Baselines, Scorer
from occamap.selection.splits import Split
from occamap.sinkhorn import CostBlocks, CostFamily, Status
from occamap.sinkhorn.solution import describe

Tick = Callable[[int], None]

SCORE_FAILED, NO_EPSILON = "score not converged", "no epsilon"


@dataclass(frozen=True)
class Score:
    """Of one cell in one split; seconds to fit are those of the solve, which the readings of a map share."""

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
    with Workers(threads) as workers:
        return _Evaluation(plan, split, workers, tick or (lambda done: None)).run()


class _Evaluation:
    def __init__(self, plan: Plan, split: Split, workers: Workers, tick: Tick) -> None:
        self.plan, self.split, self.workers, self.tick = plan, split, workers, tick
        self.train = plan.problem.restricted(split.source_train, split.target_train)
        self.test = plan.problem.restricted(split.source_test, split.target_test)
        self.scorer = Scorer(plan.projection, self.train, self.test, plan.seed, plan.max_memory, workers)
        self.held = np.flatnonzero(self.test.a)

    def run(self) -> SplitScores:
        scores = [
            score
            for family, gammas in zip(self.plan.families, self.plan.gammas, strict=True)
            for score in self._family(family, gammas)
        ]
        return SplitScores(tuple(scores), self.scorer.baselines(), self.train.target.shape[0])

    def _family(self, family: CostFamily, gammas: Sequence[float]) -> Iterator[Score]:
        within = family.restricted(self.split.source_train, self.split.target_train)
        across = family.restricted(self.split.source_test, self.split.target_train)
        for solver in self.plan.solvers:
            behind = Continuation()
            for gamma in gammas:
                begun = time.perf_counter()
                costs = within.at(gamma, self.workers)
                try:
                    solution = solver(
                        costs, self.train.a, self.train.b, self.workers, behind.near(gamma), lambda *_: self.tick(0)
                    )
                except InputError as error:  # the rule leads to no ε here: no reason to lose the other cells
                    yield from self._failed(str(error))
                    continue
                behind.add(gamma, solution)
                seconds = (time.perf_counter() - begun) / (len(self.plan.ties) * len(self.plan.relaxes))
                cost = family.cost._with_gamma(gamma)
                side = Side(cost, self.train.target, self.train.b, solution.g, solution.epsilon)
                outcome = str(solution.status), ""
                if solution.status is not Status.CONVERGED:
                    outcome = outcome[0], describe(solution.status, solution.error, solver.tol, solver.max_iter)
                yield from self._readings(side, across.at(gamma, self.workers), outcome, seconds)

    def _failed(self, message: str) -> Iterator[Score]:
        """A γ at which the rule leads to no ε, in all readings."""
        for _ in product(self.plan.ties, self.plan.relaxes):
            yield Score(np.nan, np.nan, np.nan, NO_EPSILON, message, 0.0, 0.0, 0.0)
            self.tick(1)

    def _readings(
        self, side: Side, costs: CostBlocks, outcome: tuple[str, str], fit_seconds: float
    ) -> Iterator[Score]:
        """The maps of one solve, which ended with this status and message: each rule for ties, each relaxation."""
        targets = float(self.test.a @ side.effective_targets(costs, self.workers))
        source = side.holding(self.test.source)
        for ties, relax in product(self.plan.ties, self.plan.relaxes):
            begun = time.perf_counter()
            moves = side.displace(
                source, lambda _, rows: rows, ties, relax, self.workers, Budget(self.plan.max_memory), costs=costs
            )
            moves = moves.astype(self.test.source.dtype)
            moves.eliminate_zeros()
            mapped = time.perf_counter()
            found = self.scorer(_moved(source, moves))
            scored = time.perf_counter()
            status, message = (SCORE_FAILED, found.trouble) if found.trouble and not outcome[1] else outcome
            yield Score(
                divergence=found.value,
                density=moves[self.held].nnz / (self.held.size * source.shape[1]),
                effective_targets=targets,
                status=status,
                message=message,
                fit_seconds=fit_seconds,
                map_seconds=mapped - begun,
                score_seconds=scored - mapped,
            )
            self.tick(1)


def _moved(source: Samples, moves: sp.csr_array) -> Samples:
    """x + Δ, dense where x is."""
    if source.is_sparse:
        return check_samples(sp.csr_array(source.csr() + moves), "moved samples")
    return check_samples(source.data + moves.toarray(), "moved samples")
