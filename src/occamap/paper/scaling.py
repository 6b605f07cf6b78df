"""Figure 6: a map that moves one of two groups of coordinates, whichever is larger, as d grows and n does not."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from occamap.paper.canvas import GREY, KOVERLAP, L1, NORM, SQL2, STVS, band, panels
from occamap.paper.recovery import MOVED, NOTHING, Flags, Floats, over_seeds
from occamap.paper.study import Setting, Study, Verdict

N = 100
COSTS = (SQL2, L1, STVS, KOVERLAP, NORM)


def push(x: Floats) -> tuple[Floats, Flags]:
    """The exponential of the first s coordinates or of the next s, of those with the larger norm."""
    first, second = (np.square(x[:, k : k + MOVED]).sum(axis=1) for k in (0, MOVED))
    place = np.arange(x.shape[1])
    support = np.where((first > second)[:, None], place < MOVED, (place >= MOVED) & (place < 2 * MOVED))
    return np.where(support, np.exp(x), x), support


def compute(setting: Setting) -> pd.DataFrame:
    """A row for each d, seed, cost and γ."""
    return over_seeds(setting, push, N)


def best(table: pd.DataFrame) -> pd.DataFrame:
    """At the γ with the lowest NMSE over the seeds, for each cost and d: a row a seed."""
    means = table.groupby(["cost", "d", "gamma"], as_index=False)["nmse"].mean()
    chosen = means.loc[means.groupby(["cost", "d"])["nmse"].idxmin(), ["cost", "d", "gamma"]]
    return table.merge(chosen, on=["cost", "d", "gamma"])


def judge(table: pd.DataFrame) -> list[Verdict]:
    nmse = best(table).groupby(["cost", "d"])["nmse"].mean()
    dimensions = sorted(table["d"].unique())
    last = dimensions[-1]
    ratio = {cost: [float(nmse[SQL2, d] / nmse[cost, d]) for d in dimensions] for cost in COSTS[1:]}
    lost = [d for d in dimensions if nmse[L1, d] > nmse[NOTHING, d]]

    def along(cost: str) -> str:
        return ", ".join(f"{r:.2f}" for r in ratio[cost])

    return [
        Verdict(
            "scales better",
            "ℓ1 and STVS scale much better with the dimension than ½ℓ2².",
            f"NMSE of ½ℓ2² / NMSE at the γ that is best in hindsight, n = {N}, at d = "
            f"{', '.join(map(str, dimensions))}: ℓ1 {along(L1)}; STVS {along(STVS)} (at large γ they are one map)",
            all(ratio[cost][-1] > 3 and bool((np.diff(ratio[cost]) > -0.02).all()) for cost in (L1, STVS)),
        ),
        Verdict(
            "k-overlap scales better",
            "k-overlap scales much better with the dimension than ½ℓ2², too.",
            f"NMSE of ½ℓ2² / NMSE of k-overlap, likewise: {along(KOVERLAP)}; not squared: {along(NORM)}",
            ratio[KOVERLAP][-1] > 3,
        ),
        Verdict(
            "better than nothing",
            "The recovered map is better than not moving at all.",
            f"NMSE at d = {last}: nothing moved {nmse[NOTHING, last]:.2g}, ℓ1 {nmse[L1, last]:.2g}, ½ℓ2² "
            f"{nmse[SQL2, last]:.2g}; ℓ1 is worse than nothing at d = {', '.join(map(str, lost)) or 'none'} "
            "(at ε = 0.1 × mean cost; `occamap reproduce epsilon` has others)",
            not lost,
            in_paper=False,
        ),
    ]


def draw(table: pd.DataFrame) -> Figure:
    figure, [[ax]] = panels(1, 1, (7.0, 4.4))
    chosen = best(table)
    for cost in COSTS:
        frame = chosen[chosen["cost"] == cost].pivot_table(index="seed", columns="d", values="nmse")
        band(ax, frame.columns, frame.to_numpy(), cost)
    rest = chosen[chosen["cost"] == NOTHING].groupby("d")["nmse"].mean()
    ax.plot(rest.index, rest, color=GREY, linestyle=":", linewidth=1.4, label=NOTHING)
    dimensions = sorted(table["d"].unique())
    ax.set_xscale("log", base=2)
    ax.set(yscale="log", xlabel="d", ylabel="NMSE at the best γ, Σ‖error‖² / nd", xticks=dimensions)
    ax.set_xticklabels([str(d) for d in dimensions])
    seeds = table["seed"].nunique()
    ax.set_title(f"n = {N}, s = k = {MOVED}, ε = 0.1 × mean cost; means and ranges over {seeds} seeds")
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


FIXED = {"n": N, "s": MOVED, "k": MOVED, "epsilon": "0.1 × mean cost"}
STUDY = Study(
    "A map whose support depends on x, as d grows",
    "Figure 6",
    {"d": [4, 8, 32, 128, 512], "seeds": 5, "gammas": [1e-3, 1e3, 13], **FIXED},
    {"d": [4, 8, 16, 32, 64, 128, 256, 512, 1024], "seeds": 10, "gammas": [1e-3, 1e3, 19], **FIXED},
    compute,
    judge,
    draw,
)
