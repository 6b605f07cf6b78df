"""One piece of work within a budget, in a process of its own: `python -m soak.limits_child JSON`.

JSON has `work` ("fit", "path", "choose" or "evaluate"), `n`, `m`, `d`, `kind` ("dense" or "csr"), `cost`, `n_jobs`,
`gammas` (whether they are given), and `room`, the bytes beyond what the process holds, or `budget`, the bytes in all,
with `slack`, the share of it that the system allows beyond; or `hard`, where there is no budget, the bytes that the
system allows. Printed is a JSON object: how it ended and in which call, the message, seconds, the peak of resident
memory without the arrays that were passed in, the budget, and whether kernels were compiled. Unless it is `fresh`, a
tiny job loads all code before. The work "load" compiles the kernels that `pairs` of a cost and a kind need, where no
cache has them.
"""

from __future__ import annotations

import json
import resource
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numba.core import event

import occamap as oc
from occamap._memory import _status, peak, resident, trim
from occamap.errors import InputError, MemoryBudgetError
from soak.determinism_maps import forced

COSTS: dict[str, Callable[[int], Any]] = {
    "sql2": lambda d: oc.SqL2(),
    "l1": lambda d: oc.L1(0.3),
    "stvs": lambda d: oc.STVS(0.5),
    "koverlap": lambda d: oc.KOverlap(0.3, k=3),
    "groups": lambda d: oc.GroupLasso(0.3, groups=[range(5), range(5, 10)]),
    "subspace": lambda d: oc.Subspace(0.3, basis=np.eye(3, d)),
}
TINY = {"n": 60, "m": 50, "d": 12}
NO_THREAD = "n_jobs must be a number of threads that this process can start"
STACKS = 20_000_000  # bytes of addresses for each thread: its stack, and an arena of the C library's allocator


def samples(rows: int, columns: int, kind: str, seed: int) -> Any:
    """Samples of the kind; no one else holds them."""
    rng = np.random.default_rng(seed)
    array = rng.gamma(2.0, 1.0, (rows, columns)) * (rng.random((rows, columns)) < 0.3) + 0.1 * seed
    return array.astype(np.float32) if kind == "dense" else sp.csr_array(array.astype(np.float32))


def nbytes(array: Any) -> int:
    parts = (array.data, array.indices, array.indptr) if sp.issparse(array) else (array,)
    return sum(part.nbytes for part in parts)


def made(job: dict[str, Any]) -> tuple[Any, ...]:
    """What the work is done on: two samples, or AnnData of both."""
    X, Y = (samples(job[side], job["d"], job["kind"], seed) for seed, side in enumerate("nm"))
    if job["work"] != "evaluate":
        return X, Y
    import anndata
    import pandas as pd

    labels = pd.DataFrame({"group": ["a"] * X.shape[0] + ["b"] * Y.shape[0]}).astype("category")
    labels.index = labels.index.astype(str)
    return (anndata.AnnData(sp.vstack([sp.csr_array(X), sp.csr_array(Y)]).tocsr(), obs=labels),)


def do(job: dict[str, Any], given: tuple[Any, ...], max_memory: int | None, calls: list[str]) -> None:
    """The work itself; `calls` are those that were begun."""
    limits: dict[str, Any] = {"max_memory": max_memory, "n_jobs": job["n_jobs"]}
    cost = COSTS[job["cost"]](job["d"])
    calls.append(job["work"])
    if job["work"] == "fit":
        model = oc.MongeMap(cost, **limits).fit(*given)
        calls.append("transform")
        model.transform(given[0])
        return
    template, gammas = oc.L1 if job["cost"] == "sql2" else cost, [0.1, 0.3, 1.0] if job["gammas"] else None
    if job["work"] == "path":
        oc.gamma_path(*given, template, gammas, **limits)
    elif job["work"] == "choose":
        oc.MongeMapCV(template, gammas=gammas or 4, cv=2, random_state=0, **limits).fit(*given)
    else:
        asked: dict[str, Any] = {"costs": [job["cost"]], "gammas": [0.3, 1.0], "splits": 2, "components": 5}
        oc.evaluate(*given, groupby="group", control="a", verbose=False, **asked, **limits)


def load(pairs: list[list[str]]) -> None:
    """Every kernel that work with these costs and kinds of samples can need, costs in every place and precision."""
    for cost, kind in pairs:
        tiny = {"work": "fit", "cost": cost, "kind": kind, "n_jobs": 1, "gammas": True, **TINY}
        for place in ("memory", "disk", "recomputed"):
            for precision in ("float32", "float64"):
                with forced(place, precision):
                    do(tiny, made(tiny), 2**40, [])
        for work in ("path", "choose", *(("evaluate",) if cost in ("l1", "stvs") else ())):
            do({**tiny, "work": work}, made({**tiny, "work": work}), None, [])


def _limit(size: int) -> None:
    """No more than so many bytes beyond what there are, by the system."""
    most = _status("VmData:") + max(0, size)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Load all code by a tiny job of the same kind, so that numbers are those of the work; then do it."""
    if job["work"] == "load":
        load(job["pairs"])
        return {}
    for max_memory in () if job.get("fresh") else (None, 2**40):
        do({**job, **TINY}, made({**job, **TINY}), max_memory, [])
    given = made(job)
    trim()
    lent = sum(nbytes(array) for array in given) if len(given) == 2 else 0
    held = resident() - lent
    budget = job.get("budget") or (held + job["room"] if "room" in job else None)
    if budget is not None and not job.get("fresh"):  # code that is loaded has addresses that it does not use
        _limit(int((1 + job["slack"]) * budget) - held + STACKS * job["n_jobs"])
    elif "hard" in job:
        _limit(job["hard"])
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    begun, told, calls = time.monotonic(), {"ending": "kept", "message": ""}, list[str]()
    compiled = event.RecordingListener()
    try:
        with event.install_listener("numba:compile", compiled):
            do(job, given, budget, calls)
    except MemoryBudgetError as error:
        told |= {"ending": "refused", "message": str(error)}
    except MemoryError as error:
        told |= {"ending": "out of memory", "message": str(error)}
    except InputError as error:
        if "hard" not in job or NO_THREAD not in str(error):
            raise
        told |= {"ending": "no room for a thread, in one sentence", "message": str(error)}
    numbers = {"seconds": time.monotonic() - begun, "peak": peak() - lent, "budget": budget, "held": held}
    return told | numbers | {"call": calls[-1], "compiled": len(compiled.buffer) > 0}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(main(json.loads(sys.argv[1]))))
