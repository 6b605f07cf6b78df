"""python -m benchmarks.interferon [nested] [fixed] [costs]: what choosing ε and γ by held-out cells is worth.

Peripheral blood cells with and without interferon-β (Kang et al. 2018), from kang_ifnb.h5ad in the directory that the
environment variable OCCAMAP_DATA names. Counts are scaled to 10,000 a cell and logged. Divergences are measured on
the first 50 principal components of the train cells, less those drawn for the floor. Writes interferon.md and
interferon.json to benchmarks/results; parts that are not asked for are kept as they are there.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.model_selection import ShuffleSplit

import occamap as oc
from benchmarks.machine import facts

NESTED, SPLITS, COMPONENTS = 20, 10, 50
FIXED = {"gammas": [0.0, 0.1, 0.3, 1.0, 3.0, 10.0], "epsilon": [0.003, 0.01, 0.03, 0.1], "relax": [0.0, 1.0]}
CEILINGS = 0.10, 0.15
RULE = "|---" * 5 + "|"


def cells(directory: Path) -> tuple[sp.csr_array, sp.csr_array, NDArray[Any]]:
    """Control and treated cells, normalised and logged, and the names of the genes."""
    import anndata

    data = anndata.read_h5ad(directory / "kang_ifnb.h5ad")
    counts = sp.csr_array(data.X, dtype=np.float32)
    logged = sp.csr_array(counts.multiply((1e4 / counts.sum(axis=1))[:, None]), dtype=np.float32)
    logged.data = np.log1p(logged.data)
    treated = (data.obs["condition"] == "stimulated").to_numpy()
    return logged[~treated], logged[treated], data.var_names.to_numpy()


def outer_splits(control: sp.csr_array, treated: sp.csr_array, count: int) -> list[tuple[NDArray[np.int64], ...]]:
    """Train and test rows of both groups, 80 to 20, at random."""
    by_group = [ShuffleSplit(count, test_size=0.2, random_state=s).split(c) for s, c in enumerate((control, treated))]
    return [(*x, *y) for x, y in zip(*by_group, strict=True)]


def grid(control: sp.csr_array, treated: sp.csr_array) -> oc.MongeMapCV:
    """Every fixed (ε, γ, relax) over the splits."""
    splits = outer_splits(control, treated, SPLITS)
    return oc.MongeMapCV(oc.L1, **FIXED, cv=splits, rule="best", projection=COMPONENTS).fit(control, treated)


def costs(control: sp.csr_array, treated: sp.csr_array) -> oc.MongeMapCV:
    """Penalties and rules for ties at one ε, over half of the splits."""
    splits = outer_splits(control, treated, SPLITS // 2)
    several = [oc.L1, oc.STVS, oc.KOverlap(1.0, k=100)]
    given = {"gammas": [0.1, 0.2, 0.4, 0.8, 1.6], "epsilon": 0.01, "relax": [0.0, 1.0], "ties": ["zero", "occam"]}
    return oc.MongeMapCV(several, **given, cv=splits, rule="best", projection=COMPONENTS).fit(control, treated)


def nested(control: sp.csr_array, treated: sp.csr_array, split: tuple[NDArray[np.int64], ...]) -> dict[str, Any]:
    """Choose on the train cells of one split, by folds among them; score on its test cells."""
    train_x, test_x, train_y, test_y = split
    x, y, held = control[train_x], treated[train_y], treated[test_y]
    drawn = np.random.default_rng(0).choice(y.shape[0], test_x.size, replace=False)  # for the floor
    seen = sp.csr_matrix(sp.vstack([x, y[np.setdiff1d(np.arange(y.shape[0]), drawn)]]))
    pca = PCA(COMPONENTS, svd_solver="arpack", random_state=0).fit(seen)

    def score(moved: Any) -> float:
        return oc.metrics.sinkhorn_divergence(project(moved), project(held))

    def project(samples: Any) -> Any:
        return pca.transform(sp.csr_matrix(samples))

    shift = project(y).mean(axis=0) - project(x).mean(axis=0)
    begun = time.perf_counter()
    search = oc.MongeMapCV(oc.L1, 20, epsilon=[0.003, 0.01, 0.03], relax=1.0, cv=3).fit(x, y)
    row: dict[str, Any] = {
        "identity": score(control[test_x]),
        "mean shift": oc.metrics.sinkhorn_divergence(project(control[test_x]) + shift, project(held)),
        "floor": score(y[drawn]),
        "floor, cells seen by the projection": score(y[np.setdiff1d(np.arange(y.shape[0]), drawn)][: test_x.size]),
        "seconds": time.perf_counter() - begun,
    }
    maps = {
        "½ℓ2², ε = 0.1 × mean": oc.MongeMap(oc.SqL2()).fit(x, y),
        **{f"density ≤ {most:.0%}": search.select("density", most) for most in CEILINGS},
        "one standard error": search.select("one_se"),
    }
    for name, fitted in maps.items():
        moves = fitted.displacement(control[test_x])
        row[name] = {
            "divergence": score(control[test_x] + moves),
            "density": moves.nnz / (moves.shape[0] * moves.shape[1]),
            "gamma": getattr(fitted.cost, "gamma", 0.0),
            "epsilon": fitted.epsilon,
            "relax": fitted.relax,
        }
    return row


def tables(record: dict[str, Any]) -> str:
    """All tables, in Markdown."""
    rows = record["nested"]

    def of(name: str) -> NDArray[np.float64]:
        return np.array([row[name]["divergence"] if isinstance(row[name], dict) else row[name] for row in rows])

    dense, floor = of("½ℓ2², ε = 0.1 × mean"), of("floor")
    head = "| | divergence | against ½ℓ2² | against the floor | density | chosen: ε / mean, γ, relax |"
    lines = [f"## Choice made on train cells only, {len(rows)} splits", "", head, "|---" + RULE]
    for name in (name for name in rows[0] if name != "seconds"):
        values = of(name)
        told = [told_mean(values), told_mean(values - dense, sign="+"), told_mean(values - floor, sign="+"), "", ""]
        if isinstance(rows[0][name], dict):
            found = [row[name] for row in rows]
            told[3] = f"{told_mean(np.array([100 * f['density'] for f in found]))} %"
            picked = sorted({f"{f['epsilon']:g}, {f['gamma']:.1g}, {f['relax']:g}" for f in found})
            told[4] = "; ".join(picked)
        lines.append(f"| {name} | {' | '.join(told)} |")
    head = "| ε / mean | γ | density | divergence | with relax = 1 |"
    lines += ["", f"## Fixed parameters, ℓ1, {SPLITS} splits", "", head, RULE]
    lines += _by_relax(record["fixed"], ["epsilon", "gamma"])
    lines += ["", f"## Costs and ties, ε = 0.01 × mean, {SPLITS // 2} splits", ""]
    lines += ["| cost | ties | γ | density | divergence | with relax = 1 |", "|---" + RULE]
    lines += _by_relax(record["costs"], ["cost", "ties", "gamma"])
    return "\n".join(lines) + "\n"


def _by_relax(results: dict[str, list[Any]], keys: list[str]) -> list[str]:
    frame = pd.DataFrame(results).sort_values(keys, kind="stable")
    plain, relaxed = (frame[frame.relax == value].reset_index() for value in (0.0, 1.0))
    lines = []
    for (_, a), (_, b) in zip(plain.iterrows(), relaxed.iterrows(), strict=True):
        pair = " | ".join(f"{r.mean_divergence:.1f} ± {r.se_divergence:.1f}" for r in (a, b))
        named = " | ".join(a[key] if isinstance(a[key], str) else f"{a[key]:g}" for key in keys)
        lines.append(f"| {named} | {a.mean_density:.1%} | {pair} |")
    return lines


def told_mean(values: NDArray[np.float64], sign: str = "") -> str:
    return f"{values.mean():{sign}.1f} ± {values.std(ddof=1) / np.sqrt(values.size):.1f}"


def main() -> int:
    named = os.environ.get("OCCAMAP_DATA")
    if not named or not (Path(named) / "kang_ifnb.h5ad").is_file():
        print("set OCCAMAP_DATA to the directory that holds kang_ifnb.h5ad", file=sys.stderr)
        return 1
    control, treated, _ = cells(Path(named))
    print(f"{control.shape[0]} control and {treated.shape[0]} treated cells × {control.shape[1]} genes", flush=True)
    parts: dict[str, Callable[[], Any]] = {
        "nested": lambda: [nested(control, treated, split) for split in outer_splits(control, treated, NESTED)],
        "fixed": lambda: _lists(grid(control, treated)),
        "costs": lambda: _lists(costs(control, treated)),
    }
    out = Path(__file__).with_name("results")
    data = out / "interferon.json"
    record = json.loads(data.read_text(encoding="utf-8")) if data.exists() else {}
    wanted = [name for name in parts if name in sys.argv[1:] or len(sys.argv) == 1 or name not in record]
    for name in wanted:
        begun = time.perf_counter()
        record[name] = parts[name]()
        print(f"{name}: {time.perf_counter() - begun:.0f} s", flush=True)
    record["machine"] = facts()
    title = "# Interferon-β cells: held-out divergence and density, mean ± standard error over splits"
    text = f"{title}\n\n{tables(record)}"
    print(text)
    (out / "interferon.md").write_text(text, encoding="utf-8")
    data.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


def _lists(search: oc.MongeMapCV) -> dict[str, list[Any]]:
    return {name: column.tolist() for name, column in search.results_.items()}


if __name__ == "__main__":
    sys.exit(main())
