"""The picture and the table of docs/barycenters.md: `python docs/pictures/barycenters.py` writes and prints them."""

from __future__ import annotations

import time
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from matplotlib.figure import Figure

import occamap as oc

OUT = Path(__file__).resolve().parent.parent / "figures"
COLOURS = ("#0072B2", "#D55E00", "#009E73")  # Okabe and Ito's
COSTS = {"½ℓ2²": oc.SqL2(), "ℓ1, γ = 2": oc.L1(2.0), "STVS, γ = 2": oc.STVS(2.0)}


def clouds(n: int = 60) -> list[np.ndarray]:
    """Three samples of the plane: two that share the first coordinate but for noise, and one that is away in both."""
    rng = np.random.default_rng(0)
    shape = rng.normal(0.0, 0.4, size=(3, n, 2))
    return [shape[0], shape[1] + [0.0, 4.0], shape[2] + [5.0, 2.0]]


def picture() -> None:
    measures = clouds()
    figure = Figure(figsize=(9.6, 3.6), layout="constrained")
    axes = figure.subplots(1, 3, sharex=True, sharey=True)
    for ax, (name, cost) in zip(axes, COSTS.items(), strict=True):
        for colour, Y in zip(COLOURS, measures, strict=True):
            ax.scatter(*Y.T, s=8, color=colour, linewidths=0, alpha=0.6)
        found = oc.barycenter(measures, cost)
        ax.scatter(*found.support.T, s=12, color="black", linewidths=0)
        ax.set_title(f"{name}: {found.n_iter} steps, spread {found.spread:.2f}", fontsize=10)
        ax.set_aspect("equal")
    for suffix in ("png", "svg"):
        figure.savefig(OUT / f"barycenters.{suffix}", dpi=150, metadata={"Date": None} if suffix == "svg" else None)


def shrinkage() -> None:
    """One Gaussian sample of 200 in d dimensions, and its own barycenter on as many points."""
    print("| ε, × mean cost | d = 1 | d = 2 | d = 10 | d = 100 |\n|---|---|---|---|---|")
    for epsilon in (0.1, 0.03, 0.01, 0.003):
        cells = []
        for d in (1, 2, 10, 100):
            Y = np.random.default_rng(0).normal(size=(200, d))
            found = oc.barycenter([Y], oc.SqL2(), n_points=200, epsilon=epsilon, max_steps=50, max_iter=20000)
            cells.append(f"{found.spread:.2f}")
        print(f"| {epsilon} | {' | '.join(cells)} |")


def pull(model: oc.MongeMap, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """∇f(x) = Σ_j p_j(x) ∇h(x − y_j) of each row."""
    return np.stack([p @ model.cost.grad(x - Y) for x, p in zip(X, model.weights(X), strict=True)])


def sparse() -> None:
    """Three samples of 200 × 2,000 logged counts, whose rates differ in 50 features, and 100 points."""
    rng = np.random.default_rng(0)
    rates = np.exp(rng.normal(-2.5, 2.0, size=2000)) * np.exp(rng.normal(size=(3, 2000)) * (np.arange(2000) < 50))
    measures = [sp.csr_array(np.log1p(rng.poisson(rate, size=(200, 2000)))) for rate in rates]
    held = sum(Y.nnz for Y in measures) / (3 * 200 * 2000)
    print(f"stored in the measures: {held:.1%}\n| cost | stored in the barycenter | steps | s |\n|---|---|---|---|")
    for cost in (oc.SqL2(), oc.L1(0.3)):
        begun = time.perf_counter()
        found = oc.barycenter(measures, cost, n_points=100)
        seconds = time.perf_counter() - begun
        print(f"| {cost!r} | {found.support.nnz / 2e5:.1%} | {found.n_iter} | {seconds:.1f} |")


def prox_step() -> None:
    """The value where the step of the maps stops, and where ours does, from the same start at the same ε."""
    print("| cost | the maps' step stops at | ours stops at | steps | s |\n|---|---|---|---|---|")
    rng = np.random.default_rng(1)
    measures = [rng.normal(size=(100, 20)) + 2 * shift for shift in rng.normal(size=(3, 20))]
    start = measures[0]
    for cost in (oc.SqL2(), oc.L1(1.0), oc.STVS(1.0)):
        begun = time.perf_counter()
        found = oc.barycenter(measures, cost, init=start)
        seconds = time.perf_counter() - begun
        held = {"epsilon": found.epsilon, "epsilon_scale": "absolute"}
        models, X = [oc.MongeMap(cost, **held) for _ in measures], start
        for _ in range(30):
            fields = [pull(model.fit(X, Y), X, Y) for model, Y in zip(models, measures, strict=True)]
            X = X - cost.prox(np.mean(fields, axis=0))
        value = np.mean([oc.metrics.ot_cost(X, Y, cost=cost, **held) for Y in measures])
        print(f"| {cost!r} | {value:.4g} | {found.value:.4g} | {found.n_iter} | {seconds:.1f} |")


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", oc.errors.NotConvergedWarning)
        picture()
        shrinkage()
        prox_step()
        sparse()
