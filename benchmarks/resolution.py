"""In which cells: moved entries against planted truth, other donors and held-out cells.

`python -m benchmarks.resolution [planted] [range] [neighbourhoods] [chain] [donors] [heldout] [fates] [time]` measures
these parts, all if none is named, and writes benchmarks/results/resolution.md and resolution.json; parts that are not
asked for are kept as they are there. `donors` and `heldout` need kang_ifnb.h5ad in the directory that the environment
variable OCCAMAP_DATA names. Where pylemur is installed (with harmonypy<0.0.11), it is compared on the same cells.

Planted truth: 800 + 800 cells, 3,000 genes, 4 types, effects of ±0.7 to 1.6 in natural logs on 60 genes a type, 20 of
them shared, counts scaled to 10,000 a cell and logged, without side effects on other genes. An entry is a cell and a
gene; "precision" and "recall" are of the entries that move, "AP" is the average precision of the pooled field, whose
prox is the displacement, as a score of every entry. No parameter was tuned on seeds 3000 to 3004; `neighbourhoods` and
`chain`, which compare the choices, use seeds 1000 and 1001. The interferon cells had a part in the choice of the
neighbourhoods and of the strength of the penalty, and the truth of `donors` (which test, genes and types) was settled
after comparing 24 definitions with figures from an earlier study: compare its rows with each other rather than reading
their levels.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy import stats
from sklearn.decomposition import PCA
from sklearn.metrics import average_precision_score
from sklearn.model_selection import ShuffleSplit

import occamap as oc
from benchmarks.machine import facts
from occamap._workers import Workers
from occamap.maps.neighbourhoods import Kernel, nearest

RESULTS = Path(__file__).with_name("results")
FRESH, KNOWN = range(3000, 3005), (1000, 1001)
ASKED = {"groupby": "condition", "control": "control", "target": "treated", "verbose": False}
PAPER = {"pool": None, "match": None, "epsilon": 0.1, "epsilon_scale": "mean", "relax": 0.0}
BEFORE = {"pool": None, "match": None, "gamma": 0.3}  # the default of version 0.1
Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]
Row = dict[str, Any]


def planted(seed: int, cells: int = 800, scale: float = 1.0, **given: Any) -> oc.datasets.Perturbation:
    """Control and treated cells as the text above says, or other numbers of cells, effects, types or depth."""
    usual = {"n_types": 4, "n_moved": 60, "n_shared": 20, "density": 0.27, "total": 1e4, "composition": False}
    effect = {"effect": 1.15 * scale, "effect_spread": 0.45 / 1.15}
    return oc.datasets.simulate_perturbation(cells, cells, 3000, **{**usual, **effect, **given}, random_state=seed)


def learned(data: oc.datasets.Perturbation, **asked: Any) -> tuple[oc.MongeMap, NDArray[Any]]:
    """The map of the front end, and its displacements of the control cells."""
    adata = data.to_anndata()
    m = oc.tl.monge_map(adata, **{**ASKED, **asked})
    return m, adata.layers["occamap_displacement"][: data.control.shape[0]].toarray()


def debiased(data: oc.datasets.Perturbation) -> NDArray[Any]:
    """The displacements that `debias=True` leaves of the default of version 0.1."""
    m = oc.MongeMap(oc.L1(0.3), 10, "perplexity", relax=1.0, debias=True).fit(data.control, data.treated)
    return m.displacement(data.control).toarray()


def pooled_field(m: oc.MongeMap, X: Any) -> Floats:
    """The magnitude of what the prox is taken of."""
    moved = m._along_field(X, 1.0)
    field = (moved - X).toarray() if sp.issparse(X) else moved - X
    return np.abs(np.asarray(m.neighbourhoods() @ field))


def scored(moves: NDArray[Any], truth: Mask, score: NDArray[Any] | None = None) -> Row:
    """How much of what moves is true, and how much of what is true moves."""
    moved = moves != 0
    right = int((moved & truth).sum())
    ranked = np.abs(moves) if score is None else score
    return {
        "moving": float(moved.mean()),
        "precision": right / max(1, int(moved.sum())),
        "recall": right / max(1, int(truth.sum())),
        "AP": float(average_precision_score(truth.ravel(), ranked.ravel())),
    }


def t_scores(data: oc.datasets.Perturbation, by_type: bool) -> Floats:
    """|Welch's t| of treated against control cells: of all cells, or within the type of each control cell."""
    X, Y, scores = data.control.toarray(), data.treated.toarray(), np.empty(data.control.shape)
    kinds = (data.control_types, data.treated_types) if by_type else (np.zeros(len(X)), np.zeros(len(Y)))
    for kind in np.unique(kinds[0]):
        a, b = X[kinds[0] == kind], Y[kinds[1] == kind]
        spread = np.sqrt(a.var(axis=0) / len(a) + b.var(axis=0) / len(b))
        scores[kinds[0] == kind] = np.abs(b.mean(axis=0) - a.mean(axis=0)) / np.maximum(spread, 1e-9)
    return scores


