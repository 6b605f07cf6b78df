"""How near a map comes to one that is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from occamap._validate import Samples, check_number, check_same_features, check_samples
from occamap.errors import InputError


def nmse(truth: Any, predicted: Any) -> float:
    """(1/nd) Σ_i ‖truth_i − predicted_i‖²: the mean squared error of an entry, in squared units of the features.

    The paper calls it the normalised error; it is divided by the number of samples and of features, nothing else.

    >>> import numpy as np, occamap as oc
    >>> oc.metrics.nmse(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0, 0.0], [3.0, 4.0]]))
    1.0
    """
    first, second = check_samples(truth, "truth"), check_samples(predicted, "predicted")
    check_same_features(second, "predicted", first.shape[1], first.names, "truth")
    if first.shape != second.shape:
        raise InputError(f"predicted must have as many samples as truth, {first.shape[0]:,}; got {second.shape[0]:,}")
    if first.is_sparse and second.is_sparse:
        difference = (first.csr().astype(np.float64) - second.csr().astype(np.float64)).data
    else:
        difference = _dense(first) - _dense(second)
    return float(np.square(difference).sum() / np.prod(first.shape))


def support_error(displacement: Any, support: ArrayLike) -> float:
    """The mean over samples of Σ_{t ∉ S_i} Δ_it² / Σ_t Δ_it²: the share of the move that is on wrong features.

    `support` is True where a feature is to move: one row for all samples, or a row a sample. It is 0 if and only if
    nothing else moves (by more than 1e-160 of the rest), and at most 1. A sample that does not move counts as 0.

    >>> import numpy as np, occamap as oc
    >>> oc.metrics.support_error(np.array([[3.0, 0.0, 4.0], [0.0, 0.0, 0.0]]), [True, True, False])
    0.32
    """
    moves = check_samples(displacement, "displacement")
    n, d = moves.shape
    mask = np.asarray(support)
    if mask.dtype != np.bool_ or mask.shape not in ((d,), (n, d)):
        raise InputError(
            f"support must be True or False for each of the {d:,} features, in one row or in {n:,}; "
            f"got {mask.dtype} of shape {mask.shape}"
        )
    csr = moves.csr()
    rows = np.repeat(np.arange(n), np.diff(csr.indptr))
    wrong = ~(mask[csr.indices] if mask.ndim == 1 else mask[rows, csr.indices])
    largest = np.maximum.reduceat(np.abs(csr.data), csr.indptr[:-1][_filled(csr)]) if csr.nnz else np.ones(0)
    scale = np.ones(n)
    scale[_filled(csr)] = np.where(largest > 0, largest, 1.0)
    squares = np.square(csr.data.astype(np.float64) / scale[rows])  # relative to the largest: no under- or overflow
    total = np.bincount(rows, squares, n)
    share = np.bincount(rows, squares * wrong, n) / np.where(total > 0, total, 1.0)
    return float(share.mean())


def density(displacement: Any, tol: float = 1e-8) -> float:
    """The share of entries larger than `tol` in magnitude; the paper's is at 1e-8.

    >>> import numpy as np, occamap as oc
    >>> oc.metrics.density(np.array([[0.5, 0.0, 1e-12, 0.0]]))
    0.25
    """
    moves = check_samples(displacement, "displacement")
    check_number(tol, "tol", 0)
    values: NDArray[Any] = moves.csr().data if moves.is_sparse else moves.data
    return float(np.count_nonzero(np.abs(values) > tol) / np.prod(moves.shape))


def _filled(csr: sp.csr_array) -> NDArray[np.bool_]:
    """The rows that store something."""
    return np.asarray(np.diff(csr.indptr) > 0)


def _dense(samples: Samples) -> NDArray[Any]:
    return np.asarray(samples.csr().toarray() if samples.is_sparse else samples.data, dtype=np.float64)
