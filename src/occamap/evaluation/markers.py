"""Which genes mark the target cells: Welch's t, by which scanpy ranks genes unless told otherwise."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ttest_ind_from_stats

from occamap._kernels.columns import column_sums

Floats = NDArray[np.float64]


class Moments(NamedTuple):
    """Of each gene, over n cells: the mean, and the standard deviation with n − 1."""

    mean: Floats
    sd: Floats
    n: int


def moments(cells: Any) -> Moments:
    """Of the rows of a CSR matrix."""
    n = cells.shape[0]
    mean, square = (sums / n for sums in column_sums(cells))
    variance = np.maximum(square - mean**2, 0) * n / max(1, n - 1)
    return Moments(mean, np.sqrt(variance), n)


def welch_t(target: Moments, control: Moments) -> Floats:
    """How surely each gene is higher in the target cells; −∞ where a gene does not vary in either group."""
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.asarray(ttest_ind_from_stats(*target, *control, equal_var=False).statistic)
    return np.where(np.isnan(t), -np.inf, t)
