"""tl.pathway_table: the pathways that move, in how many cells, how far, and by which genes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray

from occamap._kernels.columns import column_sums
from occamap._validate import check_count
from occamap.errors import InputError
from occamap.tl.cells import labels
from occamap.tl.gene_sets import gene_sets_of, members_matrix
from occamap.tl.stored import Stored, read

BLOCK = 2**22  # cells × sets that are looked at at a time

Floats = NDArray[np.float64]


def pathway_table(
    adata: Any,
    *,
    key: str = "occamap",
    gene_sets: Any = None,
    by: str | None = None,
    top: int = 5,
    per_cell: bool = False,
) -> pd.DataFrame:
    """What a map that `tl.monge_map` wrote does to gene sets, those that move most on average first.

    Parameters
    ----------
    adata, key
        The AnnData, and the `key_added` of the map.
    gene_sets
        As for `tl.monge_map`; by default the sets that the map was learned with. Any map can be asked about any sets.
    by
        A column of `adata.obs`, such as the cell type: a table for each group that has control cells, below each other.
    top
        How many genes to name a set.
    per_cell
        Return instead a row a control cell and a column a set: the length of the displacement within the set.

    Returns
    -------
    A data frame with a row a set (or a row a group and set), and columns

    - `n_genes`: of its genes, how many are among the used ones; all that follows is about these
    - `share`: of the control cells, in how many any of its genes moves; `mean_genes`: the share of its genes that do,
      on average over these cells
    - `shift`: the root mean square, over its genes, of their mean displacement over all control cells; the table is
      sorted by it. It does not depend on the size of the set, and what moves by chance in both directions cancels
    - `norm`: the length of the displacement within the set, on average over all control cells
    - `mean`: of the displacement, over its genes and all control cells; `direction`: its sign, in words; `up`, `down`:
      the share of cells in which the genes of the set rise, or fall, on average
    - `energy`: the share of all squared displacements that is within the set
    - `top_genes`: those that move most on average

    A gene in several sets counts in each of them, whichever of them the penalty moved it with: energies may sum to more
    than 1. Frozen genes never move; those of the map's own sets are not counted in `n_genes`.

    Examples
    --------
    >>> import occamap as oc
    >>> adata = oc.datasets.simulate_perturbation(200, 150, 300, effect=1.5).to_anndata()
    >>> m = oc.tl.monge_map(adata, groupby="condition", control="control", target="treated")
    >>> moved = adata.var_names[(adata.varm["response"] != 0).any(axis=1)]
    >>> sets = {"planted": moved, "others": adata.var_names.difference(moved)}
    >>> oc.tl.pathway_table(adata, gene_sets=sets).index.tolist()
    ['planted', 'others']
    """
    stored = read(adata, key)
    check_count(top, "top", 0)
    if per_cell and by is not None:
        raise InputError(f"by must not be given with per_cell=True, which has a row a cell; got {by!r}")
    names, members = _sets(stored, gene_sets)
    moves = stored.moves()
    if not moves.shape[0]:
        raise InputError(f"adata must hold cells of {stored.design.control!r}, which the map moves; it has none")
    index = pd.Index(names, name="pathway")
    if per_cell:
        cells = np.asarray(adata.obs_names)[stored.rows("control")]
        return pd.DataFrame(_norms(moves, members), index=pd.Index(cells, name="cell"), columns=index)
    if by is None:
        return _table(moves, members, stored.names, index, top)
    groups = labels(adata, by, "by")[stored.rows("control")]
    there = sorted({group for group in groups if group is not None})
    if not there:
        raise InputError("by must be a column in which control cells have an entry; none has")
    tables = {group: _table(moves[groups == group], members, stored.names, index, top) for group in there}
    return pd.concat(tables, names=[by])


def _sets(stored: Stored, gene_sets: Any) -> tuple[list[str], sp.csr_array]:
    """Names, and genes × sets; of the map's own, without the group of frozen genes."""
    d = int(stored.genes.sum())
    if gene_sets is not None:
        found = gene_sets_of(stored.adata, gene_sets, stored.genes)
        return list(found.names), members_matrix(found.members, d)
    own = stored.groups()
    if own is None:
        raise InputError("gene_sets must be given: the map was learned without them")
    names, members, weights = own
    moving = np.isfinite(weights) if weights is not None else np.ones(len(names), dtype=bool)
    kept = [(name, member) for name, member, may in zip(names, members, moving, strict=True) if may]
    return [name for name, _ in kept], members_matrix([member for _, member in kept], d)


def _table(moves: sp.csr_array, members: sp.csr_array, genes: Any, index: pd.Index, top: int) -> pd.DataFrame:
    """The table of one group of cells."""
    n, sizes = moves.shape[0], column_sums(members)[0]
    cells_moving, genes_moving, rises, falls, norms = np.zeros((5, sizes.size))
    for part in _blocks(moves, sizes.size):
        moving = _dense(_like(part, np.ones_like(part.data)), members)
        total = _dense(part, members)
        cells_moving += (moving > 0).sum(axis=0)
        genes_moving += moving.sum(axis=0)
        rises, falls = rises + (total > 0).sum(axis=0), falls + (total < 0).sum(axis=0)
        norms += _norms(part, members).sum(axis=0)
    sums, squares = column_sums(moves)
    mean = sums / n
    by_set = members.T.tocsr()
    shift, average = np.sqrt(by_set @ mean**2 / sizes), by_set @ mean / sizes
    moving_pairs = np.maximum(cells_moving, 1) * sizes
    table = pd.DataFrame(
        {
            "n_genes": sizes.astype(np.int64),
            "share": cells_moving / n,
            "mean_genes": genes_moving / moving_pairs,
            "shift": shift,
            "norm": norms / n,
            "mean": average,
            "up": rises / n,
            "down": falls / n,
            "direction": np.select([average > 0, average < 0], ["up", "down"], "none"),
            "energy": by_set @ squares / max(float(squares.sum()), np.finfo(float).tiny),
            "top_genes": _top(by_set, mean, genes, top),
        },
        index=index,
    )
    return table.iloc[np.argsort(-shift, kind="stable")]


def _top(by_set: sp.csr_array, mean: Floats, genes: Any, count: int) -> list[str]:
    """Of each set, the genes that move most on average, with commas between them."""
    made = []
    for first, last in zip(by_set.indptr[:-1], by_set.indptr[1:], strict=True):
        mine = np.sort(by_set.indices[first:last])
        order = mine[np.argsort(-np.abs(mean[mine]), kind="stable")][:count]
        made.append(", ".join(str(genes[t]) for t in order if mean[t] != 0))
    return made


def _norms(moves: sp.csr_array, members: sp.csr_array) -> NDArray[np.float32]:
    """Cells × sets: the length of the displacement within the set."""
    made = np.empty((moves.shape[0], members.shape[1]), dtype=np.float32)
    start = 0
    for part in _blocks(moves, members.shape[1]):
        squares = _like(part, part.data.astype(np.float64) ** 2)
        made[start : start + part.shape[0]] = np.sqrt(_dense(squares, members))
        start += part.shape[0]
    return made


def _blocks(moves: sp.csr_array, n_sets: int) -> Any:
    """A few rows at a time."""
    step = max(1, BLOCK // max(1, n_sets))
    return (moves[start : start + step] for start in range(0, moves.shape[0], step))


def _like(matrix: sp.csr_array, data: NDArray[Any]) -> sp.csr_array:
    return sp.csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)


def _dense(left: sp.csr_array, right: sp.csr_array) -> Floats:
    return np.asarray((left.astype(np.float64) @ right.astype(np.float64)).todense())