def truth_of(data: oc.datasets.Perturbation) -> Mask:
    return data.moved[data.control_types]


def lemur(adata: Any, dimensions: int = 30) -> Floats | None:
    """The change that pyLEMUR predicts for each control cell; None where it is not installed."""
    try:
        import pylemur
    except ImportError:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dense = adata.copy()
        dense.X = np.asarray(dense.X.todense() if sp.issparse(dense.X) else dense.X, dtype=np.float64)
        model = pylemur.tl.LEMUR(dense, design="~ condition", n_embedding=dimensions)
        model.fit(verbose=False)
        model.align_with_harmony(verbose=False)
        names = [name for name in ("treated", "stimulated") if (adata.obs["condition"] == name).any()]
        after, before = (model.predict(new_condition=model.cond(condition=name)) for name in (names[0], "control"))
    control = (adata.obs["condition"] == "control").to_numpy()
    return np.abs(np.asarray(after - before))[control]


# -- planted truth -----------------------------------------------------------------------------------------------


def against_truth(seeds: Iterable[int]) -> list[Row]:
    """The maps of the paper and of version 0.1, pooled maps, and what knows nothing of single cells, or all."""
    rows: list[Row] = []
    for density in (0.27, 0.08):
        for seed in seeds:
            data = planted(seed, density=density)
            truth = truth_of(data)

            def add(method: str, found: Row, density: float = density, seed: int = seed) -> None:
                rows.append({"stored": density, "method": method, "seed": seed, **found})

            add("paper: ½ℓ2², ε = 0.1 × mean", scored(learned(data, cost=oc.SqL2(), **PAPER)[1], truth))
            add("paper: ℓ1 γ = 1, ε = 0.1 × mean", scored(learned(data, gamma=1.0, **PAPER)[1], truth))
            add("default of version 0.1", scored(learned(data, **BEFORE)[1], truth))
            add("default of version 0.1, debias=True", scored(debiased(data), truth))
            for pool in (10, 30, 100):
                m, moves = learned(data, pool=pool)
                add(f"pool = {pool}", scored(moves, truth, pooled_field(m, data.control)))
            m, moves = learned(data)
            add("**default: pool = auto**", scored(moves, truth, pooled_field(m, data.control)))
            m, moves = learned(data, pool="cell_type")
            add("pooled by the true types", scored(moves, truth, pooled_field(m, data.control)))
            for name, by_type in (("one t-test for all cells", False), ("oracle: t-test within the true type", True)):
                score = t_scores(data, by_type)
                add(name, {"AP": scored(np.zeros(truth.shape), truth, score)["AP"]})
            change = lemur(data.to_anndata())
            if change is not None:
                add("pyLEMUR, 30 dimensions", {"moving": 1.0, "AP": scored(change, truth)["AP"]})
                signed = np.asarray(learned(data)[0].neighbourhoods() @ change)
                add("pyLEMUR, pooled likewise", {"moving": 1.0, "AP": scored(signed, truth)["AP"]})
    return rows


