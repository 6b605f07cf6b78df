"""Whole files of every kind that occamap reads, small, to be damaged."""

from __future__ import annotations

import gzip
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import occamap as oc
from occamap.runs import fitting
from occamap.runs.options import Question

ASKED = {"groupby": "condition", "control": "control"}
EVALUATED = {"costs": ["sql2", "l1"], "gammas": [1.0], "splits": 2, "components": 3, "markers": 5}
X, Y = (np.random.default_rng(n).poisson(1.0, size=(n, 5)) * 0.5 for n in (30, 20))
GMT = "SET_A\tabout a\tg1\tg2\tg3\nSET_B\thttps://b\tg3\tg4\nSET_C\t\tg5\tg1\tg9\n"


def models(where: Path) -> None:
    """Fitted maps of every cost; dense and sparse, in both precisions, with names and without."""
    single, names = np.float32, [f"gene {t}" for t in range(5)]
    table, grouped = np.random.default_rng(0), oc.GroupLasso(0.7, {"a": [0, 2], "b": [1, 3, 4]}, l1_ratio=0.3)
    given = {
        "sql2": (oc.SqL2(), X, Y, {}),
        "l1": (oc.L1(0.4), sp.csr_array(X), sp.csr_array(Y), {}),
        "default": (None, sp.csr_array(X.astype(single)), sp.csr_array(Y.astype(single)), {"ties": "occam"}),
        "weighted": (oc.L1(0.4, [np.inf, 0, 1, 2, 1]), X.astype(single), Y.astype(single), {"relax": 0.5}),
        "stvs": (oc.STVS(0.4), sp.csr_array(X), sp.csr_array(Y), {"reach": 2.0}),
        "koverlap": (oc.KOverlap(0.5, k=2), sp.csr_array(X), sp.csr_array(Y), {}),
        "groups": (grouped, sp.csr_array(X), sp.csr_array(Y), {}),
        "overlapping": (oc.GroupLasso(0.7, [[0, 1], [1, 2]], weights=[1, 2]), X, Y, {}),
        "subspace": (oc.Subspace(0.5, np.linalg.qr(table.normal(size=(5, 2)))[0].T), X, Y, {}),
        "debiased": (oc.L1(0.4), sp.csr_array(X), sp.csr_array(Y), {"debias": True}),
        "named": (oc.L1(0.4), _frame(X, names), _frame(Y, names), {}),
    }
    for name, (cost, source, target, options) in given.items():
        oc.MongeMap(cost, epsilon=0.2, n_jobs=1, **options).fit(source, target).save(where / f"{name}.occamap")


def _frame(values: np.ndarray, names: list[str]) -> object:
    import pandas as pd

    return pd.DataFrame(values, columns=names)


def cells(n_control: int = 30, n_treated: int = 20, n_genes: int = 40) -> object:
    """Simulated cells in an AnnData."""
    return oc.datasets.simulate_perturbation(
        n_control, n_treated, n_genes, effect=1.5, n_types=2, n_moved=4
    ).to_anndata()


def runs(where: Path) -> None:
    """The directory of a fit, and that of an evaluation."""
    made = cells()
    made.write_h5ad(where / "cells.h5ad")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        question = Question("condition", "control", "treated")
        fitting.fit(where / "cells.h5ad", where / "fit", question, subsamples=0, threads=1)
        oc.evaluate(made, **ASKED, **EVALUATED, out=where / "evaluated", n_jobs=1, verbose=False)


def gene_sets(where: Path) -> None:
    """A GMT file, plain and packed."""
    (where / "plain.gmt").write_text(GMT)
    (where / "packed.gmt").write_bytes(gzip.compress(GMT.encode(), mtime=0))


def stores(where: Path) -> None:
    """Cells as HDF5 and as Zarr: CSR with a dense layer, CSC in chunks, and dense."""
    import anndata

    made = cells()
    for form, matrix in (("csr", made.X), ("csc", sp.csc_matrix(made.X)), ("dense", made.X.toarray())):
        one = anndata.AnnData(matrix, obs=made.obs, var=made.var, layers={"more": sp.csr_matrix(made.X)})
        one.write_h5ad(where / f"{form}.h5ad", compression="gzip" if form == "csc" else None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # anndata's, that it will write another version of the format
            one.write_zarr(where / f"{form}.zarr")


def all_of_them(where: Path) -> None:
    """Everything, each kind in a folder of its own."""
    for name, make in (("models", models), ("runs", runs), ("sets", gene_sets), ("cells", stores)):
        (where / name).mkdir()
        make(where / name)
