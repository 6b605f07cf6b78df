"""Averages of rows over neighbourhoods: 64 features side by side, so that a tile of all rows stays in the L2 cache.

Fields are [row, feature], one feature after the other in memory.

A neighbourhood is a row of a CSR matrix (indptr, indices, weights), whose columns number the rows of a tile
[row, lane]. Sums are taken in the order of the columns, in the precision of the tile.
"""

from __future__ import annotations

import math

import numpy as np

from occamap._kernels.jit import LANES, kernel, reduction
from occamap._kernels.vectors import (
    NARROW,
    bits,
    greatest,
    load,
    lowest,
    magnitude,
    spread,
    store,
    strips,
    widen,
)

ROW = 256  # bytes of a sum: four or eight registers, so that no addition waits for the one before it


@kernel
def pool_tile(indptr, indices, weights, tile, out):
    """out[q] = Σ_i weights[q, i] tile[i], for all lanes; `weights` has the precision of the tile."""
    none = tile[0, 0] - tile[0, 0]
    for q in range(indptr.shape[0] - 1):
        for s in range(strips(tile, ROW)):
            total = spread(none, ROW)
            for e in range(np.uint64(indptr[q]), np.uint64(indptr[q + 1])):
                total += load(tile, np.int64(indices[e]), s, ROW) * weights[e]
            store(out, q, s, total)


@kernel
def take_features(field, features, tile):
    """tile[i, lane] = field[i, features[lane]], and 0 in the lanes beyond them."""
    for i in range(field.shape[0]):
        for lane in range(features.shape[0]):
            tile[i, lane] = field[i, features[lane]]
    tile[:, features.shape[0] :] = 0


@kernel
def beyond_kink(pooled, slack, kink, found, lanes, values):
    """The entries of a pooled tile that leave the kink of their feature: row, lane and value, nearer to 0 by the slack.

    `kink` is one row of lanes. `slack` may be empty, and so may `found`, `lanes` and `values`, to which nothing is
    written then. Returns how many there are.
    """
    count = 0
    for q in range(pooled.shape[0]):
        for s in range(strips(pooled, NARROW)):
            value = load(pooled, q, s, NARROW)
            size = magnitude(widen(value))
            if slack.shape[0] > 0:
                size = size - greatest(widen(load(slack, q, s, NARROW)), 0.0)
            left = bits(size > load(kink, 0, s, value))
            while left != 0:
                lane = s * (LANES // strips(pooled, NARROW)) + lowest(left)
                left &= left - np.uint64(1)
                if found.shape[0] > 0:
                    average = np.float64(pooled[q, lane])
                    if slack.shape[0] > 0:
                        least = max(0.0, np.float64(slack[q, lane]))
                        average = average - least if average > 0 else average + least
                    found[count], lanes[count], values[count] = q, lane, average
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


@reduction
def largest_average(values, heaviest, norm):
    """What no average of the values over a neighbourhood exceeds in magnitude.

    heaviest[i] is the largest weight of value i in any of them, and `norm` the largest Euclidean norm of the weights of
    one. Values above and below 0 take from each other, so that the larger of the two averages bounds both.
    """
    above, below, above_squared, below_squared = 0.0, 0.0, 0.0, 0.0
    for i in range(values.shape[0]):
        value = np.float64(values[i])
        high, low = max(value, 0.0), min(value, 0.0)
        above += heaviest[i] * high
        below -= heaviest[i] * low
        above_squared += high * high
        below_squared += low * low
    return max(min(above, norm * math.sqrt(above_squared)), min(below, norm * math.sqrt(below_squared)))


@kernel
def largest_averages(field, heaviest, norm, out):
    """That of each feature."""
    for t in range(out.shape[0]):
        out[t] = largest_average(field[:, t], heaviest, norm)
