"""A value on a cluster, with the way to make it again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

GONE = ("cancelled", "lost", "error")


class Recipe:
    """A value on the cluster, with the way to make it: `make` sends it or submits a task, and returns a future."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make, self.tries = make, 0
        self._future: Any = None
        self._lock = threading.RLock()

    @property
    def future(self) -> Any:
        """A future that is pending or done; made again where it is gone."""
        with self._lock:
            if self._future is None or self._future.status in GONE:
                self._future = self.make()
                self.tries += 1
            return self._future

    def release(self) -> None:
        """Let the cluster forget it."""
        self._future = None
