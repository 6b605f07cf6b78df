"""The coordinates of samples, next to what `match` says that they are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from occamap._workers import Workers
from soak.generate import Problem
from soak.generate_pool import Projection
from soak.problems_bounds import EPS, Floats, ask, close, dense, finite, require
from soak.reference_pool import Spectrum

LEAST = 1e-6  # of the largest standard deviation: components below are left out
COMPONENTS, EXTRA = 30, 10  # of the joint space, and directions beside those that are wanted
SINGLE, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Those of a fitted model: what the package has is checked, and what is compared with it is computed from that."""

    model: Any
    problem: Problem
    thawed: Any

    @property
    def is_pair(self) -> bool:
        return isinstance(self.problem.reading.match, tuple)

    def of(self, points: Any) -> Floats:
        """One row per point; of a pair, the points are X or Y of the problem."""
        found = dense(ask(self._locate, points)[0])
        finite(found, "coordinates")
        match, x = self.problem.reading.match, dense(points) * self.thawed
        if self.is_pair:
            wanted = dense(match[0] if points is self.problem.X else match[1])
            require(np.array_equal(found, wanted), "coordinates are not those of the pair")
        elif isinstance(match, Projection):
            mean = self._rows.mean(axis=0)
            size = (np.abs(x) + np.abs(mean)) @ np.abs(match.matrix)
            close(found, (x - mean) @ match.matrix, 256 * EPS[DOUBLE] * size, "coordinates of a transformer")
        else:
            axes, mean = self._axes, self._spectrum.mean
            size = (np.abs(x) + np.abs(self._rows).max(axis=0)) @ np.abs(axes)
            close(found, (x - mean) @ axes, 256 * EPS[DOUBLE] * size, "principal components of a sample")
        return found

    def _locate(self, points: Any) -> Floats:
        model = self.model
        with Workers(1) as workers:
            samples, side = model._check_new(points).without(~self.thawed), int(points is self.problem.Y)
            return np.asarray(model._space.coordinates(samples, workers, side))

    @cached_property
    def _rows(self) -> Floats:
        return np.concatenate([dense(self.problem.X), dense(self.problem.Y)]) * self.thawed

    @cached_property
    def _spectrum(self) -> Spectrum:
        return Spectrum.of(self._rows)

    @cached_property
    def _axes(self) -> Floats:
        """Orthogonal, as many and as long as there should be, and along what varies most."""
        axes, values = self.model._space.learned.components.axes, self._spectrum.values
        count, found = self.problem.reading.match or COMPONENTS, axes.shape[1]
        finite(axes, "principal axes")
        lengths = np.linalg.norm(axes, axis=0)
        close(axes.T @ axes, np.diag(lengths**2), 1e-10, "the product of principal axes")
        require(1 <= found <= min(count, len(values)), f"{found} components of {count}")
        n, d = self._rows.shape
        dtype = np.result_type(self.problem.X.dtype, self.problem.Y.dtype)
        noise = 8 * EPS[dtype] * np.abs(self._rows).max() * np.sqrt(n * d)  # of a singular value
        if values[0] <= 1e3 * noise:
            return np.asarray(axes)  # nothing varies but rounding
        share = noise / values[0]
        levels = 2 * LEAST + share, 0.5 * LEAST - share
        least, most = (min(count, self._spectrum.count_above(level)) for level in levels)
        require(least <= found <= most, f"{found} components, should be {least} to {most}")
        slack = 1e-8 + share if min(count + EXTRA, n, d) == min(n, d) else 0.05
        first_left_out = values[count] if found == count < len(values) else 0.0
        shrunk = np.maximum(1 - (first_left_out / values[:found]) ** 2, 0.0)
        close(lengths**2, shrunk, slack, "the squared length of a principal axis")
        seen = lengths > 0
        held = np.sum((self._spectrum.centred @ (axes[:, seen] / lengths[seen])) ** 2)
        all_of_it = np.sum(values[:found][seen] ** 2)
        require(held >= (1 - slack) * all_of_it, f"components hold {held:.9g} of {all_of_it:.9g}")
        return np.asarray(axes)
