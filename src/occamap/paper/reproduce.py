"""reproduce: compute a figure, judge its claims, and write picture, numbers and record."""

from __future__ import annotations

import importlib
import json
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from occamap._files import replacing
from occamap._optional import optional
from occamap._version import __version__
from occamap.errors import InputError
from occamap.paper.study import Setting, Study, Verdict

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

FIGURES = {
    "maps": "displacements in the plane under four costs (Figure 1)",
    "moved": "a fresh sample, moved by each of those maps (Figure 2)",
    "prox": "the STVS regulariser and its proximal operator (Figure 3)",
    "flows": "Euclidean and Bregman descent of the transport cost (Figure 4)",
    "synthetic": "recovery of a map that moves two features of d (Figure 5)",
    "scaling": "the same, with a support that depends on x, as d grows (Figure 6)",
    "singlecell": "the single-cell protocol, on simulated cells (Figure 7)",
    "epsilon": "the same comparisons when ε is chosen, too (not in the paper)",
    "truth": "errors against h-optimal maps that are known (not in the paper)",
}
STYLE = {
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "svg.hashsalt": "occamap",  # the same numbers, the same bytes
}


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of a figure: the numbers behind it, a verdict on each claim, the picture, and the files written."""

    name: str
    title: str
    table: pd.DataFrame = field(repr=False)
    verdicts: list[Verdict]
    figure: Figure = field(repr=False)
    files: list[Path]
    seconds: float


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
        A directory, made if need be, for the picture (`<name>.png`, `<name>.svg`), the numbers (`<name>.csv`) and
        the verdicts with settings, versions and seed (`<name>.json`). Nothing is written if None.
    quick
        Fewer seeds, sizes and grid points; False takes those of the paper.
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
    study = load(figure)
    if isinstance(random_state, bool) or not isinstance(random_state, int | np.integer) or random_state < 0:
        raise InputError(f"random_state must be an integer from 0 on; got {random_state!r}")
    directory = None if out is None else _directory(Path(out))
    begun = time.perf_counter()
    table = study.compute(Setting(bool(quick), int(random_state), tick or _silent))
    verdicts = study.judge(table)
    with _plain_style():
        picture = study.draw(table)
    seconds = time.perf_counter() - begun
    record = {
        "figure": figure,
        "title": study.title,
        "source": study.source,
        "setting": "quick" if quick else "full",
        "random_state": int(random_state),
        "seconds": round(seconds, 2),
        "versions": _versions(),
        "verdicts": [asdict(verdict) for verdict in verdicts],
    }
    files = [] if directory is None else _write(directory, figure, picture, table, record)
    return Outcome(figure, study.title, table, verdicts, picture, files, seconds)


def load(figure: str) -> Study:
    """The figure of that name; what it needs is there, or the error says what to install."""
    if figure not in FIGURES:
        raise InputError(f"figure must be one of {', '.join(FIGURES)}; got {figure!r}")
    for package in ("pandas", "matplotlib"):
        optional(package, "reproduce")
    study: Study = importlib.import_module(f"occamap.paper.{figure}").STUDY
    return study


def _directory(out: Path) -> Path:
    """The directory, there and writable, before anything is computed."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with replacing(out / ".occamap"):
            pass
        (out / ".occamap").unlink()
    except OSError as error:
        raise InputError(f"out must be a directory that can be written to; {str(out)!r}: {error.strerror}") from error
    return out


def _write(directory: Path, name: str, picture: Figure, table: pd.DataFrame, record: dict[str, Any]) -> list[Path]:
    files = [directory / f"{name}.{suffix}" for suffix in ("png", "svg", "csv", "json")]
    for path in files[:2]:
        with _plain_style(), replacing(path) as stream:
            plain = {"Date": None} if path.suffix == ".svg" else None
            picture.savefig(stream, format=path.suffix[1:], dpi=150, metadata=plain)
    with replacing(files[2]) as stream:
        stream.write(table.to_csv(index=False, float_format="%.9g").encode())
    with replacing(files[3]) as stream:
        stream.write((json.dumps(record, indent=2, ensure_ascii=False) + "\n").encode())
    return files


def _versions() -> dict[str, str]:
    packages = {name: importlib.import_module(name).__version__ for name in ("numpy", "scipy", "numba", "matplotlib")}
    return {"occamap": __version__, **packages, "python": platform.python_version()}


@contextmanager
def _plain_style() -> Iterator[None]:
    """matplotlib's own defaults, whatever a user has set, with the few that all pictures share."""
    matplotlib = optional("matplotlib", "reproduce")
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        yield


def _silent(done: int, total: int) -> None:
    pass
