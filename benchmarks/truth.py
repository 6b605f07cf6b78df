"""python -m benchmarks.truth [--quick]: the error against h-optimal maps that are known, beside OTT-JAX's entropic map.

Both learn from the same samples, and are judged on the same 500 samples that neither has seen. Writes truth.md and
truth.csv to benchmarks/results; a quick run, which shows that all of it runs, adds that to the names.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_ENABLE_X64", "1")  # read when JAX is first imported
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import occamap as oc
from benchmarks.machine import facts

Floats = NDArray[Any]

UNSEEN, PULL, GAMMA, FOLDS = 500, 5.0, 2.0, 3
EPSILONS = (0.003, 0.01, 0.03, 0.1, 0.3)
PEER_FEATURES = 10  # OTT-JAX compiles for each shape, some 5 s each
GAMMAS = (0.0, 1.0, GAMMA, 4.0)
COSTS: dict[str, oc.Cost] = {
    "½ℓ2²": oc.SqL2(),
    "ℓ1": oc.L1(GAMMA),
    "STVS": oc.STVS(GAMMA),
    "k-overlap²": oc.KOverlap(GAMMA, k=2),
}
OTT, OTT_DEFAULT = "OTT-JAX, 0.1 × mean", "OTT-JAX, its defaults"
HINDSIGHT, NOTHING = "best in hindsight", "nothing moved"
RULES = {
    "0.1 × mean": (0.1, "mean"),
    "0.01 × mean": (0.01, "mean"),
    "0.05 × std": (0.05, "std"),
    "perplexity 10": (10.0, "perplexity"),
}
HELD_OUT, HELD_OUT_BOTH = "ε by held-out samples", "ε and γ by held-out samples"


class Ott:
    """OTT-JAX's entropic map for one cost: Sinkhorn, then the transport of its dual potentials, each compiled."""

    def __init__(self, name: str) -> None:
        import jax
        import jax.numpy as jnp

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # JAXopt, which OTT-JAX imports, warns that it is retired
            from ott.geometry import costs, pointcloud, regularizers
            from ott.problems.linear import linear_problem
            from ott.solvers.linear import sinkhorn
        penalties: dict[str, Any] = {
            "ℓ1": lambda: costs.RegTICost(regularizers.L1(), lam=GAMMA),
            "STVS": lambda: costs.RegTICost(regularizers.STVS(GAMMA), lam=1.0),  # it is right at this weight alone
            "k-overlap²": lambda: costs.RegTICost(regularizers.SqKOverlap(2), lam=GAMMA),
            "½ℓ2²": costs.SqEuclidean,
        }
        self.cost, self.jnp = penalties[name](), jnp
        self.scale = 2.0 if name == "½ℓ2²" else 1.0  # SqEuclidean has no ½: its ε is twice ours for the same plan

        def cloud(x: Any, y: Any, epsilon: Any = None) -> Any:
            return pointcloud.PointCloud(x, y, cost_fn=self.cost, epsilon=epsilon)

        def move(x: Any, y: Any, unseen: Any, epsilon: Any, threshold: Any) -> tuple[Any, Any]:
            solved = sinkhorn.Sinkhorn(threshold=threshold)(linear_problem.LinearProblem(cloud(x, y, epsilon)))
            return solved.to_dual_potentials().transport(unseen), solved.converged

        self.move, self.usual = jax.jit(move), jax.jit(lambda x, y: cloud(x, y).epsilon)

    def at(self, x: Floats, y: Floats, unseen: Floats, epsilon: float) -> dict[str, Any]:
        """At our ε and tolerance."""
        return self._timed(x, y, unseen, self.scale * epsilon, 1e-4)

    def own(self, x: Floats, y: Floats, unseen: Floats) -> dict[str, Any]:
        """At its own: ε = 0.05 × the standard deviation of the costs, tolerance 1e-3."""
        return self._timed(x, y, unseen, float(self.usual(self.jnp.asarray(x), self.jnp.asarray(y))), 1e-3)

    def _timed(self, x: Floats, y: Floats, unseen: Floats, epsilon: float, threshold: float) -> dict[str, Any]:
        arrays = [self.jnp.asarray(part) for part in (x, y, unseen)]
        begun = time.perf_counter()
        self.move(*arrays, epsilon, threshold)[0].block_until_ready()
        first = time.perf_counter() - begun
        begun = time.perf_counter()
        moved, converged = self.move(*arrays, epsilon, threshold)
        moved = np.asarray(moved.block_until_ready())
        seconds = time.perf_counter() - begun
        at = {"epsilon": epsilon / self.scale, "converged": bool(converged)}
        return {"moved": moved, "seconds": seconds, "first_seconds": first, **at}


