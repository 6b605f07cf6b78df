"""How far an evaluation is; threads of one that is over stop at their next step."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from occamap.maps.progress import Progress


class _StoppedError(Exception):
    """Raised in a thread whose result nobody waits for any more."""


class Bar:
    """Counts steps from several threads, for the progress on stderr and for `tick(done, total)`."""

    def __init__(self, total: int, progress: Progress, tick: Callable[[int, int], None] | None) -> None:
        self.total, self.progress, self.tick = total, progress, tick
        self._done = self._skipped = 0
        self._begun, self._lock, self._over = time.monotonic(), threading.Lock(), threading.Event()

    def skip(self, steps: int) -> None:
        """Steps that an earlier run has done: they say nothing of the time that is left."""
        self._skipped += steps
        self._tell()

    def step(self, done: int) -> None:
        """So many more are done; with 0, only ask whether to go on."""
        if self._over.is_set():
            raise _StoppedError
        with self._lock:
            self._done += done
            self._tell()

    def stop(self) -> None:
        """No thread is to go on."""
        self._over.set()

    def _tell(self) -> None:
        if self.total > self._skipped:
            self.progress.bar(self._done, self.total - self._skipped, "maps × splits", self._begun)
        if self.tick is not None:
            self.tick(self._done + self._skipped, self.total)
