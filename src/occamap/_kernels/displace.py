"""Displacements of the separable costs: for a tile of features and 64 samples, −prox(Σ_j p_j ∇h(x − y_j)).

Column t of the targets is given by its stored entries alone; the mass of the others sits at y_t = 0. `ties`
is 0 (sign(0) = 0) or 1 (the element of the sub-differential that moves least). `total[lane]` is the sum of
the weights as they were rounded, so that masses add up; `peak[j]` bounds weights[j] over the lanes. A feature
at 0 in all lanes, whose field cannot leave the kink by that bound, is done with: most rare features are.
Sums of FLUSH terms have the data's precision, sums of these are float64.
"""

from __future__ import annotations

import math

import numpy as np

from occamap._kernels.jit import FLUSH, LANES, kernel


@kernel
def l1_displace(tile, width, colptr, rows, values, weights, peak, total, g, ties, relax, part, sums, out):
    """out[t, lane] for h(z) = ½z² + g_t|z|; part and sums are scratch (4, LANES).

    With the masses below (L) and above (G) x and at the tie (E), the field is x − ȳ + g(L − G); since
    L + G + E = 1, soft thresholding leaves x − ȳ − g(2G + E) where positive, x − ȳ + g(2L + E) where
    negative: no large numbers cancel, and a feature that all the mass has at 0 moves to exactly 0.
    """
    mean, above, below, stored = part[0], part[1], part[2], part[3]
    for t in range(width):
        x = tile[t]
        e = colptr[t]
        end = colptr[t + 1]
        bound = 0.0
        for i in range(e, end):
            bound += peak[rows[i]] * (abs(values[i]) + g[t])
        if math.isinf(g[t]) or (bound <= g[t] and _quiet(x)):
            _zero(out[t])
            continue
        _clear(sums)
        while e < end:
            last = min(end, e + FLUSH)
            _clear(part)
            while e + 1 < last:
                y = values[e]
                y1 = values[e + 1]
                p = weights[rows[e]]
                p1 = weights[rows[e + 1]]
                none = y - y
                for lane in range(LANES):
                    mean[lane] += p[lane] * y + p1[lane] * y1
                    stored[lane] += p[lane] + p1[lane]
                    above[lane] += (p[lane] if y > x[lane] else none) + (p1[lane] if y1 > x[lane] else none)
                    below[lane] += (p[lane] if y < x[lane] else none) + (p1[lane] if y1 < x[lane] else none)
                e += 2
            if e < last:
                y = values[e]
                p = weights[rows[e]]
                none = y - y
                for lane in range(LANES):
                    mean[lane] += p[lane] * y
                    stored[lane] += p[lane]
                    above[lane] += p[lane] if y > x[lane] else none
                    below[lane] += p[lane] if y < x[lane] else none
                e += 1
            add_parts(part, sums)
        _l1_move(x, total, sums, g[t], ties, relax, out[t])


@kernel
def _l1_move(x, total, sums, g, ties, relax, out):
    mean, above, below, stored = sums[0], sums[1], sums[2], sums[3]
    for lane in range(LANES):
        z = np.float64(x[lane])
        rest = max(0.0, total[lane] - stored[lane])
        high = above[lane] + (rest if z < 0 else 0.0)
        low = below[lane] + (rest if z > 0 else 0.0)
        tie = max(0.0, total[lane] - high - low) * (1.0 + ties)
        shift = z - mean[lane]
        move = -(max(shift - g * (2.0 * high + tie), 0.0) + min(shift + g * (2.0 * low + tie), 0.0))
        out[lane] = 0.0 if move == 0.0 else move + relax * (-shift - move)


@kernel
def stvs_displace(tile, width, colptr, rows, values, weights, peak, total, gamma, ties, relax, part, sums, out):
    """out[t, lane] for the STVS cost, whose gradient is sign(z)(|z| + √(z² + 4γ²))/2."""
    mean, field, tied, stored = part[0], part[1], part[2], part[3]
    kink = (gamma + gamma) * (gamma + gamma)
    for t in range(width):
        x = tile[t]
        e = colptr[t]
        end = colptr[t + 1]
        bound = 0.0
        for i in range(e, end):
            bound += peak[rows[i]] * 0.5 * (abs(values[i]) + math.sqrt(values[i] * values[i] + kink))
        if bound <= gamma and _quiet(x):
            _zero(out[t])
            continue
        _clear(sums)
        while e < end:
            last = min(end, e + FLUSH)
            _clear(part)
            while e < last:
                y = values[e]
                p = weights[rows[e]]
                none = y - y
                for lane in range(LANES):
                    z = x[lane] - y
                    twice = p[lane] * (abs(z) + np.sqrt(z * z + kink))
                    mean[lane] += p[lane] * y
                    stored[lane] += p[lane]
                    tied[lane] += p[lane] if z == none else none
                    field[lane] += twice if z > none else (-twice if z < none else none)
                e += 1
            add_parts(part, sums)
        _stvs_move(x, total, sums, np.float64(gamma), ties, relax, out[t])


@kernel
def _stvs_move(x, total, sums, gamma, ties, relax, out):
    mean, field, tied, stored = sums[0], sums[1], sums[2], sums[3]
    for lane in range(LANES):
        z = np.float64(x[lane])
        rest = max(0.0, total[lane] - stored[lane])
        slope = rest * (abs(z) + np.sqrt(z * z + 4.0 * gamma * gamma))
        w = 0.5 * (field[lane] + (slope if z > 0 else (-slope if z < 0 else 0.0)))
        slack = ties * gamma * (tied[lane] + (rest if z == 0 else 0.0))
        size = max(0.0, abs(w) - slack)
        shrunk = size - gamma * gamma / size if size > gamma else 0.0
        move = -shrunk if w > 0 else shrunk
        move = move if stored[lane] > 0 else -z
        out[lane] = 0.0 if move == 0.0 else move + relax * (mean[lane] - z - move)


@kernel
def _quiet(x):
    """Whether x is 0 in every lane."""
    loud = 0.0
    for lane in range(LANES):
        loud = max(loud, abs(x[lane]))
    return loud == 0


@kernel
def _zero(row):
    for lane in range(LANES):
        row[lane] = 0


@kernel
def _clear(block):
    for i in range(block.shape[0]):
        _zero(block[i])


@kernel
def add_parts(part, sums):
    """sums += part, in float64, and that is all."""
    for i in range(part.shape[0]):
        source = part[i]
        target = sums[i]
        for lane in range(LANES):
            target[lane] += np.float64(source[lane])
