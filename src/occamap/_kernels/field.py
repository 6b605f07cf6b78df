"""Fields of the separable costs, Σ_j p_j ∇h(x − y_j): 64 samples side by side, feature by feature.

`lanes`, `columns`, `sums` and the blocks of targets are as for :mod:`occamap._kernels.displace`, and so are `masses` =
(weights, total).
The features are start:stop. Written are, one row per lane and one column per feature:
`slopes`, the field with sign(0) = 0; `shifts`, Σ_j p_j y_j − x; and `slack`, half of the width of the sub-differential
at a kink. The last two may be empty: then nothing is written to them. `strip` is room for one row of lanes of each.
"""

from __future__ import annotations

import math

import numpy as np

from occamap._kernels.displace import FEW, keep_sums, row_of
from occamap._kernels.jit import FLUSH, kernel
from occamap._kernels.lanes import next_tile
from occamap._kernels.vectors import NARROW, greatest, load, magnitude, root, select, spread, store, strips, widen


@kernel
def spread_masses(rows, weights, total):
    """weights[j, lane] = rows[lane, j], and their sums as rounded; 0 in the lanes beyond the rows."""
    total[:] = 0.0
    for j in range(weights.shape[0]):
        for lane in range(rows.shape[0]):
            weights[j, lane] = rows[lane, j]
            total[0, lane] += np.float64(weights[j, lane])
        weights[j, rows.shape[0] :] = 0


@kernel
def l1_field(lanes, columns, masses, g, start, stop, strip, sums, slopes, shifts, slack):
    """For h(z) = ½z² + g_t|z|: x − Σ_j p_j y_j + g_t (P[y < x] − P[y > x]); 0 in frozen features, whose g_t is ∞."""
    stored, cursor, tile, counts = lanes
    begins, rows, values = columns
    weights, total = masses
    width = tile.shape[0]
    group = FEW if begins.shape[0] == 2 else width
    none = tile[0, 0] - tile[0, 0]
    _seek(stored, cursor, start)
    for first in range(start, stop, width):
        last = min(first + width, stop)
        next_tile(stored, cursor, first, tile, counts)
        for head in range(first, last, group):
            for k in range(begins.shape[0] - 1):
                for t in range(head, min(head + group, last)):
                    begin, end = begins[k, t], begins[k + 1, t]
                    if math.isinf(g[t]) or (begin == end and k > 0):
                        continue
                    if counts[t - first] == 0:  # no lane stores it: nothing is to be compared
                        for s in range(strips(tile, NARROW)):
                            x = load(tile, t - first, s, NARROW)
                            mean, high, low = spread(0.0, x), spread(0.0, x), spread(0.0, x)
                            for e in range(begin, end, FLUSH):
                                sum_y, above, below = spread(none, NARROW), spread(none, NARROW), spread(none, NARROW)
                                for f in range(np.uint64(e), np.uint64(min(end, e + FLUSH))):
                                    p, y = load(weights, row_of(rows, f, begins[0, t]), s, NARROW), values[f]
                                    sum_y += p * y
                                    if y > none:
                                        above += p
                                    elif y < none:
                                        below += p
                                mean += widen(sum_y)
                                high += widen(above)
                                low += widen(below)
                            keep_sums(sums, 4 * (t - head), s, mean, low, high, high, k == 0)
                        continue
                    for s in range(strips(tile, NARROW)):
                        x = load(tile, t - first, s, NARROW)
                        mean, held, high, reached = spread(0.0, x), spread(0.0, x), spread(0.0, x), spread(0.0, x)
                        for e in range(begin, end, FLUSH):
                            sum_y, sum_p = spread(none, NARROW), spread(none, NARROW)
                            above, at_least = spread(none, NARROW), spread(none, NARROW)
                            for f in range(np.uint64(e), np.uint64(min(end, e + FLUSH))):
                                p, y = load(weights, row_of(rows, f, begins[0, t]), s, NARROW), values[f]
                                sum_y += p * y
                                sum_p += p
                                above += select(x < y, p, none)
                                at_least += select(x <= y, p, none)
                            mean += widen(sum_y)
                            held += widen(sum_p)
                            high += widen(above)
                            reached += widen(at_least)
                        keep_sums(sums, 4 * (t - head), s, mean, held, high, reached, k == 0)
            for t in range(head, min(head + group, last)):
                if math.isinf(g[t]):
                    _write_none(t - start, slopes, shifts, slack)
                    continue
                if begins[0, t] == begins[-1, t] and counts[t - first] == 0:
                    _write_same(t - start, g[t], slopes, shifts, slack)
                    continue
                if counts[t - first] == 0:
                    for s in range(strips(tile, NARROW)):
                        x, at = load(tile, t - first, s, NARROW), 4 * (t - head)
                        mean, low, high = load(sums, at, s, x), load(sums, at + 1, s, x), load(sums, at + 2, s, x)
                        store(strip, 0, s, (low - high) * g[t] - mean)
                        store(strip, 1, s, mean)
                        store(strip, 2, s, greatest(load(total, 0, s, x) - low - high, 0.0) * g[t])
                    _write(t - start, strip, slopes, shifts, slack)
                    continue
                fewer = np.float64(begins[-1, t] - begins[0, t] < weights.shape[0])
                for s in range(strips(tile, NARROW)):
                    x, at = load(tile, t - first, s, NARROW), 4 * (t - head)
                    mean, held = load(sums, at, s, x), load(sums, at + 1, s, x)
                    high, reached = load(sums, at + 2, s, x), load(sums, at + 3, s, x)
                    z = widen(x)
                    rest = greatest(load(total, 0, s, x) - held, 0.0) * fewer
                    low = greatest(held - reached, 0.0) + select(z > 0.0, rest, 0.0)
                    tie = greatest(reached - high, 0.0) + select(z == 0.0, rest, 0.0)
                    high += select(z < 0.0, rest, 0.0)
                    store(strip, 0, s, z - mean + (low - high) * g[t])
                    store(strip, 1, s, mean - z)
                    store(strip, 2, s, tie * g[t])
                _write(t - start, strip, slopes, shifts, slack)


