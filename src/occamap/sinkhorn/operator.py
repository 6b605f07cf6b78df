"""The cost matrix as blocks of rows: in memory, on disk, or computed again when asked for.

Whichever it is, the solver sees the same numbers: float64, or float32 with an offset a row, in which case rounding is
bounded by `rounding`.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from occamap._kernels.jit import LANES
from occamap._validate import Samples
from occamap._workers import Workers
from occamap.costs.base import Cost, Tick
from occamap.costs.generic import Pairs
from occamap.errors import InputError

Floats = NDArray[np.float64]
Span = tuple[int, int]
R = TypeVar("R")

BLOCK = 2**17  # entries a block: enough work for a task, few enough for many cores
TILE = 2**25  # entries a tile: what a worker of a cluster holds, and the unit in which sums over rows are taken
TILES = 64  # at most: each sends sums of all columns
TINIEST, LARGEST = 1e-25, 1e35  # costs that float32 can hold, with digits to spare


class Costs(Protocol):
    """What the solver needs of a cost matrix, wherever it is."""

    shape: tuple[int, int]
    place: str
    """Where the matrix is, in words."""

    @property
    def rounding(self) -> float:
        """What entries may be wrong by since they are rounded to float32; 0 where they are not."""

    def over(self, work: Callable[..., R], workers: Workers, rows: tuple[Floats, ...], *shared: Any) -> Iterator[R]:
        """work(tile, workers, *rows of the tile, *shared) of each tile, in order; `work` is one of the passes."""


class CostBlocks(ABC):
    """A cost matrix that this process can get at, block by block."""

    place: str

    def __init__(self, shape: tuple[int, int]) -> None:
        self.shape = shape
        self.sizes: dict[Span, float] = {}
        """The largest magnitude in each block that was rounded."""

    @property
    def rounding(self) -> float:
        return max(self.sizes.values(), default=0.0) * 2.0**-24

    @abstractmethod
    def raw(self, span: Span) -> tuple[NDArray[Any], Floats]:
        """Rows start:stop as they are held, and what is to be added to each row."""

    def block(self, span: Span) -> Floats:
        """Rows start:stop of the matrix."""
        C, offset = self.raw(span)
        return C if C.dtype == np.float64 else C + offset[:, None]

    def spans(self) -> Iterator[Span]:
        """The row ranges of the blocks; they never depend on the number of threads."""
        return _ranges(self.shape[0], block_rows(self.shape[1]))

    def over(self, work: Callable[..., R], workers: Workers, rows: tuple[Floats, ...], *shared: Any) -> Iterator[R]:
        for start, stop in tile_spans(self.shape):
            yield work(Tile(self, start, stop), workers, *(vector[start:stop] for vector in rows), *shared)


class Tile:
    """Some rows of a cost matrix, counted from 0."""

    def __init__(self, blocks: CostBlocks, start: int, stop: int) -> None:
        self.blocks, self.start, self.shape = blocks, start, (stop - start, blocks.shape[1])

    def spans(self) -> Iterator[Span]:
        return _ranges(self.shape[0], block_rows(self.shape[1]))

    def raw(self, span: Span) -> tuple[NDArray[Any], Floats]:
        return self.blocks.raw((self.start + span[0], self.start + span[1]))

    def block(self, span: Span) -> Floats:
        return self.blocks.block((self.start + span[0], self.start + span[1]))


class StoredCost(CostBlocks):
    """The matrix in memory."""

    def __init__(self, C: NDArray[Any]) -> None:
        super().__init__(C.shape)
        self.C, self.offset = C, np.zeros(C.shape[0])
        self.place = f"in memory, {C.dtype}"

    def __sizeof__(self) -> int:
        return self.C.nbytes  # so that a cluster knows what it would cost to move it

    def take(self, rows: NDArray[np.int64]) -> StoredCost:
        """These rows."""
        some = StoredCost(self.C[rows])
        some.offset = self.offset[rows]
        return some

    def put(self, span: Span, C: NDArray[Any], offset: Floats) -> None:
        self.C[slice(*span)], self.offset[slice(*span)] = C, offset

    def raw(self, span: Span) -> tuple[NDArray[Any], Floats]:
        return self.C[slice(*span)], self.offset[slice(*span)]


class RecomputedCost(CostBlocks):
    """Blocks computed from the samples each time: slower by the cost of the pairs, in next to no memory."""

    def __init__(
        self, cost: Cost, X: Samples, Y: Samples, dtype: Any = np.float64, pairs: Pairs | None = None
    ) -> None:
        work = cost._work_dtype(X, Y) if pairs is None else X.dtype
        self.X, self.pairs = X.astype(work), cost._pairs(Y.astype(work)) if pairs is None else pairs
        self.dtype = np.dtype(dtype)
        self.place = f"computed again in each pass, {self.dtype}"
        super().__init__((X.shape[0], Y.shape[0]))

    def raw(self, span: Span) -> tuple[NDArray[Any], Floats]:
        C = self.pairs.block(self.X.rows(*span))
        check_finite(C)
        if self.dtype == np.float64:
            return C, np.zeros(C.shape[0])
        offset = C.mean(axis=1)
        C -= offset[:, None]
        size = float(max(C.max(), -C.min()))
        fits = size == 0 or TINIEST < size < LARGEST
        self.sizes[span] = size if fits else np.inf  # then nobody accepts the rounding, and float64 is asked for
        return C.astype(np.float32) if fits else np.zeros(C.shape, np.float32), offset


class DiskCost(CostBlocks):
    """The matrix in a file that has no name, so that it is gone with the process however that ends.

    Blocks are mapped into memory while they are used.
    """

    def __init__(self, shape: tuple[int, int], dtype: Any, directory: str) -> None:
        super().__init__(shape)
        self.dtype, self.offset = np.dtype(dtype), np.zeros(shape[0])
        self.place = f"on disk, {self.dtype}"
        self._file = tempfile.TemporaryFile(dir=directory, buffering=0)  # noqa: SIM115  (closed with the matrix)
        weakref.finalize(self, self._file.close)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._file.fileno(), 0, shape[0] * self._row)  # a disk that is full says so now

    @property
    def _row(self) -> int:
        return self.shape[1] * int(self.dtype.itemsize)

    def put(self, span: Span, C: NDArray[Any], offset: Floats) -> None:
        self.offset[slice(*span)] = offset
        data, where = memoryview(np.ascontiguousarray(C).data).cast("B"), span[0] * self._row
        while data:
            written = os.pwrite(self._file.fileno(), data, where)
            data, where = data[written:], where + written

    def raw(self, span: Span) -> tuple[NDArray[Any], Floats]:
        start, stop = (row * self._row for row in span)
        first = start - start % mmap.ALLOCATIONGRANULARITY
        flags = {"flags": mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0), "prot": mmap.PROT_READ}
        view = mmap.mmap(self._file.fileno(), stop - first, offset=first, **flags)
        C = np.frombuffer(view, self.dtype, offset=start - first)
        return C.reshape(span[1] - span[0], self.shape[1]), self.offset[slice(*span)]


K = TypeVar("K", StoredCost, DiskCost)


def fill(source: RecomputedCost, target: K, workers: Workers, tick: Tick = None) -> K:
    """`target` with all blocks of `source`, and what they are rounded by."""

    def work(span: Span) -> int:
        target.put(span, *source.raw(span))
        return span[1]

    for done in workers.map(work, source.spans()):
        if tick is not None:
            tick(done / source.shape[0])
    target.sizes = source.sizes
    return target


def block_rows(m: int) -> int:
    """Rows a block for m targets, a multiple of the lanes."""
    return max(1, BLOCK // (m * LANES)) * LANES


def tile_spans(shape: tuple[int, int]) -> Iterator[Span]:
    """The row ranges of the tiles; they depend on nothing but the shape, so that sums do not either."""
    n, m = shape
    block = block_rows(m)
    return _ranges(n, -(-max(TILE // m, -(-n // TILES)) // block) * block)


def _ranges(n: int, step: int) -> Iterator[Span]:
    for start in range(0, n, step):
        yield start, min(start + step, n)


def check_finite(C: Floats) -> None:
    """Raise where a cost overflowed."""
    if not np.isfinite(C).all():
        raise InputError("the costs must be finite, and some overflow: rescale X and Y, or gamma, to smaller numbers")


def working_bytes(m: int, threads: int) -> int:
    """Bytes that the threads use beside data and results: tiles, sums of lanes, blocks under way."""
    lanes = 3 * 2**18 + 8 * LANES * m * 3
    return threads * (lanes + 3 * 8 * block_rows(m) * m)
