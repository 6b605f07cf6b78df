"""The gate for AnnData: which cells, which genes, which numbers. Messages list what there is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from difflib import get_close_matches
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from occamap._backed import is_backed, read
from occamap._containers import check_unique, is_anndata
from occamap._optional import optional
from occamap._validate import check_choice, check_samples
from occamap.errors import InputError

Mask = NDArray[np.bool_]
Rows = NDArray[np.int64]

COUNTS = ("refuse", "normalize", "keep")
TOTAL = 1e4  # what counts are scaled to, on request: the same for any file, so that maps fit
LINES = f"sc.pp.normalize_total(adata, target_sum={TOTAL:.0e}); sc.pp.log1p(adata)".replace("e+0", "e")
FEWEST = 2
NO_ENTRY = "", "nan", "none", "na", "<na>"  # missing values that became text
NO_REPLICATE = ("unassigned", "doublet")  # what programs that tell donors apart call cells of none, or of two
SMALLEST = 20  # cells of a group that cells are matched within: in smaller ones noise would decide
LARGEST = 1e8
BLOCK = 2**20  # entries that are normalised at a time


def check_adata(adata: Any) -> None:
    """Raise unless it is an AnnData whose genes have names of their own."""
    if not is_anndata(adata):
        raise InputError(f"adata must be an AnnData; got {type(adata).__name__}")
    check_unique(np.asarray(adata.var_names), "gene names (adata.var_names)")


def check_key(key: Any) -> None:
    """Raise unless it is a name that an .h5ad file can hold."""
    if not isinstance(key, str) or not key or "/" in key:
        raise InputError(f"key_added must be a name without '/'; got {key!r}")


def labels(adata: Any, column: str, name: str = "groupby") -> NDArray[Any]:
    """The entries of a column of obs as text; None for cells that have none."""
    if not isinstance(column, Hashable) or column not in adata.obs.columns:
        there = [str(known) for known in adata.obs.columns]
        raise InputError(f"{name} must be a column of adata.obs{near(str(column), there)}; got {column!r}")
    entries = adata.obs[column]
    if entries.ndim != 1:
        raise InputError(f"{name} must be one column of adata.obs; there are {entries.shape[1]} called {column!r}")
    found: NDArray[Any] = np.asarray(entries.astype(str), dtype=object).copy()
    found[np.asarray(entries.isna())] = None
    return found


def replicate_labels(adata: Any, column: str, groupby: str | None = None) -> NDArray[Any]:
    """The replicates of the cells as text; None for cells without an entry, or with one that names no replicate.

    Raise if the column is `groupby`: each condition would be a replicate.
    """
    found = labels(adata, column, "replicate")
    if column == "auto":
        raise InputError("replicate must not be a column called 'auto', which means the replicates of a map: rename it")
    if groupby is not None and column == groupby:
        raise InputError(f"replicate must be a column of donors, animals or batches; got {column!r}, which is groupby")
    nobody = np.array([entry is not None and entry.strip().lower() in (*NO_ENTRY, *NO_REPLICATE) for entry in found])
    found[nobody] = None
    return found


def rows_of(adata: Any, groupby: str, group: Any, name: str) -> Rows:
    """The cells of a group."""
    found = labels(adata, groupby)
    rows = np.flatnonzero(found == str(group))
    if not rows.size:
        there = sorted({entry for entry in found if entry is not None})
        raise InputError(f"{name} must be a group in adata.obs[{groupby!r}]{near(str(group), there)}; got {group!r}")
    return rows


def pair_of(adata: Any, groupby: str, control: Any, target: Any) -> tuple[Rows, Rows]:
    """The cells of the control and of the target group."""
    if str(control) == str(target):
        raise InputError(f"target must be another group than control; both are {control!r}")
    pair = rows_of(adata, groupby, control, "control"), rows_of(adata, groupby, target, "target")
    for rows, name, group in zip(pair, ("control", "target"), (control, target), strict=True):
        check_enough(rows.size, f"{name}, {group!r},")
    return pair


def pair_within(
    adata: Any, within: str, pair: tuple[Rows, Rows]
) -> tuple[tuple[Rows, Rows], dict[str, tuple[int, int]]]:
    """The cells of a pair whose group in a column is large enough on both sides; and the numbers left out, by group.

    Cells without an entry are left out as the group "no entry".
    """
    found = labels(adata, within, "within")
    mine, theirs = (Counter("no entry" if entry is None else entry for entry in found[rows]) for rows in pair)
    present = {entry for entry in found if entry is not None}
    large = {group for group in mine if min(mine[group], theirs[group]) >= SMALLEST and group in present}
    if not large:
        raise InputError(
            f"within must be a column in which some group has {SMALLEST} control and {SMALLEST} target cells; "
            f"adata.obs[{within!r}] has no such group"
        )
    held = np.array([entry in large for entry in found])
    left = {str(group): (mine[group], theirs[group]) for group in (mine | theirs) if group not in large}
    return (pair[0][held[pair[0]]], pair[1][held[pair[1]]]), left


def check_enough(count: int, what: str, fewest: int = FEWEST) -> None:
    """Raise where there are too few cells."""
    if count < fewest:
        raise InputError(f"{what} must have at least {fewest} cells; it has {count}")


def genes_of(adata: Any, use_genes: Any) -> Mask:
    """The genes to use: all, those marked in a column of var, a list of names, or a mask."""
    d = adata.n_vars
    if use_genes is None:
        return np.ones(d, dtype=bool)
    if isinstance(use_genes, str):
        if use_genes not in adata.var.columns:
            there = [str(known) for known in adata.var.columns]
            raise InputError(f"use_genes must be a column of adata.var{near(use_genes, there)}; got {use_genes!r}")
        given = np.asarray(adata.var[use_genes])
    else:
        given = np.asarray(use_genes)
    if given.dtype == bool and given.shape == (d,):
        mask: Mask = given
    elif given.dtype.kind in "UOT" and given.ndim == 1 and not isinstance(use_genes, str):
        mask = np.isin(np.asarray(adata.var_names).astype(str), given.astype(str))
        absent = sorted(set(given.astype(str)) - set(np.asarray(adata.var_names).astype(str)))
        if absent:
            raise InputError(f"use_genes must name genes of adata; {len(absent)} of them are not: {some(absent)}")
    else:
        raise InputError(
            f"use_genes must be a column of adata.var with True and False, a list of gene names, or a mask of {d:,}; "
            f"got {given.dtype} of shape {given.shape}"
        )
    if not mask.any():
        raise InputError("use_genes must leave at least one gene; it leaves none")
    return mask


def matrix_of(adata: Any, layer: str | None) -> Any:
    """X, or the layer of this name."""
    if layer is not None and layer not in adata.layers:
        raise InputError(f"layer must be a layer of adata{near(str(layer), list(adata.layers))}; got {layer!r}")
    if layer is None and adata.X is None:
        raise InputError(f"adata.X is None: name a layer{near('', list(adata.layers))}")
    return adata.X if layer is None else adata.layers[layer]


def numbers(adata: Any, rows: Rows, layer: str | None, counts: str, genes: Mask | None = None) -> Any:
    """Cells × genes as numbers to learn from: dense or CSR, normalised if they are counts and that is asked for.

    Of a matrix that is still in a file these rows are read, tile by tile, and of each tile these genes are kept: beside
    the result a few tens of MB are in memory. CSC cannot be read by rows: the whole file is read, a few columns at a
    time, and the result is there twice for a moment.
    """
    check_choice(counts, "counts", COUNTS)
    where = "adata.X" if layer is None else f"adata.layers[{layer!r}]"
    whole, seen = matrix_of(adata, layer), _Seen(where, rows.size)
    chosen = None if genes is None or genes.all() else genes
    if is_backed(whole):
        matrix = read(whole, where, rows, chosen, seen)
    else:
        if hasattr(whole, "check_format"):
            try:
                whole.check_format(full_check=True)  # before any row is taken: it would follow wrong indices
            except ValueError as error:
                raise InputError(f"{where} must be a valid sparse matrix; SciPy says: {error}") from error
        matrix = seen(slice(None), whole[rows])
        matrix = matrix if chosen is None else matrix[:, chosen]
    if counts == "keep" or not seen.counts:
        return matrix
    if counts == "refuse":
        raise InputError(
            f"{where} holds raw counts; distances need them normalised and logged: {LINES} (or let it be done "
            "here, with counts='normalize')"
        )
    return _log_normalise(matrix, seen.totals)


class _Seen:
    """What all genes of some rows show, tile by tile: that they are numbers to learn from, or counts; and totals."""

    def __init__(self, where: str, n: int) -> None:
        self.where, self.totals = where, np.zeros(n)
        self._whole, self._most = True, 0.0

    def __call__(self, rows: Any, tile: Any) -> Any:
        """The tile as dense or CSR, checked."""
        checked = check_samples(tile, self.where)
        if checked.largest() > LARGEST:
            raise InputError(
                f"{self.where} holds numbers as large as {checked.largest():.3g}, next to which no others count: "
                "normalise and log them"
            )
        matrix: Any = sp.csr_matrix(checked.csr()) if checked.is_sparse else checked.data
        self._whole = self._whole and _all_whole(checked.data)
        if self._whole:
            self._most = max(self._most, checked.largest())
            self.totals[rows] += np.asarray(matrix.sum(axis=1), dtype=np.float64).ravel()
        return matrix

    @property
    def counts(self) -> bool:
        return self._whole and self._most > 1


def samples(adata: Any, pair: tuple[Rows, Rows], layer: str | None, counts: str, genes: Mask) -> tuple[Any, Any]:
    """The control and the target cells as AnnData of these genes alone, so that a map knows them by name."""
    names, made = np.asarray(adata.var_names)[genes], []
    for rows in pair:
        part = optional("anndata", "occamap.tl").AnnData(numbers(adata, rows, layer, counts, genes))
        part.var_names = names
        made.append(part)
    return made[0], made[1]


def are_counts(matrix: Any) -> bool:
    """Whether all entries are whole and not negative, and some are larger than 1."""
    seen = _Seen("matrix", matrix.shape[0])
    seen(slice(None), matrix)
    return seen.counts


def are_whole(matrix: Any) -> bool:
    """Whether all entries are whole and not negative."""
    return _all_whole(np.asarray(matrix.data if sp.issparse(matrix) else matrix))  # type: ignore[attr-defined]


def _all_whole(values: NDArray[Any]) -> bool:
    """Whether all are whole and not negative; most matrices show at once that they are not."""
    return _whole(values.ravel()[:4096]) and _whole(values)


def _whole(values: NDArray[Any]) -> bool:
    return bool(np.all((values >= 0) & (values == np.floor(values))))


def _log_normalise(counts: Any, totals: NDArray[np.float64]) -> Any:
    """log1p of counts scaled to a total of 1e4 a cell, where these are the totals; a cell without counts stays empty.

    It is done a few rows at a time, since numbers are float64 in between, and in place where `counts` are float32.
    """
    (n, d), is_sparse = counts.shape, bool(sp.issparse(counts))
    values, ends = (counts.data, counts.indptr) if is_sparse else (counts.ravel(), np.arange(n + 1) * d)
    made = values if values.dtype == np.float32 else np.empty(values.size, dtype=np.float32)
    factors = TOTAL / np.where(totals > 0, totals, 1.0)
    step = max(1, BLOCK * n // max(values.size, 1))
    for first in range(0, n, step):
        last = min(first + step, n)
        part = slice(ends[first], ends[last])
        made[part] = np.log1p(values[part] * np.repeat(factors[first:last], np.diff(ends[first : last + 1])))
    if is_sparse:
        return sp.csr_matrix((made, counts.indices, counts.indptr), shape=counts.shape)
    return made.reshape(n, d)


def log_base(adata: Any) -> float:
    """The base of the logs in an AnnData: the one that scanpy noted, or e."""
    noted = adata.uns.get("log1p", {})
    base = noted.get("base") if isinstance(noted, Mapping) else None
    if base is None:
        return float(np.e)
    if not isinstance(base, int | float | np.number) or not base > 1:
        raise InputError(f"adata.uns['log1p']['base'] must be a number above 1, or None for e; got {base!r}")
    return float(base)


def some(names: list[str], most: int = 3) -> str:
    """The first few, quoted."""
    return ", ".join(repr(str(name)) for name in names[:most]) + (", …" if len(names) > most else "")


def near(asked: str, there: list[str], most: int = 12) -> str:
    """What there is, the most alike first."""
    if not there:
        return " (there is none)"
    alike = get_close_matches(asked, there, n=3, cutoff=0.5)
    listed = [*alike, *(name for name in there if name not in alike)]
    return f" ({some(listed, most)})"
