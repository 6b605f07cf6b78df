"""The score of a split: the Sinkhorn divergence to held-out targets, in feature space or in a learned projection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.decomposition import PCA

from occamap._memory import Budget
from occamap._validate import Samples, check_samples
from occamap._workers import Workers
from occamap.costs import SqL2
from occamap.errors import InputError
from occamap.maps.problem import Floats, Problem
from occamap.metrics.transport import DivergenceTo, Measure, Transport, Value
from occamap.sinkhorn import EpsilonRule

EPSILON = 0.1
"""ε of the score: this share of the mean cost among the held-out targets."""
TOL, MAX_ITER = 1e-4, 5000

Project = Callable[[Samples], Samples]


def check_projection(projection: Any) -> None:
    """Raise unless it is None, a number of components, or a transformer."""
    fits = hasattr(projection, "fit") and hasattr(projection, "transform") and not isinstance(projection, type)
    if projection is None or fits:
        return
    whole = isinstance(projection, int | np.integer) and not isinstance(projection, bool | np.bool_)
    if not whole or projection < 1:
        raise InputError(
            "projection must be None (score in feature space), a number of principal components, or a transformer with "
            f"fit and transform; got {projection!r}"
        )


def learn_projection(projection: Any, sides: tuple[Samples, Samples], seed: int) -> Project:
    """Learn it on these samples of both sides, and on nothing else."""
    if projection is None:
        return lambda samples: samples
    sparse = any(side.is_sparse for side in sides)
    both: Any = sp.vstack([sp.csr_matrix(_plain(side)) for side in sides], format="csr") if sparse else None
    if both is None:
        both = np.vstack([side.data for side in sides])
    if isinstance(projection, int | np.integer):
        if projection >= min(both.shape):
            return lambda samples: samples  # all of the components would only turn the axes
        learned = PCA(int(projection), svd_solver="arpack", random_state=seed)
    else:
        learned = clone(projection)
    try:
        learned.fit(both)
    except Exception as error:  # a transformer may raise anything, ARPACK what it likes
        raise InputError(
            f"projection={projection!r} could not be learned on the {both.shape[0]} train samples of a split, "
            f"{both.shape[1]} features; it says: {error}: take fewer components, or None for the features themselves"
        ) from error
    return lambda samples: check_samples(learned.transform(_plain(samples)), "the projection of samples")


def _plain(samples: Samples) -> Any:
    return sp.csr_matrix(samples.csr()) if samples.is_sparse else samples.data


@dataclass(frozen=True)
class Baselines:
    """Divergences to the held-out targets of what any map must be compared with."""

    identity: Value
    mean_shift: Value
    floor: Value


class Scorer:
    """Divergences to the held-out targets of one split."""

    def __init__(
        self, projection: Any, train: Problem, test: Problem, seed: int, budget: Budget, workers: Workers
    ) -> None:
        self.train, self.test = train, test
        held = np.flatnonzero(train.b)
        size = min(int(np.count_nonzero(test.a)), max(1, held.size // 2))
        self._drawn = np.sort(np.random.default_rng(seed).choice(held, size, replace=False))
        sides = train.source.take(np.flatnonzero(train.a)), train.target.take(np.setdiff1d(held, self._drawn))
        self.project = learn_projection(projection, sides, seed)
        target = Measure(self.project(test.target), test.b)
        source = Measure(self.project(test.source), test.a)
        transport = Transport(EpsilonRule(EPSILON), SqL2(), TOL, MAX_ITER, budget)
        self.divergence = DivergenceTo(target, transport, workers, like=source)

    def __call__(self, moved: Samples) -> Value:
        """Of the held-out source samples, moved."""
        return self.divergence(Measure(self.project(moved), self.test.a))

    def baselines(self) -> Baselines:
        """The held-out source samples as they are, and shifted by the difference of the train means; and, the floor, as
        many train targets (at most half of them): what a map that hits the target's distribution would score.

        These are drawn at random, and kept from the projection: components vary more in samples that they were
        learned on than in others, and the floor would be too high.
        """
        source, identity = self.project(self.test.source), self(self.test.source)
        train = self.train
        shift = _mean(self.project(train.target), train.b) - _mean(self.project(train.source), train.a)
        gap = _mean(source, self.test.a) - _mean(self.divergence.nu.samples, self.test.b)
        # a translation by s adds ⟨x̄ − ȳ, s⟩ + ½‖s‖² to the transport of ½ℓ2² from X to Y, and nothing to that within X
        shifted = Value(identity.value + float(gap @ shift + 0.5 * shift @ shift), identity.trouble)
        masses = train.b[self._drawn] / train.b[self._drawn].sum()
        floor = self.divergence(Measure(self.project(train.target.take(self._drawn)), masses))
        return Baselines(identity, shifted, floor)


def _mean(samples: Samples, masses: Floats) -> Floats:
    return np.asarray(masses @ (samples.csr() if samples.is_sparse else samples.data), np.float64).ravel()
