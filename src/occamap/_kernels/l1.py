"""Pairwise sums for h(z) = ½z² + g|z|, feature by feature (g = 0 gives ½ℓ2²)."""

from __future__ import annotations

import numpy as np

from occamap._kernels.jit import FLUSH, kernel
from occamap._kernels.lanes import next_tile, next_tile_dense
from occamap._kernels.rows import compensated, sparse_difference
from occamap._kernels.vectors import WIDE, accumulate, greatest, least, load, magnitude, spread, strips

GROUP = 4 * FLUSH  # sums of FLUSH terms that are added in the data's precision once more
ROWS = 16


@kernel
def l1_values(indptr, indices, data, half, g, out):
    """out[i] = Σ_t half·x_t² + g_t|x_t| of sparse rows, in float64."""
    for i in range(out.shape[0]):
        total = lost = 0.0
        for e in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            size = abs(np.float64(data[e]))
            if size > 0:
                total, lost = compensated(total, lost, size * (half * size + g[indices[e]]))
        out[i] = total + lost


@kernel
def l1_overlap(stored, cursor, tile, counts, begins, features, values, g, plain, out, penalty):
    """out[j, lane] += Σ_t h(x_t) + h(y_t) − h(x_t − y_t) over the features t that the sparse row y_j stores.

    The rows y are those of `tile_entries`. The term is x·y + 2g|clip(x, 0, y)|: zero wherever x is, so h(x) + h(y)
    minus the sum is the cost. It is `plain` where nothing is negative and all g are the same: then min(x, y) will do
    for the clip. The terms with g are added to `penalty` unless that is None.
    """
    m = out.shape[0]
    for i in range((begins.shape[0] - 1) // m):
        start = i * tile.shape[0]
        next_tile(stored, cursor, start, tile, counts)
        rows = begins[i * m : (i + 1) * m + 1]
        if plain:
            _overlap_plain(tile, rows, features, values, g[0], out, penalty)
        else:
            _overlap_signed(tile, rows, features, values, g[start:], out, penalty)


@kernel
def _overlap_plain(tile, begins, features, values, g, out, penalty):
    none = g - g
    for j in range(out.shape[0]):
        for first in range(begins[j], begins[j + 1], GROUP):
            last = min(begins[j + 1], first + GROUP)
            for s in range(strips(tile, WIDE)):
                total = spread(none, WIDE)
                for part in range(first, last, FLUSH):
                    product, overlap = spread(none, WIDE), spread(none, WIDE)
                    for e in range(np.uint64(part), np.uint64(min(last, part + FLUSH))):
                        x = load(tile, features[e], s, WIDE)
                        product += x * values[e]
                        overlap += least(x, values[e])
                    if penalty is None:
                        total += product + overlap * (g + g)
                    else:
                        total += product
                        accumulate(penalty, j, s, overlap * (g + g))
                accumulate(out, j, s, total)


@kernel
def _overlap_signed(tile, begins, features, values, g, out, penalty):
    none = g[0] - g[0]
    for j in range(out.shape[0]):
        for first in range(begins[j], begins[j + 1], FLUSH):
            last = min(begins[j + 1], first + FLUSH)
            for s in range(strips(tile, WIDE)):
                total, other = spread(none, WIDE), spread(none, WIDE)
                for e in range(np.uint64(first), np.uint64(last)):
                    t, y = features[e], values[e]
                    x = load(tile, t, s, WIDE)
                    twice = g[t] + g[t] if y > none else -(g[t] + g[t])
                    clipped = least(greatest(x, min(y, none)), max(y, none)) * twice
                    if penalty is None:
                        total += x * y + clipped
                    else:
                        total += x * y
                        other += clipped
                accumulate(out, j, s, total)
                if penalty is not None:
                    accumulate(penalty, j, s, other)


@kernel
def l1_sums(X, Y, g, tile, out, penalty):
    """out[j, lane] += 2·Σ_t h(X[lane, t] − Y[j, t]); the terms with g are added to `penalty` unless that is None.

    GROUP features with ROWS rows of Y before the next: both stay in the L1 cache.
    """
    twice = g + g
    for start in range(0, Y.shape[1], tile.shape[0]):
        next_tile_dense(X, start, tile)
        width = min(tile.shape[0], Y.shape[1] - start)
        for first in range(0, Y.shape[0], ROWS):
            rows = Y[first : first + ROWS, start : start + width]
            strengths, sums = twice[start : start + width], out[first : first + ROWS]
            for t in range(0, width, GROUP):
                if penalty is None:
                    _sum_rows(tile, t, min(width, t + GROUP), rows, strengths, sums)
                else:
                    _sum_parts(tile, t, min(width, t + GROUP), rows, strengths, sums, penalty[first : first + ROWS])


@kernel
def _sum_rows(tile, begin, end, Y, twice, out):
    """The features begin:end, two rows of Y at a time."""
    none = twice[0] - twice[0]
    for j in range(0, Y.shape[0], 2):
        k = min(j + 1, Y.shape[0] - 1)
        for s in range(strips(tile, WIDE)):
            total, other_total = spread(none, WIDE), spread(none, WIDE)
            for first in range(begin, end, FLUSH):
                last = min(end, first + FLUSH)
                y, other, g = Y[j, first:last], Y[k, first:last], twice[first:last]
                part, other_part = spread(none, WIDE), spread(none, WIDE)
                for t in range(np.uint64(last - first)):
                    x = load(tile, first + np.int64(t), s, WIDE)
                    z = magnitude(x - y[t])
                    part += z * (z + g[t])
                    z = magnitude(x - other[t])
                    other_part += z * (z + g[t])
                total += part
                other_total += other_part
            accumulate(out, j, s, total)
            if k > j:
                accumulate(out, k, s, other_total)


@kernel
def _sum_parts(tile, begin, end, Y, twice, out, penalty):
    """As `_sum_rows`, z² and 2g|z| apart."""
    none = twice[0] - twice[0]
    for j in range(Y.shape[0]):
        for s in range(strips(tile, WIDE)):
            for first in range(begin, end, FLUSH):
                last = min(end, first + FLUSH)
                y, g = Y[j, first:last], twice[first:last]
                part, other_part = spread(none, WIDE), spread(none, WIDE)
                for t in range(np.uint64(last - first)):
                    z = magnitude(load(tile, first + np.int64(t), s, WIDE) - y[t])
                    part += z * z
                    other_part += z * g[t]
                accumulate(out, j, s, part)
                accumulate(penalty, j, s, other_part)


@kernel
def l1_pairs(xptr, xind, xval, yptr, yind, yval, g, rows, columns, features, z, out, penalty):
    """out[columns[p], rows[p]] = h(x − y) for these pairs, term by term in float64; g's share in `penalty`, if any."""
    for p in range(rows.shape[0]):
        i = slice(xptr[rows[p]], xptr[rows[p] + 1])
        j = slice(yptr[columns[p]], yptr[columns[p] + 1])
        n = sparse_difference(xind[i], xval[i], yind[j], yval[j], features, z)
        square = size = 0.0
        for e in range(n):
            square += 0.5 * z[e] * z[e]
            size += g[features[e]] * abs(z[e])
        if penalty is None:
            out[columns[p], rows[p]] = square + size
        else:
            out[columns[p], rows[p]] = square
            penalty[columns[p], rows[p]] = size
