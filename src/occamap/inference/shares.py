"""What each replicate weighs in a contrast, and what follows for the variance between replicates.

A replicate r has a level d_r in both conditions, and deviations a_r and b_r from it in each. The difference of means
has the error Σ_r (v_r − w_r) d_r + v_r b_r − w_r a_r, where w_r and v_r are the weights of r on both sides. Levels
cancel if w_r = v_r, which `balance` sees to for replicates in both conditions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FEWEST_REPLICATES = 3  # on each side of a contrast; with fewer, the spread between them says nothing
LEAST_LEFT = 0.05  # of the variance of a replicate, after the mean of all is subtracted
PRESENT = 0.01  # the weight of a pair from which on it counts as one; half of a mean one if that is less
EVEN = 1.0  # variance between replicates, over the noise of a mean one, that weights are best for
LEVEL = 4.0  # variance of the levels of replicates over that of their deviations, where weights are not balanced


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
        left *= np.clip(_expected(source, target, left), LEAST_LEFT, 1.0)
        return cls(source, target, left, np.maximum(degrees, 0.0), np.maximum(most, 0.0))

    def count(self, least: float = 0.0) -> NDArray[np.int64]:
        """How many replicates weigh more than this, on the side that has fewer of them; one per contrast."""
        return np.asarray(np.minimum((self.source > least).sum(axis=0), (self.target > least).sum(axis=0)))


def _expected(source: Floats, target: Floats, left: Floats) -> Floats:
    """The expected variance estimate of each contrast, Σ_r u_r² / left_r, over the true variance.

    It is 1 if no replicate is on both sides, or if all weigh the same on both. Otherwise levels cancel less in the
    difference than in the residuals u_r = v_r (t_r − t̄) − w_r (s_r − s̄).
    """
    w, v = source, target
    squares = (w**2).sum(axis=0), (v**2).sum(axis=0)
    level = (v - w) ** 2 - 2 * (v - w) * (v**2 - w**2)
    level += v**2 * squares[1] + w**2 * squares[0] - 2 * v * w * (v * w).sum(axis=0)
    deviation = v**2 * (1 - 2 * v + squares[1]) + w**2 * (1 - 2 * w + squares[0])
    estimated = ((LEVEL * level + deviation) / left).sum(axis=0)
    true = LEVEL * ((v - w) ** 2).sum(axis=0) + squares[0] + squares[1]
    return np.where(true > 0, estimated / np.where(true > 0, true, 1.0), 1.0)


def balance(W: Any, V: Any, source: Ints, target: Ints) -> tuple[sp.csr_array, sp.csr_array]:
    """Weights of contrasts in which replicates count more alike, and weigh the same on both sides if they are on both.

    `W` and `V` are contrasts × samples, and `source` and `target` the numbers of the replicates of the samples. Let
    1/e_r be the variance of the part of replicate r (of its mean or, on both sides, of the difference of its means) if
    all samples had the variance 1. The weight of r becomes proportional to 1/(1/e_r + EVEN/ē), ē being the mean of e:
    the best choice if replicates differ by EVEN times the noise in the part of a mean replicate. The totals of paired
    and of unpaired replicates on a side stay. Pairs of contrasts in which fewer than 3 weigh anything stay as they are.

    >>> source, target = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 1, 1, 2, 2, 2])
    >>> W, V = balance(np.full((1, 6), 1 / 6), np.full((1, 6), 1 / 6), source, target)
    >>> np.bincount(source, W.toarray()[0]).round(3).tolist(), np.bincount(target, V.toarray()[0]).round(3).tolist()
    ([0.317, 0.365, 0.317], [0.317, 0.365, 0.317])
    """
    count = int(max(source.max(initial=-1), target.max(initial=-1))) + 1
    codes = source, target
    sides = [sp.csr_array(side, dtype=np.float64) for side in (W, V)]
    members = [sp.csr_array((np.ones(own.size), (np.arange(own.size), own)), (own.size, count)) for own in codes]
    shares = [dense(side @ own) for side, own in zip(sides, members, strict=True)]
    with np.errstate(divide="ignore", invalid="ignore"):
        noise = [np.where(share > 0, dense(side.power(2) @ own) / share**2, np.inf)
                 for side, own, share in zip(sides, members, shares, strict=True)]  # fmt: skip
    paired = np.isin(np.arange(count), source) & np.isin(np.arange(count), target)
    common = _evened(np.where(paired, noise[0] + noise[1], np.inf))
    enough = (common > min(PRESENT, 0.5 / max(count, 1))).sum(axis=1, keepdims=True) >= FEWEST_REPLICATES
    made = []
    for side, own, share, alone in zip(sides, codes, shares, noise, strict=True):
        pairs, rest = (np.where(kind, share, 0.0).sum(axis=1, keepdims=True) for kind in (paired, ~paired))
        wanted = np.where(enough, common * pairs, share)
        wanted = np.where(paired, wanted, rest * _evened(np.where(paired, np.inf, alone)))
        factors = np.where(share > 0, wanted / np.where(share > 0, share, 1.0), 1.0)
        rows = np.repeat(np.arange(side.shape[0]), np.diff(side.indptr))
        data = side.data * factors[rows, own[side.indices]]
        made.append(sp.csr_array((data, side.indices, side.indptr), shape=side.shape))
    return made[0], made[1]


def _evened(noise: Floats) -> Floats:
    """Weights of replicates with this noise (infinite: without samples), contrasts × replicates; of sum 1, or all 0."""
    e = 1 / noise
    held = (e > 0).sum(axis=1, keepdims=True)
    mean = e.sum(axis=1, keepdims=True) / np.maximum(held, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        weights = np.where(e > 0, e / (1 + EVEN * e / mean), 0.0)
    total = weights.sum(axis=1, keepdims=True)
    return np.asarray(weights / np.where(total > 0, total, 1.0))


def dense(product: Any) -> Floats:
    """A sparse product as an array."""
    return np.asarray(sp.csr_array(product).toarray(), dtype=np.float64)


def _degrees(share: Floats) -> Floats:
    """The effective number of replicates, less one: (Σ h²)² / Σ h⁴ − 1."""
    fourth = (share**4).sum(axis=0)
    return np.where(fourth > 0, (share**2).sum(axis=0) ** 2 / np.where(fourth > 0, fourth, 1.0), 1.0) - 1
