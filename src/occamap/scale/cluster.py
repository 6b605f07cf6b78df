"""Values on a Dask cluster that can be made again: what a lost worker held is sent, or computed, once more."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from occamap._optional import optional, require
from occamap.errors import ClusterError, InputError, OccamapError

PACKAGES = ("dask", "distributed")
TIMEOUT = 20.0  # seconds to find a scheduler, and to wait for workers where all are gone
TRIES = 5  # how often a value is made again before the cluster is given up
GONE = ("cancelled", "lost", "error")


def _distributed(what: str) -> Any:
    """The module, or what to install for `what`."""
    require(PACKAGES, what, "dask")
    return optional("distributed", what)


@contextmanager
def connect(address: str) -> Iterator[Any]:
    """A client of the scheduler at this address, such as tcp://10.0.0.1:8786, while it is needed."""
    distributed = _distributed("--dask")

    try:
        client = distributed.Client(address, timeout=TIMEOUT, set_as_default=False, name="occamap")
    except (OSError, ValueError, TimeoutError) as error:
        told = " ".join(str(error).split())[:200]
        raise InputError(
            f"dask must be the address that `dask scheduler` shows, as tcp://10.0.0.1:8786; got {address!r}: {told}"
        ) from error
    with client:
        try:
            client.wait_for_workers(1, timeout=TIMEOUT)
        except TimeoutError as error:
            raise InputError(
                f"dask must have workers; the scheduler at {address} has none: start some with `dask worker {address}`"
            ) from error
        yield client


def given_client(client: Any, what: str = "client=") -> Any:
    """The client, or, if it is None, the one that this process is connected with; with at least one worker."""
    distributed = _distributed(what)
    if client is None:
        try:
            client = distributed.default_client()
        except ValueError as error:
            raise InputError(
                f"{what} needs a cluster: connect to it first, with client = dask.distributed.Client(address)"
            ) from error
    if not isinstance(client, distributed.Client):
        raise InputError(f"client must be a dask.distributed.Client; got {type(client).__name__}")
    if client.status != "running" or not client.scheduler_info(n_workers=-1)["workers"]:
        raise InputError("client must be connected to a scheduler with at least one worker; this one is not")
    return client


class Recipe:
    """A value on the cluster, with the way to make it: `make` sends it or submits a task, and returns a future."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make, self.tries = make, 0
        self._future: Any = None
        self._lock = threading.RLock()

    @property
    def future(self) -> Any:
        """A future that is pending or done; made again where it is gone."""
        with self._lock:
            if self._future is None or self._future.status in GONE:
                self._future = self._make()
                self.tries += 1
            return self._future

    def release(self) -> None:
        """Let the cluster forget it."""
        self._future = None


def scattered(client: Any, value: Any, broadcast: bool = False) -> Recipe:
    """A value of this process, sent to one worker or to all."""
    return Recipe(lambda: client.scatter(value, broadcast=broadcast, hash=False))


def results(
    client: Any, recipes: Sequence[Recipe], done: Callable[[int, Any], None] | None = None, keep: bool = False
) -> list[Any]:
    """What the recipes lead to, in their order; done(number, result) is called as they come in, in any order.

    With `keep`, values stay on the cluster and None stands for each.
    """
    distributed = _distributed("client=")
    found: dict[int, Any] = {}
    while len(found) < len(recipes):
        todo = {number: recipe.future for number, recipe in enumerate(recipes) if number not in found}
        numbers = {future.key: number for number, future in todo.items()}
        for future in distributed.as_completed(list(todo.values()), raise_errors=False):
            number = numbers[future.key]
            if future.status != "finished":
                _judge(client, future, recipes[number])
                continue
            try:
                value = None if keep else future.result()
            except distributed.CancelledError:  # lost between its end and now
                continue
            found[number] = value
            if done is not None:
                done(number, value)
    return [found[number] for number in range(len(recipes))]


def _judge(client: Any, future: Any, recipe: Recipe) -> None:
    """Raise where it is no use to try again: the work itself failed, or the cluster fails again and again."""
    distributed = _distributed("client=")
    error = future.exception() if future.status == "error" else None
    if isinstance(error, OccamapError | MemoryError):
        raise error
    lost = error is None or isinstance(error, distributed.KilledWorker | distributed.CancelledError | OSError)
    if not lost:
        raise ClusterError(f"a worker of the cluster failed: {type(error).__name__}: {error}") from error
    if recipe.tries >= TRIES:
        raise ClusterError(
            f"the cluster lost the work {recipe.tries} times, for want of memory perhaps; the last it says: "
            f"{error or future.status}"
        ) from error
    try:
        client.wait_for_workers(1, timeout=TIMEOUT)
    except TimeoutError as late:
        raise ClusterError("the cluster has no workers left: start some, and call again") from late


@contextmanager
def tasks(client: Any) -> Iterator[Tasks]:
    """Tasks that end with this context: what is still to do is cancelled, and what runs is told to stop."""
    made = Tasks(client)
    try:
        yield made
    finally:
        made.stop()


class Tasks:
    """Submits tasks that can be made again."""

    def __init__(self, client: Any) -> None:
        self.client, self._futures = client, weakref.WeakSet[Any]()
        self.event = _distributed("client=").Event(client=client)

    def __call__(self, work: Callable[..., Any], *arguments: Any, **options: Any) -> Recipe:
        """work(*arguments) on some worker, where each Recipe stands for its value."""

        def make() -> Any:
            given = [one.future if isinstance(one, Recipe) else one for one in arguments]
            future = self.client.submit(work, *given, pure=False, **options)
            self._futures.add(future)
            return future

        return Recipe(make)

    def stop(self) -> None:
        """Cancel all; running tasks that ask `stopped(event name)` see it."""
        if self.client.status == "running":
            self.event.set()
            self.client.cancel(list(self._futures))
