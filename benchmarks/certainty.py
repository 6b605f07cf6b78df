"""How sure: false discoveries and power of the q-values of gene tables, by cells and across donors.

`python -m benchmarks.certainty [planted] [donors] [nothing] [panels] [sets] [weights] [interferon]` measures these
parts, all if none is named, and writes benchmarks/results/certainty.md and certainty.json; other parts are kept as they
are there. `interferon` and a part of `weights` need kang_ifnb.h5ad in the directory that the environment variable
OCCAMAP_DATA names. The comparison with PyDESeq2 runs where that is installed, or else with the Python that the
environment variable PYDESEQ2_PYTHON names.

A finding is a pair of a gene and a cell type with q at or below the level; q-values are over all pairs. "False" is the
mean share of false ones among the findings (0 where nothing is found), which the level should bound; "power" is the
share of the planted pairs that are found. ± is the standard error of the mean over data sets.

Planted truth: 800 + 800 cells, 3,000 genes, 4 types, effects of ±0.7 to 1.6 in natural logs on 60 genes per type, 20 of
them shared, counts scaled to 10,000 per cell and logged, without side effects on other genes. Donors multiply the rates
of each gene by log-normal factors (σ = 0.3), alike in all types, and their response by others (σ = 0.15): a gene
without a planted effect changes in every donor, but not on average over donors. The largest of the unequal donors has
five times the cells of the smallest. Of crossed ones, the largest in one condition is the smallest in the other. Cells
are matched within the true types. Wilcoxon's test and pseudobulk also run within the true types; pseudobulk sums the
counts of a donor, type and condition, and takes a t-test of log1p CPM (paired, or Welch's) of genes with 10 counts or
more; totals are corrected for the planted growth.

Weights of donors: proportional to 1/(1/e + c/ē), where e is the effective number of cells of a donor in a group, and ē
the mean of e over donors. c = 1 is used. It was chosen from these tables, whose seeds are in no other, and from
splits of real donors (docs/measured/moderation.md).

Gene sets: 80 sets of 30 genes without a planted effect, and 20 sets of 20 such genes and 10 with one. A set is true in
a type if one of its genes has an effect there. They are tested by `tl.pathway_table`, with the same maps.

The interferon cells were used to design the test across donors: the 4-against-4 splits to choose how variances are
moderated, and these and a third of the 3-against-5 splits beside simulated donors to choose c. Cells without a donor
are left out.

AP is the average precision of |z| in half of the donors, with the findings of the other half as the truth; ρ of halves
is Spearman's correlation of z between the halves. Both are over the pairs that all methods test. Jaccard is the number
of pairs that both methods find over the number that either finds.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy import stats
from sklearn.metrics import average_precision_score

import occamap as oc
import occamap.datasets.simulate as drawing
from benchmarks.parts import Benchmark, Row, Tables
from benchmarks.resolution import kang
from occamap.genes import effects, rank_sum
from occamap.inference import shares

PLANTED, EMPTY, TUNING = range(7000, 7020), range(8000, 8050), range(9000, 9004)
LEVELS = (0.05, 0.1, 0.2)
LEAST_COUNT = 10  # of a gene in the pseudobulks of a type
LEAST_CELLS, LEAST_DONORS = 3, 3  # of a pseudobulk, and in both conditions, for PyDESeq2
DESIGNS: dict[str, dict[str, Any]] = {
    "6 donors, paired": {"donors": 6},
    "4 + 4 donors": {"donors": 4, "paired": False},
    "3 donors, paired": {"donors": 3},
    "4 + 4 unequal donors": {"donors": 4, "paired": False, "ratio": 5.0},
    "6 donors, paired, crossed": {"donors": 6, "ratio": 5.0, "crossed": True},
}
WEIGHTS = {"by cells": None, "c = 0": 0.0, "c = ½": 0.5, "**c = 1**": 1.0, "c = 2": 2.0, "c = 4": 4.0, "equal": 1e9}
WITH, WITHOUT = '**replicate="donor"**', "without replicate"
Floats = NDArray[np.float64]


# -- simulated donors --------------------------------------------------------------------------------------------


def simulate(
    seed: int, *, cells: int = 800, genes: int = 3000, types: int = 4, moved: int = 60, shared: int = 20,
    density: float = 0.27, donors: int = 0, base: float = 0.3, response: float = 0.15, paired: bool = True,
    ratio: float = 1.0, crossed: bool = False,
) -> Any:  # fmt: skip
    """Cells as the text above says, in an AnnData; `varm["moved"]` has the truth, genes × types, without donors if 0.

    `base` and `response` are the standard deviations between donors. Unpaired donors are in one condition each.
    The largest donor has `ratio` times the cells of the smallest, and the others are spaced evenly between them; if
    `crossed`, the largest in one condition is the smallest in the other.
    """
    import anndata

    rng = np.random.default_rng(seed)
    rates = drawing._draw_rates(types, genes, rng)
    change = drawing._draw_response(rates, shared, moved - shared, (1.15, 0.45 / 1.15), rng)
    count, spread = (donors, base) if donors else (1, 0.0)
    own = rng.normal(scale=spread, size=(count, genes))
    later = own if paired else rng.normal(scale=spread, size=(count, genes))
    later = later + rng.normal(scale=response if donors else 0.0, size=(count, genes))
    kinds = [rng.permutation(np.arange(cells) % types) for _ in range(2)]
    shares = np.linspace(1, ratio, count) / np.linspace(1, ratio, count).sum()
    people = [
        rng.integers(count, size=cells) if ratio == 1 else rng.choice(count, size=cells, p=p)
        for p in (shares, shares[::-1] if crossed else shares)
    ]
    library = rng.lognormal(sigma=drawing.LIBRARY_SPREAD, size=2 * cells)

    control, treated = (
        (rates * np.exp(by_type + by_donor[:, None])).reshape(-1, genes)
        for by_type, by_donor in ((0.0 * change, own), (change, later))
    )  # donors and types × genes
    library *= drawing._depth(density, library, [(0.5, control), (0.5, treated)])
    parts = [person * types + kind for person, kind in zip(people, kinds, strict=True)]
    counts = [
        drawing._draw_counts(size, rate, part, rng)
        for size, rate, part in zip((library[:cells], library[cells:]), (control, treated), parts, strict=True)
    ]
    growth = [rate.mean(axis=1)[part] for rate, part in zip((control, treated), parts, strict=True)]
    X = sp.csr_matrix(sp.vstack(drawing._log_normalise(counts, growth, 1e4)))  # scanpy's test refuses csr_array
    names = [people[0], people[1] + (0 if paired else count)]
    obs = pd.DataFrame({
        "condition": np.repeat(["control", "treated"], cells),
        "cell_type": [f"type {kind}" for kind in np.concatenate(kinds)],
        "donor": [f"donor {name}" for name in np.concatenate(names)],
        "growth": np.concatenate(growth),
    }, index=[f"cell {k}" for k in range(2 * cells)])  # fmt: skip
    obs["condition"] = obs["condition"].astype("category")
    var = pd.DataFrame(index=[f"gene {k}" for k in range(genes)])
    layers = {"counts": sp.vstack(counts, format="csr")}
    return anndata.AnnData(X, obs, var, layers=layers, varm={"moved": (change != 0).T})


def learn(adata: Any, within: str | None = "cell_type", **given: Any) -> None:
    asked = {"groupby": "condition", "control": "control", "target": "treated", "verbose": False, **given}
    oc.tl.monge_map(adata, within=within, **asked)


def wide(table: pd.DataFrame, column: str, adata: Any) -> Floats:
    """A column of a table by cell types, as types × genes."""
    return table[column].unstack("gene").sort_index()[adata.var_names].to_numpy()


def ours(adata: Any, replicate: str | None) -> Floats:
    """q, types × genes."""
    return wide(oc.tl.gene_table(adata, by="cell_type", replicate=replicate), "q", adata)


def adjusted(p: Floats) -> Floats:
    """By Benjamini and Hochberg, over all that is not NaN."""
    q, tested = np.full(p.shape, np.nan), ~np.isnan(p)
    q[tested] = stats.false_discovery_control(p[tested])
    return q


def wilcoxon(adata: Any) -> Floats:
    """q of treated against control cells within types, types × genes, corrected for ties."""
    return adjusted(np.stack([_wilcoxon(mine) for _, mine in by_type(adata)]))


def _wilcoxon(cells: Any) -> Floats:
    if importlib.util.find_spec("scanpy") is None:
        treated = (cells.obs["condition"] == "treated").to_numpy()
        return rank_sum(sp.csr_array(cells.X[treated]), sp.csr_array(cells.X[~treated])).p
    import scanpy

    compared = {"groups": ["treated"], "reference": "control", "method": "wilcoxon", "tie_correct": True}
    scanpy.tl.rank_genes_groups(cells, "condition", **compared)
    table = scanpy.get.rank_genes_groups_df(cells, "treated").set_index("names")
    return table.loc[cells.var_names, "pvals"].to_numpy()


def by_type(adata: Any) -> Iterator[tuple[str, Any]]:
    kinds = adata.obs["cell_type"].astype(str)
    for kind in sorted(kinds.unique()):
        yield kind, adata[kinds == kind].copy()


def pseudobulk(adata: Any, paired: bool) -> Floats:
    """q of t-tests between donors, types × genes; totals are corrected for the response as those of cells are."""
    found = []
    for _, mine in by_type(adata):
        logs: dict[str, dict[str, Floats]] = {"control": {}, "treated": {}}
        counts = sp.csr_array(mine.layers["counts"])
        for (condition, donor), rows in mine.obs.groupby(["condition", "donor"], observed=True).indices.items():
            sums = counts[rows].sum(axis=0)
            total = (counts[rows].sum(axis=1) / mine.obs["growth"].to_numpy()[rows]).sum()
            logs[condition][donor] = np.log1p(1e6 * sums / total)
        before, after = logs["control"], logs["treated"]
        if paired:
            both = [donor for donor in before if donor in after]
            p = stats.ttest_rel([after[donor] for donor in both], [before[donor] for donor in both]).pvalue
        else:
            p = stats.ttest_ind(list(after.values()), list(before.values()), equal_var=False).pvalue
        found.append(np.where(counts.sum(axis=0) >= LEAST_COUNT, p, np.nan))
    return adjusted(np.stack(found))


def scored(q: Floats, truth: NDArray[np.bool_]) -> Row:
    """The share of false findings and the power at each level."""
    false, power = {}, {}
    for level in LEVELS:
        found = q <= level
        false[f"false at {level:.0%}"] = float((found & ~truth).sum() / max(1, found.sum()))
        power[f"power at {level:.0%}"] = float((found & truth).sum() / max(1, truth.sum()))
    return {**false, **power}


def against_truth(seeds: Iterable[int] = PLANTED) -> Tables:
    rows = []
    for density in (0.27, 0.08):
        for seed in seeds:
            adata = simulate(seed, density=density)
            learn(adata)
            methods = {"**gene_table**": ours(adata, None), "Wilcoxon within types": wilcoxon(adata)}
            for name, q in methods.items():
                stored = f"{density:.0%}"
                rows.append({"stored": stored, "method": name, "seed": seed, **scored(q, adata.varm["moved"].T)})
    return {"Planted truth without donors, seeds 7000 to 7019": rows}


def across_donors(seeds: Iterable[int] = PLANTED) -> Tables:
    rows = []
    for design, given in DESIGNS.items():
        for seed in seeds:
            adata = simulate(seed, **given)
            learn(adata)
            methods = {
                WITH: ours(adata, "donor"),
                WITHOUT: ours(adata, None),
                "Wilcoxon within types": wilcoxon(adata),
                "pseudobulk, t-test": pseudobulk(adata, given.get("paired", True)),
            }
            for name, q in methods.items():
                rows.append({"data": design, "method": name, "seed": seed, **scored(q, adata.varm["moved"].T)})
    return {"Planted truth and donors, seeds 7000 to 7019": rows}


def with_nothing(seeds: Iterable[int] = EMPTY) -> Tables:
    """Whether anything is found at 10 % where nothing was planted."""
    rows = []
    paired = {name: DESIGNS[name] for name in ("6 donors, paired", "6 donors, paired, crossed")}
    for design, given in {"no donors": {}, **paired}.items():
        for seed in seeds:
            adata = simulate(seed, moved=0, shared=0, **given)
            learn(adata)
            methods = {WITHOUT: ours(adata, None), "Wilcoxon within types": wilcoxon(adata)}
            if given:
                methods = {WITH: ours(adata, "donor"), **methods, "pseudobulk, t-test": pseudobulk(adata, True)}
            for name, q in methods.items():
                rows.append({"data": design, "method": name, "seed": seed, **anything(q)})
    return {"Nothing planted, seeds 8000 to 8049": rows}


def anything(q: Floats) -> Row:
    found = int((q <= 0.1).sum())
    return {"anything at 10%": float(found > 0), "findings, mean": found}


def panels(seeds: Iterable[int] = PLANTED, empty: Iterable[int] = EMPTY) -> Tables:
    """Few genes, from which less can be learned of the variance between donors."""
    planted, nothing = [], []
    for genes in (300, 1000):
        given = {"genes": genes, "base": 0.4, **DESIGNS["4 + 4 donors"]}
        few = {"moved": genes // 25, "shared": genes // 100}
        for seed in seeds:
            adata = simulate(seed, **few, **given)
            learn(adata)
            for name, replicate in ((WITH, "donor"), (WITHOUT, None)):
                row = scored(ours(adata, replicate), adata.varm["moved"].T)
                planted.append({"data": f"{genes:,} genes", "method": name, "seed": seed, **row})
        for seed in empty:
            adata = simulate(seed, moved=0, shared=0, **given)
            learn(adata)
            for name, replicate in ((WITH, "donor"), (WITHOUT, None)):
                row = anything(ours(adata, replicate))
                nothing.append({"data": f"{genes:,} genes", "method": name, "seed": seed, **row})
    return {
        "Few genes, 4 + 4 donors who differ more (σ = 0.4), seeds 7000 to 7019": planted,
        "Few genes, 4 + 4 donors who differ more, nothing planted, seeds 8000 to 8049": nothing,
    }


def with_sets(seeds: Iterable[int] = PLANTED, empty: Iterable[int] = EMPTY) -> Tables:
    """Gene sets, with and without planted effects."""
    planted, nothing = [], []
    for design, given in {"no donors": {}, **{name: DESIGNS[name] for name in list(DESIGNS)[:3]}}.items():
        methods = {WITH: "donor", WITHOUT: None} if given else {WITHOUT: None}
        for seed in seeds:
            adata = simulate(seed, **given)
            learn(adata)
            sets, truth = drawn_sets(adata.varm["moved"], np.random.default_rng([seed, 1]))
            for name, replicate in methods.items():
                q = q_of_sets(adata, sets, replicate)
                planted.append({"data": design, "method": name, "seed": seed, **scored(q, truth)})
        for seed in empty:
            adata = simulate(seed, moved=0, shared=0, **given)
            learn(adata)
            sets, _ = drawn_sets(adata.varm["moved"], np.random.default_rng([seed, 1]))
            for name, replicate in methods.items():
                row = anything(q_of_sets(adata, sets, replicate))
                nothing.append({"data": design, "method": name, "seed": seed, **row})
    return {
        "Gene sets with planted genes, seeds 7000 to 7019": planted,
        "Gene sets, nothing planted, seeds 8000 to 8049": nothing,
    }


def drawn_sets(moved: NDArray[np.bool_], rng: np.random.Generator) -> tuple[list[NDArray[Any]], NDArray[np.bool_]]:
    """Genes of each set, and in which types one of them has an effect (types × sets)."""
    still, planted = (rng.permutation(np.flatnonzero(moved.any(axis=1) == moves)) for moves in (False, True))
    sets = list(still[: 80 * 30].reshape(80, 30))
    for _ in range(20 if planted.size else 0):
        sets.append(np.concatenate([rng.choice(still, 20, replace=False), rng.choice(planted, 10, replace=False)]))
    return sets, np.stack([moved[genes].any(axis=0) for genes in sets], axis=1)


def q_of_sets(adata: Any, sets: list[NDArray[Any]], replicate: str | None) -> Floats:
    """q, types × sets."""
    named = {f"set {k:03}": adata.var_names[genes].tolist() for k, genes in enumerate(sets)}
    table = oc.tl.pathway_table(adata, gene_sets=named, by="cell_type", replicate=replicate)
    return table["q"].unstack("pathway").sort_index()[list(named)].to_numpy()


# -- weights of donors -------------------------------------------------------------------------------------------


def weights() -> Tables:
    """How much donors with few cells count: in simulated donors and, if they are there, in the interferon cells."""
    designs = {
        **DESIGNS,
        "6 donors, paired, unequal": {"donors": 6, "ratio": 5.0},
        "4 + 4 donors, more unequal": {"donors": 4, "paired": False, "ratio": 10.0, "base": 0.4},
    }
    rows = []
    for design, given in designs.items():
        for seed in TUNING:
            adata = simulate(seed, **given)
            learn(adata)
            for name, even in WEIGHTS.items():
                with weighing(even):
                    row = scored(ours(adata, "donor"), adata.varm["moved"].T)
                row = {key: value for key, value in row.items() if "10%" in key}
                rows.append({"data": design, "weights": name, "seed": seed, **row})
    tables = {"Weights of donors, simulated, seeds 9000 to 9003": rows}
    if "OCCAMAP_DATA" in os.environ:
        cells = interferon_cells()
        tables["Weights of donors, interferon cells: 4 donors against the 4 others, 12 ways"] = list(weighed(cells))
    return tables


@contextmanager
def weighing(even: float | None) -> Iterator[None]:
    """Use another constant in the weights of donors; None: the weights of their cells."""
    kept = shares.EVEN, effects.balance
    try:
        if even is None:
            effects.balance = lambda W, V, *_: (W, V)
        else:
            shares.EVEN = even
        yield
    finally:
        shares.EVEN, effects.balance = kept


def weighed(cells: Any) -> Iterator[Row]:
    """Findings in 4 donors, and AP of |z| against the findings of the other 4 with the same weights; both ways."""
    donor = cells.obs["donor"].astype(str)
    names = sorted(donor.unique())
    splits = [split for split in combinations(names, 4) if names[0] in split]
    for way in np.random.default_rng(0).permutation(len(splits))[:12]:
        halves = [cells[donor.isin(people)].copy() for people in (splits[way], sorted({*names} - {*splits[way]}))]
        for half in halves:
            learn(half, target="stimulated")
        found = {}
        for name, even in WEIGHTS.items():
            with weighing(even):
                found[name] = [z_scores(half, "donor") for half in halves]
        pairs = found[name][0].index
        for index in (table.index for tables in found.values() for table in tables):
            pairs = pairs.intersection(index)
        for name, tables in found.items():
            z, q = ([table.loc[pairs, column] for table in tables] for column in ("z", "q"))
            ap = [average_precision_score(q[1 - k] <= 0.1, z[k].abs()) for k in range(2)]
            count = float(np.mean([(part <= 0.1).sum() for part in q]))
            yield {"weights": name, "split": int(way), "found": count, "AP": float(np.mean(ap))}


# -- interferon cells --------------------------------------------------------------------------------------------


def interferon_cells() -> Any:
    cells = kang()
    cells.layers["counts"] = oc.datasets.kang_ifnb()[cells.obs_names, cells.var_names].X
    return cells[cells.obs["donor"].astype(str) != "unassigned"].copy()


def interferon() -> Tables:
    cells = interferon_cells()
    return {
        "Control cells of the interferon data, 4 donors against the 4 others, all 35 ways (which are not independent)":
            pretended(cells),
        "Stimulated cells, 4 donors against the 4 others, all 35 ways": pretended(cells, "stimulated"),
        "Control cells, 3 donors against the 5 others, all 56 ways": pretended(cells, size=3),
        "Stimulated cells, 3 donors against the 5 others, all 56 ways": pretended(cells, "stimulated", size=3),
        **beside_pseudobulk(cells),
    }  # fmt: skip


def pretended(cells: Any, condition: str = "control", size: int = 4, ways: int | None = None) -> list[Row]:
    """Donors of cells of one condition, some called control and some treated: whether anything is found at 10 %."""
    adata, rows = cells[cells.obs["condition"] == condition].copy(), []
    donor = adata.obs["donor"].astype(str)
    names = sorted(donor.unique())
    splits = list(combinations(names, size))
    if 2 * size == len(names):
        splits = [split for split in splits if names[0] in split]  # either half may be called control
    for way, first in enumerate(splits[:ways]):
        adata.obs["pretended"] = np.where(donor.isin(first), "control", "treated")
        learn(adata, within=None, groupby="pretended")
        for name, replicate in ((WITH, "donor"), (WITHOUT, None)):
            q = oc.tl.gene_table(adata, replicate=replicate)["q"].to_numpy()
            rows.append({"table": "all cells, one table", "method": name, "split": way, **anything(q)})
        learn(adata, within="cell_type", groupby="pretended")
        for name, replicate in ((WITH, "donor"), (WITHOUT, None)):
            q = oc.tl.gene_table(adata, by="cell_type", replicate=replicate)["q"].to_numpy()
            rows.append({"table": "by type, matched within", "method": name, "split": way, **anything(q)})
    return rows


def beside_pseudobulk(cells: Any) -> Tables:
    """Findings in all donors; then each half of the donors against the findings of the other half."""
    donor = cells.obs["donor"].astype(str)
    names = sorted(donor.unique())
    chosen = {"all": names, "first": names[:4], "second": names[4:]}
    found = {half: tested(cells[donor.isin(people)].copy()) for half, people in chosen.items()}
    title = "Interferon cells: findings at 10 % in all 8 donors, beside PyDESeq2 on pseudobulks (~ donor + condition)"
    tables = {title: list(overlaps(found["all"]))}
    tables["Interferon cells: 4 donors against the findings of the 4 others at 10 %, both ways"] = list(
        replicated(found["first"], found["second"])
    )
    return tables


def tested(cells: Any) -> dict[str, pd.DataFrame]:
    """p, q and signed z-scores of pairs of a type and a gene, by method."""
    learn(cells, target="stimulated")
    found = {}
    for name, replicate in ((WITH, "donor"), (WITHOUT, None)):
        found[name] = z_scores(cells, replicate)
    python = sys.executable if importlib.util.find_spec("pydeseq2") else os.environ.get("PYDESEQ2_PYTHON")
    if python is None:
        print("PyDESeq2: left out, it is not installed and PYDESEQ2_PYTHON names no Python that has it")
        return found
    kinds = {kind for kind, _ in found[WITH].index}
    parts = {kind: part for kind, mine in by_type(cells) if kind in kinds and (part := bulks(mine)) is not None}
    with tempfile.TemporaryDirectory() as folder:
        for number, (counts, donors, treated) in enumerate(parts.values()):
            np.savez(f"{folder}/{number}.npz", counts=counts, donors=donors, treated=treated)
        script = f"{inspect.getsource(deseq)}\ndeseq({folder!r}, {len(parts)})\n"
        subprocess.run([python, "-c", script], check=True)
        results = [np.load(f"{folder}/{number}-found.npy") for number in range(len(parts))]
    index = pd.MultiIndex.from_product([parts, cells.var_names], names=["cell_type", "gene"])
    table = pd.DataFrame(np.concatenate(results, axis=1).T, index=index, columns=["z", "p"]).dropna()
    found["PyDESeq2"] = pd.DataFrame({"z": table["z"], "q": adjusted(table["p"].to_numpy())})
    return found


def z_scores(cells: Any, replicate: str | None) -> pd.DataFrame:
    """q and signed z-scores of pairs of a type and a gene."""
    table = oc.tl.gene_table(cells, by="cell_type", replicate=replicate)[["difference", "p", "q"]].dropna()
    z = np.sign(table["difference"]) * stats.norm.isf(np.maximum(table["p"], 1e-300) / 2)
    return pd.DataFrame({"z": z, "q": table["q"]})


def bulks(cells: Any) -> tuple[NDArray[Any], list[str], list[bool]] | None:
    """Sums of counts by donor and condition, of donors with enough cells in both; None if there are too few."""
    counts = sp.csr_array(cells.layers["counts"])
    places = cells.obs.groupby(["donor", "condition"], observed=True).indices
    large = {key: rows for key, rows in places.items() if len(rows) >= LEAST_CELLS}
    donors = sorted({donor for donor, _ in large if {(donor, "control"), (donor, "stimulated")} <= set(large)})
    if len(donors) < LEAST_DONORS:
        return None
    keys = [(donor, condition) for donor in donors for condition in ("control", "stimulated")]
    sums = np.stack([counts[large[key]].sum(axis=0) for key in keys]).round().astype(np.int64)
    sums[:, sums.sum(axis=0) < LEAST_COUNT] = 0
    return sums, [f"d{donor}" for donor, _ in keys], [condition == "stimulated" for _, condition in keys]


def deseq(folder: str, parts: int) -> None:
    """Statistics and p-values of the genes of each part, NaN of those without counts: run in a Python of its own."""
    import warnings

    import numpy as np
    import pandas as pd
    from pydeseq2.dds import DeseqDataSet
    from pydeseq2.ds import DeseqStats

    warnings.simplefilter("ignore")
    for number in range(parts):
        given = np.load(f"{folder}/{number}.npz")
        counted = given["counts"].sum(axis=0) > 0
        names = [f"s{k}" for k in range(len(given["donors"]))]
        condition = np.where(given["treated"], "stimulated", "control")
        about = pd.DataFrame({"donor": given["donors"], "condition": condition}, index=names)
        about["condition"] = pd.Categorical(about["condition"], ["control", "stimulated"])
        counts = pd.DataFrame(given["counts"][:, counted], index=names)
        counts.columns = [f"g{k}" for k in np.flatnonzero(counted)]
        data = DeseqDataSet(counts=counts, metadata=about, design="~donor + condition", quiet=True, n_cpus=2)
        data.deseq2()
        contrast = ["condition", "stimulated", "control"]
        found = DeseqStats(data, contrast=contrast, quiet=True, independent_filter=False, cooks_filter=False)
        found.summary()
        result = np.full((2, counted.size), np.nan)
        result[:, counted] = found.results_df[["stat", "pvalue"]].to_numpy(dtype=float).T
        np.save(f"{folder}/{number}-found.npy", result)


def overlaps(found: dict[str, pd.DataFrame]) -> Iterator[Row]:
    """How many pairs are tested and found, and what methods share with the last, over pairs that both test."""
    last = list(found)[-1]
    for name, table in found.items():
        yes = set(table.index[table["q"] <= 0.1])
        row: Row = {"method": name, "pairs tested": len(table), "found": len(yes)}
        if last == "PyDESeq2":
            both = set(table.index) & set(found[last].index)
            mine, theirs = yes & both, set(found[last].index[found[last]["q"] <= 0.1]) & both
            row |= {"also tested by PyDESeq2": len(both), "found of these": len(mine), "by PyDESeq2": len(theirs),
                    "by both": len(mine & theirs), "Jaccard": len(mine & theirs) / max(1, len(mine | theirs))}
        yield row


def replicated(first: dict[str, pd.DataFrame], second: dict[str, pd.DataFrame]) -> Iterator[Row]:
    """AP of |z| against what each method finds in the other donors; ρ of z between halves: over pairs all test."""
    every = [table.index for half in (first, second) for table in half.values()]
    pairs = every[0]
    for index in every[1:]:
        pairs = pairs.intersection(index)
    for name in first:
        for way, (half, other) in enumerate(((first, second), (second, first))):
            score = half[name].loc[pairs, "z"].abs()
            row: Row = {"method": name, "split": way, "pairs": len(pairs)}
            row["found"] = int((half[name].loc[pairs, "q"] <= 0.1).sum())
            for judge in first:
                if judge != WITHOUT:
                    truth = other[judge].loc[pairs, "q"] <= 0.1
                    plain = judge.replace("*", "")
                    row[f"AP, truth by {plain}"] = float(average_precision_score(truth, score))
            row["ρ of halves"] = float(stats.spearmanr(half[name].loc[pairs, "z"], other[name].loc[pairs, "z"])[0])
            yield row


# -- the page ----------------------------------------------------------------------------------------------------

PARTS: dict[str, Callable[[], Tables]] = {
    "planted": against_truth,
    "donors": across_donors,
    "nothing": with_nothing,
    "panels": panels,
    "sets": with_sets,
    "weights": weights,
    "interferon": interferon,
}


def as_text(mean: float, error: float, name: str) -> str:
    if name.startswith(("false", "power", "share", "anything")):
        return f"{mean:.1%}" + ("" if np.isnan(error) or name.startswith("anything") else f" ± {error:.1%}")
    if name.startswith(("AP", "ρ", "Jaccard")):
        return f"{mean:.3f}"
    return f"{mean:,.0f}" if mean == round(mean) or mean > 100 else f"{mean:,.1f}"


BENCHMARK = Benchmark("certainty", "How sure: measurements", __doc__, PARTS, as_text)

if __name__ == "__main__":
    BENCHMARK.main(sys.argv[1:])
