"""The group lasso: norms of groups that lie apart by their formulas, of groups that overlap between two bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

STEPS = 4000  # of the iteration between overlapping groups, which is plain and slow


@dataclass(frozen=True)
class Groups:
    """γ[(1 − ρ) Σ_g w_g‖z_g‖ + ρ‖z‖₁]; a feature in no group is one of its own, of weight 1."""

    gamma: float
    groups: Sequence[Sequence[int]]
    weights: Sequence[float] | None
    l1_ratio: float
    d: int

    @cached_property
    def members(self) -> list[tuple[list[int], float]]:
        """The features and γ(1 − ρ)w of each group that counts.

        Features that a group of weight 0 holds move for nothing; a group of weight ∞ helps nobody.
        """
        weights = [len(g) ** 0.5 for g in self.groups] if self.weights is None else self.weights
        free = {t for group, w in zip(self.groups, weights, strict=True) if w == 0 for t in group}
        kept = [
            (sorted(set(group) - free), self.gamma * (1 - self.l1_ratio) * w)
            for group, w in zip(self.groups, weights, strict=True)
            if 0 < w < np.inf
        ]
        held = {t for group in self.groups for t in group}
        alone = [([t], self.gamma * (1 - self.l1_ratio)) for t in range(self.d) if t not in held]
        return [(group, radius) for group, radius in kept + alone if group and radius > 0]

    @cached_property
    def frozen(self) -> NDArray[np.bool_]:
        weights = [1.0] * len(self.groups) if self.weights is None else self.weights
        out = np.zeros(self.d, bool)
        for forbidden in (True, False):
            for group, w in zip(self.groups, weights, strict=True):
                if np.isinf(w) == forbidden:
                    out[list(group)] = forbidden
        return out

    @property
    def overlap(self) -> bool:
        held = [t for group, _ in self.members for t in group]
        return len(held) > len(set(held))

    @property
    def _l1(self) -> float:
        return self.gamma * self.l1_ratio

    def penalty(self, z: Floats) -> Floats:
        """τ; where groups overlap the upper bound, of a split that is allowed."""
        return self.bounds(z)[1]

    def bounds(self, z: Floats) -> tuple[Floats, Floats]:
        l1 = self._l1 * np.abs(z).sum(axis=-1)
        if not self.overlap:
            total = l1 + sum((r * _norm(z[..., group]) for group, r in self.members), np.zeros(z.shape[:-1]))
            return total, total
        _, low, high = self._balance(z)
        return l1 + low, l1 + high

    def slope(self, z: Floats) -> Floats:
        """∇τ, 0 where z is."""
        slope = self._l1 * np.sign(z)
        if self.overlap:
            return slope + self._balance(z)[0]
        for group, radius in self.members:
            mine = z[..., group]
            norm = _norm(mine)[..., None]
            slope[..., group] += radius * np.divide(mine, norm, out=np.zeros_like(mine), where=norm > 0)
        return slope

    def prox(self, w: Floats) -> Floats:
        """Soft thresholding, then block by block; by Dykstra's projections where groups overlap."""
        kept = np.where(self.frozen, 0.0, np.sign(w) * np.maximum(np.abs(w) - self._l1, 0))
        if self.overlap:
            return kept - self._project(kept)
        for group, radius in self.members:
            norm = _norm(kept[..., group])[..., None]
            kept[..., group] *= np.maximum(1 - np.divide(radius, norm, out=np.ones_like(norm), where=norm > 0), 0)
        return kept

    def margin(self, w: Floats) -> Floats:
        """How far entries of w are above the threshold below which they do not move; NaN where groups overlap."""
        margin, kept = np.abs(w) - self._l1, np.maximum(np.abs(w) - self._l1, 0)
        if self.overlap:
            return np.full_like(w, np.nan)
        for group, radius in self.members:
            margin[..., group] = np.minimum(margin[..., group], (_norm(kept[..., group]) - radius)[..., None])
        return margin

    def least(self, field: Floats, z: Floats, p: Floats) -> Floats:
        """The element of Σ_j p_j ∂h(z_j) that moves least, of groups that lie apart."""
        slack = np.einsum("ij,ijt->it", p, (z == 0) * self._l1)
        field = np.sign(field) * np.maximum(np.abs(field) - slack, 0)
        for group, radius in self.members:
            norm = _norm(field[:, group])
            slack = radius * np.einsum("ij,ij->i", p, (z[..., group] == 0).all(axis=-1).astype(float))
            kept = 1 - np.divide(slack, norm, out=np.ones_like(norm), where=norm > 0)
            field[:, group] *= np.maximum(kept, 0)[:, None]
        return field

    def open(self, z: Floats, share: float) -> Floats:
        """By how much the slope of each feature may differ between vectors u that reach ⟨u, z⟩ = τ(z) but for a share.

        A feature so small that it takes part by less than that has any slope that its groups allow.
        """
        radius = np.zeros(self.d)
        for group, r in self.members:
            radius[group] = np.maximum(radius[group], r)
        most = 2 * radius
        return np.where((z != 0) & (np.abs(z) * most <= share * self.penalty(z)[..., None]), most, 0.0)

    def _balance(self, z: Floats) -> tuple[Floats, Floats, Floats]:
        """A slope u with ‖u_g‖ ≤ r_g for all groups, ⟨u, z⟩ ≤ τ(z), and the cost of a split of z, at least τ(z).

        z is split in proportion to a number a group, which is multiplied by ‖u_g‖/r_g until all are 1 or vanish.
        """
        mask = np.array([[t in group for t in range(self.d)] for group, _ in self.members], float)
        radii = np.array([radius for _, radius in self.members])
        size = np.maximum(np.abs(z).max(axis=-1, keepdims=True), 1e-300)
        unit, strongest = z / size, radii.max()
        radii = radii / strongest
        share = np.sqrt((unit * unit) @ mask.T) / radii
        for step in range(STEPS):
            zeta = share @ mask
            u = np.divide(unit, zeta, out=np.zeros_like(unit), where=zeta > 0)
            ratio = np.sqrt((u * u) @ mask.T) / radii
            if step % 50 == 0 or step == STEPS - 1:
                high = (radii * radii * share * ratio).sum(axis=-1)
                most = ratio.max(axis=-1)
                low = np.divide((u * unit).sum(axis=-1), most, out=np.zeros_like(most), where=most > 0)
                if (high - low <= 1e-9 * high).all():
                    break
            share = share * ratio
        u = np.divide(u, most[..., None], out=np.zeros_like(u), where=most[..., None] > 0)
        scale = size[..., 0] * strongest
        return u * strongest, low * scale, high * scale

    def _project(self, w: Floats) -> Floats:
        """On all vectors with ‖u_g‖ ≤ r_g, by Dykstra's method."""
        u, corrections = w.copy(), [np.zeros(w[..., group].shape) for group, _ in self.members]
        for _ in range(STEPS // 4):
            before = u.copy()
            for (group, radius), correction in zip(self.members, corrections, strict=True):
                moved = u[..., group] + correction
                norm = _norm(moved)[..., None]
                inside = moved * np.minimum(1.0, np.divide(radius, norm, out=np.ones_like(norm), where=norm > radius))
                correction[:] = moved - inside
                u[..., group] = inside
            if np.abs(u - before).max() <= 1e-9 * np.abs(u).max():
                break
        return u - w * self._outside()

    def _outside(self) -> Floats:
        """1 for features in no group, which no norm pays for."""
        held = {t for group, _ in self.members for t in group}
        return np.array([t not in held for t in range(self.d)], float)


def _norm(z: Floats) -> Floats:
    return np.sqrt((z * z).sum(axis=-1))
