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
    """eˣ in straight-line code, which vectorises: 0 below −700, e⁷⁰⁰ above 700, within 3 ulp between them.

    The polynomial interpolates eʳ, |r| ≤ log(2)/2, at the zeros of a Chebyshev polynomial, to 3e-16.
    """
    y = min(max(x, -700.0), 700.0)
    shifted = y * LOG2E + SHIFTER
    n = shifted - SHIFTER
    r = (y - n * LN2_HIGH) - n * LN2_LOW
    p = 2.7626371065696356076e-7
    p = p * r + 2.7640197391694840467e-6
    p = p * r + 0.000024801504313785540166
    p = p * r + 0.00019841170230570286664
    p = p * r + 0.0013888888932514779355
    p = p * r + 0.0083333333856992117269
    p = p * r + 0.041666666666573067732
    p = p * r + 0.16666666666554314583
    p = p * r + 0.50000000000000056225
    p = p * r + 1.0000000000000067491
    p = p * r + 1.0
    bits = np.int64(np.float64(shifted).view(np.int64) + 1023) << 52
    power = np.int64(bits).view(np.float64)
    return p * power if x > -700.0 else 0.0


@reduction
def sweep(C, offset, g, log_b, a, epsilon, damping, shift, f, column, scratch):
    """One Sinkhorn iteration over a block of rows, in one pass and with one exponential an entry.

    The costs are C_ij + offset_i. Writes f = −damping·ε log Σ_j exp((g_j − cost_ij)/ε + log b_j) and adds to column[j]
    the mass that the plan of (f, g) puts there, times e^−shift. Returns max (f − f/damping)/ε, the next shift. The
    exponentials are taken relative to the f that comes in, which is near in all iterations but the first: only where
    they leave the middle of float64's range is the largest of the row looked for.
    """
    inverse = 1.0 / epsilon
    next_shift = -math.inf
    for i in range(C.shape[0]):
        near = f[i] / damping - offset[i]
        _near_exponentials(C, i, g, log_b, inverse, near, scratch)
        total = _sum(scratch)
        if not 1e-150 < total < 1e150:
            top = _exponentials(C, i, g, log_b, inverse, scratch)
            total = _sum(scratch)
            near = -epsilon * top
        plain = near + offset[i] - epsilon * math.log(total)
        f[i] = damping * plain
        excess = (f[i] - plain) * inverse
        next_shift = max(next_shift, excess)
        factor = a[i] / total * math.exp(min(700.0, excess - shift))
        for j in range(scratch.shape[0]):
            column[j] += factor * scratch[j]
    return next_shift


@kernel
def _near_exponentials(C, i, g, log_b, inverse, near, out):
    """out[j] = exp((near + g_j − C_ij)/ε + log b_j)"""
    for j in range(C.shape[1]):
        out[j] = exp(((near + g[j]) - C[i, j]) * inverse + log_b[j])


@kernel
def _exponentials(C, i, g, log_b, inverse, out):
    """out[j] = exp((g_j − C_ij)/ε + log b_j − top), the largest exponent being `top`, which is returned.

    The largest is 1, whatever the exponents are. With ε·top added to g_j − C_ij it would not be: from costs of 10¹⁶ ε
    on, that is rounded by more than exponents differ.
    """
    top = _exponents(C, i, g, log_b, inverse, out)
    for j in range(out.shape[0]):
        out[j] = exp(out[j] - top)
    return top


@reduction
def _exponents(C, i, g, log_b, inverse, out):
    """out[j] = (g_j − C_ij)/ε + log b_j; returns the largest."""
    for j in range(C.shape[1]):
        out[j] = (g[j] - C[i, j]) * inverse + log_b[j]
    top = -math.inf
    for j in range(out.shape[0]):
        top = max(top, out[j])
    return top


@reduction
def _sum(values):
    total = 0.0
    for j in range(values.shape[0]):
        total += values[j]
    return total


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
def means(C, offset, a, b, rows, column):
    """rows[i] = Σ_j b_j cost_ij, column[j] += Σ_i a_i cost_ij, costs being C_ij + offset_i; returns the largest cost.

    The largest is that between samples with mass.
    """
    largest = 0.0
    mass = 0.0
    for j in range(C.shape[1]):
        mass += b[j]
    for i in range(C.shape[0]):
        total = 0.0
        for j in range(C.shape[1]):
            total += b[j] * C[i, j]
        for j in range(C.shape[1]):
            column[j] += a[i] * (C[i, j] + offset[i])
        rows[i] = total + mass * offset[i]
        if a[i] > 0:
            for j in range(C.shape[1]):
                if b[j] > 0:
                    largest = max(largest, C[i, j] + offset[i])
    return largest


@reduction
def gibbs(C, g, log_b, epsilon, weights, potential):
    """Row by row the Gibbs weights p_j ∝ b_j exp((g_j − C_ij)/ε) and −ε log of their sum; returns nothing."""
    inverse = 1.0 / epsilon
    for i in range(C.shape[0]):
        top = _exponentials(C, i, g, log_b, inverse, weights[i])
        total = _sum(weights[i])
        for j in range(C.shape[1]):
            weights[i, j] /= total
        potential[i] = -epsilon * (top + math.log(total))


@reduction
def perplexities(C, g, log_b, epsilon, f, out):
    """exp of the entropy of the Gibbs weights of each row, whose potential f is known: the effective number of targets.

    Weights sum to about 1 with it, so that none needs a logarithm of its own; where they do not, f is looked for.
    """
    inverse = 1.0 / epsilon
    for i in range(C.shape[0]):
        total, dot = _entropy_sums(C, i, g, log_b, inverse, f[i])
        if not 0.5 < total < 2.0:
            total, dot = _far_entropy_sums(C, i, g, log_b, inverse)
        out[i] = math.exp(math.log(total) - dot / total)


@reduction
def _entropy_sums(C, i, g, log_b, inverse, near):
    """Σ_j e^s and Σ_j s·e^s with s = (near + g_j − C_ij)/ε + log b_j."""
    total = dot = 0.0
    for j in range(C.shape[1]):
        s = ((near + g[j]) - C[i, j]) * inverse + log_b[j]
        p = exp(s)
        total += p
        dot += p * s
    return total, dot


@kernel
def _far_entropy_sums(C, i, g, log_b, inverse):
    """The same sums with s relative to its largest."""
    exponents = np.empty(C.shape[1])
    top = _exponents(C, i, g, log_b, inverse, exponents)
    total = dot = 0.0
    for j in range(exponents.shape[0]):
        s = exponents[j] - top
        p = exp(s)
        total += p
        dot += p * s
    return total, dot
