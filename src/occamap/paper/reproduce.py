"""reproduce: compute a figure, judge its claims, and write picture, numbers and record."""

from __future__ import annotations

import importlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from occamap._files import check_directory, replacing
from occamap._optional import optional
from occamap._record import versions
from occamap.errors import InputError, MissingPackageError
from occamap.paper.figures import FIGURES
from occamap.paper.page import NAME as PAGE
from occamap.paper.page import write_page
from occamap.paper.study import BEYOND, Setting, Size, Study, Verdict

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SUFFIXES = ".png", ".svg", ".csv", ".json"
STYLE = {
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "svg.hashsalt": "occamap",  # the same numbers, the same bytes
}

_STYLING = threading.Lock()  # matplotlib's settings are global


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of a figure.

    `table` holds the numbers behind it, as a pandas data frame; `verdicts` one on each claim; `figure` is matplotlib's;
    `size` says what was computed; `files` were written; `beyond` is True for figures that are not in the paper; `note`
    is what one has to know to read the verdicts, such as that data were not at hand, and mostly empty.
    """

    name: str
    title: str
    table: pd.DataFrame = field(repr=False)
    verdicts: list[Verdict]
    figure: Figure = field(repr=False)
    size: Size
    files: list[Path]
    seconds: float
    beyond: bool
    note: str = ""


def reproduce(
    figure: str,
    out: str | Path | None = None,
    *,
    quick: bool = True,
    random_state: int = 0,
    tick: Callable[[int, int], None] | None = None,
) -> Outcome:
    """Compute one of `FIGURES` and judge its claims.

    Parameters
    ----------
    figure
        Its name.
    out
        A directory, made if need be, for the picture (`<name>.png`, `<name>.svg`), the numbers (`<name>.csv`), the
        verdicts with settings, versions and seed (`<name>.json`), and one page with all figures in the directory
        (`verdicts.md`). Nothing is written if None.
    quick
        Fewer seeds, sizes and grid points; False takes sizes like those of the paper.
    random_state
        Seed of all that is drawn.
    tick
        Called with the number of steps that are done and that of all.

    Examples
    --------
    >>> from occamap.paper import reproduce
    >>> [(verdict.about, verdict.holds) for verdict in reproduce("prox").verdicts][0]
    ('not convex', True)
    """
    if not isinstance(quick, bool | np.bool_):
        raise InputError(f"quick must be True or False; got {quick!r}")
    if isinstance(random_state, bool) or not isinstance(random_state, int | np.integer) or random_state < 0:
        raise InputError(f"random_state must be an integer from 0 on; got {random_state!r}")
    if tick is not None and not callable(tick):
        raise InputError(f"tick must be a function of two numbers; got {tick!r}")
    study = load(figure)
    names = [*(f"{figure}{suffix}" for suffix in SUFFIXES), PAGE]
    directory = None if out is None else check_directory(out, names)
    begun = time.perf_counter()
    size = study.quick if quick else study.full
    table = study.compute(Setting(size, int(random_state), tick or _silent))
    verdicts, note = study.judge(table), study.note(table)
    with _plain_style():
        picture = study.draw(table)
    seconds = time.perf_counter() - begun
    record = {
        "figure": figure,
        "title": study.title,
        "source": study.source,
        "setting": "quick" if quick else "full",
        "size": dict(size),
        "seed": int(random_state),
        "seconds": round(seconds, 2),
        "versions": versions(),
        "verdicts": [asdict(verdict) for verdict in verdicts],
        "note": note,
    }
    files = [] if directory is None else _write(directory, figure, picture, table, record)
    return Outcome(figure, study.title, table, verdicts, picture, size, files, seconds, study.source == BEYOND, note)


def load(figure: str) -> Study:
    """The figure of that name; what it needs is there, or the error says what to install."""
    if not isinstance(figure, str) or figure not in FIGURES:
        raise InputError(f"figure must be one of {', '.join(FIGURES)}; got {figure!r}")
    missing = [name for name in ("pandas", "matplotlib") if not _is_there(name)]
    if missing:
        raise MissingPackageError(f"reproduce needs {' and '.join(missing)}: pip install {' '.join(missing)}")
    study: Study = importlib.import_module(f"occamap.paper.{figure}").STUDY
    return study


def _is_there(package: str) -> bool:
    try:
        importlib.import_module(package)
    except ImportError:
        return False
    return True


def _write(directory: Path, name: str, picture: Figure, table: pd.DataFrame, record: dict[str, Any]) -> list[Path]:
    """Picture, numbers and record, all of them or none, and the page."""
    files = [directory / f"{name}{suffix}" for suffix in SUFFIXES]
    try:
        with ExitStack() as all_or_none, _plain_style():
            png, svg, numbers, verdicts = (all_or_none.enter_context(replacing(path)) for path in files)
            picture.savefig(png, format="png", dpi=150)
            picture.savefig(svg, format="svg", metadata={"Date": None})
            numbers.write(table.to_csv(index=False).encode())
            verdicts.write((json.dumps(record, indent=2, ensure_ascii=False) + "\n").encode())
        return [*files, write_page(directory)]
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(directory)) from error


@contextmanager
def _plain_style() -> Iterator[None]:
    """matplotlib's own defaults, whatever a user has set, with the few that all pictures share; a thread at a time."""
    matplotlib = optional("matplotlib", "reproduce")
    with _STYLING, matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        yield


def _silent(done: int, total: int) -> None:
    pass
