"""Pairwise norms of groups that do not overlap: sixty-four rows x side by side, over the stored entries of each y.

Features are taken in the order of their groups, a tile of whole groups at a time. In a group that y has entries in,
‖x − y‖² = ‖x‖² + ‖y‖² − 2⟨x, y⟩; in the others it is ‖x‖². A root magnifies what cancels, so these sums are float64
whatever the data are.
"""

from __future__ import annotations

import math

import numpy as np

from occamap._kernels.groups import SLOPE, enter, leave, own_atoms, pair_squares, row_squares, scales
from occamap._kernels.jit import FLUSH, LANES, kernel
from occamap._kernels.lanes import next_tile_dense
from occamap._kernels.latent import forget
from occamap._kernels.vectors import (
    NARROW,
    WIDE,
    accumulate,
    bits,
    greatest,
    like,
    load,
    lowest,
    root,
    spread,
    store,
    strips,
    widen,
)


@kernel
def group_entries(indptr, indices, data, place, tile_at, starts, begins, features, values):
    """Entries tile after tile, and in a tile row after row, as `tile_entries` gives them, for tiles of any width.

    place[t]: where feature t comes in the order of groups (−1: nowhere), tile_at[p]: the tile of a place, starts: the
    first place of each tile. `begins` is 0 at entry and has one entry more than tiles × rows. Returns their number.
    """
    n = indptr.shape[0] - 1
    for i in range(n):
        for e in range(indptr[i], indptr[i + 1]):
            p = place[indices[e]]
            if p >= 0 and data[e] != 0:
                begins[tile_at[p] * n + i + 1] += 1
    for k in range(begins.shape[0] - 1):
        begins[k + 1] += begins[k]
    cursor = begins[:-1].copy()
    for i in range(n):
        for e in range(indptr[i], indptr[i + 1]):
            p = place[indices[e]]
            if p >= 0 and data[e] != 0:
                at = cursor[tile_at[p] * n + i]
                cursor[tile_at[p] * n + i] += 1
                features[at] = p - starts[tile_at[p]]
                values[at] = data[e]
    return begins[-1]


@kernel
def count_runs(indptr, indices, data, atoms, tile_of, stamp, begins, run_begins):
    """How many entries and how many groups with entries there are before tile k and row i, at k·n + i; `stamp` is 0."""
    n = indptr.shape[0] - 1
    for i in range(n):
        for e in range(indptr[i], indptr[i + 1]):
            a = atoms[indices[e]]
            if a >= 0 and data[e] != 0:
                begins[tile_of[a] * n + i + 1] += 1
                if stamp[a] != i + 1:
                    stamp[a] = i + 1
                    run_begins[tile_of[a] * n + i + 1] += 1
    for k in range(begins.shape[0] - 1):
        begins[k + 1] += begins[k]
        run_begins[k + 1] += run_begins[k]


@kernel
def group_runs(indptr, indices, data, atoms, place, starts, edges, short, begins, entries, runs, counts, cursor, slot):
    """Entries tile after tile, in a tile row after row, and in a row group after group: the runs of each row.

    runs: run_begins, as `count_runs` counts, the first of more than `short` entries, which come last, and of each its
    atom, where its entries begin and end, and Σ of their squares. Those of a length are side by side, so that a
    processor foresees how long the next will be. `counts` is 0 at entry and exit.
    """
    features, values = entries
    run_begins, middles, run_atoms, firsts, lasts, squares = runs
    n = indptr.shape[0] - 1
    for i in range(n):
        for e in range(indptr[i], indptr[i + 1]):
            a = atoms[indices[e]]
            if a >= 0 and data[e] != 0:
                counts[a] += 1
        for k in range(starts.shape[0]):
            at, r = begins[k * n + i], run_begins[k * n + i]
            above = 0
            for most in (min(1, short), min(2, short), min(3, short), min(6, short), short, np.iinfo(np.int64).max):
                if most > short:
                    middles[k * n + i] = r
                if r < run_begins[k * n + i + 1]:
                    for a in range(edges[k], edges[k + 1]):
                        if above < counts[a] <= most:
                            run_atoms[r], firsts[r], lasts[r], squares[r] = a, at, at + counts[a], 0.0
                            cursor[a], slot[a] = at, r
                            at += counts[a]
                            r += 1
                above = most
        for e in range(indptr[i], indptr[i + 1]):
            a = atoms[indices[e]]
            if a >= 0 and data[e] != 0:
                features[cursor[a]] = place[indices[e]]
                values[cursor[a]] = data[e]
                cursor[a] += 1
                squares[slot[a]] += np.float64(data[e]) * np.float64(data[e])
                counts[a] = 0


