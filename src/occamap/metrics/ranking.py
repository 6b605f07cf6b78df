"""Rank-biased overlap (Webber, Moffat and Zobel, 2010): how alike two rankings are, their tops first."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from occamap._validate import check_number, check_reals
from occamap.errors import InputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class RBO(NamedTuple):
    """Rank-biased overlap of two rankings of which only the first places are known.

    `min` is what is certain, whatever follows; `min + residual` is the most it can become; `extrapolated` takes the
    rankings to go on agreeing as much as they do at the last known depth.

    >>> import occamap as oc
    >>> found = oc.metrics.rbo(["ISG15", "IFIT3"], ["ISG15", "MX1"])
    >>> round(found.min, 3), round(found.residual, 3), round(found.extrapolated, 3)
    (0.256, 0.699, 0.55)
    """

    min: float
    residual: float
    extrapolated: float


def rbo(first: Sequence[object], second: Sequence[object], p: float = 0.9) -> RBO:
    """(1 − p) Σ_d p^(d−1) A_d, with A_d = 2|S_d ∩ T_d| / (|S_d| + |T_d|) the agreement of the first d places.

    A ranking lists items, the best first; items that tie stand together in a set, take the first of the places that
    they share, and so enter at once. Both are read to the depth of the shorter one. With p = 0.9 the first ten places
    carry 86 % of the weight. The result has `min`, which is certain, `residual`, which is open, and `extrapolated`.

    >>> import occamap as oc
    >>> overlap = oc.metrics.rbo(["a", "b", "c"], ["a", "c", "d"], p=0.5)
    >>> round(overlap.extrapolated, 3), round(overlap.min, 3), round(overlap.residual, 3)
    (0.792, 0.761, 0.072)
    """
    share = _check_p(p)
    ours, theirs = _places(first, "first"), _places(second, "second")
    common = [max(place, theirs[item]) for item, place in ours.items() if item in theirs]
    first_places, second_places = (np.fromiter(places.values(), np.int64) for places in (ours, theirs))
    return _overlap(first_places, second_places, np.array(common, dtype=np.int64), share)


def rbo_scores(first: ArrayLike, second: ArrayLike, p: float = 0.9, depth: int | None = None) -> RBO:
    """`rbo` of the rankings of features by two scores, the largest first; equal scores tie.

    Most features of a sparse map score exactly 0: they tie, and enter all at once after the last that is positive,
    before those that are negative; pass absolute values to rank by size.
    `depth` cuts the ranking by `first`, such as at the first 50 markers (a tie across the cut stays out).

    >>> import occamap as oc
    >>> round(oc.metrics.rbo_scores([3.0, 2.0, 0.0, 0.0], [2.0, 3.0, 0.0, 0.0], p=0.5).extrapolated, 3)
    0.5
    """
    scores = check_reals(first, "first"), check_reals(second, "second")
    for name, values in zip(("first", "second"), scores, strict=True):
        if values.ndim != 1 or not values.size or np.isnan(values).any():
            raise InputError(f"{name} must be a score for each feature, without NaN; got shape {values.shape}")
    if scores[0].size != scores[1].size:
        raise InputError(f"second must be as long as first, {scores[0].size:,}; got {scores[1].size:,}")
    (ours, own), (theirs, other) = (_ranking(values) for values in scores)
    count = ours.size if depth is None else _cut(own, depth)
    kept = np.flatnonzero(-scores[0] <= ours[count - 1])
    common = 1 + np.maximum(np.searchsorted(ours, -scores[0][kept]), np.searchsorted(theirs, -scores[1][kept]))
    return _overlap(own[:count], other, common, _check_p(p))


def _ranking(scores: Floats) -> tuple[Floats, Ints]:
    """The scores with their signs turned, sorted, and their places from 1; those that tie share the first of theirs."""
    order = np.sort(-scores)
    return order, 1 + np.searchsorted(order, order)


def _cut(places: Ints, depth: int) -> int:
    """How many features are in the first `depth` places, without a tie that reaches beyond."""
    if isinstance(depth, bool) or not isinstance(depth, int | np.integer) or depth < 1:
        raise InputError(f"depth must be an integer from 1 on; got {depth!r}")
    if depth >= places.size or places[depth] != places[depth - 1]:
        return min(int(depth), places.size)
    kept = int(places[depth - 1]) - 1
    if not kept:
        tied = int(np.searchsorted(places, 1, side="right"))
        raise InputError(f"depth must reach past the features that tie for the first place, {tied:,}; got {depth}")
    return kept


def _check_p(p: float) -> float:
    check_number(p, "p", 0, 1, open_low=True)
    if p == 1:
        raise InputError("p must be below 1, or every depth counts the same; got 1")
    return float(p)


def _places(ranking: Iterable[object], name: str) -> dict[Hashable, int]:
    """Each item with its place, from 1; those that tie share the first of theirs."""
    if isinstance(ranking, str) or not isinstance(ranking, Sequence | np.ndarray):
        raise InputError(f"{name} must be a list of items, the best first; got {type(ranking).__name__}")
    if isinstance(ranking, np.ndarray) and ranking.ndim != 1:
        raise InputError(f"{name} must be a list of items, the best first; got an array of shape {ranking.shape}")
    places: dict[Hashable, int] = {}
    for entry in ranking:
        group = list(entry) if isinstance(entry, set | frozenset) else [entry]
        place = len(places) + 1
        for item in group:
            try:
                known = item in places
            except TypeError as error:
                raise InputError(f"{name} must hold items or sets of tied items; got {item!r}") from error
            if known:
                raise InputError(f"{name} must list each item once; {item!r} comes twice")
            places[item] = place
    if not places:
        raise InputError(f"{name} must hold at least one item")
    return places


def _overlap(first: Ints, second: Ints, common: Ints, p: float) -> RBO:
    """From the places of the items in either ranking, and the later of the two places of those in both."""
    depth = min(first.size, second.size)
    both = _counts(common, depth)
    sizes = [_counts(places, depth) for places in (first, second)]
    agreement = 2 * both / (sizes[0] + sizes[1])
    known = _sum(agreement, 1, p)

    # What comes after: from the sizes at the last depth the sets grow by one item a place. From `end` on both have as
    # many items as places, and may have all of them in common.
    a, b, x = float(sizes[0][-1]), float(sizes[1][-1]), float(both[-1])
    end = int(max(a, b, a + b - x, depth))
    beyond = np.arange(depth + 1, end + 1)
    grown = np.maximum(a, beyond), np.maximum(b, beyond)
    most = np.minimum(np.minimum(*grown), x + (grown[0] - a) + (grown[1] - b))
    low, high = (_sum(2 * common / (grown[0] + grown[1]), depth + 1, p) for common in (x, most))
    low += (1 - p) * x * _tail(end, p)
    high += p**end
    extrapolated = known + float(agreement[-1]) * p**depth
    return RBO(min(1.0, known + low), max(0.0, high - low), min(1.0, extrapolated))


def _tail(end: int, p: float) -> float:
    """Σ_{d > end} p^(d−1) / d, from −log(1 − p), which is p times the sum from d = 1."""
    depths = np.arange(1.0, end + 1)
    return max(0.0, float(-np.log1p(-p) - np.sum(p**depths / depths))) / p


def _counts(places: Ints, depth: int) -> Floats:
    """How many of the places are at most 1, 2, …, depth."""
    return np.cumsum(np.bincount(places[places <= depth], minlength=depth + 1)[1:]).astype(np.float64)


def _sum(agreement: Floats, start: int, p: float) -> float:
    depths = np.arange(start, start + agreement.size)
    return float((1 - p) * np.sum(p ** (depths - 1.0) * agreement))
