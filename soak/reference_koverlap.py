"""The k-overlap norm by sorting, its prox by break points."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def overlap(z: Floats, k: int) -> tuple[Floats, Floats]:
    """‖z‖²_ovk and the level T of its tail, of rows.

    The square is the minimum of Σ z²/η over 0 ≤ η ≤ 1, Σ η ≤ k. At the minimum the largest entries have η = 1 and the
    others |z|/T, so every number of the former is tried, and that is taken at which T is between the two kinds. (Values
    cannot be compared: the squares of the largest entries may be all that is left of them.)
    """
    size = -np.sort(-np.abs(z), axis=-1)
    least = np.full(size.shape[:-1], np.inf)
    best, level = np.zeros((2, *size.shape[:-1]))
    for r in range(k):
        head, tail = size[..., : k - r - 1], size[..., k - r - 1 :]
        total = tail.sum(axis=-1)
        T = total / (r + 1)
        over = T - head[..., -1] if k - r - 1 else np.zeros_like(T)
        wrong = np.maximum(np.maximum(tail[..., 0] - T, over), 0.0)
        wrong = np.divide(wrong, T, out=np.zeros_like(T), where=T > 0)
        better = wrong < least
        least = np.where(better, wrong, least)
        best = np.where(better, (head * head).sum(axis=-1) + total * T, best)
        level = np.where(better, T, level)
    return best, level


def prox_squared(w: Floats, gamma: Any, k: int) -> Floats:
    """θ/(θ + γ)·w with θ = clip(α|w| − γ, 0, 1), α such that Σ θ = k; rows (n, d), one γ or one a row.

    Σ θ is piecewise linear in α. It is evaluated at all its corners; between the two that enclose k, α is the solution
    of a linear equation.
    """
    size, gamma = np.abs(w), np.broadcast_to(np.asarray(gamma, float), w.shape[:-1])[..., None]
    there = size > 0
    enters, full = (np.divide(top, size, out=np.zeros_like(size), where=there) for top in (gamma, gamma + 1))
    corners = np.concatenate([enters, full], axis=-1)
    sums = np.clip(corners[..., None] * size[..., None, :] - gamma[..., None], 0, 1).sum(axis=-1)
    low = np.max(corners, axis=-1, initial=0.0, where=sums < k)[..., None]
    at_one = there & (full <= low)
    between = there & (enters <= low) & ~at_one
    mass, count = (size * between).sum(axis=-1, keepdims=True), between.sum(axis=-1, keepdims=True)
    alpha = np.divide(k - at_one.sum(axis=-1, keepdims=True) + gamma * count, mass, out=low.copy(), where=mass > 0)
    theta = np.where(at_one, 1.0, np.clip(alpha * size - gamma, 0, 1))
    theta = np.where(there.sum(axis=-1, keepdims=True) <= k, 1.0, theta)
    return np.divide(theta, theta + gamma, out=np.ones_like(size), where=theta + gamma > 0) * w


def dual_norm(w: Floats, k: int) -> Floats:
    """The ℓ2 norm of the k largest magnitudes."""
    return np.sqrt(np.sort(w * w, axis=-1)[..., -k:].sum(axis=-1))


def prox_norm(w: Floats, gamma: float, k: int) -> Floats:
    """w minus its projection on the ball of radius γ of the dual norm.

    With a multiplier λ that projection is the prox of ½λ‖·‖²_*, and what it leaves of w, by Moreau, the prox of
    ‖·‖²_ovk/2λ. The dual norm of the former falls with λ, which is found by bisection.
    """
    norm = dual_norm(w, k)
    out, far = np.zeros_like(w), norm > gamma
    if gamma == 0 or not far.any():
        return w.copy() if gamma == 0 else out
    unit, radius = w[far] / norm[far][:, None], gamma / norm[far]
    low, high = np.zeros_like(radius), 1 / radius
    for step in range(80):
        middle = high if step < 8 else 0.5 * (low + high)
        over = dual_norm(unit - prox_squared(unit, 1 / middle, k), k) > radius
        low = np.where(over, middle, low)
        high = np.where(over, 2 * high if step < 8 else high, middle)
    out[far] = norm[far][:, None] * prox_squared(unit, 1 / high, k)
    return out
