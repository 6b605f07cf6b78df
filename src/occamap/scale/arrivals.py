"""What comes back from a cluster, as it comes, whatever becomes of its workers in the meantime."""

from __future__ import annotations

import asyncio
import queue
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from occamap._optional import optional
from occamap.errors import ClusterError, OccamapError, one_line
from occamap.scale.recipe import GONE, Recipe

K = TypeVar("K")

TIMEOUT = 20.0  # seconds to find a scheduler, and to wait for workers where all are gone
TRIES = 7  # how often a value is made again before the cluster is given up
BEAT = 1.0  # seconds after which to look at the cluster, where nothing comes back


def arrivals(
    client: Any,
    asked: Iterable[tuple[K, Recipe]],
    *,
    most: Callable[[], float] | None = None,
    keep: bool = False,
    beat: Callable[[], None] | None = None,
) -> Iterator[tuple[K, Any]]:
    """What the recipes lead to, in the order in which it comes in, each with the name that it is asked for by.

    At most `most()` of them are under way: others are taken from `asked` when there is room. beat() is called in
    between, about once a second: it may raise. With `keep`, values stay on the cluster and None stands for each.
    """
    todo, watch = enumerate(asked), Watch(client)
    under_way: dict[int, tuple[K, Recipe, Any]] = {}
    ended: queue.SimpleQueue[int] = queue.SimpleQueue()

    def start(number: int, name: K, recipe: Recipe) -> None:
        future = _made(recipe, watch)
        under_way[number] = name, recipe, future
        future.add_done_callback(lambda _: ended.put(number))

    more = True
    while more or under_way:
        while more and (most is None or not under_way or len(under_way) < most()):
            following = next(todo, None)
            if following is None:
                more = False
            else:
                start(following[0], *following[1])
        numbers = _ended(ended) if under_way else set()
        if beat is not None:
            beat()
        if not numbers:
            watch()
            numbers = {number for number, (_, _, future) in under_way.items() if future.status in GONE}
        found = {number: under_way[number] for number in numbers if number in under_way}
        fine = {number: future for number, (_, _, future) in found.items() if future.status == "finished"}
        values = dict.fromkeys(fine) if keep else _fetched(client, fine, watch)
        for number, (name, recipe, future) in found.items():
            if future.status == "pending":  # lost, and the scheduler has it made again by itself
                future.add_done_callback(lambda _, number=number: ended.put(number))
                continue
            del under_way[number]
            if number in values:
                if not keep:
                    recipe.release()
                yield name, values[number]
            else:
                _judge(future, recipe)
                watch.wait(recipe.tries)
                start(number, name, recipe)


class Watch:
    """Gives a cluster up that has had no scheduler, or no workers, for a while."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self._since: float | None = None

    def __call__(self) -> bool:
        """Whether there are workers now."""
        running = self.client.status == "running"
        if running and self.client.scheduler_info(n_workers=-1)["workers"]:
            self._since = None
            return True
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if self.client.status == "closed" or now - self._since > TIMEOUT:
            gone = "has no workers left: start some" if running else "does not answer any more: start it again"
            raise ClusterError(f"the cluster {gone}, and try again")
        return False

    def wait(self, tries: int) -> None:
        """Until there are workers, and a moment, the longer the more was tried: losses take time to be heard of."""
        time.sleep(0.05 * 2.0**tries)
        while not self():
            time.sleep(0.1)


def _made(recipe: Recipe, watch: Watch) -> Any:
    """The future of a recipe; where a worker goes away while something is sent to it, that is sent once more."""
    while True:
        try:
            return recipe.future
        except OccamapError:
            raise
        except Exception as error:
            recipe.tries += 1
            if recipe.tries >= TRIES:
                raise ClusterError(f"the cluster does not take what is sent to it: {one_line(error)}") from error
            watch.wait(recipe.tries)


def _ended(ended: queue.SimpleQueue[int]) -> set[int]:
    """Those that are there, or, if none is, the next one, unless it takes long."""
    numbers: set[int] = set()
    try:
        numbers.add(ended.get(timeout=BEAT))
        while True:
            numbers.add(ended.get_nowait())
    except queue.Empty:
        return numbers


def _fetched(client: Any, futures: dict[int, Any], watch: Watch) -> dict[int, Any]:
    """The values of futures that have finished, but for those that were lost meanwhile."""
    if not futures:
        return {}
    job = asyncio.run_coroutine_threadsafe(
        client.gather(futures, errors="skip", asynchronous=True), client.loop.asyncio_loop
    )
    try:
        while True:
            try:
                values: dict[int, Any] = job.result(timeout=BEAT)
            except TimeoutError:
                watch()  # Dask would wait for ever
                continue
            except Exception:
                if client.status == "running":
                    raise
                return {}
            lost = {number for number, value in values.items() if value is None and futures[number].status in GONE}
            return {number: value for number, value in values.items() if number not in lost}
    finally:
        job.cancel()


def _judge(future: Any, recipe: Recipe) -> None:
    """Raise where it is no use to try again: the work itself failed, or the cluster fails again and again."""
    distributed = optional("distributed", "client=")
    error: Exception | None = future.exception() if future.status == "error" else None
    if isinstance(error, OccamapError | MemoryError):
        raise error
    if error is not None and not isinstance(error, distributed.KilledWorker | distributed.CancelledError | OSError):
        raise ClusterError(f"a worker of the cluster failed: {type(error).__name__}: {one_line(error)}") from error
    if recipe.tries >= TRIES:
        told = future.status if error is None else one_line(error)
        raise ClusterError(
            f"the cluster lost the work {recipe.tries} times, for want of memory perhaps; the last it says: {told}"
        ) from error
