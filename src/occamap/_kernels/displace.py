"""Displacements of the separable costs: for a tile of features and 64 samples, −prox(Σ_j p_j ∇h(x − y_j)).

Column t of the targets is given by its stored entries alone; the mass of the others sits at y_t = 0. `ties`
is 0 (sign(0) = 0) or 1 (the element of the sub-differential that moves least). `total[lane]` is the sum of
the weights as they were rounded, so that masses add up; `peak[j]` bounds weights[j] over the lanes. A feature
that no lane stores (counts[t] = 0), and whose field cannot leave the kink by that bound, is done with: most
rare ones are. The others are listed in `active`, and their number is returned.

Four sums run side by side in one array (of 4·LANES, so that the compiler sees that they do not overlap): FLUSH
terms in the data's precision, then in float64.
"""

from __future__ import annotations

import math

import numpy as np

from occamap._kernels.jit import FLUSH, LANES, kernel


@kernel
def l1_displace(
    tile, counts, width, colptr, rows, values, weights, peak, total, g, ties, relax, part, sums, active, out
):
    """out[t, lane] for h(z) = ½z² + g_t|z|.

    With the masses below (L) and above (G) x and at the tie (E), the field is x − ȳ + g(L − G); since
    L + G + E = 1, soft thresholding leaves x − ȳ − g(2G + E) where positive, x − ȳ + g(2L + E) where
    negative: no large numbers cancel, and a feature that all the mass has at 0 moves to exactly 0.
    """
    n = 0
    for t in range(width):
        x = tile[t]
        e = colptr[t]
        end = colptr[t + 1]
        bound = 0.0
        for i in range(e, end):
            bound += peak[rows[i]] * (abs(values[i]) + g[t])
        if math.isinf(g[t]) or (bound <= g[t] and counts[t] == 0):
            continue
        active[n] = t
        n += 1
        _clear(sums)
        while e < end:
            last = min(end, e + FLUSH)
            _clear(part)
            while e + 3 < last:
                y0, y1, y2, y3 = values[e], values[e + 1], values[e + 2], values[e + 3]
                p0, p1 = weights[rows[e]], weights[rows[e + 1]]
                p2, p3 = weights[rows[e + 2]], weights[rows[e + 3]]
                none = y0 - y0
                for lane in range(LANES):
                    z = x[lane]
                    q0, q1, q2, q3 = p0[lane], p1[lane], p2[lane], p3[lane]
                    part[lane] += (q0 * y0 + q1 * y1) + (q2 * y2 + q3 * y3)
                    part[LANES + lane] += (q0 + q1) + (q2 + q3)
                    part[2 * LANES + lane] += ((q0 if y0 > z else none) + (q1 if y1 > z else none)) + (
                        (q2 if y2 > z else none) + (q3 if y3 > z else none)
                    )
                    part[3 * LANES + lane] += ((q0 if y0 < z else none) + (q1 if y1 < z else none)) + (
                        (q2 if y2 < z else none) + (q3 if y3 < z else none)
                    )
                e += 4
            while e < last:
                y0 = values[e]
                p0 = weights[rows[e]]
                none = y0 - y0
                for lane in range(LANES):
                    part[lane] += p0[lane] * y0
                    part[LANES + lane] += p0[lane]
                    part[2 * LANES + lane] += p0[lane] if y0 > x[lane] else none
                    part[3 * LANES + lane] += p0[lane] if y0 < x[lane] else none
                e += 1
            _add(part, sums)
        move = out[t]
        for lane in range(LANES):
            move[lane] = _l1_move(
                np.float64(x[lane]),
                sums[lane],
                sums[LANES + lane],
                sums[2 * LANES + lane],
                sums[3 * LANES + lane],
                total[lane],
                g[t],
                ties,
                relax,
            )
    return n


@kernel
def _l1_move(x, mean, stored, above, below, total, g, ties, relax):
    rest = max(0.0, total - stored)
    high = above + (rest if x < 0 else 0.0)
    low = below + (rest if x > 0 else 0.0)
    tie = max(0.0, total - high - low) * (1.0 + ties)
    shift = x - mean
    plain = -(max(shift - g * (2.0 * high + tie), 0.0) + min(shift + g * (2.0 * low + tie), 0.0))
    return 0.0 if plain == 0.0 else plain + relax * (-shift - plain)


@kernel
def stvs_displace(
    tile, counts, width, colptr, rows, values, weights, peak, total, gamma, ties, relax, part, sums, active, out
):
    """out[t, lane] for the STVS cost, whose gradient is sign(z)(|z| + √(z² + 4γ²))/2."""
    kink = (gamma + gamma) * (gamma + gamma)
    strength = np.float64(gamma)
    n = 0
    for t in range(width):
        x = tile[t]
        e = colptr[t]
        end = colptr[t + 1]
        bound = 0.0
        for i in range(e, end):
            bound += peak[rows[i]] * 0.5 * (abs(values[i]) + math.sqrt(values[i] * values[i] + kink))
        if bound <= gamma and counts[t] == 0:
            continue
        active[n] = t
        n += 1
        _clear(sums)
        while e < end:
            last = min(end, e + FLUSH)
            _clear(part)
            while e < last:
                y = values[e]
                p = weights[rows[e]]
                none = y - y
                e += 1
                if y == none:  # a stored 0 is as good as none
                    continue
                for lane in range(LANES):
                    z = x[lane] - y
                    twice = p[lane] * (abs(z) + np.sqrt(z * z + kink))
                    part[lane] += p[lane] * y
                    part[LANES + lane] += p[lane]
                    part[2 * LANES + lane] += twice if z > none else (-twice if z < none else none)
                    part[3 * LANES + lane] += p[lane] if z == none else none
            _add(part, sums)
        move = out[t]
        for lane in range(LANES):
            z = np.float64(x[lane])
            stored = sums[LANES + lane]
            rest = max(0.0, total[lane] - stored)
            slope = rest * (abs(z) + np.sqrt(z * z + 4.0 * strength * strength))
            w = 0.5 * (sums[2 * LANES + lane] + (slope if z > 0 else (-slope if z < 0 else 0.0)))
            slack = ties * strength * (sums[3 * LANES + lane] + (rest if z == 0 else 0.0))
            size = max(0.0, abs(w) - slack)
            shrunk = size - strength * strength / size if size > strength else 0.0
            plain = -shrunk if w > 0 else shrunk
            plain = plain if stored > 0 else -z
            move[lane] = 0.0 if plain == 0.0 else plain + relax * (sums[lane] - z - plain)
    return n


@kernel
def gather(out, active, lanes, start, counts, stored, lane_of, indices, values):
    """Append the out[t, lane] ≠ 0 of the active features, feature by feature; returns how many are stored then."""
    for i in range(active.shape[0]):
        t = active[i]
        row = out[t]
        for lane in range(lanes):
            v = row[lane]
            if v != 0:
                lane_of[stored] = lane
                indices[stored] = start + t
                values[stored] = v
                counts[lane] += 1
                stored += 1
    return stored


@kernel
def by_lane(stored, lane_of, indices, values, at, out_indices, out_values):
    """Sort what `gather` stored into rows, keeping the order of the features; at[lane] is where a row begins."""
    for e in range(stored):
        i = at[lane_of[e]]
        out_indices[i] = indices[e]
        out_values[i] = values[e]
        at[lane_of[e]] = i + 1


@kernel
def _clear(block):
    for i in range(4 * LANES):
        block[i] = 0


@kernel
def _add(part, sums):
    for i in range(4 * LANES):
        sums[i] += np.float64(part[i])
