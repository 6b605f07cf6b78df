"""Budgets under a hard limit of memory: kept, or refused early with a number that does.

The hard limit is RLIMIT_DATA, which counts what a process can write to, and not files that are mapped to be read: the
budget, `SLACK` of it, and addresses for the stacks of threads. A refusal is a fault if it comes again after the
number that it named was given: that number is for the whole call, in a process that has loaded all code before, and in
one that has not. The peak of resident memory is measured beside it: it
may be more than the budget by `SLACK`, since the C library keeps some of what was freed, and since pages of a file
with costs count as resident while they are read. Kernels are compiled before: the compiler takes some 20 to 40 MB, in
the process that is the first on a machine to need one.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from soak.limits_child import COSTS
from soak.tally import Tally

SLACK = 0.05
COMPILING = 3  # tries of a child that compiles
SMALLEST = 10**6  # bytes: a budget for which nothing fits
PATIENCE = 300.0  # seconds for a child
UNITS = {"MB": 10**6, "GB": 10**9}

COMMAND = """
import resource, sys, warnings
import occamap as oc, numpy as np, anndata, pandas, scipy.sparse.linalg, sklearn.base
from occamap._memory import _status
import occamap.cli.app
from occamap.cli.main import main
np.linalg.eigh(np.eye(200)), np.ones((300, 300)) @ np.ones((300, 300))  # BLAS has its buffers
most = _status("VmData:") + int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_DATA, (most, most))
sys.argv[1:] = sys.argv[2].split()
main()
"""


def run(tally: Tally) -> None:
    """Random sizes, costs and budgets; then no budget but a hard limit, by calls and by commands."""
    rng, over = np.random.default_rng(tally.seed), 0.0
    tally.figure("hard limit", "RLIMIT_DATA")
    jobs = [_drawn(rng, number) for number in range(tally.full(48))]
    fresh = [_drawn(rng, number) | {"fresh": True, "budget": SMALLEST} for number in range(tally.full(12))]
    pairs = sorted({(job["cost"], job["kind"]) for job in jobs + fresh})
    if _child(tally, "kernels are compiled", {"work": "load", "pairs": pairs}) is None:
        return
    for job in jobs + fresh:
        over = max([over, *(done["peak"] / done["budget"] - 1 for done in _follow(tally, job) if _is_bound(done, job))])
    tally.figure("largest peak beyond the budget, as a share of it", round(over, 4))
    tally.figure("bound for that", SLACK)
    for number in range(tally.full(12)):
        _unbounded(tally, rng, number)
    _commands(tally, [10, 40, 90, 160][: tally.full(4)])


def _drawn(rng: np.random.Generator, number: int) -> dict[str, Any]:
    """A piece of work and the room that it is given, in units of its matrix of costs."""
    work = ("fit", "path", "choose", "evaluate")[number % 4]
    most = {"fit": (2_400, 1_000), "path": (1_800, 400), "choose": (1_200, 400), "evaluate": (1_200, 1_000)}[work]
    n, m = (int(size) for size in rng.integers(300, most[0], 2))
    cost = str(rng.choice(list(COSTS) if work != "evaluate" else ["l1", "stvs"]))
    share = float(rng.choice([0.05, 0.2, 0.5, 0.8, 1.2, 2.0, 4.0]))
    kind, jobs = str(rng.choice(["dense", "csr"])), int(rng.integers(1, 3))
    sizes = {"n": n, "m": m, "d": int(10 ** rng.uniform(1, np.log10(most[1]))), "gammas": bool(rng.integers(2))}
    return {"work": work, **sizes, "kind": kind, "cost": cost, "n_jobs": jobs, "room": int(share * 8 * n * m)}


def _is_bound(done: dict[str, Any], job: dict[str, Any]) -> bool:
    """Whether the peak has to keep to the budget: a refusal has to load the code first, however small the budget."""
    return done["ending"] == "kept" or not job.get("fresh")


def _follow(tally: Tally, job: dict[str, Any]) -> list[dict[str, Any]]:
    """Do it; where it is refused, again with the number that the refusal names, until it is done."""
    what, runs = f"{job['work']} within a budget", list[dict[str, Any]]()
    if job.get("fresh"):
        what += ", in a fresh process"
    while True:
        done = _child(tally, what, {**job, "slack": SLACK})
        if done is None:
            return runs
        runs.append(done)
        if done["ending"] == "out of memory":
            tally.fault(what, f"the hard limit was met, {done['message']}: {job}")
            return runs
        if _is_bound(done, job) and done["peak"] > (1 + SLACK) * done["budget"]:
            tally.fault(what, f"{done['peak']:,} bytes of {done['budget']:,}: {job}")
            return runs
        if done["ending"] == "kept":
            tally.count(what, "kept" if len(runs) == 1 else f"kept, after {len(runs) - 1} refused")
            return runs
        number = re.search(r"give max_memory at least (\d+) (MB|GB); it is", done["message"])
        if number is None or int(number[1]) * UNITS[number[2]] <= done["budget"]:
            tally.fault(what, f"refused without a number that is larger than the budget, {done['message']!r}: {job}")
            return runs
        if any(earlier["call"] == done["call"] for earlier in runs[:-1]):
            tally.fault(what, f"refused with the number that a refusal named, {done['message']!r}: {job}")
            return runs
        tally.count(f"{done['call']}: refused", "within a second" if done["seconds"] < 1 else "later")
        job = {name: value for name, value in job.items() if name != "room"}
        job["budget"] = int(number[1]) * UNITS[number[2]]


def _unbounded(tally: Tally, rng: np.random.Generator, number: int) -> None:
    """Without a budget, a hard limit ends in a result, in Python's `MemoryError`, or in a word about threads."""
    job = _drawn(rng, number)
    del job["room"]
    job["hard"] = int(rng.choice([0.1, 0.5, 1.5]) * 8 * job["n"] * job["m"])
    what = f"{job['work']} under a hard limit alone"
    done = _child(tally, what, job)
    if done is not None:
        tally.count(what, done["ending"])


