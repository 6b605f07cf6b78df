"""Sixty-four samples side by side: a tile of features × lanes that stays in the L2 cache."""

from __future__ import annotations

from occamap._kernels.jit import LANES, kernel


@kernel
def scatter_csr(indptr, indices, data, cursor, start, stop, tile, counts):
    """Write the stored entries with start ≤ column < stop to tile[column − start, lane], a row a lane.

    `cursor[lane]` is the position in `data` from which to go on; it is advanced. counts[t] is how many lanes
    store feature t.
    """
    tile[: stop - start] = 0
    counts[:] = 0
    for lane in range(cursor.shape[0]):
        e = cursor[lane]
        end = indptr[lane + 1]
        while e < end and indices[e] < stop:
            t = indices[e] - start
            tile[t, lane] = data[e]
            counts[t] += 1
            e += 1
        cursor[lane] = e


@kernel
def scatter_dense(X, start, stop, tile, counts):
    """Write X[:, start:stop] to tile[:, lane], transposed; all lanes count as stored."""
    tile[: stop - start] = 0
    counts[:] = LANES
    for lane in range(X.shape[0]):
        row = X[lane]
        for t in range(start, stop):
            tile[t - start, lane] = row[t]


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
