"""A line of progress on stderr, for those who ask for it."""

from __future__ import annotations

import sys
import time
from types import TracebackType


class Progress:
    """Writes at most a few times a second, on one line of a terminal, on lines of their own elsewhere."""

    def __init__(self, show: bool) -> None:
        self.show = show
        self._next = 0.0
        self._shown = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown and sys.stderr.isatty():
            sys.stderr.write("\n")

    def costs(self, share: float) -> None:
        """How much of the cost matrix is there."""
        self._write(f"costs {share:.0%}", always=share == 1)

    def moves(self, share: float) -> None:
        """How many of the samples have moved."""
        self._write(f"moved {share:.0%}", always=share == 1)

    def iteration(self, number: int, error: float) -> None:
        """How far the solver is."""
        self._write(f"iteration {number}, marginal error {error:.2e}")

    def _write(self, text: str, always: bool = False) -> None:
        now = time.monotonic()
        if not self.show or (now < self._next and not always):
            return
        live = sys.stderr.isatty()
        self._next, self._shown = now + (0.2 if live else 2.0), True
        sys.stderr.write(f"\roccamap: {text:<50}" if live else f"occamap: {text}\n")
        sys.stderr.flush()