def fit(cost: oc.Cost, epsilon: float, scale: str, x: Floats, y: Floats, unseen: Floats) -> dict[str, Any]:
    begun = time.perf_counter()
    fitted = oc.MongeMap(cost, epsilon=epsilon, epsilon_scale=scale).fit(x, y)
    moved = fitted.transform(unseen)
    seconds = time.perf_counter() - begun
    at = {"epsilon": fitted.epsilon_, "epsilon_of_mean": fitted.epsilon_ / fitted.cost.pairwise(x, y).mean()}
    return {"moved": moved, "seconds": seconds, **at, "converged": fitted.converged_}


def search(cost: oc.Cost, gammas: tuple[float, ...], x: Floats, y: Floats) -> tuple[oc.MongeMapCV, float]:
    """Chosen by the divergence of held-out samples alone: the truth is not looked at. And the seconds it took."""
    begun = time.perf_counter()
    grid = {"epsilon": EPSILONS, "relax": 0.0, "cv": FOLDS, "rule": "best", "projection": None, "verbose": False}
    found = oc.MongeMapCV(cost, gammas, **grid).fit(x, y)
    return found, time.perf_counter() - begun


def of_known_gamma(found: oc.MongeMapCV, gamma: float) -> float:
    """The ε / mean that held-out samples choose where γ is known."""
    at = np.flatnonzero((found.results_["gamma"] == gamma) & (found.results_["status"] == "converged"))
    return float(found.results_["epsilon"][at[np.argmin(found.results_["mean_divergence"][at])]])


def scores(truth: oc.datasets.GroundTruth, moved: Floats) -> dict[str, float]:
    """The error relative to that of no move, the cosine between the moves and the true ones, the share of the move
    on features that should stay."""
    unseen, goal, support = truth.source[:UNSEEN], truth.image[:UNSEEN], truth.support[:UNSEEN]
    move, true = moved - unseen, goal - unseen
    size = np.linalg.norm(move) * np.linalg.norm(true)
    nmse = oc.metrics.nmse(goal, moved)
    return {
        "nmse": nmse,
        "relative": nmse / oc.metrics.nmse(goal, unseen),
        "cosine": float((move * true).sum() / size) if size else 0.0,
        "support_error": oc.metrics.support_error(move, support),
        "density": oc.metrics.density(move),
    }


