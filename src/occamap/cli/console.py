"""What commands print on: results on stdout, progress and errors on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

WIDE = 100  # columns, where there is no terminal to ask


@dataclass
class State:
    """What the options before the command say."""

    debug: bool = False


def _console(stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    live = stream is not None and stream.isatty()
    return Console(stderr=stderr, width=None if live else WIDE, highlight=False)


state, out, err = State(), _console(stderr=False), _console(stderr=True)


def fail(message: str, code: int) -> NoReturn:
    """Say in one sentence what went wrong, and exit."""
    err.print(f"occamap: {message}", style="red", markup=False, soft_wrap=True)
    sys.exit(code)


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr while it lasts, if that is a terminal: call with the steps done and all steps."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bars:
        bar = bars.add_task(what, total=None)
        yield lambda done, total: bars.update(bar, completed=done, total=total)
