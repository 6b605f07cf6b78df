"""Which source samples a sample is pooled with: the nearest in the joint space of a sample and where it goes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from occamap._memory import Budget
from occamap._validate import Samples, check_count
from occamap._workers import Workers
from occamap.costs import SqL2
from occamap.errors import InputError
from occamap.maps.components import principal_components
from occamap.maps.matching import Coordinates, MatchingSpace, as_samples
from occamap.maps.pooling import Neighbourhoods, Neighbours, PooledSide
from occamap.maps.side import Span, row_spans
from occamap.maps.strata import Strata, check_labels
from occamap.sinkhorn import CostBlocks

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

AUTO = "auto"
COMPONENTS = 30  # of each half of the joint space
FEWEST, MOST = 100, 250  # source samples in a neighbourhood of "auto", before those of little weight are dropped
REACH = 0.75  # the share of the source samples that are in it, between these
TAPER = 4.0  # the furthest of them counts e⁻⁴ times what the nearest does
LEAST = 0.03  # samples that count less than that, beside the nearest, are dropped
SMOOTH, SMOOTH_SHARE = 30, 10  # places are averaged over that many samples, and a tenth of them at most
STOCHASTIC, ROUNDING = 1e-6, 1e-12  # by which the sums of rows may differ from one, and by which nobody minds


@dataclass(frozen=True, eq=False)
class Places:
    """Fitted samples in the joint space: coordinates of a sample, and of the mean of its targets, with equal variance.

    `raw` are those of the fitted samples, `source` their averages over the samples nearest to each, in which there is
    less noise; `anchors` are the coordinates of their targets, and `scales` what either half was divided by.
    """

    raw: Floats
    source: Floats
    anchors: Floats
    scales: tuple[float, float]

    @classmethod
    def of(cls, coordinates: Floats, anchors: Floats, neighbours: Neighbours, workers: Workers) -> Places:
        """Those of the source samples, by their own coordinates and the weights of their targets."""

        def block(span: Span) -> Floats:
            return _means(neighbours.weights(np.arange(*span)), anchors)

        goals = np.concatenate(list(workers.map(block, row_spans(coordinates.shape[0]))))
        scales = _spread(coordinates), _spread(goals)
        raw = np.hstack([coordinates / scales[0], goals / scales[1]])
        return cls(raw, _smooth(raw, raw, np.arange(len(raw)), workers), anchors, scales)

    def locate(self, coordinates: Floats, weights: Floats) -> Floats:
        """Other samples, by their coordinates and the weights of their targets; not yet smooth."""
        return np.hstack([coordinates / self.scales[0], _means(weights, self.anchors) / self.scales[1]])

    def closest(self, points: Floats, workers: Workers) -> Rows:
        """The fitted sample nearest to each point that was located."""
        none = np.full(len(points), -1)
        return nearest(points, self.raw, np.ones(len(self.raw)), Kernel(1), none, workers).indices.astype(np.int64)

    def smooth(self, points: Floats, workers: Workers) -> tuple[Floats, Rows]:
        """Points that were located, averaged as the fitted samples were; and which of these each is, or −1."""
        closest = self.closest(points, workers)
        own = np.where((self.raw[closest] == points).all(axis=1), closest, -1)
        return _smooth(points, self.raw, own, workers), own


def _smooth(points: Floats, raw: Floats, own: Rows, workers: Workers) -> Floats:
    """The mean of the places nearest to each point."""
    n = raw.shape[0]
    W = nearest(points, raw, np.ones(n), Kernel(max(1, min(SMOOTH, n // SMOOTH_SHARE))), own, workers)
    return np.asarray(W @ raw)


class JointSpace:
    """The coordinates of two fitted samples and of any other, and who is near to whom in both directions of a map.

    The samples have no frozen features. `matched` are the coordinates of the match, unless that is in all features;
    then principal components are learned when they are first needed. With strata, samples are matched and near within
    their groups alone.
    """

    def __init__(
        self, source: Samples, target: Samples, matched: Coordinates | None = None, strata: Strata | None = None
    ) -> None:
        self.samples, self.matched, self.strata = (source, target), matched, strata
        self.learned = matched
        self.places: dict[bool, Places] = {}
        self.found: dict[tuple[bool, int | str], Neighbourhoods] = {}
        """The neighbourhoods of the fitted samples themselves, by direction and size."""

    def coordinates(self, X: Samples, workers: Workers, side: int = 0) -> Floats:
        """Those of any samples; `side` is 1 for samples like the targets, of which others may be known."""
        if self.learned is None:
            self.learned = Coordinates(principal_components(self.samples, COMPONENTS, workers))
        return self.learned(X, workers, side)

    def matching(self, forth: bool, workers: Workers) -> MatchingSpace | None:
        """Where the samples are matched with the targets of this direction; None: in all features."""
        if self.matched is None:
            return None
        anchors = self.coordinates(self.samples[forth], workers, int(forth))
        return MatchingSpace(anchors, partial(self.coordinates, side=int(not forth)), self.groups(forth))

    def groups(self, target: bool) -> Rows | None:
        """The groups of the fitted targets, or of the source samples, if they are matched within groups."""
        if self.strata is None:
            return None
        return self.strata.target if target else self.strata.source

    def places_of(self, forth: bool, neighbours: Neighbours, workers: Workers) -> Places:
        """Where the samples of this direction are in the joint space; found once."""
        if forth not in self.places:
            own, anchors = (self.coordinates(self.samples[k], workers, int(k)) for k in (not forth, forth))
            self.places[forth] = Places.of(own, anchors, neighbours, workers)
        return self.places[forth]


@dataclass(frozen=True, eq=False)
class JointPool:
    """The neighbourhoods of points among the fitted samples of a direction, which have masses.

    `pool` is a number of neighbours or "auto", or a matrix or labels over the fitted samples: then a point that is none
    of them has the neighbourhood of the fitted sample nearest to it, in whatever group that is.
    """

    space: JointSpace
    forth: bool
    pool: Any
    masses: Floats

    def __call__(
        self,
        X: Samples,
        neighbours: Neighbours,
        side: PooledSide,
        workers: Workers,
        budget: Budget,
        costs: CostBlocks | None = None,
    ) -> Neighbourhoods:
        side.cost._check_field(max(side.source.largest(), side.anchors.largest()), side.source.shape[1])
        n, same = side.source.shape[0], X.equals(side.source) and _equal(X.strata, side.source.strata)
        if isinstance(self.pool, int | str):
            key = self.forth, self.pool
            if same and key in self.space.found:
                return self.space.found[key]
            places = self.space.places_of(self.forth, neighbours, workers)
            points, own = places.source, np.arange(n)
            if not same:
                points, own = places.smooth(self._points(X, places, side, workers, budget, costs), workers)
            W = self._nearest(points, places.source, own, X.strata, workers)
            found = Neighbourhoods(W, np.arange(X.shape[0]))
            if same:
                self.space.found = {key: found}
            return found
        W, of = by_labels(self.pool, self.masses) if isinstance(self.pool, np.ndarray) else (self.pool, np.arange(n))
        if same:
            return Neighbourhoods(W, of)
        places = self.space.places_of(self.forth, neighbours, workers)
        points = self._points(X, places, side, workers, budget, costs)
        return Neighbourhoods(W, of[places.closest(points, workers)])

    def _nearest(
        self, points: Floats, places: Floats, own: Rows, groups: Rows | None, workers: Workers
    ) -> sp.csr_array:
        """The neighbourhoods of points in these groups, each among the places of its own group."""
        strata = self.space.groups(not self.forth)
        if strata is None or groups is None:
            return nearest(points, places, self.masses, self._kernel(self.masses), own, workers)
        parts, order = [], []
        for group in np.unique(groups):
            rows, members = np.flatnonzero(groups == group), np.flatnonzero(strata == group)
            among = np.full(places.shape[0] + 1, -1)  # the last is for points that are none of them
            among[members] = np.arange(members.size)
            masses = self.masses[members]
            kernel = self._kernel(masses)
            W = nearest(points[rows], places[members], masses, kernel, among[own[rows]], workers)
            parts.append(sp.csr_array((W.data, members[W.indices], W.indptr), shape=(rows.size, places.shape[0])))
            order.append(rows)
        return sp.csr_array(sp.vstack(parts, format="csr")[np.argsort(np.concatenate(order))])

    def _kernel(self, masses: Floats) -> Kernel:
        return Kernel.auto(masses) if self.pool == AUTO else Kernel(int(self.pool))

    def _points(
        self,
        X: Samples,
        places: Places,
        side: PooledSide,
        workers: Workers,
        budget: Budget,
        costs: CostBlocks | None,
    ) -> Floats:
        """Where samples are that were not fitted."""
        rows, displacer = side._prepare(X, budget, workers)
        coordinates = self.space.coordinates(rows, workers, int(not self.forth))
        known = side._costs(rows, displacer, workers) if costs is None else costs.block

        def block(span: Span) -> Floats:
            return places.locate(coordinates[slice(*span)], side._gibbs(known(span))[0])

        return np.concatenate(list(workers.map(block, row_spans(X.shape[0]))))


def _equal(groups: Rows | None, others: Rows | None) -> bool:
    return (groups is None) == (others is None) and (groups is None or np.array_equal(groups, others))  # type: ignore[arg-type]


def _means(weights: Floats, anchors: Floats) -> Floats:
    """Σ_j p_j y_j of each row; by SciPy, not BLAS, so that it depends on nothing but the row."""
    return np.asarray(sp.csr_array(weights) @ anchors)


def _spread(rows: Floats) -> float:
    """The root of the total variance; 1 where nothing varies."""
    return float(np.sqrt(rows.var(axis=0).sum())) or 1.0


@dataclass(frozen=True)
class Kernel:
    """How much the samples near to a point count: the `count` nearest alike, or less with their distance.

    With a `taper`, a sample at distance d counts exp(−taper (d² − d₂²) / (d_r² − d₂²)) times its mass, where d₂ and d_r
    are the distances of the second nearest and of that with the rank `reach`: in many dimensions a sample is far from
    all others, and would otherwise count alone. Samples whose factor is below `least` do not count.
    """

    count: int
    reach: int = 0
    taper: float = 0.0
    least: float = 0.0

    @classmethod
    def auto(cls, masses: Floats) -> Kernel:
        """That of "auto": three quarters of the samples, but at most 250, and less with their distance.

        >>> Kernel.auto(np.full(80, 1 / 80)).count, Kernel.auto(np.full(200, 1 / 200)).count
        (80, 150)
        """
        n = int(np.count_nonzero(masses > 0))
        reach = max(int(REACH * n), min(FEWEST, n))
        reach = min(MOST, reach)
        return cls(reach, reach, TAPER, LEAST)


def nearest(
    points: Floats, places: Floats, masses: Floats, kernel: Kernel, own: Rows, workers: Workers
) -> sp.csr_array:
    """Row-stochastic weights of the places near to each point, in proportion to their masses.

    Places without mass have no part. Of equally near ones the first count. own[q] is the place that point q is, and
    that is nearest to it, or −1.
    """
    held = np.flatnonzero(masses > 0)
    k = min(kernel.count, held.size)
    ranks = sorted({0, min(1, held.size - 1), k - 1, min(max(k, kernel.reach), held.size) - 1})
    pairs = SqL2()._pairs(as_samples(places[held]))
    column = np.full(places.shape[0] + 1, -1)  # the last is for points that are none of them
    column[held] = np.arange(held.size)

    def block(span: Span) -> tuple[Rows, Rows, Floats]:
        C = pairs.block(as_samples(points[slice(*span)]))
        mine = column[own[slice(*span)]]
        C[np.flatnonzero(mine >= 0), mine[mine >= 0]] = -1.0
        sorted_at = np.partition(C, ranks, axis=1)
        furthest = sorted_at[:, k - 1 : k]
        inside, edge = furthest > C, furthest == C
        inside |= edge & (np.cumsum(edge, axis=1) <= k - inside.sum(axis=1, keepdims=True))
        chosen = np.nonzero(inside)[1].reshape(-1, k)
        factors = np.ones(chosen.shape)
        if kernel.taper > 0 and k > 2:
            second, scale = sorted_at[:, 1:2], sorted_at[:, ranks[-1], None] - sorted_at[:, 1:2]
            beyond = np.maximum(np.take_along_axis(C, chosen, axis=1) - second, 0.0)
            factors = np.exp(-kernel.taper * beyond / np.where(scale > 0, scale, 1.0))
            factors[factors < kernel.least] = 0.0
        weights = masses[held[chosen]] * factors
        counts = np.count_nonzero(factors, axis=1)
        counted = factors > 0
        return counts, held[chosen][counted], (weights / weights.sum(axis=1, keepdims=True))[counted]

    found = list(workers.map(block, row_spans(points.shape[0])))
    counts, chosen, weights = (np.concatenate([part[side] for part in found]) for side in range(3))
    indptr = np.concatenate([[0], np.cumsum(counts)])
    return sp.csr_array((weights, chosen, indptr), shape=(points.shape[0], places.shape[0]))


@dataclass(frozen=True)
class NeighbourhoodReport:
    """How large the neighbourhoods of the fitted source samples are, and how far they reach.

    Attributes
    ----------
    largest
        The most samples in a neighbourhood.
    effective
        1 / Σ_i w_i², the number of equally weighted samples that average out as much noise; the median.
    distance
        From a sample to those in its neighbourhood, as a share of that between any two samples, in the joint space.
    """

    largest: int
    effective: float
    distance: float

    def __str__(self) -> str:
        return (
            f"A sample is read with {self.effective:.0f} samples in effect (at most {self.largest:,}), which are "
            f"{self.distance:.0%} as far from it as samples are from one another."
        )


def describe_neighbourhoods(found: Neighbourhoods, places: Places, masses: Floats) -> NeighbourhoodReport:
    """The report of the neighbourhoods of all fitted samples."""
    sizes = np.diff(found.weights.indptr)
    effective = 1 / np.asarray(found.weights.power(2).sum(axis=1)).ravel()
    W = found.weights[found.of]
    rows = np.repeat(np.arange(W.shape[0]), np.diff(W.indptr))
    squares = np.zeros(rows.size)
    for coordinate in places.source.T:
        squares += (coordinate[rows] - coordinate[W.indices]) ** 2
    within = float(np.average(np.bincount(rows, W.data * squares, minlength=W.shape[0]), weights=masses))
    centre = masses @ places.source
    apart = 2 * float(masses @ ((places.source - centre) ** 2).sum(axis=1))
    share = np.sqrt(within / apart) if apart > 0 else 0.0
    return NeighbourhoodReport(int(sizes.max()), float(np.median(effective[found.of])), float(share))


def effective_count(pool: Any, n: int) -> float:
    """How many equally weighted samples average out as much noise as a neighbourhood of n source samples does.

    For "auto", whose neighbourhoods depend on the data, it is a number that small groups of samples reach too.

    >>> effective_count(30, 800), effective_count(np.array(["a", "a", "b"]), 3)
    (30.0, 2.0)
    """
    checked = check_pool(pool, n)
    if checked is None:
        return 1.0
    if isinstance(checked, str):
        return min(0.45 * n, 120.0)
    if isinstance(checked, int):
        return float(min(checked, n))
    if isinstance(checked, np.ndarray):
        _, codes, counts = np.unique(checked, return_inverse=True, return_counts=True)
        return float(np.median(counts[codes]))
    return float(np.median(1 / np.asarray(checked.power(2).sum(axis=1)).ravel()))


def by_labels(labels: NDArray[Any], masses: Floats) -> tuple[sp.csr_array, NDArray[np.int64]]:
    """A neighbourhood for each label, of the samples that have it, by their masses; and which one each sample has."""
    names, codes = np.unique(labels, return_inverse=True)
    totals = np.bincount(codes, weights=masses, minlength=names.size)
    if not np.all(totals > 0):
        empty = names[np.flatnonzero(totals <= 0)[0]]
        raise InputError(f"pool must have mass in every group of its labels; that of {str(empty)!r} has none")
    order = np.argsort(codes, kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(codes, minlength=names.size))])
    W = sp.csr_array(((masses / totals[codes])[order], order, indptr), shape=(names.size, codes.size))
    W.eliminate_zeros()
    return W, codes


def check_pool(pool: Any, n: int | None = None) -> Any:
    """None, "auto", a number of neighbours, or a checked operator or array of labels over n source samples."""
    if pool is None or (isinstance(pool, str) and pool == AUTO):
        return pool
    if sp.issparse(pool) or (isinstance(pool, np.ndarray) and pool.ndim == 2):
        return _check_operator(pool, n)
    if isinstance(pool, str):
        raise InputError(f"pool must be None, 'auto', a number of neighbours, labels or a matrix; got {pool!r}")
    if hasattr(pool, "__index__") and not isinstance(pool, np.ndarray):
        return check_count(pool, "pool")
    if isinstance(pool, float | np.floating | complex):
        raise InputError(f"pool must be None, 'auto', a number of neighbours, labels or a matrix; got {pool!r}")
    return check_labels(pool, "pool", "source sample", n)


def _check_operator(pool: Any, n: int | None) -> sp.csr_array:
    if pool.ndim != 2 or 0 in pool.shape or not np.isrealobj(pool):
        raise InputError(f"pool must be a matrix of real numbers over the source samples; got shape {pool.shape} of "
                         f"{pool.dtype}")
    W = sp.csr_array(pool, dtype=np.float64)
    if W.shape[0] != W.shape[1] or (n is not None and W.shape[0] != n):
        wanted = "square, source samples × source samples" if n is None else f"({n}, {n}), the source samples"
        raise InputError(f"pool must be a matrix of shape {wanted}; got shape {W.shape}")
    sums = np.asarray(W.sum(axis=1)).ravel()
    if not np.isfinite(W.data).all() or W.data.min(initial=0.0) < 0 or np.abs(sums - 1).max() > STOCHASTIC:
        raise InputError(
            "pool must be row-stochastic: no weight below 0, each row with a sum of 1; got rows with sums from "
            f"{sums.min():.3g} to {sums.max():.3g}: divide each row by its sum"
        )
    if not W.has_canonical_format:
        W = W.copy()  # the caller's stays as it is
        W.sum_duplicates()
    if np.abs(sums - 1).max() > ROUNDING:
        weights = W.data / np.repeat(sums, np.diff(W.indptr))
        W = sp.csr_array((weights, W.indices, W.indptr), shape=W.shape)  # a product would not keep their order
    return W
