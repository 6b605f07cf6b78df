"""What all splits of a condition share: its cells, their costs, their inner products, and its markers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from occamap._backed import is_backed
from occamap._memory import Budget
from occamap._optional import optional
from occamap._validate import Samples, check_samples
from occamap._workers import Workers, count_jobs
from occamap.errors import InputError
from occamap.evaluation.components import Gram, components_bytes, gram_bytes
from occamap.evaluation.conditions import Condition
from occamap.evaluation.markers import moments, welch_t
from occamap.evaluation.protocol import Protocol
from occamap.maps.monge_map import TIES
from occamap.maps.problem import Problem, check_problem
from occamap.maps.room import map_bytes, rehearse
from occamap.selection.plan import Plan
from occamap.selection.splits import Split
from occamap.sinkhorn import EpsilonRule, Solver, cost_family
from occamap.sinkhorn.places import scratch_bytes
from occamap.tl.cells import Mask, matrix_of, numbers

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
        """Which cells split k learns from, and which it tests on."""
        return self.condition.splits.split(k)


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
        if self.max_memory is not None:
            self._foresee(condition)
        cells = cells_of(self.adata, self.protocol, condition)
        within = self._kept[1] if self._kept is not None and self._kept[0] == cells.key else None
        with Workers(self.n_jobs) as workers:
            sides = cells.control, cells.target
            shared = share(condition, self.protocol, sides, within, self.max_memory, workers, tick)
        self._kept = cells.key, shared.gram.within
        return shared

    def _foresee(self, condition: Condition) -> None:
        """Refuse a condition that cannot fit before its cells are taken from the others, where that can be told."""
        whole, first = matrix_of(self.adata, self.protocol.layer), condition.rows[:1]
        if is_backed(whole):
            return  # its entries are not known before they are read
        one = check_samples(sp.csr_array(numbers(self.adata, first, self.protocol.layer, "keep")), "adata")
        for cost in {type(cost): cost for cost in self.protocol.all_costs()}.values():
            rehearse(cost, one, one)
        both = condition.rows, condition.others
        cells = [_promised(whole, rows, one.dtype, whole.shape[1]) for rows in both]
        control, target = (_promised(whole, rows, one.dtype, self.protocol.hvg or whole.shape[1]) for rows in both)
        known = self._kept is not None and self._kept[0].startswith(condition.rows.tobytes())
        within = self._kept[1] if known and self._kept is not None else None
        needed = float(sum(side.__sizeof__() for side in cells))
        parts = condition.splits.largest()
        needed += condition_bytes(control, target, within, self.protocol, parts, count_jobs(self.n_jobs))
        Budget(self.max_memory).require(needed, f"evaluating {sum(rows.size for rows in both):,} cells")


def _promised(whole: Any, rows: NDArray[np.int64], dtype: Any, genes: int) -> Samples:
    """Samples of the size of these rows and so many of the genes, those with the most entries, with nothing in them."""
    stored = rows.size * int(getattr(whole, "nnz", whole.size)) // max(1, whole.shape[0])
    if getattr(whole, "format", "") == "csr":
        stored = int(np.diff(whole.indptr)[rows].sum())
    stored = min(stored, rows.size * genes)
    indices, indptr = (np.broadcast_to(np.zeros(1, kind), n) for kind, n in ((np.int32, stored), (np.int64, rows.size)))
    return Samples((rows.size, genes), np.broadcast_to(np.zeros(1, dtype), stored), indices, indptr)


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
    penalties, parts = protocol.penalties(), condition.splits.largest()

    def need(source: Samples, target: Samples) -> float:
        return condition_bytes(source, target, within, protocol, parts, workers.count)

    what = f"evaluating {sum(side.shape[0] for side in sides):,} cells"
    problem = check_problem(sides[0], sides[1], None, None, protocol.all_costs(), max_memory, need, what)
    tick()
    samples, budget = (problem.source, problem.target), Budget(max_memory, problem.lent)
    before, beside = least_bytes(*samples, protocol, parts, workers.count)
    pairs = float(samples[0].shape[0] * samples[1].shape[0])
    reserve = gram_bytes(*samples, within) + before + 16 * pairs  # a split has sub-matrices of what is kept
    families = []
    for _, cost, gammas in penalties:
        families.append(
            cost_family(cost, *samples, gammas, budget.keeping(beside), workers, lambda _: tick(), reserve=reserve)
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
        pools=(protocol.pool,),
        projection=None,
        seed=protocol.random_state,
        budget=budget,
        least=before + beside,
    )
    t = welch_t(moments(problem.target.csr()), moments(problem.source.csr()))
    return Shared(condition, protocol, plan, gram, t)


def condition_bytes(
    source: Samples,
    target: Samples,
    within: NDArray[Any] | None,
    protocol: Protocol,
    parts: tuple[float, float],
    threads: int,
) -> float:
    """What it takes to evaluate a condition, one split at a time."""
    return gram_bytes(source, target, within) + sum(least_bytes(source, target, protocol, parts, threads))


def least_bytes(
    source: Samples, target: Samples, protocol: Protocol, parts: tuple[float, float], threads: int
) -> tuple[float, float]:
    """What a split takes where costs are computed again and again: before some are kept, and beside them.

    `parts` are the most train and the most test cells of a split. The former are its cells, components or a fit; the
    latter blocks of moves, moves of test cells and their distances.
    """
    (train, test), d = parts, source.shape[1]
    costs = protocol.all_costs()
    fitting = max(scratch_bytes(cost, target, threads) for cost in costs)
    moving = max(map_bytes(cost, target, threads) for cost in costs)
    before = 2.0 * (source.__sizeof__() + target.__sizeof__()) + max(components_bytes(train), fitting)
    return before, moving + 2 * 8.0 * test * d + 3 * 8.0 * test**2


def highly_variable(sides: list[sp.csr_array], count: int) -> Mask:
    """The genes that vary most over the cells of both groups, by scanpy."""
    scanpy, anndata = optional("scanpy", "hvg="), optional("anndata", "hvg=")
    both = anndata.AnnData(sp.csr_matrix(sp.vstack(sides)))
    try:
        found = scanpy.pp.highly_variable_genes(both, n_top_genes=count, inplace=False)
    except Exception as error:  # whatever scanpy makes of cells that hardly differ
        raise InputError(f"hvg={count} genes cannot be chosen from these cells; scanpy says: {error}") from error
    return np.asarray(found["highly_variable"], dtype=bool)