@kernel
def group_overlap(xs, ys, runs, starts, atom_at, radii, close, tile, Ex, sizes, roots, low, square, norms):
    """norms[j, lane] += Σ_g λ_g (‖x_g − y_g‖ − ‖x_g‖), square[j, lane] += ‖x − y‖² − ‖x‖² over the groups unless None.

    low[j, lane] becomes 1 where a group is so close that its digits are lost. `tile` and Ex are 0 at entry; Ex is
    float64, and `sizes` and `roots`, ‖x_g‖² and λ_g‖x_g‖, have the precision of the data, in which roots are taken.
    """
    x_begins, x_features, x_values = xs
    m = norms.shape[0]
    n = (x_begins.shape[0] - 1) // starts.shape[0]
    for k in range(starts.shape[0]):
        first = atom_at[starts[k]]
        last = atom_at[-1] + 1 if k + 1 == starts.shape[0] else atom_at[starts[k + 1]]
        for lane in range(n):
            for e in range(x_begins[k * n + lane], x_begins[k * n + lane + 1]):
                value = np.float64(x_values[e])
                tile[x_features[e], lane] = value
                Ex[atom_at[starts[k] + x_features[e]] - first, lane] += value * value
        for a in range(last - first):
            for lane in range(n):
                roots[a, lane] = radii[first + a] * math.sqrt(Ex[a, lane])
        _row_sizes(starts[k], first, last, atom_at, tile, sizes)
        here = first, radii, tile, Ex, sizes, roots
        _short_runs(k * m, ys, runs, here, low, square, norms)
        _long_runs(k * m, ys, runs, here, close, low, square, norms)
        for lane in range(n):
            for e in range(x_begins[k * n + lane], x_begins[k * n + lane + 1]):
                tile[x_features[e], lane] = 0.0
        Ex[: last - first] = 0.0


@kernel
def _row_sizes(starts, first, last, atom_at, tile, sizes):
    """sizes[a] = ‖x_a‖² of the groups first:last of a tile, summed as `_short_runs` sums, so that what is left of it
    where all entries of x are hit is exactly 0."""
    none = sizes[0, 0] - sizes[0, 0]
    t = 0
    for a in range(first, last):
        begin = t
        while starts + t < atom_at.shape[0] and atom_at[starts + t] == a:
            t += 1
        for s in range(strips(tile, WIDE)):
            total = spread(none, WIDE)
            for f in range(begin, t):
                x = load(tile, f, s, WIDE)
                total += x * x
            store(sizes, a - first, s, total)


