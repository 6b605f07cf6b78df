"""The k-overlap norm. With the largest T such that Σ_t min(|z_t|/T, 1) = k (0 where fewer than k entries are not 0),

    ‖z‖² = Σ_{|z_t| > T} z_t² + T²(k − #{|z_t| > T}),   ∇½‖z‖² = sign(z) max(|z|, T),   between ±T where z_t = 0.

Rows are ragged: entries indptr[i]:indptr[i+1] of `data`, so that dense and CSR rows are the same to them.
"""

from __future__ import annotations

import math

import numpy as np

from occamap._kernels.jit import LANES, kernel, reduction
from occamap._kernels.lanes import next_tile


@reduction
def threshold(z, k):
    """(T, ‖z‖²) for z ≥ 0. Newton on 1/T, where the sum is concave: it climbs to the root and stops there."""
    total = 0.0
    square = 0.0
    count = 0
    for i in range(z.shape[0]):
        total += z[i]
        square += z[i] * z[i]
        count += 1 if z[i] > 0 else 0
    if count < k:
        return 0.0, square
    if count == k:
        return _smallest(z), square
    T = total / k
    top = -1
    while True:
        tail = 0.0
        above = 0
        for i in range(z.shape[0]):
            tail += z[i] if z[i] <= T else 0.0
            above += 1 if z[i] > T else 0
        if above <= top or above >= k:
            break
        top = above
        T = tail / (k - above)
    square = 0.0
    above = 0
    for i in range(z.shape[0]):
        square += z[i] * z[i] if z[i] > T else 0.0
        above += 1 if z[i] > T else 0
    return T, square + T * T * (k - above)


@reduction
def _smallest(z):
    """The smallest entry that is not 0."""
    smallest = math.inf
    for i in range(z.shape[0]):
        if z[i] > 0:
            smallest = min(smallest, z[i])
    return smallest


@reduction
def norms(indptr, data, k, scratch, T, square):
    """T and ‖z‖² of each row."""
    for i in range(indptr.shape[0] - 1):
        n = indptr[i + 1] - indptr[i]
        for e in range(n):
            scratch[e] = abs(data[indptr[i] + e])
        T[i], square[i] = threshold(scratch[:n], k)


@reduction
def pairs_csr(xptr, xind, xval, first, last, yptr, yind, yval, k, dense, stamp, scratch, l2, square, T):
    """½-free parts of the cost of rows first:last against all y: ‖z‖₂², ‖z‖²_ovk and T, each [row, j].

    `dense` (zero at entry and exit) and `stamp` have one place a feature.
    """
    for i in range(first, last):
        for e in range(xptr[i], xptr[i + 1]):
            dense[xind[e]] = xval[e]
        for j in range(yptr.shape[0] - 1):
            mark = (i - first) * (yptr.shape[0] - 1) + j + 1
            n = 0
            for e in range(yptr[j], yptr[j + 1]):
                t = yind[e]
                scratch[n] = abs(dense[t] - yval[e])
                stamp[t] = mark
                n += 1
            for e in range(xptr[i], xptr[i + 1]):
                scratch[n] = abs(xval[e])
                n += 1 if stamp[xind[e]] != mark else 0
            total = 0.0
            for e in range(n):
                total += scratch[e] * scratch[e]
            l2[i - first, j] = total
            T[i - first, j], square[i - first, j] = threshold(scratch[:n], k)
        for e in range(xptr[i], xptr[i + 1]):
            dense[xind[e]] = 0


@reduction
def pairs_dense(X, first, last, Y, k, scratch, l2, square, T):
    """As `pairs_csr`, for dense rows on both sides."""
    for i in range(first, last):
        for j in range(Y.shape[0]):
            for t in range(Y.shape[1]):
                scratch[t] = abs(np.float64(X[i, t]) - np.float64(Y[j, t]))
            total = 0.0
            for t in range(Y.shape[1]):
                total += scratch[t] * scratch[t]
            l2[i - first, j] = total
            T[i - first, j], square[i - first, j] = threshold(scratch[: Y.shape[1]], k)


