"""One piece of work within a budget, in a process of its own: `python -m soak.limits_child JSON`.

JSON has `work` ("fit", "path" or "evaluate"), `n`, `m`, `d`, `kind` ("dense" or "csr"), `cost`, `n_jobs`, and `room`,
the bytes beyond what the process holds, or `budget`, the bytes in all, with `slack`, the share of it that the system
allows beyond; or `hard`, where there is no budget, the bytes that the system allows. Printed is a JSON object: how it
ended, the message, seconds, the peak of resident memory without the arrays that were passed in, and the budget. The
work "load" compiles the kernels that `pairs` of a cost and a kind need, where no cache has them.
"""

from __future__ import annotations

import json
import resource
import sys
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import occamap as oc
from occamap._memory import _status, peak, resident, trim
from occamap.errors import MemoryBudgetError
from soak.determinism_maps import forced

COSTS = {"sql2": oc.SqL2(), "l1": oc.L1(0.3), "stvs": oc.STVS(0.5), "koverlap": oc.KOverlap(0.3, k=3)}
STACKS = 20_000_000  # bytes of addresses for each thread: its stack, and an arena of the C library's allocator


def samples(rows: int, columns: int, kind: str, seed: int) -> Any:
    """Samples of the kind; no one else holds them."""
    rng = np.random.default_rng(seed)
    array = rng.gamma(2.0, 1.0, (rows, columns)) * (rng.random((rows, columns)) < 0.3) + 0.1 * seed
    return array.astype(np.float32) if kind == "dense" else sp.csr_array(array.astype(np.float32))


def nbytes(array: Any) -> int:
    parts = (array.data, array.indices, array.indptr) if sp.issparse(array) else (array,)
    return sum(part.nbytes for part in parts)


def do(job: dict[str, Any], X: Any, Y: Any, max_memory: int | None) -> Any:
    """The work itself."""
    limits: dict[str, Any] = {"max_memory": max_memory, "n_jobs": job["n_jobs"]}
    if job["work"] == "fit":
        model = oc.MongeMap(COSTS[job["cost"]], **limits).fit(X, Y)
        return model.transform(X), model.report_.operator
    if job["work"] == "path":
        kind = type(COSTS[job["cost"]])
        cost = COSTS[job["cost"]] if kind is oc.KOverlap else kind
        return oc.gamma_path(X, Y, oc.L1 if kind is oc.SqL2 else cost, [0.1, 0.3, 1.0], **limits), "path"
    import anndata
    import pandas as pd

    both = sp.vstack([sp.csr_array(X), sp.csr_array(Y)]).tocsr()
    labels = pd.DataFrame({"group": ["a"] * X.shape[0] + ["b"] * Y.shape[0]}).astype("category")
    labels.index = labels.index.astype(str)
    adata = anndata.AnnData(both, obs=labels)
    cost = "l1" if job["cost"] == "koverlap" else job["cost"]
    asked: dict[str, Any] = {"costs": [cost], "gammas": [0.3, 1.0], "splits": 2, "components": 5, "verbose": False}
    return oc.evaluate(adata, groupby="group", control="a", **asked, **limits), "evaluate"


def load(pairs: list[list[str]]) -> None:
    """Every kernel that work with these costs and kinds of samples can need, costs in every place and precision."""
    for cost, kind in pairs:
        tiny = {"work": "fit", "cost": cost, "kind": kind, "n_jobs": 1}
        X, Y = (samples(60, 12, kind, seed) for seed in range(2))
        for place in ("memory", "disk", "recomputed"):
            for precision in ("float32", "float64"):
                with forced(place, precision):
                    do(tiny, X, Y, 2**40)
        for work in ("path", "evaluate") if cost in ("l1", "stvs") else ("path",):
            do({**tiny, "work": work}, X, Y, None)


def _limit(size: int) -> None:
    """No more than so many bytes beyond what there are, by the system."""
    most = _status("VmData:") + max(0, size)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Load all code by a tiny job of the same kind, so that numbers are those of the work; then do it."""
    if job["work"] == "load":
        load(job["pairs"])
        return {}
    tiny = {**job, "n": 60, "m": 50, "d": 12}
    do(tiny, *(samples(tiny[side], tiny["d"], job["kind"], seed) for seed, side in enumerate("nm")), None)
    do(tiny, *(samples(tiny[side], tiny["d"], job["kind"], seed) for seed, side in enumerate("nm")), 2**40)
    X, Y = (samples(job[side], job["d"], job["kind"], seed) for seed, side in enumerate("nm"))
    trim()
    lent = nbytes(X) + nbytes(Y)
    held = resident() - lent
    budget = job.get("budget") or (held + job["room"] if "room" in job else None)
    if budget is not None:
        _limit(int((1 + job["slack"]) * budget) - held + STACKS * job["n_jobs"])
    elif "hard" in job:
        _limit(job["hard"])
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    begun, told = time.monotonic(), {"ending": "kept", "message": "", "place": ""}
    try:
        told["place"] = do(job, X, Y, budget)[1]
    except MemoryBudgetError as error:
        told |= {"ending": "refused", "message": str(error)}
    except MemoryError as error:
        told |= {"ending": "out of memory", "message": str(error)}
    numbers = {"seconds": time.monotonic() - begun, "peak": peak() - lent, "budget": budget, "held": held}
    return told | numbers


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(main(json.loads(sys.argv[1]))))
