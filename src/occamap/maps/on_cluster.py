"""A fit on a Dask cluster: source rows in blocks on its workers, the target on all of them, the loop here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from occamap._containers import is_anndata, is_dask
from occamap._memory import Budget
from occamap._validate import Samples, check_range, check_same_features, check_samples, check_weights
from occamap._workers import Workers
from occamap.costs import Cost
from occamap.maps.problem import Problem, check_problem
from occamap.maps.progress import Progress, Told
from occamap.scale import given_client, tasks
from occamap.scale.blocks import DaskRows, LocalRows, RowBlocks, check_array
from occamap.scale.cluster import Tasks
from occamap.scale.tiles import ClusterCost
from occamap.sinkhorn import Solution, Solver

Near = Callable[[Problem], "tuple[float, NDArray[np.float64]] | None"]


@dataclass
class RemoteSamples:
    """Samples of a Dask array, which come here when they are needed."""

    array: Any
    names: NDArray[Any] | None
    size: float

    @property
    def shape(self) -> tuple[int, int]:
        n, d = self.array.shape
        return n, d

    def largest(self) -> float:
        """The largest magnitude."""
        return self.size

    def gather(self, budget: Budget) -> Samples:
        """Here, by the scheduler that Dask is set to use."""
        if isinstance(self.array._meta, np.ndarray):  # of sparse chunks, nobody knows the size
            budget.require(self.array.nbytes, "the source samples, which are on a cluster,")
        samples = check_samples(self.array.compute(), "X")
        return replace(samples, template=None, names=self.names)


def solve_on_cluster(
    cost: Cost,
    solver: Solver,
    X: Any,
    Y: Any,
    a: ArrayLike | None,
    b: ArrayLike | None,
    client: Any,
    max_memory: int | str | None,
    near: Near,
    progress: Progress,
) -> tuple[Problem, Solution, str, str]:
    """The problem, its potentials, where the costs were, and why."""
    client, told = given_client(client, "a Dask array" if client is None else "client="), Told(progress.tell)
    with tasks(client) as submit, Workers(1) as workers:
        given = X, Y, a, b, cost
        problem, rows = _remote(*given, submit) if is_dask(X) else _local(*given, max_memory, submit)

        def costs(single: bool) -> ClusterCost:
            return ClusterCost(cost, rows, problem.target, submit, single, progress.costs, told)

        solution, used = solver.within(costs, problem.a, problem.b, workers, near(problem), progress.iteration)
        return problem, solution, used.place, str(told)


def _local(
    X: Any, Y: Any, a: Any, b: Any, cost: Cost, max_memory: int | str | None, submit: Tasks
) -> tuple[Problem, RowBlocks]:
    problem = check_problem(X, Y, a, b, [cost], max_memory)
    return problem, LocalRows(problem.source, submit)


def _remote(X: Any, Y: Any, a: Any, b: Any, cost: Cost, submit: Tasks) -> tuple[Problem, RowBlocks]:
    names = np.asarray(X.var_names, dtype=object) if is_anndata(X) else None
    array = check_array(X.X if is_anndata(X) else X, "X")
    target = check_samples(Y, "Y")
    check_same_features(target, "Y", array.shape[1], names, "X")
    cost._check_features(array.shape[1])
    rows = DaskRows(array, "X", submit)
    largest = max(rows.largest, target.largest())
    check_range(largest)
    cost._check_scale(largest)
    masses = check_weights(a, array.shape[0], "a"), check_weights(b, target.shape[0], "b")
    names = target.names if names is None else names
    source = cast(Samples, RemoteSamples(array, names, rows.largest))  # has what a fit asks of them
    return Problem(source, replace(target.owned(), names=names), *masses, names), rows
