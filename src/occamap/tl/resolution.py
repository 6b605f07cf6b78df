"""What `pool`, `match`, `within` and `replicate` name in an AnnData: columns, a graph in obsp, coordinates in obsm."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from occamap.errors import InputError
from occamap.tl.cells import Rows, labels, near, replicate_labels, some

AUTO = "auto"
NAMED = "a column of adata.obs or a key of adata.obsp"


def pool_of(adata: Any, pool: Any, rows: Rows) -> Any:
    """The `pool` of a map of these control cells: None, "auto" and numbers as they are, labels or a matrix by name."""
    if pool is None or not isinstance(pool, str) or pool == AUTO:
        if pool is not None and not isinstance(pool, str) and (not hasattr(pool, "__index__") or np.ndim(pool)):
            raise InputError(f"pool must be None, 'auto', a number of cells, or {NAMED}; got {pool!r}")
        return pool
    if pool in adata.obs.columns:
        found = labels(adata, pool, "pool")[rows]
        absent = sum(entry is None for entry in found)
        if absent:
            raise InputError(
                f"pool must be a column with an entry for every control cell; {absent:,} have none in "
                f"adata.obs[{pool!r}]"
            )
        return found.astype(str)
    if pool in adata.obsp:
        return _graph(adata.obsp[pool], pool, rows)
    there = [*map(str, adata.obs.columns), *map(str, adata.obsp)]
    raise InputError(
        f"pool must be None, 'auto', a number of cells, or {NAMED}{near(pool, there)}; got {pool!r}"
    )


def _graph(graph: Any, key: str, rows: Rows) -> sp.csr_array:
    """The weights of a graph among these cells, each with its heaviest edge to itself, rows scaled to a sum of one."""
    among = sp.csr_array(graph)[rows][:, rows].astype(np.float64)
    if among.nnz and (not np.isfinite(among.data).all() or among.data.min() < 0):
        raise InputError(f"pool must be a graph with finite weights ≥ 0; those of adata.obsp[{key!r}] are not")
    heaviest = np.asarray(among.max(axis=1).todense()).ravel()
    among = sp.csr_array(among + sp.diags_array(np.where(heaviest > 0, heaviest, 1.0)))
    return sp.csr_array(sp.diags_array(1 / np.asarray(among.sum(axis=1)).ravel()) @ among)


def match_of(adata: Any, match: Any, pair: tuple[Rows, Rows]) -> Any:
    """The `match` of a map of these cells: None and numbers as they are, or coordinates by the name of their key."""
    if not isinstance(match, str):
        if match is not None and (not hasattr(match, "__index__") or np.ndim(match)):
            raise InputError(f"match must be None, a number of components or a key of adata.obsm; got {match!r}")
        return match
    if match not in adata.obsm:
        there = list(map(str, adata.obsm))
        raise InputError(f"match must be None, a number or a key of adata.obsm{near(match, there)}; got {match!r}")
    raw: Any = adata.obsm[match]
    coordinates = np.asarray(raw.toarray() if hasattr(raw, "toarray") else raw)
    if coordinates.dtype.kind not in "biuf":
        found = coordinates.dtype
        raise InputError(f"match must be a key of adata.obsm with real numbers; those of {match!r} are {found}")
    coordinates = coordinates.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(coordinates).all(axis=1))
    used = np.intersect1d(bad, np.concatenate(pair))
    if used.size:
        names = [str(adata.obs_names[row]) for row in used]
        raise InputError(f"match must have finite coordinates; those of {used.size:,} cells are not: {some(names)}")
    return coordinates[pair[0]], coordinates[pair[1]]


def within_of(adata: Any, within: str | None, pair: tuple[Rows, Rows]) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """The groups of these cells that they are matched within, as labels of both sides."""
    if within is None:
        return None
    found = labels(adata, within, "within")
    return found[pair[0]].astype(str), found[pair[1]].astype(str)


def replicate_of(
    adata: Any, replicate: str | None, pair: tuple[Rows, Rows]
) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """The replicates of these cells, as labels of both sides."""
    if replicate is None:
        return None
    found = replicate_labels(adata, replicate)
    return found[pair[0]].astype(str), found[pair[1]].astype(str)
