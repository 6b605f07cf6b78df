"""Random halves of two groups of cells, in complementary pairs: the halves of a pair share no cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from occamap.maps import MongeMap

Ints = NDArray[np.int64]


class Half(NamedTuple):
    """Which rows of X and of Y."""

    rows: Ints
    columns: Ints


def complementary_halves(groups: Ints, others: Ints, count: int, rng: np.random.Generator) -> list[Half]:
    """`count` halves of cells and of others, whose groups have these codes; numbers 2k and 2k + 1 are a pair.

    Each group is halved by itself. Where it is odd, one cell is left out, so that the halves of a pair are alike; the
    only cell of a group is in both. If `count` is odd, the last half is without its complement.

    >>> others = np.zeros(4, int)
    >>> first, second = complementary_halves(np.array([0, 0, 1, 1, 1]), others, 2, np.random.default_rng(0))
    >>> first.rows.size, second.rows.size, np.intersect1d(first.rows, second.rows).size
    (2, 2, 0)
    >>> np.sort([*first.columns, *second.columns]).tolist()
    [0, 1, 2, 3]
    """
    members = [[np.flatnonzero(codes == g) for g in range(int(codes.max()) + 1)] for codes in (groups, others)]
    halves: list[Half] = []
    while len(halves) < count:
        parts = [[_halved(rows, rng) for rows in side] for side in members]
        halves += [Half(*(np.concatenate([part[k] for part in side]) for side in parts)) for k in (0, 1)]
    return halves[:count]


def strata_of(like: MongeMap, side: int, n: int, groups: Ints | None = None) -> Ints:
    """Codes of the cells of a side (0: X, 1: Y) that differ in any of these: their group, their group in `within`, and
    their replicate. Halves of each keep what a map needs on both sides."""
    found = np.zeros(n, np.int64) if groups is None else groups
    for labels in (like.within, like.replicate):
        if labels is not None:
            codes = np.unique(np.asarray(labels[side]), return_inverse=True)[1]
            found = np.unique(np.stack([found, codes]), axis=1, return_inverse=True)[1].ravel()
    return found


def _halved(rows: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
    if rows.size == 1:
        return rows, rows
    order, middle = rng.permutation(rows), rows.size // 2
    return np.sort(order[:middle]), np.sort(order[middle : 2 * middle])
