"""Principal components of any part of the cells, from one Gram matrix of all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import ArpackError, eigsh

from occamap._kernels.columns import column_sums
from occamap._memory import Budget
from occamap._validate import Samples
from occamap._workers import Workers
from occamap.costs import SqL2
from occamap.errors import InputError

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

BLOCK = 512  # rows of a Gram matrix at a time
SMALL = 800  # cells up to which all eigenvectors are cheap
SETTLED = 1e-5  # relative error of an eigenvalue
LEAST = 1e-6  # of the largest variance: components below are rounding


@dataclass(frozen=True, eq=False)
class Components:
    """`axes` (genes × components) are orthonormal; the mean of the cells they were learned on is at 0."""

    axes: NDArray[Any]
    offset: Floats

    def __sizeof__(self) -> int:
        return self.axes.nbytes + self.offset.nbytes

    def __call__(self, cells: Any) -> Floats:
        """The coordinates of cells (cells × genes)."""
        return self.directions(cells) - self.offset

    def directions(self, moves: Any) -> Floats:
        """The coordinates of displacements, which have no origin."""
        return np.asarray(moves @ self.axes, dtype=np.float64)


class Gram:
    """Inner products of all cells of two groups, in single precision: ⟨x, y⟩ to about 1e-7 of ‖x‖‖y‖."""

    def __init__(
        self,
        control: Samples,
        target: Samples,
        workers: Workers,
        budget: Budget,
        within: NDArray[Any] | None = None,
    ) -> None:
        cells = control.shape[0] + target.shape[0]
        budget.require(gram_bytes(control, target, within), f"computing inner products of {cells:,} cells")
        self.control, self.target = control.csr(), target.csr()
        self.within = gram_within(control, workers) if within is None else within
        self.across, self.beyond = _gram(control, target, workers), _gram(target, target, workers)

    def __sizeof__(self) -> int:
        """Bytes of the arrays, so that a cluster knows what it would cost to move them."""
        cells = sum(side.data.nbytes + side.indices.nbytes for side in (self.control, self.target))
        return int(self.within.nbytes + self.across.nbytes + self.beyond.nbytes + cells)

    def components(self, rows: Rows, others: Rows, count: int) -> Components:
        """Those of these control cells and these target cells together."""
        n, m = rows.size, others.size
        K = np.empty((n + m, n + m), dtype=np.float32)
        K[:n, :n] = self.within[np.ix_(rows, rows)]
        K[:n, n:] = self.across[np.ix_(rows, others)]
        K[n:, :n] = K[:n, n:].T
        K[n:, n:] = self.beyond[np.ix_(others, others)]
        vectors, values = _leading(K, count)
        if not values.size:
            raise InputError("the cells of a condition must differ; train cells of one split are all the same")
        X, Y = self.control[rows], self.target[others]
        mean = (column_sums(X)[0] + column_sums(Y)[0]) / (n + m)
        weights = vectors / np.sqrt(values)
        axes = X.T @ weights[:n] + Y.T @ weights[n:] - np.outer(mean, weights.sum(axis=0))
        axes *= np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
        return Components(axes.astype(self.control.dtype), mean @ axes)


def gram_bytes(control: Samples, target: Samples, within: NDArray[Any] | None) -> float:
    """What inner products take, and while they are computed a block of them in float64 and squares of the entries."""
    n, m = control.shape[0], target.shape[0]
    pairs = m * (n + m) + (n * n if within is None else 0)
    return 4.0 * pairs + 2 * 8.0 * BLOCK * max(n, m) + 4.0 * max(control.data.nbytes, target.data.nbytes)


def components_bytes(cells: float) -> float:
    """What it takes to find the components of so many cells: for few, all eigenvectors, and LAPACK's work space."""
    return 4.0 * cells**2 + (40.0 * cells**2 if cells <= SMALL else 0.0)


def gram_within(cells: Samples, workers: Workers) -> NDArray[Any]:
    """Inner products of the cells of one group, in single precision."""
    return _gram(cells, cells, workers)


def _leading(K: NDArray[Any], count: int) -> tuple[Floats, Floats]:
    """The leading eigenvectors, as columns, and eigenvalues of the Gram matrix, once the mean is taken out of it."""
    size = K.shape[0]
    wanted = min(count, size - 1)
    means = K.mean(axis=0, dtype=np.float64)
    K -= (means - means.mean() / 2).astype(K.dtype)
    K -= (means - means.mean() / 2).astype(K.dtype)[:, None]
    if size <= SMALL:
        values, vectors = np.linalg.eigh(K.astype(np.float64))
    else:
        values, vectors = _lanczos(K, wanted)
    order = np.argsort(-values, kind="stable")[:wanted]
    order = order[values[order] > max(0.0, LEAST * float(values[order[0]]))]
    return vectors[:, order].astype(np.float64), values[order].astype(np.float64)


def _lanczos(K: NDArray[Any], wanted: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """By ARPACK, in the precision of K, from a start that is always the same."""
    start = np.random.default_rng(0).normal(size=K.shape[:1]).astype(K.dtype)
    try:
        values, vectors = eigsh(K, wanted, tol=SETTLED, v0=start)
    except ArpackError:  # hardly any cells differ
        return np.linalg.eigh(K.astype(np.float64))
    return np.asarray(values), np.asarray(vectors)


def _gram(X: Samples, Y: Samples, workers: Workers) -> NDArray[Any]:
    """⟨x, y⟩ = ½‖x‖² + ½‖y‖² − ½‖x − y‖²; where Y is X, of each pair once."""
    same = X is Y
    squares = [side.csr().astype(np.float64).power(2).sum(axis=1) for side in (X, Y)]
    out = np.empty((X.shape[0], Y.shape[0]), dtype=np.float32)
    for i in range(0, X.shape[0], BLOCK):
        stop, j = min(i + BLOCK, X.shape[0]), i if same else 0
        half = np.empty((stop - i, Y.shape[0] - j))
        SqL2()._fill(X.rows(i, stop), Y.rows(j, Y.shape[0]), half, workers)
        np.subtract(0.5 * squares[1][j:], half, out=half)
        half += 0.5 * squares[0][i:stop, None]
        out[i:stop, j:] = half
        if same:
            out[j:, i:stop] = out[i:stop, j:].T
    return out
