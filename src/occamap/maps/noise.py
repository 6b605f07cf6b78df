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
    within : pair of arrays of labels, optional
        The groups of the source samples and of the targets that they are matched and pooled within. The result is then
        the largest over the groups, since one penalty serves all of them.

    >>> round(pooled_error(np.random.default_rng(0).normal(size=(500, 40)), 500, 50), 2)
    0.21
    """
    n = source.shape[0]
    sums, squares = column_sums(sp.csr_array(source))
    spread = np.sqrt(np.maximum(squares / n - (sums / n) ** 2, 0.0))
    varying = np.sort(spread[spread > 0])[::-1]
    if not varying.size:
        return 0.0
    sizes = [(n, n_targets)]
    if within is not None and isinstance(pool, int | str):
        names, counts = np.unique(within[0], return_counts=True)
        others, targets = np.unique(within[1], return_counts=True)
        sizes = list(zip(counts, targets[np.searchsorted(others, names)], strict=True))
    typical = varying[min(TOP, -(-varying.size // 10)) - 1]
    return float(typical * max(_relative_error(pool, *size) for size in sizes))


def _relative_error(pool: Any, n: int, n_targets: int) -> float:
    """The standard error for a feature whose standard deviation is 1."""
    count = effective_count(pool, int(n))
    return float(np.sqrt(1 / count + n / (count * n_targets)))
