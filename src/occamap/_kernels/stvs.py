"""Pairwise sums for the STVS cost, in units of γ²: h(z) = u·v + log v with u = |z|/2γ, v = u + √(1 + u²).

A sum of logarithms is the logarithm of a product: `mantissa` carries the product, kept in range by taking
out BIG, whose logarithm goes to the sum; one logarithm a pair is left to the caller. Where u is small, log v
would lose digits, so the series 2u + u² + u³/3 − u⁵/20 + u⁷/56 − 5u⁹/576 stands for the whole term.
"""

from __future__ import annotations

import math

import numpy as np

from occamap._kernels.jit import LANES, kernel
from occamap._kernels.rows import sparse_difference

BIG = 1e150
LOG_BIG = math.log(BIG)


@kernel
def stvs_excess_csr(
    tile, htile, start, begins, ends, indices, values, scale, flush, part, product, mantissa, out
):
    """out + log(mantissa) grows by Σ_{t stored in y_j} h(x_t − y_t) − h(x_t), over one tile of features.

    `scale` holds (1/2γ, small, 1, 2, 1/3, −1/20, 1/56, −5/576) in the precision of the data; at most `flush`
    terms enter one `product`, so that it cannot overflow.
    """
    inverse, small, one, two, c3, c5, c7, c9 = scale
    for j in range(begins.shape[0]):
        e = begins[j]
        end = ends[j]
        while e < end:
            last = min(end, e + flush)
            for lane in range(LANES):
                part[lane] = one - one
                product[lane] = one
            while e < last:
                x = tile[indices[e] - start]
                hx = htile[indices[e] - start]
                y = values[e]
                for lane in range(LANES):
                    u = abs(x[lane] - y) * inverse
                    u2 = u * u
                    v = u + np.sqrt(one + u2)
                    series = u * (two + u2 * (c3 + u2 * (c5 + u2 * (c7 + u2 * c9)))) + u2
                    near = u < small
                    part[lane] += (series if near else u * v) - hx[lane]
                    product[lane] *= one if near else v
                e += 1
            _flush(part, product, mantissa[j], out[j])


@kernel
def stvs_sum_dense(tile, start, width, Y, scale, flush, part, product, mantissa, out):
    """out + log(mantissa) grows by Σ_t h(x_t − Y[j, t]) over one tile of features."""
    inverse, small, one, two, c3, c5, c7, c9 = scale
    for j in range(Y.shape[0]):
        t = 0
        while t < width:
            last = min(width, t + flush)
            for lane in range(LANES):
                part[lane] = one - one
                product[lane] = one
            while t < last:
                x = tile[t]
                y = Y[j, start + t]
                for lane in range(LANES):
                    u = abs(x[lane] - y) * inverse
                    u2 = u * u
                    v = u + np.sqrt(one + u2)
                    series = u * (two + u2 * (c3 + u2 * (c5 + u2 * (c7 + u2 * c9)))) + u2
                    near = u < small
                    part[lane] += series if near else u * v
                    product[lane] *= one if near else v
                t += 1
            _flush(part, product, mantissa[j], out[j])


@kernel
def _flush(part, product, mantissa, out):
    for lane in range(LANES):
        p = mantissa[lane] * np.float64(product[lane])
        over = p > BIG
        mantissa[lane] = p / BIG if over else p
        out[lane] += np.float64(part[lane]) + (LOG_BIG if over else 0.0)


@kernel
def stvs_pairs_csr(xptr, xind, xval, yptr, yind, yval, gamma, rows, columns, features, z, out):
    """out[columns[p], rows[p]] = h(x − y) for these pairs, term by term in float64, not in units of γ²."""
    for p in range(rows.shape[0]):
        i = slice(xptr[rows[p]], xptr[rows[p] + 1])
        j = slice(yptr[columns[p]], yptr[columns[p] + 1])
        n = sparse_difference(xind[i], xval[i], yind[j], yval[j], features, z)
        total = 0.0
        for e in range(n):
            u = 0.5 * abs(z[e]) / gamma
            total += u * (u + math.sqrt(1.0 + u * u)) + math.asinh(u)
        out[columns[p], rows[p]] = gamma * gamma * total
