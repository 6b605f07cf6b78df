"""Maps fitted again on halves of the cells: costs of all pairs are computed once, and a half has a sub-matrix."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import clone

from occamap._kept import Kept, kept
from occamap._memory import Budget, available
from occamap._validate import check_samples
from occamap._workers import Workers, count_jobs
from occamap.errors import MemoryBudgetError, NotConvergedWarning
from occamap.genes.halves import Half, complementary_halves, strata_of
from occamap.maps import MongeMap
from occamap.maps.matching import learn_coordinates
from occamap.maps.monge_map import TIES
from occamap.maps.problem import Problem
from occamap.maps.side import move_bytes
from occamap.sinkhorn import StoredCost, cost_blocks
from occamap.sinkhorn.operator import working_bytes
from occamap.sinkhorn.places import SHARE, scratch_bytes

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Moves = tuple[sp.csr_array, str]  # and why the solver did not converge, if so
Refit = Callable[[Half], Moves]


def subsampled_means(
    like: MongeMap,
    X: Any,
    Y: Any,
    groups: Ints,
    subsamples: int,
    rng: np.random.Generator,
    tick: Callable[[int, int], None] | None = None,
    client: Any = None,
) -> Floats:
    """Mean displacement of each gene in each group of the cells X, from maps fitted on halves of X and Y.

    Subsamples × groups × genes, in the order of `complementary_halves`. `like` has the parameters of the maps. They are
    fitted side by side, a thread each, or one after the other: within a budget, or by the workers of a cluster.
    """
    strata, others = strata_of(like, 0, X.shape[0], groups), strata_of(like, 1, Y.shape[0])
    halves = complementary_halves(strata, others, subsamples, rng)
    return refitted_means(like, X, Y, groups, halves, tick, client)


def refitted_means(
    like: MongeMap,
    X: Any,
    Y: Any,
    groups: Ints,
    halves: Sequence[Half],
    tick: Callable[[int, int], None] | None = None,
    client: Any = None,
    share: bool = True,
) -> Floats:
    """The same for halves that are given; without `share` each computes its costs, as it does where memory is short."""
    n_groups = int(groups.max()) + 1
    like = _with_coordinates(like, X, Y)
    side_by_side = client is None and like.max_memory is None  # a budget is for one of them
    alone = clone(like).set_params(n_jobs=1) if side_by_side else like
    share = share and client is None and like.match is None  # a match on coordinates has costs of its own
    refit = _shared(alone, X, Y, like, side_by_side) if share else None

    def each(half: Half) -> Moves:
        source = X[half.rows]
        fitted = alone._restricted(*half).fit(source, Y[half.columns], client=client)
        return fitted.displacement(source, client), _trouble(fitted)

    def one(half: Half) -> tuple[Floats, str]:
        nonlocal refit
        found = None
        if refit is not None:
            try:
                found = refit(half)
            except MemoryBudgetError:
                refit = None  # the costs of all pairs are let go: there may be room for those of a half
        moves, trouble = each(half) if found is None else found
        return group_means(moves, groups[half.rows], n_groups), trouble

    means = np.empty((len(halves), n_groups, X.shape[1]))
    pieces = kept()
    todo = [k for k in range(len(halves)) if pieces is None or not _is_there(pieces, k, means)]
    with Workers(like.n_jobs if side_by_side else 1) as workers:
        found = workers.map(one, [halves[k] for k in todo])
        for done, (k, (mean, trouble)) in enumerate(zip(todo, found, strict=True), len(halves) - len(todo) + 1):
            means[k] = mean
            if pieces is not None:
                pieces.put(f"half-{k}", {"trouble": trouble}, mean)
            if tick is not None:
                tick(done, len(halves))
    return means


def _with_coordinates(like: MongeMap, X: Any, Y: Any) -> MongeMap:
    """The same map, matched on components of all cells: those of a half need not be learned again."""
    if not isinstance(like.match, int | np.integer):
        return like
    cost, _ = like._check_parameters()
    source, target = check_samples(X, "X"), check_samples(Y, "Y")
    frozen = cost._frozen(source.shape[1])
    with Workers(like.n_jobs) as workers:
        pair = source.without(frozen), target.without(frozen)
        found = learn_coordinates(like.match, *pair, workers)
        return cast(MongeMap, clone(like)).set_params(match=tuple(found(side, workers) for side in pair))


def _is_there(pieces: Kept, k: int, means: Floats) -> bool:
    """Take the means of a half that an interrupted run has computed, and say again what it warned of."""
    about, mean = pieces.get(f"half-{k}", means[k].size) or ({}, None)
    if mean is None or mean.shape != means[k].shape or not isinstance(about.get("trouble"), str):
        return False
    means[k] = mean
    if about["trouble"]:
        warnings.warn(about["trouble"], NotConvergedWarning, stacklevel=4)
    return True


def _trouble(fitted: MongeMap) -> str:
    return "" if fitted.converged_ else fitted.report_.message


def _shared(alone: MongeMap, X: Any, Y: Any, like: MongeMap, side_by_side: bool) -> Refit | None:
    """What fits a map to a half and moves it, from sub-matrices of the costs of all pairs; None where these are too
    many for the memory that there is."""
    cost, solver = alone._check_parameters()
    source, target = check_samples(X, "X"), check_samples(Y, "Y")
    cost._check_features(source.shape[1])
    cost._check_scale(max(source.largest(), target.largest()))
    n, m = source.shape[0], target.shape[0]
    problem = Problem(source, target, np.full(n, 1 / n), np.full(m, 1 / m), source.names)
    frozen, budget = cost._frozen(source.shape[1]), Budget(alone.max_memory)
    at_once = count_jobs(like.n_jobs) if side_by_side else 1
    threads = count_jobs(alone.n_jobs)
    making = scratch_bytes(cost, target, count_jobs(like.n_jobs))
    # of each half that is fitted at a time: a sub-matrix, and moves
    using = at_once * (2 * n * m + move_bytes(cost, target, threads) + working_bytes(m, threads))
    if 8 * n * m + max(making, using) > min(budget.left(), SHARE * available()):
        return None
    with Workers(like.n_jobs) as workers:
        costs = cost_blocks(cost, source.without(frozen), target.without(frozen), budget, workers)
    if not isinstance(costs, StoredCost):
        return None
    ties = TIES.index(alone.ties)

    def refit(half: Half) -> Moves:
        begun, part = time.perf_counter(), problem.restricted(*half)
        mine = StoredCost(costs.C[np.ix_(*half)])
        fitted = alone._restricted(*half)
        with Workers(alone.n_jobs) as workers:
            solution = solver(mine, part.a, part.b, workers)
            fitted._conclude(cost, part, solution, solver, time.perf_counter() - begun, mine.place)
            if not fitted.converged_:
                warnings.warn(fitted.report_.message, NotConvergedWarning, stacklevel=2)
            side = fitted._towards
            given = side.holding(part.source), lambda _, rows: rows, ties, alone.relax, workers, budget
            return side.displace(*given, costs=mine), _trouble(fitted)

    return refit


def group_means(moves: sp.csr_array, groups: Ints, n_groups: int) -> Floats:
    """Groups × genes: the mean of the rows of each group."""
    counts = np.bincount(groups, minlength=n_groups)
    member = sp.csr_array((1.0 / counts[groups], (groups, np.arange(groups.size))), shape=(n_groups, groups.size))
    return np.asarray((member @ moves).todense(), dtype=np.float64)