def over_range(seeds: Iterable[int]) -> list[Row]:
    """The default over depth, effect size, numbers of cells and of types."""
    cases: list[tuple[str, Row]] = [(f"{d:.0%} stored", {"density": d}) for d in (0.04, 0.08, 0.15, 0.27)]
    cases += [(f"effects × {s:g}", {"scale": s}) for s in (0.5, 1.5)]
    cases += [(f"{n:,} + {n:,} cells", {"cells": n}) for n in (50, 100, 200, 400, 1600)]
    cases += [(f"{k} types", {"n_types": k}) for k in (1, 2, 8)]
    cases += [("nothing planted", {"n_moved": 0, "n_shared": 0})]
    rows = []
    for name, given in cases:
        for seed in seeds:
            data = planted(seed, **given)
            m, moves = learned(data)
            truth = truth_of(data)
            if truth.any():
                found = scored(moves, truth, pooled_field(m, data.control))
                found["oracle AP"] = scored(moves, truth, t_scores(data, True))["AP"]
            else:
                found = {"moving": float((moves != 0).mean())}
            rows.append({"data": name, "seed": seed, **found})
    return rows


def uniform(space: str, k: int) -> Callable[[oc.MongeMap, Any, Any], sp.csr_array]:
    """k nearest source cells on other coordinates than the default's."""

    def operator(m: oc.MongeMap, X: Any, Y: Any) -> sp.csr_array:
        m.set_params(pool=2).neighbourhoods()
        places = m._space.places[True]
        half = places.raw.shape[1] // 2
        chosen = {"source": places.raw[:, :half], "destination": places.raw[:, half:], "joint": places.raw,
                  "genes": X.toarray(), "mutual": places.raw}[space]
        square = (chosen**2).sum(axis=1)
        distance = square[:, None] + square - 2 * chosen @ chosen.T
        np.fill_diagonal(distance, -1.0)
        near = np.argsort(distance, axis=1, kind="stable")[:, :k]
        n = len(near)
        graph = sp.csr_array((np.ones(n * k), near.ravel(), np.arange(0, n * k + 1, k)), shape=(n, n))
        if space == "mutual":
            graph = sp.csr_array(graph.multiply(graph.T))
        return sp.csr_array(sp.diags_array(1 / np.asarray(graph.sum(axis=1)).ravel()) @ graph)

    return operator


def unequal(seed: int, shares: tuple[float, ...] = (0.5, 0.3, 0.15, 0.05), **given: Any) -> oc.datasets.Perturbation:
    """800 + 800 cells whose types have these shares."""
    cells = 800
    data = planted(seed, int(1.3 * cells * max(shares) * len(shares)), n_types=len(shares), **given)
    rng = np.random.default_rng(seed)

    def drawn(types: NDArray[np.int64]) -> NDArray[np.int64]:
        rows = [rng.permutation(np.flatnonzero(types == t))[: round(share * cells)] for t, share in enumerate(shares)]
        return np.sort(np.concatenate(rows))

    a, b = drawn(data.control_types), drawn(data.treated_types)
    return replace(data, control=data.control[a], treated=data.treated[b], control_types=data.control_types[a],
                   treated_types=data.treated_types[b])


KERNELS = {
    "at most 200, taper 3 over them": Kernel(200, 200, 3.0),
    "at most 300, taper 3 over them": Kernel(300, 300, 3.0),
    "at most 400, taper 3 over them": Kernel(400, 400, 3.0),
    "at most 200, none": Kernel(200),
    "at most 300, taper 4 over 3/4 of the cells": Kernel(300, 600, 4.0, 0.03),
    "**default: at most 250, taper 4 over them**": Kernel(250, 250, 4.0, 0.03),
    "before: at most 300, taper 5 over 3/4 of the cells": Kernel(300, 600, 5.0, 0.03),
    "at most 400, taper 5 over 3/4 of the cells": Kernel(400, 600, 5.0, 0.03),
    "at most 300, taper 7 over 3/4 of the cells": Kernel(300, 600, 7.0, 0.03),
    "at most 300, taper 4 over half of the cells": Kernel(300, 400, 4.0, 0.03),
}


