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
from occamap.genes.effects import Effects, add_effects, effects
from occamap.tl.gene_sets import gene_sets_of, members_matrix
from occamap.tl.group_tests import (
    group_codes,
    replicate_column,
    replicates_of,
    warn_of_few_replicates,
    warn_of_unequal_replicates,
    warn_of_untested_groups,
)
from occamap.tl.resolution import AUTO
from occamap.tl.stored import Stored, read

BLOCK = 2**22  # cells × sets that are looked at at a time

Floats = NDArray[np.float64]


def pathway_table(
    adata: Any,
    *,
    key: str = "occamap",
    gene_sets: Any = None,
    by: str | None = None,
    replicate: str | None = AUTO,
    top: int = 5,
    per_cell: bool = False,
) -> pd.DataFrame:
    """What a map that `tl.monge_map` wrote does to gene sets, sorted by how far they move on average.

    Parameters
    ----------
    adata, key
        The AnnData, and the `key_added` of the map.
    gene_sets
        As for `tl.monge_map`; by default the sets that the map was learned with. Any sets can be used with any map.
    by
        A column of `adata.obs`, such as the cell type: a table for each group that has control cells, below each other.
    replicate
        As for `tl.gene_table`: a column of `adata.obs` with the donors, animals or batches of the cells. Tests and
        intervals are then across replicates. "auto" is the column of the map, if it has one.
    top
        How many genes to name per set.
    per_cell
        Return instead one row per control cell and one column per set: the length of the displacement within the set.

    Returns
    -------
    A data frame with one row per set (or per group and set), and columns

    - `n_genes`: the number of genes of the set that the map uses; the other columns refer to these
    - `share`: the share of the control cells in which any of its genes moves; `mean_genes`: the share of its genes that
      do, on average over these cells
    - `shift`: the root mean square, over its genes, of their mean displacement over all control cells; the table is
      sorted by it. It does not depend on the size of the set, and what moves by chance in both directions cancels
    - `norm`: the length of the displacement within the set, on average over all control cells
    - `mean`: of the displacement, over its genes and all control cells; `direction`: its sign, in words; `up`, `down`:
      the share of cells in which the genes of the set rise, or fall, on average
    - `difference`: the mean over its genes of the matched target cells minus that of the control cells, in the units of
      the data and without a penalty; `difference_low`, `difference_high`: its 95 % interval
    - `p`, `q`: of a two-sided test that `difference` is 0, and the lowest false-discovery rate at which the set is
      found (Benjamini and Hochberg), over all sets or, with `by`, over all sets of all groups. The test does not
      compare the set to other genes, and misses sets of which some genes rise and others fall. NaN as in
      `tl.gene_table`
    - `n_replicates`, with `replicate`: the number of replicates in the condition with fewer
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
        raise InputError(f"by must not be given with per_cell=True, which has one row per cell; got {by!r}")
    names, members = _sets(stored, gene_sets)
    moves = stored.moves()
    if not moves.shape[0]:
        raise InputError(f"adata must hold cells of {stored.design.control!r}, which the map moves; it has none")
    index = pd.Index(names, name="pathway")
    if per_cell:
        cells = np.asarray(adata.obs_names)[stored.rows("control")]
        return pd.DataFrame(_norms(moves, members), index=pd.Index(cells, name="cell"), columns=index)
    groups, found = np.zeros(moves.shape[0], np.int64), list[str | None]([""])
    if by is not None:
        found, groups, _ = group_codes(stored, by)
    tables = {
        name: _table(moves[groups == code], members, stored.names, index, top)
        for code, name in enumerate(found)
        if name is not None
    }
    if by in {"pathway", "q", "p", *next(iter(tables.values())).columns}:
        raise InputError(f"by must not have the name of a column of the table; got {by!r}: rename it")
    replicate = replicate_column(stored, replicate)
    tested = _tested(stored, members, np.where(groups < len(tables), groups, -1), len(tables), replicate)
    add_effects(list(tables.values()), tested, index.to_numpy(), after="direction", omit="log2_fold_change")
    if replicate is not None and tested.n_replicates is not None:
        warn_of_unequal_replicates(replicate, by, tested, [str(name) for name in tables])
        counts = dict(zip(map(str, tables), tested.n_replicates.tolist(), strict=True))
        if by is None:
            warn_of_few_replicates(replicate, counts[""])
        else:
            warn_of_untested_groups(replicate, by, counts)
    return tables[""] if by is None else pd.concat(tables, names=[by])


def _tested(
    stored: Stored, members: sp.csr_array, groups: NDArray[np.int64], n_groups: int, replicate: str | None
) -> Effects:
    """Differences of the means of the genes of each set, in each group (−1: in none)."""
    sizes = column_sums(members)[0]
    means = sp.csr_array(members.astype(np.float64) @ sp.diags_array(1 / np.maximum(sizes, 1)))
    sides = stored.cells("control"), stored.cells("target")
    return effects(*sides, stored.match(), groups, n_groups, replicates_of(stored, replicate), sets=means)


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
