"""python -m benchmarks.scale [large] [budget] [dask] [growth] [beyond]: problems that outgrow memory, how costs grow.

Simulated cells (`datasets.simulate_perturbation`, 34,636 genes, 5 % of entries stored), ℓ1, each fit in a process of
its own that reads files. `large`: 50,000 × 50,000 cells, and the map of 1,000 unseen ones. `budget`: 20,000 × 20,000
within max_memory="2GB". `dask`: the same on a local cluster of two workers, beside a plain run. `growth`: time by n, m,
d and density, with slopes. `beyond`: what is lost with a share of the targets, or with mini-batches. Writes scale.md
and scale.json to benchmarks/results; parts that are not asked for are kept.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import occamap as oc
from benchmarks.machine import facts

HERE = Path(__file__).parent / "results"
GENES = 34_636
SHARP = {"epsilon": 10.0, "epsilon_scale": "perplexity"}
BASE = 2_000  # cells a side where one size is varied
SIZES = (1_000, 2_000, 4_000, 8_000)
WIDTHS = (4_000, 8_000, 16_000, 32_000)
DENSITIES = (0.01, 0.02, 0.05, 0.1)


def measured(task: str, *arguments: Any) -> dict[str, Any]:
    """What a task of benchmarks.scale_child says, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.scale_child", task, *(json.dumps(one) for one in arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def cells(folder: Path, n: int, m: int, unseen: int = 0) -> list[str]:
    """Files of control, treated and unseen control cells."""
    drawn = oc.datasets.simulate_perturbation(n + unseen, m, GENES)
    parts = {"control": drawn.control[:n], "treated": drawn.treated, "unseen": drawn.control[n:]}
    for name, part in parts.items():
        sp.save_npz(folder / f"{name}.npz", sp.csr_matrix(part), compressed=False)
    return [str(folder / f"{name}.npz") for name in parts]


def large(folder: Path) -> list[dict[str, Any]]:
    """50,000 × 50,000 cells."""
    files = cells(folder, 50_000, 50_000, 1_000)
    return [measured("fit", *files, {"max_memory": "20GB", **SHARP})]


def budget(folder: Path) -> list[dict[str, Any]]:
    """20,000 × 20,000 cells with and without a budget."""
    files = cells(folder, 20_000, 20_000, 1_000)
    return [measured("fit", *files, {"max_memory": limit, **SHARP}) for limit in (None, "2GB")]


def dask(folder: Path) -> list[dict[str, Any]]:
    """20,000 × 20,000 cells here, and on two workers of one thread."""
    files = cells(folder, 20_000, 20_000, 1_000)
    here = measured("fit", *files, SHARP)
    there = measured("fit_on_cluster", *files, SHARP, 2)
    return [here, there]


def growth(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Seconds of costs, of an iteration and of moving 64 cells, by one size at a time."""
    found: dict[str, list[dict[str, Any]]] = {}
    varied = {
        "n": [(n, BASE, GENES, 0.05) for n in SIZES],
        "m": [(BASE, m, GENES, 0.05) for m in SIZES],
        "d": [(BASE, BASE, d, 0.05) for d in WIDTHS],
        "density": [(BASE, BASE, GENES, density) for density in DENSITIES],
    }
    for name, problems in varied.items():
        found[name] = [measured("parts", *problem) for problem in problems]
    return found


def beyond(folder: Path) -> list[dict[str, Any]]:
    """A share of the targets, and mini-batches, against the whole."""
    return [measured("beyond", 8_000, 2_000, effective) for effective in (10.0, 100.0)]


def slope(rows: list[dict[str, Any]], name: str, what: str) -> float:
    """Of the logarithm of the time against that of the size."""
    return float(np.polyfit(np.log([row[name] for row in rows]), np.log([row[what] for row in rows]), 1)[0])


def write(results: dict[str, Any]) -> None:
    """scale.json, and the page."""
    (HERE / "scale.json").write_text(json.dumps(results, indent=1) + "\n")
    machine = [f"- {key}: {value}" for key, value in results["facts"].items()]
    lines = ["# Problems that outgrow memory", "", *machine, ""]
    heads = "| cells | ε | max_memory | costs | fit | iterations | 1,000 unseen cells | whole process | peak memory |"
    for part, title in (("large", "50,000 × 50,000"), ("budget", "A budget"), ("dask", "Two workers")):
        if part not in results:
            continue
        lines += [f"## {title}", "", heads, "|---" * 9 + "|"]
        for row in results[part]:
            shown = [
                f"{row['n']:,} × {row['m']:,} × {row['d']:,}",
                row["epsilon_rule"],
                row["max_memory"] or "",
                row["operator"],
                f"{row['fit']:.0f} s",
                str(row["n_iter"]),
                f"{row['moved']:.1f} s",
                f"{row['wall']:.0f} s",
                f"{row['peak'] / 1e9:.2f} GB",
            ]
            lines.append(f"| {' | '.join(shown)} |")
        lines.append("")
        told = [row["choice"] for row in results[part] if row["choice"]]
        lines += [f"> {sentence}\n" for sentence in told]
    if "dask" in results:
        here, there = results["dask"]
        same = "the same to the bit" if there["digest"] == here["digest"] else "NOT the same"
        ratio = there["fit"] / here["fit"]
        lines += [f"On the cluster the fit takes {ratio:.2f} × as long; potentials are {same}.", ""]
    if "growth" in results:
        lines += ["## Growth", "", "Seconds on all cores; the slope is that of log time against log size.", ""]
        for name, rows in results["growth"].items():
            lines += [f"| {name} | costs | an iteration | moving 64 cells |", "|---|---|---|---|"]
            kinds = ("costs", "iteration", "moving")
            for row in rows:
                lines.append(f"| {row[name]:,g} | " + " | ".join(f"{row[kind]:.3g}" for kind in kinds) + " |")
            lines += ["| slope | " + " | ".join(f"{slope(rows, name, kind):.2f}" for kind in kinds) + " |", ""]
    for found in results.get("beyond", []):
        lines += [
            f"## A share of {found['n']:,} targets, {found['effective_targets']:.0f} of them effective",
            "",
            f"{found['n']:,} × {found['n']:,} × {found['d']:,}; relative error of displacements of unseen cells, at "
            f"the ε of the whole fit ({found['seconds']:.0f} s).",
            "",
            "| share of the targets | error | standard error foretold | seconds | mini-batches: error | seconds |",
            "|---|---|---|---|---|---|",
            *(
                f"| 1/{1 / row['share']:.0f} | {row['targets']:.1%} | {row['bound']:.1%} | "
                f"{row['seconds_targets']:.1f} | {row['batches']:.1%} | {row['seconds_batches']:.1f} |"
                for row in found["rows"]
            ),
            "",
        ]
    (HERE / "scale.md").write_text("\n".join(lines))


def main(parts: list[str]) -> None:
    known = {"large": large, "budget": budget, "dask": dask, "growth": growth, "beyond": beyond}
    path = HERE / "scale.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    results["facts"] = facts()
    for part in parts or list(known):
        begun = time.perf_counter()
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            results[part] = known[part](Path(folder))
        print(f"{part}, {time.perf_counter() - begun:.0f} s: {results[part]}", flush=True)
        write(results)


if __name__ == "__main__":
    main(sys.argv[1:])
