"""Displacements of the separable costs: 64 samples side by side, feature by feature, −prox(Σ_j p_j ∇h(x − y_j)).

`lanes` are the samples, as for `next_tile`; `columns` = (begins, rows, values) are the targets, of which column t is
begins[0, t]:begins[-1, t] of (rows, values), and the mass of the rows that it does not store sits at y_t = 0; `rows` is
None where all are stored. Block k of the targets is begins[k, t]:begins[k + 1, t]: its weights fit the L2 cache, and
serve all features of a tile before those of the next block do; `sums` keeps what the blocks add up to. `masses` =
(weights, peak, total): weights[j, lane] are the p_j, total[0, lane] is their sum as they were rounded, so that masses
add up, and peak[j] bounds them over the lanes. `ties` is 0 (sign(0) = 0) or 1 (the element of the sub-differential
that moves least). Moves other than 0 are appended to row `lane` of (indices, moves), whose length so far is
lengths[lane]. The feature to begin with is `done`; the one to go on with, when a row might get full, is returned.

Sums are taken over FLUSH terms in the data's precision, then in float64. A feature that no lane stores, and
whose field cannot leave the kink by the bound, is done with at once: most rare ones are.
"""

from __future__ import annotations

import math

import numba
import numpy as np

from occamap._kernels.jit import FLUSH, LANES, kernel
from occamap._kernels.lanes import next_tile
from occamap._kernels.vectors import (
    NARROW,
    accumulate,
    bits,
    greatest,
    least,
    load,
    lowest,
    magnitude,
    root,
    select,
    spread,
    store,
    strips,
    widen,
)

CLEAR = 1 - 1e-6  # of the kink: nearer to it rounding may hide what a small target adds to a large strength
FEW = 8  # features whose sums stay in the L1 cache: all that is needed where there is one block of targets


