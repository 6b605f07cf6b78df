"""How much of a gene's displacement is owed to the cells that happened to be sampled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import clone

from occamap._workers import Workers
from occamap.maps import MongeMap

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def subsampled_means(
    like: MongeMap,
    X: Any,
    Y: Any,
    groups: Ints,
    subsamples: int,
    rng: np.random.Generator,
    tick: Callable[[int, int], None] | None = None,
    client: Any = None,
) -> Floats:
    """Mean displacement of each gene in each group of the cells X, from maps fitted on halves of X and Y.

    Subsamples × groups × genes. A half is drawn without replacement, from each group of X: then the spread over
    subsamples is that of the mean over samples as large as X and Y. `like` has the parameters of the maps. They are
    fitted side by side, a thread each, or one after the other: within a budget, or by the workers of a cluster.
    """
    n_groups = int(groups.max()) + 1
    halves = [
        (
            np.concatenate([_half(np.flatnonzero(groups == g), rng) for g in range(n_groups)]),
            _half(np.arange(Y.shape[0]), rng),
        )
        for _ in range(subsamples)
    ]
    side_by_side = client is None and like.max_memory is None  # a budget is for one of them
    alone = clone(like).set_params(n_jobs=1) if side_by_side else like

    def one(half: tuple[Ints, Ints]) -> Floats:
        rows, columns = half
        source = X[rows]
        moves = clone(alone).fit(source, Y[columns], client=client).displacement(source, client)
        return group_means(moves, groups[rows], n_groups)

    means = np.empty((subsamples, n_groups, X.shape[1]))
    with Workers(like.n_jobs if side_by_side else 1) as workers:
        for k, found in enumerate(workers.map(one, halves)):
            means[k] = found
            if tick is not None:
                tick(k + 1, subsamples)
    return means


def group_means(moves: sp.csr_array, groups: Ints, n_groups: int) -> Floats:
    """Groups × genes: the mean of the rows of each group."""
    counts = np.bincount(groups, minlength=n_groups)
    member = sp.csr_array((1.0 / counts[groups], (groups, np.arange(groups.size))), shape=(n_groups, groups.size))
    return np.asarray((member @ moves).todense(), dtype=np.float64)


def _half(rows: Ints, rng: np.random.Generator) -> Ints:
    return np.sort(rng.permutation(rows)[: (rows.size + 1) // 2])