def cell(name: str, potential: str, d: int, n: int, seed: int, peers: dict[str, Ott]) -> list[dict[str, Any]]:
    """A row a rule for one truth and one pair of samples."""
    cost = COSTS[name]
    truth = oc.datasets.ground_truth(cost, d, UNSEEN + n, n, potential=potential, pull=PULL, random_state=seed)
    x, y, unseen = truth.source[UNSEEN:], truth.target, truth.source[:UNSEEN]
    rows: list[dict[str, Any]] = []

    def add(rule: str, found: dict[str, Any]) -> dict[str, Any]:
        moved = found.pop("moved")
        at = {"cost": name, "potential": potential, "d": d, "n": n, "seed": seed, "rule": rule}
        rows.append({**at, **found, **scores(truth, moved)})
        return {"moved": moved, **found}

    add(NOTHING, {"moved": unseen})
    by_rule = {rule: add(rule, fit(cost, *given, x, y, unseen)) for rule, given in RULES.items()}
    fits = {epsilon: add(f"grid {epsilon:g}", fit(cost, epsilon, "mean", x, y, unseen)) for epsilon in EPSILONS}
    gamma = 0.0 if name == "½ℓ2²" else GAMMA
    several = name == "ℓ1"
    found, seconds = search(oc.L1(1.0) if gamma == 0 else cost, GAMMAS if several else (gamma,), x, y)
    epsilon = of_known_gamma(found, gamma)
    add(HELD_OUT, {**fits[epsilon], "seconds": seconds})
    if several:
        at = {"epsilon_of_mean": found.best_params_["epsilon"], "gamma": found.gamma_, "seconds": seconds}
        add(HELD_OUT_BOTH, {"moved": found.transform(unseen), **at})
    if name in peers and d == PEER_FEATURES:
        ours = by_rule["0.1 × mean"]
        theirs = add(OTT, peers[name].at(x, y, unseen, ours["epsilon"]))
        rows[-1]["difference"] = float(np.abs(theirs["moved"] - ours["moved"]).max())
        add(OTT_DEFAULT, peers[name].own(x, y, unseen))
    return rows