def by_neighbourhood(seeds: Iterable[int]) -> list[Row]:
    """Ways to choose neighbours, for several numbers and shares of types, and at 8 % stored."""
    rows = []
    cases: dict[str, Callable[[int], oc.datasets.Perturbation]] = {
        "4 types": planted,
        "10 types": partial(planted, n_types=10),
        "20 types": partial(planted, n_types=20),
        "50, 30, 15, 5 %": unequal,
        "8 % stored": partial(planted, density=0.08),
        "8 % stored, 50, 30, 15, 5 %": partial(unequal, density=0.08),
    }
    for name, make in cases.items():
        for seed in seeds:
            data = make(seed)
            truth, X = truth_of(data), data.control
            m, _ = learned(data)
            rare = data.control_types == data.control_types.max()

            def add(neighbours: str, pool: Any, name: str = name, seed: int = seed, X: Any = X, truth: Mask = truth,
                    rare: Mask = rare, m: oc.MongeMap = m) -> None:
                score = pooled_field(m.set_params(pool=pool), X)
                found = scored(m.displacement(X).toarray(), truth, score)
                found["AP, last type"] = float(average_precision_score(truth[rare].ravel(), score[rare].ravel()))
                rows.append({"data": name, "neighbours": neighbours, "seed": seed, **found})

            for space in ("source", "destination", "joint", "mutual", "genes"):
                for k in (30, 100):
                    add(f"{k} nearest, {space}", uniform(space, k)(m, X, data.treated))
            for k in (30, 100):
                add(f"{k} nearest, joint, smooth", k)
            places, own = m._space.places[True].source, np.arange(X.shape[0])
            with Workers(None) as workers:
                for what, kernel in KERNELS.items():
                    add(what, nearest(places, places, np.ones(len(places)), kernel, own, workers))
    return rows


def by_chain(seeds: Iterable[int]) -> list[Row]:
    """Where cells are matched, how many effective targets there are, and γ."""
    rows = []
    for density in (0.27, 0.08):
        for seed in seeds:
            data = planted(seed, density=density)
            truth, X = truth_of(data), data.control
            for match in (None, 20, 30, 50):
                for targets in (5.0, 10.0, 20.0) if match == 30 else (10.0,):
                    for gamma in (0.3, 0.5, 0.7, 1.0, 1.5):
                        m, moves = learned(data, match=match, epsilon=targets, gamma=gamma)
                        same = data.treated_types == np.arange(4)[:, None]
                        within = (m.weights(X) @ same.T)[np.arange(len(truth)), data.control_types].mean()
                        rows.append({
                            "stored": density, "match": str(match), "targets": targets, "gamma": gamma, "seed": seed,
                            "mass within the type": float(within), **scored(moves, truth, pooled_field(m, X)),
                        })  # fmt: skip
    return rows


def two_fates(seeds: Iterable[int]) -> list[Row]:
    """Look-alike control cells that split between two fates: how much of a cell's move is that of its own fate."""
    rows = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        n, d = 400, 200
        X = rng.normal(size=(n, d))
        fate = rng.integers(0, 2, size=n)
        X[:, 0] += np.where(fate == 1, 1.5, -1.5)  # all that tells them apart
        Y = rng.normal(size=(n, d))
        goal = np.arange(n) % 2
        Y[:, 0] += np.where(goal == 1, 1.5, -1.5)
        Y[:, 1:11] += np.where(goal == 1, 4.0, -4.0)[:, None]
        for name, pool in (("unpooled", None), ("pool = 30", 30), ("default", "auto")):
            m = oc.MongeMap(oc.L1(1.0), 10, "perplexity", relax=1.0, match=30, pool=pool).fit(X, Y)
            ends = m.transform(X)[:, 1:11].mean(axis=1)
            distance, middle = np.abs(np.abs(ends) - 4).mean(), (np.abs(ends) < 2).mean()
            rows.append({"map": name, "seed": seed, "distance to the nearer fate": float(distance),
                         "cells in the middle": float(middle)})
    return rows


# -- real cells --------------------------------------------------------------------------------------------------


