"""The same input and seed give the same bytes: over threads, processes, caches, places of the costs, and a cluster.

Two ways to work must agree to the byte, except that

- a map's file holds `n_jobs` and `max_memory` as they were given, and its report the seconds, the memory and where the
  costs were; run.json holds `started`, `seconds`, `threads` and the digests of files that hold these; the page of a
  report its footer with both times, and `threads` in its command and its list of options; tables the columns that are
  called `…_seconds`. All else in them is compared.
- costs in float32 instead of float64, and CSR instead of a dense array, are other sums: potentials may differ by
  `BOUND` times ε, up to a constant, and displacements by `BOUND` times the largest of them.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from soak.determinism_maps import CASES, COSTS, D, fitted, forced
from soak.tally import Tally

BOUND = 2e-4  # twice the tolerance of the solver, which both ways reach from different sides
QUICK = ("l1/csr/float32", "subspace/dense/float64", "divergence/dense/float64")
COMMANDS = {
    "fit": "--target treated --by cell_type --subsamples 4",
    "path": "--target treated --gammas 0.1,0.3,1 --splits 3",
    "evaluate": "--gammas 0.1,1 --splits 2",
}


def run(tally: Tally) -> None:
    """All ways for all cases, or a few of them for a share."""
    warnings.simplefilter("ignore")
    whole = tally.share == 1
    cases = CASES if whole else list(QUICK)
    maps = [case for case in cases if case.split("/")[0] in COSTS and "tiles" not in case]
    with tempfile.TemporaryDirectory() as folder:
        reference = _work({"cases": cases, "n_jobs": 1})
        ways: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
            "2 threads, cases in another order": ({"n_jobs": 2, "order": 1}, {"PYTHONHASHSEED": "1"}),
            "costs computed again": ({"n_jobs": 2, "place": "recomputed", "cases": _cheap(maps)}, {}),
        }
        if whole:
            ways |= {
                "the same again": ({"n_jobs": 1, "cases": _cheap(cases)}, {"PYTHONHASHSEED": "2"}),
                "3 threads": ({"n_jobs": 3, "order": 2, "cases": _cheap(cases)}, {"PYTHONHASHSEED": "3"}),
                "samples at odd addresses": ({"n_jobs": 2, "shift": True, "cases": _cheap(maps)}, {}),
                "one thread of BLAS": ({"n_jobs": 1, "cases": _cheap(cases)}, {"OPENBLAS_NUM_THREADS": "1"}),
                "costs on disk": ({"n_jobs": 2, "place": "disk", "cases": _cheap(maps)}, {}),
                "kernels compiled": ({"n_jobs": 2, "cases": maps[::2]}, {"NUMBA_CACHE_DIR": folder}),
                "kernels from that cache": ({"n_jobs": 2, "cases": maps[::2]}, {"NUMBA_CACHE_DIR": folder}),
            }
        for way, (job, environment) in ways.items():
            _compare(tally, way, reference, _work({"cases": cases, **job}, environment))
        if whole:
            _compare(tally, "a Dask cluster", reference, _on_cluster(maps, Path(folder)))
    _bounds(tally, _cheap(maps))
    _commands(tally, list(COMMANDS) if whole else ["path"], (1, 2, 1) if whole else (1, 2))


def _cheap(cases: list[str]) -> list[str]:
    """Without groups that overlap, whose costs take long to compute."""
    return [case for case in cases if not case.startswith("groups-overlap")]


def _work(job: dict[str, Any], environment: dict[str, str] | None = None) -> dict[str, dict[str, str]]:
    """The digests of a job, in a process of its own."""
    command = [sys.executable, "-m", "soak.determinism_maps", json.dumps(job)]
    done = subprocess.run(command, env={**os.environ, **(environment or {})}, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{job} ended with {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def _compare(tally: Tally, way: str, wanted: dict[str, dict[str, str]], found: dict[str, dict[str, str]]) -> None:
    for case, parts in found.items():
        wrong = [part for part, value in parts.items() if value != wanted[case][part]]
        tally.count(way, "same bytes", len(parts) - len(wrong))
        for part in wrong:
            tally.fault(way, f"{part} of {case} has other bytes than on one thread")


def _on_cluster(cases: list[str], folder: Path) -> dict[str, dict[str, str]]:
    """The same on two workers of a cluster, which are processes of this machine."""
    from tests.cluster import Cluster

    with Cluster(folder) as cluster:
        return _work({"cases": _cheap(cases), "n_jobs": 1, "scheduler": cluster.address})


def _bounds(tally: Tally, cases: list[str]) -> None:
    """How far float32 is from float64, and CSR from a dense array."""
    job = {"n_jobs": 2}
    most = {"float32 costs": [0.0, 0.0], "CSR": [0.0, 0.0]}
    for case in cases:
        name, kind, dtype = case.split("/")
        plain, Z = fitted(case, job)
        with forced("memory", "float32"):
            others = {"float32 costs": fitted(case, job)}
        if kind == "csr":
            others["CSR"] = fitted(f"{name}/dense/{dtype}", job)
        wanted = plain.displacement(Z).toarray()
        for way, (model, samples) in others.items():
            moved = model.displacement(samples)
            moved = moved.toarray() if hasattr(moved, "toarray") else moved
            apart = max(float(np.ptp(one - two)) for one, two in ((model.f_, plain.f_), (model.g_, plain.g_)))
            differ = apart / plain.epsilon_, float(np.abs(moved - wanted).max() / np.abs(wanted).max())
            most[way] = [max(pair) for pair in zip(most[way], differ, strict=True)]
            if max(differ) > BOUND:
                tally.fault(way, f"{case}: potentials differ by {differ[0]:.2g} ε, displacements by {differ[1]:.2g}")
            else:
                tally.count(way, "within the bound")
    tally.figure(f"bound: potentials over ε, displacements over the largest ({D} features)", BOUND)
    for way, (potentials, moves) in most.items():
        tally.figure(f"{way}: potentials differ by at most so much of ε", float(f"{potentials:.2g}"))
        tally.figure(f"{way}: displacements by at most so much of the largest", float(f"{moves:.2g}"))


def _commands(tally: Tally, names: list[str], threads: tuple[int, ...]) -> None:
    """The files of each command, run on these numbers of threads one after the other."""
    import occamap as oc

    with tempfile.TemporaryDirectory() as folder:
        simulated = oc.datasets.simulate_perturbation(240, 200, 300, effect=2.0, density=0.3, random_state=1)
        simulated.to_anndata().write_h5ad(Path(folder, "cells.h5ad"))
        for name in names:
            runs = [_command(name, Path(folder), count, seed) for seed, count in enumerate(threads)]
            for again in runs[1:]:
                for file in sorted({*runs[0], *again}):
                    if runs[0].get(file) == again.get(file):
                        tally.count(f"occamap {name}", "same file")
                    else:
                        tally.fault(f"occamap {name}", f"{file} differs by more than times, memory and threads")


def _command(name: str, folder: Path, threads: int, seed: int) -> dict[str, str]:
    """Digests of what a command writes, without what says when, how long and on how many threads."""
    out = folder / f"{name}-{seed}"
    options = f"{name} cells.h5ad --groupby condition --control control {COMMANDS[name]} --seed 3 --threads {threads}"
    command = [sys.executable, "-m", "occamap", *options.split(), "--out", out.name]
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{options} ended with {done.returncode}: {done.stderr[-2000:]}")
    files = (path for path in sorted(out.rglob("*")) if path.is_file() and not path.name.startswith("."))
    return {str(path.relative_to(out)): hashlib.sha256(timeless(path)).hexdigest() for path in files}


def timeless(path: Path) -> bytes:
    """The bytes of a file of a run, without the entries that `run` says may differ."""
    content = path.read_bytes()
    if path.name == "run.json":
        record = json.loads(content)
        for entry in ("started", "seconds"):
            del record[entry]
        record["parameters"]["threads"] = None
        for part in ("map", "report", "path"):  # they hold times
            record["digests"].pop(part, None)
        return json.dumps(record).encode()
    if path.name == "report.html":
        footer = rb"from a run of [-0-9T:+]+ that took [0-9.,]+ (?:s|min|h)"
        page, count = re.subn(footer, b"", content)
        page = re.sub(rb"--threads[= ]\d+|threads</th><td>\d+", b"", page)
        return page if count == 1 else content
    if path.suffix == ".csv":
        rows = list(csv.reader(io.StringIO(content.decode())))
        kept = [k for k, name in enumerate(rows[0]) if not name.endswith("_seconds")]
        return json.dumps([[row[k] for k in kept] for row in rows]).encode()
    if path.suffix == ".occamap":
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        meta = json.loads(members.pop("meta.json"))
        for entry in ("seconds", "peak_memory"):
            del meta["report"][entry]
        del meta["parameters"]["n_jobs"]
        return json.dumps(meta).encode() + b"".join(name.encode() + members[name] for name in members)
    return content
