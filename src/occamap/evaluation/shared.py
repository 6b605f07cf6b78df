"""What all splits of a condition share: its cells, their costs, their inner products, and its markers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from occamap._memory import Budget
from occamap._optional import optional
from occamap._workers import Workers
from occamap.costs import SqL2
from occamap.costs.lanes import pairs_bytes
from occamap.errors import InputError
from occamap.evaluation.components import Gram, components_bytes, gram_bytes
from occamap.evaluation.markers import moments, welch_t
from occamap.evaluation.protocol import Condition, Protocol
from occamap.maps.monge_map import TIES
from occamap.maps.problem import Problem, check_problem
from occamap.maps.side import move_bytes
from occamap.selection.plan import Plan
from occamap.selection.splits import Split
from occamap.sinkhorn import EpsilonRule, Solver, cost_family
from occamap.sinkhorn.operator import working_bytes
from occamap.tl.cells import Mask, numbers

Floats = NDArray[np.float64]
Tick = Callable[[], None]


@dataclass(frozen=True, eq=False)
class Shared:
    """Of one condition."""

    condition: Condition
    protocol: Protocol
    plan: Plan
    gram: Gram
    t: Floats

    def __sizeof__(self) -> int:
        """Bytes of the arrays, so that a cluster knows what it would cost to move them."""
        return self.plan.__sizeof__() + self.gram.__sizeof__() + self.t.nbytes

    @property
    def problem(self) -> Problem:
        return self.plan.problem

    def split(self, k: int) -> Split:
        """Split k: a random share of both groups to test on, by the seed and the names alone."""
        name = [*self.condition.key.encode()]
        rng = np.random.default_rng([self.protocol.random_state, k, *name])
        parts = []
        for size in (self.problem.a.size, self.problem.b.size):
            order, test = rng.permutation(size), max(2, round(self.protocol.test_size * size))
            parts += [np.sort(order[test:]), np.sort(order[:test])]
        return Split(*parts)


@dataclass(frozen=True, eq=False)
class Cells:
    """The control and the target cells of a condition, and what tells whether two conditions have the same control."""

    control: sp.csr_array
    target: sp.csr_array
    key: bytes

    def __sizeof__(self) -> int:
        """Bytes of the arrays, so that a cluster knows what it would cost to move them."""
        return sum(int(side.data.nbytes + side.indices.nbytes) for side in (self.control, self.target))


def cells_of(adata: Any, protocol: Protocol, condition: Condition) -> Cells:
    """The numbers of a condition, of the genes that it uses."""
    sides = [
        sp.csr_array(numbers(adata, rows, protocol.layer, protocol.counts))
        for rows in (condition.rows, condition.others)
    ]
    if protocol.hvg is None:
        return Cells(sides[0], sides[1], condition.rows.tobytes())
    genes = highly_variable(sides, protocol.hvg)
    return Cells(sides[0][:, genes], sides[1][:, genes], condition.rows.tobytes() + genes.tobytes())


class Preparation:
    """Conditions made ready one after the other; the inner products of a control are computed once."""

    def __init__(self, adata: Any, protocol: Protocol, max_memory: int | str | None, n_jobs: int | None) -> None:
        self.adata, self.protocol, self.max_memory, self.n_jobs = adata, protocol, max_memory, n_jobs
        self._kept: tuple[bytes, Any] | None = None

    def __call__(self, condition: Condition, tick: Tick) -> Shared:
        """tick() is called in between, often: it may raise."""
        cells = cells_of(self.adata, self.protocol, condition)
        within = self._kept[1] if self._kept is not None and self._kept[0] == cells.key else None
        with Workers(self.n_jobs) as workers:
            sides = cells.control, cells.target
            shared = share(condition, self.protocol, sides, within, self.max_memory, workers, tick)
        self._kept = cells.key, shared.gram.within
        return shared


def share(
    condition: Condition,
    protocol: Protocol,
    sides: tuple[Any, Any],
    within: NDArray[Any] | None,
    max_memory: int | str | None,
    workers: Workers,
    tick: Tick,
) -> Shared:
    """What the splits of a condition share; `within` are inner products of its control cells, if they are known."""
    penalties = protocol.penalties()
    problem = check_problem(sides[0], sides[1], None, None, [cost for _, cost, _ in penalties], max_memory)
    tick()
    samples, budget = (problem.source, problem.target), Budget(max_memory)
    reserve = gram_bytes(*samples, within) + least_bytes(problem, protocol, workers.count)
    budget.require(reserve, f"evaluating {sum(side.shape[0] for side in samples):,} cells")
    families = []
    for _, cost, gammas in penalties:
        families.append(
            cost_family(cost, *samples, gammas, max_memory, workers, lambda _: tick(), reserve=reserve)
        )
        tick()
    gram = Gram(*samples, workers, budget, within)
    solvers = [
        Solver(EpsilonRule(value, protocol.epsilon_scale), None, protocol.tol, protocol.max_iter)
        for value in protocol.epsilon
    ]
    plan = Plan(
        problem=problem,
        families=tuple(families),
        gammas=tuple(gammas for _, _, gammas in penalties),
        solvers=tuple(solvers),
        ties=(TIES.index(protocol.ties),),
        relaxes=(protocol.relax,),
        projection=None,
        seed=protocol.random_state,
        max_memory=max_memory,
    )
    t = welch_t(moments(problem.target.csr()), moments(problem.source.csr()))
    return Shared(condition, protocol, plan, gram, t)


def least_bytes(problem: Problem, protocol: Protocol, threads: int) -> float:
    """What a split takes where costs are computed again and again: components, blocks of costs, moves of test cells."""
    (n, d), target = problem.source.shape, problem.target
    train, test = (1 - protocol.test_size) * (n + target.shape[0]), protocol.test_size * (n + target.shape[0])
    costs = [cost for _, cost, _ in protocol.penalties()] or [SqL2()]
    moving = max(move_bytes(cost, target, threads) for cost in costs)
    fitting = working_bytes(target.shape[0], threads) + pairs_bytes(target)
    return components_bytes(train) + max(moving, fitting) + 2 * 8.0 * test * d + 3 * 8.0 * test**2


def highly_variable(sides: list[sp.csr_array], count: int) -> Mask:
    """The genes that vary most over the cells of both groups, by scanpy."""
    scanpy, anndata = optional("scanpy", "hvg="), optional("anndata", "hvg=")
    both = anndata.AnnData(sp.csr_matrix(sp.vstack(sides)))
    try:
        found = scanpy.pp.highly_variable_genes(both, n_top_genes=count, inplace=False)
    except Exception as error:  # whatever scanpy makes of cells that hardly differ
        raise InputError(f"hvg={count} genes cannot be chosen from these cells; scanpy says: {error}") from error
    return np.asarray(found["highly_variable"], dtype=bool)
