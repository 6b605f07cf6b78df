"""A few threads that work on blocks; kernels release the GIL, and nothing in a block calls BLAS, which has its own.

What the blocks are never depends on how many threads there are, nor does the order in which their results
are combined: the same input gives the same bytes on any number of cores.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from operator import index
from types import TracebackType
from typing import TypeVar

from occamap.errors import InputError

T = TypeVar("T")
R = TypeVar("R")

MOST = 1024  # threads: each takes memory for the block that it works on


def count_jobs(n_jobs: int | None) -> int:
    """The number of threads: None or −1 means all the cores this process may use.

    >>> count_jobs(3)
    3
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if n_jobs is None:
        return cores
    if isinstance(n_jobs, bool) or not hasattr(n_jobs, "__index__") or n_jobs == 0:
        raise InputError(f"n_jobs must be None or an integer other than 0; got {n_jobs!r}")
    jobs = index(n_jobs)
    if jobs > MOST:
        raise InputError(f"n_jobs must be at most {MOST:,} threads, since each takes memory; got {jobs:,}")
    return jobs if jobs > 0 else max(1, cores + 1 + jobs)


class Workers:
    """A context that maps a function over blocks with `n_jobs` threads, results in the order of the blocks."""

    def __init__(self, n_jobs: int | None = None) -> None:
        self.count = count_jobs(n_jobs)
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Workers:
        if self.count > 1:
            self._pool = ThreadPoolExecutor(self.count, thread_name_prefix="occamap")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=kind is not None)
        self._pool = None

    def map(self, work: Callable[[T], R], blocks: Iterable[T]) -> Iterator[R]:
        """work(block) for each block, in order; at most two blocks a thread are under way."""
        if self._pool is None:
            yield from map(work, blocks)
            return
        waiting: list[Future[R]] = []
        for block in blocks:
            if len(waiting) >= 2 * self.count:
                yield waiting.pop(0).result()
            waiting.append(self._submit(self._pool, work, block))
        while waiting:
            yield waiting.pop(0).result()

    def _submit(self, pool: ThreadPoolExecutor, work: Callable[[T], R], block: T) -> Future[R]:
        try:
            return pool.submit(work, block)
        except RuntimeError as error:  # the system starts no more threads
            raise InputError(
                f"n_jobs must be a number of threads that this process can start, which {self.count:,} is not "
                f"({error}): give a smaller one"
            ) from error
