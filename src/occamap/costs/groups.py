"""Groups of features, checked, and what they become for so many features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from occamap._validate import check_reals
from occamap.errors import InputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Names = str | int
Groups = dict[Names, Ints]

LARGEST = 2**31 - 1


@dataclass(frozen=True, eq=False)
class Layout:
    """The groups as the kernels see them.

    Features that the same groups hold are one atom: the norms of a vector follow from the squares of its atoms alone.
    Where no two groups overlap, an atom is a group.

    Attributes
    ----------
    atoms
        The atom of each feature; −1 for one that is in no group that counts.
    radii
        The weight of each group that counts: finite, and above 0.
    begins, members
        The groups of atom a are members[begins[a] : begins[a + 1]].
    alone
        The weight of each feature by itself: 1 in no group, that of its group if it is the only one in it; ∞ if frozen.
    """

    atoms: NDArray[np.int32]
    radii: Floats
    begins: Ints
    members: Ints
    alone: Floats

    @property
    def overlapping(self) -> bool:
        return self.members.size > self.n_atoms

    @property
    def n_atoms(self) -> int:
        return self.begins.size - 1

    def empty(self) -> Layout:
        """Without any group."""
        atoms = np.full_like(self.atoms, -1)
        return Layout(atoms, np.empty(0), np.zeros(1, np.int64), np.empty(0, np.int64), self.alone)


def check_groups(groups: Any) -> Groups:
    """Names and sorted, read-only indices of each group; numbers are the names where a list is given."""
    if isinstance(groups, Mapping):
        given = {(name if isinstance(name, int) else str(name)): entry for name, entry in groups.items()}
        if len(given) != len(groups):
            raise InputError("groups must have names of their own")
    elif isinstance(groups, list | tuple) or (isinstance(groups, np.ndarray) and groups.ndim == 2):
        given = dict(enumerate(groups))
    else:
        kind = type(groups).__name__
        raise InputError(f"groups must be a list of index lists, or a dict of them by name; got {kind}")
    if not given:
        raise InputError("groups must hold at least one group; got none")
    return {name: _indices(name, entry) for name, entry in given.items()}


def _indices(name: Names, entry: Any) -> Ints:
    if isinstance(entry, str | bytes) or not isinstance(entry, Iterable):
        raise InputError(f"groups must be lists of feature indices (whole numbers from 0); group {name!r} is {entry!r}")
    found = np.asarray(entry if isinstance(entry, np.ndarray) else list(entry))
    if found.ndim != 1 or found.size == 0 or found.dtype.kind not in "iu":
        what = f"{found.dtype} of shape {found.shape}" if found.size else "none"
        names = "; for sets of gene names there is tl.monge_map(gene_sets=…)" if found.dtype.kind in "UO" else ""
        raise InputError(
            f"groups must be lists of feature indices (whole numbers from 0); group {name!r} has {what}{names}"
        )
    if found.min() < 0 or found.max() > LARGEST:
        bad = found.min() if found.min() < 0 else found.max()
        raise InputError(f"groups must be lists of feature indices (whole numbers from 0); group {name!r} has {bad}")
    indices = np.unique(found.astype(np.int64))
    indices.setflags(write=False)
    return indices


def check_group_weights(weights: Any, groups: Groups) -> Floats | None:
    """One number ≥ 0 a group, by name if it is a dict; read-only."""
    if weights is None:
        return None
    if isinstance(weights, Mapping):
        named = {(name if isinstance(name, int) else str(name)): value for name, value in weights.items()}
        missing = [name for name in groups if name not in named]
        if missing or len(named) != len(groups):
            other = missing[0] if missing else next(name for name in named if name not in groups)
            raise InputError(f"weights must have the names of groups; {other!r} is in one of them alone")
        weights = [named[name] for name in groups]
    if hasattr(weights, "index") and hasattr(weights, "to_dict"):
        raise InputError("weights must be a plain list in the order of the groups, or a dict: pass weights.to_dict()")
    values = check_reals(weights, "weights")
    if values.shape != (len(groups),):
        raise InputError(f"weights must be one number for each of the {len(groups)} groups; got {values.shape}")
    if not np.all(values >= 0):
        raise InputError(f"weights must be ≥ 0 (or infinity); got {values[~(values >= 0)][0]}")
    if values[np.isfinite(values)].max(initial=0.0) > 1e100:
        raise InputError("weights must not exceed 1e100; use infinity to freeze a group")
    values.setflags(write=False)
    return values


def arrange(groups: Groups, weights: Any, d: int) -> Layout:
    """The layout of these groups among d features; weights are √size if None.

    A group of weight 0 moves its features for nothing, whichever others hold them; one of weight ∞ never helps, and a
    feature that no other holds is frozen.
    """
    sizes = np.array([found.size for found in groups.values()])
    weights = np.sqrt(sizes) if weights is None else np.asarray(weights)
    feature = np.concatenate(list(groups.values()))
    group = np.repeat(np.arange(sizes.size), sizes)
    alone, held = np.ones(d), np.zeros(d, bool)
    held[feature] = True
    alone[held] = np.inf
    free = np.zeros(d, bool)
    free[feature[weights[group] == 0]] = True
    kept = np.isfinite(weights[group]) & ~free[feature]
    alone[feature[kept]] = 0.0
    alone[free] = 0.0
    feature, group = feature[kept], group[kept]
    only = (np.bincount(group, minlength=sizes.size)[group] == 1) & (np.bincount(feature, minlength=d)[feature] == 1)
    alone[feature[only]] = weights[group[only]]
    return _atoms(feature[~only], group[~only], weights, alone)


def _atoms(feature: Ints, group: Ints, weights: Floats, alone: Floats) -> Layout:
    used, group = np.unique(group, return_inverse=True)
    order = np.lexsort((group, feature))
    feature, group = feature[order], group[order].ravel()
    atoms = np.full(alone.size, -1, np.int32)
    if not feature.size:
        return Layout(atoms, np.empty(0), np.zeros(1, np.int64), np.empty(0, np.int64), alone)
    starts = np.flatnonzero(np.r_[True, feature[1:] != feature[:-1]])
    if starts.size == feature.size:  # each is in one group
        atoms[feature] = group
        own = np.arange(used.size + 1, dtype=np.int64)
        return Layout(atoms, weights[used], own, own[:-1], alone)
    ends = np.r_[starts[1:], feature.size]
    place: dict[bytes, int] = {}
    found: list[Ints] = []
    for first, last in zip(starts, ends, strict=True):
        held = group[first:last]
        atoms[feature[first]] = place.setdefault(held.tobytes(), len(found))
        if len(place) > len(found):
            found.append(held)
    by_group = np.argsort([(int(held[0])) for held in found], kind="stable")  # those of a group side by side
    rank = np.argsort(by_group)
    atoms[atoms >= 0] = rank[atoms[atoms >= 0]]
    ordered = [found[a] for a in by_group]
    begins = np.concatenate([[0], np.cumsum([held.size for held in ordered])]).astype(np.int64)
    return Layout(atoms, weights[used], begins, np.concatenate(ordered).astype(np.int64), alone)
