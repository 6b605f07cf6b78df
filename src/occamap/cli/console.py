"""What commands print on: results on stdout, progress and errors on stderr."""

from __future__ import annotations

import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from occamap.cli.words import spoken
from occamap.errors import InputWarning, MatchWarning, NotConvergedWarning, SelectionWarning

WIDE = 100  # columns, where there is no terminal to ask


@dataclass
class State:
    """What the options say of all commands, and whether the user has asked to stop."""

    debug: bool = False
    stopping: int = 0  # the number of the signal


def _console(stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    live = stream is not None and stream.isatty()
    return Console(stderr=stderr, width=None if live else WIDE, highlight=False)


state, out, err = State(), _console(stderr=False), _console(stderr=True)


def fail(message: str, code: int) -> NoReturn:
    """Say in one sentence what went wrong, and exit."""
    err.print(f"occamap: {message}", style="red", markup=False, soft_wrap=True)
    sys.exit(code)


def stop(number: int, frame: FrameType | None) -> None:
    """Unwind, so that no half-written file stays: now, or, where a compiler swallows that, at the next step."""
    state.stopping = number
    _leave()


class Terminated(SystemExit):
    """Ends the command as a signal asks."""


def _leave() -> None:
    if state.stopping == signal.SIGINT:
        raise KeyboardInterrupt
    raise Terminated(128 + state.stopping)


@contextmanager
def own_warnings() -> Iterator[None]:
    """occamap's warnings as lines on stderr; those of other packages only for those who debug."""
    with warnings.catch_warnings():
        before, own = warnings.showwarning, (InputWarning, MatchWarning, NotConvergedWarning, SelectionWarning)

        def show(message: Any, category: type[Warning], *where: Any, **rest: Any) -> None:
            if issubclass(category, own):
                text = spoken(" ".join(str(message).split()))
                err.print(f"occamap: warning: {text}", style="yellow", markup=False, soft_wrap=True)
            else:
                before(message, category, *where, **rest)

        warnings.showwarning = show
        if not state.debug:
            warnings.simplefilter("ignore")
        for kind in own:
            warnings.simplefilter("always", kind)
        yield


def literal(text: Any, style: str = "", longest: int = 200) -> Text:
    """Text from elsewhere, shown as it is: without markup, and without what would steer a terminal."""
    whole = str(text)
    plain = "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in whole[:longest])
    return Text(plain + "…" * (len(whole) > longest), style=style)


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr while it lasts, if that is a terminal: call with the steps done and all steps."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bars:
        bar = bars.add_task(what, total=None)

        def tick(done: int, total: int) -> None:
            if state.stopping:
                _leave()
            bars.update(bar, completed=done, total=total)

        yield tick
