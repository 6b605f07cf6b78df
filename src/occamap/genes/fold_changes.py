"""Log2 fold changes between the means of normalised counts, of values that are their logs; and their typical shift."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Floats = NDArray[np.float64]

OFFSET = 1e-4  # of the total of a cell: one count where cells are scaled to 10,000
LARGEST = 1e8  # normalised counts: values whose powers are larger are not logs
DETECTED = 0.1  # share of the cells, from which on a gene is detected often
FEWEST = 100  # genes for a median to be typical
SHIFTED = 0.1  # log2: 7 %
ERRORS = 5.0  # standard errors of the median


def why_not_logs(control: sp.csr_array, target: sp.csr_array, base: float) -> str | None:
    """What shows that the values are not log(1 + counts) to this base; None if nothing does."""
    values = [side.data for side in (control, target) if side.data.size]
    if any(part.min() < 0 for part in values):
        return "negative values"
    if values and all(bool(np.all(part == np.floor(part))) for part in values):
        return "whole numbers only"
    if any(part.max() * np.log(base) > np.log(LARGEST) for part in values):
        return "values too large for logs"
    return None


def log2_fold_changes(control: sp.csr_array, target: sp.csr_array, W: Any, V: Any, base: float) -> Floats:
    """log2 of the mean of the targets over that of the control cells, groups × genes, of normalised counts.

    The rows of W and V are the weights of the control and target cells of each group, of sum 1. Both means get the same
    offset: one count in 10,000 in one cell of a group, whose size is the mean of the effective numbers of cells on
    both sides.

    >>> cells = sp.csr_array(np.log1p([[3.0, 1.0], [3.0, 1.0]]))
    >>> log2_fold_changes(cells, cells, np.full((1, 2), 0.5), np.full((1, 2), 0.5), np.e)
    array([[0., 0.]])
    """
    means, totals, sizes = [], [], []
    for weights, cells in ((sp.csr_array(W), control), (sp.csr_array(V), target)):
        counts = sp.csr_array(
            (np.expm1(cells.data.astype(np.float64) * np.log(base)), cells.indices, cells.indptr), shape=cells.shape
        )
        mean = np.asarray((weights @ counts).toarray(), dtype=np.float64)
        means.append(mean)
        totals.append(mean.sum(axis=1))
        sizes.append(1 / np.asarray(weights.power(2).sum(axis=1)).ravel())
    total = (totals[0] + totals[1]) / 2
    offset = OFFSET * np.where(total > 0, total, 1.0) / ((sizes[0] + sizes[1]) / 2)
    return np.asarray(np.log2((means[1] + offset[:, None]) / (means[0] + offset[:, None])))


@dataclass(frozen=True)
class Shift:
    """The median log2 fold change of genes that are detected often, most of which should not respond; its error."""

    median: float
    error: float

    @property
    def is_clear(self) -> bool:
        """Whether it is large enough to matter, and larger than the noise of genes that share their cells."""
        return abs(self.median) >= SHIFTED and abs(self.median) > ERRORS * self.error


def typical_shift(change: Floats, detected: Floats) -> Shift | None:
    """The shift of genes of these log2 fold changes and shares of cells; None if too few are detected often.

    Scaling cells to a common total lowers all other genes if some rise: the median shows by how much.

    >>> rng = np.random.default_rng(0)
    >>> typical_shift(rng.normal(-0.3, 0.3, 1000), np.full(1000, 0.5)).is_clear
    True
    >>> typical_shift(rng.normal(0, 0.3, 1000), np.full(1000, 0.5)).is_clear
    False
    """
    often = change[(detected >= DETECTED) & np.isfinite(change)]
    if often.size < FEWEST:
        return None
    median = float(np.median(often))
    spread = float(np.median(np.abs(often - median)))
    return Shift(median, 1.2533 * 1.4826 * spread / float(np.sqrt(often.size)))  # as for a normal distribution
