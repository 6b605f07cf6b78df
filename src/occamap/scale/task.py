"""What a task does on a worker before and beside its work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from occamap._optional import optional

R = TypeVar("R")

LATENCY = 1.0  # seconds between questions whether to go on


class StoppedError(Exception):
    """Raised in a task whose result nobody waits for any more."""


def run(work: Callable[..., R], *arguments: Any) -> R:
    """work(*arguments), with arrays as kernels are compiled for: what comes over a network may begin at any byte."""
    return work(*(aligned(argument) for argument in arguments))


def aligned(value: Any) -> Any:
    """The same value; arrays in it that are not aligned are replaced by copies, in objects of this package in place."""
    if isinstance(value, np.ndarray):
        return np.require(value, requirements="A")
    if isinstance(value, tuple | list):
        found = [aligned(entry) for entry in value]
        if all(new is old for new, old in zip(found, value, strict=True)):
            return value
        return type(value)(*found) if hasattr(value, "_fields") else type(value)(found)
    if isinstance(value, dict):
        entries = {name: aligned(entry) for name, entry in list(value.items())}
        return entries if any(entries[name] is not value.get(name) for name in entries) else value
    if sp.issparse(value) or type(value).__module__.startswith("occamap."):
        for name, held in list(getattr(value, "__dict__", {}).items()):  # another thread may add to it
            copy = aligned(held)
            if copy is not held:
                object.__setattr__(value, name, copy)
    return value


def listener(event: str) -> Callable[..., None]:
    """To be called often, in a task: it asks once a second for the event of this name, and raises once that is set."""
    flag, asked = optional("distributed", "client=").Event(event), time.monotonic()

    def ask(*_: Any) -> None:
        nonlocal asked
        if time.monotonic() - asked > LATENCY:
            if flag.is_set():
                raise StoppedError
            asked = time.monotonic()

    return ask


_lock, _users, _limits = threading.Lock(), 0, list[Any]()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """BLAS on one thread, so that sums do not depend on their number, while any thread of this process asks for it."""
    global _users
    with _lock:
        _users += 1
        if _users == 1:
            _limits.append(threadpool_limits(1, "blas"))
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                _limits.pop().restore_original_limits()
