"""Numbers that are still in a file, HDF5 or Zarr: read tile by tile, so that few are in memory beside those wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from occamap.errors import InputError, MemoryBudgetError, OccamapError, one_line

TILE = 2**23  # bytes that are read at a time, if a chunk of the file is not larger: copies of them take as much again
GAP = 2**19  # bytes that nobody wants, and that are still read rather than asking twice

Ints = NDArray[np.int64]
Look = Callable[[Any, Any], Any]


def is_backed(matrix: Any) -> bool:
    """Whether it is a dataset of h5py, an array of Zarr, or a sparse matrix that anndata has left in a file."""
    if is_backed_sparse(matrix):
        return True
    makers = {kind.__module__.partition(".")[0] for kind in type(matrix).__mro__}
    return bool(makers & {"h5py", "zarr"}) and len(getattr(matrix, "shape", ())) == 2


def is_backed_sparse(matrix: Any) -> bool:
    """Whether it is a sparse matrix that anndata has left in a file."""
    return hasattr(matrix, "group") and getattr(matrix, "format", None) in ("csr", "csc")


def read(
    matrix: Any, name: str, rows: Ints | None = None, columns: NDArray[np.bool_] | None = None, look: Look | None = None
) -> Any:
    """Rows and columns (all, if None) of a matrix in a file: an array, or CSR; numbers that are no floats become such.

    `look(which, tile)` sees all columns of every tile, with the places of its rows in the result, and returns what is
    to be taken for it. Beside the result a few tiles are in memory, each of 8 MB or of one chunk of the file. A sparse
    result is there twice for a moment where rows do not rise, or where the file has CSC: that is read through, column
    by column.
    """
    try:
        return _read(matrix, name, rows, columns, look)
    except MemoryBudgetError:
        raise
    except MemoryError as error:
        raise MemoryBudgetError(
            f"{name} does not fit in the memory that is left: it is too large, or its file is damaged and claims to be"
        ) from error


def _read(matrix: Any, name: str, rows: Ints | None, columns: Any, look: Look | None) -> Any:
    with _reading(name):
        n = matrix.shape[0]
    wanted = np.arange(n) if rows is None else np.asarray(rows, dtype=np.int64)
    places = None
    if np.any(wanted[1:] < wanted[:-1]):
        places = np.argsort(wanted, kind="stable")
        wanted = wanted[places]
    if not is_backed_sparse(matrix):
        return _dense(matrix, name, wanted, places, columns, look)
    made = (_by_row if matrix.format == "csr" else _by_column)(matrix, name, wanted, places, columns, look)
    return made if places is None else made[np.argsort(places)]


def _by_row(matrix: Any, name: str, rows: Ints, places: Ints | None, columns: Any, look: Look | None) -> sp.csr_matrix:
    source = _Compressed(matrix, name)
    begin, end = source.starts[rows], source.starts[rows + 1]
    room = int((end - begin).sum())  # at most: what is not written to takes no memory
    data = np.empty(room, _float_type(source.data.dtype))
    indices: NDArray[Any] = np.empty(room, np.int32 if max(room, matrix.shape[1]) < 2**31 else np.int64)
    counts, used = np.zeros(rows.size + 1, dtype=indices.dtype), 0
    for first, last in source.runs(begin, end):
        there = rows[first:last]
        tile = source.lines(int(there[0]), int(there[-1]) + 1)
        tile = _taken(tile, there - there[0])
        if look is not None:
            tile = look(_places(places, first, last), tile)
        if columns is not None:
            tile = tile[:, columns]
        new = used + tile.nnz
        data[used:new], indices[used:new], counts[first + 1 : last + 1] = tile.data, tile.indices, np.diff(tile.indptr)
        used = new
    data.resize(used, refcheck=False)
    indices.resize(used, refcheck=False)
    width = matrix.shape[1] if columns is None else int(columns.sum())
    return sp.csr_matrix((data, indices, np.cumsum(counts, dtype=counts.dtype)), shape=(rows.size, width))


def _by_column(
    matrix: Any, name: str, rows: Ints, places: Ints | None, columns: Any, look: Look | None
) -> sp.csr_matrix:
    source, parts = _Compressed(matrix, name), []
    for first, last in source.runs(source.starts[:-1], source.starts[1:]):
        tile = _taken(source.lines(first, last), rows).tocsr()
        tile = tile.astype(_float_type(tile.dtype), copy=False)
        if look is not None:
            tile = look(_places(places, 0, rows.size), tile)
        parts.append(tile if columns is None else tile[:, columns[first:last]])
    return _side_by_side(parts, rows.size, _float_type(source.data.dtype))


def _side_by_side(parts: list[Any], n: int, dtype: np.dtype[Any]) -> sp.csr_matrix:
    """The columns of all parts, which are emptied one by one: SciPy would have everything three times."""
    width = sum(part.shape[1] for part in parts)
    counts = sum((np.diff(part.indptr) for part in parts), np.zeros(n, dtype=np.int64))
    indptr = np.concatenate([[0], np.cumsum(counts)])
    data = np.empty(indptr[-1], dtype)
    indices: NDArray[Any] = np.empty(indptr[-1], np.int32 if max(indptr[-1], width) < 2**31 else np.int64)
    free, offset = indptr[:-1].copy(), 0  # where the next entry of each row goes
    parts.reverse()
    while parts:
        part = parts.pop()
        size = np.diff(part.indptr)
        places = np.repeat(free - part.indptr[:-1], size) + np.arange(part.nnz)
        data[places], indices[places] = part.data, part.indices + offset
        free, offset = free + size, offset + part.shape[1]
    return sp.csr_matrix((data, indices, indptr.astype(indices.dtype)), shape=(n, width))


def _dense(
    matrix: Any, name: str, rows: Ints, places: Ints | None, columns: Any, look: Look | None
) -> NDArray[np.floating[Any]]:
    d, size = matrix.shape[1], max(matrix.dtype.itemsize, 1)
    tall, wide = (max(1, length) for length in matrix.chunks or (1, d))
    width = _stretch(TILE // size // tall, wide)
    height = _stretch(TILE // size // min(width, max(d, 1)), tall)
    kept = np.ones(d, dtype=bool) if columns is None else columns
    ends = np.concatenate([[0], np.cumsum(kept)])
    made = np.empty((rows.size, ends[-1]), _float_type(matrix.dtype))
    for first, last in _runs(rows, rows + 1, height, max(tall, GAP // size // max(d, 1))):
        there = rows[first:last]
        for low in range(0, d, width):
            high = min(low + width, d)
            with _reading(name):
                lines = np.asarray(matrix[int(there[0]) : int(there[-1]) + 1, low:high])
            tile, which = _taken(lines, there - there[0]), _places(places, first, last)
            if look is not None:
                tile = look(which, tile)
            made[which, ends[low] : ends[high]] = tile if columns is None else tile[:, kept[low:high]]
    return made


class _Compressed:
    """The three arrays of a sparse matrix in a file, of which the first, which is short, is in memory."""

    def __init__(self, matrix: Any, name: str) -> None:
        self.name = name
        with _reading(name):
            n, d = matrix.shape
            self.starts: Ints = np.asarray(matrix.group["indptr"][:]).astype(np.int64)
            self.data, self.indices = matrix.group["data"], matrix.group["indices"]
            stored, numbered = self.data.shape[0], self.indices.shape[0]
        self.kind: Any = sp.csr_matrix if matrix.format == "csr" else sp.csc_matrix
        lines, self.across = (n, d) if matrix.format == "csr" else (d, n)
        sound = self.starts.shape == (lines + 1,) and self.starts[0] == 0 and np.all(np.diff(self.starts) >= 0)
        if not sound or not self.starts[-1] <= stored == numbered:
            raise InputError(f"{name} must be a valid sparse matrix; its indptr does not fit its shape and its entries")

    def runs(self, begin: Ints, end: Ints) -> Iterator[tuple[int, int]]:
        """Lines to read together, that begin and end at these entries."""
        size = self.data.dtype.itemsize + self.indices.dtype.itemsize
        chunk = max((self.data.chunks or (1,))[0], (self.indices.chunks or (1,))[0])
        return _runs(begin, end, _stretch(TILE // size, chunk), max(chunk, GAP // size))

    def lines(self, first: int, last: int) -> Any:
        """These rows of CSR, or columns of CSC, all column numbers (row numbers) of them checked."""
        low, high = int(self.starts[first]), int(self.starts[last])
        with _reading(self.name):
            parts = [np.asarray(array[low:high]) for array in (self.data, self.indices)]
        shape = (last - first, self.across) if self.kind is sp.csr_matrix else (self.across, last - first)
        try:
            made = self.kind((*parts, self.starts[first : last + 1] - low), shape=shape)
            made.check_format(full_check=True)
        except ValueError as error:
            raise InputError(f"{self.name} must be a valid sparse matrix; SciPy says: {error}") from error
        return made


def _runs(begin: Ints, end: Ints, longest: int, gap: int) -> Iterator[tuple[int, int]]:
    """Neighbours to read together: they begin in the same stretch of the file, and are not far from each other."""
    if not begin.size:
        return
    cuts = np.flatnonzero((np.diff(begin // longest) > 0) | (begin[1:] - end[:-1] > gap)) + 1
    yield from zip([0, *cuts.tolist()], [*cuts.tolist(), begin.size], strict=True)


def _stretch(room: int, chunk: int) -> int:
    """As many whole chunks as there is room for, and one at least."""
    return max(1, room // max(1, chunk)) * max(1, chunk)


def _taken(lines: Any, rows: Ints) -> Any:
    """These rows, which rise, without a copy where they are all."""
    if rows.size == lines.shape[0] and np.all(np.diff(rows) == 1):
        return lines
    return lines[rows]


def _places(places: Ints | None, first: int, last: int) -> Any:
    return slice(first, last) if places is None else places[first:last]


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """Whatever a file that is damaged makes its reader raise is one sentence."""
    try:
        yield
    except (OccamapError, MemoryError):
        raise
    except Exception as error:
        raise InputError(
            f"{name} cannot be read from its file, which is closed, damaged or truncated: {one_line(error)}"
        ) from error


def _float_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which such numbers are computed with; any other that is none of numbers stays."""
    if dtype == np.float16:
        return np.dtype(np.float32)
    plain = dtype in (np.float32, np.float64) and dtype.isnative
    return dtype if plain or dtype.kind not in "fiub" else np.dtype(np.float64)
