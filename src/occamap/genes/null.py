"""What a map moves where nothing has changed: noise, for comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from occamap._kernels.columns import column_sums
from occamap.maps import MongeMap

HALF = 0.5


@dataclass(frozen=True)
class Null:
    """A map between two random halves of the same cells: the share of entries that move, how many genes move in at
    least half of the cells, and the largest mean displacement of a gene, in absolute value."""

    density: float
    n_genes_in_half: int
    largest_mean: float
    n_cells: int
    n_targets: int


def null_map(like: MongeMap, X: Any, rng: np.random.Generator) -> Null:
    """Fit a map with the parameters of `like` from one half of the cells X to the other."""
    order = rng.permutation(X.shape[0])
    middle = X.shape[0] // 2
    source, target = X[np.sort(order[:middle])], X[np.sort(order[middle:])]
    moves = clone(like).fit(source, target).displacement(source)
    share = np.bincount(moves.indices, minlength=moves.shape[1]) / middle
    means = column_sums(moves)[0] / middle
    return Null(
        density=moves.nnz / (middle * moves.shape[1]),
        n_genes_in_half=int((share >= HALF).sum()),
        largest_mean=float(np.abs(means).max(initial=0.0)),
        n_cells=middle,
        n_targets=X.shape[0] - middle,
    )
