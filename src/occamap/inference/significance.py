"""Moderated t-tests of differences, over samples or across replicates: standard errors, p-values and intervals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from occamap.inference.contrasts import Contrasts
from occamap.inference.multiplicity import q_values
from occamap.inference.shares import FEWEST_REPLICATES

Floats = NDArray[np.float64]

FEWEST_DETECTED = 2.0  # samples in effect that are not zero: features with fewer do not shape the prior
FEWEST_FEATURES = 20  # that the prior is learned from
WINDOW, FEWEST_IN_WINDOW = 10, 60  # a window has one in 10 features, by how often they are detected, and 60 at least
LEAST_P = float(np.finfo(np.float64).tiny)  # smaller ones would be 0
LEAST_RATIO = 1e-6  # of the median ratio: smaller ones are rounding, and say nothing of variances
STRONGEST = 100.0  # degrees of freedom that a prior is worth at most: a few replicates never make a test of thousands


@dataclass(frozen=True, eq=False)
class Prior:
    """What variances of features have in common: `ratio` to that within replicates, worth `degrees` of freedom."""

    ratio: float
    degrees: float


@dataclass(frozen=True, eq=False)
class Significance:
    """Contrasts × features: standard error, degrees of freedom and two-sided p-value of each difference.

    `p` is NaN where there is nothing to test: too few samples or replicates, or a feature that is 0 everywhere.
    """

    error: Floats
    degrees: Floats
    p: Floats

    def half_width(self, level: float = 0.95) -> Floats:
        """Of the interval around the difference that covers the truth at this level; NaN where p is."""
        return np.where(np.isnan(self.p), np.nan, stats.t.isf((1 - level) / 2, self.degrees) * self.error)


def significance(found: Contrasts) -> Significance:
    """Test each difference: against the spread between replicates if there are any, else against that of the samples.

    With replicates, variances are moderated. The ratio of the variance between replicates to that of the spread within
    them has a scaled inverse-χ² prior, learned from features that are detected about as often, because the ratio grows
    with detection. This makes tests with three replicates possible. If replicates have unequal shares, the
    degrees of freedom of their variance are known only within bounds: the prior is learned with the upper bound, so
    that it does not count for too much, and the test uses the lower one. Features with a ratio far above the prior
    (strong responses differ most between donors) keep their own variance, as in limma's robust fit: the prior is
    weighted by the q-value of a test that the feature follows it. The variance is never below that of the samples. The
    part that it takes from the variance of the samples is as uncertain as that variance, and the degrees of freedom
    never exceed those of the samples: a test across replicates is never more certain than a test of the samples.
    """
    variance, degrees = found.variance, found.degrees
    testable = np.isfinite(variance)
    if found.n_replicates is not None:
        variance, degrees = _moderate(found)
        testable &= (found.n_replicates >= FEWEST_REPLICATES)[:, None]
    testable &= found.detected > 0
    error = np.sqrt(np.where(testable, variance, np.nan))
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(found.difference == 0, 0.0, np.abs(found.difference) / error)
    tail = np.maximum(2 * stats.t.sf(t, np.where(testable, degrees, 1.0)), LEAST_P)
    p = np.where(testable, tail, np.nan)
    return Significance(error, np.where(testable, degrees, np.nan), p)


def _moderate(found: Contrasts) -> tuple[Floats, Floats]:
    between, inner, least, most = found.between, found.inner, found.between_degrees, found.most_degrees
    assert between is not None
    assert inner is not None
    assert least is not None
    assert most is not None
    variance, degrees = np.full(between.shape, np.nan), np.full(between.shape, np.nan)
    for k, (own, df) in enumerate(zip(found.variance, least, strict=True)):
        held = np.isfinite(own) & (own > 0)
        if df <= 0 or not held.any():
            continue
        base = inner[k]
        ratio = np.divide(between[k], base, out=np.zeros(own.size), where=held)
        center, prior = _priors(ratio, found.detected[k], held, float(most[k]))
        follows = q_values(np.where(held, stats.f.sf(ratio / center, df, np.maximum(prior, 1.0)), np.nan))
        worth = prior * np.where(held, follows, 0.0)
        mixed = (worth * center + df * ratio) / (worth + df)
        variance[k] = np.where(held, np.maximum(base * mixed, own), np.nan)
        with np.errstate(divide="ignore", invalid="ignore"):
            borrowed = np.where(base * mixed > own, worth * center / (worth + df) / mixed, 1.0)
            degrees[k] = np.minimum(found.degrees[k], 1 / (1 / (worth + df) + borrowed**2 / found.degrees[k]))
    return variance, degrees


def _priors(ratio: Floats, detected: Floats, held: NDArray[np.bool_], degrees: float) -> tuple[Floats, Floats]:
    """Ratio and degrees of freedom of the prior of each feature, learned from those that are detected as often."""
    known = np.flatnonzero(held & (detected >= FEWEST_DETECTED) & (ratio > 0))
    return smooth_priors(detected, known, lambda part: learn_prior(np.sort(ratio[part]), degrees))


def smooth_priors(
    detected: Floats, known: NDArray[np.int64], learn: Callable[[NDArray[np.int64]], Prior]
) -> tuple[Floats, Floats]:
    """Ratio and degrees of freedom of the prior of each feature.

    `learn` finds them for windows of the `known` features, each half over the next, in the order of how often features
    are detected; between the middles of windows they are interpolated. Features that are detected alike share windows.
    """
    n = known.size
    if n < FEWEST_FEATURES:
        return np.ones(detected.size), np.zeros(detected.size)
    levels = np.sort(detected[known])
    width = min(n, max(FEWEST_IN_WINDOW, n // WINDOW))
    starts = np.linspace(0, n - width, max(1, 2 * (n // width) - 1)).astype(np.int64)
    windows = np.unique(np.stack([levels[starts], levels[starts + width - 1]], axis=1), axis=0)
    members = [known[(detected[known] >= low) & (detected[known] <= high)] for low, high in windows]
    middles, first = np.unique([np.median(np.log(detected[part])) for part in members], return_index=True)
    found = [learn(members[k]) for k in first]
    at = np.log(np.maximum(detected, levels[0]))
    ratio = np.exp(np.interp(at, middles, np.log([prior.ratio for prior in found])))
    return ratio, np.interp(at, middles, [prior.degrees for prior in found])


def learn_prior(ratios: Floats, degrees: float) -> Prior:
    """The scaled F distribution of ratios with these degrees of freedom, by the moments of their logarithms.

    The method is that of Smyth (2004), as limma's: log F has a known mean and variance. With fewer than 20 ratios, no
    prior is learned (0 degrees of freedom); it is worth 100 degrees of freedom at most.

    >>> rng = np.random.default_rng(0)
    >>> prior = learn_prior(2.0 * rng.f(5, 10, size=100_000), 5)
    >>> round(prior.ratio, 1), round(prior.degrees)
    (2.0, 10)
    """
    if ratios.size:
        ratios = ratios[ratios > LEAST_RATIO * np.median(ratios)]
    if ratios.size < FEWEST_FEATURES:
        return Prior(1.0, 0.0)
    logs = np.log(ratios) - special.digamma(degrees / 2) + np.log(degrees / 2)
    mean, excess = float(logs.mean()), float(logs.var(ddof=1) - special.polygamma(1, degrees / 2))
    if excess <= 0:
        return Prior(float(np.exp(mean)), STRONGEST)
    half = min(_inverse_trigamma(excess), 0.5e6)  # of no account beyond, where rounding would be
    center = float(np.exp(mean + special.digamma(half) - np.log(half)))
    return Prior(center, min(2 * half, STRONGEST))


def _inverse_trigamma(value: float) -> float:
    """y with ψ′(y) = value, by Newton's method on 1/ψ′, which is nearly linear."""
    y = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(special.polygamma(1, y))
        step = trigamma * (1 - trigamma / value) / float(special.polygamma(2, y))
        y += step
        if abs(step) < 1e-10 * y:
            break
    return y
