"""Run in a process of its own by benchmarks.scale: one fit, or its parts, timed."""

from __future__ import annotations

import time

BEGUN = time.perf_counter()

import hashlib  # noqa: E402  (the time of imports counts)
import json  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import scipy.sparse as sp  # noqa: E402

import occamap as oc  # noqa: E402
from benchmarks.child import peak  # noqa: E402

UNSEEN, TRIALS = 200, 3


def fit(control: str, treated: str, unseen: str, options: dict[str, Any], client: Any = None) -> dict[str, Any]:
    """Read, fit and move the unseen cells; a few cells first, so that the code is loaded."""
    X, Y, new = (sp.load_npz(file) for file in (control, treated, unseen))
    oc.MongeMap(oc.L1(0.3)).fit(X[:64], Y[:64]).displacement(new[:64])
    begun = time.perf_counter()
    model = oc.MongeMap(oc.L1(0.3), **options).fit(X, Y, client=client)
    fitted = time.perf_counter()
    moves = model.displacement(new)
    done, told = time.perf_counter(), model.report_
    assert model.converged_
    return {
        "n": X.shape[0],
        "m": Y.shape[0],
        "d": X.shape[1],
        "stored": (X.nnz + Y.nnz) / (X.shape[0] + Y.shape[0]),
        "max_memory": options.get("max_memory"),
        "epsilon_rule": told.epsilon_rule,
        "operator": told.operator,
        "choice": told.choice,
        "n_iter": told.n_iter,
        "effective_targets": told.effective_targets,
        "density": moves.nnz / np.prod(moves.shape),
        "fit": fitted - begun,
        "moved": done - fitted,
        "wall": done - BEGUN,
        "peak": peak(),
        "data": sum(part.nbytes for A in (X, Y) for part in (A.data, A.indices, A.indptr)),
        "digest": hashlib.sha256(model.f_.tobytes() + model.g_.tobytes()).hexdigest(),
    }


