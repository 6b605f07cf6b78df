"""What each replicate weighs in a contrast, and what follows for the variance between replicates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEAST_LEFT = 0.05  # of the variance of a replicate, after the mean of all is subtracted


@dataclass(frozen=True, eq=False)
class Shares:
    """Replicates × contrasts.

    Attributes
    ----------
    source, target
        The weight of each replicate in the mean of each side; sums to 1 over the replicates.
    left
        The share of the variance of a replicate that is left after the mean of all is subtracted.
    degrees
        Of the variance between replicates, one per contrast.
    most_degrees
        What they would be if all replicates weighed the same.
    """

    source: Floats
    target: Floats
    left: Floats
    degrees: Floats
    most_degrees: Floats

    @classmethod
    def of(cls, source: Floats, target: Floats) -> Shares:
        """From the weights of both sides. A replicate on both is paired with itself."""
        weights = np.stack([source, target])
        held = weights > 0
        paired = held.all(axis=0)
        share = np.where(paired, weights.mean(axis=0), weights.sum(axis=0))
        sums = (weights**2).sum(axis=1)
        own = np.where(paired, (share**2).sum(axis=0), np.where(held[0], sums[0], sums[1]))
        some_paired = paired.any(axis=0)
        degrees = np.where(some_paired, _degrees(share), _degrees(source) + _degrees(target))
        most = held.any(axis=0).sum(axis=0) - np.where(some_paired, 1.0, 2.0)
        left = np.maximum(1 - 2 * share + own, LEAST_LEFT)
        return cls(source, target, left, np.maximum(degrees, 0.0), np.maximum(most, 0.0))

    def count(self, least: float = 0.0) -> NDArray[np.int64]:
        """How many replicates weigh more than this, on the side that has fewer of them; one per contrast."""
        return np.asarray(np.minimum((self.source > least).sum(axis=0), (self.target > least).sum(axis=0)))


def _degrees(share: Floats) -> Floats:
    """The effective number of replicates, less one: (Σ h²)² / Σ h⁴ − 1."""
    fourth = (share**4).sum(axis=0)
    return np.where(fourth > 0, (share**2).sum(axis=0) ** 2 / np.where(fourth > 0, fourth, 1.0), 1.0) - 1
