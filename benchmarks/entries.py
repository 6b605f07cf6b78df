"""How sure, entry by entry: false discoveries and power of the displacements that a false-discovery rate lets through.

`python -m benchmarks.entries [planted] [nulls] [sizes] [donors] [nothing] [thinned] [interferon]` measures these parts,
or all if none is named, and writes benchmarks/results/entries.md and entries.json, where other parts stay as they are.
`interferon` needs kang_ifnb.h5ad in the directory that the environment variable OCCAMAP_DATA names.

An entry is a gene in a control cell. It is found if its q-value is at or below the level, and false if no effect was
planted in that gene for the true type of the cell. "False" is the mean share of false entries among those found (0 if
none is found); it should not exceed the level. "Power" is the share of the planted entries that are found. ± is the
standard error of the mean over data sets. Cells are simulated as in benchmarks/certainty.py. Maps do not use the cell
types, except in the rows "within types" and "one displacement per type". Wilcoxon's test runs within the true types,
and each cell gets the q-values of its type.

Null maps: the spread of each gene is learned from three maps between random halves of the control cells, pooled in the
same way, in units of √(Σw² + Σv²), where w and v are the weights of a neighbourhood and of its targets. p-values are
those of a normal distribution, or (1 + count)/(1 + draws) among all entries of the null maps.

Thinned: counts are split at random into two halves; cells are matched and pooled on one, and displacements are read in
the other. With unequal numbers of cells, "genes of types" are the rows of a gene table by type. Interferon cells: the
control cells of eight donors are split four against four, in all 35 ways; only donors differ. Then a map from four
donors (both conditions) is compared with the other four: "false by sign" is twice the share of the entries found whose
sign differs from that of the difference of means within the type in the other donors. It estimates the share of false
entries.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy import stats

import occamap as oc
import occamap.datasets.simulate as drawing
from benchmarks.certainty import DESIGNS, EMPTY, LEVELS, PLANTED, adjusted, as_text, ours, simulate, wilcoxon
from benchmarks.certainty import scored as by_gene
from benchmarks.parts import Benchmark, Row, Tables
from benchmarks.resolution import kang
from occamap._validate import check_samples
from occamap._workers import Workers
from occamap.maps.components import principal_components

Floats = NDArray[np.float64]
ASKED = {"groupby": "condition", "control": "control", "target": "treated", "verbose": False, "fdr": max(LEVELS)}


def q_of(adata: Any, **given: Any) -> Floats:
    """q-values of all entries, control cells × genes; 1 for those that are not found at the largest level."""
    oc.tl.monge_map(adata, **{**ASKED, **given})
    control = (adata.obs[given.get("groupby", "condition")] == given.get("control", "control")).to_numpy()
    found = sp.coo_array(adata.layers["occamap_q"][control])
    q = np.ones(found.shape)
    q[found.coords] = found.data
    return q


def truth_of(adata: Any) -> NDArray[np.bool_]:
    types = adata.obs["cell_type"].str.removeprefix("type ").astype(int).to_numpy()
    return np.asarray(adata.varm["moved"].T[types[(adata.obs["condition"] == "control").to_numpy()]])


def scored(q: Floats, truth: NDArray[np.bool_]) -> Row:
    row: Row = {}
    for level in LEVELS:
        found = q <= level
        row[f"false at {level:.0%}"] = float((found & ~truth).sum() / max(1, found.sum()))
        row[f"power at {level:.0%}"] = float((found & truth).sum() / truth.sum())
    return row


def by_wilcoxon(adata: Any) -> Floats:
    """Each cell gets the q-values of its true type."""
    types = adata.obs["cell_type"].str.removeprefix("type ").astype(int).to_numpy()
    return wilcoxon(adata)[types[(adata.obs["condition"] == "control").to_numpy()]]


def planted(seeds: Iterable[int] = PLANTED) -> Tables:
    made: Tables = {}
    for density in (0.27, 0.08):
        rows = made.setdefault(f"Planted, no donors, {density:.0%} of the entries stored", [])
        for seed in seeds:
            adata = simulate(seed, density=density)
            truth = truth_of(adata)
            for method, q in {
                "**default**": q_of(adata),
                "within types": q_of(adata, within="cell_type"),
                "one displacement per type": q_of(adata, within="cell_type", pool="cell_type"),
                "Wilcoxon within true types": by_wilcoxon(adata),
            }.items():
                rows.append({"method": method, **scored(q, truth)})
    return made


def nulls(seeds: Iterable[int] = PLANTED[:10]) -> Tables:
    """Standard errors of each neighbourhood beside the spread of null maps."""
    made: Tables = {}
    for density in (0.27, 0.08):
        rows = made.setdefault(f"Null maps, {density:.0%} of the entries stored", [])
        for seed in seeds:
            adata = simulate(seed, density=density)
            methods = {"**standard errors** (default)": q_of(adata), **by_null_maps(adata, seed)}
            rows += [{"method": method, **scored(q, truth_of(adata))} for method, q in methods.items()]
    return made


def by_null_maps(adata: Any, seed: int, count: int = 3) -> dict[str, Floats]:
    """q-values of all entries, if noise is what maps between halves of the control cells show."""
    control = adata[adata.obs["condition"] == "control"].copy()
    drawn = []
    for k in range(count):
        half = np.random.default_rng([seed, k]).permutation(np.arange(control.n_obs) % 2)
        control.obs["half"] = np.where(half == 0, "first", "second")
        drawn.append(standardised_field(control, groupby="half", control="first", target="second"))
    null = np.vstack(drawn)
    spread = np.sqrt((null**2).mean(axis=0))
    spread[spread == 0] = np.inf
    scores, ordered = np.abs(standardised_field(adata) / spread), np.sort(np.abs(null / spread).ravel())
    beyond = ordered.size - np.searchsorted(ordered, scores.ravel(), side="left")
    counted = ((1 + beyond) / (1 + ordered.size)).reshape(scores.shape)
    p = {"normal": 2 * stats.norm.sf(scores), "counted": counted}
    return {f"spread of a gene in null maps, {way}": adjusted(values) for way, values in p.items()}


def standardised_field(adata: Any, **given: Any) -> Floats:
    """Pooled differences without a penalty, over √(Σw² + Σv²)."""
    asked = {**ASKED, "fdr": None, "cost": oc.SqL2(), **given}
    fitted = oc.tl.monge_map(adata, **asked)
    rows, columns = ((adata.obs[asked["groupby"]] == asked[side]).to_numpy() for side in ("control", "target"))
    own = sp.csr_array(fitted.neighbourhoods())
    match = sp.csr_array(adata.obsp["occamap_match"])[rows][:, columns]
    targets = own @ sp.diags_array(1 / match.sum(axis=1)) @ match
    size = np.sqrt(own.power(2).sum(axis=1) + targets.power(2).sum(axis=1))
    return np.asarray(adata.layers["occamap_displacement"][rows].toarray()) / size[:, None]


def sizes(seeds: Iterable[int] = PLANTED[:10]) -> Tables:
    """Conditions of unequal size, within types: entries, and genes of types."""
    planting: list[Row] = []
    empty: list[Row] = []
    for n, m in ((200, 2000), (2000, 200), (200, 800), (800, 200)):
        for seed in seeds:
            cells = f"{n:,} + {m:,}"
            adata = unequal(simulate(seed, cells=max(n, m)), n, m)
            truth = truth_of(adata)
            planting.append({"cells": cells, "method": "entries", **scored(q_of(adata, within="cell_type"), truth)})
            genes = ours(adata, None)
            planting.append({"cells": cells, "method": "genes of types", **by_gene(genes, adata.varm["moved"].T)})
            adata = unequal(simulate(seed + 1000, cells=max(n, m), moved=0, shared=0), n, m)
            empty.append({"cells": cells, **anything(q_of(adata)), "anything in genes": any_gene(adata)})
    return {
        "Planted, unequal numbers of cells, within types": planting,
        "Nothing planted, unequal numbers of cells, default match, one table": empty,
    }


def any_gene(adata: Any) -> float:
    return float((oc.tl.gene_table(adata)["q"] <= 0.1).any())


def unequal(adata: Any, n: int, m: int) -> Any:
    """The first n control and m treated cells."""
    treated = (adata.obs["condition"] != "control").to_numpy()
    return adata[np.concatenate([np.flatnonzero(~treated)[:n], np.flatnonzero(treated)[:m]])].copy()


def donors(seeds: Iterable[int] = PLANTED) -> Tables:
    made: Tables = {}
    for design, given in DESIGNS.items():
        rows = made.setdefault(f"Planted, {design}", [])
        for seed in seeds:
            adata = simulate(seed, **given)
            truth = truth_of(adata)
            rows.append({"method": '**replicate="donor"**', **scored(q_of(adata, replicate="donor"), truth)})
            rows.append({"method": "without replicate", **scored(q_of(adata), truth)})
    return made


def nothing(seeds: Iterable[int] = EMPTY) -> Tables:
    names = "6 donors, paired", "4 + 4 donors", "6 donors, paired, crossed"
    designs = {"no donors": {}, **{name: DESIGNS[name] for name in names}}
    rows = []
    for seed in seeds:
        for design, given in designs.items():
            adata = simulate(seed, moved=0, shared=0, **given)
            ways = {"over cells": None} | ({'replicate="donor"': "donor"} if given else {})
            rows += [{"design": design, "method": way, **anything(q_of(adata, replicate=column))}
                     for way, column in ways.items()]  # fmt: skip
    return {"Nothing planted": rows}


def anything(q: Floats) -> Row:
    found = q <= 0.1
    return {"anything at 10%": float(found.any()), "share of entries at 10%": float(found.mean())}


def thinned(seeds: Iterable[int] = PLANTED) -> Tables:
    made: Tables = {}
    for density in (0.27, 0.08):
        rows = made.setdefault(f"Thinned counts, {density:.0%} of the entries stored", [])
        for seed in seeds:
            adata = simulate(seed, density=density)
            truth = truth_of(adata)
            rows.append({"method": "**all counts for both**", **scored(q_of(adata), truth)})
            placing, reading = halves(adata, seed)
            for method, coordinates, values in (
                ("match on one half, read the other", placing, reading),
                ("match on one half, read all", placing, adata.X),
                ("match on all, read one half", adata.X, reading),
            ):
                part = adata.copy()
                part.X, part.obsm["placed"] = values, components(coordinates)
                rows.append({"method": method, **scored(q_of(part, match="placed"), truth)})
    return made


def halves(adata: Any, seed: int) -> list[Any]:
    """The counts, each in one of two halves at random; normalised and logged as the whole."""
    counts = sp.csr_array(adata.layers["counts"])
    first = counts.copy()
    first.data = np.random.default_rng([seed, 7]).binomial(counts.data.astype(np.int64), 0.5).astype(counts.dtype)
    second = sp.csr_array(counts - first)
    growth = adata.obs["growth"].to_numpy()
    return [sp.csr_matrix(drawing._log_normalise([part], [growth], 1e4)[0]) for part in (first, second)]


def components(X: Any) -> Floats:
    """The coordinates that cells would be matched on."""
    samples = check_samples(sp.csr_array(X), "X")
    with Workers(None) as workers:
        return principal_components([samples], 30, workers)(samples, workers)


def interferon() -> Tables:
    cells = kang()
    cells = cells[cells.obs["donor"].notna() & (cells.obs["donor"].astype(str) != "unassigned")].copy()
    return {"Interferon cells: random parts of the control cells": parted(cells),
            "Interferon cells: control donors split, 35 ways": pretended(cells),
            "Interferon cells: one half of the donors against the other": replicated(cells)}  # fmt: skip


def parted(cells: Any) -> list[Row]:
    control, rows = cells[cells.obs["condition"] == "control"].copy(), []
    for n, m in ((600, 600), (100, 1100), (1100, 100), (50, 500), (500, 50)):
        for seed in range(10):
            drawn = np.random.default_rng([seed, 11]).permutation(control.n_obs)[: n + m]
            adata = control[drawn].copy()
            adata.obs["part"] = ["first"] * n + ["second"] * m
            asked = {"groupby": "part", "control": "first", "target": "second"}
            for method, given in {"default": {}, "within types": {"within": "cell_type"}}.items():
                if given and n != m:  # few types have 20 cells on the smaller side
                    continue
                q, name = q_of(adata, **asked, **given), f"{n:,} + {m:,}"
                rows.append({"cells": name, "method": method, **anything(q), "anything in genes": any_gene(adata)})
    return rows


def pretended(cells: Any) -> list[Row]:
    from itertools import combinations

    control = cells[cells.obs["condition"] == "control"].copy()
    names = sorted(control.obs["donor"].astype(str).unique())
    rows = []
    for some in combinations(names[1:], 3):
        first = control.obs["donor"].astype(str).isin([names[0], *some])
        control.obs["half"] = np.where(first, "first", "second")
        asked = {"groupby": "half", "control": "first", "target": "second"}
        for method, given in {
            'replicate="donor"': {"replicate": "donor"},
            'replicate="donor", within types': {"replicate": "donor", "within": "cell_type"},
            "over cells": {},
        }.items():
            rows.append({"method": method, **anything(q_of(control, **asked, **given))})
    return rows


def replicated(cells: Any) -> list[Row]:
    donor, kind = cells.obs["donor"].astype(str), cells.obs["cell_type"].astype(str)
    names, rows = sorted(donor.unique()), []
    for mine, theirs in ((names[:4], names[4:]), (names[4:], names[:4])):
        adata, other = cells[donor.isin(mine)].copy(), cells[donor.isin(theirs)]
        treated = (other.obs["condition"] != "control").to_numpy()
        shift = {}
        for name in kind.unique():
            inside = (other.obs["cell_type"].astype(str) == name).to_numpy()
            if min((inside & treated).sum(), (inside & ~treated).sum()) >= 30:
                shift[name] = np.asarray(other.X[inside & treated].mean(0) - other.X[inside & ~treated].mean(0)).ravel()
        control = (adata.obs["condition"] == "control").to_numpy()
        mykind = adata.obs["cell_type"].astype(str).to_numpy()[control]
        for method, given in {
            'replicate="donor", within types': {"replicate": "donor", "within": "cell_type"},
            'replicate="donor"': {"replicate": "donor"},
            "within types": {"within": "cell_type"},
            "default": {},
        }.items():
            q = q_of(adata, target="stimulated", **given)
            moves = adata.layers["occamap_displacement"][control].toarray()
            held = np.isin(mykind, list(shift))
            there = np.stack([shift[name] for name in mykind[held]])
            found = (q[held] <= 0.1) & (there != 0)
            wrong = np.mean(np.sign(moves[held][found]) != np.sign(there[found])) if found.any() else 0.0
            share = float((q[held] <= 0.1).mean())
            rows.append({"method": method, "false by sign": 2 * float(wrong), "share of entries at 10%": share})
    return rows


PARTS: dict[str, Callable[[], Tables]] = {
    "planted": planted, "nulls": nulls, "sizes": sizes, "donors": donors, "nothing": nothing, "thinned": thinned,
    "interferon": interferon,
}  # fmt: skip


BENCHMARK = Benchmark("entries", "How sure, entry by entry: measurements", __doc__, PARTS, as_text)

if __name__ == "__main__":
    BENCHMARK.main(sys.argv[1:])
