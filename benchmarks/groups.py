"""All pairs of costs with groups of genes, beside those of ℓ1: `python -m benchmarks.groups`.

Both are timed in turn, so that a busy moment of the machine meets both, and the median of the ratios is told.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import occamap as oc
from benchmarks.machine import facts

TURNS = 3
N, M, GENES = 3_000, 3_000, 34_636
GAMMA = 0.3
TARGET = 3.0  # × ℓ1
PAIRS = 2_000  # of groups that overlap: they are slow


def layouts(rng: np.random.Generator) -> dict[str, list[Any]]:
    """Groups that do not overlap; genes in none are by themselves."""
    genes = rng.permutation(GENES)
    return {
        "50 groups of 90 genes, others alone": np.array_split(genes[:4_500], 50),
        "300 groups of 50 genes, others alone": np.array_split(genes[:15_000], 300),
        "100 groups of 346 genes": np.array_split(genes, 100),
        "300 groups of 115 genes": np.array_split(genes, 300),
        "1,000 groups of 35 genes": np.array_split(genes, 1_000),
    }


def seconds(cost: oc.Cost, X: Any, Y: Any) -> float:
    begun = time.perf_counter()
    cost.pairwise(X, Y)
    return time.perf_counter() - begun


def in_turn(cost: oc.Cost, X: Any, Y: Any) -> tuple[float, float]:
    """Seconds of the cost, and times ℓ1, each the median."""
    plain = oc.L1(GAMMA)
    for warm in (plain, cost):
        warm.pairwise(X[:64], Y)
    found = [(seconds(plain, X, Y), seconds(cost, X, Y)) for _ in range(TURNS)]
    return float(np.median([b for _, b in found])), float(np.median([b / a for a, b in found]))


def main() -> None:
    rng = np.random.default_rng(0)
    cells = oc.datasets.simulate_perturbation(N, M, GENES)
    X, Y = cells.control, cells.treated
    lines = [
        "# All pairs of costs with groups of genes",
        "",
        *(f"- {name}: {value}" for name, value in facts().items()),
        f"- {N:,} × {M:,} simulated cells × {GENES:,} genes, {X.nnz / np.prod(X.shape):.1%} stored, float32 CSR; "
        f"`python -m benchmarks.groups`; asked: at most {TARGET:g} × ℓ1",
        "",
        "| groups | ℓ1 share | seconds | × ℓ1 | |",
        "|---|---|---|---|---|",
    ]
    for name, groups in layouts(rng).items():
        for ratio in 0.0, 0.5:
            took, times = in_turn(oc.GroupLasso(GAMMA, groups, l1_ratio=ratio), X, Y)
            met = "met" if times <= TARGET else "missed"
            lines.append(f"| {name} | {ratio:g} | {took:.2f} | {times:.2f} | {met} |")
            print(lines[-1], file=sys.stderr)
    lines += ["", "Groups that overlap, from 4,400 genes (one thread):", "", "| groups | ms a pair |", "|---|---|"]
    for count, size in ((50, 146), (186, 70)):
        sets = [rng.choice(4_400, size, replace=False) for _ in range(count)]
        cost = oc.GroupLasso(GAMMA, sets)
        cost.pairwise(X[:2], Y[:10], n_jobs=1)
        begun = time.perf_counter()
        cost.pairwise(X[: PAIRS // 100], Y[:100], n_jobs=1)
        lines.append(f"| {count} of {size} genes | {(time.perf_counter() - begun) / PAIRS * 1e3:.2f} |")
        print(lines[-1], file=sys.stderr)
    path = Path(__file__).parent / "results" / "groups.md"
    path.write_text("\n".join(lines) + "\n")
    print(path.read_text())


if __name__ == "__main__":
    main()