def _child(tally: Tally, what: str, job: dict[str, Any]) -> dict[str, Any] | None:
    """What a child tells, or None and a fault where it was killed or did not know how to end.

    Once more where it had to compile a kernel that nobody had needed before.
    """
    command = [sys.executable, "-m", "soak.limits_child", json.dumps(job)]
    told: dict[str, Any] | None = None
    for _ in range(COMPILING):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            tally.fault(what, f"did not end in {PATIENCE:.0f} s: {job}")
            return None
        if done.returncode:
            tally.fault(what, f"ended with {done.returncode}, {done.stderr[-300:]!r}: {job}")
            return None
        told = json.loads(done.stdout)
        if not told.get("compiled"):
            break
    return told


def _commands(tally: Tally, limits: list[int]) -> None:
    """`occamap fit` with so many MB more than its code: done, or one sentence."""
    import occamap as oc

    with tempfile.TemporaryDirectory() as folder:
        simulated = oc.datasets.simulate_perturbation(900, 800, 300, effect=2.0, density=0.3, random_state=1)
        simulated.to_anndata().write_h5ad(Path(folder, "cells.h5ad"))
        asked = "fit cells.h5ad --groupby condition --control control --target treated --subsamples 0 --threads 2"
        for limit in limits:
            command = [sys.executable, "-c", COMMAND, str(limit * 10**6), f"{asked} --out run-{limit}"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE)
            said = done.stderr.strip()
            if done.returncode == 0:
                tally.count("occamap fit under a hard limit", "done")
            elif done.returncode == 1 and said.count("\n") == 0 and said.startswith("occamap: "):
                tally.count("occamap fit under a hard limit", "one sentence")
            else:
                tally.fault("occamap fit under a hard limit", f"{limit} MB: {done.returncode}, {said[-400:]!r}")
