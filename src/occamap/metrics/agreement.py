"""How well one vector, of mean expressions say, agrees with another. What others call R² is one of two things."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import pearsonr

from occamap._validate import check_reals
from occamap.errors import InputError


def pearson_r(truth: ArrayLike, predicted: ArrayLike) -> float:
    """Pearson's correlation of two vectors: 1 for any rising line, whatever its slope and offset.

    >>> import occamap as oc
    >>> round(oc.metrics.pearson_r([1.0, 2.0, 3.0], [12.0, 14.0, 16.0]), 12)
    1.0
    """
    first, second = _check_pair(truth, predicted)
    for name, values in (("truth", first), ("predicted", second)):
        if values.min() == values.max():
            raise InputError(f"{name} must not be constant, or there is nothing to correlate; it is {values[0]:g}")
    return float(pearsonr(first / np.abs(first).max(), second / np.abs(second).max()).statistic)


def pearson_r2(truth: ArrayLike, predicted: ArrayLike) -> float:
    """The square of Pearson's correlation: what tools for perturbed cells mostly mean by R². It sees no bias.

    >>> import occamap as oc
    >>> round(oc.metrics.pearson_r2([1.0, 2.0, 3.0], [-2.0, -4.0, -6.0]), 12)
    1.0
    """
    return pearson_r(truth, predicted) ** 2


def r2_score(truth: ArrayLike, predicted: ArrayLike) -> float:
    """The coefficient of determination, 1 − Σ(truth − predicted)² / Σ(truth − mean truth)².

    1 for a perfect prediction, 0 for one no better than the mean of the truth, and below for worse ones.

    >>> import occamap as oc
    >>> oc.metrics.r2_score([1.0, 2.0, 3.0], [2.0, 2.0, 2.0])
    0.0
    """
    first, second = _check_pair(truth, predicted)
    if first.min() == first.max():
        raise InputError(f"truth must not be constant, or there is no variance to explain; it is {first[0]:g}")
    scale = np.abs(np.concatenate([first, second])).max()
    first, second = first / scale, second / scale
    return float(1 - np.square(first - second).sum() / np.square(first - first.mean()).sum())


def _check_pair(truth: ArrayLike, predicted: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    first, second = check_reals(truth, "truth"), check_reals(predicted, "predicted")
    for name, values in (("truth", first), ("predicted", second)):
        if values.ndim != 1 or values.size < 2:
            raise InputError(f"{name} must be a vector of at least two numbers; got shape {values.shape}")
        if not np.isfinite(values).all():
            raise InputError(f"{name} must be finite; entry {int(np.argmin(np.isfinite(values)))} is not")
    if first.size != second.size:
        raise InputError(f"predicted must be as long as truth, {first.size:,}; got {second.size:,}")
    return first, second
