"""Wilcoxon's rank-sum test of every gene, on sparse cells as they are: zeros tie, and are never sorted."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import ndtr

Floats = NDArray[np.float64]


class RankSum(NamedTuple):
    """Of each gene: z-score (positive where the first group is higher), two-sided p, and p adjusted for all genes."""

    score: Floats
    p: Floats
    p_adjusted: Floats


def rank_sum(first: sp.csr_array, second: sp.csr_array) -> RankSum:
    """The test of the rows of `first` against those of `second`, by normal approximation, corrected for ties.

    These are the numbers of `scanpy.tl.rank_genes_groups(method="wilcoxon", tie_correct=True)`; p-values are adjusted
    by Benjamini and Hochberg. A gene that is the same in all cells has score 0.

    >>> high, low = sp.csr_array([[2.0], [3.0], [4.0]]), sp.csr_array([[0.0], [0.0], [1.0]])
    >>> [round(float(value[0]), 4) for value in rank_sum(high, low)]
    [1.9926, 0.0463, 0.0463]
    """
    n, total = first.shape[0], first.shape[0] + second.shape[0]
    cells: Any = sp.vstack([first, second], format="csr")
    cells.eliminate_zeros()
    d = cells.shape[1]
    levels, middle = _levels(cells.data)
    ours = np.arange(cells.nnz) < cells.indptr[n]
    keys = np.sort((cells.indices.astype(np.uint64) << 33) | (levels.astype(np.uint64) << 1) | ours)
    gene, mine = (keys >> 33).astype(np.int64), (keys & 1).astype(bool)
    level = (keys >> 1) & 0xFFFFFFFF

    stored = np.bincount(gene, minlength=d)
    begins = np.concatenate([[0], np.cumsum(stored)])
    zeros, below = total - stored, np.bincount(gene[level < middle], minlength=d)
    place = np.arange(gene.size) - begins[gene] + np.where(level >= middle, zeros[gene], 0) + 1.0
    starts = np.ones(gene.size, dtype=bool)
    starts[1:] = (keys[1:] >> 1) != (keys[:-1] >> 1)
    tie = np.cumsum(starts) - 1  # which set of equal values an entry belongs to
    sizes = np.bincount(tie).astype(np.float64)
    rank = (np.bincount(tie, place) / sizes)[tie] if gene.size else place

    zeros_mine = n - np.bincount(gene[mine], minlength=d)
    ranks = np.bincount(gene[mine], rank[mine], d) + zeros_mine * (below + (zeros + 1) / 2)
    tied = np.bincount(gene[starts], sizes**3 - sizes, d) + zeros.astype(np.float64) ** 3 - zeros
    variance = n * (total - n) / 12 * (total + 1 - tied / max(1, total * (total - 1)))
    centred = ranks - n * (total + 1) / 2
    varies = variance > 1e-9 * total
    score = np.divide(centred, np.sqrt(np.maximum(variance, 0)), out=np.zeros(d), where=varies)
    p = 2 * ndtr(-np.abs(score))
    return RankSum(score, p, _adjusted(p))


def _levels(values: NDArray[Any]) -> tuple[NDArray[Any], int]:
    """Numbers of 32 bits in the order of the values, none of which is 0, and the first that stands above 0.

    With its gene and its group such a number makes one integer, and integers are sorted many times faster than pairs.
    """
    if values.dtype != np.float32:
        seen, levels = np.unique(values, return_inverse=True)
        return levels.ravel(), int(np.searchsorted(seen, 0.0))
    bits = np.ascontiguousarray(values).view(np.uint32)
    return np.where(bits >> 31, ~bits, bits | 0x80000000), 0x80000000


def _adjusted(p: Floats) -> Floats:
    """By Benjamini and Hochberg: for each, the least of p·d / rank over those at least as large."""
    order = np.argsort(-p, kind="stable")
    scaled = p[order] * p.size / np.arange(p.size, 0, -1)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum.accumulate(np.minimum(scaled, 1.0))
    return adjusted
