"""A path over γ beside one fit, and an evaluation over splits beside separate fits."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from sklearn.model_selection import ShuffleSplit

import occamap as oc
from benchmarks.problems import Problems
from benchmarks.results import Record, Row, Target, at_least
from benchmarks.timing import Measured, agree, best
from occamap._validate import check_samples
from occamap._workers import Workers
from occamap.errors import SelectionWarning
from occamap.selection.continuation import Continuation
from occamap.selection.splits import Split
from occamap.sinkhorn import EpsilonRule, Solver, cost_family

PATH = np.geomspace(0.01, 100, 50)
GAMMAS = np.geomspace(0.1, 10, 6)
SPLITS = 10
AGREE = 1e-2  # times ε: both stop at a marginal error of 1e-4, from different starts; at 1e-10 the tests ask for 1e-6


def at_most(times: float, what: str) -> Target:
    return Target("ratio", 1 / times, f"≤ {times:g} × {what}", at_least=True)


def path(problems: Problems, record: Record) -> None:
    """A path of 50 γ, ℓ1, beside one cold fit; map evaluation apart, then with it."""
    X, Y = problems.cells
    for share in 0.1, 0.01:
        name = f"{problems.cells_name}, ε = {share:g} × mean"
        cold, alone = best(lambda: oc.MongeMap(oc.L1(float(PATH[25])), epsilon=share).fit(X, Y))  # noqa: B023
        seconds, found = best(lambda: oc.gamma_path(X, Y, gammas=PATH, epsilon=share, density_samples=0))  # noqa: B023
        agree("a fit alone", found.maps[25].g_, alone.g_, AGREE, scale=alone.epsilon_)
        iterations = sum(fitted.n_iter_ for fitted in found.maps)
        measured = Measured(cold, note=f"{iterations} iterations in all, {alone.n_iter_} in the fit")
        record.against(name, "path of 50 γ, no map evaluated", seconds, "one fit", measured, at_most(6, "one fit"))
        seconds, found = best(lambda: oc.gamma_path(X, Y, gammas=PATH, epsilon=share), repeats=1, least=0)  # noqa: B023
        record.add(Row(name, "path of 50 γ, densities of 512 cells at each", seconds))
    seconds, found = best(lambda: oc.gamma_path(X, Y), repeats=1, least=0)
    first, last = (f"γ = {found.gammas[k]:.2g}, density {found.densities[k]:.2%}" for k in (0, -1))
    record.add(Row(problems.cells_name, "default path, its grid found", seconds, note=f"20 γ: {first}, to {last}"))


def evaluation(problems: Problems, record: Record) -> None:
    """10 splits × 6 γ, ℓ1, ε = 0.1 × mean: the fits, then the whole evaluation, beside 60 separate ones."""
    X, Y = problems.cells
    splits = _splits(X, Y)
    warnings.simplefilter("ignore", SelectionWarning)  # these cells are made for their size
    name, what = f"{problems.cells_name}, {SPLITS} splits × {GAMMAS.size} γ", "60 separate fits"
    apart = _seconds(lambda: [_fit(X, Y, split, gamma) for split in splits for gamma in GAMMAS])
    shared, _ = best(lambda: _shared_fits(X, Y, splits), repeats=3)
    record.against(name, "the fits of the evaluation", shared, what, Measured(apart), at_least(8))
    scored = _seconds(lambda: [_fit_map_score(X, Y, splits[0], gamma) for gamma in GAMMAS]) * SPLITS
    rivals = {
        what: lambda note: Measured(apart, note=note),
        "60 fits, maps and scores apart": lambda note: Measured(scored, f"extrapolated from one of {SPLITS}", note),
    }
    for projection, where in ((None, "feature space"), (50, "50 components of each split")):
        cv = [tuple(split) for split in splits]
        search = oc.MongeMapCV(gammas=GAMMAS, epsilon=0.1, relax=0.0, cv=cv, projection=projection)
        whole = _seconds(lambda: search.fit(X, Y))  # noqa: B023
        spent = {part: search.results_[f"{part}_seconds"].sum() for part in ("fit", "map", "score")}
        note = "summed over threads: " + ", ".join(f"{part} {seconds:.1f} s" for part, seconds in spent.items())
        for rival, measured in rivals.items():
            if projection is None or rival == what:
                record.against(name, f"the whole evaluation, scored in {where}", whole, rival, measured(note))


def _splits(X: sp.csr_array, Y: sp.csr_array) -> list[Split]:
    sides = [ShuffleSplit(SPLITS, test_size=0.2, random_state=0).split(np.empty(side.shape[0])) for side in (X, Y)]
    return [Split(*x, *y) for x, y in zip(*sides, strict=True)]


def _seconds(run: Callable[[], object]) -> float:
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def _fit(X: sp.csr_array, Y: sp.csr_array, split: Split, gamma: float) -> oc.MongeMap:
    return oc.MongeMap(oc.L1(float(gamma))).fit(X[split.source_train], Y[split.target_train])


def _fit_map_score(X: sp.csr_array, Y: sp.csr_array, split: Split, gamma: float) -> float:
    moved = _fit(X, Y, split, gamma).transform(X[split.source_test])
    return oc.metrics.sinkhorn_divergence(moved, Y[split.target_test])


def _shared_fits(X: sp.csr_array, Y: sp.csr_array, splits: list[Split]) -> None:
    """What `MongeMapCV` does to fit: one pass over the data, then sub-matrices and warm starts, a split a thread."""
    x, y, solver = check_samples(X, "X"), check_samples(Y, "Y"), Solver(EpsilonRule(0.1))
    with Workers() as workers:
        family = cost_family(oc.L1(1.0), x, y, None, None, workers)

        def one(split: Split) -> None:
            within, behind = family.restricted(split.source_train, split.target_train), Continuation()
            n, m = within.shape
            with Workers(1) as alone:
                for gamma in GAMMAS.tolist():
                    costs = within.at(gamma, alone)
                    found = solver(costs, np.full(n, 1 / n), np.full(m, 1 / m), alone, behind.near(gamma))
                    behind.add(gamma, found)

        for _ in workers.map(one, splits):
            pass
