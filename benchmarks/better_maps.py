"""python -m benchmarks.better_maps [part of a name …]: do other maps say more than the plain one with as many moves?

Each variant is fitted on one half of the samples and moves the other half, over a grid of γ and ε; scores are compared
at equal density, split by split. The named data sets, or all of them: interferon-β cells (from kang_ifnb.h5ad in the
directory that OCCAMAP_DATA names; left out without it), simulated cells, and samples whose map is known. Writes
better_maps.csv (a row a map, as they come) and better_maps.md to benchmarks/results.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.decomposition import PCA
from threadpoolctl import threadpool_limits

import occamap as oc
from benchmarks.better_tables import tables
from benchmarks.machine import cores, facts
from occamap._validate import check_samples
from occamap._workers import Workers
from occamap.datasets.kang import VARIABLE
from occamap.errors import InputError, NotConvergedWarning
from occamap.metrics.transport import DivergenceTo, Measure, Transport
from occamap.sinkhorn import EpsilonRule, Solver, StoredCost

Floats = NDArray[np.float64]

SPLITS, GENES, COMPONENTS, MOST = 3, 2000, 50, 250
EPSILONS = 0.003, 0.01, 0.03, 0.1
GAMMAS = {"cells": np.geomspace(0.05, 20, 7), "truth": np.geomspace(0.05, 5, 7)}
STEPS = 1 / 3, 1 / 2, 1.0  # of the way that is left, so that each step is a third of the whole
SCHEDULES = (  # relax, and what the share of the mean cost is multiplied by in each step
    ("progressive", 0.0, (1, 1, 1)),
    ("progressive", 1.0, (1, 1, 1)),
    ("progressive, falling ε", 1.0, (4, 2, 1)),
)
FAR = 1e3  # times the largest cost: no mass goes there


@dataclass(frozen=True)
class Half:
    """Source and target samples, and the kind of each."""

    X: Any
    Y: Any
    x_kinds: NDArray[Any]
    y_kinds: NDArray[Any]


@dataclass(frozen=True)
class Split:
    """What a map learns from, what it is tried on, and what is known of the truth there."""

    train: Half
    test: Half
    cost: type[oc.Cost]
    image: Floats | None = None  # where each test source sample is to go
    support: NDArray[np.bool_] | None = None  # which features are to move in each


# -- data ------------------------------------------------------------------------------------------------------


def interferon(kinds: list[str] | None, seed: int) -> Split:
    """The genes that vary most over all cells; halves of the cells at random."""
    cells = oc.datasets.kang_ifnb()
    counts = sp.csr_array(cells.X, dtype=np.float32)
    logged = sp.csr_array(counts.multiply((1e4 / counts.sum(axis=1))[:, None]), dtype=np.float32)
    logged.data = np.log1p(logged.data)
    variance = np.asarray(logged.power(2).mean(axis=0)) - np.asarray(logged.mean(axis=0)) ** 2
    logged = logged[:, np.sort(np.argsort(-variance)[:GENES])]
    types, treated = cells.obs["cell_type"].to_numpy(str), (cells.obs["condition"] == "stimulated").to_numpy()
    used = np.ones(types.size, bool) if kinds is None else np.isin(types, kinds)
    X, Y = logged[used & ~treated], logged[used & treated]
    return halved(X, Y, types[used & ~treated], types[used & treated], seed)


def simulated(effect: float, seed: int) -> Split:
    """Cells of three types, drawn anew for each split."""
    data = oc.datasets.simulate_perturbation(2 * MOST, 2 * MOST, GENES, effect=effect, random_state=seed)
    return halved(data.control, data.treated, data.control_types, data.treated_types, seed, data.moved)


def sciplex(drug: str, seed: int) -> Split:
    """K562 cells of two types and a drug, drawn anew for each split."""
    cells = oc.datasets.sciplex_like(scale=0.6, n_genes=GENES, random_state=seed)
    cells = cells[cells.obs["cell_line"] == "K562"]
    X, Y = cells[cells.obs["drug"] == "control"], cells[cells.obs["drug"] == drug]
    kinds = [(group.obs["cell_type"] == "K562 1").to_numpy(int) for group in (X, Y)]
    moved = cells.varm["response"][[f"K562 {drug} {kind}" for kind in (0, 1)]].to_numpy().T != 0
    return halved(sp.csr_array(X.X), sp.csr_array(Y.X), *kinds, seed, moved)


def known(cost: oc.Cost, features: int, seed: int) -> Split:
    """Samples between which the optimal map of this cost is known, drawn anew for each split."""
    size = 2 * MOST
    truth = oc.datasets.ground_truth(cost, size, size, features, random_state=seed)
    one = np.zeros(MOST, int)
    parts = [Half(truth.source[rows], truth.target[rows], one, one) for rows in np.split(np.arange(size), 2)]
    return Split(*parts, type(cost), truth.image[MOST:], truth.support[MOST:])


def halved(
    X: Any, Y: Any, x_kinds: Any, y_kinds: Any, seed: int, moved: NDArray[np.bool_] | None = None
) -> Split:
    """Halves of both groups at random, of at most MOST samples each."""
    rng = np.random.default_rng(seed)
    rows = [np.array_split(rng.permutation(kinds.size)[: 2 * MOST], 2) for kinds in (x_kinds, y_kinds)]
    parts = [Half(X[x], Y[y], x_kinds[x], y_kinds[y]) for x, y in zip(*rows, strict=True)]
    return Split(*parts, oc.L1, support=None if moved is None else moved[parts[1].x_kinds])


DATA: dict[str, Callable[[int], Split]] = {
    "interferon, all cells": lambda seed: interferon(None, seed),
    "interferon, CD14 monocytes": lambda seed: interferon(["CD14 Mono"], seed),
    "simulated, effect 0.7": lambda seed: simulated(0.7, seed),
    "simulated, effect 1.5": lambda seed: simulated(1.5, seed),
    "sci-Plex like, Hesperadin": lambda seed: sciplex("Hesperadin", seed),
    "known ℓ1 map, 5 features": lambda seed: known(oc.L1(1.0), 5, seed),
    "known ℓ1 map, 64 features": lambda seed: known(oc.L1(1.0), 64, seed),
    "known STVS map, 5 features": lambda seed: known(oc.STVS(1.0), 5, seed),
}


# -- maps ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """What points see of anchors, for each cost: Σ p_j ∇h(x − y_j), the Gibbs mass at a kink, Σ p_j y_j − x."""

    field: NDArray[Any]
    tied: NDArray[Any]
    shift: NDArray[Any]


def see(costs: list[oc.Cost], X: Floats, Y: Floats, weights: Floats) -> Seen:
    """Of each row of X and each cost; weights[k, i, j] are those of y_j for x_i and cost k."""
    shift = weights @ Y - X
    field, tied = np.empty_like(shift), np.zeros_like(shift)
    for i, x in enumerate(X):
        z = x - Y
        if isinstance(costs[0], oc.L1):
            field[:, i] = weights[:, i] @ np.sign(z)
            tied[:, i] = weights[:, i] @ (z == 0).astype(z.dtype)
        else:
            field[:, i] = np.stack([p @ cost.grad(z) for p, cost in zip(weights[:, i], costs, strict=True)])
    if isinstance(costs[0], oc.L1):
        field = field * np.array([cost.gamma for cost in costs], field.dtype)[:, None, None] - shift
    return Seen(field, tied, shift)


class Problem:
    """One split: costs of all pairs at every γ, from which potentials and weights of unseen samples follow."""

    def __init__(self, split: Split, gammas: Floats) -> None:
        X, Y, new = split.train.X, split.train.Y, split.test.X
        self.costs = [split.cost(gamma) for _ in EPSILONS for gamma in gammas.tolist()]
        self.keys = [(share, gamma) for share in EPSILONS for gamma in gammas.tolist()]
        self.new = _dense(new)

        def pairs(left: Any, right: Any) -> list[Floats]:
            return [cost.pairwise(left, right, 1) for cost in self.costs[: gammas.size]] * len(EPSILONS)

        across, within = pairs(X, Y), pairs(X, X)
        apart = [C + FAR * C.max() * np.eye(C.shape[0]) for C in within]
        epsilons = [share * C.mean() for (share, _), C in zip(self.keys, across, strict=True)]
        self.target = self._see(_dense(Y), across, pairs(new, Y), epsilons)
        self.source = self._see(_dense(X), within, pairs(new, X), epsilons)
        self.others = self._see(_dense(X), apart, pairs(new, X), epsilons)

    def _see(self, anchors: Floats, fitted: list[Floats], new: list[Floats], epsilons: list[float]) -> Seen:
        weights = np.stack([_weights(*given) for given in zip(fitted, new, epsilons, strict=True)])
        return see(self.costs, self.new, anchors, weights.astype(self.new.dtype))


def _weights(fitted: Floats, new: Floats, epsilon: float) -> Floats:
    """The Gibbs weights of unseen samples, from their costs and those of the fitted ones."""
    n, m = fitted.shape
    solver = Solver(EpsilonRule(epsilon, "absolute"), None, 1e-3, 2000)
    with Workers(1) as workers:
        g = solver(StoredCost(fitted), np.full(n, 1 / n), np.full(m, 1 / m), workers).g
    scores = (g - new) / epsilon
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def variants(problem: Problem) -> Iterator[tuple[str, int, float, Floats]]:
    """(variant, which cost, relax, displacements) of every single-step map."""
    target, source, others = problem.target, problem.source, problem.others
    for k, cost in enumerate(problem.costs):
        field, shift = target.field[k], target.shift[k]
        fields = {
            "plain": (field, shift),
            "ties": (np.sign(field) * np.maximum(np.abs(field) - target.tied[k] * cost.gamma, 0), shift),
            "published debiased": (field - source.field[k], shift - source.shift[k]),
        }
        for name, (slope, way) in fields.items():
            moves = -cost.prox(slope)
            yield name, k, 0.0, moves
            yield name, k, 1.0, np.where(moves != 0, way, 0)
        moves = -cost.prox(field)
        kept = (moves != 0) & (cost.prox(field - others.field[k]) != 0)
        yield "debias=True", k, 0.0, np.where(kept, moves, 0)
        yield "debias=True", k, 1.0, np.where(kept, shift, 0)


def progressive(split: Split, cost: oc.Cost, share: float, relax: float, times: tuple[int, ...]) -> Floats:
    """Displacements of the test source samples by partial steps, potentials solved again before each."""
    state, new = split.train.X, split.test.X
    for step, factor in zip(STEPS, times, strict=True):
        fitted = oc.MongeMap(cost, share * factor, relax=relax, tol=1e-3, n_jobs=1).fit(state, split.train.Y)
        state, new = (rows + step * fitted.displacement(rows) for rows in (state, new))
    return np.asarray(_dense(new) - _dense(split.test.X))


# -- scores ----------------------------------------------------------------------------------------------------


class Scores:
    """Of the moved test source samples, on principal components of the train samples if there are many features."""

    def __init__(self, split: Split) -> None:
        self.split, self.X = split, _dense(split.test.X)
        both = np.vstack([_dense(split.train.X), _dense(split.train.Y)])
        pca = PCA(COMPONENTS, svd_solver="arpack", random_state=0) if both.shape[1] > COMPONENTS * 2 else None
        self.project = (lambda rows: rows) if pca is None else pca.fit(both).transform
        self.target = self.project(_dense(split.test.Y)).astype(float)
        self.own = cdist(self.target, self.target)
        self.sigma = np.median(self.own[np.triu_indices(self.own.shape[0], 1)])
        self.wanted = _mean_moves(split)
        with Workers(1) as workers:
            transport = Transport(EpsilonRule(0.1), oc.SqL2(), 1e-3, 2000)
            measure = _measure(self.target)
            self.divergence = DivergenceTo(measure, transport, workers, like=measure)

    def __call__(self, moves: Floats) -> dict[str, float]:
        moved = self.project(self.X + moves).astype(float)
        test, share = self.split.test, np.count_nonzero(np.abs(moves) > 1e-8) / moves.size
        with Workers(1) as self.divergence.workers:
            divergence = self.divergence(_measure(moved))
        across, within = cdist(moved, self.target), cdist(moved, moved)
        found = {
            "density": share,
            "sinkhorn": divergence.value,
            "energy": 2 * across.mean() - within.mean() - self.own.mean(),
            "mmd": sum(sign * np.exp(-0.5 * (D / self.sigma) ** 2).mean() for sign, D in
                       ((1, within), (1, self.own), (-2, across))),
            "down": np.count_nonzero(moves < 0) / max(1, np.count_nonzero(moves)),
        }
        off = [np.square(moves[test.x_kinds == k].mean(axis=0) - wanted).sum() for k, wanted in self.wanted.items()]
        found["mean move"] = float(sum(off) / sum(np.square(wanted).sum() for wanted in self.wanted.values()))
        if self.split.image is not None:
            truth = self.split.image - self.X
            found["truth"] = float(np.square(moves - truth).sum() / np.square(truth).sum())
        if self.split.support is not None:
            found["wrong support"] = oc.metrics.support_error(moves.astype(float), self.split.support)
        return found


def _mean_moves(split: Split) -> dict[Any, Floats]:
    """By how much the means of test targets and test source samples differ, for kinds with ten of each at least."""
    test, found = split.test, {}
    for kind in np.unique(test.x_kinds):
        x, y = test.x_kinds == kind, test.y_kinds == kind
        if min(x.sum(), y.sum()) >= 10:
            found[kind] = _dense(test.Y[y]).mean(axis=0) - _dense(test.X[x]).mean(axis=0)
    return found


def _measure(samples: Floats) -> Measure:
    return Measure(check_samples(samples, "samples"), np.full(samples.shape[0], 1 / samples.shape[0]))


def _dense(rows: Any) -> NDArray[Any]:
    return rows.toarray() if sp.issparse(rows) else np.asarray(rows)


# -- the run ---------------------------------------------------------------------------------------------------


def evaluate(name: str, seed: int) -> list[dict[str, Any]]:
    """Every map of one split, scored."""
    begun = time.perf_counter()
    warnings.simplefilter("ignore", NotConvergedWarning)  # at the smallest ε and the largest γ some do not
    with threadpool_limits(1):
        split = DATA[name](seed)
        gammas = GAMMAS["truth" if split.image is not None else "cells"]
        scores, problem, rows = Scores(split), Problem(split, gammas), []

        def add(variant: str, relax: float, share: float, gamma: float, moves: Floats) -> None:
            told = {"data": name, "split": seed, "variant": variant, "relax": relax, "epsilon": share, "gamma": gamma}
            rows.append({**told, **scores(moves)})

        for variant, k, relax, moves in variants(problem):
            if variant != "ties" or split.image is None:  # without counts there are none
                add(variant, relax, *problem.keys[k], moves)
        for variant, relax, times in SCHEDULES:
            for share in EPSILONS[1:]:
                for k in range(0, gammas.size, 2):
                    moves = progressive(split, problem.costs[k], share, relax, times)
                    add(variant, relax, share, gammas[k], moves)
    print(f"{name}, split {seed}: {len(rows)} maps, {time.perf_counter() - begun:.0f} s", flush=True)
    return rows


def main() -> int:
    names = [name for name in DATA if not sys.argv[1:] or any(part in name for part in sys.argv[1:])]
    try:
        oc.datasets.kang_ifnb()
    except InputError:
        print(f"no interferon-β cells: {VARIABLE} does not name a directory with kang_ifnb.h5ad", file=sys.stderr)
        names = [name for name in names if not name.startswith("interferon")]
    machine, begun, rows = facts(), time.perf_counter(), []
    out = Path(__file__).with_name("results")
    jobs = [(name, seed) for seed in range(SPLITS) for name in names]
    with ProcessPoolExecutor(cores()) as pool:
        for found in pool.map(evaluate, *zip(*jobs, strict=True)):
            rows += found
            frame = pd.DataFrame(rows)
            frame.to_csv(out / "better_maps.csv", index=False, float_format="%.5g")
    text = tables(frame, {**machine, "seconds": f"{time.perf_counter() - begun:.0f}"})
    (out / "better_maps.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
