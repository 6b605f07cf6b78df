"""The splits of an evaluation, spread over threads of this process or over the workers of a Dask cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from occamap._memory import Budget
from occamap._optional import optional
from occamap._workers import Workers, count_jobs
from occamap.errors import InputError
from occamap.maps.progress import Progress
from occamap.selection.evaluation import SplitScores, evaluate_split
from occamap.selection.plan import Plan
from occamap.selection.splits import Split


class _CancelledError(Exception):
    """Raised in a thread whose result nobody waits for any more."""


def run_local(plan: Plan, splits: Sequence[Split], n_jobs: int | None, progress: Progress) -> list[SplitScores]:
    """As many splits at a time as there are threads and memory for; the threads left over work within them."""
    threads = count_jobs(n_jobs)
    at_once = max(1, min(threads, len(splits), _room(plan)))
    total, begun = len(splits) * len(plan.cells()), time.monotonic()
    done, lock, stop = 0, threading.Lock(), threading.Event()

    def tick() -> None:
        nonlocal done
        if stop.is_set():
            raise _CancelledError
        with lock:
            done += 1
            progress.bar(done, total, "cells", begun)

    def one(split: Split) -> SplitScores:
        return evaluate_split(plan, split, max(1, threads // at_once), tick)

    with Workers(at_once) as workers:
        try:
            return list(workers.map(one, splits))
        except BaseException:
            stop.set()
            raise


def _room(plan: Plan) -> int:
    """How many splits the budget has room for at a time: each has its share of the parts, and a matrix of its own."""
    n, m = plan.families[0].shape
    matrices = max(len(family.parts or ()) for family in plan.families) + 1
    left = Budget(plan.max_memory).left()
    return 2**31 if left == float("inf") else int(left // (8.0 * n * m * matrices))


def run_dask(plan: Plan, splits: Sequence[Split], client: Any, progress: Progress) -> list[SplitScores]:
    """A task a split; the samples and costs travel to each worker once."""
    distributed = optional("distributed", "client=")
    if not isinstance(client, distributed.Client):
        raise InputError(f"client must be a dask.distributed.Client; got {type(client).__name__}")
    begun = time.monotonic()
    shared = client.scatter(plan, broadcast=True, hash=False)
    futures = [client.submit(evaluate_split, shared, split, 1, pure=False) for split in splits]
    try:
        for done, _ in enumerate(distributed.as_completed(futures), start=1):
            progress.bar(done, len(splits), "splits", begun)
        return [future.result() for future in futures]
    except BaseException:
        client.cancel(futures)
        raise
