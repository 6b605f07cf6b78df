"""Strips of lanes, against NumPy: every operation, both precisions and both sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from occamap._kernels import jit, l1, vectors
from occamap._kernels.jit import LANES
from occamap._kernels.vectors import NARROW, WIDE

RNG = np.random.default_rng(0)
EXPECTED = {
    "a + b": lambda a, b, y: a + b,
    "a - y": lambda a, b, y: a - y,
    "y * a - b": lambda a, b, y: y * a - b,
    "a / b": lambda a, b, y: a / b,
    "least(a, b)": lambda a, b, y: np.minimum(a, b),
    "greatest(a, y)": lambda a, b, y: np.maximum(a, y),
    "magnitude(a)": lambda a, b, y: np.abs(a),
    "root(a * a + y)": lambda a, b, y: np.sqrt(a * a + y),
    "select(a < b, a, y)": lambda a, b, y: np.where(a < b, a, y),
    "select(a == b, y, b)": lambda a, b, y: np.where(a == b, y, b),
    "select(a >= b, b, a)": lambda a, b, y: np.where(a >= b, b, a),
    "select(a <= b, a, y)": lambda a, b, y: np.where(a <= b, a, y),
    "select(a > y, b, a)": lambda a, b, y: np.where(a > y, b, a),
    "select(a != b, b, y)": lambda a, b, y: np.where(a != b, b, y),
}


def _kernel(expression: str, size: int) -> Any:
    """A kernel that writes the expression over the lanes of A and B to out, a strip at a time."""
    source = f"""
def run(A, B, y, out):
    for row in range(A.shape[0]):
        for s in range(strips(A, SIZE)):
            a, b = load(A, row, s, SIZE), load(B, row, s, SIZE)
            store(out, row, s, widen({expression}))
"""
    names = {**vars(vectors), "SIZE": size}
    exec(source, names)
    return numba.njit(names["run"])


@pytest.mark.parametrize("size", [WIDE, NARROW])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("expression", EXPECTED)
def test_an_operation_is_that_of_numpy(expression: str, dtype: Any, size: int) -> None:
    a = RNG.normal(size=(3, LANES)).astype(dtype)
    b = np.where(RNG.random((3, LANES)) < 0.3, a, RNG.normal(size=(3, LANES))).astype(dtype)
    out, y = np.zeros((3, LANES)), dtype(0.5)
    _kernel(expression, size)(a, b, y, out)
    digits = 4 * np.finfo(dtype).eps  # multiply-adds round once where NumPy rounds twice
    np.testing.assert_allclose(out, EXPECTED[expression](a, b, y), rtol=digits, atol=digits)


@numba.njit
def _sum_and_marks(A: Any, total: Any, marks: Any) -> None:
    count = vectors.strips(A, NARROW)
    for row in range(A.shape[0]):
        bits = np.uint64(0)
        for s in range(count):
            a = vectors.load(A, row, s, NARROW)
            vectors.accumulate(total, 0, s, a)
            bits |= vectors.bits(a != a - a) << np.uint64(s * LANES // count)
        marks[row] = bits


@numba.njit
def _positions(bits: Any, out: Any) -> int:
    n = 0
    while bits != 0:
        out[n] = vectors.lowest(bits)
        bits &= bits - np.uint64(1)
        n += 1
    return n


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_are_taken_in_float64_and_marks_tell_the_lanes(dtype: Any) -> None:
    A = (RNG.normal(size=(5, LANES)) * (RNG.random((5, LANES)) < 0.4)).astype(dtype)
    total, marks, found = np.zeros((1, LANES)), np.zeros(5, np.uint64), np.zeros(LANES, np.int64)
    _sum_and_marks(A, total, marks)
    np.testing.assert_allclose(total[0], A.sum(axis=0, dtype=np.float64), rtol=1e-15, atol=1e-15)
    for row in range(5):
        n = _positions(marks[row], found)
        assert found[:n].tolist() == np.flatnonzero(A[row]).tolist()


def test_a_change_to_any_kernel_makes_all_cached_ones_stale() -> None:
    room = Path(jit.__file__).parent
    assert {name for name, _, _ in jit.STAMP} == {file.name for file in room.glob("*.py")}
    assert l1.l1_overlap._cache._cache_file._source_stamp == jit.STAMP
