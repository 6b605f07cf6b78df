"""False-discovery rates over many p-values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def q_values(p: Any) -> NDArray[np.float64]:
    """The smallest false-discovery rate at which each test is found, by Benjamini and Hochberg.

    Tests whose p-value is NaN are no tests: they do not count, and their q-value is NaN.

    >>> q_values([0.01, 0.04, float("nan"), 0.03]).round(3).tolist()
    [0.03, 0.04, nan, 0.04]
    """
    given = np.asarray(p, dtype=np.float64)
    flat, q = given.ravel(), np.full(given.size, np.nan)
    tested = np.flatnonzero(~np.isnan(flat))
    order = tested[np.argsort(flat[tested], kind="stable")]
    scaled = flat[order] * order.size / np.arange(1, order.size + 1)
    q[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)
    return q.reshape(given.shape)
