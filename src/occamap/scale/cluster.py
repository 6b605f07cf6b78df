"""Values on a Dask cluster that can be made again: what a lost worker held is sent, or computed, once more."""

from __future__ import annotations

import logging
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

import occamap.scale.arrivals as arrivals
from occamap._optional import optional, require
from occamap.errors import InputError
from occamap.scale.recipe import Recipe
from occamap.scale.task import run

__all__ = ["Recipe", "Tasks", "connect", "given_client", "results", "tasks"]

PACKAGES = ("dask", "distributed")


def _distributed(what: str) -> Any:
    """The module, or what to install for `what`."""
    require(PACKAGES, what, "dask")
    return optional("distributed", what)


@contextmanager
def connect(address: str | None) -> Iterator[Any]:
    """A client of the scheduler at this address, such as tcp://10.0.0.1:8786, while it is needed; None for none."""
    if address is None:
        yield None
        return
    distributed = _distributed("--dask")
    with _quiet(), _client(distributed, address) as client:
        yield client


@contextmanager
def _client(distributed: Any, address: str) -> Iterator[Any]:
    try:
        if urlsplit(address if "://" in address else f"tcp://{address}").port is None:
            raise ValueError("it has no port")  # Dask would wait for it at the end of the process
        client = _connected(distributed, address)
    except (OSError, ValueError) as error:  # a TimeoutError is an OSError
        told = " ".join(str(error).split())[:200]
        raise InputError(
            f"dask must be the address that `dask scheduler` shows, as tcp://10.0.0.1:8786; got {address!r}: {told}"
        ) from error
    with client:
        try:
            client.wait_for_workers(1, timeout=arrivals.TIMEOUT)
        except TimeoutError as error:
            raise InputError(
                f"dask must have workers; the scheduler at {address} has none: start some with `dask worker {address}`"
            ) from error
        yield client


def _connected(distributed: Any, address: str) -> Any:
    class Client(distributed.Client):  # type: ignore[misc]
        """Closed if it cannot start: the garbage collector might close it while another starts, and both would wait."""

        def start(self, **options: Any) -> None:
            try:
                super().start(**options)
            except BaseException:
                self.close()
                raise

    for _ in range(arrivals.TRIES):
        with suppress(AssertionError):  # Dask's own, where the scheduler has more to say at first than that it is there
            return Client(address, timeout=arrivals.TIMEOUT, set_as_default=False, name="occamap")
    raise OSError("it does not answer as a scheduler does")


@contextmanager
def _quiet() -> Iterator[None]:
    """Dask's own words for what befalls a cluster go nowhere: those who called are told once, in a sentence."""
    known = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "distributed"]
    loggers = [logger for logger in map(logging.getLogger, known) if not logger.disabled]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger in loggers:
            logger.disabled = False


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
        raise InputError(f"client must be a dask.distributed.Client(address); got {type(client).__name__}")
    if client.status != "running" or not client.scheduler_info(n_workers=-1)["workers"]:
        raise InputError("client must be connected to a scheduler with at least one worker; this one is not")
    return client


def results(
    client: Any, recipes: Sequence[Recipe], done: Callable[[int, Any], None] | None = None, keep: bool = False
) -> list[Any]:
    """What the recipes lead to, in their order; done(number, result) is called as they come in, in any order.

    With `keep`, values stay on the cluster and None stands for each.
    """
    found: dict[int, Any] = {}
    for number, value in arrivals.arrivals(client, enumerate(recipes), keep=keep):
        found[number] = value
        if done is not None:
            done(number, value)
    return [found[number] for number in range(len(recipes))]


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
        self._borrowed = weakref.WeakSet[Any]()
        self._holders: dict[str, list[str]] = {}

    @cached_property
    def event(self) -> Any:
        """What running tasks may listen to; none is made where none does."""
        return _distributed("client=").Event(client=self.client)

    def __call__(self, work: Callable[..., Any], *arguments: Any, near: Recipe | None = None) -> Recipe:
        """work(*arguments) on some worker, where each Recipe stands for its value; if it can be, where `near` is."""

        def make() -> Any:
            given = [one.future if isinstance(one, Recipe) else one for one in arguments]
            options = {} if near is None else self._at(near.future)
            key = f"{work.__name__.strip('_')}-{uuid.uuid4().hex}"
            future = self.client.submit(run, work, *given, pure=False, key=key, **options)
            self._futures.add(future)
            return future

        return Recipe(make)

    def send(self, value: Any, number: int | None = None) -> Recipe:
        """A value of this process, sent to one worker; others get it from there when they need it.

        Values that are numbered go to the threads of all workers in turn. Dask can send to all at once, but does not
        end where one of them is lost meanwhile.
        """
        return self.read(lambda: value, number)

    def read(self, read: Callable[[], Any], number: int | None = None) -> Recipe:
        """The same of a value that is read each time that it is to be sent, so that this process need not keep it."""

        def make() -> Any:
            where = None if number is None else [self._turn(number)]
            [future] = self.client.scatter([read()], workers=where, hash=False, timeout=arrivals.BEAT)
            self._futures.add(future)
            return future

        return Recipe(make)

    def compute(self, delayed: Any) -> Recipe:
        """What a delayed value of Dask comes to; others may use it, too."""

        def make() -> Any:
            self._borrowed.add(future := self.client.compute(delayed))
            return future

        return Recipe(make)

    def _turn(self, number: int) -> str:
        """The worker whose turn it is."""
        there = [address for address, threads in sorted(self.client.nthreads().items()) for _ in range(threads)]
        if not there:
            raise OSError("there are no workers")
        return str(there[number % len(there)])

    def _at(self, future: Any) -> dict[str, Any]:
        """Options that keep a task to the workers that hold this value, unless they are lost: Dask would move it."""
        if future.key not in self._holders:
            found = self.client.who_has([future])[future.key] if future.status == "finished" else ()
            if not found:
                return {}
            self._holders[future.key] = list(found)
        return {"workers": self._holders[future.key], "allow_other_workers": True}

    def stop(self) -> None:
        """Cancel all; running tasks that have a `listener` of the event see it."""
        if self.client.status == "running":
            with suppress(OSError):  # the scheduler has just gone
                if "event" in self.__dict__:
                    self.event.set()
                self.client.cancel(list(self._futures))
                for future in self._borrowed:
                    future.release()
