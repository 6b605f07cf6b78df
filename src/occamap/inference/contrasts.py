"""Differences between weighted means of two samples, and their standard errors from cells or from replicates.

A contrast has weights w over the source samples and v over the targets, both of sum 1, and estimates Σ_j v_j y_j −
Σ_i w_i x_i. For a group of cells, w is uniform over the group and v is the average of the weights of their targets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from occamap.inference.shares import Shares, dense

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ROUNDING = 1e-12  # of the sums that are subtracted: what is below is nothing
UNIFORM = 1 - 1e-9  # Σ w² of a contrast that one sample carries alone: it has no spread
LEAST_INNER = 1e-4  # of a variance: what is left of it within replicates at the least


@dataclass(frozen=True, eq=False)
class Contrasts:
    """Contrasts × features.

    Attributes
    ----------
    difference
        Mean of the targets minus mean of the source samples.
    variance
        The square of its standard error, if the samples are independent: the larger of Welch's (each side has a
        variance of its own) and Student's (both have the same). NaN if a side has a single sample.
    degrees
        Degrees of freedom of the variance, by Welch and Satterthwaite.
    detected
        Effective number of non-zero samples, summed over both sides. A variance from few of them is unreliable.
    inner
        The part of `variance` that comes from the spread within replicates; None without replicates.
    between
        The square of the standard error from the differences between replicates; None without replicates.
    between_degrees
        Lower bound of its degrees of freedom, one per contrast: cells differ far less than replicates do.
    most_degrees
        Upper bound, one per contrast, reached by replicates with equal shares.
    n_replicates
        Number of replicates on the side with fewer, one per contrast.
    """

    difference: Floats
    variance: Floats
    degrees: Floats
    detected: Floats
    inner: Floats | None = None
    between: Floats | None = None
    between_degrees: Floats | None = None
    most_degrees: Floats | None = None
    n_replicates: Ints | None = None

    @classmethod
    def joined(cls, parts: list[Contrasts]) -> Contrasts:
        """Those of several blocks of features, of the same weights and replicates, beside each other."""
        names = ["difference", "variance", "degrees", "detected"]
        names += ["inner", "between"] if parts[0].between is not None else []
        return replace(parts[0], **{name: np.hstack([getattr(part, name) for part in parts]) for name in names})


@dataclass(frozen=True, eq=False)
class _Side:
    """Weighted moments of one sample: contrasts × features."""

    weights: sp.csr_array
    samples: sp.csr_array
    mean: Floats
    spread: Floats
    variance: Floats
    detected: Floats
    effective: Floats
    flat: NDArray[np.bool_]

    @classmethod
    def of(cls, weights: Any, samples: sp.csr_array) -> _Side:
        W, X = sp.csr_array(weights), sp.csr_array(samples).astype(np.float64)
        X.eliminate_zeros()
        sizes = np.asarray(W.power(2).sum(axis=1)).ravel()
        mean, square = dense(W @ X), dense(W @ X.power(2))
        spread = np.maximum(square - mean**2, 0.0)
        flat = spread <= ROUNDING * square  # the feature is constant
        spread[flat] = (ROUNDING * square)[flat]
        with np.errstate(divide="ignore", invalid="ignore"):
            factor = np.where(sizes < UNIFORM, sizes / (1 - sizes), np.nan)
        counted = sp.csr_array((np.ones(X.nnz), X.indices, X.indptr), shape=X.shape)
        return cls(W, X, mean, spread, spread * factor[:, None], dense(W @ counted) / sizes[:, None], 1 / sizes, flat)

    def residuals(self, members: NDArray[np.bool_]) -> tuple[Floats, Floats]:
        """Of some samples: the weight of each contrast on them, and their part of Σ_i w_i (x_i − mean)."""
        rows = np.flatnonzero(members)
        part = sp.csr_array(self.weights[:, rows])
        weight = np.asarray(part.sum(axis=1), dtype=np.float64).ravel()
        return weight, dense(part @ self.samples[rows]) - weight[:, None] * self.mean


class _Inner:
    """The variance of the means of a side from the spread within replicates, whose means are removed one by one."""

    def __init__(self, side: _Side) -> None:
        self.side, self.spread, self.lost = side, side.spread.copy(), np.zeros(side.mean.shape[0])

    def remove(self, members: NDArray[np.bool_], weight: Floats, residual: Floats) -> None:
        """The spread of the mean of a replicate, of this weight and residual."""
        held = np.where(weight > 0, weight, 1.0)
        self.spread -= residual**2 / held[:, None]
        part = sp.csr_array(self.side.weights[:, np.flatnonzero(members)])
        self.lost += np.asarray(part.power(2).sum(axis=1), dtype=np.float64).ravel() / held

    def variance(self) -> Floats:
        """NaN if each replicate has one sample."""
        with np.errstate(divide="ignore", invalid="ignore"):
            factor = np.where(self.lost < UNIFORM, 1 / self.side.effective / (1 - self.lost), np.nan)
        return np.maximum(self.spread, 0.0) * factor[:, None]


def contrasts(
    X: Any, Y: Any, W: Any, V: Any, replicates: tuple[NDArray[Any], NDArray[Any]] | None = None
) -> Contrasts:
    """Contrasts between the rows of X, weighted by the rows of W, and those of Y, weighted by V.

    With `replicates`, the labels of the rows of X and of Y, the variance between replicates is computed as well:
    Σ_r u_r², where u_r is the part of replicate r in the difference of the residuals, corrected for the weight that
    it has in the means. A replicate on both sides is paired with itself: what it adds to both sides cancels if it has
    the same weight on both, as `balance` gives it.

    >>> X, Y = np.array([[0.0], [2.0], [0.0], [2.0]]), np.array([[3.0], [5.0], [4.0], [4.0]])
    >>> found = contrasts(X, Y, np.full((1, 4), 0.25), np.full((1, 4), 0.25))
    >>> found.difference.item(), round(found.variance.item(), 3)
    (3.0, 0.5)
    """
    if not sp.issparse(X) and not sp.issparse(Y):
        return _shifted(np.asarray(X, np.float64), np.asarray(Y, np.float64), W, V, replicates)
    source, target = _Side.of(W, X), _Side.of(V, Y)
    welch = source.variance + target.variance
    rest = [np.maximum(side.effective - 1, 1e-9)[:, None] for side in (source, target)]
    parts = [side.variance**2 / count for side, count in zip((source, target), rest, strict=True)]
    with np.errstate(divide="ignore", invalid="ignore"):
        degrees = np.where(sum(parts) > 0, welch**2 / sum(parts), np.inf)
    variance = np.maximum(welch, _student(source, target, *rest))
    difference = target.mean - source.mean
    difference[np.abs(difference) <= ROUNDING * (np.abs(source.mean) + np.abs(target.mean))] = 0.0
    found = Contrasts(difference, variance, degrees, source.detected + target.detected)
    return found if replicates is None else _with_replicates(found, source, target, replicates)


def _student(source: _Side, target: _Side, rest: Floats, goal_rest: Floats) -> Floats:
    """The squared standard error of a difference, if both sides have the same variance.

    Welch's is too small where the smaller side shows none of a rare feature, and so no variance.
    """
    n, m = source.effective[:, None], target.effective[:, None]
    common = (source.variance * n * rest + target.variance * m * goal_rest) / (rest + goal_rest)
    return np.asarray(common * (1 / n + 1 / m))


def _shifted(
    X: Floats, Y: Floats, W: Any, V: Any, replicates: tuple[NDArray[Any], NDArray[Any]] | None
) -> Contrasts:
    """Contrasts of dense samples, from which a common row is subtracted first: squares of large offsets would round."""
    common = X.mean(axis=0)
    found = contrasts(sp.csr_array(X - common), sp.csr_array(Y - common), W, V, replicates)
    counts = [dense(sp.csr_array(weights) @ sp.csr_array((side != 0).astype(np.float64)))
              / np.asarray(sp.csr_array(weights).power(2).sum(axis=1)).ravel()[:, None]
              for weights, side in ((W, X), (V, Y))]
    return replace(found, detected=counts[0] + counts[1])


def _with_replicates(
    found: Contrasts, source: _Side, target: _Side, replicates: tuple[NDArray[Any], NDArray[Any]]
) -> Contrasts:
    names = np.unique(np.concatenate([np.unique(side) for side in replicates]))
    n = source.mean.shape[0]
    weights = np.zeros((2, names.size, n))
    parts = []
    spreads = [_Inner(source), _Inner(target)]
    for k, name in enumerate(names):
        members = replicates[0] == name, replicates[1] == name
        mine, theirs = source.residuals(members[0]), target.residuals(members[1])
        weights[0, k], weights[1, k] = mine[0], theirs[0]
        parts.append(theirs[1] - mine[1])
        for side, held, residual in zip(spreads, members, (mine, theirs), strict=True):
            side.remove(held, *residual)
    welch, within = source.variance + target.variance, spreads[0].variance() + spreads[1].variance()
    known = (welch > 0) & np.isfinite(within)
    share = np.clip(np.divide(within, welch, out=np.ones(welch.shape), where=known), LEAST_INNER, 1.0)
    shares = Shares.of(*weights)
    between = np.zeros(found.difference.shape)
    for k, part in enumerate(parts):
        between += part**2 / shares.left[k][:, None]
    between[source.flat & target.flat] = 0.0  # nothing but rounding
    return replace(
        found,
        inner=found.variance * share,
        between=between,
        between_degrees=shares.degrees,
        most_degrees=shares.most_degrees,
        n_replicates=shares.count(),
    )
