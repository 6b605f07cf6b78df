"""The cost matrix on a cluster: each worker holds tiles of its rows, and a pass moves vectors alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from occamap._memory import available, format_size
from occamap._validate import Samples
from occamap._workers import Workers
from occamap.costs.base import Cost, Tick
from occamap.costs.generic import Pairs
from occamap.scale.blocks import RowBlocks, stack
from occamap.scale.cluster import Recipe, Tasks, results
from occamap.sinkhorn.operator import CostBlocks, Floats, RecomputedCost, StoredCost, Tile, fill, tile_spans

R = TypeVar("R")

SHARE = 0.6  # of the memory that the workers have left: the rest is for samples, and for Dask itself

REMEMBERED = 4  # vectors: potentials change from pass to pass, weights do not

_preparing = threading.Lock()


class Target:
    """The target samples on a worker, prepared once for all its tiles."""

    def __init__(self, cost: Cost, Y: Samples, dtype: Any) -> None:
        self.cost, self.dtype, self.frozen = cost, dtype, cost._frozen(Y.shape[1])
        self.Y = replace(Y, template=None, names=None)

    def __sizeof__(self) -> int:
        return 3 * self.Y.__sizeof__()  # once as it is, and once prepared

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_pairs"}

    @cached_property
    def _pairs(self) -> Pairs:
        return self.cost._pairs(self.Y.without(self.frozen).astype(self.dtype))

    def costs(self, pieces: Sequence[Any], dtype: Any) -> RecomputedCost:
        with _preparing:
            pairs = self._pairs
        return RecomputedCost(self.cost, stack(pieces, self.dtype, self.frozen), self.Y, dtype, pairs)


class ClusterCost:
    """Tiles on workers. Sums are those of the same matrix in one process, to the bit."""

    def __init__(
        self, cost: Cost, X: RowBlocks, Y: Samples, tasks: Tasks, single: bool, tick: Tick = None, note: Any = None
    ) -> None:
        self.shape, self.tasks, self.client = (X.shape[0], Y.shape[0]), tasks, tasks.client
        self._sent: dict[int, tuple[Floats, Recipe]] = {}
        place, dtype, why = _choose(self.client, self.shape, single)
        self.place = f"{'on the workers' if place else 'computed again on the workers in each pass'}, {dtype}"
        if note is not None:
            note(f"{why}: {self.place}")
        target = tasks.send(Target(cost, Y, X.work_dtype(cost, Y)))
        self.spans = list(tile_spans(self.shape))
        pieces = [X.pieces(span) for span in self.spans]
        self.tiles = [tasks(_build, target, dtype, place, *piece, near=piece[0]) for piece in pieces]
        count = 0

        def built(_: int, __: Any) -> None:
            nonlocal count
            count += 1
            if tick is not None:
                tick(count / len(self.tiles))

        results(self.client, self.tiles, built, keep=True)

    @cached_property
    def rounding(self) -> float:
        """Known after a pass."""
        sizes = results(self.client, [self.tasks(_rounding, tile) for tile in self.tiles])
        return float(max(sizes))

    def over(self, work: Callable[..., R], workers: Workers, rows: tuple[Floats, ...], *shared: Any) -> Iterator[R]:
        """As for other operators; `workers`, the threads of this process, have nothing to do."""
        known = [self._share(value) if isinstance(value, np.ndarray) else value for value in shared]
        parts = [tuple(vector[slice(*span)] for vector in rows) for span in self.spans]
        passes = [
            self.tasks(_run, work, tile, *part, *known, near=tile)
            for tile, part in zip(self.tiles, parts, strict=True)
        ]
        return iter(results(self.client, passes))

    def _share(self, vector: Floats) -> Recipe:
        """A vector for all workers, sent once; the few that were used last are remembered."""
        known = self._sent.pop(id(vector), None) or (vector, self.tasks.send(vector))
        self._sent[id(vector)] = known
        while len(self._sent) > REMEMBERED:
            self._sent.pop(next(iter(self._sent)))
        return known[1]


def _build(target: Target, dtype: Any, stored: bool, *pieces: Any) -> CostBlocks:
    """A tile, on the worker that is to hold it."""
    source = target.costs(pieces, dtype)
    if not stored:
        return source
    kept = StoredCost(np.empty(source.shape, dtype))
    with Workers(1) as workers:
        fill(source, kept, workers)
    return kept


def _run(work: Callable[..., R], tile: CostBlocks, *arguments: Any) -> R:
    """A pass over a tile, on the worker that holds it."""
    with Workers(1) as workers:
        return work(Tile(tile, 0, tile.shape[0]), workers, *arguments)


def _rounding(tile: CostBlocks) -> float:
    return tile.rounding


def _choose(client: Any, shape: tuple[int, int], single: bool) -> tuple[bool, np.dtype[Any], str]:
    """Whether the workers hold the costs, in which precision, and why."""
    size, room = 8 * shape[0] * shape[1], SHARE * memory_left(client)
    told = f"costs of {shape[0]:,} × {shape[1]:,} pairs take {format_size(size)} in float64, and "
    count = len(client.scheduler_info(n_workers=-1)["workers"])
    told += f"{count} worker{'s have' if count != 1 else ' has'} room for {format_size(room)}"
    for dtype in (np.float64, *([np.float32] if single else [])):
        if np.dtype(dtype).itemsize * shape[0] * shape[1] <= room:
            return True, np.dtype(dtype), told
    return False, np.dtype(np.float32 if single else np.float64), told


def memory_left(client: Any) -> float:
    """Bytes that the workers may still take: what their machines have, and their limits leave them."""
    free: dict[str, float] = {}
    limits: dict[str, float] = {}
    there = client.run(available, on_error="ignore")  # one may go at this moment
    for address, worker in client.scheduler_info(n_workers=-1)["workers"].items():
        if address not in there:
            continue
        host, limit = worker["host"], worker.get("memory_limit") or float("inf")
        used = worker.get("metrics", {}).get("memory", 0)
        free[host] = max(free.get(host, 0.0), there[address])
        limits[host] = limits.get(host, 0.0) + max(0.0, limit - used)
    return sum(min(free[host], limits[host]) for host in free)