@reduction
def level(w, k, gamma):
    """α with Σ_t clip(α w_t − γ, 0, 1) = k, for w ≥ 0 with more than k non-zeros.

    Each trial α fixes which terms are cut; the root of that linear piece is the next trial, or the middle of
    the bracket where the piece leads out of it.
    """
    largest = 0.0
    smallest = math.inf
    for i in range(w.shape[0]):
        largest = max(largest, w[i])
        smallest = min(smallest, w[i] if w[i] > 0 else math.inf)
    low = gamma / largest
    high = (1 + gamma) / smallest
    alpha = min(high, (k + gamma * w.shape[0]) / np.sum(w))
    piece = (-1, -1)
    while True:
        middle = 0.0
        inside = 0
        full = 0
        for i in range(w.shape[0]):
            theta = alpha * w[i] - gamma
            full += 1 if theta >= 1 else 0
            between = theta > 0 and theta < 1
            inside += 1 if between else 0
            middle += w[i] if between else 0.0
        excess = full + alpha * middle - gamma * inside - k
        if excess == 0 or piece == (full, inside):
            return alpha
        if excess > 0:
            high = alpha
        else:
            low = alpha
        piece = (full, inside)
        alpha = (k - full + gamma * inside) / middle if inside > 0 else 0.0
        if alpha <= low or alpha >= high:
            piece = (-1, -1)
            alpha = 0.5 * (low + high)
            if alpha <= low or alpha >= high:
                return alpha


@reduction
def prox_squared_row(w, k, gamma, scratch, out):
    """The prox of ½γ‖·‖² at w; returns α (0 where at most k entries are non-zero, then w/(1 + γ))."""
    count = 0
    for i in range(w.shape[0]):
        scratch[i] = abs(w[i])
        count += 1 if w[i] != 0 else 0
    if count <= k or gamma == 0:
        for i in range(w.shape[0]):
            out[i] = w[i] / (1 + gamma)
        return 0.0
    alpha = level(scratch[: w.shape[0]], k, gamma)
    for i in range(w.shape[0]):
        theta = min(alpha * scratch[i] - gamma, 1.0)
        out[i] = theta / (theta + gamma) * w[i] if theta > 2e-15 * gamma else 0.0  # less is a rounding error
    return alpha


@reduction
def prox_squared(indptr, data, k, gamma, scratch, out):
    """The prox of ½γ‖·‖², row by row."""
    for i in range(indptr.shape[0] - 1):
        prox_squared_row(data[indptr[i] : indptr[i + 1]], k, gamma, scratch, out[indptr[i] : indptr[i + 1]])


@reduction
def top_norm(w, k):
    """The dual norm: the ℓ2 norm of the k largest magnitudes."""
    if w.shape[0] <= k:
        return math.sqrt(np.sum(w * w))
    largest = np.partition(np.abs(w), w.shape[0] - k)[w.shape[0] - k :]
    return math.sqrt(np.sum(largest * largest))


@reduction
def prox_norm(indptr, data, k, gamma, scratch, out):
    """The prox of γ‖·‖, row by row: w less its projection on the dual ball of radius γ."""
    for i in range(indptr.shape[0] - 1):
        w = data[indptr[i] : indptr[i + 1]]
        z = out[indptr[i] : indptr[i + 1]]
        dual = top_norm(w, k)
        if dual <= gamma:
            z[:] = 0
            continue
        count = 0
        for j in range(w.shape[0]):
            scratch[j] = abs(w[j])
            count += 1 if w[j] != 0 else 0
        shrink, floor = gamma / dual, 0.0
        if count > k and shrink > 0:
            shrink, floor = _ball(scratch[: w.shape[0]], k, gamma, shrink)
        for j in range(w.shape[0]):
            size = scratch[j]
            size = (1 - shrink) * size if shrink * size >= floor else size - floor
            out_of_ball = scratch[j] - floor > 2e-15 * floor  # less is a rounding error
            z[j] = math.copysign(size, w[j]) if out_of_ball else 0.0


@reduction
def _ball(w, k, gamma, shrink):
    """(c, β) such that max(c w, min(w, β)) is the projection of w on the dual ball, for w ≥ 0 outside of it.

    w less this is the prox of ½s‖·‖² at s = c/(1 − c), with β = s/α. Each trial c fixes which entries are c w, which
    are β and which stay; the root for that piece is the next trial, or the middle of the bracket where it leads out.
    """
    low = 0.0
    high = 1.0
    piece = (-1, -1)
    while True:
        s = shrink / (1 - shrink)
        alpha = level(w, k, s)
        square = 0.0
        middle = 0.0
        inside = 0
        full = 0
        for i in range(w.shape[0]):
            theta = alpha * w[i] - s
            full += 1 if theta >= 1 else 0
            square += w[i] * w[i] if theta >= 1 else 0.0
            between = theta > 0 and theta < 1
            inside += 1 if between else 0
            middle += w[i] if between else 0.0
        floor = s / alpha
        if piece == (full, inside):
            return shrink, floor
        if math.hypot(shrink * math.sqrt(square), math.sqrt(max(0, k - full)) * floor) > gamma:
            high = shrink
        else:
            low = shrink
        piece = (full, inside)
        shrink = _shrinkage(math.sqrt(square), middle, inside, k - full, gamma)
        if shrink <= low or shrink >= high:
            piece = (-1, -1)
            shrink = 0.5 * (low + high)
            if shrink <= low or shrink >= high:
                return shrink, floor


