"""Small things done to sparse rows."""

from __future__ import annotations

import math

import numpy as np

from occamap._kernels.jit import kernel


@kernel
def ragged_sums(indptr, data, out):
    """out[i] = Σ of data[indptr[i]:indptr[i+1]], in float64."""
    for i in range(indptr.shape[0] - 1):
        total = lost = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            total, lost = compensated(total, lost, np.float64(data[e]))
        out[i] = total + lost


@kernel
def compensated(total, lost, term):
    """The sum and what rounding has lost of it so far, with one more term ≥ 0 (Kahan)."""
    grown = total + term
    if math.isinf(grown):
        return grown, 0.0
    return grown, lost + (term - (grown - total) if total >= term else total - (grown - term))


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
