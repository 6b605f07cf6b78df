"""What halves of the cells say of genes: how often each is selected, and how far its mean displacement may be off."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from occamap.genes.bounds import expected_false

Floats = NDArray[np.float64]

COVERED = 0.95


def selection(means: Floats, top: int, assume: str = "unimodal") -> tuple[Floats, Floats]:
    """Of each gene its frequency, and the bound on false ones among all genes of at least that frequency.

    `means` are subsamples × genes, as `subsampled_means` gives them for a group. Genes that move in no half cannot be
    selected and are not counted among those that might be.
    """
    often = frequency(means, top)
    return often, expected_false(often, means.shape[0], top, int(means.any(axis=0).sum()), assume)


def frequency(means: Floats, top: int) -> Floats:
    """The share of subsamples in which a gene is among the `top` that move most on average (and moves at all).

    >>> frequency(np.array([[3.0, -2.0, 0.0], [1.0, -2.0, 0.0]]), 1).tolist()
    [0.5, 0.5, 0.0]
    """
    size = np.abs(means)
    rank = np.argsort(np.argsort(-size, axis=1, kind="stable"), axis=1)
    return np.asarray(((rank < top) & (size > 0)).mean(axis=0))


def half_width(means: Floats) -> Floats:
    """Half of a 95 % interval for the mean displacement of each gene, from those of halves (subsamples × genes).

    The halves of a pair share no cell, so half the variance of one is that of the mean over all cells, and a quarter of
    their squared difference estimates it: one degree of freedom a pair. A half without its complement is compared with
    the mean of the others.

    >>> half_width(np.array([[1.0], [3.0]])).round(2).tolist()  # Student's t with one degree of freedom: 12.71
    [12.71]
    """
    pairs = means[: means.shape[0] // 2 * 2]
    squares = [*((pairs[::2] - pairs[1::2]) ** 2 / 4), *((means[len(pairs) :] - pairs.mean(axis=0)) ** 2)]
    quantile = float(stdtrit(len(squares), (1 + COVERED) / 2))
    return np.asarray(quantile * np.sqrt(np.mean(squares, axis=0)))
