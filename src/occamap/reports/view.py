"""What a page shows of a map: cells in a plane, genes in a table, and which of them moves in which."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import ArpackError
from sklearn.decomposition import PCA

from occamap._kernels.columns import column_sums
from occamap._validate import Samples
from occamap.errors import RunFileError
from occamap.genes import gene_table
from occamap.maps import MongeMap
from occamap.reports.pack import entries
from occamap.reports.saved import Run

Rows = NDArray[np.int64]
Arrays = dict[str, NDArray[Any]]

CELLS, TARGETS = 5_000, 2_500  # that a page shows at most
ENTRIES = 1_800_000  # displacements that a page holds at most
AXES = 4
FEW = 50  # cells or genes of which all components are cheap
LEAST = 1e-9  # of the largest variance: what is below is rounding
NOBODY = "(no entry)"
TINY = "q", "wilcoxon_p_adjusted"  # smaller than single precision can hold
TESTED = "difference", "log2_fold_change", "q"  # of a gene in each group
NUMBERS = (  # of a gene
    "share", "mean", "low", "high", "difference", "difference_low", "difference_high", "log2_fold_change", "q",
    "observed", "frequency", "expected_false", "wilcoxon_p_adjusted",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class View:
    """The table of genes (index: their names), how many cells are shown, and the header and arrays of the page.

    `groups` are their names and how many control and target cells each has.
    """

    genes: pd.DataFrame
    shown: int
    groups: tuple[list[str], list[int], list[int]] | None
    header: dict[str, Any]
    arrays: Arrays


def view(run: Run) -> View:
    """Of a run with a map. Cells are drawn at random where there are too many; the seed is that of the run."""
    model = run.model
    if model is None:
        raise RunFileError("the run has no map, which a page of cells is made from")
    rng = np.random.default_rng(run.record.seed)
    control, target = model._source, model._target
    told = tuple(run.record.result[name] for name in ("n_cells", "n_targets", "n_genes"))
    if told != (*control.shape[:1], *target.shape):
        raise RunFileError("the map does not belong to the record, which speaks of other numbers of cells and genes")
    mine, theirs = _drawn(control.shape[0], CELLS, rng), _drawn(target.shape[0], TARGETS, rng)
    X, Y = _rows(control, mine), _rows(target, theirs)
    if run.moves is None:
        moves = model.displacement(_like(control, mine), within=_strata(model, mine))
    else:
        moves = sp.csr_array(run.moves)[mine]
    genes = _genes(run, model, moves, X, Y)
    names = [str(name) for name in genes.index]
    places = genes.pop("column").to_numpy()
    held = entries(moves, ENTRIES)
    rank = np.empty(places.size, dtype=np.uint32)
    rank[places] = np.arange(places.size, dtype=np.uint32)
    held["kept"] = rank[held["kept"]]
    squares = column_sums(moves)[1]
    whole = float(squares.sum())
    plane, explained = _plane(X, Y, moves)
    arrays = {**held, **plane, **{name: genes[name].to_numpy(_kind(name)) for name in NUMBERS if name in genes}}
    header: dict[str, Any] = {
        "genes": names,
        "columns": [name for name in NUMBERS if name in genes],
        "cells": _names(run.tables.get("cells"), "control cell", mine, control.shape[0]),
        "targets": _names(run.tables.get("targets"), "target cell", theirs, target.shape[0]),
        "explained": explained,
        "held": float(squares[places[held["kept"]]].sum() / whole) if whole else 1.0,
    }
    groups = _groups(run, mine, theirs, header, arrays)
    if groups is not None and "genes_by" in run.tables:
        arrays |= _by_group(run.tables["genes_by"], groups[0], names)
        header["rate"] = run.record.result.get("false_discovery_rate")
    return View(genes, mine.size, groups, header, arrays)


def _kind(name: str) -> type[np.floating[Any]]:
    return np.float64 if name in TINY else np.float32


def _drawn(count: int, most: int, rng: np.random.Generator) -> Rows:
    """All, or so many at random, in their order."""
    return np.arange(count) if count <= most else np.sort(rng.choice(count, most, replace=False))


def _rows(samples: Samples, rows: Rows) -> sp.csr_array:
    whole = samples.csr()
    return whole if rows.size == whole.shape[0] else sp.csr_array(whole[rows])


def _like(samples: Samples, rows: Rows) -> Any:
    """These rows, stored as the map has them: it gives the same numbers to the bit."""
    if samples.is_sparse:
        return _rows(samples, rows)
    return samples.data if rows.size == samples.shape[0] else samples.data[rows]


def _strata(model: MongeMap, rows: Rows) -> Any:
    """The groups that these control cells are matched within, if there are any."""
    return None if model.within is None else np.asarray(model.within[0])[rows]


def _genes(run: Run, model: MongeMap, moves: sp.csr_array, X: sp.csr_array, Y: sp.csr_array) -> pd.DataFrame:
    """The table that the run has, or else a plain one of the cells that are shown; with the `column` of each gene."""
    known = getattr(model, "feature_names_in_", None)
    names = [str(name) for name in (range(moves.shape[1]) if known is None else known)]
    table = run.tables.get("genes")
    if table is None:
        table = gene_table(moves, X, Y, np.array(names, dtype=object), wilcoxon=False)
    place = {name: column for column, name in enumerate(names)}
    listed = [str(name) for name in table.index]
    if sorted(listed) != sorted(names) or not {"share", "mean", "observed"} <= set(table.columns):
        raise RunFileError("the table of genes does not belong to the map: run it again")
    try:
        tested = "difference_low" in table  # its interval is the one that agrees with the q-values
        shown = [name for name in NUMBERS if name in table and not (tested and name in ("low", "high"))]
        numbers = {name: table[name].to_numpy(np.float64) for name in shown}
    except (ValueError, TypeError) as error:
        raise RunFileError(f"the table of genes holds a value that is not a number: {error}") from error
    return pd.DataFrame({**numbers, "column": [place[name] for name in listed]}, index=pd.Index(listed, name="gene"))


def _plane(X: sp.csr_array, Y: sp.csr_array, moves: sp.csr_array) -> tuple[Arrays, list[float]]:
    """Principal components of control and target cells, and where moved cells are on them; what each explains."""
    both: Any = sp.csr_matrix(sp.vstack([X, Y], format="csr"))
    axes, share = _axes(both)
    centre = np.asarray(both.mean(axis=0)) @ axes
    before, beyond = np.asarray(X @ axes) - centre, np.asarray(Y @ axes) - centre
    parts = {"before": before, "after": before + moves @ axes, "beyond": beyond}
    return {name: np.asarray(part, dtype=np.float32).ravel() for name, part in parts.items()}, share


def _axes(cells: Any) -> tuple[NDArray[Any], list[float]]:
    """Genes × components, and the share of the variance of each; zeros where there is nothing but rounding."""
    none: tuple[NDArray[Any], list[float]] = np.zeros((cells.shape[1], 2)), []
    count, few = min(AXES, min(cells.shape)), min(cells.shape) <= FEW
    try:
        values = cells.toarray() if few else cells
        with np.errstate(invalid="ignore"):  # no variance at all
            fitted = PCA(count, svd_solver="full" if few else "arpack", random_state=0).fit(values.astype(np.float64))
    except ArpackError:  # no two cells differ
        return none
    variance = fitted.explained_variance_
    if not variance[0] > 0:
        return none
    real = variance > LEAST * variance[0]
    share, axes = np.where(real, fitted.explained_variance_ratio_, 0).round(4), np.where(real, fitted.components_.T, 0)
    missing = max(0, 2 - count)  # a plane has two
    return np.pad(axes, ((0, 0), (0, missing))), np.pad(share, (0, missing)).tolist()


def _names(table: pd.DataFrame | None, kind: str, rows: Rows, count: int) -> list[str]:
    """What the cells are called; by their number where the run does not say."""
    if table is None:
        return [f"{kind} {row + 1}" for row in rows]
    if "cell" not in table or len(table) != count:
        raise RunFileError(f"the table of cells does not belong to the map, which has {count:,} of each {kind}")
    return [str(name) for name in table["cell"].to_numpy()[rows]]


def _groups(
    run: Run, mine: Rows, theirs: Rows, header: dict[str, Any], arrays: Arrays
) -> tuple[list[str], list[int], list[int]] | None:
    """The groups of the cells, their sizes among all control and all target cells; codes go to the arrays."""
    cells, targets = run.tables.get("cells"), run.tables.get("targets")
    if cells is None or "group" not in cells:
        return None
    of = [_labels(cells), [] if targets is None or "group" not in targets else _labels(targets)]
    names = sorted({*of[0], *of[1]} - {NOBODY}) + ([NOBODY] if NOBODY in {*of[0], *of[1]} else [])
    code = {name: k for k, name in enumerate(names)}
    kind = np.uint16 if len(names) < 2**16 else np.uint32
    codes = [np.array([code[name] for name in labels], dtype=kind) for labels in of]
    header["groups"], header["by"] = names, run.record.parameters.get("by")
    arrays["group"] = codes[0][mine]
    if codes[1].size:
        arrays["group_beyond"] = codes[1][theirs]
    sizes = [np.bincount(part, minlength=len(names)).tolist() for part in codes]
    return names, sizes[0], sizes[1] if codes[1].size else []


def _by_group(table: pd.DataFrame, groups: list[str], genes: list[str]) -> Arrays:
    """What was tested in each group: groups × genes, NaN for groups without control cells."""
    if table.index.nlevels != 2 or not set(TESTED) <= set(table.columns):
        raise RunFileError("the table of genes by group does not belong to the run: run it again")
    rows = pd.MultiIndex.from_arrays([table.index.get_level_values(level).astype(str) for level in range(2)])
    wanted = rows.get_indexer(pd.MultiIndex.from_product([groups, genes]))
    try:
        columns = {name: np.append(table[name].to_numpy(np.float64), np.nan)[wanted] for name in TESTED}
    except (ValueError, TypeError) as error:
        raise RunFileError(f"the table of genes by group holds a value that is not a number: {error}") from error
    return {f"group_{name}": values.astype(_kind(name)) for name, values in columns.items()}


def _labels(table: pd.DataFrame) -> list[str]:
    return [NOBODY if entry is None or entry == "" or entry != entry else str(entry) for entry in table["group"]]
