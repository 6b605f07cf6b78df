"""Pairwise sums for the STVS cost, in units of γ²: h(z) = u·v + log v with u = |z|/2γ, v = u + √(1 + u²).

A sum of logarithms is the logarithm of a product: `mantissa` carries the product, kept in range by taking
out BIG, whose logarithm goes to the sum; one logarithm a pair is left to the caller. Where u is small, log v
would lose digits, so the series 2u + u² + u³/3 − u⁵/20 + u⁷/56 − 5u⁹/576 stands for the whole term; it takes
half of the time, and is left out where the terms are so large, on average, that those digits do not count.

`scale` holds (1/2γ, small, 1, 2, 1/3, −1/20, 1/56, −5/576) in the precision of the data; at most `flush`
terms enter one product, so that it cannot overflow.
"""

from __future__ import annotations

import math

import numpy as np

from occamap._kernels.jit import kernel
from occamap._kernels.lanes import next_tile, next_tile_dense
from occamap._kernels.rows import sparse_difference
from occamap._kernels.vectors import NARROW, load, magnitude, root, select, spread, store, strips, widen

BIG = 1e150
LOG_BIG = math.log(BIG)


@kernel
def stvs_entries(z, gamma, out):
    """out[e] = h(z_e), in units of γ²."""
    for e in range(z.shape[0]):
        out[e] = _entry(np.float64(z[e]), gamma)


@kernel
def _entry(z, gamma):
    u = 0.5 * abs(z) / gamma
    v = u + math.sqrt(1.0 + u * u)
    return u * v + (math.log(v) if u > 0.5 else math.asinh(u))


@kernel
def stvs_excess(
    stored,
    cursor,
    tile,
    counts,
    stored_h,
    cursor_h,
    tile_h,
    begins,
    features,
    values,
    scale,
    series,
    flush,
    mantissa,
    out,
):
    """out + log(mantissa) grows by Σ_t h(x_t − y_t) − h(x_t) over the features t that the sparse row y_j stores.

    The rows y are those of `tile_entries`. `stored_h` holds h(x_t), in the same place as `stored` holds x_t. `series`
    is None or True: a choice that is made at compilation.
    """
    one, m = scale[2], out.shape[0]
    for i in range((begins.shape[0] - 1) // m):
        start = i * tile.shape[0]
        next_tile(stored, cursor, start, tile, counts)
        next_tile(stored_h, cursor_h, start, tile_h, counts)
        for j in range(m):
            end = begins[i * m + j + 1]
            for first in range(begins[i * m + j], end, flush):
                last = min(end, first + flush)
                for s in range(strips(tile, NARROW)):
                    total, product = spread(one - one, NARROW), spread(one, NARROW)
                    for e in range(np.uint64(first), np.uint64(last)):
                        x = load(tile, features[e], s, NARROW)
                        if series is None:
                            u = magnitude(x - values[e]) * scale[0]
                            factor = u + root(u * u + one)
                            term = u * factor
                        else:
                            term, factor = _term(x - values[e], scale)
                        total += term - load(tile_h, features[e], s, NARROW)
                        product *= factor
                    _grow(mantissa, out, j, s, total, product)


@kernel
def stvs_sums(X, Y, scale, flush, tile, mantissa, out):
    """out + log(mantissa) grows by Σ_t h(X[lane, t] − Y[j, t])."""
    one = scale[2]
    for start in range(0, Y.shape[1], tile.shape[0]):
        next_tile_dense(X, start, tile)
        width = min(tile.shape[0], Y.shape[1] - start)
        for j in range(Y.shape[0]):
            for first in range(0, width, flush):
                y = Y[j, start + first : start + min(width, first + flush)]
                for s in range(strips(tile, NARROW)):
                    total, product = spread(one - one, NARROW), spread(one, NARROW)
                    for t in range(np.uint64(y.shape[0])):
                        x = load(tile, first + np.int64(t), s, NARROW)
                        term, factor = _term(x - y[t], scale)
                        total += term
                        product *= factor
                    _grow(mantissa, out, j, s, total, product)


@kernel
def _term(z, scale):
    """What goes to the sum, and what to the product."""
    inverse, small, one, two, c3, c5, c7, c9 = scale
    u = magnitude(z) * inverse
    u2 = u * u
    v = u + root(u2 + one)
    series = u * (two + u2 * (c3 + u2 * (c5 + u2 * (c7 + u2 * c9)))) + u2
    near = u < small
    return select(near, series, u * v), select(near, one, v)


@kernel
def _grow(mantissa, out, row, strip, total, product):
    grown = load(mantissa, row, strip, product) * widen(product)
    over = grown > BIG
    store(mantissa, row, strip, select(over, grown * (1.0 / BIG), grown))
    carried = select(over, spread(LOG_BIG, product), 0.0)
    store(out, row, strip, load(out, row, strip, product) + (widen(total) + carried))


@kernel
def stvs_pairs(xptr, xind, xval, yptr, yind, yval, gamma, rows, columns, features, z, out):
    """out[columns[p], rows[p]] = h(x − y) for these pairs, term by term in float64, not in units of γ²."""
    for p in range(rows.shape[0]):
        i = slice(xptr[rows[p]], xptr[rows[p] + 1])
        j = slice(yptr[columns[p]], yptr[columns[p] + 1])
        n = sparse_difference(xind[i], xval[i], yind[j], yval[j], features, z)
        total = 0.0
        for e in range(n):
            total += _entry(z[e], gamma)
        out[columns[p], rows[p]] = gamma * gamma * total
