"""tl.correct_composition: undo the fall of unchanged genes that scaling cells to a common total causes."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray

from occamap._backed import is_backed
from occamap.errors import InputError, InputWarning
from occamap.genes.fold_changes import DETECTED, FEWEST, why_not_logs
from occamap.tl.cells import SMALLEST, check_adata, check_key, labels, log_base, matrix_of, numbers, pair_of, some

Floats = NDArray[np.float64]


def correct_composition(
    adata: Any,
    *,
    groupby: str,
    control: Any,
    target: Any,
    by: str | None = None,
    layer: str | None = None,
    key_added: str = "corrected",
) -> pd.Series:
    """Undo the shift of unchanged genes that scaling to a common total causes, in a new layer.

    Cells that are scaled to a common total hold shares: if some genes rise, all others fall. The median, over genes
    that are detected often, of the ratio of mean normalised counts (target over control cells) estimates by how much.
    Dividing by it is right if most of these genes do not respond, or as many rise as fall: the size factors of DESeq2,
    for groups of cells. Do not use it for treatments that are expected to change most genes.

    Parameters
    ----------
    adata : AnnData
        Cells × genes in memory, scaled to a common total and logged (log1p).
    groupby, control, target
        A column of `adata.obs`, and the two groups in it to compare.
    by
        A column of `adata.obs`, such as "cell_type": each of its groups has a ratio of its own. Groups with fewer than
        20 control or target cells, or with fewer than 100 genes that are detected in 10 % of their cells, are left as
        they are, with a warning, and so are cells without an entry. None: one ratio for all cells.
    layer
        Layer to use instead of `adata.X`.
    key_added
        Name of the layer that is written.

    Returns
    -------
    Series
        The median ratio of each group; 1 for groups that are left as they are.

    Writes
    ------
    - `adata.layers["corrected"]`: the corrected values of the target cells, and those of all other cells as they are
    - `adata.obs["corrected_ratio"]`: what the normalised counts of each cell were divided by

    Examples
    --------
    >>> import occamap as oc
    >>> cells = {"n_types": 1, "n_moved": 40, "effect": 2.0, "density": 0.4, "total": 1e4}
    >>> adata = oc.datasets.simulate_perturbation(300, 300, 400, **cells).to_anndata()
    >>> conditions = {"groupby": "condition", "control": "control", "target": "treated"}
    >>> ratios = oc.tl.correct_composition(adata, **conditions)
    >>> bool(ratios.item() < 1)
    True
    >>> m = oc.tl.monge_map(adata, **conditions, layer="corrected")
    """
    check_adata(adata)
    check_key(key_added)
    if key_added == layer:
        raise InputError(f"key_added must not be layer, which would be overwritten; both are {layer!r}")
    matrix = matrix_of(adata, layer)
    if is_backed(matrix):
        raise InputError("adata must be in memory, since a layer is written: use adata.to_memory()")
    pair, base = pair_of(adata, groupby, control, target), log_base(adata)
    before, after = (sp.csr_array(numbers(adata, rows, layer, "keep")) for rows in pair)
    reason = why_not_logs(before, after, base)
    if reason is not None:
        raise InputError(
            f"adata must hold log1p of normalised counts; it has {reason}: use scanpy.pp.normalize_total and "
            "scanpy.pp.log1p"
        )
    counts = [_with_data(side, np.expm1(side.data.astype(np.float64) * np.log(base))) for side in (before, after)]
    groups = np.full(adata.n_obs, "all", dtype=object) if by is None else labels(adata, by, "by")
    sides = [groups[rows] for rows in pair]
    names = sorted({name for side in sides for name in side if name is not None})
    found = {name: _median_ratio(*(side[codes == name] for side, codes in zip(counts, sides, strict=True)))
             for name in names}  # fmt: skip
    few = [name for name, ratio in found.items() if ratio is None]
    if few:
        warnings.warn(
            f"These groups are left as they are, because they have fewer than {SMALLEST} control or target cells, "
            f"fewer than {FEWEST} genes detected in {DETECTED:.0%} of their cells, or a median ratio of 0 or infinity: "
            f"{some(few, 5)}",
            InputWarning,
            stacklevel=2,
        )
    ratios = pd.Series({name: 1.0 if ratio is None else ratio for name, ratio in found.items()}, name="ratio")
    of_cells: Floats = np.ones(adata.n_obs)
    of_cells[pair[1]] = [1.0 if name is None else ratios[name] for name in sides[1]]
    with warnings.catch_warnings():  # a view becomes an AnnData of its own, as with scanpy's functions
        warnings.filterwarnings("ignore", category=UserWarning, message=".*view.*")
        adata.layers[key_added] = _divided(matrix, of_cells, base)
        adata.obs[f"{key_added}_ratio"] = of_cells
    return ratios


def _median_ratio(before: sp.csr_array, after: sp.csr_array) -> float | None:
    """The median ratio of means over genes that are detected often; None if there are too few cells or genes."""
    sizes = before.shape[0], after.shape[0]
    if min(sizes) < SMALLEST:
        return None
    detected = [np.bincount(side.indices[side.data > 0], minlength=side.shape[1]) for side in (before, after)]
    often = sum(detected) >= np.float64(DETECTED * sum(sizes))
    if often.sum() < FEWEST:
        return None
    means = [np.asarray(side.sum(axis=0)).ravel()[often] / side.shape[0] for side in (before, after)]
    with np.errstate(divide="ignore"):  # of genes that no control cell has
        ratio = float(np.median(means[1] / means[0]))
    return ratio if 0 < ratio < np.inf else None


def _divided(matrix: Any, ratios: Floats, base: float) -> Any:
    """The matrix (dense, or as CSR) of logs, with the counts of each row divided by its ratio."""

    def moved(logs: NDArray[Any], by: Floats) -> Floats:
        return np.asarray(np.log1p(np.expm1(logs.astype(np.float64) * np.log(base)) / by) / np.log(base))

    is_sparse = bool(sp.issparse(matrix))
    if not is_sparse:
        dense, rows = np.array(matrix), np.flatnonzero(ratios != 1)
        dense[rows] = moved(dense[rows], ratios[rows][:, None])
        return dense
    made: Any = sp.csr_matrix(matrix, copy=True)
    of_entries = np.repeat(ratios, np.diff(made.indptr))
    changed = of_entries != 1
    made.data[changed] = moved(made.data[changed], of_entries[changed])
    return made


def _with_data(side: sp.csr_array, data: NDArray[Any]) -> sp.csr_array:
    return sp.csr_array((data, side.indices, side.indptr), shape=side.shape)
