"""Moves of the package next to those of the reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from soak import reference
from soak.problems_bounds import EPS, GROUPS, LATENT, LATENT_MOVE, MOVE, WORST, Floats, close, finite, require
from soak.reference import Penalty
from soak.reference_pool import pair_weights, pooled_displacement


@dataclass(frozen=True)
class Field:
    """Samples and targets without frozen features, the weights p of the latter, and by how much these may be off.

    With W, the field is averaged over the samples by its rows; without, each sample has its own.
    """

    X: Floats
    Y: Floats
    p: Floats
    off: Floats
    W: Floats | None = None

    def move(self, penalty: Penalty, occam: bool, relax: float, least: float = 0.0) -> tuple[Floats, Floats]:
        """By the reference, with the margin."""
        if self.W is None:
            return reference.displacement(penalty, self.X, self.Y, self.p, occam, relax, least)
        return pooled_displacement(penalty, self.X, self.Y, self.p, self.W, occam, relax, least)

    def size(self) -> Floats:
        """How large the numbers are that each move is a difference of."""
        size = np.abs(self.X)
        if self.W is not None:
            size = np.stack([size[row > 0].max(axis=0) for row in self.W])
        return np.asarray(size + np.abs(self.Y).max(axis=0))

    def wrong(self) -> Floats:
        """How much of the weights of each move may be wrong."""
        off = self.off.sum(axis=1)
        return np.asarray(np.minimum(off if self.W is None else self.W @ off, 1.0))

    def open(self, penalty: Penalty) -> Floats:
        """How far fields of overlapping groups may be apart, one number a move."""
        slack = penalty.grouped(self.X.shape[1]).open(self.X[:, None] - self.Y, LATENT)
        if self.W is None:
            return np.linalg.norm(np.einsum("ij,ijt->it", self.p, slack), axis=1)
        return np.linalg.norm(pair_weights(self.W, self.p) @ slack.reshape(-1, self.X.shape[1]), axis=1)


@dataclass(frozen=True)
class Moves:
    """How the moves of a model are compared: its penalty, the largest fitted entry, whether groups overlap."""

    model: Any
    penalty: Penalty
    fitted: float
    latent: bool

    def compare(self, what: str, points: Any, x: Floats, field: Field, got: Floats, dtype: Any) -> None:
        """`got` are the moves of the points x, computed in a precision of `dtype`."""
        finite(got, what)
        read = self.penalty, self.model.ties == "occam", self.model.relax
        wanted, margin = field.move(*read)
        if self.penalty.name == "L1":  # a mass that rounding cannot tell from 0, times γ, may decide about a feature
            without, low = field.move(*read, least=MOVE * EPS[dtype])
            wanted = np.clip(got, np.minimum(wanted, without), np.maximum(wanted, without))
            margin = np.maximum(margin, low)
        size = field.size()
        strength = self._strength(size, pooled=field.W is not None)
        relative = MOVE * EPS[dtype] + (GROUPS if self.penalty.name == "GroupLasso" else 0.0)
        largest = max(np.abs(x).max(), self.fitted) if self.fitted > 0 else np.inf
        rounding = np.minimum(relative * (size + strength), WORST * largest)
        allowed = rounding + LATENT_MOVE * self.latent * (size + strength)
        if self.latent:  # a prox brings no two fields further apart
            allowed = allowed + field.open(self.penalty)[:, None]
        allowed = allowed + field.wrong()[:, None] * 3 * (size + strength)
        shown = allowed + 2 * EPS[points.dtype] * (np.abs(wanted) + (what != "displacement") * np.abs(x)) + 1e-44
        if self.model.debias:  # it keeps some moves as they are, and leaves out the others
            wanted = np.where(got == 0, 0.0, wanted)
        elif what == "displacement":
            clear = (margin < -allowed) & (got != 0)
            require(not clear.any(), f"{what} moves a feature below its threshold")
        close(got, wanted, shown, what)

    def _strength(self, size: Floats, pooled: bool) -> Floats:
        penalty, d = self.penalty, size.shape[1]
        if penalty.name in ("SqL2", "L1"):
            return np.where(np.isinf(penalty.strengths(d)), 0.0, penalty.strengths(d))
        if penalty.name == "STVS":
            return np.full_like(size, penalty.gamma)
        largest = size.max(axis=1, keepdims=True)
        if penalty.name == "KOverlap":
            return 8 * (1 + penalty.gamma) * largest if penalty.squared else largest + penalty.gamma
        if penalty.name == "GroupLasso":
            return largest + penalty.gamma + max((r for _, r in penalty.grouped(d).members), default=0.0)
        return (1 + penalty.gamma) * largest if pooled else 0 * size  # a sample by itself moves to a mean of targets
