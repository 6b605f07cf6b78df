"""Sixty-four samples side by side: a tile of features × lanes that stays in the L2 cache."""

from __future__ import annotations

from occamap._kernels.jit import kernel


@kernel
def scatter_csr(indptr, indices, data, first, last, cursor, start, stop, tile):
    """Write the stored entries of rows first:last with start ≤ column < stop to tile[column − start, lane].

    `cursor[lane]` is the position in `data` from which to go on; it is advanced.
    """
    tile[: stop - start] = 0
    for lane in range(last - first):
        e = cursor[lane]
        end = indptr[first + lane + 1]
        while e < end and indices[e] < stop:
            tile[indices[e] - start, lane] = data[e]
            e += 1
        cursor[lane] = e


@kernel
def scatter_dense(X, first, last, start, stop, tile):
    """Write X[first:last, start:stop] to tile[:, lane], transposed."""
    tile[: stop - start] = 0
    for lane in range(last - first):
        row = X[first + lane]
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
