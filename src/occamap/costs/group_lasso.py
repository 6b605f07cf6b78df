"""Penalties of groups of features, such as pathways: the group lasso, sparse and latent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from occamap._kernels.groups import SHRINK, SLOPE
from occamap._validate import Samples, check_number
from occamap._workers import Workers
from occamap.costs.base import Cost, Tick, check_strength
from occamap.costs.generic import Displacer, Floats, LinearPairs, Pairs
from occamap.costs.group_norms import GroupNorms
from occamap.costs.group_pairs import GroupDisplacer, GroupPairs, check_ties, group_bytes
from occamap.costs.groups import arrange, check_group_weights, check_groups
from occamap.costs.l1 import L1, forbid
from occamap.errors import InputError


@dataclass(frozen=True, eq=False, repr=False)
class GroupLasso(Cost):
    """½‖z‖² + γ[(1 − ρ) Σ_g w_g‖z_g‖₂ + ρ‖z‖₁], ρ being `l1_ratio`: the features of a group move together, or not.

    With ρ = 0 a group moves as a whole, with ρ > 0 only some of its features may move (sparse group lasso), and with
    ρ = 1 the cost is that of `L1`. Features in no group are groups of their own, of weight 1, as in `L1(gamma)`.

    Groups may overlap. The norm is then the latent one: z is split between the groups in the cheapest way,
    min Σ_g w_g‖v_g‖₂ over the sums Σ_g v_g = z in which v_g is 0 outside of g. What moves is a union of groups, and a
    feature of two groups moves if either does. It is found by iteration for every pair of samples, to 1e-5 of the cost,
    which takes some 0.2 ms with 50 groups and 4 ms with 190: thousands of times as long as `L1`. Vectors are exact to
    about 1e-6 of their largest entry, but for the gradient in features that differ by too little to count for 1e-5 of
    the cost: it is open within what their groups allow.

    Parameters
    ----------
    gamma
        Strength γ ≥ 0 of the penalty, in units of the features.
    groups
        Lists of feature indices, or a dict of them by name.
    weights
        One weight w_g ≥ 0 a group (a dict, if groups have names), √(number of its features) if None. 0 leaves its
        features free, ∞ forbids them to move, unless another group holds them too.
    l1_ratio
        From 0 to 1, the share ρ of the ℓ1 norm.

    Examples
    --------
    >>> GroupLasso(1.0, [[0, 1], [2, 3]], weights=[1, 1]).prox([3.0, 4.0, 0.1, 0.2, 5.0]).round(1).tolist()
    [2.4, 3.2, 0.0, 0.0, 4.0]
    """

    gamma: float
    groups: Any
    weights: ArrayLike | None = None
    l1_ratio: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "gamma", check_number(self.gamma, "gamma", 0, 1e100))
        object.__setattr__(self, "l1_ratio", check_number(self.l1_ratio, "l1_ratio", 0, 1))
        object.__setattr__(self, "groups", check_groups(self.groups))
        object.__setattr__(self, "weights", check_group_weights(self.weights, self.groups))

    def __repr__(self) -> str:
        features = np.unique(np.concatenate(list(self.groups.values()))).size
        weighted = "" if self.weights is None else ", weights=…"
        return (
            f"GroupLasso(gamma={self.gamma:g}, groups=<{len(self.groups)} of {features} features>{weighted}, "
            f"l1_ratio={self.l1_ratio:g})"
        )

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}

    def _check_features(self, d: int) -> None:
        if self._largest >= d:
            name = next(name for name, found in self.groups.items() if found[-1] >= d)
            most = self.groups[name][-1]
            raise InputError(f"groups must have indices below the number of features, {d}; group {name!r} has {most}")

    # -- parts -------------------------------------------------------------------------------------------------

    @cached_property
    def _largest(self) -> int:
        return max(int(found[-1]) for found in self.groups.values())

    @cached_property
    def _parts(self) -> dict[int, tuple[L1, GroupNorms]]:
        return {}

    def _split(self, d: int) -> tuple[L1, GroupNorms]:
        """The cost of features by themselves, with ½‖z‖², and the norms of groups."""
        if d not in self._parts:
            layout, ratio = arrange(self.groups, self.weights, d), self.l1_ratio
            frozen = np.isinf(layout.alone)
            alone = np.where(frozen, np.inf, self.gamma * (ratio + (1 - ratio) * np.where(frozen, 0.0, layout.alone)))
            radii = self.gamma * (1 - ratio) * layout.radii
            if not radii.any():  # they are no penalty: the groups do not count
                layout, radii = layout.empty(), np.empty(0)
            self._parts[d] = L1(1.0, alone), GroupNorms(layout, radii)
        return self._parts[d]

    def _rest(self, d: int) -> L1:
        return self._split(d)[0]

    def _norms(self, d: int) -> GroupNorms:
        return self._split(d)[1]

    # -- what base.py asks for ---------------------------------------------------------------------------------

    def _values(self, z: Samples) -> Floats:
        rest, norms = self._split(z.shape[1])
        return rest._values(z) + norms.rows(z, SLOPE)[0]

    def _gradient(self, z: Samples) -> NDArray[Any]:
        rest, norms = self._split(z.shape[1])
        wide = z.astype(np.float64)
        return np.asarray(rest._gradient(wide) + norms.rows(z, SLOPE)[1] * wide.data, z.dtype)

    def _prox(self, w: Samples) -> NDArray[Any]:
        rest, norms = self._split(w.shape[1])
        wide = w.astype(np.float64)
        kept = replace(wide, data=rest._prox(wide))
        return np.asarray(norms.rows(kept, SHRINK)[1] * kept.data, w.dtype)

    def _kink(self, z: Samples) -> Floats:
        return self._rest(z.shape[1])._kink(z)

    def _kink_sum(self, off: sp.csr_array, y: Samples) -> Floats:
        return super()._kink_sum(off, y) + self._norms(y.shape[1]).kink_sums(off, y)

    def _n_balls(self, d: int) -> int:
        return self._norms(d).layout.n_atoms

    def _slack(self, z: Samples, p: Floats) -> tuple[Floats, Floats]:
        layout, (slack, _) = self._norms(z.shape[1]).layout, super()._slack(z, p)
        check_ties(layout)
        tied = [p @ ~z.data[:, layout.atoms == group].any(axis=1) for group in range(layout.n_atoms)]
        return slack, np.array(tied, dtype=np.float64)

    def _least(self, field: Floats, slack: Floats, balls: Floats) -> Floats:
        norms, field = self._norms(field.size), super()._least(field, slack, balls)
        for group, radius in enumerate(norms.radii):
            mine = norms.layout.atoms == group
            size = np.linalg.norm(field[mine])
            field[mine] *= max(0.0, 1 - radius * balls[group] / size) if size > 0 else 0.0
        return field

    def _frozen(self, d: int) -> NDArray[np.bool_]:
        return self._rest(d)._frozen(d)

    def _check_scale(self, largest: float) -> None:
        sizes = np.array([found.size for found in self.groups.values()])
        weights = np.sqrt(sizes) if self.weights is None else np.asarray(self.weights)
        strongest = self.gamma * np.max(weights, initial=1.0, where=np.isfinite(weights))
        check_strength(strongest, largest, "gamma times the weight of a group", "L1, whose moves stay exact")

    def _fits_float32(self, largest: float) -> bool:
        if not super()._fits_float32(largest):
            return False
        weights = np.sqrt(self._largest + 1) if self.weights is None else np.asarray(self.weights)
        return bool(self.gamma * np.max(weights, initial=1.0, where=np.isfinite(weights)) < 1e9)

    def _fill(self, X: Samples, Y: Samples, out: Floats, workers: Workers, tick: Tick = None) -> None:
        frozen = self._frozen(X.shape[1])
        super()._fill(X.without(frozen), Y.without(frozen), out, workers, tick)
        forbid(X, Y, frozen, out, workers)

    def _pairs(self, Y: Samples) -> Pairs:
        return GroupPairs(self, Y)

    def _more_bytes(self, Y: Samples) -> int:
        return group_bytes(Y)

    def _linear(self, Y: Samples) -> LinearPairs | None:
        return GroupPairs(self._with_gamma(1.0), Y)

    def _displacer(self, Y: Samples) -> Displacer:
        return GroupDisplacer(GroupPairs(self, Y))
