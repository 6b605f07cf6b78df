"""How long three steps of a barycenter take under each cost: `python -m benchmarks.barycenters`."""

from __future__ import annotations

import time
import warnings

import numpy as np

import occamap as oc

SAMPLES, FEATURES, STEPS = 100, 300, 3


def main() -> None:
    warnings.simplefilter("ignore", oc.errors.NotConvergedWarning)  # three steps are not to converge
    rng, d = np.random.default_rng(0), FEATURES
    rates = [0.3 + shift * (np.arange(d) < d // 10) for shift in (0, 1, 2)]
    measures = [np.log1p(rng.poisson(rate, size=(SAMPLES, d))) for rate in rates]
    basis = np.linalg.qr(rng.normal(size=(d, 3)))[0].T
    groups = [np.arange(k, k + 10) for k in range(0, d, 10)]
    separable = oc.SqL2(), oc.L1(0.3), oc.STVS(0.3)
    for cost in *separable, oc.KOverlap(1.0, 10), oc.Subspace(1.0, basis), oc.GroupLasso(0.3, groups):
        oc.barycenter([measure[:10] for measure in measures], cost, max_steps=1)  # compiles
        begun = time.perf_counter()
        oc.barycenter(measures, cost, max_steps=STEPS)
        print(f"{type(cost).__name__}: {time.perf_counter() - begun:.1f} s", flush=True)


if __name__ == "__main__":
    main()
