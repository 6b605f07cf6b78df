"""Seconds to move the interferon cells with and without debiasing: `OCCAMAP_DATA=… python -m benchmarks.debias`."""

from __future__ import annotations

import time
import warnings

import scanpy as sc

import occamap as oc


def main() -> None:
    warnings.simplefilter("ignore")
    adata = oc.datasets.kang_ifnb()
    sc.pp.normalize_total(adata, target_sum=1e4)
    sc.pp.log1p(adata)
    X, Y = (adata[adata.obs["condition"] == name].X for name in ("control", "stimulated"))
    for cost in (oc.L1(0.3), oc.STVS(0.3)):
        for debias in (False, True):
            m = oc.MongeMap(cost, 0.03, relax=1.0, debias=debias).fit(X, Y)
            m.displacement(X[:3])  # compiles, and solves the source against itself
            begun = time.perf_counter()
            share = m.displacement(X).nnz / (X.shape[0] * X.shape[1])
            print(cost, f"debias={debias}", f"{time.perf_counter() - begun:.2f} s, {share:.2%} of the entries move")


if __name__ == "__main__":
    main()