def compute(names: list[str], sizes: dict[str, list[int]], seeds: int, out: Path) -> pd.DataFrame:
    """All rows of these costs, a seed after the other; rows of other costs that `out` has are kept as they are."""
    try:
        peers = {name: Ott(name) for name in names}
    except ModuleNotFoundError:
        print("OTT-JAX is not installed (pip install occamap[peers]): ours alone", file=sys.stderr)
        peers = {}
    grid = [
        (name, potential, d, n, seed)
        for seed in range(seeds)
        for name in names
        for potential in ("quadratic", "logcosh")
        for d in sizes["d"]
        for n in sizes["n"]
        if potential == "quadratic" or d == sizes["d"][1]
    ]
    kept = pd.read_csv(out) if out.exists() else pd.DataFrame({"cost": []})
    kept, rows, begun = kept[~kept["cost"].isin(names)], [], time.perf_counter()
    for done, at in enumerate(grid, start=1):
        rows += cell(*at, peers)
        table = pd.concat([kept, pd.DataFrame(rows)]) if len(kept) else pd.DataFrame(rows)
        table.to_csv(out, index=False, float_format="%.6g")
        print(f"{done}/{len(grid)} {at} {time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True)
    return table


def tables(table: pd.DataFrame) -> str:
    """All tables, in Markdown: means over the seeds."""
    keys = ["cost", "potential", "d", "n"]
    grid = table["rule"].str.startswith("grid ")
    means = table[~grid].groupby([*keys, "rule"], sort=False).mean(numeric_only=True)
    by_epsilon = table[grid].groupby([*keys, "rule"], sort=False).mean(numeric_only=True)
    best = by_epsilon.loc[by_epsilon["nmse"].groupby(keys, sort=False).idxmin()].reset_index("rule")
    rules = [*RULES, HELD_OUT, HELD_OUT_BOTH]
    rules = [rule for rule in rules if rule in set(table["rule"])]
    peers = [rule for rule in (OTT, OTT_DEFAULT) if rule in set(table["rule"])]

    def value(column: str, at: Any, rule: str, form: str = ".3f") -> str:
        return format(means.loc[(*at, rule), column], form) if (*at, rule) in means.index else ""

    def lines(columns: list[str], row: Callable[[Any], list[str]], of: Any = best.index) -> list[str]:
        head = ["cost", "potential", "d", "n", *columns]
        told = [" | ".join([*map(str, at), *row(at)]) for at in of]
        return [f"| {' | '.join(head)} |", "|---" * len(head) + "|", *(f"| {text} |" for text in told), ""]

    def first(at: Any) -> str:
        """The slowest call, which compiles."""
        part = table[(table[keys] == list(at)).all(axis=1) & (table["rule"] == OTT)]
        return f"{part['first_seconds'].max():.1f}"

    text = ["## Error on unseen samples, relative to not moving them", ""]
    text += lines(
        [*rules, f"{HINDSIGHT} (ε / mean)", *peers],
        lambda at: [
            *(value("relative", at, rule) for rule in rules),
            f"{best.loc[at, 'relative']:.3f} ({best.loc[at, 'rule'].removeprefix('grid ')})",
            *(value("relative", at, rule) for rule in peers),
        ],
    )
    text += ["## How much a rule misses: error / error of the best ε in hindsight", ""]
    excess = means["nmse"].unstack("rule").div(best["nmse"], axis=0)
    text += ["| rule | geometric mean | worst | at | best or within 10 % |", "|---" * 5 + "|"]
    for rule in rules + peers:
        ratios = excess[rule].dropna()
        worst = ", ".join(f"{k} = {v}" if k in "dn" else str(v) for k, v in zip(keys, ratios.idxmax(), strict=True))
        text.append(
            f"| {rule} | {np.exp(np.log(ratios).mean()):.2f} | {ratios.max():.2f} | {worst} | "
            f"{(ratios <= 1.1).sum()} of {ratios.size} |"
        )
    text += ["", "## Direction and support, ours at the best ε in hindsight and at 0.1 × mean", ""]
    text += lines(
        ["cosine, best", "0.1 × mean", "support error, best", "0.1 × mean", "density, best", "ε at perplexity 10"],
        lambda at: [
            f"{best.loc[at, 'cosine']:.3f}",
            value("cosine", at, "0.1 × mean"),
            f"{best.loc[at, 'support_error']:.3f}",
            value("support_error", at, "0.1 × mean"),
            f"{best.loc[at, 'density']:.0%}",
            value("epsilon_of_mean", at, "perplexity 10", ".2g"),
        ],
    )
    if peers:
        text += ["## Beside OTT-JAX: the same samples, ε = 0.1 × mean, tolerance 1e-4, float64", ""]
        text += lines(
            ["error, ours", "OTT-JAX", "largest difference of an entry", "seconds, ours", "OTT-JAX", "its first call"],
            lambda at: [
                value("nmse", at, "0.1 × mean", ".5f"),
                value("nmse", at, OTT, ".5f"),
                value("difference", at, OTT, ".1e"),
                f"{by_epsilon.loc[(*at, 'grid 0.1'), 'seconds']:.3f}",  # the second run of the same, as theirs
                value("seconds", at, OTT),
                first(at),
            ],
            [at for at in best.index if (*at, OTT) in means.index],
        )
    return "\n".join(text)


def main() -> int:
    parser = argparse.ArgumentParser("python -m benchmarks.truth", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small samples: shows that all of it runs")
    parser.add_argument("--only", action="append", choices=COSTS, help="this cost; may be repeated; others are kept")
    parser.add_argument("--seeds", type=int, default=2, help="samples drawn of each truth (2)")
    parser.add_argument("--tables", action="store_true", help="write the tables again from the .csv, computing nothing")
    parser.add_argument("--out", type=Path, metavar="DIR", default=Path(__file__).with_name("results"))
    arguments = parser.parse_args()
    stem = arguments.out / ("truth-quick" if arguments.quick else "truth")
    sizes = {"d": [3, 10], "n": [60]} if arguments.quick else {"d": [3, 10, 30], "n": [100, 500]}
    data, machine = stem.with_suffix(".csv"), facts()
    if arguments.tables:
        table = pd.read_csv(data)
    else:
        table = compute(arguments.only or list(COSTS), sizes, 1 if arguments.quick else arguments.seeds, data)
    setting = (
        f"{UNSEEN} unseen samples, γ = {GAMMA:g}, k = 2, pull = {PULL:g}, means over "
        f"{table['seed'].nunique()} draw(s). Timed on a machine that does other work, too."
    )
    told = "; ".join(f"{name} {value}" for name, value in machine.items())
    title = "# Maps that are known: the error by cost, ε rule, d and n"
    stem.with_suffix(".md").write_text(f"{title}\n\n{setting}\n\n{tables(table)}\n{told}\n", encoding="utf-8")
    print(stem.with_suffix(".md").read_text(encoding="utf-8"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
