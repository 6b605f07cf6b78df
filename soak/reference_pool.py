"""Pooled displacements, neighbourhoods and coordinates once more, plainly: from their definitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from soak.reference import Penalty, move_pairs

Floats = NDArray[np.float64]

SMOOTH = 30  # samples that a place is averaged over, and a tenth of all at most
MOST = 250  # samples in a neighbourhood of "auto"
LEAST = 0.03  # of the weight of the nearest, below which they are left out


def pooled_displacement(
    penalty: Penalty, X: Floats, Y: Floats, p: Floats, W: Floats, occam: bool, relax: float, least: float = 0.0
) -> tuple[Floats, Floats]:
    """The displacement of each row of W, and its margin: that of all pairs x_l − y_j with the weights W_l p_lj."""
    z = (X[:, None, :] - Y[None, :, :]).reshape(1, -1, X.shape[1])
    return move_pairs(penalty, z, W @ (p @ Y - X), pair_weights(W, p), occam, relax, least)


def pair_weights(W: Floats, p: Floats) -> Floats:
    """W_l p_lj, a row for each row of W."""
    return np.asarray((W[:, :, None] * p[None, :, :]).reshape(W.shape[0], -1))


def neighbourhoods(pool: Any, masses: Floats) -> Floats | None:
    """W of labels (by the masses) or of a matrix; None where a label has no mass."""
    if sp.issparse(pool) or np.ndim(pool) == 2:
        W = np.asarray(pool.toarray() if sp.issparse(pool) else pool, np.float64)
    else:
        labels = list(pool)
        W = np.array([[mass * (one == other) for other, mass in zip(labels, masses, strict=True)] for one in labels])
    sums = W.sum(axis=1, keepdims=True)
    return W / sums if (sums > 0).all() else None


def count_neighbours(pool: Any, masses: Floats) -> int:
    """How many samples a neighbourhood has, of a number; or has at most, of "auto"."""
    held = int((masses > 0).sum())
    return reach_of(held) if isinstance(pool, str) else min(held, int(pool))


def reach_of(held: int) -> int:
    """How many samples "auto" takes at most, of so many with mass; its weights are scaled by the furthest of them."""
    return min(MOST, max(3 * held // 4, min(100, held)))


def taper(squares: Floats, held: int) -> Floats:
    """By what "auto" multiplies the masses of samples at these squared distances, of which `held` are finite."""
    if reach_of(held) <= 2:
        return np.where(np.isfinite(squares), 1.0, 0.0)
    ordered = np.sort(squares, axis=1)
    second, last = ordered[:, 1:2], ordered[:, reach_of(held) - 1, None]
    scale = np.where(last > second, last - second, 1.0)
    return np.exp(-4.0 * np.maximum(squares - second, 0.0) / scale)


def squares_between(P: Floats, Q: Floats) -> Floats:
    return np.asarray(((P[:, None, :] - Q[None, :, :]) ** 2).sum(axis=2))


def smooth(points: Floats, places: Floats, count: int, slack: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """The mean of the nearest places to each point, and of which points these are clear by more than the slack."""
    squares = squares_between(points, places)
    order = np.argsort(squares, axis=1, kind="stable")
    means = places[order[:, :count]].mean(axis=1)
    if count == places.shape[0]:
        return means, np.ones(len(points), bool)
    ordered = np.take_along_axis(squares, order, axis=1)
    return means, ordered[:, count] - ordered[:, count - 1] > slack


@dataclass(frozen=True)
class Spectrum:
    """Singular values of rows about their mean."""

    mean: Floats
    centred: Floats
    values: Floats

    @classmethod
    def of(cls, rows: Floats) -> Spectrum:
        mean = rows.mean(axis=0)
        return cls(mean, rows - mean, np.linalg.svd(rows - mean, compute_uv=False))

    def count_above(self, share: float) -> int:
        """How many are more than this share of the largest."""
        return int((self.values > share * self.values[0]).sum())
