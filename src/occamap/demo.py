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


def run(genes: int, cells: int, gamma: float, seed: int) -> Perturbation:
    """Simulate, fit, move unseen cells, and print which genes were found."""
    data = simulate_perturbation(cells + cells // 4, cells, genes, effect=1.5, random_state=seed)
    seen, unseen = data.control[:cells], data.control[cells:]
    stored = data.control.nnz / np.prod(data.control.shape)
    print(f"Simulated {cells} control and {cells} treated cells × {genes} genes, {stored:.1%} of the entries stored.")
    print("(The first run on a machine compiles the kernels, which takes some seconds.)", flush=True)

    begun = time.perf_counter()
    model = MongeMap(L1(gamma), epsilon=10, epsilon_scale="perplexity", relax=1.0).fit(seen, data.treated)
    moves = model.displacement(unseen)
    seconds = time.perf_counter() - begun
    print(f"\nMongeMap(L1({gamma:g})), fitted, and {unseen.shape[0]} unseen control cells moved, in {seconds:.2f} s.")
    print(model.report_)

    dense = MongeMap(SqL2()).fit(seen, data.treated).displacement(unseen)
    print("\nEntries that move, of all cells × genes:")
    print(f"  ½ℓ2² (the usual map)  {dense.nnz / np.prod(dense.shape):7.1%}")
    print(f"  ℓ1 with γ = {gamma:<8g}  {moves.nnz / np.prod(moves.shape):7.1%}")
    _print_genes(data, moves, types=data.control_types[cells:])
    return data


def write(data: Perturbation, cells: int, gamma: float, seed: int, out: Path, stage: Stage) -> tuple[FitRun, str]:
    """Write the cells that the map was learned from, fit them from that file, and name the command that does so."""
    from occamap import _h5ad as files
    from occamap.runs.fitting import fit
    from occamap.runs.options import MapOptions, Question

    seen = replace(data, control=data.control[:cells], control_types=data.control_types[:cells])
    files.write(seen.to_anndata(), out / NAME)
    question, options = Question("condition", "control", "treated"), MapOptions(gamma=gamma)
    done = fit(out / NAME, out, question, options, by="cell_type", seed=seed, stage=stage)
    words = ["--groupby", "condition", "--control", "control", "--target", "treated", "--by", "cell_type"]
    words += ["--gamma", repr(gamma), "--seed", str(seed), "--out", str(out)]
    return done, shlex.join(["occamap", "fit", str(out / NAME), *words])


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
