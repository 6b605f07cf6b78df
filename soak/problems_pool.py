"""Neighbourhoods of the package, next to what `pool` says that they are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from occamap._workers import Workers
from soak import reference_pool
from soak.problems_bounds import Floats, ask, close, dense, finite, require
from soak.problems_match import Coordinates

CLEAR = 1e-9  # of squared distances: those that differ by less may be in any order


@dataclass(eq=False)
class Neighbourhoods:
    """Those of one direction of a fitted model; p are the weights of the targets of its samples."""

    model: Any
    coordinates: Coordinates
    forth: bool
    p: Floats

    def __post_init__(self) -> None:
        problem, model = self.coordinates.problem, self.model
        self.pool, self.nearest = problem.reading.pool, isinstance(problem.reading.pool, int | str | np.integer)
        self.fitted, self.targets = (problem.X, problem.Y) if self.forth else (problem.Y, problem.X)
        self.masses = model.a_ if self.forth else model.b_

    def of_fitted(self) -> Floats:
        """W, checked."""
        W = self._find(self.fitted)
        if self.forth:
            told = dense(ask(self.model.neighbourhoods)[0])
            require(np.array_equal(told, W), "neighbourhoods() is not what samples are moved by")
        if not self.nearest:
            return self._compared(W, self._stated)
        self._check_nearest(W, self.places.source, np.ones(len(W), bool), tapered=True)
        held = self.masses > 0
        require((np.diag(W)[held] > 0).all(), "a sample with mass is not in its own neighbourhood")
        return W

    def of_points(self, points: Any, p: Floats) -> Floats:
        """W of other points, whose targets have weights p; checked."""
        W, places = self._find(points), self.places
        raw = np.hstack([self.coordinates.of(points) / places.scales[0], p @ self._anchors / places.scales[1]])
        squares = reference_pool.squares_between(raw, places.raw)
        slack = slack_of(raw, places.raw)
        if not self.nearest:
            close_by = squares <= squares.min(axis=1, keepdims=True) + slack[:, None]
            for q, row in enumerate(W):
                off = np.abs(self._stated - row).max(axis=1)
                require((off[close_by[q]] <= 1e-9).any(), "a point has not the neighbourhood of the nearest sample")
            return W
        smooth, clear = reference_pool.smooth(raw, places.raw, self._smoothed, slack)
        self._check_nearest(W, smooth, clear)
        return W

    @cached_property
    def _stated(self) -> Floats:
        """Of labels or a matrix."""
        W = reference_pool.neighbourhoods(self.pool, self.masses)
        assert W is not None
        return W

    def _compared(self, W: Floats, wanted: Floats) -> Floats:
        close(W, wanted, 1e-11 * wanted, "neighbourhoods")
        return W

    def _find(self, points: Any) -> Floats:
        """The rows of W that points are moved by."""
        W, of = ask(find, self.model, points, self.forth)[0]
        W = dense(W[of])
        finite(W, "neighbourhoods")
        require((W >= 0).all(), "a weight of a neighbourhood is below 0")
        close(W.sum(axis=1), 1.0, 1e-11, "the sum of a neighbourhood")
        return W

    def _check_nearest(self, W: Floats, points: Floats, clear: Any, tapered: bool = False) -> None:
        """As many of the samples with mass as should be, none further away than one that was left out."""
        held, count = self.masses > 0, reference_pool.count_neighbours(self.pool, self.masses)
        require(not W[:, ~held].any(), "a sample without mass is in a neighbourhood")
        sizes, auto = (W > 0).sum(axis=1), isinstance(self.pool, str)
        require((sizes <= count if auto else sizes == count).all(), f"a neighbourhood has not {count} samples")
        squares = reference_pool.squares_between(points, self.places.source)
        slack = slack_of(points, self.places.source)
        furthest = np.max(squares, axis=1, initial=0.0, where=W > 0)
        nearest = np.min(squares, axis=1, initial=np.inf, where=(W == 0) & held)
        require((furthest <= nearest + slack)[clear].all(), "a neighbourhood leaves out a sample that is nearer")
        weights, relative = np.where(W > 0, self.masses, 0.0), 1e-11
        if auto:
            ratio = np.where(W > 0, W, np.nan) / np.where(held, self.masses, np.nan)
            spread = np.nanmax(ratio, axis=1) / np.nanmin(ratio, axis=1)
            require((spread <= (1 + 1e-9) / reference_pool.LEAST).all(), "a taper beyond its range")
            if not tapered:
                return
            among = np.where(held, squares, np.inf)
            factor, ordered = reference_pool.taper(among, int(held.sum())), np.sort(among, axis=1)
            edge = np.abs(factor - reference_pool.LEAST) < 1e-3 * reference_pool.LEAST
            clear = clear & ~edge.any(axis=1)
            if count > 2:
                clear = clear & (ordered[:, reference_pool.reach_of(int(held.sum())) - 1] - ordered[:, 1] > 1e4 * slack)
            wanted = np.minimum(count, (factor > reference_pool.LEAST).sum(axis=1))
            require((sizes == wanted)[clear].all(), "a neighbourhood has another size than its weights say")
            weights, relative = np.where(W > 0, weights * factor, 0.0), 1e-3
        weights = weights / weights.sum(axis=1, keepdims=True)
        close(W[clear], weights[clear], relative * weights[clear], "neighbourhoods")

    # -- the joint space ---------------------------------------------------------------------------------------

    @cached_property
    def places(self) -> Any:
        """Where the fitted samples are: their coordinates beside those of the mean of their targets."""
        with Workers(1) as workers:
            side = self.model._towards if self.forth else self.model._back
            neighbours = side.neighbours(workers, self.model._budget())
            places = self.model._space.places_of(self.forth, neighbours, workers)
        for values, name in ((places.raw, "places"), (places.source, "smooth places"), (places.scales, "scales")):
            finite(values, name)
        require(min(places.scales) > 0, "a scale of 0")
        halves = self.coordinates.of(self.fitted), self.p @ self._anchors
        for half, scale, got in zip(halves, places.scales, np.hsplit(places.raw, 2), strict=True):
            spread, size = np.sqrt(half.var(axis=0).sum()), np.abs(half).max()
            if spread > 1e-9 * size:
                close(scale, spread, 1e-6 * spread, "the scale of half a place")
            close(got * scale, half, 1e-12 * size + 1e-300, "half a place")
        smooth, clear = reference_pool.smooth(
            places.raw, places.raw, self._smoothed, slack_of(places.raw, places.raw)
        )
        size = np.abs(places.raw).max()
        close(places.source[clear], smooth[clear], 1e-12 * size + 1e-300, "smooth places")
        return places

    @property
    def _smoothed(self) -> int:
        return max(1, min(reference_pool.SMOOTH, len(self.masses) // 10))

    @cached_property
    def _anchors(self) -> Floats:
        return self.coordinates.of(self.targets)


def slack_of(points: Floats, places: Floats) -> Floats:
    """By what rounding may change squared distances of each point from the places."""
    size = np.abs(points).max(axis=1) + np.abs(places).max()
    return np.asarray(CLEAR * size * size)


def find(model: Any, points: Any, forth: bool) -> Any:
    """The weights of neighbourhoods, and which of them each point has."""
    side, samples = (model._towards if forth else model._back), model._check_new(points)
    with Workers(1) as workers:
        budget = model._budget()
        return side.pool(samples, side.neighbours(workers, budget), side, workers, budget)
