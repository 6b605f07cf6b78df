"""The norm of overlapping groups in the latent form (Jacob, Obozinski and Vert 2009), its gradient and its prox.

τ(z) = min Σ_g λ_g‖v_g‖ over the sums Σ_g v_g = z with v_g = 0 outside of g. With a number η_g ≥ 0 a group and
ζ_a = Σ_{g ∋ a} η_g it is the minimum of the convex function

    F(η) = ½ Σ_a E_a / (δ + ζ_a) + ½ Σ_g λ_g² η_g,   E_a = ‖z_a‖²,   δ = 0,

and ∇τ(z)_a = z_a / ζ_a; with δ = 1 and E of a vector w, prox_τ(w)_a = w_a ζ_a / (1 + ζ_a). At the minimum the ratio
ρ_g² = Σ_{a ∈ g} E_a / (δ + ζ_a)² / λ_g² is 1 where η_g > 0, and at most 1 where it is 0.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from occamap._kernels.jit import kernel

Room = tuple[Any, ...]

WARM = 3  # multiplications before the interior point method
STEPS = 60  # of the latter
MANY = 300  # groups for which its systems are solved; with more, multiplications alone have to do
PATIENCE = 20_000  # multiplications at most


def room(n_groups: int, tolerance: float, gap: float) -> Room:
    """What `balance` works in; η is 0, from which it starts anew, or what the last balance ended with.

    It ends where every ρ that counts is 1 to `tolerance`, or the value is between bounds that differ by `gap` of it.
    """
    side = min(n_groups, MANY)
    vectors = tuple(np.zeros(n_groups) for _ in range(5))  # η, ρ, λ, gradient and step
    places = np.empty(n_groups, np.int64), np.zeros(n_groups, np.int64)
    return (tolerance, gap), *vectors, *places, np.empty((side, side)), np.empty(side)


@kernel
def forget(latent):
    """Start the next balance anew."""
    if latent is not None:
        latent[1][:] = 0.0


@kernel
def balance(touched, n, E, groups, latent, mode, out):
    """out[a] = 1/ζ_a (mode 0) or ζ_a / (1 + ζ_a) (mode 1) for the atoms touched[:n]; returns τ (mode 0).

    Squares and strengths are scaled to at most 1, so that their powers neither overflow nor vanish.
    """
    radii, begins, members = groups[1], groups[2], groups[3]
    scaled = latent[3]
    square, strength = 0.0, 0.0
    for k in range(n):
        square = max(square, E[touched[k]])
        for e in range(begins[touched[k]], begins[touched[k] + 1]):
            strength = max(strength, radii[members[e]])
    if square == 0 or strength == 0:
        for k in range(n):
            out[touched[k]] = np.float64(mode)
        return 0.0
    for k in range(n):
        E[touched[k]] /= square
        for e in range(begins[touched[k]], begins[touched[k] + 1]):
            scaled[members[e]] = radii[members[e]] / strength
    size = math.sqrt(square)
    delta = strength / size if mode == 1 else 0.0
    inner = groups[0], scaled, begins, members
    value, most = _minimise(touched, n, E, inner, delta, latent)
    eta = latent[1]
    for k in range(n):
        a = touched[k]
        zeta = 0.0
        for e in range(begins[a], begins[a + 1]):
            zeta += eta[members[e]]
        if mode == 1:
            out[a] = zeta / (delta + zeta)
        else:  # no ρ of the gradient is above 1
            out[a] = strength / size / (zeta * most) if E[a] > 0 and zeta > 0 else 0.0
        E[a] *= square
    return value * size * strength


@kernel
def _minimise(touched, n, E, groups, delta, latent):
    """η at the minimum of F. Returns τ, and the largest ρ."""
    (tolerance, gap), eta, ratio, _, _, _, present, place, H, _ = latent
    count = _start(touched, n, E, groups, eta, ratio, present, place)
    upper, most = 0.0, 1.0
    for k in range(PATIENCE):
        upper, lower, most, worst = _measure(touched, n, E, groups, delta, eta, ratio, present, count)
        if worst <= tolerance or (delta == 0 and upper - lower <= gap * upper):
            break
        if k >= WARM and count <= H.shape[0]:
            _interior(touched, n, E, groups, delta, latent, count)
            upper, lower, most, worst = _measure(touched, n, E, groups, delta, eta, ratio, present, count)
            break
        for i in range(count):
            eta[present[i]] *= ratio[present[i]]
            if eta[present[i]] < 1e-290:
                eta[present[i]] = 0.0
    for i in range(count):
        place[present[i]] = 0
    return upper, most


@kernel
def _start(touched, n, E, groups, eta, ratio, present, place):
    """The groups of the atoms touched[:n] into present[:count], η where it is 0: that of the group by itself."""
    radii, begins, members = groups[1], groups[2], groups[3]
    count = 0
    for k in range(n):
        a = touched[k]
        for e in range(begins[a], begins[a + 1]):
            g = members[e]
            if place[g] == 0:
                present[count] = g
                ratio[g] = 0.0
                count += 1
                place[g] = count
            ratio[g] += E[a]
    for i in range(count):
        g = present[i]
        alone = math.sqrt(ratio[g]) / radii[g]
        eta[g] = alone if eta[g] == 0 else max(eta[g], 1e-6 * alone)
    return count


@kernel
def _measure(touched, n, E, groups, delta, eta, ratio, present, count):
    """ρ of each group. Returns the value of the split that η makes and a bound from below, the largest ρ, and the worst
    of |ρ − 1| that counts."""
    radii, begins, members = groups[1], groups[2], groups[3]
    for i in range(count):
        ratio[present[i]] = 0.0
    dual = 0.0
    largest = 0.0
    for k in range(n):
        a = touched[k]
        zeta = delta
        for e in range(begins[a], begins[a + 1]):
            zeta += eta[members[e]]
        largest = max(largest, zeta)
        if E[a] > 0 and zeta > 0:
            dual += E[a] / zeta
            for e in range(begins[a], begins[a + 1]):
                ratio[members[e]] += E[a] / (zeta * zeta)
    upper = 0.0
    total = 0.0
    most = 0.0
    worst = 0.0
    for i in range(count):
        g = present[i]
        ratio[g] = math.sqrt(ratio[g]) / radii[g]
        upper += radii[g] * radii[g] * eta[g] * ratio[g]
        total += radii[g] * radii[g] * eta[g]
        most = max(most, ratio[g])
    for i in range(count):  # ρ below 1 counts as much as the group does
        g = present[i]
        off = ratio[g] - 1.0
        share = max(eta[g] / largest, radii[g] * radii[g] * eta[g] / total) if total > 0 else 0.0
        worst = max(worst, off if off > 0 else -off * min(1.0, share))
    return upper, dual / most if most > 0 else 0.0, most if most > 0 else 1.0, worst


@kernel
def _interior(touched, n, E, groups, delta, latent, count):
    """A primal-dual interior point method: ∇F(η) = s, s_g η_g = μ → 0. Of a prox, groups that end at 0 are at 0."""
    (tolerance, gap), eta, ratio, _, gradient, step, present, place, H, dual = latent
    radii = groups[1]
    largest = 0.0
    for i in range(count):
        largest = max(largest, eta[present[i]])
    for i in range(count):
        g = present[i]
        eta[g] = max(eta[g], 1e-3 * largest)
        dual[i] = 0.1 * radii[g] * radii[g]
    for _ in range(STEPS):
        upper, lower, _, _ = _measure(touched, n, E, groups, delta, eta, ratio, present, count)
        if delta == 0 and upper - lower <= gap * upper:
            return
        product = 0.0
        residual = 0.0
        total = 0.0
        for i in range(count):
            g = present[i]
            square = radii[g] * radii[g]
            gradient[i] = 0.5 * square * (1.0 - ratio[g] * ratio[g])
            product += dual[i] * eta[g]
            total += square * eta[g]
            residual = max(residual, abs(gradient[i] - dual[i]) / square)
        if residual <= tolerance and product <= tolerance * total:
            break
        mu = product / count * (0.1 if residual < 0.1 else 0.5)
        _hessian(touched, n, E, groups, delta, eta, place, count, H)
        for i in range(count):
            g = present[i]
            gradient[i] -= mu / eta[g]
            H[i, i] += 1e-15 * H[i, i] + dual[i] / eta[g]
        _solve(H, gradient, step, count)
        along, across = 1.0, 1.0
        for i in range(count):
            g = present[i]
            change = mu / eta[g] - dual[i] - dual[i] / eta[g] * step[i]
            if step[i] < 0:
                along = min(along, -0.99 * eta[g] / step[i])
            if change < 0:
                across = min(across, -0.99 * dual[i] / change)
            gradient[i] = change
        for i in range(count):
            eta[present[i]] += along * step[i]
            dual[i] += across * gradient[i]
    if delta == 0:
        return
    largest = delta
    for i in range(count):
        largest = max(largest, eta[present[i]])
    for i in range(count):
        g = present[i]
        if eta[g] / largest < dual[i] / (radii[g] * radii[g]):
            eta[g] = 0.0


@kernel
def _hessian(touched, n, E, groups, delta, eta, place, count, H):
    """The second derivatives of F, in the upper triangle."""
    begins, members = groups[2], groups[3]
    H[:count, :count] = 0.0
    for k in range(n):
        a = touched[k]
        zeta = delta
        for e in range(begins[a], begins[a + 1]):
            zeta += eta[members[e]]
        if E[a] > 0 and zeta > 0:
            curve = E[a] / (zeta * zeta * zeta)
            for e in range(begins[a], begins[a + 1]):
                i = place[members[e]] - 1
                H[i, i] += curve
                for f in range(begins[a], e):
                    j = place[members[f]] - 1
                    H[min(i, j), max(i, j)] += curve


@kernel
def _solve(H, gradient, step, count):
    """step = −H⁻¹ gradient by Cholesky, in the upper triangle of H, four rows at a time."""
    for first in range(0, count, 4):
        last = min(first + 4, count)
        for k in range(first, last):
            pivot = 1.0 / math.sqrt(max(H[k, k], 1e-300))
            for j in range(k, count):
                H[k, j] *= pivot
            for i in range(k + 1, last):
                factor = H[k, i]
                for j in range(i, count):
                    H[i, j] -= factor * H[k, j]
        for i in range(last, count):  # there are none where fewer than four are left
            a, b, c, d = H[first, i], H[first + 1, i], H[first + 2, i], H[first + 3, i]
            for j in range(i, count):
                H[i, j] -= a * H[first, j] + b * H[first + 1, j] + (c * H[first + 2, j] + d * H[first + 3, j])
    for i in range(count):
        step[i] = -gradient[i]
    for i in range(count):
        step[i] /= H[i, i]
        for j in range(i + 1, count):
            step[j] -= H[i, j] * step[i]
    for i in range(count - 1, -1, -1):
        total = step[i]
        for j in range(i + 1, count):
            total -= H[i, j] * step[j]
        step[i] = total / H[i, i]
