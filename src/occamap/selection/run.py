"""The splits of an evaluation, spread over threads of this process or over the workers of a Dask cluster."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Sequence
from typing import Any

from occamap._memory import Budget
from occamap._optional import optional
from occamap._workers import Workers, count_jobs
from occamap.errors import ClusterError, InputError, OccamapError
from occamap.maps.progress import Progress
from occamap.selection.evaluation import SplitScores, evaluate_split
from occamap.selection.plan import Plan
from occamap.selection.splits import Split

LATENCY = 1.0  # seconds between questions whether to go on


class _CancelledError(Exception):
    """Raised in a thread whose result nobody waits for any more."""


def run_local(plan: Plan, splits: Sequence[Split], n_jobs: int | None, progress: Progress) -> list[SplitScores]:
    """As many splits at a time as there are threads and memory for; the threads left over work within them."""
    threads = count_jobs(n_jobs)
    at_once = max(1, min(threads, len(splits), _room(plan, splits)))
    total, begun = len(splits) * len(plan.cells()), time.monotonic()
    finished, lock, stop = 0, threading.Lock(), threading.Event()

    def tick(done: int) -> None:
        nonlocal finished
        if stop.is_set():
            raise _CancelledError
        if done:
            with lock:
                finished += done
                progress.bar(finished, total, "candidates × splits", begun)

    def one(split: Split) -> SplitScores:
        return evaluate_split(plan, split, max(1, threads // at_once), tick)

    with Workers(at_once) as workers:
        try:
            return list(workers.map(one, splits))
        except BaseException:
            stop.set()
            raise


def _room(plan: Plan, splits: Sequence[Split]) -> int:
    """How many splits the budget has room for at a time: parts of the costs, a matrix, costs within test samples."""
    left = Budget(plan.max_memory).left()
    if left == float("inf"):
        return len(splits)
    n, m = plan.families[0].shape
    matrices = max(len(family.parts or ()) for family in plan.families) + 1
    within = max(max(split.source_test.size, split.target_test.size) ** 2 for split in splits)
    return int(left // (8.0 * (n * m * matrices + within)))


def check_client(client: Any) -> None:
    """Raise unless it is a Dask client with workers."""
    if not isinstance(client, optional("distributed", "client=").Client):
        raise InputError(f"client must be a dask.distributed.Client; got {type(client).__name__}")
    if client.status != "running" or not client.scheduler_info()["workers"]:
        raise InputError("client must be connected to a scheduler with at least one worker; this one is not")


def run_dask(plan: Plan, splits: Sequence[Split], client: Any, progress: Progress) -> list[SplitScores]:
    """A task a split; the samples and costs travel to each worker once."""
    distributed = optional("distributed", "client=")
    begun, stop = time.monotonic(), distributed.Event(f"occamap-{uuid.uuid4()}", client=client)
    shared = client.scatter(plan, broadcast=True, hash=False)
    futures = [client.submit(_on_worker, shared, split, stop.name, pure=False) for split in splits]
    try:
        for done, _ in enumerate(distributed.as_completed(futures), start=1):
            progress.bar(done, len(splits), "splits", begun)
        return [future.result() for future in futures]
    except OccamapError:
        raise
    except Exception as error:
        raise ClusterError(f"the cluster lost the evaluation, so call fit again; it says: {error}") from error
    finally:
        stop.set()  # what is still running sees it; what is not started never will be
        client.cancel(futures)


def _on_worker(plan: Plan, split: Split, stop: str) -> SplitScores:
    """A split, on a thread of a Dask worker, until someone sets the event of this name."""
    distributed = optional("distributed", "client=")
    event, asked = distributed.Event(stop), time.monotonic()

    def tick(_: int) -> None:
        nonlocal asked
        if time.monotonic() - asked > LATENCY:
            if event.is_set():
                raise _CancelledError
            asked = time.monotonic()

    return evaluate_split(plan, split, 1, tick)
