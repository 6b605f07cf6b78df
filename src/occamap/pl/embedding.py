"""Where a predicted cell would be in an embedding."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors

from occamap.pl.look import Floats, Rows
from occamap.tl.stored import Stored

COMPONENTS = 50
PCA_KEY, LOADINGS = "X_pca", "PCs"


def predicted_at(stored: Stored, basis: str, where: Floats, control: Rows, target: Rows, n_neighbors: int) -> Floats:
    """The ends of the arrows of these control cells, in the first two dimensions of the embedding `where`."""
    moves = stored.moves()[np.searchsorted(stored.rows("control"), control)]
    loadings = _loadings(stored)
    if basis == PCA_KEY and loadings is not None and loadings.shape[1] >= 2:
        return np.asarray(where[control, :2] + moves @ loadings[:, :2])
    predicted, observed = _space(stored, moves, loadings, control, target)
    known = np.isfinite(observed).all(axis=1)
    target, observed = target[known], observed[known]
    if not control.size or not target.size:
        return where[control, :2]
    index = NearestNeighbors(n_neighbors=min(n_neighbors, target.size)).fit(observed)
    near = index.kneighbors(np.nan_to_num(predicted), return_distance=False)
    return np.asarray(where[target, :2][near].mean(axis=1))


def _loadings(stored: Stored) -> Floats | None:
    """The components of X_pca, a row a gene that was used."""
    adata = stored.adata
    if LOADINGS not in adata.varm or PCA_KEY not in adata.obsm:
        return None
    return np.nan_to_num(np.asarray(adata.varm[LOADINGS], dtype=np.float64)[stored.genes])


def _space(
    stored: Stored, moves: sp.csr_array, loadings: Floats | None, control: Rows, target: Rows
) -> tuple[Floats, Floats]:
    """Predicted and target cells in principal components: those that are there, or else new ones."""
    if loadings is not None:
        scores = np.asarray(stored.adata.obsm[PCA_KEY], dtype=np.float64)
        count = min(scores.shape[1], loadings.shape[1])
        return scores[control, :count] + moves @ loadings[:, :count], scores[target, :count]
    sides = [stored.cells(side) for side in ("control", "target")]
    among = [np.searchsorted(stored.rows(side), rows) for side, rows in (("control", control), ("target", target))]
    cells: Any = sp.csr_matrix(sp.vstack(sides, format="csr"))
    count = min(COMPONENTS, min(cells.shape) - 1)
    if count < 1 or not cells.nnz:  # too few to have components
        return (sides[0][among[0]] + moves).toarray(), sides[1][among[1]].toarray()
    components = PCA(count, svd_solver="arpack", random_state=0).fit(cells.astype(np.float64)).components_.T
    before, observed = (_product(side[rows], components) for side, rows in zip(sides, among, strict=True))
    return before + _product(moves, components), observed


def _product(cells: Any, components: NDArray[Any]) -> Floats:
    return np.asarray(cells @ components, dtype=np.float64)
