"""Digests of what maps of every cost give, in a process of its own: `python -m soak.determinism_maps JSON`.

JSON has `cases`, names such as "l1/csr/float32", and how to work: `n_jobs`, `order` (a seed to shuffle the cases by,
so that each comes after other work), `shift` (samples begin at an odd address and nobody copies them), `place` and
`precision` (where costs are to be), and `scheduler` (the address of a Dask scheduler). Printed is a JSON object: case,
then part, then its SHA-256.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import occamap as oc
from occamap.scale import connect
from occamap.sinkhorn import places

N, M, D, UNSEEN = 700, 600, 24, 130  # several blocks of costs, and of samples to move
BASIS = np.linalg.qr(np.random.default_rng(5).normal(size=(D, 3)))[0].T
COSTS: dict[str, oc.Cost] = {
    "sql2": oc.SqL2(),
    "l1": oc.L1(0.4),
    "l1-weights": oc.L1(0.4, weights=np.r_[0.0, np.inf, np.linspace(0.5, 2.0, D - 2)]),
    "stvs": oc.STVS(0.7),
    "koverlap": oc.KOverlap(0.5, k=3),
    "koverlap-norm": oc.KOverlap(0.5, k=3, squared=False),
    "groups": oc.GroupLasso(0.6, [list(range(k, k + 6)) for k in range(0, D, 6)], l1_ratio=0.3),
    "groups-overlap": oc.GroupLasso(0.6, [[0, 1, 2, 3], [3, 4, 5], [5, 6, 0], [9, 10]]),
    "subspace": oc.Subspace(2.0, BASIS),
}
CASES = [f"{cost}/{kind}/{dtype}" for cost in COSTS for kind in ("dense", "csr") for dtype in ("float32", "float64")]
CASES += ["l1/tiles/float32"]  # more than one tile of costs
CASES += [f"{what}/dense/float64" for what in ("path", "cv", "divergence", "barycenter", "directions")]


def numbers(seed: int, rows: int, columns: int = D) -> Any:
    """Samples that are half zeros, as counts are."""
    rng = np.random.default_rng(seed)
    return rng.gamma(2.0, 1.0, size=(rows, columns)) * (rng.random((rows, columns)) < 0.5) + 0.2 * (seed % 2)


def shifted(array: Any) -> Any:
    """The same numbers where vectors do not begin, in an array that nobody can write to."""
    room = np.empty(array.nbytes + 64 + array.itemsize, np.uint8)
    start = -room.ctypes.data % 64 + array.itemsize
    moved = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    moved[...] = array
    moved.flags.writeable = False
    return moved


def wrapped(array: Any, kind: str, dtype: str, shift: bool) -> Any:
    array = array.astype(dtype)
    if kind != "csr":
        return shifted(array) if shift else array
    matrix = sp.csr_array(array)
    if shift:
        parts = [shifted(part) for part in (matrix.data, matrix.indices, matrix.indptr)]
        matrix = sp.csr_array(tuple(parts), shape=matrix.shape)
    return matrix


def digest(*values: Any) -> str:
    """Of arrays, matrices and plain values: type, shape and every byte."""
    found = hashlib.sha256()
    for value in values:
        if sp.issparse(value):
            value = sp.csr_array(value)
            parts = [value.data, value.indices, value.indptr]
        elif isinstance(value, np.ndarray):
            parts = [value]
        else:
            parts = [np.frombuffer(value if isinstance(value, bytes) else repr(value).encode(), np.uint8)]
        for part in parts:
            found.update(f"{part.dtype}{part.shape}".encode() + np.ascontiguousarray(part).tobytes())
    return found.hexdigest()


def fitted(case: str, job: dict[str, Any], client: Any = None) -> tuple[oc.MongeMap, Any]:
    """The map of a case, and unseen samples of its kind."""
    name, kind, dtype = case.split("/")
    sizes = (9_000, 4_000, 6) if kind == "tiles" else (N, M, D)
    X, Y = (wrapped(numbers(seed, rows, sizes[2]), kind, dtype, job.get("shift", False)) for seed, rows in
            ((0, sizes[0]), (1, sizes[1])))
    Z = wrapped(numbers(2, UNSEEN, sizes[2]), kind, dtype, job.get("shift", False))
    model = oc.MongeMap(COSTS[name], epsilon=0.05, n_jobs=job["n_jobs"], relax=0.5, max_memory=job.get("max_memory"))
    return model.fit(X, Y, client=client), Z


def map_parts(case: str, job: dict[str, Any], client: Any = None) -> dict[str, str]:
    """Potentials, displacements, predictions both ways, and the file: all of it but seconds, memory and n_jobs."""
    model, Z = fitted(case, job, client)
    found = {
        "potentials": digest(model.f_, model.g_, model.epsilon_, model.report_.errors),
        "displacement": digest(model.displacement(Z)),
        "transform": digest(model.transform(Z)),
        "inverse": digest(model.inverse_transform(Z)),
    }
    report = model.report_
    model.report_ = replace(report, seconds=0.0, peak_memory=0, operator="", choice="")
    model.n_jobs = model.max_memory = None
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder, "map"))
        found["file"] = digest(Path(folder, "map").read_bytes())
    return found


def other_parts(what: str, n_jobs: int) -> dict[str, str]:
    """What is built on maps: a path, a choice by held-out samples, a divergence, a barycenter, directions."""
    X, Y = numbers(0, 320), numbers(1, 300)
    if what == "path":
        path = oc.gamma_path(X, Y, oc.L1, [0.1, 0.4, 1.0], n_jobs=n_jobs)
        return {"path": digest(*(value for m in path.maps for value in (m.f_, m.g_, m.transform(X))))}
    if what == "cv":
        asked: dict[str, Any] = {"gammas": [0.1, 0.6], "epsilon": (0.05,), "cv": 3, "n_jobs": n_jobs}
        search = oc.MongeMapCV(oc.L1, **asked, projection=4).fit(X, Y)
        table = {name: np.asarray(column) for name, column in sorted(search.results_.items())}
        kept = [value for name, value in table.items() if value.dtype.kind in "fiu" and not name.endswith("_seconds")]
        return {"table": digest(*kept), "moved": digest(search.transform(X))}
    if what == "divergence":
        return {"divergence": digest(oc.metrics.sinkhorn_divergence(X, Y, n_jobs=n_jobs))}
    if what == "barycenter":
        found = oc.barycenter([X[:90], Y[:80]], oc.L1(0.3), n_points=40, max_steps=5, n_jobs=n_jobs)
        return {"points": digest(found.support, found.values)}
    return {"basis": digest(oc.learn_subspace(X[:150], Y[:150], 2, max_iter=8, n_jobs=n_jobs).basis)}


@contextmanager
def forced(place: str | None, precision: str) -> Iterator[None]:
    """Costs in this place and precision, whatever room there is."""
    chosen: Callable[..., Any] = places.choose
    with tempfile.TemporaryDirectory() as folder:
        if place is not None:
            places.choose = lambda *_: places.Choice(place, np.dtype(precision), "", folder)  # type: ignore[assignment]
        try:
            yield
        finally:
            places.choose = chosen  # type: ignore[assignment]


def work(job: dict[str, Any]) -> dict[str, dict[str, str]]:
    """The digests of all cases of a job."""
    cases = list(job["cases"])
    if job.get("order") is not None:
        cases = list(np.random.default_rng(job["order"]).permutation(cases))
    with connect(job.get("scheduler")) as client, forced(job.get("place"), job.get("precision", "float64")):
        names = {case: case.split("/")[0] for case in cases}
        return {
            case: map_parts(case, job, client) if name in COSTS else other_parts(name, job["n_jobs"])
            for case, name in names.items()
        }


if __name__ == "__main__":
    import warnings

    warnings.simplefilter("ignore")  # a solve that ends early must end at the same number
    told, sys.stdout = sys.stdout, io.StringIO()
    found = work(json.loads(sys.argv[1]))
    print(json.dumps(found), file=told)