@kernel
def _short_runs(row, ys, runs, here, low, square, norms):
    """Runs of a few entries in the precision of the data: Σ(x − y)² over them, and what is left of ‖x‖².

    Only the latter can lose digits, and only where it is little next to ‖x‖² but not 0.
    """
    features, values = ys
    run_begins, middles, atoms, firsts, lasts = runs[:5]
    first, radii, tile, _, sizes, roots = here
    none = sizes[0, 0] - sizes[0, 0]
    little = type(none)(0.002)
    for j in range(norms.shape[0]):
        begin, end = run_begins[row + j], middles[row + j]
        if begin == end:
            continue
        for s in range(strips(tile, WIDE)):
            total, more = spread(none, WIDE), spread(none, WIDE)
            for r in range(np.uint64(begin), np.uint64(end)):
                a = atoms[r] - first
                x_square = load(sizes, a, s, WIDE)
                apart, hit = spread(none, WIDE), spread(none, WIDE)
                for e in range(np.uint64(firsts[r]), np.uint64(lasts[r])):
                    x = load(tile, features[e], s, WIDE)
                    z = x - type(none)(values[e])
                    apart += z * z
                    hit += x * x
                left = greatest(x_square - hit, none)
                E = apart + left
                lost = bits(E < x_square * little) & bits(left > none)
                if lost != 0:
                    _mark(low[j], s * (WIDE // 4), lost)
                more += root(E) * radii[atoms[r]] - load(roots, a, s, WIDE)
                if square is not None:
                    total += apart - hit
            if square is not None:
                accumulate(square, j, s, total)
            accumulate(norms, j, s, more)


@kernel
def _long_runs(row, ys, runs, here, close, low, square, norms):
    """Sums of many products in float64."""
    features, values = ys
    run_begins, middles, atoms, firsts, lasts, squares = runs
    first, radii, tile, Ex, sizes, roots = here
    none = 0.0
    zero = sizes[0, 0] - sizes[0, 0]
    for j in range(norms.shape[0]):
        begin, end = middles[row + j], run_begins[row + j + 1]
        if begin == end:
            continue
        for s in range(strips(tile, NARROW)):
            more = spread(zero, NARROW)
            total = spread(none, more)
            for r in range(np.uint64(begin), np.uint64(end)):
                a, product = atoms[r] - first, spread(none, more)
                for e in range(np.uint64(firsts[r]), np.uint64(lasts[r])):
                    product += widen(load(tile, features[e], s, more)) * values[e]
                both = load(Ex, a, s, more) + squares[r]
                E = both - (product + product)
                lost = bits(E < both * close)
                if lost != 0:
                    _mark(low[j], s * (LANES // strips(tile, NARROW)), lost & ~bits(E == none))
                if square is not None:
                    total += E - load(Ex, a, s, more)
                more += root(like(greatest(E, none), more)) * radii[atoms[r]] - load(roots, a, s, more)
            if square is not None:
                accumulate(square, j, s, total)
            accumulate(norms, j, s, more)


@kernel
def _mark(low, lane, found):
    while found != 0:
        low[lane + lowest(found)] = 1
        found &= found - np.uint64(1)


@kernel
def group_sizes(indptr, indices, data, groups, E, touched, square, norms):
    """‖x‖² over the groups, and Σ_g λ_g‖x_g‖, of each row; E is 0 at entry and exit."""
    for i in range(indptr.shape[0] - 1):
        n = row_squares(indptr[i], indptr[i + 1], indices, data, groups[0], E, touched)
        total = size = 0.0
        for k in range(n):
            a = touched[k]
            total += E[a]
            size += groups[1][a] * math.sqrt(E[a])
            E[a] = 0.0
        square[i], norms[i] = total, size


@kernel
def group_sums(X, Y, ends, radii, tile, norms):
    """norms[j, lane] += Σ_g λ_g ‖x_g − y_g‖ of dense rows; features are in the order of groups, which end at `ends`.

    The tile has room for any one group.
    """
    none = X[0, 0] - X[0, 0]
    first = 0
    while first < ends.shape[0]:
        start = 0 if first == 0 else ends[first - 1]
        last = first + 1
        while last < ends.shape[0] and ends[last] - start <= tile.shape[0]:
            last += 1
        next_tile_dense(X[:, start : ends[last - 1]], 0, tile)
        for j in range(Y.shape[0]):
            for s in range(strips(tile, WIDE)):
                more = widen(spread(none, WIDE))
                t = start
                for g in range(first, last):
                    E = widen(spread(none, WIDE))
                    while t < ends[g]:
                        stop = min(ends[g], t + FLUSH)
                        part = spread(none, WIDE)
                        for f in range(t, stop):
                            z = load(tile, f - start, s, WIDE) - Y[j, f]
                            part += z * z
                        E += widen(part)
                        t = stop
                    more += root(E) * radii[g]
                accumulate(norms, j, s, more)
        first = last


@kernel
def group_pairs(xptr, xind, xval, yptr, yind, yval, groups, latent, rows, columns, work, square, norms):
    """‖x − y‖² over the groups, and their norm, of the pairs (rows[p], columns[p]), into [column, row].

    Those of one x follow each other, so that x is written to its dense place once, and a latent balance starts from
    that of the pair before.
    """
    x, Ex, nx, E, lost, hits, touched, mine, scale = work
    atoms = groups[0]
    at = -1
    n_mine = 0
    for p in range(rows.shape[0]):
        i, j = rows[p], columns[p]
        if i != at:
            if at >= 0:
                leave(xptr[at], xptr[at + 1], xind, atoms, x, Ex, nx)
            enter(xptr[i], xptr[i + 1], xind, xval, atoms, x, Ex, nx)
            at = i
            forget(latent)
            n_mine = own_atoms(xptr[i], xptr[i + 1], xind, atoms, Ex, mine, scale)
        y_row = yptr[j], yptr[j + 1], yind, yval
        n = pair_squares(xptr[i], xptr[i + 1], xind, x, Ex, nx, y_row, atoms, E, lost, hits, touched)
        for k in range(n_mine):
            if E[mine[k]] < 0:
                E[mine[k]] = Ex[mine[k]]
                touched[n] = mine[k]
                n += 1
        total = 0.0
        for k in range(n):
            total += E[touched[k]]
        if square is not None:
            square[j, i] = total
        norms[j, i] = scales(touched, n, E, groups, latent, SLOPE, scale)
        for k in range(n):
            E[touched[k]] = -1.0
            scale[touched[k]] = 0.0
    if at >= 0:
        leave(xptr[at], xptr[at + 1], xind, atoms, x, Ex, nx)