@reduction
def _shrinkage(length, middle, inside, rest, gamma):
    """c = rβ/(M − (n − r)β) for the β with c²L² + rβ² = γ²; 1 if c is larger.

    The left side is the square of a convex function of β that is 0 at 0: Newton's steps from above fall to the root,
    and stop there. What is near 0 they would miss by rounding: they begin from βγ over the function, which is at most
    the root, and of its order where the function is a line.
    """
    if rest <= 0 or inside == 0:
        return min(1.0, gamma / length) if length > 0 else 1.0
    root = math.sqrt(rest)
    most = min(gamma / root, middle / inside)
    radius, _, shrink = _radius(most, length, middle, inside, rest)
    if radius <= gamma:
        return shrink
    beta = most * (gamma / radius)
    radius, slope, _ = _radius(beta, length, middle, inside, rest)
    beta = min(most, beta + max(0.0, gamma - radius) / slope)
    while True:
        radius, slope, shrink = _radius(beta, length, middle, inside, rest)
        below = beta - (radius - gamma) / slope
        if below >= beta or below <= 0:
            return shrink
        beta = below


@kernel
def _radius(beta, length, middle, inside, rest):
    """√(c²L² + rβ²), its slope in β, and c."""
    root, left = math.sqrt(rest), middle - (inside - rest) * beta
    shrink = rest * beta / left
    radius = math.hypot(shrink * length, root * beta)
    slope = shrink * length / radius * length * rest * middle / (left * left) + root * beta / radius * root
    return radius, slope, shrink


@kernel
def field(
    stored, cursor, tile, counts, colptr, rows, values, p, slopes, T, levels, below, above, ties, sums, out, mean, width
):
    """out[lane, t] = Σ_j p_j(x − y_j)_t + Σ_j slope_j sign(x − y_j)_t max(|x − y_j|_t, T_j), x by next_tile.

    For the y_j that store nothing in column t the second sum is sign(x) Σ slope_j max(|x|, T_j): from all j, by
    the sorted `levels` T with cumulated slopes `below` and slopes·T `above` a level, less the stored ones. `width` gets
    the slack of ties, unless it is empty.
    """
    push, slack, centre = sums[0], sums[1], sums[2]
    for t in range(out.shape[1]):
        if t % tile.shape[0] == 0:
            next_tile(stored, cursor, t, tile, counts)
        x = tile[t % tile.shape[0]]
        sums[:] = 0
        for e in range(colptr[t], colptr[t + 1]):
            y = np.float64(values[e])
            weight = p[rows[e]]
            slope = slopes[rows[e]]
            level_j = T[rows[e]]
            for lane in range(LANES):
                z = x[lane] - y
                size = slope[lane] * max(abs(z), level_j[lane])
                rest = slope[lane] * max(abs(x[lane]), level_j[lane])
                centre[lane] += weight[lane] * y
                push[lane] += (size if z > 0 else (-size if z < 0 else 0.0)) - (
                    rest if x[lane] > 0 else (-rest if x[lane] < 0 else 0.0)
                )
                slack[lane] += (slope[lane] * level_j[lane] if z == 0 else 0.0) - (
                    slope[lane] * level_j[lane] if x[lane] == 0 else 0.0
                )
        for lane in range(out.shape[0]):
            size = abs(x[lane])
            at = np.searchsorted(levels[lane], size, side="right")
            full = size * below[lane, at] + above[lane, at]
            if size > 0:
                push[lane] += full * (1.0 if x[lane] > 0 else -1.0)
            else:
                slack[lane] += above[lane, 0]
            w = x[lane] - centre[lane] + push[lane]
            if abs(w) < 1e-14 * (size + abs(centre[lane]) + full):
                w = 0.0  # nothing but the rounding error of what cancelled
            if ties == 1:
                w = max(0.0, abs(w) - max(0.0, slack[lane])) * (1.0 if w > 0 else -1.0)
            out[lane, t] = w
            mean[lane, t] = centre[lane]
            if width.shape[0] > 0:
                width[lane, t] = max(0.0, slack[lane])
