"""Where samples are matched: on coordinates, under ½‖·‖², while displacements are read in all features."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import clone

from occamap._validate import Samples, check_count, check_samples
from occamap._workers import Workers
from occamap.costs import SqL2
from occamap.costs.generic import Pairs
from occamap.errors import InputError
from occamap.maps.components import Components, principal_components

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

APART = 1e200  # the cost of a pair that must not be matched


@dataclass(frozen=True, eq=False)
class Coordinates:
    """How samples get their coordinates: as given for fitted samples, by principal components, or by a transformer.

    `given` are the samples of the source and of the target with their coordinates.
    """

    components: Components | None = None
    transformer: Any = None
    given: tuple[tuple[Samples, Floats], ...] = ()

    def __call__(self, X: Samples, workers: Workers, side: int = 0) -> Floats:
        """One row per sample; of samples that are source and target at once, those of the `side`, 0 or 1."""
        for samples, coordinates in self.given:
            if X is samples:
                return coordinates
        for samples, coordinates in self.given[::-1] if side else self.given:
            if X.equals(samples):
                return coordinates
        if self.components is not None:
            return self.components(X, workers)
        if self.transformer is not None:
            return _transformed(self.transformer, X)
        raise InputError(
            "match was given as coordinates of the fitted samples, and those of other samples are not known: fit with "
            "match as a number of principal components, or as a transformer, to move them"
        )


def check_match(match: Any) -> None:
    """Raise unless it is None, a number of components, a transformer, or a pair of coordinates."""
    if match is None or (hasattr(match, "fit") and hasattr(match, "transform")):
        return
    if isinstance(match, tuple | list):
        if len(match) != 2:
            raise InputError(f"match must be a pair of arrays, for the source and the target; got {len(match)}")
        for name, coordinates in zip(("the source", "the target"), match, strict=True):
            check_samples(coordinates, f"match of {name}")
        return
    if isinstance(match, str) or not hasattr(match, "__index__"):
        raise InputError(
            "match must be None, a number of principal components, a transformer with fit and transform, or a pair of "
            f"arrays with the coordinates of the source and of the target; got {match!r}"
        )
    check_count(match, "match")


def learn_coordinates(match: Any, source: Samples, target: Samples, workers: Workers) -> Coordinates:
    """The coordinates that `match` asks for, learned from both samples."""
    if isinstance(match, tuple | list):
        return given_coordinates(match, source, target)
    if hasattr(match, "transform"):
        learned = clone(match) if hasattr(match, "get_params") else deepcopy(match)  # the caller's stays as it is
        if source.is_sparse:
            learned.fit(sp.csr_array(sp.vstack([source.csr(), target.csr()])))
        else:
            learned.fit(np.concatenate([source.data, target.dense()]))
        return Coordinates(transformer=learned)
    return Coordinates(principal_components([source, target], check_count(match, "match"), workers))


def given_coordinates(match: Any, source: Samples, target: Samples) -> Coordinates:
    pair = [check_samples(side, "match").dense().astype(np.float64) for side in match]
    for name, side, samples in zip("XY", pair, (source, target), strict=True):
        if side.shape != (samples.shape[0], pair[0].shape[1]):
            raise InputError(
                f"match must have one row of {pair[0].shape[1]} coordinates for each of the {samples.shape[0]} samples "
                f"of {name}; got shape {side.shape}"
            )
    return Coordinates(given=((source, pair[0]), (target, pair[1])))


def _transformed(transformer: Any, X: Samples) -> Floats:
    rows = check_samples(transformer.transform(X.csr() if X.is_sparse else X.data), "the coordinates of match")
    if rows.shape[0] != X.shape[0]:
        raise InputError(f"the transformer of match must give one row per sample; got {rows.shape[0]} of {X.shape[0]}")
    return rows.dense().astype(np.float64)


class MatchingSpace:
    """The coordinates of the anchors, and a function that finds those of any samples.

    With `strata`, the groups of the anchors, samples are matched with the anchors of their own group alone.
    """

    def __init__(
        self, anchors: Floats, coordinates: Callable[[Samples, Workers], Floats], strata: Rows | None = None
    ) -> None:
        self.anchors, self._coordinates, self.strata = anchors, coordinates, strata

    def locate(self, X: Samples, workers: Workers) -> Samples:
        """The coordinates of each row, as samples."""
        return replace(as_samples(self._coordinates(X, workers)), strata=X.strata)

    def costs(self, rows: Samples) -> Floats:
        """½‖·‖² of located samples to the anchors; to those of other groups, so much that they have no weight."""
        C = self._pairs.block(rows)
        if self.strata is not None and rows.strata is not None:
            C[rows.strata[:, None] != self.strata] = APART
        return C

    @cached_property
    def _pairs(self) -> Pairs:
        return SqL2()._pairs(as_samples(self.anchors))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_pairs"}


def as_samples(rows: Floats) -> Samples:
    """Dense rows, as samples."""
    return Samples((rows.shape[0], rows.shape[1]), np.ascontiguousarray(rows))
