"""Averages of rows over neighbourhoods: 64 features side by side, so that a tile of all rows stays in the L2 cache.

A neighbourhood is a row of a CSR matrix (indptr, indices, weights), whose columns number the rows of a tile
[row, lane]. Sums are taken in the order of the columns, in the precision of the tile.
"""

from __future__ import annotations

import numpy as np

from occamap._kernels.jit import kernel
from occamap._kernels.vectors import WIDE, load, spread, store, strips


@kernel
def pool_tile(indptr, indices, weights, tile, out):
    """out[q] = Σ_i weights[q, i] tile[i], for all lanes; `weights` has the precision of the tile."""
    none = tile[0, 0] - tile[0, 0]
    for q in range(indptr.shape[0] - 1):
        for s in range(strips(tile, WIDE)):
            total = spread(none, WIDE)
            for e in range(np.uint64(indptr[q]), np.uint64(indptr[q + 1])):
                total += load(tile, np.int64(indices[e]), s, WIDE) * weights[e]
            store(out, q, s, total)


@kernel
def take_columns(rows, columns, tile):
    """tile[i, lane] = rows[i, columns[lane]]."""
    for i in range(rows.shape[0]):
        for lane in range(columns.shape[0]):
            tile[i, lane] = rows[i, columns[lane]]


@kernel
def beyond_kink(pooled, slack, kink, found, lanes, values):
    """The entries of a pooled tile that leave the kink of their feature: row, lane and value, nearer to 0 by the slack.

    `slack` may be empty. Returns how many there are.
    """
    count = 0
    for q in range(pooled.shape[0]):
        for lane in range(kink.shape[0]):
            value = np.float64(pooled[q, lane])
            size = abs(value)
            if slack.shape[0] > 0:
                size -= max(0.0, np.float64(slack[q, lane]))
            if size > kink[lane]:
                found[count], lanes[count] = q, lane
                values[count] = size if value > 0 else -size
                count += 1
    return count


@kernel
def scatter_rows(rows, columns, values, cursor, indices, data):
    """Append entries to their rows of a CSR matrix; cursor[i] is where the next entry of row i goes."""
    for k in range(rows.shape[0]):
        at = cursor[rows[k]]
        indices[at] = columns[k]
        data[at] = values[k]
        cursor[rows[k]] = at + 1


@kernel
def pool_rows(indptr, indices, weights, rows, out):
    """out[q] = Σ_i weights[q, i] rows[i], over all columns, in float64."""
    for q in range(indptr.shape[0] - 1):
        out[q] = 0.0
        for e in range(indptr[q], indptr[q + 1]):
            row, weight = rows[indices[e]], weights[e]
            for t in range(row.shape[0]):
                out[q, t] += weight * row[t]


@kernel
def signed_sums(rows, above, below):
    """Add what is above and what is below 0 in each column, the latter as a magnitude."""
    for i in range(rows.shape[0]):
        for t in range(rows.shape[1]):
            value = rows[i, t]
            above[t] += max(value, value - value)
            below[t] -= min(value, value - value)
