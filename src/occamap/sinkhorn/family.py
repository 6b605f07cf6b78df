"""The costs of one penalty at every γ, of all samples or of some of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from occamap._memory import Budget
from occamap._validate import Samples
from occamap._workers import Workers
from occamap.costs.base import Cost, Tick
from occamap.sinkhorn.operator import CostBlocks, StoredCost, check_finite
from occamap.sinkhorn.places import SPARE, cost_blocks, scratch_bytes

Floats = NDArray[np.float64]
Index = NDArray[np.int64]


@dataclass(frozen=True)
class CostFamily:
    """c(x_i, y_j) under `cost` at any γ.

    Where the penalty is linear in γ, C(γ) = ½D₂ + γD_τ and `parts` holds these two for all γ. Else it holds one matrix
    for each of `gammas`, of all samples: of these, `rows` and `columns` are meant, if given. It is None where the
    budget has no room for them: then each γ has a pass of its own.
    """

    cost: Cost
    X: Samples
    Y: Samples
    gammas: tuple[float, ...] | None
    parts: tuple[Floats, ...] | None
    budget: Budget
    rows: Index | None = None
    columns: Index | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return self.X.shape[0], self.Y.shape[0]

    def unfrozen(self) -> CostFamily:
        """The same without the features that the cost freezes."""
        frozen = self.cost._frozen(self.X.shape[1])
        return replace(self, X=self.X.without(frozen), Y=self.Y.without(frozen))

    def restricted(self, rows: Index, columns: Index) -> CostFamily:
        """The same of these samples alone."""
        some = replace(self, X=self.X.take(rows), Y=self.Y.take(columns))
        if self.parts is None:
            return some
        if self.gammas is None:
            return replace(some, parts=tuple(part[np.ix_(rows, columns)] for part in self.parts))
        if self.rows is not None and self.columns is not None:
            rows, columns = self.rows[rows], self.columns[columns]
        return replace(some, rows=rows, columns=columns)  # each matrix is used once: it is cut out then

    def at(self, gamma: float, workers: Workers) -> CostBlocks:
        """The costs at one γ."""
        if self.parts is None:
            cost = self.cost._with_gamma(gamma)
            return cost_blocks(cost, self.X, self.Y, self.budget, workers)
        if self.gammas is not None:
            part = self.parts[self.gammas.index(gamma)]
            whole = self.rows is None or self.columns is None
            return StoredCost(part if whole else part[np.ix_(self.rows, self.columns)])  # type: ignore[arg-type]
        half, penalty = self.parts
        costs = StoredCost(np.empty(self.shape))

        def block(span: tuple[int, int]) -> None:
            rows, out = slice(*span), costs.block(span)
            np.multiply(penalty[rows], gamma, out=out)
            np.add(out, half[rows], out=out)

        for _ in workers.map(block, costs.spans()):
            pass
        return costs


def cost_family(
    cost: Cost,
    X: Samples,
    Y: Samples,
    gammas: Sequence[float] | None,
    budget: Budget,
    workers: Workers,
    tick: Tick = None,
    reserve: float = 0.0,
) -> CostFamily:
    """Compute what all γ share; or, for a penalty that is not linear in γ, the costs at each of `gammas`, if given.

    Features that the cost freezes are left out. `reserve` are bytes to leave beside what is kept for all γ.
    """
    frozen = cost._frozen(X.shape[1])
    X, Y = X.without(frozen), Y.without(frozen)
    n, m = X.shape[0], Y.shape[0]
    linear = cost._linear(Y.rows(0, 1)) is not None
    chosen = None if linear or gammas is None else tuple(gammas)
    matrices = 2 if linear else len(chosen or ())
    room = budget.left() - SPARE - scratch_bytes(cost, Y, workers.count) - reserve
    if matrices == 0 or (matrices + 1) * 8 * n * m > room:
        return CostFamily(cost, X, Y, None, None, budget)
    parts = tuple(np.empty((n, m)) for _ in range(matrices))
    if chosen is None:
        cost._fill_parts(X, Y, parts[0], parts[1], workers, tick)
    else:
        for k, (gamma, part) in enumerate(zip(chosen, parts, strict=True)):
            cost._with_gamma(gamma)._fill(X, Y, part, workers)
            if tick is not None:
                tick((k + 1) / matrices)
    for part in parts:
        check_finite(part)
    return CostFamily(cost, X, Y, chosen, parts, budget)
