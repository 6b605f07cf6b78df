"""The penalty that a call of tl.monge_map asks for: a cost as given, or one over gene sets or weighted genes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from occamap._validate import check_number
from occamap.costs import L1, Cost, GroupLasso, SqL2
from occamap.errors import InputError
from occamap.maps.noise import NOISE
from occamap.tl.cells import Mask
from occamap.tl.gene_sets import GeneSets, gene_sets_of
from occamap.tl.weights import frozen_genes, gene_weights

PLAIN_GAMMA, PLAIN_SETS_GAMMA = 0.3, 3.0  # default strength of maps that are not pooled, without and with gene sets
SETS_NOISE = 2.0  # standard errors of a pooled difference: the default strength of pooled maps with gene sets
FROZEN = "frozen"  # the group of genes that must not move


@dataclass(frozen=True, eq=False)
class Penalty:
    """A cost, or a class of costs whose γ held-out cells choose; what was asked for; and the sets that it is over.

    Where `free`, held-out cells choose γ, whatever γ `cost` has.
    """

    cost: Any
    free: bool
    asked: dict[str, Any] = field(default_factory=dict)
    sets: GeneSets | None = None


def penalty_of(
    adata: Any,
    genes: Mask,
    control: Any,
    *,
    cost: Cost | type[Cost] | None,
    gamma: float | None,
    gene_sets: Any,
    l1_ratio: float | None,
    frozen: Any,
    weights: Any,
    error: Callable[[Mask], float] | None = None,
    fdr: float | None = None,
) -> Penalty:
    """The penalty, or an `InputError` for what does not go together; `control` are the control cells.

    With `fdr`, which sets the penalty by itself, the cost only says which genes are frozen.

    error(free) is the standard error of a pooled difference in the genes that are free to move, of which the default
    strength is a multiple; None if the map is not pooled.
    """
    if fdr is not None:
        asked = {"cost": cost, "gamma": gamma, "gene_sets": gene_sets, "l1_ratio": l1_ratio, "weights": weights}
        for name, value in asked.items():
            if value is not None:
                raise InputError(f"{name} must not be given with fdr, which sets the penalty: leave one of them out")
        if frozen is None:
            return Penalty(SqL2(), False)
        return _weighted(adata, genes, control, lambda _: 0.0, False, None, frozen, None)
    if gamma is not None:
        if cost is not None:
            raise InputError(f"gamma must not be given with cost, which has its own; got {gamma!r}")
        gamma = check_number(gamma, "gamma", 0)
    plain, noise = (PLAIN_GAMMA, NOISE) if gene_sets is None else (PLAIN_SETS_GAMMA, SETS_NOISE)

    def strength(still: Mask | None = None) -> float:
        """γ as given, or what keeps out the noise of the genes that are not frozen."""
        if gamma is not None:
            return gamma
        found = 0.0 if error is None else error(np.ones(int(genes.sum()), dtype=bool) if still is None else ~still)
        return noise * found if found > 0 else plain

    free = isinstance(cost, type)
    if gene_sets is not None:
        return _over_sets(adata, genes, strength, free, cost, gene_sets, l1_ratio, frozen, weights)
    if l1_ratio is not None:
        raise InputError(f"l1_ratio must be given only with gene_sets; got {l1_ratio!r}")
    if cost is GroupLasso:
        raise InputError("gene_sets must be given with cost=GroupLasso: which genes move together")
    if frozen is None and weights is None:
        return Penalty(L1(strength()) if cost is None else cost, free)
    return _weighted(adata, genes, control, strength, free, cost, frozen, weights)


def _over_sets(
    adata: Any,
    genes: Mask,
    strength: Callable[[Mask | None], float],
    free: bool,
    cost: Any,
    gene_sets: Any,
    l1_ratio: Any,
    frozen: Any,
    weights: Any,
) -> Penalty:
    """A GroupLasso over the sets; frozen genes leave their sets for a group of infinite weight."""
    if cost is not None and cost is not GroupLasso:
        kind = cost.__name__ if isinstance(cost, type) else repr(cost)
        raise InputError(
            "cost must be GroupLasso, or not be given, with gene_sets (gamma has its strength); got "
            f"{kind if len(kind) < 80 else type(cost).__name__}"
        )
    if weights is not None:
        raise InputError("weights must not be given with gene_sets, which have their own, the root of their sizes")
    sets, still = gene_sets_of(adata, gene_sets, genes), None
    asked: dict[str, Any] = {}
    if frozen is not None:
        still, asked = _still(adata, genes, frozen)
        sets = sets.without(still) if still.any() else sets
    groups = dict(zip(sets.names, sets.members, strict=True))
    sizes: Any = None
    if still is not None and still.any():
        name = FROZEN
        while name in groups:
            name += "_"
        sizes = np.array([*(np.sqrt(member.size) for member in sets.members), np.inf])
        groups[name] = np.flatnonzero(still)
    ratio = 0.0 if l1_ratio is None else check_number(l1_ratio, "l1_ratio", 0, 1)
    made = GroupLasso(strength(still), groups, sizes, ratio)
    return Penalty(made, free, {"gene_sets": sets.origin, "l1_ratio": ratio, **asked}, sets)


def _weighted(
    adata: Any,
    genes: Mask,
    control: Any,
    strength: Callable[[Mask | None], float],
    free: bool,
    cost: Any,
    frozen: Any,
    weights: Any,
) -> Penalty:
    """An ℓ1 cost with a weight a gene; frozen genes have weight ∞, whatever else is asked for."""
    given = "frozen" if weights is None else "weights"
    template = L1(1.0) if cost is None or cost is L1 else cost
    if not isinstance(template, L1):
        raise InputError(f"{given} must be given only with the cost L1, or with none; got {repr(cost)[:80]}")
    if template.weights is not None:
        raise InputError(f"{given} must not be given with a cost that has weights of its own")
    made = np.ones(int(genes.sum()))
    asked: dict[str, Any] = {}
    if weights is not None:
        made, asked["weights"] = gene_weights(adata, weights, genes, control)
    still = None
    if frozen is not None:
        still, words = _still(adata, genes, frozen)
        made, asked = np.where(still, np.inf, made), asked | words
    if not np.isfinite(made).any():
        raise InputError(f"{given} must leave a gene that may move; all {made.size:,} are frozen")
    if cost is None or cost is L1:
        template = L1(strength(still))
    return Penalty(replace(template, weights=made), free, asked)


def _still(adata: Any, genes: Mask, frozen: Any) -> tuple[Mask, dict[str, Any]]:
    """Which of the used genes are frozen, and the record of it."""
    marked, patterns = frozen_genes(adata, frozen)
    still = marked[genes]
    return still, {"frozen": np.array(patterns, dtype=object), "n_frozen": int(still.sum())}
