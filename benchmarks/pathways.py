"""How long `tl.monge_map` takes with gene sets, apart or overlapping: `python -m benchmarks.pathways`."""

from __future__ import annotations

import time

import numpy as np

import occamap as oc
from benchmarks.machine import facts

CELLS, TARGETS, GENES = 120, 100, 2_000
PAIR = {"groupby": "condition", "control": "control", "target": "treated"}


def layouts(names: np.ndarray, rng: np.random.Generator) -> dict[str, dict[str, list[str]] | None]:
    """Sets by name, of genes drawn at random; None for a map of single genes."""
    mixed = rng.permutation(names)

    def drawn(count: int, size: int) -> dict[str, list[str]]:
        return {f"SET_{k}": list(rng.choice(names, size, replace=False)) for k in range(count)}

    return {
        "none (`L1`)": None,
        "65 of 30 genes, apart": {f"SET_{k}": list(mixed[30 * k : 30 * k + 30]) for k in range(65)},
        "50 of 60 genes, overlapping": drawn(50, 60),
        "186 of 70 genes, overlapping": drawn(186, 70),
    }


def main() -> None:
    adata = oc.datasets.simulate_perturbation(CELLS, TARGETS, GENES, density=0.2, n_types=2, n_moved=40).to_anndata()
    for sets in None, {"A": adata.var_names[:9]}:  # so that little is compiled below
        oc.tl.monge_map(adata, **PAIR, gene_sets=sets)
    print("; ".join(f"{name}: {value}" for name, value in facts().items()))
    print(f"{CELLS} control and {TARGETS} target cells × {GENES:,} genes\n\n| gene sets | seconds |\n|---|---|")
    for name, sets in layouts(np.asarray(adata.var_names), np.random.default_rng(0)).items():
        begun = time.perf_counter()
        oc.tl.monge_map(adata, **PAIR, gene_sets=sets)
        print(f"| {name} | {time.perf_counter() - begun:.1f} |", flush=True)


if __name__ == "__main__":
    main()
