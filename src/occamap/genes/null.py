"""What a map moves where nothing has changed: noise, for comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special
from sklearn.base import clone

from occamap._kernels.columns import column_sums
from occamap.genes.halves import complementary_halves, strata_of
from occamap.maps import MongeMap
from occamap.maps.evidence import BINS_PER_UNIT, Threshold

HALF = 0.5
EXPECTED = np.arange(1.25, 4.51, 0.25)  # scores whose frequency is compared with that of a normal distribution
FEWEST_BEYOND = 50  # entries that a frequency is read from: neighbouring ones are alike
MOST = 1_000  # cells of a half: fewer make more noise, which is on the safe side
FEW = 20  # cells of a group or replicate that are kept if there are more cells than that


@dataclass(frozen=True)
class Null:
    """Maps between two random halves of the same cells, where nothing has changed.

    Attributes
    ----------
    density
        The share of entries that move, the mean over the maps.
    n_genes_in_half, largest_mean
        How many genes move in at least half of the cells, and the largest mean displacement of a gene, in absolute
        value: the largest over the maps.
    n_cells, n_targets
        The sizes of the halves.
    n_maps
        The number of maps.
    expected, observed
        Of maps with a false-discovery rate: normal scores, and those that are as rare in each map. They are equal where
        standard errors are right.
    """

    density: float
    n_genes_in_half: int
    largest_mean: float
    n_cells: int
    n_targets: int
    n_maps: int = 1
    expected: tuple[float, ...] = ()
    observed: tuple[tuple[float, ...], ...] = ()

    @property
    def width(self) -> float | None:
        """Ratio of observed to expected scores, at the largest score that all maps reach; None without scores."""
        held = np.array([[score > 0 for score in scores] for scores in self.observed]).all(axis=0)
        if not self.observed or not held.any():
            return None
        at = int(np.flatnonzero(held)[-1])
        return float(np.median([scores[at] for scores in self.observed]) / self.expected[at])


def _half_map(like: MongeMap, rows: Any, others: Any) -> MongeMap:
    """The map of a half of the control cells to the other; coordinates and groups are those of the control."""
    own = {name: (value[0], value[0]) for name in ("match", "within", "replicate")
           if isinstance(value := getattr(like, name), tuple | list)}
    return clone(like).set_params(**own)._restricted(rows, others)


def null_maps(like: MongeMap, X: Any, rng: np.random.Generator, count: int = 3) -> Null:
    """Fit maps with the parameters of `like` from one half of the cells X to the other, or from 1,000 to 1,000."""
    found = [_null_map(like, X, rng) for _ in range(count)]
    expected = tuple(float(score) for score in EXPECTED) if like.fdr is not None else ()
    return Null(
        density=float(np.mean([moves.nnz / (moves.shape[0] * moves.shape[1]) for moves, _ in found])),
        n_genes_in_half=max(int((_share(moves) >= HALF).sum()) for moves, _ in found),
        largest_mean=max(float(np.abs(column_sums(moves)[0]).max(initial=0.0) / moves.shape[0]) for moves, _ in found),
        n_cells=found[0][0].shape[0],
        n_targets=found[0][1].g_.size,
        n_maps=count,
        expected=expected,
        observed=tuple(_as_rare(fitted.threshold_) for _, fitted in found) if expected else (),
    )


def _null_map(like: MongeMap, X: Any, rng: np.random.Generator) -> tuple[Any, MongeMap]:
    """The displacements of one half, and the map to the other; each half has cells of all groups and replicates."""
    strata = strata_of(like, 0, X.shape[0])
    halves = complementary_halves(strata, np.zeros(2, int), 2, rng)
    rows, others = (_thinned(half.rows, strata, rng) for half in halves)
    source, target = X[rows], X[others]
    fitted = _half_map(like, rows, others).fit(source, target)
    return fitted.displacement(source), fitted


def _thinned(rows: Any, strata: Any, rng: np.random.Generator) -> Any:
    """At most 1,000 of these cells, and some more where strata are small."""
    if rows.size <= MOST:
        return rows
    kept = []
    for stratum in np.unique(strata[rows]):
        mine = rows[strata[rows] == stratum]
        count = max(min(mine.size, FEW), round(mine.size * MOST / rows.size))
        kept.append(rng.choice(mine, count, replace=False))
    return np.sort(np.concatenate(kept))


def _share(moves: Any) -> Any:
    """In which share of the cells each gene moves."""
    return np.bincount(moves.indices, minlength=moves.shape[1]) / moves.shape[0]


def _as_rare(threshold: Threshold) -> tuple[float, ...]:
    """The score that is as rare as each expected one is under a normal distribution; 0 where too few entries tell."""
    beyond = np.cumsum(threshold.counts[::-1])[::-1]
    wanted = 2 * special.ndtr(-EXPECTED) * threshold.n_tested
    bins = np.searchsorted(-beyond, -wanted)  # the first score that fewer entries reach
    # all scores below 1 are in one bin
    scores = np.where((wanted >= FEWEST_BEYOND) & (bins >= BINS_PER_UNIT), bins / BINS_PER_UNIT, 0.0)
    return tuple(float(score) for score in scores)
