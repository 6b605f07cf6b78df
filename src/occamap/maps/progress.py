"""Progress on stderr: for those who ask for it and, on a terminal, for what takes more than two seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TypeVar

import numpy as np

from occamap.errors import InputError

T = TypeVar("T")

PATIENCE = 2.0  # seconds after which a terminal is told without having asked
WIDTH = 24


class Progress:
    """Writes at most a few times a second, on one line of a terminal, on lines of their own elsewhere.

    `show` is True, False, or None: then a terminal sees it from two seconds on, and nothing else ever does.
    """

    def __init__(self, show: bool | None) -> None:
        if show is not None and not isinstance(show, bool | np.bool_ | int):
            raise InputError(f"verbose must be True, False or None; got {show!r}")
        self.show = _is_terminal() if show is None else bool(show)
        self._next = time.monotonic() + (PATIENCE if show is None else 0.0)
        self._asked, self._shown = show is not None, False

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown and _is_terminal():
            sys.stderr.write("\n")

    def costs(self, share: float) -> None:
        """How much of the cost matrix is there."""
        self._write(f"costs {share:.0%}", last=share == 1)

    def moves(self, share: float) -> None:
        """How many of the samples have moved."""
        self._write(f"moved {share:.0%}", last=share == 1)

    def iteration(self, number: int, error: float) -> None:
        """How far the solver is."""
        self._write(f"iteration {number}, marginal error {error:.2e}")

    def note(self, text: str) -> None:
        """What is done now."""
        self._write(text)

    def tell(self, text: str) -> None:
        """What was decided, on a line of its own."""
        if self.show:
            sys.stderr.write(f"{chr(13) if self._shown and _is_terminal() else ''}occamap: {text:<60}\n")
            sys.stderr.flush()

    def bar(self, done: int, total: int, what: str, begun: float) -> None:
        """How many of the steps are done, as a bar, and about how long the others will take."""
        filled = WIDTH * done // total
        elapsed = time.monotonic() - begun
        left = f", {_duration(elapsed * (total - done) / done)} left" if 0 < done < total else ""
        self._write(f"{'█' * filled}{'·' * (WIDTH - filled)} {done}/{total} {what}{left}", last=done == total)

    def steps(self, items: Sequence[T], what: str) -> Iterator[T]:
        """The items, with a bar that fills as they are used."""
        begun = time.monotonic()
        for done, item in enumerate(items):
            self.bar(done, len(items), what, begun)
            yield item
        self.bar(len(items), len(items), what, begun)

    def _write(self, text: str, last: bool = False) -> None:
        now, live = time.monotonic(), _is_terminal()
        if not self.show or not (now >= self._next or (last and (self._asked or self._shown))):
            return
        self._next, self._shown = now + (0.2 if live else 2.0), True
        sys.stderr.write(f"\roccamap: {text:<60}" if live else f"occamap: {text}\n")
        sys.stderr.flush()


class Told:
    """A listener that passes sentences on and remembers the last."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.tell, self.last = tell, ""

    def __call__(self, text: str) -> None:
        self.last = text
        self.tell(text)

    def __str__(self) -> str:
        return self.last


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
