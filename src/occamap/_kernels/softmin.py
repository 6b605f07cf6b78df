"""The Sinkhorn sweep over a block of rows of the cost matrix, and its parts."""

from __future__ import annotations

import math

import numpy as np

from occamap._kernels.jit import kernel, reduction

LOG2E = 1.4426950408889634
LN2_HIGH = 6.93147180369123816490e-01
LN2_LOW = 1.90821492927058770002e-10
SHIFTER = 6755399441055744.0  # 1.5·2⁵²: adding it leaves the nearest integer in the low bits


@kernel
def exp(x):
    """eˣ for x ≤ 700 in straight-line code, which vectorises; 0 below −700. Within 2 ulp."""
    y = max(x, -700.0)
    shifted = y * LOG2E + SHIFTER
    n = shifted - SHIFTER
    r = (y - n * LN2_HIGH) - n * LN2_LOW
    p = 1.0 / 479001600
    p = p * r + 1.0 / 39916800
    p = p * r + 1.0 / 3628800
    p = p * r + 1.0 / 362880
    p = p * r + 1.0 / 40320
    p = p * r + 1.0 / 5040
    p = p * r + 1.0 / 720
    p = p * r + 1.0 / 120
    p = p * r + 1.0 / 24
    p = p * r + 1.0 / 6
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    bits = np.int64(np.float64(shifted).view(np.int64) + 1023) << 52
    power = np.int64(bits).view(np.float64)
    return p * power if x > -700.0 else 0.0


@reduction
def sweep(C, g, log_b, a, epsilon, damping, shift, f, column, scratch):
    """One Sinkhorn iteration over a block of rows, in one pass and with one exponential an entry.

    Writes f = −damping·ε log Σ_j exp((g_j − C_ij)/ε + log b_j) and adds to column[j] the mass that the plan
    of (f, g) puts there, times e^−shift. Returns max (f − f/damping)/ε, the next shift.
    """
    n, m = C.shape
    inverse = 1.0 / epsilon
    next_shift = -math.inf
    for i in range(n):
        row = C[i]
        top = -math.inf
        for j in range(m):
            s = (g[j] - row[j]) * inverse + log_b[j]
            scratch[j] = s
            top = max(top, s)
        total = 0.0
        for j in range(m):
            s = exp(scratch[j] - top)
            scratch[j] = s
            total += s
        plain = -epsilon * (top + math.log(total))
        f[i] = damping * plain
        excess = (f[i] - plain) * inverse
        next_shift = max(next_shift, excess)
        factor = a[i] / total * math.exp(min(700.0, excess - shift))
        for j in range(m):
            column[j] += factor * scratch[j]
    return next_shift


@reduction
def column_softmin(C, f, log_a, epsilon, columns, top, total):
    """Fold a block of rows into running log-sums: Σ_i exp((f_i − C_ij)/ε + log a_i) = total·e^top, j in columns."""
    inverse = 1.0 / epsilon
    for i in range(C.shape[0]):
        for c in range(columns.shape[0]):
            s = (f[i] - C[i, columns[c]]) * inverse + log_a[i]
            if s > top[c]:
                total[c] = total[c] * math.exp(top[c] - s) + 1.0
                top[c] = s
            else:
                total[c] += math.exp(s - top[c])


@reduction
def gibbs(C, g, log_b, epsilon, weights, potential):
    """Row by row the Gibbs weights p_j ∝ b_j exp((g_j − C_ij)/ε) and −ε log of their sum; returns nothing."""
    n, m = C.shape
    inverse = 1.0 / epsilon
    for i in range(n):
        row = C[i]
        out = weights[i]
        top = -math.inf
        for j in range(m):
            s = (g[j] - row[j]) * inverse + log_b[j]
            out[j] = s
            top = max(top, s)
        total = 0.0
        for j in range(m):
            s = exp(out[j] - top)
            out[j] = s
            total += s
        for j in range(m):
            out[j] /= total
        potential[i] = -epsilon * (top + math.log(total))


@reduction
def perplexities(weights, out):
    """exp of the entropy of each row: the effective number of targets."""
    for i in range(weights.shape[0]):
        entropy = 0.0
        for j in range(weights.shape[1]):
            p = weights[i, j]
            if p > 0:
                entropy -= p * math.log(p)
        out[i] = math.exp(entropy)
