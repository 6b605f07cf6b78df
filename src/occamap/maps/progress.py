"""A line of progress on stderr, for solves that take longer than a moment."""

from __future__ import annotations

import sys
import time
from types import TracebackType


class Progress:
    """Called with the iteration and its error; writes at most a few times a second, and only if asked to."""

    def __init__(self, show: bool, tol: float) -> None:
        self.show, self.tol = show, tol
        self._next = 0.0
        self._shown = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            sys.stderr.write("\n")

    def __call__(self, iteration: int, error: float) -> None:
        now = time.monotonic()
        if not self.show or now < self._next:
            return
        self._next, self._shown = now + 0.2, True
        live = sys.stderr.isatty()
        sys.stderr.write(f"{chr(13) if live else ''}occamap: iteration {iteration}, marginal error {error:.2e} ")
        sys.stderr.write(f"(goal {self.tol:.0e})" + ("" if live else "\n"))
        sys.stderr.flush()
