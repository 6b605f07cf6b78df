"""Principal components of two samples, without centring or densifying them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from occamap._kernels.columns import add_columns
from occamap._kernels.jit import LANES
from occamap._kernels.pool import pool_tile
from occamap._validate import Samples
from occamap._workers import Workers

Floats = NDArray[np.float64]

EXTRA = 10  # directions beyond those that are wanted: they make the last of these accurate
ROUNDS = 4  # of the subspace iteration
LEAST = 1e-6  # of the largest standard deviation: directions below are rounding
BLOCK = 512  # rows a task


@dataclass(frozen=True, eq=False)
class Components:
    """Orthogonal `axes` (features × components) about the mean of the samples that they were learned on.

    An axis is shorter than one by the share of noise in it. The coordinates of a row depend on nothing but the row,
    whatever other rows are asked for with it.
    """

    axes: Floats
    offset: Floats

    @property
    def count(self) -> int:
        return int(self.axes.shape[1])

    def __call__(self, X: Samples, workers: Workers) -> Floats:
        """The coordinates of each row."""
        return _times(X, self.axes, np.dtype(np.float64), workers) - self.offset


def principal_components(samples: Sequence[Samples], count: int, workers: Workers) -> Components:
    """The leading components of all rows of the samples together, by randomised subspace iteration (Halko et al. 2011).

    Always from the same random start. Directions in which nothing varies are left out, but one always stays. Each
    component is shrunk by the noise in it, √(1 − σ²/s²), where s is its singular value and σ that of the first
    component that is left out: noise varies about as much in any direction, and what samples have in common varies
    more.
    """
    d, n = samples[0].shape[1], sum(side.shape[0] for side in samples)
    dtype = np.result_type(*(side.dtype for side in samples))
    mean = sum((_column_sums(side) for side in samples), np.zeros(d)) / n
    size = min(count + EXTRA, n, d)
    axes = np.random.default_rng(0).normal(size=(d, size))
    for _ in range(ROUNDS):
        scores = _orthonormal(_scores(samples, axes, mean, dtype, workers))
        axes = _orthonormal(_loadings(samples, scores, mean, dtype, workers))
    scores = _orthonormal(_scores(samples, axes, mean, dtype, workers))
    axes, spread = _principal(_loadings(samples, scores, mean, dtype, workers))
    kept = max(1, int(np.sum(spread[:count] > LEAST * spread[0])))
    axes = _orthonormal(axes[:, :kept])
    axes *= np.where(axes[np.abs(axes).argmax(axis=0), np.arange(kept)] < 0, -1.0, 1.0)
    if spread.size > count and kept == count:
        axes *= np.sqrt(np.maximum(1 - (spread[count] / spread[:count]) ** 2, 0.0))
    return Components(np.ascontiguousarray(axes), mean @ axes)


def _principal(matrix: Floats) -> tuple[Floats, Floats]:
    """Left singular vectors, not yet of length one to the last digit, and singular values, by the small Gram matrix.

    Those of directions that are rounding are 0.
    """
    squares, turn = np.linalg.eigh(matrix.T @ matrix)
    spread = np.sqrt(np.maximum(squares[::-1], 0.0))
    inverse = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > LEAST * spread[0])
    return matrix @ (turn[:, ::-1] * inverse), spread


def _orthonormal(matrix: Floats) -> Floats:
    """An orthonormal basis of the columns, as wide as they are; twice by Cholesky, which is much faster than QR."""
    for _ in range(2):
        lengths = np.linalg.norm(matrix, axis=0)
        matrix = matrix / np.where(lengths > 0, lengths, 1.0)
        try:
            factor = np.linalg.cholesky(matrix.T @ matrix)
        except np.linalg.LinAlgError:  # some columns depend on the others
            return np.linalg.qr(matrix)[0]
        matrix = solve_triangular(factor, matrix.T, lower=True, check_finite=False).T
    return matrix


def components_bytes(samples: Sequence[Samples], count: int) -> float:
    """What it takes to find them: columns of the samples, and some matrices of features × directions."""
    columns = sum(2.0 * side.data.nbytes for side in samples)
    return columns + 4 * 8.0 * LANES * -(-(count + EXTRA) // LANES) * samples[0].shape[1]


def _column_sums(side: Samples) -> Floats:
    if not side.is_sparse:
        return np.asarray(side.data.sum(axis=0, dtype=np.float64))
    sums = np.zeros(side.shape[1])
    add_columns(side.indices, side.data, sums, np.zeros(side.shape[1]))
    return sums


def _scores(samples: Sequence[Samples], axes: Floats, mean: Floats, dtype: Any, workers: Workers) -> Floats:
    """(A − 1 meanᵀ) axes, A being all rows."""
    return np.concatenate([_times(side, axes, dtype, workers) for side in samples]) - mean @ axes


def _loadings(samples: Sequence[Samples], scores: Floats, mean: Floats, dtype: Any, workers: Workers) -> Floats:
    """(A − 1 meanᵀ)ᵀ scores."""
    sums, first = np.zeros((mean.size, scores.shape[1])), 0
    for side in samples:
        part = scores[first : first + side.shape[0]]
        if side.is_sparse:
            colptr, rows, values = side.columns
            sums += _products(colptr, rows, values, part, dtype, workers)
        else:
            sums += side.data.T @ part
        first += side.shape[0]
    return sums - np.outer(mean, scores.sum(axis=0))


def _times(side: Samples, axes: Floats, dtype: Any, workers: Workers) -> Floats:
    return _products(*side.stored(), axes, dtype, workers)


def _products(
    indptr: NDArray[np.int64], indices: Any, data: NDArray[Any], matrix: Floats, dtype: Any, workers: Workers
) -> Floats:
    """CSR × dense, in this precision: LANES columns at a time, a block of rows a task."""
    n, width = indptr.size - 1, matrix.shape[1]
    out = np.empty((n, width))
    for first in range(0, width, LANES):
        some = min(LANES, width - first)
        tile = np.zeros((matrix.shape[0], LANES), dtype)
        tile[:, :some] = matrix[:, first : first + some]

        def block(start: int, tile: NDArray[Any] = tile, first: int = first, some: int = some) -> None:
            stop = min(start + BLOCK, n)
            low, high = indptr[start], indptr[stop]
            made = np.empty((stop - start, LANES), dtype)
            entries = indices[low:high], data[low:high].astype(dtype, copy=False)
            pool_tile(indptr[start : stop + 1] - low, *entries, tile, made)
            out[start:stop, first : first + some] = made[:, :some]

        for _ in workers.map(block, range(0, n, BLOCK)):
            pass
    return out
