"""Sixty-four samples side by side: a tile of features × lanes that stays in the L2 cache and walks over the features.

The samples are `stored` as the rows (indptr, indices, data) of a CSR matrix. cursor[0, lane] and cursor[1, lane]
are where the entries of the tile begin and end in `data`.
"""

from __future__ import annotations

import numpy as np

from occamap._kernels.jit import kernel


@kernel
def next_tile(stored, cursor, start, tile, counts):
    """Fill the tile with the features from `start` on, after the tile before it; counts[t]: lanes that store t.

    The tile is zero but for the entries between the cursors, of the features before `start`; these are cleared.
    """
    indptr, indices, data = stored
    counts[:] = 0
    before = start - tile.shape[0]
    stop = start + tile.shape[0]
    for lane in range(cursor.shape[1]):
        for e in range(cursor[0, lane], cursor[1, lane]):
            tile[indices[e] - before, lane] = 0
        e = cursor[1, lane]
        cursor[0, lane] = e
        end = indptr[lane + 1]
        while e < end and indices[e] < stop:
            t = indices[e] - start
            tile[t, lane] = data[e]
            counts[t] += 1
            e += 1
        cursor[1, lane] = e


@kernel
def next_tile_dense(X, start, tile):
    """Write X[:, start : start + width], transposed, to the tile."""
    for lane in range(X.shape[0]):
        for t in range(start, min(X.shape[1], start + tile.shape[0])):
            tile[t - start, lane] = X[lane, t]


@kernel
def tile_entries(indptr, indices, data, width, begins, features, values):
    """The entries of sorted rows, tile after tile of `width` features, and in a tile row after row.

    Those of tile i and row j are begins[i·n + j] : begins[i·n + j + 1] of `features`, counted from the first of the
    tile, and `values`.
    """
    n = indptr.shape[0] - 1
    tiles = (begins.shape[0] - 1) // n
    begins[0] = 0
    for j in range(n):
        e = np.uint64(indptr[j])
        end = np.uint64(indptr[j + 1])
        for i in range(tiles):
            first = e
            while e < end and indices[e] < (i + 1) * width:
                e += np.uint64(1)
            begins[i * n + j + 1] = e - first
    for k in range(begins.shape[0] - 1):
        begins[k + 1] += begins[k]
    for j in range(n):
        e = np.uint64(indptr[j])
        for i in range(tiles):
            for k in range(np.uint64(begins[i * n + j]), np.uint64(begins[i * n + j + 1])):
                features[k] = indices[e] - i * width
                values[k] = data[e]
                e += np.uint64(1)
