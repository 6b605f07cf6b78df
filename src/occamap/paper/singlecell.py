"""Figure 7: ℓ1 maps against the ½ℓ2² map on held-out cells, by the paper's protocol, on simulated cells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from scipy import sparse
from scipy.stats import wilcoxon
from sklearn.decomposition import PCA

import occamap as oc
from occamap.paper.canvas import BLACK, GREY, L1, SQL2, STVS, band, panels
from occamap.paper.cells import DRUGS, MARKERS, SIZES, Experiment, Floats, Split, mean, simulate, split, welch_t
from occamap.paper.study import Setting, Study, Verdict

GAMMAS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
CLOSE_UPS = (Experiment("MCF7", "Hes.", "high"), Experiment("K562", "Giv.", "high"))
NOTHING = "nothing moved"
COMPONENTS = 50


def compute(setting: Setting) -> pd.DataFrame:
    """A row for each experiment, split, cost and γ."""
    shrink, n_genes, splits = (8, 3000, 2) if setting.quick else (1, 34636, 3)
    experiments = [Experiment(line, drug, dose) for line in SIZES for drug in DRUGS for dose in ("low", "high")]
    rows: list[dict[str, Any]] = []
    steps = setting.steps([(experiment, k) for experiment in experiments for k in range(splits)])
    for experiment, k in steps:
        if k == 0:
            data = simulate(experiment, shrink, n_genes, setting.seed)
            t = welch_t(data)
        scores = _score_split(split(data, k), t, experiment, setting.seed)
        rows += [{**experiment._asdict(), "split": k, **score} for score in scores]
    return pd.DataFrame(rows)


def _score_split(cells: Split, t: Floats, experiment: Experiment, seed: int) -> list[dict[str, Any]]:
    """All maps of one split, and nothing moved, by each metric; `t` ranks the markers."""
    close_up = experiment in CLOSE_UPS
    costs = {L1: oc.L1(1.0), STVS: oc.STVS(1.0)} if close_up else {L1: oc.L1(1.0)}
    components = PCA(COMPONENTS, svd_solver="arpack", random_state=seed) if experiment.dose == "high" else None
    if components is not None:
        components.fit(sparse.vstack([cells.control, cells.treated]))
    chosen = np.argsort(-t, kind="stable")[:MARKERS]
    truth = mean(cells.held_out)[chosen]
    rows = []

    def score(cost: str, gamma: float, move: sparse.csr_array) -> None:
        moved = cells.unseen + move
        predicted = mean(moved)[chosen]
        found = {
            "cost": cost,
            "gamma": gamma,
            "density": oc.metrics.density(move),
            "r2_pearson": oc.metrics.pearson_r2(truth, predicted),
            "r2_score": oc.metrics.r2_score(truth, predicted),
            "rbo": oc.metrics.rbo_scores(t, mean(move), depth=MARKERS).extrapolated,
        }
        if components is not None:
            found["divergence"] = oc.metrics.sinkhorn_divergence(
                components.transform(moved), components.transform(cells.held_out)
            )
        if close_up:
            found["divergence_genes"] = oc.metrics.sinkhorn_divergence(moved, cells.held_out)
        rows.append(found)

    for name, cost in costs.items():
        path = oc.gamma_path(cells.control, cells.treated, cost, [0.0, *GAMMAS], density_samples=0)
        for gamma, fitted in zip(path.gammas, path.maps, strict=True):
            if gamma > 0 or name == L1:
                score(name if gamma > 0 else SQL2, float(gamma), fitted.displacement(cells.unseen))
    score(NOTHING, np.nan, sparse.csr_array(cells.unseen.shape, dtype=cells.unseen.dtype))
    return rows


def _paired(table: pd.DataFrame) -> pd.DataFrame:
    """Means over splits, the ℓ1 maps beside ½ℓ2² (suffix _dense) and nothing moved (suffix _rest)."""
    keys, values = ["line", "drug", "dose"], ["density", "divergence", "r2_pearson", "r2_score", "rbo"]
    means = table.groupby([*keys, "cost", "gamma"], dropna=False, as_index=False)[values].mean()
    paired = means[means["cost"] == L1]
    for cost, suffix in ((SQL2, "_dense"), (NOTHING, "_rest")):
        paired = paired.merge(means.loc[means["cost"] == cost, [*keys, *values]], on=keys, suffixes=("", suffix))
    return paired


def judge(table: pd.DataFrame) -> list[Verdict]:
    paired = _paired(table)
    high, low = paired[paired["dose"] == "high"], paired[paired["dose"] == "low"]
    ratio = (high["divergence"] / high["divergence_dense"]).groupby(high["gamma"]).median()
    density = high.groupby("gamma")["density"].mean()
    dense = float(high["density_dense"].mean())
    similar = density[ratio <= 1.1]
    thrifty = float(similar.min()) if len(similar) else dense

    def helped(part: pd.DataFrame, value: str) -> tuple[bool, str]:
        """Whether some γ is above ½ℓ2² in more of the experiments than chance explains, and the figures."""
        gains = {
            float(gamma): (rows[value] - rows[f"{value}_dense"]).to_numpy() for gamma, rows in part.groupby("gamma")
        }
        best = max(gains, key=lambda gamma: float(np.median(gains[gamma])))
        p = min(1.0, len(gains) * float(wilcoxon(gains[best], alternative="greater").pvalue))
        rest = (part[f"{value}_rest"] - part[f"{value}_dense"]).median()
        return p < 0.05, (
            f"at the best γ, {best:g}, above ½ℓ2² in {(gains[best] > 0).mean():.0%} of the experiments, by "
            f"{np.median(gains[best]):+.4f} in the median (Wilcoxon test: p = {p:.2g}); nothing moved: {rest:+.4f}"
        )

    r2_low, r2_high, rbo_low, rbo_high = (
        helped(part, value) for value in ("r2_pearson", "rbo") for part in (low, high)
    )
    return [
        Verdict(
            "sparsify at equal error",
            "One can sparsify ½ℓ2² maps significantly and still get a similar reconstruction error.",
            f"at a divergence within 10 % of ½ℓ2²'s, density falls from {dense:.0%} to {thrifty:.0%}; median ratio at "
            + ", ".join(f"γ = {gamma:g}: {r:.2f} ({density[gamma]:.0%} dense)" for gamma, r in ratio.items()),
            thrifty <= 0.5 * dense,
        ),
        Verdict(
            "R² at low dose",
            "For low doses, sparsity in displacements helps the R² of marker genes.",
            r2_low[1],
            r2_low[0],
        ),
        Verdict(
            "R² at high dose",
            "For high doses, sparsity in displacements may no longer help it.",
            r2_high[1],
            not r2_high[0],
        ),
        Verdict(
            "RBO",
            "Sparsity helps to select marker genes by the map alone (RBO, p = 0.9).",
            f"high dose: {rbo_high[1]}; low dose: {rbo_low[1]}",
            rbo_high[0],
        ),
    ]


def draw(table: pd.DataFrame) -> Figure:
    figure, [above, below] = panels(2, 4, (14.0, 7.0))
    paired = _paired(table)
    high, low = paired[paired["dose"] == "high"], paired[paired["dose"] == "low"]
    shown = (
        (above[0], high, "divergence", "divergence on 50 components\n(high dose; lower is better)"),
        (above[1], low, "r2_pearson", "R² of the means of 50 markers\n(low dose; higher is better)"),
        (above[2], high, "r2_pearson", "R² of the means of 50 markers\n(high dose; higher is better)"),
        (above[3], high, "rbo", "rank-biased overlap\n(high dose; higher is better)"),
    )
    top = 0.4  # the paper's range of densities
    for ax, part, value, title in shown:
        points = ax.scatter(
            part[f"{value}_dense"], part[value], c=part["density"], vmin=0, vmax=top, cmap="viridis", marker="x", s=28
        )
        ends = [part[[f"{value}_dense", value]].min().min(), part[[f"{value}_dense", value]].max().max()]
        ax.plot(ends, ends, color=GREY, linewidth=1, linestyle="--")
        if value == "r2_pearson":
            ax.scatter(part["r2_pearson_dense"], part["r2_pearson_rest"], marker="_", color=GREY, label=NOTHING)
            ax.legend(loc="lower right")
        ax.set(title=title, xlabel=SQL2, ylabel=L1 if ax is above[0] else "")
    bar = figure.colorbar(points, ax=above[3], extend="max", format=PercentFormatter(xmax=1, decimals=0))
    bar.set_label("entries that move (ℓ1)")
    for column, close_up in zip((0, 2), CLOSE_UPS, strict=True):
        part = table[(table[["line", "drug", "dose"]] == list(close_up)).all(axis=1)]
        name = f"{close_up.drug} / {close_up.line}"
        _draw_close_up(below[column], part, "density", f"{name}: entries that move")
        _draw_close_up(below[column + 1], part, "divergence_genes", f"{name}: divergence, all genes")
        below[column].yaxis.set_major_formatter(PercentFormatter(xmax=1))
    handles, labels = below[1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


def _draw_close_up(ax: Axes, part: pd.DataFrame, value: str, title: str) -> None:
    for cost in (L1, STVS):
        frame = part[part["cost"] == cost].pivot_table(index="split", columns="gamma", values=value)
        band(ax, frame.columns, frame.to_numpy(), cost)
    for cost, colour, style in ((SQL2, BLACK, "--"), (NOTHING, GREY, ":")):
        level = float(part.loc[part["cost"] == cost, value].mean())
        ax.axhline(level, color=colour, linestyle=style, linewidth=1.3, label=cost)
    ax.set(xscale="log", xlabel="γ", title=title)
    if value == "density":
        ax.set_ylim(0, None)


STUDY = Study("ℓ1 maps against the ½ℓ2² map on held-out simulated cells", "Figure 7", compute, judge, draw)
