"""Sixty-four samples side by side: a tile of features × lanes that stays in the L2 cache and walks over the features.

The samples are `stored` as the rows (indptr, indices, data) of a CSR matrix. cursor[0, lane] and cursor[1, lane]
are where the entries of the tile begin and end in `data`.
"""

from __future__ import annotations

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
def tile_pointers(indptr, indices, width, pointers):
    """pointers[i, j]: where the entries of row j with column ≥ i·width begin; rows are sorted."""
    for j in range(indptr.shape[0] - 1):
        e = indptr[j]
        end = indptr[j + 1]
        for i in range(pointers.shape[0]):
            while e < end and indices[e] < i * width:
                e += 1
            pointers[i, j] = e
        pointers[pointers.shape[0] - 1, j] = end
