"""Replicates such as donors: remove their mean shifts from coordinates, and learn how much they differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from occamap.inference.significance import Prior, learn_prior, smooth_priors
from occamap.maps.strata import check_labels

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

FEW = 5.0  # samples of a replicate at which half of what is particular to it is taken out
UNLIKELY = 1e-3  # under the prior: a ratio that is larger is taken as it is


@dataclass(frozen=True, eq=False)
class Replicates:
    """The replicate of each source sample and of each target, by number."""

    names: NDArray[Any]
    source: Rows
    target: Rows

    @classmethod
    def of(cls, labels: Any, n: int, m: int) -> Replicates:
        """Those of n source samples and m targets."""
        sides = [
            _as_text(check_labels(side, "replicate", f"sample of {name}", count))
            for side, name, count in zip(labels, "XY", (n, m), strict=True)
        ]
        names = np.unique(np.concatenate(sides))
        return cls(names, *(np.searchsorted(names, side) for side in sides))

    @property
    def fewest(self) -> int:
        """The number of replicates on the smaller side."""
        return min(np.unique(side).size for side in (self.source, self.target))

    @property
    def paired(self) -> bool:
        return bool(np.isin(self.source, self.target).any())

    def swapped(self) -> Replicates:
        """Those of the map back."""
        return Replicates(self.names, self.target, self.source)


def _as_text(labels: NDArray[Any]) -> NDArray[Any]:
    """Labels as text: whole numbers alike, whether they are integers or floats, as pandas makes of them."""
    if labels.dtype.kind == "f" and np.all(labels == np.round(labels)) and np.all(np.abs(labels) < 2**53):
        labels = labels.astype(np.int64)
    return labels.astype(str)


def centred(coordinates: Floats, replicates: Rows, groups: Rows | None) -> Floats:
    """Coordinates of one side with the mean of each replicate moved to that of all, within each group if there are any.

    Samples of a donor lie apart from those of others; if they stayed there, neighbourhoods would hold one donor each,
    and nothing would say how much donors differ. Replicates with few samples are shifted less.
    """
    found = coordinates.copy()
    for group in [slice(None)] if groups is None else [groups == k for k in np.unique(groups)]:
        part, codes = found[group], replicates[group]
        centre = part.mean(axis=0)
        for code in np.unique(codes):
            mine = codes == code
            count = int(mine.sum())
            part[mine] -= (part[mine].mean(axis=0) - centre) * (count / (count + FEW))
        found[group] = part
    return found


def learn_priors(ratios: Floats, detected: Floats, most: float, typical: float) -> Floats:
    """Learn the prior of the ratio of variances (between replicates over within them), by how often features are not 0.

    Parameters
    ----------
    ratios : array, shape (d, k)
        Of each feature in k neighbourhoods; not above 0 where it is not known.
    detected : array, shape (d,)
        How often each feature is not 0.
    most, typical : float
        Degrees of freedom of the ratios: the most that they can have, which the prior is learned with, so that it does
        not count for too much, and those of a typical neighbourhood.

    Returns
    -------
    array, shape (3, d): the expected ratio, the degrees of freedom of the prior, and the ratio above which the prior is
    ignored.
    """

    def learn(part: Rows) -> Prior:
        found = ratios[part]
        return learn_prior(np.sort(found[found > 0]), most)

    known = np.flatnonzero((ratios > 0).any(axis=1))
    ratio, degrees = smooth_priors(detected, known, learn)
    return np.stack([ratio, degrees, ratio * stats.f.isf(UNLIKELY, max(typical, 1.0), np.maximum(degrees, 1.0))])
