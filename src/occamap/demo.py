"""The main job on simulated cells, end to end: `occamap demo`."""

from __future__ import annotations

import shlex
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from occamap.costs import L1, SqL2
from occamap.datasets import Perturbation, simulate_perturbation
from occamap.maps import MongeMap

if TYPE_CHECKING:
    from occamap.runs.fitting import FitRun
    from occamap.runs.options import Stage

NAME = "cells.h5ad"
RATE = 0.1  # false-discovery rate, as in `occamap fit`
TARGETS = 10.0, "perplexity"  # effective targets of a cell
COMPONENTS = 30  # that cells are matched on, as in `occamap fit`
SINGLE = 0.3  # the strength of the map of single cells, as in `occamap fit --pool none`


def run(genes: int, cells: int, gamma: float | None, seed: int) -> Perturbation:
    """Simulate, fit, move unseen cells, and print which genes were found."""
    data = simulate_perturbation(cells + cells // 4, cells, genes, effect=1.5, random_state=seed)
    seen, unseen = data.control[:cells], data.control[cells:]
    stored = data.control.nnz / np.prod(data.control.shape)
    print(f"Simulated {cells} control and {cells} treated cells × {genes} genes, {stored:.1%} of the entries stored.")
    print("(The first run on a machine compiles the kernels, which takes some seconds.)", flush=True)

    begun = time.perf_counter()
    cost, fdr = (None, RATE) if gamma is None else (L1(gamma), None)
    model = MongeMap(cost, *TARGETS, relax=1.0, pool="auto", match=COMPONENTS, fdr=fdr).fit(seen, data.treated)
    moves = model.displacement(unseen)
    seconds = time.perf_counter() - begun
    penalty = f"fdr={RATE:g}" if gamma is None else f"cost=L1({gamma:.3g})"
    moved = f"{unseen.shape[0]} unseen control cells moved, in {seconds:.2f} s."
    print(f"\nMongeMap(pool='auto', match={COMPONENTS}, {penalty}) fitted, and {moved}")
    print(model.report_)
    print(model.describe_neighbourhoods())

    types = data.control_types[cells:]
    dense = MongeMap(SqL2()).fit(seen, data.treated).displacement(unseen)
    single = MongeMap(L1(SINGLE), *TARGETS, relax=1.0).fit(seen, data.treated).displacement(unseen)
    print("\nEntries (cell, gene) that move, and how many of them are planted:")
    _print_entries("½ℓ2², the usual map", data, dense, types)
    _print_entries("ℓ1, each cell by itself", data, single, types)
    _print_entries("pooled, fdr = 10 %" if gamma is None else "ℓ1, pooled", data, moves, types)
    _print_genes(data, moves, types)
    return data


def write(
    data: Perturbation, cells: int, gamma: float | None, seed: int, out: Path, stage: Stage
) -> tuple[FitRun, str]:
    """Write the cells that the map was learned from, fit them from that file, and name the command that does so."""
    from occamap import _h5ad as files
    from occamap.runs.fitting import fit
    from occamap.runs.options import MapOptions, Question

    seen = replace(data, control=data.control[:cells], control_types=data.control_types[:cells])
    files.write(seen.to_anndata(), out / NAME)
    question, options = Question("condition", "control", "treated"), MapOptions(gamma=gamma)
    done = fit(out / NAME, out, question, options, by="cell_type", seed=seed, stage=stage)
    words = ["--groupby", "condition", "--control", "control", "--target", "treated", "--by", "cell_type"]
    words += [] if gamma is None else ["--gamma", repr(gamma)]
    words += ["--seed", str(seed), "--out", str(out)]
    return done, shlex.join(["occamap", "fit", str(out / NAME), *words])


def _print_entries(name: str, data: Perturbation, moves: sp.csr_array, types: np.ndarray) -> None:
    """How many entries move, and the share of them that is planted."""
    rows = np.repeat(types, np.diff(moves.indptr))
    planted = data.moved[rows, moves.indices].mean() if moves.nnz else 0.0
    print(f"  {name:<30}  {moves.nnz / np.prod(moves.shape):6.1%} move, {planted:4.0%} of them planted")


def _print_genes(data: Perturbation, moves: sp.csr_array, types: np.ndarray) -> None:
    """The genes that move most, by cell type, beside what was planted."""
    planted = int(data.moved.any(axis=0).sum())
    print(f"\nThe genes that move most in each cell type (* planted there; {planted} genes are planted in all):")
    hits = total = 0
    for kind in np.unique(types):
        mean = np.asarray(moves[types == kind].mean(axis=0)).ravel()
        top = np.argsort(-np.abs(mean))[:8]
        hits, total = hits + int(data.moved[kind, top].sum()), total + top.size
        shown = "  ".join(f"{data.genes[t]}{'*' if data.moved[kind, t] else ' '} {mean[t]:+.2f}" for t in top)
        print(f"  type {kind}: {shown}")
    print(f"\n{hits} of these {total} are planted.")
