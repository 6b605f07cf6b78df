"""Costs and maps once more, plainly: float64, dense, from the formulas. Nothing here is taken from the package.

A penalty is a `Penalty`, whose methods take rows z of shape (…, d). Sorting and bisection stand where the package has
selection and Newton steps; overlapping groups are between bounds that prove each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from soak.reference_groups import Groups
from soak.reference_koverlap import dual_norm, overlap, prox_norm, prox_squared

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Penalty:
    """τ by name and parameters; those that a name does not have stay as they are."""

    name: str
    gamma: float = 0.0
    weights: Floats | None = None
    k: int = 1
    squared: bool = True
    groups: Sequence[Sequence[int]] = ()
    group_weights: Sequence[float] | None = None
    l1_ratio: float = 0.0
    basis: Floats | None = None

    def frozen(self, d: int) -> NDArray[np.bool_]:
        """Features that must not move."""
        if self.name == "L1":
            return np.isinf(self.strengths(d))
        return self.grouped(d).frozen if self.name == "GroupLasso" else np.zeros(d, bool)

    def strengths(self, d: int) -> Floats:
        """γ w_t of ℓ1."""
        if self.name == "SqL2":
            return np.zeros(d)
        weights = np.ones(d) if self.weights is None else self.weights
        return np.array([np.inf if np.isinf(w) else self.gamma * w for w in weights])

    def grouped(self, d: int) -> Groups:
        return Groups(self.gamma, self.groups, self.group_weights, self.l1_ratio, d)

    def value(self, z: Floats) -> Floats:
        """h(z) = ½‖z‖² + τ(z); the upper bound where groups overlap."""
        return 0.5 * (z * z).sum(axis=-1) + self.penalty(z)

    def penalty(self, z: Floats) -> Floats:
        size = np.abs(z)
        if self.name in ("SqL2", "L1"):
            strengths = np.broadcast_to(self.strengths(z.shape[-1]), z.shape)
            return np.multiply(strengths, size, out=np.zeros_like(size), where=size > 0).sum(axis=-1)
        if self.name == "STVS":
            if self.gamma == 0:
                return np.zeros(z.shape[:-1])
            sigma = np.arcsinh(size / (2 * self.gamma))
            return self.gamma**2 * (sigma - 0.5 * np.expm1(-2 * sigma)).sum(axis=-1)
        if self.name == "KOverlap":
            square = overlap(z, self.k)[0]
            return 0.5 * self.gamma * square if self.squared else self.gamma * np.sqrt(square)
        if self.name == "Subspace":
            return 0.5 * self.gamma * (self._outside(z) ** 2).sum(axis=-1)
        return self.grouped(z.shape[-1]).penalty(z)

    def gradient(self, z: Floats) -> Floats:
        """∇h(z), with sign(0) = 0."""
        if self.name in ("SqL2", "L1"):
            strengths = np.broadcast_to(self.strengths(z.shape[-1]), z.shape)
            return z + np.multiply(strengths, np.sign(z), out=np.zeros_like(z), where=z != 0)
        if self.name == "STVS":
            size = np.abs(z)
            return z + np.sign(z) * (np.sqrt(z * z + 4 * self.gamma**2) - size) / 2
        if self.name == "KOverlap":
            square, level = overlap(z, self.k)
            slope = np.full(square.shape, self.gamma)
            if not self.squared:
                slope = np.divide(self.gamma, np.sqrt(square), out=np.zeros_like(square), where=square > 0)
            return z + slope[..., None] * np.sign(z) * np.maximum(np.abs(z), level[..., None])
        if self.name == "Subspace":
            return z + self.gamma * self._outside(z)
        return z + self.grouped(z.shape[-1]).slope(z)

    def prox(self, w: Floats) -> Floats:
        """argmin_z ½‖z − w‖² + τ(z)"""
        size = np.abs(w)
        if self.name in ("SqL2", "L1"):
            return np.sign(w) * np.maximum(size - self.strengths(w.shape[-1]), 0)
        if self.name == "STVS":
            kept = size > self.gamma
            return np.where(kept, w - np.divide(self.gamma**2, w, out=np.zeros_like(w), where=kept), 0.0)
        if self.name == "KOverlap":
            return (prox_squared if self.squared else prox_norm)(w, self.gamma, self.k)
        if self.name == "Subspace":
            return w - self.gamma / (1 + self.gamma) * self._outside(w)
        return self.grouped(w.shape[-1]).prox(w)

    def margin(self, w: Floats) -> Floats:
        """How far entries of w are above the threshold below which the prox is 0; NaN where that is not known."""
        if self.name == "STVS":
            return np.abs(w) - self.gamma
        if self.name == "GroupLasso":
            return self.grouped(w.shape[-1]).margin(w)
        if self.name == "KOverlap" and not self.squared:
            return np.broadcast_to(np.minimum(dual_norm(w, self.k) - self.gamma, 0)[..., None], w.shape)
        return np.full_like(w, np.nan)

    def _outside(self, z: Floats) -> Floats:
        assert self.basis is not None
        return z - (z @ self.basis.T) @ self.basis


def log_sum(s: Floats, weights: Floats, axis: int) -> Floats:
    """log Σ w e^s along an axis, without overflow; weights may be 0, though not all."""
    top, terms = _terms(s, weights, axis)
    return np.squeeze(top + np.log(np.sum(terms, axis=axis, keepdims=True)), axis=axis)


def gibbs(C: Floats, g: Floats, b: Floats, epsilon: float) -> tuple[Floats, Floats]:
    """p_j(x) ∝ b_j exp((g_j − C_j)/ε), and the potential −ε log of their sum."""
    top, terms = _terms((g - C) / epsilon, b, 1)
    total = terms.sum(axis=1, keepdims=True)
    return terms / total, -epsilon * (top + np.log(total))[:, 0]


def _terms(s: Floats, weights: Floats, axis: int) -> tuple[Floats, Floats]:
    """The largest s that has weight, and w e^(s − largest)."""
    held = np.broadcast_to(weights > 0, s.shape)
    top = np.max(s, axis=axis, keepdims=True, initial=-np.inf, where=held)
    return top, np.where(held, weights * np.exp(np.minimum(s - top, 0.0)), 0.0)


def displacement(
    penalty: Penalty, X: Floats, Y: Floats, p: Floats, occam: bool, relax: float, least: float = 0.0
) -> tuple[Floats, Floats]:
    """Δ(x) = −prox_τ(Σ_j p_j ∇h(x − y_j)), and how far each entry of the field is from its threshold, if that is known.

    The margin is NaN where it is not. For ℓ1, masses below `least` count for nothing.
    """
    return move_pairs(penalty, X[:, None, :] - Y[None, :, :], p @ Y - X, p, occam, relax, least)


def move_pairs(
    penalty: Penalty, z: Floats, shift: Floats, p: Floats, occam: bool, relax: float, least: float = 0.0
) -> tuple[Floats, Floats]:
    """−prox_τ(Σ_j p_j ∇h(z_j)) of each row of p, and the margin; z are its pairs, or one set of pairs for all rows.

    `shift` is −Σ_j p_j z_j, from fewer roundings.
    """
    if penalty.name in ("SqL2", "L1"):
        move, margin = _elastic(penalty, z, shift, p, occam, least)
    elif penalty.name == "Subspace":
        move, margin = shift, np.full_like(shift, np.nan)  # a quadratic h: the mean of the targets
    else:
        field = np.einsum("ij,ijt->it", p, penalty.gradient(z))
        if occam and penalty.name == "GroupLasso":
            field = penalty.grouped(z.shape[-1]).least(field, z, p)
        elif occam:
            slack = np.einsum("ij,ijt->it", p, (z == 0) * _kink(penalty, z))
            field = np.sign(field) * np.maximum(np.abs(field) - slack, 0)
        move, margin = -penalty.prox(field), penalty.margin(field)
        if occam and penalty.name == "KOverlap" and not penalty.squared:  # ∂τ(0), a ball, adds to that of the prox
            equal = np.sum(p * (z == 0).all(axis=-1), axis=1)
            for i in np.flatnonzero(equal):
                stronger = replace(penalty, gamma=(1 + equal[i]) * penalty.gamma)
                move[i], margin = -stronger.prox(field[i : i + 1])[0], np.array(margin)
                margin[i] = stronger.margin(field[i : i + 1])[0]
    return np.where(move != 0, (1 - relax) * move + relax * shift, 0.0), margin


def _elastic(
    penalty: Penalty, z: Floats, shift: Floats, p: Floats, occam: bool, least: float
) -> tuple[Floats, Floats]:
    """ℓ1 by the masses below, at and above x, which sum to 1: Σ_j p_j sign(z_j) ∓ 1 is −2 above − at, or 2 below + at.

    So γ, which may be larger than x by many digits, is multiplied by what is left of it.
    """
    below, at, above = (np.einsum("ij,ijt->it", p, mask.astype(float)) for mask in (z > 0, z == 0, z < 0))
    below, at, above = (np.where(mass > least, mass, 0.0) for mass in (below, at, above))
    strengths = penalty.strengths(z.shape[-1])
    finite = np.where(np.isinf(strengths), 0.0, strengths)
    at = at * (1 + occam)
    down, up = -shift - finite * (2 * above + at), -shift + finite * (2 * below + at)
    move = -(np.maximum(down, 0) + np.minimum(up, 0))
    return np.where(np.isinf(strengths), 0.0, move), np.maximum(down, -up)


def _kink(penalty: Penalty, z: Floats) -> Floats:
    """Half the width of ∂τ where a feature is 0, of each pair."""
    if penalty.name == "STVS":
        return np.full((*z.shape[:-1], 1), penalty.gamma)
    square, level = overlap(z, penalty.k)
    slope = np.full(square.shape, penalty.gamma)
    if not penalty.squared:
        slope = np.divide(penalty.gamma, np.sqrt(square), out=np.zeros_like(square), where=square > 0)
    return (slope * level)[..., None]
