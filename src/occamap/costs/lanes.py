"""Pairs and moves of costs that are a sum over features: LANES samples side by side, a tile of features at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import prod
from typing import Any, Self, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from occamap._kernels.columns import block_pointers
from occamap._kernels.field import spread_masses
from occamap._kernels.jit import LANES
from occamap._kernels.lanes import tile_entries
from occamap._validate import Samples, as_csr
from occamap.costs.base import Cost
from occamap.costs.generic import Field, Floats, Gibbs, Pairs

WEIGHTS_BYTES = 2**19  # an L2 cache: the weights of a block of targets stay there
TILE_BYTES = 2**18  # half an L2 cache: one tile of features × lanes stays there


def aligned(shape: int | tuple[int, ...], dtype: Any, fill: float | None = None) -> NDArray[Any]:
    """A new array that begins on a cache line, so that no vector of lanes straddles two."""
    dtype = np.dtype(dtype)
    size = (shape if isinstance(shape, int) else prod(shape)) * dtype.itemsize
    raw = np.empty(size + 64, np.uint8)
    offset = -raw.ctypes.data % 64
    array: NDArray[Any] = raw[offset : offset + size].view(dtype).reshape(shape)
    if fill is not None:
        array.fill(fill)
    return array


def tile_width(d: int, dtype: np.dtype[Any]) -> int:
    """Features in a tile."""
    return max(1, min(d, TILE_BYTES // (LANES * dtype.itemsize)))


def tile_of(X: Samples) -> NDArray[Any]:
    return aligned((tile_width(X.shape[1], X.dtype), LANES), X.dtype, fill=0)


def walk(X: Samples, data: NDArray[Any] | None = None) -> tuple[Any, ...]:
    """At most LANES samples for the kernel `next_tile`: rows, cursor, tile and counts; `data` may stand for theirs."""
    indptr, indices, stored = X.stored()
    tile = tile_of(X)
    cursor = np.stack([indptr[:-1], indptr[:-1]])
    return (indptr, indices, stored if data is None else data), cursor, tile, np.empty(tile.shape[0], np.int32)


def by_tiles(Y: Samples) -> tuple[NDArray[np.int64], NDArray[np.uint16], NDArray[Any]]:
    """The entries of sparse rows in the order in which pairs read them: begins, features and values.

    Read from the rows themselves, the few entries of a tile would come from a place of their own in each row, which
    no processor foresees: pairs would wait for memory a third of the time.
    """
    (m, d), width = Y.shape, tile_width(Y.shape[1], Y.dtype)
    begins, features = np.empty(-(-d // width) * m + 1, np.int64), np.empty(Y.data.size, np.uint16)
    values = np.empty_like(Y.data)
    tile_entries(*Y.stored(), width, begins, features, values)
    return begins, features, values


def pairs_bytes(Y: Samples) -> int:
    """Bytes of what is prepared of Y for pairs: its entries once more, tile by tile, and where they are."""
    if not Y.is_sparse:
        return 0
    return 8 * Y.shape[0] * (Y.shape[1] // tile_width(Y.shape[1], Y.dtype) + 2) + 2 * Y.data.size + Y.data.nbytes


class LanePairs(ABC):
    """Costs of LANES rows at a time against Y: over its stored entries if sparse, over all if dense."""

    rows = LANES
    tiny = 1e-25
    """In float32 the squares of small numbers vanish: costs below this are computed again, in float64."""

    def __init__(self, cost: Cost, Y: Samples) -> None:
        self.cost, self.Y, self._wide = cost, Y, cast("Self | None", None)
        if Y.is_sparse:
            self.entries, self.y_values = by_tiles(Y), cost._values(Y)

    def block(self, X: Samples) -> Floats:
        if X.is_sparse and not self.Y.is_sparse:
            return np.ascontiguousarray(type(self)(self.cost, X).block(self.Y).T)
        out = np.empty((X.shape[0], self.Y.shape[0]))
        for start in range(0, X.shape[0], LANES):
            part = X.rows(start, min(start + LANES, X.shape[0]))
            C = self._sums(part)[:, : part.shape[0]]
            if X.dtype == np.float32 and not self.Y.is_sparse and C.min() < self.tiny:
                C = self._refined(part, C)
            out[start : start + LANES] = C.T
        return out

    @abstractmethod
    def _sums(self, X: Samples) -> Floats:
        """The costs of at most LANES rows, transposed and padded: [j, lane]."""

    def _recompute(self, kernel: Any, strength: Any, X: Samples, C: Floats, scale: Floats) -> None:
        """Again the pairs so close, next to their `scale`, that a difference of sums loses their digits.

        Term by term, or all of them in float64 where they are many.
        """
        j, i = np.nonzero(self._close(X, C[:, : X.shape[0]], scale))
        if self._too_many(X, j, scale):
            C[:] = self._in_float64(X)
        elif j.size:
            kernel(*self._pair_rows(X), strength, i, j, *self._pair_scratch(X), C)

    def _close(self, X: Samples, C: Floats, scale: Floats) -> NDArray[np.bool_]:
        """Which pairs are so close, next to their `scale`, that a difference of sums loses their digits."""
        single = X.dtype == np.float32
        return np.asarray(((0.2 if single else 0.01) * scale > C) | (single & (self.tiny > C) & (scale > 0)))

    def _too_many(self, X: Samples, close: NDArray[np.int64], scale: Floats) -> bool:
        return X.dtype == np.float32 and close.size > 0.05 * scale.size

    def _pair_rows(self, X: Samples) -> tuple[Any, ...]:
        return *X.stored(), *self.Y.stored()

    def _pair_scratch(self, X: Samples) -> tuple[Any, ...]:
        longest = int(np.diff(X.stored()[0]).max() + np.diff(self.Y.stored()[0]).max())
        return np.empty(longest, np.int32), np.empty(longest)

    def _refined(self, X: Samples, C: Floats) -> Floats:
        """The costs of dense rows, the tiny ones again, in float64; or all of them where many are."""
        j, i = np.nonzero(self.tiny > C)
        if j.size > 0.05 * C.size:
            return self._in_float64(X)[:, : X.shape[0]]
        for pairs in np.split(np.arange(j.size), range(256, j.size, 256)):
            z = X.data[i[pairs]].astype(np.float64) - self.Y.data[j[pairs]]
            C[j[pairs], i[pairs]] = self.cost._values(Samples(z.shape, z))
        return C

    def _in_float64(self, X: Samples) -> Floats:
        return self._widened()._sums(X.astype(np.float64))

    def _widened(self) -> Self:
        """The same pairs in float64."""
        if self._wide is None:
            self._wide = type(self)(self.cost, self.Y.astype(np.float64))
        return self._wide


class LinearLanePairs(LanePairs):
    """Those of a penalty that is linear in γ: both parts of the cost apart."""

    def parts(self, X: Samples) -> tuple[Floats, Floats]:
        """½‖x − y‖² and τ(x − y) of a penalty that is linear in γ."""
        if X.is_sparse and not self.Y.is_sparse:
            half, penalty = type(self)(self.cost, X).parts(self.Y)
            return half.T, penalty.T
        half, penalty = np.empty((2, X.shape[0], self.Y.shape[0]))
        for start in range(0, X.shape[0], LANES):
            rows = slice(start, start + LANES)
            half[rows].T[:], penalty[rows].T[:] = self._part_sums(X.rows(start, min(start + LANES, X.shape[0])))
        return half, penalty

    @abstractmethod
    def _part_sums(self, X: Samples) -> tuple[Floats, Floats]:
        """Both parts of at most LANES rows, transposed: [j, lane]."""


class LaneDisplacer:
    """Displacements of LANES rows at a time, feature by feature over the columns of Y.

    `moves` is one of :mod:`occamap._kernels.displace`, and `fields` that of :mod:`occamap._kernels.field` for the same
    penalty, with the strength of each feature or of all. Masses are multiplied by it: where it is large next to the
    data, they are summed in float64.
    """

    by_feature = True

    def __init__(self, pairs: LanePairs, moves: Any, fields: Any, strength: Floats) -> None:
        self.pairs: Pairs = pairs
        self.moves, self.fields, self.strength, Y = moves, fields, strength, pairs.Y
        large = strength[np.isfinite(strength)].max(initial=0.0) > 10 * Y.largest()
        self.dtype = np.dtype(np.float64) if large else Y.dtype
        colptr, rows, values = Y.columns
        self.columns = _by_blocks(colptr, rows, Y.shape[0], self.dtype), rows, values.astype(self.dtype, copy=False)

    def block(self, X: Samples, gibbs: Gibbs, ties: int, relax: float, C: Floats | None = None) -> sp.csr_array:
        weights = gibbs(self.pairs.block(X) if C is None else C)
        spans = [(start, min(start + LANES, X.shape[0])) for start in range(0, X.shape[0], LANES)]
        moved = [self._lanes(X.rows(*span), weights[slice(*span)], float(ties), relax) for span in spans]
        return moved[0] if len(moved) == 1 else sp.csr_array(sp.vstack(moved))

    def field(self, X: Samples, weights: Floats, out: Field, start: int = 0) -> None:
        lanes, stop = walk(X.astype(self.dtype)), start + out.slopes.shape[1]
        strip, sums = aligned((3, LANES), np.float64), aligned((4 * lanes[2].shape[0], LANES), np.float64)
        masses = aligned((weights.shape[1], LANES), self.dtype), aligned((1, LANES), np.float64)
        spread_masses(weights, *masses)
        parts = out.slopes, out.shifts, out.slack
        self.fields(lanes, self.columns, masses, self.strength, start, stop, strip, sums, *parts)

    def _masses(self, weights: Floats) -> tuple[NDArray[Any], Floats, Floats]:
        """The weights [j, lane] of at most LANES rows, the largest of each target, and their sums as rounded."""
        p = aligned((weights.shape[1], LANES), self.dtype, fill=0)
        p[:, : weights.shape[0]] = weights.T
        return p, p.max(axis=1).astype(np.float64), p.sum(axis=0, keepdims=True, dtype=np.float64)

    def _lanes(self, X: Samples, weights: Floats, ties: float, relax: float) -> sp.csr_array:
        (n, d), dtype, X = X.shape, X.dtype, X.astype(self.dtype)
        masses = self._masses(weights)
        lengths, move, done = np.zeros(n, np.int64), aligned((1, LANES), np.float64), 0
        lanes = walk(X)
        sums = aligned((4 * lanes[2].shape[0], LANES), np.float64)
        given = lanes, self.columns, masses, self.strength, ties, relax, move, sums, lengths
        room = min(d, max(1024, d // 8))
        rows = np.empty((n, room), np.int32), np.empty((n, room), dtype)
        while (done := self.moves(*given, done, *rows)) < d:
            rows = _widened(rows[0], d), _widened(rows[1], d)
        indices, moves = (np.concatenate([row[:k] for row, k in zip(part, lengths, strict=True)]) for part in rows)
        return as_csr(moves, indices, np.concatenate([[0], np.cumsum(lengths)]), (n, d))


def _by_blocks(colptr: NDArray[np.int64], rows: NDArray[np.int32] | None, m: int, dtype: Any) -> NDArray[np.int64]:
    """[block, column]: where the entries of each block of rows begin, and the last of them ends."""
    step = max(1, WEIGHTS_BYTES // (LANES * np.dtype(dtype).itemsize))
    starts = np.append(np.arange(0, m, step), m)
    if rows is None:
        return np.asarray(colptr[:-1] + starts[:, None])
    begins = np.empty((starts.size, colptr.size - 1), np.int64)
    block_pointers(colptr, rows, starts, begins)
    return begins


def _widened(rows: NDArray[Any], most: int) -> NDArray[Any]:
    """The same rows with twice the room, or the most there is use for."""
    n, room = rows.shape
    wider = np.empty((n, min(most, 2 * room)), rows.dtype)
    wider[:, :room] = rows
    return wider
