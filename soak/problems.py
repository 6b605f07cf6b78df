"""Generated problems against a plain reference: right, or refused by a typed error; never NaN, never without end.

`python -m soak.problems SEED NUMBER …` does some of them again, and shows what they are.
"""

from __future__ import annotations

import re
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import scipy.sparse as sp
from numba.core import event

from soak.generate import Problem, problem
from soak.problems_bounds import FaultError
from soak.problems_check import examine
from soak.tally import Tally

Target = Callable[[int, Connection], None]

NUMBER = 100_000
WORKERS = 2
BATCH = 200
LIMIT = 20.0  # seconds that a problem may take, beside the compilation of kernels
COMPILING = 300.0  # more, while a kernel is compiled
OPEN = 0.1  # a marginal error of which rounding leaves so much open is not certified


def run(tally: Tally, limit: float = LIMIT, target: Target | None = None) -> None:
    """All problems of a seed, in two processes that are ended and replaced when a problem hangs or ends them.

    `target` may stand for `work`.
    """
    numbers = range(tally.full(NUMBER))
    waiting = deque((start, min(start + BATCH, len(numbers))) for start in range(0, len(numbers), BATCH))
    workers = [Worker(tally.seed, target or work) for _ in range(min(WORKERS, len(waiting)))]
    slowest, uncertified = 0.0, 0
    for worker in workers:
        worker.give(waiting)
    while any(worker.at is not None for worker in workers):
        busy = {worker.ours: worker for worker in workers if worker.at is not None}
        for ready in wait(list(busy), timeout=0.5):
            worker = busy[ready]  # type: ignore[index]
            try:
                told = worker.ours.recv()
            except EOFError:
                tally.fault("process", f"problem {worker.at} of seed {tally.seed} ended it")
                worker.replace(waiting)
                continue
            worker.heard = time.monotonic()
            if isinstance(told, float):  # a kernel is being compiled, or has been
                worker.patience = told
                continue
            what, ending, fault, rounding, seconds = told
            if fault:
                tally.fault(what, f"problem {worker.at} of seed {tally.seed}: {ending}")
            else:
                tally.count(what, ending)
            slowest, uncertified = max(slowest, seconds), uncertified + (rounding > OPEN)
            worker.next(waiting)
        for worker in workers:
            if worker.at is not None and time.monotonic() - worker.heard > limit + worker.patience:
                tally.fault("time", f"problem {worker.at} of seed {tally.seed} took more than {limit:g} s")
                worker.replace(waiting)
    for worker in workers:
        worker.end()
    tally.figure("seconds of the slowest problem", round(slowest, 2))
    tally.figure("marginal errors that rounding leaves open", uncertified)


@dataclass
class Worker:
    """A process that does one batch after the other, and where it is."""

    seed: int
    target: Target
    at: int | None = None

    def __post_init__(self) -> None:
        context = get_context("spawn")
        self.ours, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=self.target, args=(self.seed, theirs), daemon=True)
        self.process.start()
        theirs.close()
        self.ours.recv()  # that it is up
        self.heard, self.patience, self.stop = time.monotonic(), 0.0, 0

    def give(self, waiting: deque[tuple[int, int]]) -> None:
        """The next batch, if there is one."""
        self.at, self.stop = waiting.popleft() if waiting else (None, 0)
        if self.at is not None:
            self.ours.send((self.at, self.stop))

    def next(self, waiting: deque[tuple[int, int]]) -> None:
        """It goes on with the problem after that it was at."""
        assert self.at is not None
        self.at += 1
        if self.at == self.stop:
            self.give(waiting)

    def replace(self, waiting: deque[tuple[int, int]]) -> None:
        """A new process for what is left of the batch."""
        assert self.at is not None
        if self.at + 1 < self.stop:
            waiting.appendleft((self.at + 1, self.stop))
        self.process.kill()
        self.process.join()
        self.__post_init__()
        self.give(waiting)

    def end(self) -> None:
        self.ours.close()
        self.process.join()


class _Compiling(event.Listener):
    """Tells whoever waits that a kernel is compiled, and adds up how long: that is not the time of a problem."""

    def __init__(self, theirs: Connection) -> None:
        self.theirs, self.seconds, self.depth, self.begun = theirs, 0.0, 0, 0.0

    def on_start(self, event: Any) -> None:
        self.theirs.send(COMPILING)
        self.begun = self.begun if self.depth else time.perf_counter()
        self.depth += 1

    def on_end(self, event: Any) -> None:
        self.depth -= 1
        self.theirs.send(COMPILING if self.depth else 0.0)
        self.seconds += 0.0 if self.depth else time.perf_counter() - self.begun


def work(seed: int, theirs: Connection) -> None:
    """Batch after batch, until nobody asks."""
    compiling = _Compiling(theirs)
    event.register("numba:compile", compiling)
    theirs.send(None)
    while True:
        try:
            start, stop = theirs.recv()
        except EOFError:
            return
        for number in range(start, stop):
            compiling.seconds, begun = 0.0, time.perf_counter()
            told = attempt(seed, number)
            theirs.send((*told, time.perf_counter() - begun - compiling.seconds))


def attempt(seed: int, number: int) -> tuple[str, str, bool, float]:
    """What was tried, how it ended, whether that is a fault, and the rounding of the marginal error."""
    what = "generation"
    try:
        posed = problem(seed, number)
        what = label(posed)
        outcome = examine(posed)
        ending, fault, rounding = re.sub(r"[\d.e+-]*\d", "…", outcome.ending), False, outcome.rounding
    except FaultError as found:
        ending, fault, rounding = str(found), True, 0.0
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{at.filename}:{at.lineno}"
        ending, fault, rounding = f"{type(error).__name__} at {where}: {' '.join(str(error).split())[:200]}", True, 0.0
    return what, ending, fault, rounding


def label(posed: Problem) -> str:
    """The cost, how samples are stored, and whether they are pooled or matched."""
    sparse = sp.issparse(posed.X), sp.issparse(posed.Y)
    stored = "CSR" if all(sparse) else "dense and CSR" if any(sparse) else "dense"
    return f"{posed.kind}, {stored}{posed.reading.label}"


if __name__ == "__main__":
    for given in sys.argv[2:]:
        print(problem(int(sys.argv[1]), int(given)), attempt(int(sys.argv[1]), int(given)), sep="\n")