def kang() -> Any:
    """The interferon cells, normalised and logged, with genes that 20 cells or more have."""
    import scanpy

    cells = oc.datasets.kang_ifnb()
    scanpy.pp.filter_genes(cells, min_cells=20)
    scanpy.pp.normalize_total(cells, target_sum=1e4)
    scanpy.pp.log1p(cells)
    return cells


def by_donors() -> list[Row]:
    """The map from half of the donors; the truth from the others: a Wilcoxon test within each annotated type."""
    cells, rows = kang(), []
    donor = cells.obs["donor"].astype(str)
    names = sorted(donor.unique())
    for way, (fitted, others) in enumerate(((names[:4], names[4:]), (names[4:], names[:4]))):
        truth_by_type = confirmed(cells[donor.isin(others)])
        adata = cells[donor.isin(fitted)].copy()
        control = (adata.obs["condition"] == "control").to_numpy()
        kinds = adata.obs["cell_type"].astype(str).to_numpy()[control]
        held = np.isin(kinds, list(truth_by_type))
        truth = np.stack([truth_by_type[kind] for kind in kinds[held]])
        asked = {"groupby": "condition", "control": "control", "target": "stimulated", "verbose": False}
        X = sp.csr_array(adata.X[control])

        def add(method: str, found: Row, way: int = way) -> None:
            rows.append({"method": method, "way": way, **found})

        maps: dict[str, Row] = {
            "paper: ½ℓ2², ε = 0.1 × mean": {"cost": oc.SqL2(), **PAPER},
            "paper: ℓ1 γ = 1, ε = 0.1 × mean": {"gamma": 1.0, **PAPER},
            "default of version 0.1": BEFORE,
            "pool = 30": {"pool": 30},
            "pool = 100": {"pool": 100},
            "**default: pool = auto**": {},
            "matched in all genes": {"match": None},
            "γ = 0.7": {"gamma": 0.7},
            "γ = 1": {"gamma": 1.0},
            "pooled by the annotation": {"pool": "cell_type"},
        }
        for name, given in maps.items():
            m = oc.tl.monge_map(adata, **{**asked, **given})
            moves = adata.layers["occamap_displacement"][control].toarray()
            score = None if m.pool is None else pooled_field(m, X)[held]
            add(name, scored(moves[held], truth, score))
        m = oc.tl.monge_map(adata, **asked)
        dense = adata.X.toarray()
        every = np.tile(welch(dense[control], dense[~control]), (int(held.sum()), 1))
        add("one t-test for all cells", {"AP": scored(truth * 0.0, truth, every)["AP"]})
        own = np.zeros((control.sum(), adata.n_vars))
        treated = adata.obs["cell_type"].astype(str).to_numpy()[~control]
        for kind in np.unique(kinds[held]):
            own[kinds == kind] = welch(dense[control][kinds == kind], dense[~control][treated == kind])
        add("oracle: t-test within the annotated type", {"AP": scored(truth * 0.0, truth, own[held])["AP"]})
        change = lemur(adata)
        if change is not None:
            add("pyLEMUR, 30 dimensions", {"moving": 1.0, "AP": scored(change[held], truth)["AP"]})
            pooled = np.asarray(m.neighbourhoods() @ change)[held]
            add("pyLEMUR, pooled likewise", {"moving": 1.0, "AP": scored(pooled, truth)["AP"]})
    return rows


def confirmed(cells: Any) -> dict[str, Mask]:
    """Genes that scanpy's Wilcoxon test finds at 5 % (Benjamini-Hochberg), in types with 30 cells a condition."""
    import scanpy

    found: dict[str, Mask] = {}
    for kind in cells.obs["cell_type"].astype(str).unique():
        mine = cells[cells.obs["cell_type"].astype(str) == kind].copy()
        counts = mine.obs["condition"].value_counts()
        if len(counts) == 2 and counts.min() >= 30:
            compared = {"groups": ["stimulated"], "reference": "control", "method": "wilcoxon"}
            scanpy.tl.rank_genes_groups(mine, "condition", **compared)
            table = scanpy.get.rank_genes_groups_df(mine, "stimulated").set_index("names").loc[mine.var_names]
            found[kind] = (table["pvals_adj"] < 0.05).to_numpy()
    return found


