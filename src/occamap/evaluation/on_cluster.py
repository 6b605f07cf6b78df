"""An evaluation on a Dask cluster: what a condition shares, what a split shares and each part of a split are tasks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from occamap._memory import Budget
from occamap._validate import check_samples
from occamap._workers import Workers
from occamap.evaluation.bar import Bar
from occamap.evaluation.components import gram_within
from occamap.evaluation.conditions import Condition
from occamap.evaluation.protocol import Protocol, rows_a_split
from occamap.evaluation.scores import Row
from occamap.evaluation.shared import Cells, Shared, cells_of, share
from occamap.evaluation.split import Held, Part, Scoring, parts
from occamap.evaluation.store import Store
from occamap.scale import Recipe, tasks
from occamap.scale.arrivals import arrivals
from occamap.scale.cluster import Tasks
from occamap.scale.task import listener, one_blas_thread

AHEAD = 3  # parts under way for each thread of the cluster: one that runs and two that wait
FRESH = 1.0  # seconds for which the number of threads is taken to be what it was


class Name(NamedTuple):
    """Of a part of a split of a condition."""

    condition: str
    split: int
    part: int


def run_on_cluster(adata: Any, store: Store, client: Any, max_memory: int | str | None, bar: Bar) -> None:
    """All that the store does not have yet; rows of a split are kept as soon as all its parts are there."""
    needed = len(parts(store.protocol))
    with tasks(client) as submit:
        asked = _Asked(adata, store, submit, Budget(max_memory), bar)
        found: dict[tuple[str, int], dict[int, list[Row]]] = {}
        coming = arrivals(client, asked, most=_window(client), beat=lambda: bar.step(0))
        for (condition, split, part), rows in coming:
            here = found.setdefault((condition, split), {})
            here[part] = rows
            if len(here) == needed:
                store.put(condition, split, [row for number in range(needed) for row in here[number]])
                del found[condition, split]
            bar.step(len(rows))


class _Asked:
    """Every part that is to do, in order. What it depends on is on the cluster as long as parts of it are under way."""

    def __init__(self, adata: Any, store: Store, submit: Tasks, budget: Budget, bar: Bar) -> None:
        self.adata, self.store, self.submit, self.budget, self.bar = adata, store, submit, budget, bar
        self._within: tuple[bytes, Recipe] | None = None

    def __iter__(self) -> Iterator[tuple[Name, Recipe]]:
        protocol, stop = self.store.protocol, self.submit.event.name
        for condition in self.store.conditions:
            count = len(condition.splits)
            todo = [split for split in range(count) if not self.store.has(condition.key, split)]
            self.bar.skip((count - len(todo)) * rows_a_split(protocol))
            shared = self._shared(condition) if todo else None
            for split in todo:
                held = self.submit(_held, shared, split, stop)
                for number, part in enumerate(parts(protocol)):
                    yield Name(condition.key, split, number), self.submit(_rows, shared, held, part, stop)
                del held
            del shared  # or it would stay until the next one is there

    def _shared(self, condition: Condition) -> Recipe:
        protocol, stop = self.store.protocol, self.submit.event.name
        cells, key = _sent(self.adata, protocol, condition, self.submit, self.budget)
        if self._within is None or self._within[0] != key:
            self._within = key, self.submit(_within, cells, stop)
        nobody = np.empty(0, dtype=np.int64)
        named = condition._replace(rows=nobody, others=nobody)
        return self.submit(_shared, named, protocol, cells, self._within[1], stop)


def _sent(
    adata: Any, protocol: Protocol, condition: Condition, submit: Tasks, budget: Budget
) -> tuple[Recipe, bytes]:
    """The cells of a condition on a worker, and their key. To be sent again they are read again: no copy stays here."""
    first = [cells_of(adata, protocol, condition)]
    key = first[0].key

    def read() -> Cells:
        cells = first.pop() if first else cells_of(adata, protocol, condition)
        budget.require(cells.__sizeof__(), f"sending the cells of {condition.label}")
        return cells

    return submit.read(read), key


def _window(client: Any) -> Callable[[], float]:
    """How many parts may be under way, by the threads that there are now."""
    known, asked = 0, -FRESH

    def window() -> float:
        nonlocal known, asked
        if time.monotonic() - asked >= FRESH:
            workers = client.scheduler_info(n_workers=-1)["workers"].values()
            known, asked = AHEAD * sum(worker["nthreads"] for worker in workers), time.monotonic()
        return known

    return window


# -- on a worker ---------------------------------------------------------------------------------------------------


def _within(cells: Cells, stop: str) -> NDArray[Any]:
    listener(stop)()
    with Workers(1) as workers:
        return gram_within(check_samples(cells.control, "X"), workers)


def _shared(condition: Condition, protocol: Protocol, cells: Cells, within: NDArray[Any], stop: str) -> Shared:
    with Workers(1) as workers, one_blas_thread():
        return share(condition, protocol, (cells.control, cells.target), within, None, workers, listener(stop))


def _held(shared: Shared, split: int, stop: str) -> Held:
    with Workers(1) as workers, one_blas_thread():
        return Held(shared, split, workers, listener(stop))


def _rows(shared: Shared, held: Held, part: Part, stop: str) -> list[Row]:
    with Workers(1) as workers, one_blas_thread():
        return Scoring(shared, held, workers, listener(stop)).rows(part)
