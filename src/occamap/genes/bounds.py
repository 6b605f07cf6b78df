"""How many genes that a half rarely selects are to be expected among those that many halves select.

Of p genes each half selects q at most. A gene is low if a half selects it with probability θ = q/p or less: no more
often than a blind draw would. Bounds are on the expected number of low genes that a share τ or more of the 2B halves of
B complementary pairs select.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from occamap._validate import check_choice, check_count

Floats = NDArray[np.float64]

ASSUMPTIONS = ("none", "unimodal", "r-concave")
STEPS = 33  # distributions looked at in each range of extremal ones, before the best is refined
GOLDEN = (5**0.5 - 1) / 2


def expected_false(frequency: Floats, halves: int, top: int, n_genes: int, assume: str = "unimodal") -> Floats:
    """For each frequency τ, the bound on the low genes among all that are selected as often or more often.

    It is the least of those that hold under what is assumed of low genes:

    - "none": q/τ (Markov), and θq/(2τ − 1), which needs complementary pairs and nothing else
      (Shah and Samworth 2013, theorem 1; Meinshausen and Bühlmann 2010 have the same number for exchangeable genes)
    - "unimodal": the share of pairs that select the gene twice has one mode (their theorem 2)
    - "r-concave": that share is −1/2-concave, and the share of halves −1/4-concave (their equation 8)

    If `halves` is odd, the last is without its complement, and is taken to have selected the gene.

    >>> expected_false(np.array([1.0, 0.9, 0.6]), 100, 50, 1000, "none").round(3).tolist()
    [2.5, 3.125, 12.5]
    >>> expected_false(np.array([1.0, 0.9, 0.6]), 100, 50, 1000).round(3).tolist()
    [0.098, 1.078, 6.579]
    """
    check_choice(assume, "assume", ASSUMPTIONS)
    check_count(halves, "halves", 2)
    check_count(top, "top")
    check_count(n_genes, "n_genes", 0)
    bounds = _by_count(halves // 2, min(top, n_genes), n_genes, ASSUMPTIONS.index(assume))
    count = np.rint(np.asarray(frequency) * halves).astype(np.int64) - halves % 2
    return bounds[np.maximum(count, 0)]


def _by_count(pairs: int, q: int, p: int, level: int) -> Floats:
    """The bound at τ = 0, 1/2B, …, 1."""
    tau, theta = np.arange(2 * pairs + 1) / (2 * pairs), q / max(p, 1)
    if q == 0:  # no gene moves in any half
        return np.zeros(tau.size)
    bound = np.minimum(p, np.divide(q, tau, out=np.full(tau.size, np.inf), where=tau > 0))
    more = tau > 1 / 2
    bound[more] = np.minimum(bound[more], theta * q / (2 * tau[more] - 1))
    if level >= 1 and theta <= 3**-0.5:
        bound = np.minimum(bound, theta * q * _unimodal(tau, pairs, theta))
    if level >= 2:
        twice = np.concatenate([np.ones(pairs), tail_bounds(theta**2, pairs, -1 / 2)])
        bound = np.minimum(bound, p * np.minimum(twice, tail_bounds(theta, 2 * pairs, -1 / 4)))
    return np.minimum.accumulate(bound)  # who is selected more often is also selected as often


def _unimodal(tau: Floats, pairs: int, theta: float) -> Floats:
    """The factor of θq; infinite where the theorem says nothing."""
    half = 1 / (2 * pairs)
    least = 1 / 2 + min(theta**2, half + 3 / 4 * theta**2)
    inside = (tau > least) & (tau >= 1 / 2 + 2 * half - 1e-9)
    low, factor = inside & (tau <= 3 / 4), np.full(tau.size, np.inf)
    factor[low] = 1 / (2 * (2 * tau[low] - 1 - half))
    high = inside & (tau > 3 / 4)
    factor[high] = 4 * (1 - tau[high] + half) / (1 + 2 * half)
    return factor


def tail_bounds(mean: float, count: int, r: float) -> Floats:
    """The largest P(X ≥ t) for t = 0, 1/count, …, 1 over r-concave X on these numbers of at most this mean; r < 0.

    X is r-concave where the r-th power of its probabilities is convex. The extremal ones are, with N = count·X,
    P(N = i) ∝ (a + i)^(1/r) for i ≤ k, and at k + 1 what the mean asks for, at most as much as the next term: for each
    a there is one k. Where t is twice the mean or less, the bound is 1.

    >>> tail_bounds(0.1, 5, -1 / 2).round(4).tolist()
    [1.0, 1.0, 0.1332, 0.0648, 0.0333, 0.0135]
    """
    m, bound = mean * count, np.ones(count + 1)
    first = int(np.ceil(2 * m - 1e-9)) + 1
    if m == 0 or first > count:
        bound[1 if m == 0 else count + 1 :] = 0.0
        return bound
    ends = np.log(_affine_ends(m, first - 1, count, r))
    k = np.arange(first - 1, count)
    grid = ends[1:, None] + (ends[:-1] - ends[1:])[:, None] * np.linspace(0, 1, STEPS)
    tails = _tails(grid, k[:, None], m, count, r)[..., first:]
    best = tails.reshape(-1, count + 1 - first).argmax(axis=0)
    row, step = np.unravel_index(best, grid.shape)
    low, high = grid[row, np.maximum(step - 1, 0)], grid[row, np.minimum(step + 1, STEPS - 1)]
    t = np.arange(first, count + 1)

    def at(log_a: Floats) -> Floats:
        return _tails(log_a, k[row], m, count, r)[np.arange(t.size), t]

    for _ in range(50):
        one, two = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        left = at(one) >= at(two)
        low, high = np.where(left, low, one), np.where(left, two, high)
    bound[first:] = np.maximum(at((low + high) / 2), tails.reshape(-1, t.size).max(axis=0))
    return bound


def _affine_ends(m: float, first: int, last: int, r: float) -> Floats:
    """For k = first, …, last the a at which (a + i)^(1/r), i ≤ k, has mean m: they fall as k grows."""
    i, k = np.arange(last + 1), np.arange(first, last + 1)[:, None]
    low, high = np.full(k.size, np.log(1e-15)), np.full(k.size, np.log(1e9))
    for _ in range(100):
        middle = (low + high) / 2
        weights = np.where(i <= k, np.exp(np.log1p(i / np.exp(middle)[:, None]) / r), 0.0)
        small = weights @ i < m * weights.sum(axis=1)
        low, high = np.where(small, middle, low), np.where(small, high, middle)
    return np.asarray(np.exp(high))


def _tails(log_a: Floats, k: NDArray[np.int64], m: float, count: int, r: float) -> Floats:
    """P(N ≥ t) for t = 0, …, count on the last axis, of the extremal distributions of these a and k."""
    i, k = np.arange(count), k[..., None]
    weights = np.where(i <= k, np.exp(np.log1p(i / np.exp(log_a)[..., None]) / r), 0.0)
    scale = (k + 1 - m) / ((k + 1 - i).clip(0) * weights).sum(axis=-1, keepdims=True)
    tails = np.ones((*weights.shape[:-1], count + 1))
    tails[..., 1:] = 1 - scale * np.cumsum(weights, axis=-1)
    return np.where(np.arange(count + 1) <= k + 1, tails, 0.0)
