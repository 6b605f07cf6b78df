"""Pairwise sums for h(z) = ½z² + g|z|, feature by feature (g = 0 gives ½ℓ2²)."""

from __future__ import annotations

import numpy as np

from occamap._kernels.jit import FLUSH, LANES, kernel
from occamap._kernels.rows import sparse_difference


@kernel
def l1_overlap_csr(tile, start, begins, ends, indices, values, g, signed, part, out):
    """out[j, lane] += Σ_{t stored in y_j} h(x_t) + h(y_t) − h(x_t − y_t), over one tile of features.

    The term is x·y + 2g|clip(x, 0, y)|: zero wherever x is, so h(x) + h(y) minus the sum is the cost. `signed` is
    None where nothing is negative, so that min(x, y) will do for the clip; the branch is settled at compilation.
    """
    for j in range(begins.shape[0]):
        e = begins[j]
        end = ends[j]
        row = out[j]
        while e < end:
            flush = min(end, e + FLUSH)
            for lane in range(LANES):
                part[lane] = 0
            while e + 1 < flush:
                x0, low0, y0, high0, g0 = _entry(tile, start, indices[e], values[e], g)
                x1, low1, y1, high1, g1 = _entry(tile, start, indices[e + 1], values[e + 1], g)
                for lane in range(LANES):
                    if signed is None:
                        part[lane] += (g0 * min(x0[lane], y0) + x0[lane] * y0) + (
                            g1 * min(x1[lane], y1) + x1[lane] * y1
                        )
                    else:
                        part[lane] += (g0 * min(max(x0[lane], low0), high0) + x0[lane] * y0) + (
                            g1 * min(max(x1[lane], low1), high1) + x1[lane] * y1
                        )
                e += 2
            if e < flush:
                x0, low0, y0, high0, g0 = _entry(tile, start, indices[e], values[e], g)
                for lane in range(LANES):
                    part[lane] += g0 * min(max(x0[lane], low0), high0) + x0[lane] * y0
                e += 1
            for lane in range(LANES):
                row[lane] += np.float64(part[lane])


@kernel
def _entry(tile, start, t, y, g):
    """The lanes of feature t, y between the ends of the interval from 0 to it, and 2g with its sign."""
    none = y - y
    twice = g[t] + g[t]
    return tile[t - start], min(y, none), y, max(y, none), twice if y > none else -twice


@kernel
def l1_sum_dense(tile, start, width, Y, g, part, out):
    """out[j, lane] += Σ_t h(x_t − Y[j, t]) over one tile of features; out is in units of ½."""
    for j in range(Y.shape[0]):
        row = out[j]
        t = 0
        while t < width:
            flush = min(width, t + FLUSH)
            for lane in range(LANES):
                part[lane] = 0
            while t + 1 < flush:
                x0 = tile[t]
                x1 = tile[t + 1]
                y0 = Y[j, start + t]
                y1 = Y[j, start + t + 1]
                g0 = g[start + t] + g[start + t]
                g1 = g[start + t + 1] + g[start + t + 1]
                for lane in range(LANES):
                    z0 = abs(x0[lane] - y0)
                    z1 = abs(x1[lane] - y1)
                    part[lane] += z0 * (z0 + g0) + z1 * (z1 + g1)
                t += 2
            if t < flush:
                x0 = tile[t]
                y0 = Y[j, start + t]
                g0 = g[start + t] + g[start + t]
                for lane in range(LANES):
                    z0 = abs(x0[lane] - y0)
                    part[lane] += z0 * (z0 + g0)
                t += 1
            for lane in range(LANES):
                row[lane] += np.float64(part[lane])


@kernel
def l1_pairs_csr(xptr, xind, xval, yptr, yind, yval, g, rows, columns, features, z, out):
    """out[columns[p], rows[p]] = h(x − y) for these pairs, term by term in float64."""
    for p in range(rows.shape[0]):
        i = slice(xptr[rows[p]], xptr[rows[p] + 1])
        j = slice(yptr[columns[p]], yptr[columns[p] + 1])
        n = sparse_difference(xind[i], xval[i], yind[j], yval[j], features, z)
        total = 0.0
        for e in range(n):
            total += abs(z[e]) * (0.5 * abs(z[e]) + g[features[e]])
        out[columns[p], rows[p]] = total
