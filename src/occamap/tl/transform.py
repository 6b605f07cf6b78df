"""tl.transform: what a map does to cells it has not seen, their genes matched by name."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from occamap._optional import optional
from occamap.errors import FeatureMismatchError, InputError, MatchWarning
from occamap.maps import MongeMap, load
from occamap.tl.cells import Rows, check_adata, check_key, labels, numbers, rows_of, some
from occamap.tl.stored import describe


def transform(
    adata: Any,
    model: MongeMap | str | os.PathLike[str],
    *,
    groupby: str | None = None,
    group: Any = None,
    layer: str | None = None,
    counts: str = "refuse",
    within: str | None = None,
    key_added: str = "occamap",
) -> Any:
    """Move cells by a fitted map: a new AnnData with the predicted cells; `adata` stays as it is.

    Parameters
    ----------
    adata
        Cells in the units that the map was fitted in. Genes are matched by name: they may stand in any order, and genes
        that the map does not know stay as they are.
    model
        A map fitted by `tl.monge_map` (or on AnnData or data frames, so that it knows its genes by name), or the
        path of one.
    groupby, group
        A column of `adata.obs` and the group in it to move; all cells if not given.
    layer, counts
        As for `tl.monge_map`.
    within
        The column of `adata.obs` with the group of each cell. Required if the map was fitted with `within`. Cells of
        groups that the map does not know are left out, with a warning.
    key_added
        Prefix of the displacement in `layers`.

    Returns
    -------
    An AnnData with the predicted cells in `X`, their displacement in `layers["occamap_displacement"]`, `obs` and `var`
    of `adata`, `obs["occamap_predicted"]` (True), and the parameters of the map in `uns["occamap_transform"]`.

    Examples
    --------
    >>> import occamap as oc
    >>> adata = oc.datasets.simulate_perturbation(200, 150, 300, effect=1.5).to_anndata()
    >>> m = oc.tl.monge_map(adata[50:], groupby="condition", control="control", target="treated")
    >>> oc.tl.transform(adata[:50], m).shape
    (50, 300)
    """
    check_adata(adata)
    fitted = model if isinstance(model, MongeMap) else load(model)
    check_is_fitted(fitted, "g_")
    if not hasattr(fitted, "feature_names_in_"):
        raise InputError("model must know its genes by name: fit it with occamap.tl.monge_map, or on AnnData")
    check_key(key_added)
    if (groupby is None) != (group is None):
        raise InputError(f"groupby and group must be given together; got {groupby!r} and {group!r}")
    rows = np.arange(adata.n_obs) if groupby is None else rows_of(adata, groupby, group, "group")
    if not rows.size:
        raise InputError("adata must hold at least one cell; it has none")
    groups = _groups(adata, fitted, within, rows)
    if groups is not None:
        rows, groups = _in_known_groups(fitted, str(within), rows, groups)
    columns = _columns(fitted, np.asarray(adata.var_names))
    matrix = numbers(adata, rows, layer, counts)
    cells = sp.csr_array(matrix)
    moves = fitted.displacement(cells[:, columns], within=groups)
    whole = sp.csr_array((moves.data, columns[moves.indices], moves.indptr), shape=cells.shape)
    whole.sort_indices()
    moved = sp.csr_matrix(cells + whole) if sp.issparse(matrix) else matrix + whole.toarray()
    anndata = optional("anndata", "occamap.tl")
    made = anndata.AnnData(moved, obs=adata.obs.iloc[rows].copy(), var=adata.var.copy())
    made.layers[f"{key_added}_displacement"] = sp.csr_matrix(whole)
    made.obs[f"{key_added}_predicted"] = True
    asked = {"groupby": groupby, "group": None if group is None else str(group), "layer": layer, "counts": counts}
    asked["within"] = within
    made.uns[f"{key_added}_transform"] = describe(asked, fitted)
    return made


def _groups(adata: Any, fitted: MongeMap, within: str | None, rows: Any) -> Any:
    """The groups of the cells to move, if the map matches within groups."""
    if (within is None) != (fitted.within is None):
        if within is None:
            raise InputError("within must name the column of adata.obs with the group of each cell: the map has within")
        raise InputError(f"within must be None for a map that was fitted without it; got {within!r}")
    return None if within is None else labels(adata, within, "within")[rows]


def _in_known_groups(fitted: MongeMap, within: str, rows: Rows, groups: Any) -> tuple[Rows, Any]:
    """The cells whose group the map was fitted on; a warning names the groups of the others."""
    known = np.isin(groups.astype(str), np.unique(np.asarray(fitted.within[0]).astype(str)))
    known &= np.array([entry is not None for entry in groups])
    if known.any() and not known.all():
        others = Counter("no entry" if entry is None else entry for entry in groups[~known])
        listed = some([f"{name} ({count:,} cells)" for name, count in sorted(others.items())], 5)
        warnings.warn(
            f"Cells of groups of {within!r} that the map was not fitted on are left out: {listed}",
            MatchWarning,
            stacklevel=3,
        )
        return rows[known], groups[known]
    return rows, groups


def _columns(fitted: MongeMap, names: Any) -> Any:
    """Where the genes of the map stand among these."""
    wanted = [str(name) for name in fitted.feature_names_in_]
    place = {str(name): k for k, name in enumerate(names)}
    absent = [name for name in wanted if name not in place]
    if absent:
        raise FeatureMismatchError(
            f"adata must have the {len(wanted):,} genes of the map by name; {len(absent):,} are absent: {some(absent)}"
        )
    return np.array([place[name] for name in wanted])
