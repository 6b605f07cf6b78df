"""A prediction for the held-out control cells, scored against the held-out target cells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from occamap import metrics
from occamap.errors import InputError

Floats = NDArray[np.float64]
Row = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Prediction:
    """Of a population: where its cells are on the components, how the genes change on average, what share moves.

    `cells` gives them in all genes, where that is asked for.
    """

    components: Floats
    change: Floats
    density: float
    cells: Callable[[], Any]


@dataclass(frozen=True, eq=False)
class Means:
    """Means of the genes over held-out control cells and target cells, and a score by which genes are markers."""

    control: Floats
    target: Floats
    t: Floats
    markers: int
    suffix: str

    def __call__(self, change: Floats) -> Row:
        """Of a predicted change of the means: agreement on the markers, and overlap of rankings.

        A number that does not exist (a correlation with no change at all) is NaN.
        """
        chosen = np.argsort(-self.t, kind="stable")[: self.markers]
        truth, predicted = self.target[chosen], (self.control + change)[chosen]
        real, told = (self.target - self.control)[chosen], change[chosen]
        found: Row = {
            "pearson_r2_means": _or_nan(metrics.pearson_r2, truth, predicted),
            "r2_score_means": _or_nan(metrics.r2_score, truth, predicted),
            "pearson_r_changes": _or_nan(metrics.pearson_r, real, told),
            "pearson_r2_changes": _or_nan(metrics.pearson_r2, real, told),
            "r2_score_changes": _or_nan(metrics.r2_score, real, told),
        }
        overlap = metrics.rbo_scores(self.t, change, depth=self.markers)
        found |= {"rbo": overlap.extrapolated, "rbo_min": overlap.min, "rbo_residual": overlap.residual}
        return {f"{name}_{self.suffix}": value for name, value in found.items()}


def _or_nan(metric: Callable[[Floats, Floats], float], truth: Floats, predicted: Floats) -> float:
    try:
        return metric(truth, predicted)
    except InputError:
        return float("nan")
