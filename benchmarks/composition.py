"""Composition: false discoveries where scaling to a common total shifts genes that did not change, and what helps.

`python -m benchmarks.composition [rates] [shift]` measures these parts, both if none is named, and writes
benchmarks/results/composition.md and composition.json; a part that is not named is kept as it is there.

Cells: 800 + 800, 3,000 genes, 4 types, 27 % of the entries stored, log fold changes of 0.7 to 1.6 in natural logs on
genes of each type, a third of them shared. "Up" has rising genes only, 60 or 200 per type; "balanced" has 30 that rise
and 30 that fall; in "nothing" there are none. "Growth" is the factor by which the response multiplies the total of a
treated cell, in the type where it is largest. Cells are scaled to 10,000 counts and logged, then matched within their
types.

A finding is a pair of a gene and a type with q ≤ 0.1, over all pairs; "false" is the mean share of false ones among the
findings, and "power" the share of the planted pairs that are found; ± is the standard error over data sets.

- as is: the total of all counts of a cell
- median of ratios: the normalised counts of treated cells of a type are divided by the median, over genes detected in
  at least 10 % of the cells, of the ratio of mean normalised counts of treated and control cells of that type
- without found genes: the total of the genes with q > 0.1 in every type, as is
- without high genes: `scanpy.pp.normalize_total(exclude_highly_expressed=True)`, which leaves out genes with more than
  5 % of the counts of some cell
- true total: the total divided by the growth, which nobody knows

"Shift" is the median of `log2_fold_change` over genes detected in at least 10 % of the cells of a type, as is, and
"expected" is −log2 of the growth, "error" the mean absolute difference of the two; "alarm" is the share of types in
which the shift is at least 0.1 and 5 standard errors. A report asks for care then.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray

import occamap as oc
import occamap.datasets.simulate as drawing
from benchmarks.certainty import learn, wide
from benchmarks.parts import Benchmark, Row, Tables
from occamap.genes.fold_changes import typical_shift

RESULTS = Path(__file__).with_name("results")
SEEDS = range(9000, 9010)
CELLS, GENES, TYPES = 800, 3000, 4
LEVEL = 0.1
DESIGNS: dict[str, dict[str, Any]] = {
    "up, 60 genes": {"moved": 60},
    "up, 200 genes": {"moved": 200},
    "up, 60 genes, 8 % stored": {"moved": 60, "density": 0.08},
    "balanced, 60 genes": {"moved": 60, "one_sided": False},
    "nothing": {"moved": 0},
}
EMPTY: dict[str, dict[str, Any]] = {
    "nothing, 8 % stored": {"moved": 0, "density": 0.08},
    "nothing, treated cells half as deep": {"moved": 0, "depth": 0.5},
    "nothing, 25 + 25 cells a type": {"moved": 0, "cells": 100},
}
Floats = NDArray[np.float64]


def simulate(
    seed: int, moved: int, one_sided: bool = True, density: float = 0.27, depth: float = 1.0, cells: int = CELLS
) -> Any:
    """Counts in X; obs has the growth of each cell, `varm["moved"]` the truth, genes × types.

    `depth` multiplies the libraries of treated cells.
    """
    import anndata

    rng = np.random.default_rng(seed)
    rates = drawing._draw_rates(TYPES, GENES, rng)
    shared = moved // 3
    change = drawing._draw_response(rates, shared, moved - shared, (1.15, 0.45 / 1.15), rng)
    treated = rates * np.exp(np.abs(change) if one_sided else change)
    kinds = [rng.permutation(np.arange(cells) % TYPES) for _ in range(2)]
    library = rng.lognormal(sigma=drawing.LIBRARY_SPREAD, size=2 * cells)
    library *= drawing._depth(density, library, [(0.5, rates), (0.5, treated)])
    halves = library[:cells], library[cells:] * depth
    drawn = zip(halves, (rates, treated), kinds, strict=True)
    counts = [drawing._draw_counts(size, rate, kind, rng) for size, rate, kind in drawn]
    growth = np.concatenate([np.ones(cells), (treated.mean(axis=1) / rates.mean(axis=1))[kinds[1]]])
    obs = pd.DataFrame({
        "condition": pd.Categorical(np.repeat(["control", "treated"], cells)),
        "cell_type": [f"type {kind}" for kind in np.concatenate(kinds)],
        "growth": growth,
    }, index=[f"cell {k}" for k in range(2 * cells)])  # fmt: skip
    var = pd.DataFrame(index=[f"gene {k}" for k in range(GENES)])
    return anndata.AnnData(sp.csr_matrix(sp.vstack(counts)), obs, var, varm={"moved": (change != 0).T})


# -- totals ------------------------------------------------------------------------------------------------------


def scaled(adata: Any, totals: Floats) -> Any:
    """log1p of the counts, scaled from these totals to 10,000."""
    factors = sp.diags_array(1e4 / np.maximum(totals, 1.0))
    made = adata.copy()
    made.X = sp.csr_matrix((factors @ sp.csr_array(adata.X)).log1p().astype(np.float32))
    return made


def total(adata: Any) -> Floats:
    return np.asarray(adata.X.sum(axis=1), dtype=np.float64).ravel()


def median_of_ratios(adata: Any) -> Any:
    """The remedy of the docs (docs/how-sure.md), on cells scaled as is."""
    made = scaled(adata, total(adata))
    oc.tl.correct_composition(made, groupby="condition", control="control", target="treated", by="cell_type")
    made.X = made.layers["corrected"]
    return made


def without_found(adata: Any) -> Any:
    found = (tested(scaled(adata, total(adata))) <= LEVEL).any(axis=0)
    return scaled(adata, np.asarray(adata.X[:, ~found].sum(axis=1), dtype=np.float64).ravel())


def without_high(adata: Any) -> Any:
    import scanpy

    made = adata.copy()
    made.X = made.X.astype(np.float32)
    scanpy.pp.normalize_total(made, target_sum=1e4, exclude_highly_expressed=True)
    scanpy.pp.log1p(made)
    return made


METHODS: dict[str, Callable[[Any], Any]] = {
    "as is": lambda adata: scaled(adata, total(adata)),
    "median of ratios": median_of_ratios,
    "without found genes": without_found,
    "without high genes": without_high,
    "true total": lambda adata: scaled(adata, total(adata) / adata.obs["growth"].to_numpy()),
}


# -- parts -------------------------------------------------------------------------------------------------------


def tested(adata: Any) -> Floats:
    """q, types × genes."""
    learn(adata)
    return wide(oc.tl.gene_table(adata, by="cell_type"), "q", adata)


def rates(seeds: Iterable[int] = SEEDS) -> list[Row]:
    rows = []
    for design, given in DESIGNS.items():
        for seed in seeds:
            adata = simulate(seed, **given)
            truth, growth = adata.varm["moved"].T, float(adata.obs["growth"].max())
            for name, method in METHODS.items():
                found = tested(method(adata)) <= LEVEL
                row: Row = {"data": design, "method": name, "seed": seed, "growth": growth}
                row["findings"] = int(found.sum())
                row["false"] = float((found & ~truth).sum() / max(1, found.sum()))
                rows.append(row | {"power": float(found[truth].mean()) if truth.any() else np.nan})
    return rows


def shift(seeds: Iterable[int] = SEEDS) -> list[Row]:
    """The shift of typical genes in each type, beside that which the growth makes."""
    rows = []
    for design, given in {**DESIGNS, **EMPTY}.items():
        for seed in seeds:
            adata = simulate(seed, **given)
            expected = -np.log2(adata.obs.groupby("cell_type")["growth"].max().to_numpy())
            made = scaled(adata, total(adata))
            learn(made)
            change = wide(oc.tl.gene_table(made, by="cell_type"), "log2_fold_change", made)
            kinds, treated = made.obs["cell_type"].to_numpy(), (made.obs["condition"] == "treated").to_numpy()
            for k, kind in enumerate(sorted(set(kinds))):
                parts = [sp.csr_array(made.X)[(kinds == kind) & side] > 0 for side in (treated, ~treated)]
                found = typical_shift(change[k], np.mean([part.mean(axis=0) for part in parts], axis=0))
                assert found is not None
                row: Row = {"data": design, "seed": seed, "expected": expected[k], "shift": found.median}
                off = abs(found.median - expected[k])
                rows.append(row | {"error": off, "alarm": float(found.is_clear)})
    return rows


def as_text(mean: float, error: float, name: str) -> str:
    if np.isnan(mean):
        return "–"
    if name in ("false", "power"):
        return f"{mean:.1%} ± {error:.1%}"
    if name.startswith("alarm"):
        return f"{mean:.1%}"
    if name == "findings":
        return f"{mean:,.1f}"
    return f"{mean:.2f}" if name == "growth" else f"{mean:.3f}" if name == "error" else f"{mean:+.3f}"


PARTS: dict[str, Callable[[], Tables]] = {
    "rates": lambda: {"False discoveries at q ≤ 0.1": rates()},
    "shift": lambda: {"The shift of typical genes, as is": shift()},
}
BENCHMARK = Benchmark("composition", "Composition: measurements", __doc__, PARTS, as_text)

if __name__ == "__main__":
    BENCHMARK.main(sys.argv[1:])
