"""What a map moves where nothing has changed: noise, for comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from occamap._kernels.columns import column_sums
from occamap.genes.halves import complementary_halves
from occamap.maps import MongeMap

HALF = 0.5
MOST = 1_000  # cells of a half: fewer make more noise, which is on the safe side


@dataclass(frozen=True)
class Null:
    """A map between two random halves of the same cells: the share of entries that move, how many genes move in at
    least half of the cells, and the largest mean displacement of a gene, in absolute value."""

    density: float
    n_genes_in_half: int
    largest_mean: float
    n_cells: int
    n_targets: int


def _half_map(like: MongeMap, rows: Any, others: Any) -> MongeMap:
    """The map of a half of the control cells to the other; coordinates and groups are those of the control."""
    own = {name: (value[0], value[0]) for name in ("match", "within")
           if isinstance(value := getattr(like, name), tuple | list)}
    return clone(like).set_params(**own)._restricted(rows, others)


def null_map(like: MongeMap, X: Any, rng: np.random.Generator) -> Null:
    """Fit a map with the parameters of `like` from one half of the cells X to the other, or from 1,000 to 1,000."""
    order = rng.permutation(X.shape[0])
    middle = X.shape[0] // 2
    rows, others = np.sort(order[:middle][:MOST]), np.sort(order[middle:][:MOST])
    if like.within is not None:  # of every group, cells on both sides
        _, groups = np.unique(like.within[0], return_inverse=True)
        rows, others = (half.rows for half in complementary_halves(groups, np.zeros(2, int), 2, rng))
    source, target = X[rows], X[others]
    moves = _half_map(like, rows, others).fit(source, target).displacement(source)
    share = np.bincount(moves.indices, minlength=moves.shape[1]) / rows.size
    means = column_sums(moves)[0] / rows.size
    return Null(
        density=moves.nnz / (rows.size * moves.shape[1]),
        n_genes_in_half=int((share >= HALF).sum()),
        largest_mean=float(np.abs(means).max(initial=0.0)),
        n_cells=rows.size,
        n_targets=others.size,
    )
