"""Sums over the rows of a CSR matrix, in float64 whatever it is stored in, without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from occamap._kernels.jit import kernel


def column_sums(matrix: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Σ_i x_it and Σ_i x_it² of every column."""
    sums, squares = np.zeros(matrix.shape[1]), np.zeros(matrix.shape[1])
    add_columns(matrix.indices, matrix.data, sums, squares)
    return sums, squares


@kernel
def count_above(values, tol):
    """How many are larger than `tol` in magnitude."""
    count = 0
    for k in range(values.size):
        count += abs(values[k]) > tol
    return count


@kernel
def add_columns(indices, data, sums, squares):
    """Add the stored entries, and their squares, to those of their columns."""
    for k in range(indices.size):
        value = np.float64(data[k])
        sums[indices[k]] += value
        squares[indices[k]] += value * value


@kernel
def block_pointers(colptr, rows, starts, begins):
    """begins[k, t]: where the entries of column t with row ≥ starts[k] begin; rows rise within a column."""
    for t in range(colptr.shape[0] - 1):
        e = colptr[t]
        for k in range(starts.shape[0]):
            while e < colptr[t + 1] and rows[e] < starts[k]:
                e += 1
            begins[k, t] = e
