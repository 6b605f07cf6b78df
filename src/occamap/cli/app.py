"""`occamap`: the commands, and what all of them do about errors."""

from __future__ import annotations

import functools
import io
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, ParamSpec

import typer

from occamap._kept import NAME as KEPT
from occamap._version import __version__
from occamap.cli import console
from occamap.cli.demo import demo
from occamap.cli.evaluate import evaluate
from occamap.cli.fit import fit
from occamap.cli.path import path
from occamap.cli.report import report
from occamap.cli.reproduce import reproduce
from occamap.cli.transform import transform
from occamap.cli.words import spoken
from occamap.errors import InputError, OccamapError
from occamap.run_record import PARTS

P = ParamSpec("P")

WHOLE = "files that were written are whole"
PIECES = f"{KEPT}/*.piece", f"{PARTS}/*-*.json"  # of a run that may go on


def _guarded(command: Callable[P, None]) -> Callable[P, None]:
    """The command, with errors as one sentence and an exit code: 1 could not, 2 wrong usage, 130 interrupted."""

    @functools.wraps(command)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            with console.own_warnings():
                command(*args, **kwargs)
        except KeyboardInterrupt as error:
            console.fail(_noted(f"interrupted; {WHOLE}", error, kwargs.get("out_directory")), 130)
        except console.Terminated as error:
            console.fail(_noted(f"terminated; {WHOLE}", error, kwargs.get("out_directory")), int(str(error)))
        except BrokenPipeError:  # whoever read the output has stopped
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        except (OccamapError, OSError, MemoryError) as error:
            if console.state.debug:
                raise
            console.fail(_sentence(error), 2 if isinstance(error, InputError) else 1)
        except Exception as error:
            if console.state.debug:
                raise
            what = f"{type(error).__name__}: {' '.join(str(error).split())}"
            console.fail(f"an error that was not foreseen, please report it (--debug shows where): {what}", 1)

    return guarded


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename:
        return _noted(f"{error.strerror}: {error.filename}", error)
    return _noted(spoken(str(error)) or "not enough memory for this", error)


def _noted(sentence: str, error: BaseException, out: object = None) -> str:
    """With what the error says of work that is kept, or what is there of it where the run had not looked yet."""
    notes = getattr(error, "__notes__", ())
    if not notes and isinstance(out, str) and any(any(Path(out).glob(pieces)) for pieces in PIECES):
        notes = (f"what an earlier run has done is still in {out!r}, and the same command goes on from there",)
    return "; ".join([sentence, *notes])


app = typer.Typer(
    name="occamap",
    help="Which features move, in which samples, and by how much: feature-sparse optimal transport maps.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _command in (fit, transform, path, evaluate, report, demo, reproduce):
    app.command()(_guarded(_command))


def _show_version(asked: bool) -> None:
    if asked:
        console.out.print(f"occamap {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole traceback of an error.")] = False,
) -> None:
    """Options that come before the command."""


def _unraisable(found: Any) -> None:
    """An interrupt that met a callback whose errors Python only prints comes again at the next step: no word of it."""
    if not issubclass(found.exc_type, KeyboardInterrupt | console.Terminated):
        sys.__unraisablehook__(found)


def run(arguments: list[str]) -> None:
    """Run the command that the arguments name."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show ε shows a question mark
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, console.stop)
    sys.unraisablehook = _unraisable
    console.state.debug = "--debug" in arguments  # wherever it stands
    app([argument for argument in arguments if argument != "--debug"])
