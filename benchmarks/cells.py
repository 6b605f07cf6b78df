"""python -m benchmarks.cells [fit] [protocol] [profile]: from files of cells to tables, timed.

Simulated cells in the sizes of the paper's experiments (`datasets.sciplex_like`), 34,636 genes. `fit` times
`occamap fit` from the start of the process to its end, on K562 cells and Hesperadin; `protocol` the paper's whole
evaluation in a process of its own; `profile` one split of the largest condition on one thread. Writes cells.md and
cells.json to benchmarks/results; parts that are not asked for are kept as they are there.
"""

from __future__ import annotations

import cProfile
import json
import pstats
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import occamap as oc
from benchmarks.machine import facts

HERE = Path(__file__).parent / "results"
CLOSE_UPS = ["MCF7: Hesperadin", "K562: Givinostat"]
PROTOCOL = {"groupby": "drug", "control": "control", "within": "cell_line"}
CHILD = """
import json, sys, time
import occamap as oc
from occamap._memory import peak
begun = time.perf_counter()
marks = []
def tick(done, total):
    if not marks or done // {rows} > marks[-1][0]:
        marks.append((done // {rows}, time.perf_counter() - begun))
table = oc.evaluate(sys.argv[1], **{asked}, out=sys.argv[2], verbose=False, tick=tick)
seconds = time.perf_counter() - begun
print(json.dumps({{"seconds": seconds, "peak": peak(), "rows": len(table), "marks": marks}}))
"""


def fit(cells: Any, folder: Path) -> dict[str, Any]:
    """Seconds of the command, by number of subsamples; the second start of each counts."""
    path = folder / "k562.h5ad"
    chosen = cells[(cells.obs["cell_line"] == "K562") & cells.obs["drug"].isin(["control", "Hesperadin"])].copy()
    chosen.write_h5ad(path)
    asked = ["--groupby", "drug", "--control", "control", "--target", "Hesperadin", "--out", str(folder / "run")]
    found: dict[str, Any] = {"shape": list(chosen.shape), "bytes": path.stat().st_size}
    for subsamples in (10, 0):
        command = [sys.executable, "-m", "occamap", "fit", str(path), *asked, "--subsamples", str(subsamples)]
        for _ in range(2):
            begun = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            found[f"seconds_{subsamples}"] = time.perf_counter() - begun
    return found


def protocol(cells: Any, folder: Path) -> dict[str, Any]:
    """15 pairs × 10 splits × (6 γ of ℓ1, 6 of STVS, both ½ℓ2², three baselines)."""
    path = folder / "cells.h5ad"
    cells.write_h5ad(path)
    asked = {**PROTOCOL, "close_ups": CLOSE_UPS}
    child = CHILD.format(rows=170, asked=repr(asked))
    done = subprocess.run(
        [sys.executable, "-c", child, str(path), str(folder / "evaluation")], check=True, capture_output=True, text=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    import pandas as pd

    table = pd.read_parquet(folder / "evaluation" / "evaluation.parquet")
    keys = ["method", "gamma"]
    values = ["density", "divergence", "mmd", "energy", "pearson_r2_means_all", "r2_score_changes_train", "rbo_train"]
    found["means"] = json.loads(
        table.groupby(keys, dropna=False, sort=False)[values].mean().reset_index().to_json(orient="records")
    )
    found["conditions"] = list(dict.fromkeys(table["within"] + ": " + table["target"]))
    return found


def profile(cells: Any, folder: Path) -> dict[str, Any]:
    """Where the time of one split goes: the ten functions that take most, in seconds of one thread."""
    chosen = cells[(cells.obs["cell_line"] == "MCF7") & cells.obs["drug"].isin(["control", "Givinostat"])].copy()
    asked = {**PROTOCOL, "n_jobs": 1, "verbose": False}
    seconds = []
    profiler = cProfile.Profile()
    for splits in (1, 2):
        begun = time.perf_counter()
        if splits == 2:
            profiler.enable()
        oc.evaluate(chosen, **asked, splits=splits)
        profiler.disable()
        seconds.append(time.perf_counter() - begun)
    stats = pstats.Stats(profiler)
    rows = sorted(((entry[2], name) for name, entry in stats.stats.items()), reverse=True)[:12]  # type: ignore[attr-defined]
    named = [[Path(name[0]).name, name[2], round(own, 2)] for own, name in rows]
    return {"seconds_1_split": seconds[0], "seconds_2_splits": seconds[1], "functions": named}


def write(results: dict[str, Any]) -> None:
    """cells.json, and the page."""
    (HERE / "cells.json").write_text(json.dumps(results, indent=1) + "\n")
    machine = [f"- {key}: {value}" for key, value in results["facts"].items()]
    lines = ["# From files of cells to tables", "", *machine, ""]
    if "fit" in results:
        found = results["fit"]
        cells, genes = found["shape"]
        lines += [
            "## `occamap fit`",
            "",
            f"K562 cells and Hesperadin, {cells:,} cells × {genes:,} genes, a file of {found['bytes'] / 1e6:.0f} MB; "
            "wall time of the process, reading and writing included (second start).",
            "",
            "| subsamples | seconds |",
            "|---|---|",
            *(f"| {count} | {found[f'seconds_{count}']:.1f} |" for count in (10, 0)),
            "",
        ]
    if "protocol" in results:
        found = results["protocol"]
        lines += [
            "## `occamap evaluate`: the paper's protocol",
            "",
            f"{len(found['conditions'])} conditions × 10 splits, {found['rows']:,} rows, divergence over all genes for "
            f"{' and '.join(CLOSE_UPS)}: **{found['seconds']:.0f} s, peak memory {found['peak'] / 1e9:.2f} GB**.",
            "",
            "| condition | seconds |",
            "|---|---|",
        ]
        ends = [seconds for _, seconds in found["marks"][1:]]
        before = [0.0, *ends]
        lines += [
            f"| {name} | {end - start:.0f} |"
            for name, start, end in zip(found["conditions"], before, ends, strict=False)
        ]
        heads = list(found["means"][0])
        lines += ["", "Means over all conditions and splits:", "", f"| {' | '.join(heads)} |"]
        lines.append("|---" * len(heads) + "|")
        for row in found["means"]:
            shown = [f"{value:.3g}" if isinstance(value, float) else value or "" for value in row.values()]
            lines.append(f"| {' | '.join(shown)} |")
        lines.append("")
    if "profile" in results:
        found = results["profile"]
        lines += [
            "## Where the time goes",
            "",
            "MCF7 cells and Givinostat (6,346 + 1,805 cells), one thread, under a profiler: "
            f"{found['seconds_1_split']:.0f} s for one split with all that splits share, "
            f"{found['seconds_2_splits']:.0f} s for two. Of the latter:",
            "",
            "| function | seconds |",
            "|---|---|",
            *(f"| `{file}: {name}` | {seconds:.1f} |" for file, name, seconds in found["functions"]),
            "",
        ]
    (HERE / "cells.md").write_text("\n".join(lines))


def main(parts: list[str]) -> None:
    known = {"fit": fit, "protocol": protocol, "profile": profile}
    cells = oc.datasets.sciplex_like()
    path = HERE / "cells.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    results["facts"] = facts()
    for part in parts or list(known):
        with tempfile.TemporaryDirectory() as folder:
            results[part] = known[part](cells, Path(folder))
        print(part, results[part], flush=True)
        write(results)


if __name__ == "__main__":
    main(sys.argv[1:])
