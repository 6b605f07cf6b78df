"""Norms of groups of features: penalty, gradient and prox of rows, and the room that kernels work in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from occamap._kernels import groups as kernels
from occamap._kernels import latent
from occamap._validate import Samples
from occamap.costs.groups import Floats, Layout

PRECISE, QUICK = (1e-12, 0.0), (1e-5, 1e-5)
"""How well overlapping groups are balanced, and how far the value may be from a bound: for vectors, and for pairs."""


@dataclass(frozen=True, eq=False)
class GroupNorms:
    """Σ_g λ_g‖z_g‖₂, or its latent form where groups overlap; λ are the `radii`."""

    layout: Layout
    radii: Floats

    @property
    def groups(self) -> tuple[Any, ...]:
        return self.layout.atoms, self.radii, self.layout.begins, self.layout.members

    @property
    def grouped(self) -> NDArray[np.bool_]:
        """The features that are in a group."""
        return np.asarray(self.layout.atoms >= 0)

    def latent(self, accuracy: tuple[float, float] = PRECISE) -> tuple[Any, ...] | None:
        """What the balance between overlapping groups needs; None where none overlap."""
        return latent.room(self.radii.size, *accuracy) if self.layout.overlapping else None

    def rows(self, z: Samples, mode: int) -> tuple[Floats, Floats]:
        """The penalty of each row, and the factor of each entry: SLOPE for the gradient, SHRINK for the prox."""
        indptr, indices = _ragged(z)
        penalty, factors = np.empty(z.shape[0]), np.empty(z.data.size)
        given = self.groups, self.latent(), mode, *self.scratch(), penalty, factors
        kernels.row_scales(indptr, indices, z.data.ravel(), *given)
        return penalty, factors.reshape(z.data.shape)

    def kink_sums(self, off: sp.csr_array, y: Samples) -> Floats:
        """The sup of ⟨u, off⟩ over what ∂τ(y) leaves open, of each row."""
        out, (E, touched, scale), n = np.empty(off.shape[0]), self.scratch(), self.layout.n_atoms
        steps = off.indptr.astype(np.int64), off.indices.astype(np.int32), off.data.astype(np.float64)
        room = E, touched, np.zeros(n, np.int8), scale, np.empty(self.radii.size)
        kernels.kink_sums(*steps, *_ragged(y), y.data.ravel(), self.groups, self.latent(), *room, out)
        return out

    def work(self) -> tuple[Any, ...]:
        """Room for one sample x, written to a dense place, against others."""
        n, d = self.layout.n_atoms, self.layout.atoms.size
        counts = np.zeros(n, np.int64), np.full(n, -1.0), np.zeros(n), np.zeros(n, np.int64)
        return np.zeros(d), np.zeros(n), *counts, np.empty(n, np.int64), np.empty(n, np.int64), np.zeros(n)

    def scratch(self) -> tuple[Any, ...]:
        """Room for the squares of one row, its atoms and their factors."""
        n = self.layout.n_atoms
        return np.zeros(n), np.empty(n, np.int64), np.zeros(n)


def _ragged(z: Samples) -> tuple[Any, Any]:
    """Where rows begin and end, and their features; None where they are dense."""
    if z.indptr is None:
        return np.arange(z.shape[0] + 1, dtype=np.int64) * z.shape[1], None
    return z.indptr, z.indices
