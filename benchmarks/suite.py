"""The benchmarks by name, and a run of some of them."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence

from benchmarks import cost_matrices, maps_and_solvers, peers, processes, selection
from benchmarks.problems import Problems
from benchmarks.results import Record

BENCHMARKS: dict[str, Callable[[Problems, Record], None]] = {
    "l1": cost_matrices.l1,
    "stvs": cost_matrices.stvs,
    "map": maps_and_solvers.unseen,
    "koverlap": cost_matrices.koverlap,
    "dense": cost_matrices.dense,
    "fit": maps_and_solvers.fit,
    "path": selection.path,
    "evaluation": selection.evaluation,
    "memory": processes.memory,
    "start": processes.start,
}


def run(names: Sequence[str], quick: bool) -> Record:
    """Measure these, one after the other; one that fails is a row, and the others still run."""
    problems, record = Problems.quick() if quick else Problems(), Record(quick)
    for name in names:
        print(f"{name}: {(BENCHMARKS[name].__doc__ or '').strip()}", flush=True)
        begun = time.perf_counter()
        try:
            BENCHMARKS[name](problems, record)
        except Exception as error:  # a run of minutes is not lost to its last part
            traceback.print_exc()
            record.fail(name, f"{type(error).__name__}: {error}")
        peers.release()
        print(f"  ({time.perf_counter() - begun:.0f} s)", flush=True)
    return record