def welch(a: NDArray[Any], b: NDArray[Any]) -> Floats:
    with np.errstate(all="ignore"):
        t = stats.ttest_ind(b, a, equal_var=False).statistic
    return np.abs(np.nan_to_num(t))


def held_out(splits: int = 8) -> list[Row]:
    """Sinkhorn divergence of moved test cells to held-out treated ones, on 50 components of the train cells."""
    cells, rows = kang(), []
    treated = (cells.obs["condition"] == "stimulated").to_numpy()
    X, Y = sp.csr_array(cells.X[~treated]), sp.csr_array(cells.X[treated])
    kinds = [cells.obs["cell_type"].astype(str).to_numpy()[side] for side in (~treated, treated)]
    pairs = (ShuffleSplit(splits, test_size=0.2, random_state=seed).split(side) for seed, side in enumerate((X, Y)))
    for split, ((x, x_test), (y, y_test)) in enumerate(zip(*pairs, strict=True)):
        drawn, y_rest = y[: len(y_test)], y[len(y_test) :]  # cells vary more on components that they had a part in
        components = PCA(50, random_state=0).fit(np.vstack([X[x].toarray(), Y[y_rest].toarray()]))
        goal = components.transform(Y[y_test].toarray())

        def add(method: str, moved: Any, density: float | None, goal: Floats = goal, split: int = split,
                components: PCA = components) -> None:
            here = components.transform(moved.toarray() if sp.issparse(moved) else moved)
            value = oc.metrics.sinkhorn_divergence(here, goal)
            rows.append({"method": method, "split": split, "moving": density, "divergence": float(value)})

        add("nothing moves", X[x_test], 0.0)
        add("other treated cells", Y[drawn], None)
        shifted = X[x_test].toarray()
        for kind in np.unique(kinds[0]):
            a, b = X[x][kinds[0][x] == kind], Y[y][kinds[1][y] == kind]
            if a.shape[0] and b.shape[0]:
                shifted[kinds[0][x_test] == kind] += np.asarray(b.mean(axis=0) - a.mean(axis=0))
        add("mean shift by annotated type", shifted, 1.0)
        paper = oc.MongeMap(oc.SqL2(), 0.1).fit(X[x], Y[y])
        add("paper's dense map", paper.transform(X[x_test]), 1.0)
        for match in (None, 30):
            for gamma in (0.1, 0.3, 0.5, 0.75, 1.0):
                m = oc.MongeMap(oc.L1(gamma), 10, "perplexity", relax=1.0, match=match).fit(X[x], Y[y])
                for pool in (None, 5, 10, 30, 100, "auto"):
                    moves = m.set_params(pool=pool).displacement(X[x_test])
                    density = moves.nnz / (moves.shape[0] * moves.shape[1])
                    name = f"match = {match}, γ = {gamma:g}, pool = {pool}"
                    add(name, X[x_test] + moves, density)
    return rows


# -- time --------------------------------------------------------------------------------------------------------


def times(turns: int = 5) -> list[Row]:
    """Plain and pooled displacements of all control cells, in turn."""
    data = oc.datasets.simulate_perturbation(2677, 499, 34_636, density=0.045)
    X, rows = data.control, []
    begun = time.perf_counter()
    m = oc.MongeMap(oc.L1(1.0), 10, "perplexity", relax=1.0).fit(X, data.treated)
    fit = time.perf_counter() - begun
    begun = time.perf_counter()
    matched = oc.MongeMap(oc.L1(1.0), 10, "perplexity", relax=1.0, match=30).fit(X, data.treated)
    rows.append({"what": "fit, in all genes / on 30 components", "seconds": fit, "beside": time.perf_counter() - begun})
    for fitted, name in ((m, "matched in all genes"), (matched, "matched on 30 components")):
        for pool in (None, 30, 100, "auto"):
            fitted.set_params(pool=pool).displacement(X)  # neighbourhoods are found once
        for pool in (30, 100, "auto"):
            ratios, seconds = [], []
            for _ in range(turns):
                taken = []
                for reading in (None, pool):
                    fitted.set_params(pool=reading)
                    begun = time.perf_counter()
                    fitted.displacement(X)
                    taken.append(time.perf_counter() - begun)
                ratios.append(taken[1] / taken[0])
                seconds.append(taken)
            plain, pooled = np.median(seconds, axis=0)
            rows.append({"what": f"{name}, pool = {pool}", "seconds": float(plain), "beside": float(pooled),
                         "ratio": float(np.median(ratios))})
    return rows