@kernel
def l1_displace(lanes, columns, masses, g, ties, relax, move, sums, lengths, done, indices, moves):
    """For h(z) = ½z² + g_t|z|.

    With the masses below (L) and above (G) x and at the tie (E), the field is x − ȳ + g(L − G); since
    L + G + E = 1, soft thresholding leaves x − ȳ − g(2G + E) where positive, x − ȳ + g(2L + E) where
    negative: no large numbers cancel, and a feature that all the mass has at 0 moves to exactly 0. L and E are
    differences of sums that have the same terms in the same order where L and E are none: exactly 0 then.
    """
    stored, cursor, tile, counts = lanes
    begins, rows, values = columns
    weights, peak, total = masses
    width, d = tile.shape[0], begins.shape[1]
    group = FEW if begins.shape[0] == 2 else width
    none = tile[0, 0] - tile[0, 0]
    for start in range(done, d, width):
        stop = min(start + width, d)
        longest = lengths.max()
        if longest + stop - start > indices.shape[1]:
            return start
        next_tile(stored, cursor, start, tile, counts)
        for t in range(start, stop):
            if counts[t - start] == 0 and not math.isinf(g[t]):
                bound = 0.0
                for e in range(np.uint64(begins[0, t]), np.uint64(begins[-1, t])):
                    bound += peak[row_of(rows, e, begins[0, t])] * (abs(values[e]) + g[t])
                counts[t - start] = 0 if bound <= CLEAR * g[t] else 1
            elif math.isinf(g[t]):
                counts[t - start] = 0
        for head in range(start, stop, group):
            for k in range(begins.shape[0] - 1):
                for t in range(head, min(head + group, stop)):
                    begin, end = begins[k, t], begins[k + 1, t]
                    if counts[t - start] == 0 or (begin == end and k > 0):
                        continue
                    for s in range(strips(tile, NARROW)):
                        x = load(tile, t - start, s, NARROW)
                        mean, held, high, reached = spread(0.0, x), spread(0.0, x), spread(0.0, x), spread(0.0, x)
                        for first in range(begin, end, FLUSH):
                            sum_y, sum_p = spread(none, NARROW), spread(none, NARROW)
                            above, at_least = spread(none, NARROW), spread(none, NARROW)
                            for e in range(np.uint64(first), np.uint64(min(end, first + FLUSH))):
                                p, y = load(weights, row_of(rows, e, begins[0, t]), s, NARROW), values[e]
                                sum_y += p * y
                                sum_p += p
                                above += select(x < y, p, none)
                                at_least += select(x <= y, p, none)
                            mean += widen(sum_y)
                            held += widen(sum_p)
                            high += widen(above)
                            reached += widen(at_least)
                        keep_sums(sums, 4 * (t - head), s, mean, held, high, reached, k == 0)
            for t in range(head, min(head + group, stop)):
                if counts[t - start] == 0:
                    continue
                moved = np.uint64(0)
                for s in range(strips(tile, NARROW)):
                    x, at = load(tile, t - start, s, NARROW), 4 * (t - head)
                    mean, held = load(sums, at, s, x), load(sums, at + 1, s, x)
                    high, reached = load(sums, at + 2, s, x), load(sums, at + 3, s, x)
                    z = widen(x)
                    fewer = np.float64(begins[-1, t] - begins[0, t] < weights.shape[0])
                    rest = greatest(load(total, 0, s, x) - held, 0.0) * fewer
                    low = greatest(held - reached, 0.0) + select(z > 0.0, rest, 0.0)
                    tie = (greatest(reached - high, 0.0) + select(z == 0.0, rest, 0.0)) * (1.0 + ties)
                    high += select(z < 0.0, rest, 0.0)
                    shift = z - mean
                    plain = spread(0.0, x) - (
                        greatest(shift - (high + high + tie) * g[t], 0.0) + least(shift + (low + low + tie) * g[t], 0.0)
                    )
                    store(move, 0, s, plain - (shift + plain) * relax)
                    moved |= bits(plain != 0.0) << np.uint64(s * LANES // strips(tile, NARROW))
                _append(moved, t, move, lengths, indices, moves)
    return d


@kernel
def stvs_displace(lanes, columns, masses, g, ties, relax, move, sums, lengths, done, indices, moves):
    """For the STVS cost with γ = g[0], whose gradient is sign(z)(|z| + √(z² + 4γ²))/2.

    A move that ends within the rounding error of 0 ends at 0: counts do not turn negative.
    """
    stored, cursor, tile, counts = lanes
    begins, rows, values = columns
    weights, peak, total = masses
    gamma = g[0]
    width, d = tile.shape[0], begins.shape[1]
    group = FEW if begins.shape[0] == 2 else width
    digits = 1e-6 if values.itemsize == 4 else 1e-14
    narrow = values.dtype.type(gamma)
    none, kink = narrow - narrow, (narrow + narrow) * (narrow + narrow)
    for start in range(done, d, width):
        stop = min(start + width, d)
        longest = lengths.max()
        if longest + stop - start > indices.shape[1]:
            return start
        next_tile(stored, cursor, start, tile, counts)
        for t in range(start, stop):
            if counts[t - start] == 0:
                bound = 0.0
                for e in range(np.uint64(begins[0, t]), np.uint64(begins[-1, t])):
                    slope = abs(values[e]) + math.sqrt(values[e] * values[e] + kink)
                    bound += peak[row_of(rows, e, begins[0, t])] * 0.5 * slope
                counts[t - start] = 0 if bound <= gamma else 1
        for head in range(start, stop, group):
            for k in range(begins.shape[0] - 1):
                for t in range(head, min(head + group, stop)):
                    begin, end = begins[k, t], begins[k + 1, t]
                    if counts[t - start] == 0 or (begin == end and k > 0):
                        continue
                    for s in range(strips(tile, NARROW)):
                        x = load(tile, t - start, s, NARROW)
                        mean, held, slope, tie = spread(0.0, x), spread(0.0, x), spread(0.0, x), spread(0.0, x)
                        for first in range(begin, end, FLUSH):
                            sum_y, sum_p = spread(none, NARROW), spread(none, NARROW)
                            slopes, equal = spread(none, NARROW), spread(none, NARROW)
                            for e in range(np.uint64(first), np.uint64(min(end, first + FLUSH))):
                                y = values[e]
                                if y == none:  # a stored 0 is as good as none
                                    continue
                                p = load(weights, row_of(rows, e, begins[0, t]), s, NARROW)
                                z = x - y
                                twice = p * (magnitude(z) + root(z * z + kink))
                                sum_y += p * y
                                sum_p += p
                                slopes += select(z > none, twice, none) - select(z < none, twice, none)
                                equal += select(z == none, p, none)
                            mean += widen(sum_y)
                            held += widen(sum_p)
                            slope += widen(slopes)
                            tie += widen(equal)
                        keep_sums(sums, 4 * (t - head), s, mean, held, slope, tie, k == 0)
            for t in range(head, min(head + group, stop)):
                if counts[t - start] == 0:
                    continue
                moved = np.uint64(0)
                for s in range(strips(tile, NARROW)):
                    x, at = load(tile, t - start, s, NARROW), 4 * (t - head)
                    mean, held = load(sums, at, s, x), load(sums, at + 1, s, x)
                    slope, tie = load(sums, at + 2, s, x), load(sums, at + 3, s, x)
                    z, mass = widen(x), load(total, 0, s, x)
                    rest = greatest(mass - held, 0.0)
                    twice = rest * (magnitude(z) + root(z * z + 4.0 * gamma * gamma))
                    w = (slope + select(z > 0.0, twice, 0.0) - select(z < 0.0, twice, 0.0)) * 0.5
                    slack = (tie + select(z == 0.0, rest, 0.0)) * (ties * gamma)
                    size = greatest(magnitude(w) - slack, gamma)
                    shrunk = select(size > gamma, size - gamma * gamma / size, 0.0)
                    plain = select(w > 0.0, spread(0.0, x) - shrunk, shrunk)
                    plain = select(held > 0.0, plain, spread(0.0, x) - z)
                    to = plain + (mean - z - plain) * relax
                    store(move, 0, s, select(magnitude(z + to) <= magnitude(z) * digits, spread(0.0, x) - z, to))
                    moved |= bits(plain != 0.0) << np.uint64(s * LANES // strips(tile, NARROW))
                _append(moved, t, move, lengths, indices, moves)
    return d


@numba.njit(inline="always")
def keep_sums(sums, at, s, first, second, third, fourth, new):
    """Four sums of a feature over a block of targets, added to those of the blocks before it."""
    if new:
        store(sums, at, s, first)
        store(sums, at + 1, s, second)
        store(sums, at + 2, s, third)
        store(sums, at + 3, s, fourth)
    else:
        accumulate(sums, at, s, first)
        accumulate(sums, at + 1, s, second)
        accumulate(sums, at + 2, s, third)
        accumulate(sums, at + 3, s, fourth)


@kernel
def row_of(rows, e, begin):
    """The row of entry e of a column that begins at `begin`."""
    return np.int64(e) - begin if rows is None else np.int64(rows[e])


@kernel
def _append(moved, t, move, lengths, indices, moves):
    """Append move[0, lane] of feature t to the rows of the lanes that `moved` has a bit for."""
    while moved != 0:
        lane = lowest(moved)
        moved &= moved - np.uint64(1)
        indices[lane, lengths[lane]] = t
        moves[lane, lengths[lane]] = move[0, lane]
        lengths[lane] += moves[lane, lengths[lane]] != 0  # unless it was rounded to none
