"""Fields of the separable costs, Σ_j p_j h′(x − y_j), at chosen entries of 64 samples side by side, in float64.

`lanes` and `columns` are as for :mod:`occamap._kernels.displace`, and so are the blocks of targets; weights[j, lane]
are the p_j. `pattern` = (indptr, indices) are the entries that are wanted, a row a lane, features rising, and `out`
gets their fields. A feature that is wanted in no lane costs nothing.
"""

from __future__ import annotations

import numpy as np

from occamap._kernels.displace import _row
from occamap._kernels.jit import kernel
from occamap._kernels.lanes import next_tile
from occamap._kernels.vectors import WIDE, accumulate, greatest, load, magnitude, root, select, spread, store, strips


@kernel
def field_entries(lanes, columns, weights, g, vanishing, pattern, sums, out):
    """For h′(z) = z + g_t sign(z), or where `vanishing` is not None STVS with γ = g[0].

    sums[2t] and sums[2t + 1] keep, of feature t of a tile, the slopes and the mass of the rows that its column stores.
    """
    stored, cursor, tile, counts = lanes
    begins, rows, values = columns
    indptr, indices = pattern
    width, (blocks, d) = tile.shape[0], begins.shape
    at = indptr.copy()
    wanted = np.empty(width, np.bool_)
    for start in range(0, d, width):
        next_tile(stored, cursor, start, tile, counts)
        wanted[:] = False
        for lane in range(indptr.shape[0] - 1):
            e = at[lane]
            while e < indptr[lane + 1] and indices[e] < start + width:
                wanted[indices[e] - start] = True
                e += 1
        for k in range(blocks - 1):
            for t in range(start, min(start + width, d)):
                if not wanted[t - start]:
                    continue
                size = g[0] if vanishing is not None else g[t]
                for s in range(strips(tile, WIDE)):
                    x = load(tile, t - start, s, WIDE)
                    slopes, held = spread(0.0, WIDE), spread(0.0, WIDE)
                    for e in range(np.uint64(begins[k, t]), np.uint64(begins[k + 1, t])):
                        p = load(weights, _row(rows, e, begins[0, t]), s, WIDE)
                        slopes += _slope(x - np.float64(values[e]), size, vanishing) * p
                        held += p
                    if k == 0:
                        store(sums, 2 * (t - start), s, slopes)
                        store(sums, 2 * (t - start) + 1, s, held)
                    else:
                        accumulate(sums, 2 * (t - start), s, slopes)
                        accumulate(sums, 2 * (t - start) + 1, s, held)
                    if k == blocks - 2 and begins[-1, t] - begins[0, t] < weights.shape[0]:
                        rest = greatest(spread(1.0, WIDE) - load(sums, 2 * (t - start) + 1, s, WIDE), 0.0)
                        accumulate(sums, 2 * (t - start), s, _slope(x, size, vanishing) * rest)
        for lane in range(indptr.shape[0] - 1):
            while at[lane] < indptr[lane + 1] and indices[at[lane]] < start + width:
                out[at[lane]] = sums[2 * (indices[at[lane]] - start), lane]
                at[lane] += 1


@kernel
def _slope(z, g, vanishing):
    """h′ of a strip, 0 at 0."""
    if vanishing is None:
        size = magnitude(z) + g
    else:
        size = (magnitude(z) + root(z * z + 4.0 * g * g)) * 0.5
    return select(z > 0.0, size, 0.0) - select(z < 0.0, size, 0.0)
