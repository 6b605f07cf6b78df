"""The strength at which a penalty keeps out the noise of samples that are pooled."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from occamap._kernels.columns import column_sums
from occamap.maps.neighbourhoods import effective_count

NOISE = 6.5  # standard errors of a pooled difference: the default strength of an ℓ1 penalty
TOP = 200  # the rank of the feature whose spread counts, or that of one in ten of those that vary, if it is less


def pooled_error(source: Any, n_targets: int, pool: Any, within: Any = None) -> float:
    """The standard error of the difference between the means of a neighbourhood and of its targets.

    Parameters
    ----------
    source : array or sparse matrix, shape (n, d)
        The source samples. The spread that counts is the standard deviation, over all of them, of the 200th most
        variable feature (of one in ten, if fewer than 2,000 vary); 0 if none does.
    n_targets : int
        The number of targets, which are taken to be pooled in the same share as the source samples.
    pool : int, "auto", array of labels or matrix
        As for `MongeMap`.
    within : array of labels, optional
        The groups that neighbours are found in: then the number of neighbours is that of a group of median size.

    >>> round(pooled_error(np.random.default_rng(0).normal(size=(500, 40)), 500, 50), 2)
    0.21
    """
    n = source.shape[0]
    sums, squares = column_sums(sp.csr_array(source))
    spread = np.sqrt(np.maximum(squares / n - (sums / n) ** 2, 0.0))
    varying = np.sort(spread[spread > 0])[::-1]
    if not varying.size:
        return 0.0
    if within is None or not isinstance(pool, int | str):
        share = effective_count(pool, n) / n
    else:
        _, codes, counts = np.unique(within, return_inverse=True, return_counts=True)
        share = effective_count(pool, int(np.median(counts[codes]))) / n
    typical = varying[min(TOP, -(-varying.size // 10)) - 1]
    return float(typical * np.sqrt(1 / (share * n) + 1 / (share * n_targets)))
