"""Penalties that are a sum over features: entrywise formulas, and lanes of samples for pairs and moves."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from occamap._kernels import displace, lanes
from occamap._kernels.jit import LANES
from occamap._validate import Samples
from occamap.costs.base import Cost, row_sums
from occamap.costs.generic import Floats, Gibbs, Pairs

TILE_BYTES = 2**18  # half an L2 cache: one tile of features × lanes stays there


class Separable(Cost):
    """h(z) = Σ_t h_t(z_t)."""

    @abstractmethod
    def _entries(self, z: Floats, features: Any) -> Floats:
        """h_t at entries z of these features (an index array, or a slice for the last axis)."""

    @abstractmethod
    def _slopes(self, z: Floats, features: Any) -> Floats:
        """h_t′ at these entries, 0 at 0."""

    @abstractmethod
    def _shrink(self, w: Floats, features: Any) -> Floats:
        """The prox at these entries."""

    def _values(self, z: Samples) -> Floats:
        return row_sums(z, self._entries(z.data.astype(np.float64), _features(z)))

    def _gradient(self, z: Samples) -> NDArray[Any]:
        return self._slopes(z.data.astype(np.float64), _features(z)).astype(z.dtype)

    def _prox(self, w: Samples) -> NDArray[Any]:
        return self._shrink(w.data.astype(np.float64), _features(w)).astype(w.dtype)


def _features(z: Samples) -> Any:
    return slice(None) if z.indices is None else z.indices


def aligned(shape: int | tuple[int, ...], dtype: Any, fill: float | None = None) -> NDArray[Any]:
    """A new array that begins on a cache line, so that no vector of lanes straddles two."""
    dtype = np.dtype(dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    raw = np.empty(size + 64, np.uint8)
    offset = -raw.ctypes.data % 64
    array: NDArray[Any] = raw[offset : offset + size].view(dtype).reshape(shape)
    if fill is not None:
        array.fill(fill)
    return array


class Tiles:
    """Walks over the features, LANES samples side by side in a tile [feature, lane]."""

    def __init__(self, n_features: int, dtype: np.dtype[Any]) -> None:
        self.width = max(1, min(n_features, TILE_BYTES // (LANES * dtype.itemsize)))
        self.starts = range(0, n_features, self.width)
        self.n_features, self.dtype = n_features, dtype

    def new(self, dtype: Any = None) -> NDArray[Any]:
        return aligned((self.width, LANES), dtype or self.dtype)

    def span(self, start: int) -> tuple[int, int]:
        return start, min(start + self.width, self.n_features)


class Scatter:
    """Writes up to LANES samples into one tile after the other, and counts the lanes that store a feature."""

    def __init__(self, X: Samples, tiles: Tiles, data: NDArray[Any] | None = None) -> None:
        self.X, self.data = X, X.data if data is None else data
        self.cursor = None if X.indptr is None else X.indptr[:-1].copy()
        self.tile, self.counts = tiles.new(), np.empty(tiles.width, np.int32)

    def __call__(self, start: int, stop: int) -> NDArray[Any]:
        """The tile of the features start:stop; spans are asked for in order."""
        if self.X.indptr is None:
            lanes.scatter_dense(self.data, start, stop, self.tile, self.counts)
        else:
            stored = self.X.indptr, self.X.indices, self.data, self.cursor
            lanes.scatter_csr(*stored, start, stop, self.tile, self.counts)
        return self.tile


class LanePairs:
    """Costs of LANES rows at a time against Y: over its stored entries if sparse, over all if dense."""

    rows = LANES

    def __init__(self, cost: Separable, Y: Samples) -> None:
        self.cost, self.Y, self._wide = cost, Y, cast("LanePairs | None", None)
        self.tiles = Tiles(Y.shape[1], Y.dtype)
        if Y.is_sparse:
            self.pointers = np.empty((len(self.tiles.starts) + 1, Y.shape[0]), np.int64)
            lanes.tile_pointers(Y.indptr, Y.indices, self.tiles.width, self.pointers)
            self.y_values = cost._values(Y)

    def block(self, X: Samples) -> Floats:
        if X.is_sparse and not self.Y.is_sparse:
            return np.ascontiguousarray(type(self)(self.cost, X).block(self.Y).T)
        out = np.empty((X.shape[0], self.Y.shape[0]))
        for start in range(0, X.shape[0], LANES):
            part = X.rows(start, min(start + LANES, X.shape[0]))
            out[start : start + LANES] = self._sums(part)[:, : part.shape[0]].T
        if X.dtype == np.float32 and not self.Y.is_sparse:  # squares of tiny numbers vanish in float32
            for i, j in np.argwhere(out < 1e-25):
                z = X.data[i : i + 1].astype(np.float64) - self.Y.data[j]
                out[i, j] = self.cost._values(Samples(z.shape, z))[0]
        return out

    def _sums(self, X: Samples) -> Floats:
        """The costs of at most LANES rows, transposed and padded: [j, lane]."""
        raise NotImplementedError

    def _recompute(self, kernel: Any, strength: Any, X: Samples, C: Floats, scale: Floats) -> None:
        """Again the pairs so close, next to their `scale`, that a difference of sums loses their digits.

        Term by term, or all of them in float64 where they are many.
        """
        close = 0.2 if X.dtype == np.float32 else 0.01
        j, i = np.nonzero(C[:, : X.shape[0]] < close * scale)
        if X.dtype == np.float32 and j.size > 0.05 * scale.size:
            if self._wide is None:
                self._wide = type(self)(self.cost, self.Y.astype(np.float64))
            C[:] = self._wide._sums(X.astype(np.float64))
        elif j.size:
            x, y = X.csr(), self.Y.csr()
            longest = int(np.diff(x.indptr).max() + np.diff(y.indptr).max())
            scratch = np.empty(longest, np.int32), np.empty(longest)
            stored = [part for z in (x, y) for part in (z.indptr.astype(np.int64), z.indices, z.data)]
            kernel(*stored, strength, i, j, *scratch, C)


class LaneDisplacer:
    """Displacements of LANES rows at a time, feature by feature over the columns of Y."""

    def __init__(self, pairs: LanePairs) -> None:
        self.pairs: Pairs = pairs
        self.Y, self.tiles = pairs.Y, pairs.tiles
        if self.Y.is_sparse:
            columns = self.Y.csr().tocsc()
            self.colptr = columns.indptr.astype(np.int64)
            self.entries, self.values = columns.indices.astype(np.int32), columns.data
        else:
            m = self.Y.shape[0]
            self.colptr = np.arange(self.tiles.width + 1, dtype=np.int64) * m
            self.entries = np.tile(np.arange(m, dtype=np.int32), self.tiles.width)

    def block(self, X: Samples, gibbs: Gibbs, ties: int, relax: float) -> sp.csr_array:
        parts = [X.rows(s, min(s + LANES, X.shape[0])) for s in range(0, X.shape[0], LANES)]
        moved = [self._lanes(part, gibbs(self.pairs.block(part)), ties, relax) for part in parts]
        return moved[0] if len(moved) == 1 else sp.csr_array(sp.vstack(moved))

    def _lanes(self, X: Samples, weights: Floats, ties: int, relax: float) -> sp.csr_array:
        n, d = X.shape
        p = aligned((self.Y.shape[0], LANES), X.dtype, fill=0)
        p[:, :n] = weights.T
        peak, total = p.max(axis=1).astype(np.float64), p.sum(axis=0, dtype=np.float64)
        scatter, active = Scatter(X, self.tiles), np.empty(self.tiles.width, np.int64)
        part, sums = aligned(4 * LANES, X.dtype), aligned(4 * LANES, np.float64)
        moves = self.tiles.new(np.float64)
        counts, stored = np.zeros(n, np.int64), 0
        lane_of, indices, values = np.empty(0, np.uint8), np.empty(0, np.int32), np.empty(0, X.dtype)
        for start in self.tiles.starts:
            start, stop = self.tiles.span(start)
            scatter(start, stop)
            columns, scratch = self._columns(start, stop), (part, sums, active, moves)
            found = self._move(scatter, start, stop, columns, (p, peak, total), float(ties), relax, scratch)
            if stored + found * n > values.size:
                room = max(2 * values.size, stored + found * n)
                lane_of, indices, values = (_grown(v, room) for v in (lane_of, indices, values))
            stored = displace.gather(moves, active[:found], n, start, counts, stored, lane_of, indices, values)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        rows = np.empty(stored, np.int32), np.empty(stored, X.dtype)
        displace.by_lane(stored, lane_of, indices, values, indptr[:-1].copy(), *rows)
        return sp.csr_array((rows[1], rows[0], indptr), shape=(n, d))

    def _columns(self, start: int, stop: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Pointers, row numbers and values of the columns start:stop of Y."""
        if self.Y.is_sparse:
            return self.colptr[start : stop + 1], self.entries, self.values
        return self.colptr, self.entries, np.ascontiguousarray(self.Y.data[:, start:stop].T).ravel()

    def _move(
        self,
        scatter: Scatter,
        start: int,
        stop: int,
        columns: tuple[NDArray[Any], NDArray[Any], NDArray[Any]],
        weights: tuple[NDArray[Any], Floats, Floats],
        ties: float,
        relax: float,
        scratch: tuple[NDArray[Any], Floats, NDArray[np.int64], Floats],
    ) -> int:
        """Write the displacements of this tile to the last of `scratch`, and which features have any before it."""
        raise NotImplementedError


def _grown(array: NDArray[Any], size: int) -> NDArray[Any]:
    grown = np.empty(size, array.dtype)
    grown[: array.size] = array
    return grown