@kernel
def stvs_field(lanes, columns, masses, g, start, stop, strip, sums, slopes, shifts, slack):
    """For the STVS cost with γ = g[0], whose gradient is sign(z)(|z| + √(z² + 4γ²))/2."""
    stored, cursor, tile, counts = lanes
    begins, rows, values = columns
    weights, total = masses
    gamma = g[0]
    width = tile.shape[0]
    group = FEW if begins.shape[0] == 2 else width
    narrow = values.dtype.type(gamma)
    none, kink = narrow - narrow, (narrow + narrow) * (narrow + narrow)
    _seek(stored, cursor, start)
    for first in range(start, stop, width):
        last = min(first + width, stop)
        next_tile(stored, cursor, first, tile, counts)
        for head in range(first, last, group):
            for k in range(begins.shape[0] - 1):
                for t in range(head, min(head + group, last)):
                    begin, end = begins[k, t], begins[k + 1, t]
                    if begin == end and k > 0:
                        continue
                    for s in range(strips(tile, NARROW)):
                        x = load(tile, t - first, s, NARROW)
                        mean, held, slope, tie = spread(0.0, x), spread(0.0, x), spread(0.0, x), spread(0.0, x)
                        for e in range(begin, end, FLUSH):
                            sum_y, sum_p = spread(none, NARROW), spread(none, NARROW)
                            steps, equal = spread(none, NARROW), spread(none, NARROW)
                            for f in range(np.uint64(e), np.uint64(min(end, e + FLUSH))):
                                p, y = load(weights, row_of(rows, f, begins[0, t]), s, NARROW), values[f]
                                z = x - y
                                twice = p * (magnitude(z) + root(z * z + kink))
                                sum_y += p * y
                                sum_p += p
                                steps += select(z > none, twice, none) - select(z < none, twice, none)
                                equal += select(z == none, p, none)
                            mean += widen(sum_y)
                            held += widen(sum_p)
                            slope += widen(steps)
                            tie += widen(equal)
                        keep_sums(sums, 4 * (t - head), s, mean, held, slope, tie, k == 0)
            for t in range(head, min(head + group, last)):
                fewer = np.float64(begins[-1, t] - begins[0, t] < weights.shape[0])
                for s in range(strips(tile, NARROW)):
                    x, at = load(tile, t - first, s, NARROW), 4 * (t - head)
                    mean, held = load(sums, at, s, x), load(sums, at + 1, s, x)
                    slope, tie = load(sums, at + 2, s, x), load(sums, at + 3, s, x)
                    z = widen(x)
                    rest = greatest(load(total, 0, s, x) - held, 0.0) * fewer
                    twice = rest * (magnitude(z) + root(z * z + 4.0 * gamma * gamma))
                    store(strip, 0, s, (slope + select(z > 0.0, twice, 0.0) - select(z < 0.0, twice, 0.0)) * 0.5)
                    store(strip, 1, s, mean - z)
                    store(strip, 2, s, (tie + select(z == 0.0, rest, 0.0)) * gamma)
                _write(t - start, strip, slopes, shifts, slack)


@kernel
def _seek(stored, cursor, start):
    """Put the cursor of each lane at its first entry of the feature `start` or a later one."""
    indptr, indices, _ = stored
    for lane in range(cursor.shape[1]):
        low, high = indptr[lane], indptr[lane + 1]
        while low < high:
            middle = (low + high) // 2
            if indices[middle] < start:
                low = middle + 1
            else:
                high = middle
        cursor[:, lane] = low


@kernel
def _write(t, strip, slopes, shifts, slack):
    """Column t of the rows, from the lanes of `strip`."""
    for lane in range(slopes.shape[0]):
        slopes[lane, t] = strip[0, lane]
    for lane in range(shifts.shape[0]):
        shifts[lane, t] = strip[1, lane]
    for lane in range(slack.shape[0]):
        slack[lane, t] = strip[2, lane]


@kernel
def _write_same(t, g, slopes, shifts, slack):
    """Column t of the rows, of a feature that is 0 in all samples and targets."""
    slopes[:, t] = 0.0
    shifts[:, t] = 0.0
    slack[:, t] = g


@kernel
def _write_none(t, slopes, shifts, slack):
    """Column t of the rows, of a feature that does not move."""
    slopes[:, t] = 0.0
    shifts[:, t] = 0.0
    slack[:, t] = 0.0
