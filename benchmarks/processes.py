"""What a fresh process takes: memory at its peak, with and without a limit, and the time to a first small result."""

from __future__ import annotations

import tempfile
from pathlib import Path

import scipy.sparse as sp

from benchmarks.problems import Problems
from benchmarks.results import Record, Row, below, within
from benchmarks.timing import in_process


def memory(problems: Problems, record: Record) -> None:
    """Peak resident memory of fit and transform of all cells, with what Python and its packages take."""
    with tempfile.TemporaryDirectory() as folder:
        files = [str(Path(folder) / f"{side}.npz") for side in ("control", "treated")]
        for file, cells in zip(files, problems.cells, strict=True):
            sp.save_npz(file, cells, compressed=False)
        for limit, bound in (None, 600), ("430MB", 473):
            said = in_process("fit", *files, *([limit] if limit else []))
            what = "peak memory of fit and transform" + (f', max_memory="{limit}"' if limit else "")
            note = f"{said['seconds']:.1f} s; {said['before'] / 1e6:.0f} MB before the fit, imports and data"
            row = Row(problems.cells_name, what, megabytes=said["peak"] / 1e6, target=below(bound), note=note)
            record.add(row)


def start(problems: Problems, record: Record) -> None:
    """Seconds of a whole process that imports, fits and moves a few samples; not the first on this machine."""
    in_process("start")
    seconds = min(in_process("start")["wall"] for _ in range(3))
    record.add(Row("30 × 30, 200 features", "a process: import, fit, displacement", seconds, target=within(3)))
