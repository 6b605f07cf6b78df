"""The splits of an evaluation, spread over threads of this process or over the workers of a Dask cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from occamap._kept import Kept, kept
from occamap._record import plain
from occamap._workers import Workers, count_jobs
from occamap.maps.progress import Progress
from occamap.metrics.transport import Value
from occamap.scale import results, tasks
from occamap.scale.task import listener, one_blas_thread
from occamap.selection.evaluation import Score, SplitScores, evaluate_split
from occamap.selection.plan import Plan
from occamap.selection.scoring import Baselines
from occamap.selection.splits import Split

Done = Callable[[int, SplitScores], None]


class _CancelledError(Exception):
    """Raised in a thread whose result nobody waits for any more."""


def run_splits(
    plan: Plan, splits: Sequence[Split], n_jobs: int | None, progress: Progress, client: Any = None
) -> list[SplitScores]:
    """The scores of all splits; those that an interrupted run has computed are taken from there."""
    pieces = kept()
    found = {k: None if pieces is None else _there(pieces, k, len(plan.cells())) for k in range(len(splits))}
    todo = [k for k, scores in found.items() if scores is None]

    def done(number: int, scores: SplitScores) -> None:
        if pieces is not None:
            pieces.put(_piece(todo[number]), plain(asdict(scores)))

    left, made = [splits[k] for k in todo], list[SplitScores]()
    if left and client is not None:
        made = run_dask(plan, left, client, progress, done)
    elif left:
        made = run_local(plan, left, n_jobs, progress, done)
    scores = found | dict(zip(todo, made, strict=True))
    return [one for one in scores.values() if one is not None]


def _piece(number: int) -> str:
    return f"split-{number}"


def _there(pieces: Kept, number: int, cells: int) -> SplitScores | None:
    """The scores of a split, where they are kept, one for each cell of the grid."""
    about, _ = pieces.get(_piece(number)) or ({}, None)
    try:
        scores = tuple(Score(**score) for score in about["scores"])
        baselines = Baselines(**{name: Value(*value) for name, value in about["baselines"].items()})
        return SplitScores(scores, baselines, int(about["n_targets"])) if len(scores) == cells else None
    except (KeyError, TypeError, AttributeError, ValueError):
        return None


def run_local(
    plan: Plan, splits: Sequence[Split], n_jobs: int | None, progress: Progress, done: Done
) -> list[SplitScores]:
    """As many splits at a time as there are threads and memory for; the threads left over work within them."""
    threads = count_jobs(n_jobs)
    at_once = min(threads, len(splits), plan.at_once() or threads)
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

    with Workers(at_once) as workers, one_blas_thread():
        try:
            made = []
            for number, scores in enumerate(workers.map(one, splits)):
                done(number, scores)
                made.append(scores)
            return made
        except BaseException:
            stop.set()
            raise


def run_dask(
    plan: Plan, splits: Sequence[Split], client: Any, progress: Progress, done: Done
) -> list[SplitScores]:
    """A task a split; the samples and costs travel to each worker once, and again where one is lost."""
    begun, finished = time.monotonic(), 0

    def arrived(number: int, scores: SplitScores) -> None:
        nonlocal finished
        finished += 1
        done(number, scores)
        progress.bar(finished, len(splits), "splits", begun)

    with tasks(client) as submit:
        shared = submit.send(plan)
        return results(client, [submit(_on_worker, shared, split, submit.event.name) for split in splits], arrived)


def _on_worker(plan: Plan, split: Split, stop: str) -> SplitScores:
    """A split, on a thread of a Dask worker, until someone sets the event of this name."""
    return evaluate_split(plan, split, 1, listener(stop))
