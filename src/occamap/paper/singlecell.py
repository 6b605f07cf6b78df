"""Figure 7: ℓ1 maps against the ½ℓ2² map on held-out cells, by the paper's protocol, on simulated cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from scipy.stats import wilcoxon

import occamap as oc
from occamap.paper.canvas import BLACK, GREY, L1, SQL2, STVS, band, panels
from occamap.paper.study import Setting, Study, Verdict

GAMMAS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
DOSES = {"low": (0.15, 0.35), "high": (1.0, 2.0)}  # mean |log fold change| of a moved gene, from drug to drug
NOTHING = "nothing moved"
NAMES = {"sql2": SQL2, "l1": L1, "stvs": STVS, "identity": NOTHING}
COMPONENTS, MARKERS = 50, 50


class Experiment(NamedTuple):
    """A drug on a cell line."""

    line: str
    drug: str
    dose: str


CLOSE_UPS = (Experiment("MCF7", "Hesperadin", "high"), Experiment("K562", "Givinostat", "high"))


def compute(setting: Setting) -> pd.DataFrame:
    """A row for each experiment, split, cost and γ."""
    size, tables = setting.size, []
    for number, (dose, effect) in enumerate(DOSES.items()):
        cells = oc.datasets.sciplex_like(
            scale=size["scale"], n_genes=size["genes"], effect=effect, random_state=setting.seed_of(number)
        )
        labels = [f"{shown.line}: {shown.drug}" for shown in CLOSE_UPS] if dose == "high" else []
        tick = _share(setting.tick, number, len(DOSES))
        tables.append(_evaluate(cells, setting, ["sql2", "l1"], labels, tick).assign(dose=dose))
        for line, drug, _ in CLOSE_UPS[: len(labels)]:
            shown = cells[(cells.obs["cell_line"] == line) & cells.obs["drug"].isin(["control", drug])]
            tables.append(_evaluate(shown, setting, ["stvs"], [f"{line}: {drug}"], None).assign(dose=dose))
    table = pd.concat(tables, ignore_index=True).rename(
        columns={"within": "line", "target": "drug", "pearson_r2_means_all": "r2_pearson", "rbo_all": "rbo"}
    )
    table = table.rename(columns={"r2_score_means_all": "r2_score"}).assign(cost=table["method"].map(NAMES))
    keys = ["line", "drug", "dose", "split", "cost", "gamma"]
    values = ["density", "divergence", "divergence_genes", "r2_pearson", "r2_score", "rbo"]
    return table.dropna(subset=["cost"])[[*keys, *values]].drop_duplicates(keys, ignore_index=True)


def _evaluate(
    cells: Any, setting: Setting, costs: list[str], close_ups: list[str], tick: Callable[[int, int], None] | None
) -> pd.DataFrame:
    return oc.evaluate(
        cells,
        groupby="drug",
        control="control",
        within="cell_line",
        costs=costs,
        gammas=GAMMAS,
        splits=setting.size["splits"],
        components=COMPONENTS,
        markers=MARKERS,
        close_ups=close_ups,
        random_state=setting.seed_of(),
        verbose=False,
        tick=tick,
    )


def _share(tick: Callable[[int, int], None], number: int, parts: int) -> Callable[[int, int], None]:
    """Told of one of several equal parts, tell of the whole."""
    return lambda done, total: tick(number * total + done, parts * total)


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
    rest = float((high["divergence_rest"] / high["divergence_dense"]).median())
    ratio = (high["divergence"] / high["divergence_dense"]).groupby(high["gamma"]).median()
    density = high.groupby("gamma")["density"].mean()
    dense = float(high["density_dense"].mean())
    similar = density[ratio <= 1.1]
    thrifty = float(similar.min()) if len(similar) else dense

    def helped(part: pd.DataFrame, value: str) -> tuple[bool, str]:
        """Whether the γ with the largest median gain over ½ℓ2² gains more than chance explains, and the figures."""
        gains = {
            float(gamma): (rows[value] - rows[f"{value}_dense"]).to_numpy() for gamma, rows in part.groupby("gamma")
        }
        best = max(gains, key=lambda gamma: float(np.median(gains[gamma])))
        chance = min(1.0, len(gains) * float(wilcoxon(gains[best], alternative="greater").pvalue))
        rest = (part[f"{value}_rest"] - part[f"{value}_dense"]).median()
        return chance < 0.05, (
            f"γ = {best:g} gains most: {np.median(gains[best]):+.3f} over ½ℓ2² in the median of {gains[best].size} "
            f"experiments, and something in {(gains[best] > 0).sum()} of them (one-sided Wilcoxon test, times "
            f"{len(gains)} γ: {chance:.2g}); not moving at all gains {rest:+.3f}"
        )

    def unbiased(part: pd.DataFrame) -> str:
        gain = (part["r2_score"] - part["r2_score_dense"]).groupby(part["gamma"]).median()
        return f"; the coefficient of determination changes by {gain.max():+.3f} at best (γ = {gain.idxmax():g})"

    r2_low, r2_high, rbo_low, rbo_high = (
        helped(part, value) for value in ("r2_pearson", "rbo") for part in (low, high)
    )
    return [
        Verdict(
            "sparsify at equal error",
            "One can sparsify ½ℓ2² maps significantly and still get a similar reconstruction error.",
            f"at a divergence (on {COMPONENTS} components, high dose) within 10 % of ½ℓ2²'s in the median, density "
            f"falls from {dense:.0%} to {thrifty:.0%}; ratio to ½ℓ2²'s at "
            + ", ".join(f"γ = {gamma:g}: {r:.2f} ({density[gamma]:.0%} dense)" for gamma, r in ratio.items())
            + f", of nothing moved: {rest:.2f}",
            thrifty <= 0.5 * dense and rest > 1.1,
        ),
        Verdict(
            "R² at low dose",
            "For low doses, sparsity in displacements helps the R² (squared correlation) of the means of markers.",
            r2_low[1] + unbiased(low),
            r2_low[0],
        ),
        Verdict(
            "R² at high dose",
            "For high doses, sparsity in displacements no longer helps that R².",
            r2_high[1] + unbiased(high),
            not r2_high[0],
        ),
        Verdict(
            "RBO",
            f"Sparsity helps to select marker genes by the map alone (overlap of the first {MARKERS}, high dose).",
            f"rank-biased overlap, {rbo_high[1]}; low dose: {rbo_low[1]}",
            rbo_high[0],
        ),
    ]


def draw(table: pd.DataFrame) -> Figure:
    figure, [above, below] = panels(2, 4, (14.0, 7.4))
    paired = _paired(table)
    high, low = paired[paired["dose"] == "high"], paired[paired["dose"] == "low"]
    shown = (
        (above[0], high, "divergence", f"divergence on {COMPONENTS} components\n(high dose; lower is better)"),
        (above[1], low, "r2_pearson", f"R² of the means of {MARKERS} markers\n(low dose; higher is better)"),
        (above[2], high, "r2_pearson", f"R² of the means of {MARKERS} markers\n(high dose; higher is better)"),
        (above[3], high, "rbo", "rank-biased overlap\n(high dose; higher is better)"),
    )
    for ax, part, value, title in shown:
        dense, sparse = part[f"{value}_dense"], part[value]
        points = ax.scatter(
            dense, sparse, c=part["density"], norm=LogNorm(0.02, 0.5), cmap="viridis", marker="x", s=26, zorder=2
        )
        if value == "r2_pearson":
            ax.scatter(dense, part["r2_pearson_rest"], marker="+", s=30, color=GREY, zorder=1)
        ax.axline((dense.min(), dense.min()), slope=1, color=GREY, linewidth=1, linestyle="--")
        ax.set(title=title, xlabel=SQL2, box_aspect=1)
    _same_limits(above[1], above[2])
    above[0].set_ylabel("ℓ1 (crosses), nothing moved (grey plus)")
    ticks = (0.02, 0.05, 0.1, 0.2, 0.5)
    bar = figure.colorbar(points, ax=above[3], ticks=ticks, format=PercentFormatter(xmax=1, decimals=0), shrink=0.8)
    bar.ax.minorticks_off()
    bar.set_label("entries that move (ℓ1)")
    for column, close_up in zip((0, 2), CLOSE_UPS, strict=True):
        part = table[(table[["line", "drug", "dose"]] == list(close_up)).all(axis=1)]
        name = f"{close_up.drug} / {close_up.line}, simulated"
        _draw_close_up(below[column], part, "density", f"{name}:\nentries that move")
        _draw_close_up(below[column + 1], part, "divergence_genes", f"{name}:\ndivergence, all genes")
        below[column].yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
    for column in (0, 1):
        _same_limits(below[column], below[column + 2])
    splits = table["split"].nunique()
    told = f"Simulated cells in the proportions of the paper's experiments; means (and ranges) over {splits} splits"
    figure.suptitle(told, fontsize=10)
    handles, labels = below[1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


def _same_limits(first: Axes, second: Axes) -> None:
    """Both axes of the two panels reach as far."""
    for get, set_ in (("get_xlim", "set_xlim"), ("get_ylim", "set_ylim")):
        ends = [*getattr(first, get)(), *getattr(second, get)()]
        for ax in (first, second):
            getattr(ax, set_)(min(ends), max(ends))


def _draw_close_up(ax: Axes, part: pd.DataFrame, value: str, title: str) -> None:
    for cost in (L1, STVS):
        frame = part[part["cost"] == cost].pivot_table(index="split", columns="gamma", values=value)
        band(ax, frame.columns, frame.to_numpy(), cost)
    for cost, colour, style in ((SQL2, BLACK, "--"), (NOTHING, GREY, ":")):
        level = float(part.loc[part["cost"] == cost, value].mean())
        ax.axhline(level, color=colour, linestyle=style, linewidth=1.3, label=cost)
    ax.set(xscale="log", xlabel="γ", title=title)
    ax.set_ylim(0, None)


FIXED = {"gammas": GAMMAS, "epsilon": "0.1 × mean cost", "components": COMPONENTS, "markers": MARKERS, "rbo_p": 0.9}
STUDY = Study(
    "ℓ1 maps against the ½ℓ2² map on held-out simulated cells",
    "Figure 7",
    {"genes": 3000, "scale": 0.125, "splits": 2, **FIXED},
    {"genes": 34636, "scale": 1.0, "splits": 2, **FIXED},
    compute,
    judge,
    draw,
)
