"""How far apart two measures are, from the distances between their samples alone: nothing is solved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from occamap._validate import Samples, check_number
from occamap._workers import Workers
from occamap.costs import SqL2
from occamap.errors import InputError
from occamap.metrics.transport import Measure, _check_measures

__all__ = ["energy_distance", "mmd"]

Floats = NDArray[np.float64]

BLOCK = 1 << 20  # distances held at once


@dataclass(frozen=True)
class Distances:
    """‖x − y‖ of all pairs from measures whose samples are in units of 2^`exponent`, so that no square is lost."""

    exponent: int
    workers: Workers

    def blocks(self, mu: Measure, nu: Measure) -> Iterator[tuple[int, int, Floats]]:
        """(i, j, distances from samples i, i + 1, … of μ to all from j on of ν); j is 0, or i where ν is μ."""
        n, m = mu.masses.size, nu.masses.size
        for i in range(0, n, max(1, BLOCK // m)):
            rows = mu.samples.rows(i, min(i + max(1, BLOCK // m), n))
            j = i if mu is nu else 0
            D = np.empty((rows.shape[0], m - j))
            SqL2()._fill(rows, nu.samples.rows(j, m), D, self.workers)
            D = np.sqrt(2 * np.maximum(D, 0.0))
            if mu is nu:
                np.fill_diagonal(D, 0.0)
            yield i, j, np.ldexp(D, self.exponent)

    def mean(self, mu: Measure, nu: Measure, of: Callable[[Floats], Floats]) -> float:
        """Σ a_i b_j of(‖x_i − y_j‖)."""
        total = 0.0
        for i, j, D in self.blocks(mu, nu):
            n = D.shape[0]
            right = nu.masses[j:].copy()
            if mu is nu:
                right[n:] *= 2  # for the pairs on the other side of the diagonal
            total += float(mu.masses[i : i + n] @ of(D) @ right)
        return total

    def median(self, mu: Measure, nu: Measure) -> float:
        """The median over the pairs that differ, each once; 0 where none does."""
        once = (np.triu(D) if mu is nu else D for _, _, D in self.blocks(mu, nu))
        found = np.concatenate([D[D > 0] for D in once])
        return float(np.median(found)) if found.size else 0.0


def mmd(
    X: Any,
    Y: Any,
    a: ArrayLike | None = None,
    b: ArrayLike | None = None,
    *,
    bandwidth: float | Iterable[float] | None = None,
) -> float:
    """Σ a_i a_i' k(x_i, x_i') + Σ b_j b_j' k(y_j, y_j') − 2 Σ a_i b_j k(x_i, y_j), with k = exp(−‖x − y‖² / 2σ²).

    The *squared* maximum mean discrepancy, from 0 to 2; a sample is paired with itself, too (the V-statistic), so two
    samples of one measure come out above 0. `bandwidth` is σ, or several: then the mean over them is taken.

    By default σ is the median of ‖y_j − y_j'‖ over the pairs j < j' of samples of Y that differ, weights aside: scores
    against one Y can be compared, but X and Y cannot change places. (Where all samples of Y are equal, it is the median
    of ‖x_i − y_j‖ over the pairs that differ. Samples of weight 0 do not count.)

    >>> import numpy as np, occamap as oc
    >>> Y = np.random.default_rng(0).normal(size=(50, 3))
    >>> round(oc.metrics.mmd(Y + [2, 0, 0], Y), 3), abs(oc.metrics.mmd(Y, Y)) < 1e-12
    (0.296, True)
    """
    mu, nu, exponent = _measures(X, Y, a, b)
    sigmas = None if bandwidth is None else _check_bandwidth(bandwidth)
    with Workers() as workers:
        distances = Distances(exponent, workers)
        if sigmas is None:
            sigmas = [distances.median(nu, nu) or distances.median(mu, nu)]
        if sigmas == [0.0]:
            return 0.0  # all samples are equal
        own = [distances.mean(side, side, lambda D: _kernel(D, sigmas)) for side in (mu, nu)]
        across = distances.mean(mu, nu, lambda D: _kernel(D, sigmas))
    return max(0.0, own[0] + own[1] - 2 * across)


def energy_distance(X: Any, Y: Any, a: ArrayLike | None = None, b: ArrayLike | None = None) -> float:
    """2 Σ a_i b_j ‖x_i − y_j‖ − Σ a_i a_i' ‖x_i − x_i'‖ − Σ b_j b_j' ‖y_j − y_j'‖, in units of the features.

    SciPy, as others, takes the square root of it. A sample is paired with itself, too (the V-statistic), so two samples
    of one measure come out above 0.

    >>> import occamap as oc
    >>> oc.metrics.energy_distance([[0.0], [1.0]], [[2.0]])
    2.5
    """
    mu, nu, exponent = _measures(X, Y, a, b)
    with Workers() as workers:
        distances = Distances(exponent, workers)
        own = [distances.mean(side, side, lambda D: D) for side in (mu, nu)]
        across = distances.mean(mu, nu, lambda D: D)
    return max(0.0, 2 * across - own[0] - own[1])


def _kernel(D: Floats, sigmas: list[float]) -> Floats:
    with np.errstate(over="ignore"):
        parts = (np.exp(-0.5 * np.square(D / sigma)) for sigma in sigmas)
        total: Floats = sum(parts, start=np.zeros_like(D))
    return total / len(sigmas)


def _measures(X: Any, Y: Any, a: ArrayLike | None, b: ArrayLike | None) -> tuple[Measure, Measure, int]:
    """Both measures, without samples of weight 0, and the exponent of the unit that they are in."""
    mu, nu = _check_measures(X, Y, a, b, None)
    exponent = int(np.frexp(max(mu.samples.largest(), nu.samples.largest()))[1])
    return _in_units(mu, exponent), _in_units(nu, exponent), exponent


def _in_units(mu: Measure, exponent: int) -> Measure:
    samples, weighty = mu.samples.astype(np.float64), mu.masses > 0
    if not weighty.all():
        samples = samples.take(np.flatnonzero(weighty))
    scaled: Samples = replace(samples, data=np.ldexp(samples.data, -exponent), template=None)
    return Measure(scaled, mu.masses[weighty])


def _check_bandwidth(raw: Any) -> list[float]:
    values = raw if np.iterable(raw) and not isinstance(raw, str) else [raw]
    sigmas = [check_number(sigma, "bandwidth", 0, open_low=True) for sigma in values]
    if not sigmas:
        raise InputError("bandwidth must be a finite number > 0, or several; got none")
    return sigmas
