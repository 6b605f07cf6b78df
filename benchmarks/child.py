"""Run in a process of its own: fit and transform stored samples, or import and fit next to nothing."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def fit(control: str, treated: str, max_memory: str | None = None) -> dict[str, float]:
    """Fit and transform the samples of two files; seconds of both, and bytes held before and at the peak."""
    import time

    import scipy.sparse as sp

    import occamap as oc

    X, Y = sp.load_npz(control), sp.load_npz(treated)
    before, begun = peak(), time.perf_counter()
    fitted = oc.MongeMap(oc.L1(1.0), max_memory=max_memory).fit(X, Y)
    moved = fitted.transform(X)
    seconds = time.perf_counter() - begun
    if not fitted.converged_ or moved.shape != X.shape:
        raise RuntimeError("the fit did not converge")
    return {"seconds": seconds, "before": before, "peak": peak()}


def start() -> dict[str, float]:
    """A first small result; the parent takes the time of the whole process."""
    import numpy as np
    import scipy.sparse as sp

    import occamap as oc

    rng = np.random.default_rng(0)
    X, Y = (sp.random_array((30, 200), density=0.1, format="csr", dtype=np.float32, rng=rng) for _ in range(2))
    oc.MongeMap(oc.L1(0.1)).fit(X, Y).displacement(X)
    return {"peak": peak()}


def peak() -> int:
    """Bytes that this process held at its largest.

    Linux hands ru_maxrss down from the process that started this one, so the high-water mark comes first.
    """
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return used if sys.platform == "darwin" else used * 1024


if __name__ == "__main__":
    task, *arguments = sys.argv[1:]
    print(json.dumps(fit(*arguments) if task == "fit" else start()))