def fit_on_cluster(*arguments: Any) -> dict[str, Any]:
    """The same with the workers of a cluster on this machine: processes of their own, of one thread each."""
    from distributed import Client

    *given, workers = arguments
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "scheduler.json")
        dask, quiet = [sys.executable, "-m", "dask"], {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        started = [subprocess.Popen([*dask, "scheduler", "--host", "127.0.0.1", "--scheduler-file", file], **quiet)]
        for _ in range(workers):
            started.append(
                subprocess.Popen([*dask, "worker", "--scheduler-file", file, "--nthreads", "1", "--no-nanny"], **quiet)
            )
        try:
            with Client(scheduler_file=file, set_as_default=False) as client:
                client.wait_for_workers(workers)
                rng = np.random.default_rng(0)
                few = [sp.random_array((64, 100), density=0.1, format="csr", dtype=np.float32, rng=rng) for _ in "xy"]
                oc.MongeMap(oc.L1(0.3)).fit(*few, client=client)  # code is loaded there, too
                return {**fit(*given, client=client), "workers": workers, "peaks": sorted(client.run(peak).values())}
        finally:
            for process in started:
                process.kill()


def parts(n: int, m: int, d: int, density: float) -> dict[str, Any]:
    """Seconds of the costs, of one iteration, and of moving 64 cells; the best of three."""
    from occamap._memory import Budget
    from occamap._validate import check_samples
    from occamap._workers import Workers
    from occamap.sinkhorn import cost_blocks, solve

    drawn = oc.datasets.simulate_perturbation(n, m, d, density=density)
    X, Y = check_samples(drawn.control, "X"), check_samples(drawn.treated, "Y")
    a, b, cost = np.full(n, 1 / n), np.full(m, 1 / m), oc.L1(0.3)
    stored = (X.data.size + Y.data.size) / (n + m)
    found: dict[str, Any] = {"n": n, "m": m, "d": d, "density": density, "stored": stored}
    with Workers() as workers:
        for _ in range(3):
            begun = time.perf_counter()
            costs = cost_blocks(cost, X, Y, Budget(None), workers)
            _least(found, "costs", begun)
            epsilon = 0.1 * float(costs.block((0, 64)).mean())
            begun = time.perf_counter()
            solve(costs, a, b, [epsilon], tol=1e-300, max_iter=10, workers=workers, accelerate=False)
            found["iteration"] = min(found.get("iteration", np.inf), (time.perf_counter() - begun) / 12)
        model = oc.MongeMap(cost).fit(X.csr()[:64], Y.csr())
        for _ in range(3):
            begun = time.perf_counter()
            model.displacement(X.csr()[:64])
            _least(found, "moving", begun)
    return found


def beyond(n: int, d: int, effective: float) -> dict[str, Any]:
    """What is lost by fitting to a share of the targets, or to mini-batches, at the ε of the whole problem.

    Errors are those of the displacements of unseen cells, in the root of the mean square relative to that of the
    displacements of the whole fit. The bound is the standard error of ∇f_ε under sampling of targets with g held fixed,
    (1 − s)/s Σ_j p_j² ‖∇h(x − y_j) − ∇f_ε(x)‖², which the prox does not increase.
    """
    drawn = oc.datasets.simulate_perturbation(n + UNSEEN, n, d)
    X, Y, new = drawn.control[:n], drawn.treated, drawn.control[n:]
    cost, rng = oc.L1(0.3), np.random.default_rng(0)
    whole = oc.MongeMap(cost, effective, "perplexity").fit(X, Y)
    exact, weights = whole.displacement(new).toarray(), whole.weights(new)
    size = float(np.sqrt((exact**2).sum(axis=1).mean()))
    spread = np.array([_spread(cost, x, Y, p) for x, p in zip(new.toarray(), weights, strict=True)])
    same = {"cost": cost, "epsilon": whole.epsilon_, "epsilon_scale": "absolute"}
    rows = []
    for parts in (2, 4, 8, 16):
        sources, targets = (np.array_split(rng.permutation(n), parts) for _ in range(2))
        alone, batches, seconds = [], np.zeros_like(exact), [0.0, 0.0]
        for number, (i, j) in enumerate(zip(sources, targets, strict=True)):
            if number < TRIALS:
                begun = time.perf_counter()
                fitted = oc.MongeMap(**same).fit(X, Y[np.sort(j)])
                seconds[0] += (time.perf_counter() - begun) / min(parts, TRIALS)
                alone.append(_error(fitted.displacement(new).toarray(), exact) / size)
            begun = time.perf_counter()
            fitted = oc.MongeMap(**same).fit(X[np.sort(i)], Y[np.sort(j)])
            seconds[1] += time.perf_counter() - begun
            batches += fitted.displacement(new).toarray() / parts
        bound = np.sqrt((parts - 1) * spread.mean()) / size
        rows.append(
            {
                "share": 1 / parts,
                "targets": float(np.sqrt(np.mean(np.square(alone)))),
                "bound": float(bound),
                "batches": _error(batches, exact) / size,
                "seconds_targets": seconds[0],
                "seconds_batches": seconds[1],
            }
        )
    shared = {"n": n, "d": d, "effective_targets": whole.report_.effective_targets, "seconds": whole.report_.seconds}
    return {**shared, "rows": rows}


def _spread(cost: Any, x: Any, Y: Any, p: Any) -> float:
    """Σ_j p_j² ‖∇h(x − y_j) − ∇f(x)‖², over the targets that matter."""
    held = np.flatnonzero(p > 1e-9 * p.max())
    slopes = cost.grad(x[None, :].astype(np.float64) - Y[held].toarray())
    field = p[held] @ slopes / p[held].sum()
    return float(p[held] ** 2 @ ((slopes - field) ** 2).sum(axis=1))


def _error(found: Any, exact: Any) -> float:
    return float(np.sqrt(((found - exact) ** 2).sum(axis=1).mean()))


def _least(found: dict[str, Any], name: str, begun: float) -> None:
    found[name] = min(found.get(name, np.inf), time.perf_counter() - begun)


if __name__ == "__main__":
    task, *given = sys.argv[1:]
    work: Any = {"fit": fit, "fit_on_cluster": fit_on_cluster, "parts": parts, "beyond": beyond}[task]
    print(json.dumps(work(*(json.loads(one) for one in given))))
