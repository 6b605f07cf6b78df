"""Small things done to ragged rows and to tiles of displacements."""

from __future__ import annotations

import numpy as np

from occamap._kernels.jit import kernel


@kernel
def ragged_sums(indptr, data, out):
    """out[i] = Σ of data[indptr[i]:indptr[i+1]], in float64."""
    for i in range(indptr.shape[0] - 1):
        total = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            total += data[e]
        out[i] = total


@kernel
def gather_tile(tile, width, lanes, start, counts, indices, values):
    """The non-zeros of tile[:width, :lanes], lane by lane: counts[lane] of them; returns how many in all."""
    n = 0
    for lane in range(lanes):
        before = n
        for t in range(width):
            v = tile[t, lane]
            if v != 0:
                indices[n] = start + t
                values[n] = v
                n += 1
        counts[lane] = n - before
    return n


@kernel
def merge_tiles(counts, indices, values, indptr, out_indices, out_values):
    """From tile-major runs to rows: counts[tile, lane] entries each; indptr holds where each row begins."""
    e = 0
    for i in range(counts.shape[0]):
        for lane in range(counts.shape[1]):
            at = indptr[lane]
            for before in range(i):
                at += counts[before, lane]
            for r in range(counts[i, lane]):
                out_indices[at + r] = indices[e]
                out_values[at + r] = values[e]
                e += 1


@kernel
def sparse_difference(xind, xval, yind, yval, features, z):
    """x − y in float64 over the union of the stored entries of two sorted rows; returns how many there are."""
    e = 0
    f = 0
    n = 0
    while e < xind.shape[0] or f < yind.shape[0]:
        if f >= yind.shape[0] or (e < xind.shape[0] and xind[e] < yind[f]):
            features[n] = xind[e]
            z[n] = np.float64(xval[e])
            e += 1
        elif e >= xind.shape[0] or yind[f] < xind[e]:
            features[n] = yind[f]
            z[n] = -np.float64(yval[f])
            f += 1
        else:
            features[n] = xind[e]
            z[n] = np.float64(xval[e]) - np.float64(yval[f])
            e += 1
            f += 1
        n += 1
    return n