# -- the page ----------------------------------------------------------------------------------------------------

PARTS: dict[str, tuple[str, Callable[[], list[Row]], list[str]]] = {
    "planted": ("Planted truth, seeds 3000 to 3004", lambda: against_truth(FRESH), ["stored", "method"]),
    "range": ("The default over depth, effects, cells and types, seeds 3000 and 3001",
              lambda: over_range(FRESH[:2]), ["data"]),
    "neighbourhoods": ("Ways to choose neighbours, at the γ of the default, seeds 1000 and 1001",
                       lambda: by_neighbourhood(KNOWN), ["data", "neighbours"]),
    "chain": ("Match, effective targets and γ, pool = auto, seeds 1000 and 1001", lambda: by_chain(KNOWN),
              ["stored", "match", "targets", "gamma"]),
    "donors": ("Interferon cells: map from half of the donors, truth from the others", by_donors, ["method"]),
    "heldout": ("Interferon cells: held-out divergence, 8 splits", held_out, ["method"]),
    "fates": ("Look-alike cells of two fates, seeds 3000 to 3004", lambda: two_fates(FRESH), ["map"]),
    "time": ("Seconds to move 2,677 control cells towards 499 others, 34,636 genes: plain, pooled", times, ["what"]),
}


def table(rows: list[Row], keys: list[str]) -> str:
    """Means over seeds, ways or splits, with the standard deviation."""
    frame = pd.DataFrame(rows)
    numbers = [name for name in frame.columns if name not in (*keys, "seed", "way", "split")]
    groups = frame.groupby(keys, sort=False)[numbers]
    mean, spread = groups.mean(), groups.std()
    lines = ["| " + " | ".join([*keys, *numbers]) + " |", "|---" * (len(keys) + len(numbers)) + "|"]
    for index in mean.index:
        named = index if isinstance(index, tuple) else (index,)
        cells = [_text(mean.loc[index, name], spread.loc[index, name], name) for name in numbers]
        lines.append("| " + " | ".join([*map(str, named), *cells]) + " |")
    return "\n".join(lines)


def _text(mean: float, spread: float, name: str) -> str:
    if np.isnan(mean):
        return ""
    if name == "moving":
        return f"{mean:.1%}"
    digits = 1 if name == "divergence" else 2 if name in ("seconds", "beside", "ratio") else 3
    return f"{mean:.{digits}f}" + ("" if np.isnan(spread) else f" ± {spread:.{digits}f}")


def main(names: list[str]) -> None:
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        sys.exit(f"there is no part {unknown[0]!r}: take some of {', '.join(PARTS)}")
    data = RESULTS / "resolution.json"
    kept = json.loads(data.read_text()) if data.exists() else {}
    for name in names or PARTS:
        if name in ("donors", "heldout") and "OCCAMAP_DATA" not in os.environ:
            print(f"{name}: skipped, OCCAMAP_DATA names no directory with kang_ifnb.h5ad")
            continue
        begun = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kept[name] = {"rows": PARTS[name][1](), "machine": facts()}
        print(f"{name}: {time.perf_counter() - begun:.0f} s\n{table(kept[name]['rows'], PARTS[name][2])}", flush=True)
        data.write_text(json.dumps(kept, indent=1))
    page = ["# In which cells: measurements", "", *__doc__.split("\n\n")[2:], ""]
    for name, (title, _, keys) in PARTS.items():
        if name in kept:
            command = f"`python -m benchmarks.resolution {name}`"
            page += [f"## {title}", "", table(kept[name]["rows"], keys), "", command, ""]
    (RESULTS / "resolution.md").write_text("\n".join(page))


if __name__ == "__main__":
    main(sys.argv[1:])
