"""Penalties that are a sum over features, from formulas for one entry."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from occamap._validate import Samples
from occamap.costs.base import Cost, row_sums
from occamap.costs.generic import Floats


class Separable(Cost):
    """h(z) = Σ_t h_t(z_t)."""

    @abstractmethod
    def _entries(self, z: Floats, features: Any) -> Floats:
        """h_t at entries z of these features (an index array, or a slice for the last axis)."""

    @abstractmethod
    def _slopes(self, z: Floats, features: Any) -> Floats:
        """h_t′ at these entries, 0 at 0."""

    @abstractmethod
    def _shrink(self, w: Floats, features: Any) -> Floats:
        """The prox at these entries."""

    def _values(self, z: Samples) -> Floats:
        values = np.empty(z.shape[0])
        for rows, part in z.pieces():
            values[rows] = row_sums(part, self._entries(part.data.astype(np.float64), _features(part)))
        return values

    def _gradient(self, z: Samples) -> NDArray[Any]:
        return self._slopes(z.data.astype(np.float64), _features(z)).astype(z.dtype)

    def _prox(self, w: Samples) -> NDArray[Any]:
        return self._shrink(w.data.astype(np.float64), _features(w)).astype(w.dtype)


def _features(z: Samples) -> Any:
    return slice(None) if z.indices is None else z.indices
