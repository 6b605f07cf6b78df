"""Figure 3: the STVS regulariser is not convex, and its prox shrinks large values less than a soft threshold."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import occamap as oc
from occamap.paper.canvas import COLOURS, GREY, L1, STVS, panels
from occamap.paper.study import Setting, Study, Verdict

REACH = 5.0
GAMMA = 1.0
COSTS: dict[str, oc.Cost] = {STVS: oc.STVS(GAMMA), L1: oc.L1(GAMMA)}


def compute(setting: Setting) -> pd.DataFrame:
    """τ and prox_τ on a grid, and what a search over a finer grid says the prox is."""
    z = np.linspace(-REACH, REACH, setting.size["points"])
    fine = np.linspace(-REACH, REACH, 20001)
    parts = []
    for name, cost in setting.steps(list(COSTS.items())):
        tau = cost.value(fine[:, None]) - 0.5 * fine**2
        searched = [fine[np.argmin(0.5 * (fine - w) ** 2 + tau)] for w in z]
        parts.append(
            pd.DataFrame(
                {
                    "cost": name,
                    "gamma": GAMMA,
                    "z": z,
                    "tau": cost.value(z[:, None]) - 0.5 * z**2,
                    "prox": cost.prox(z[:, None])[:, 0],
                    "prox_by_search": searched,
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def judge(table: pd.DataFrame) -> list[Verdict]:
    by = {name: part.reset_index(drop=True) for name, part in table.groupby("cost")}
    stvs, soft = by[STVS], by[L1]
    z = stvs["z"].to_numpy()
    bend = np.diff(stvs["tau"], 2) / np.diff(z)[0] ** 2  # second differences
    at_kink = np.abs(z[1:-1]) < 1e-9
    convex = float(np.min(1 + bend))  # of ½(z − w)² + τ(z), for every w
    off = float(np.abs(table["prox"] - table["prox_by_search"]).max())
    outside = np.abs(z) > GAMMA + 1e-9
    less = (np.abs(stvs["prox"]) - np.abs(soft["prox"]))[outside]
    shrunk = {name: REACH - float(part["prox"].iloc[-1]) for name, part in by.items()}
    same = bool(((stvs["prox"] == 0) == (soft["prox"] == 0)).all())
    return [
        Verdict(
            "not convex",
            "The STVS regulariser is not convex.",
            f"away from z = 0 its second differences are between {bend[~at_kink].min():.2f} and "
            f"{bend[~at_kink].max():.2g}",
            bool((bend[~at_kink] < 0).all()),
        ),
        Verdict(
            "well defined",
            "The proximal operator of STVS is well defined.",
            f"the function it minimises is strictly convex (second differences from {convex:.2f} on), and a search on "
            f"a grid of 0.0005 finds the same minimum to {off:.1e}",
            convex > 0 and off < 5e-4,
        ),
        Verdict(
            "shrinks less",
            "It shrinks values less than soft thresholding does.",
            f"where it is not 0 it is larger by up to {less.max():.2g}, and nowhere smaller; both are 0 "
            f"{'for the same arguments' if same else 'for different arguments'}",
            bool(less.min() > 0) and same,
        ),
        Verdict(
            "near identity",
            "Near ±5 its values are close to the identity line: a quarter of a soft threshold's shrinkage, or less.",
            f"5 becomes {REACH - shrunk[STVS]:.2f} (soft threshold: {REACH - shrunk[L1]:.2f})",
            shrunk[STVS] <= 0.25 * shrunk[L1],
        ),
    ]


def draw(table: pd.DataFrame) -> Figure:
    figure, [[left, right]] = panels(1, 2, (8.6, 4.2))
    for name, part in table.groupby("cost", sort=False):
        style = {"color": COLOURS[str(name)], "linewidth": 2, "linestyle": "-" if name == STVS else "--"}
        left.plot(part["z"], part["tau"], label=str(name), **style)
        right.plot(part["z"], part["prox"], label=STVS if name == STVS else "soft threshold (ℓ1)", **style)
    right.plot([-REACH, REACH], [-REACH, REACH], color=GREY, linewidth=1, linestyle=":", label="identity")
    left.set(xlabel="z", ylabel="τ(z)", title=f"regulariser, γ = {GAMMA:g}", box_aspect=1)
    right.set(xlabel="z", ylabel="prox(z)", title=f"proximal operator, γ = {GAMMA:g}", box_aspect=1)
    left.legend(loc="upper center")
    right.legend(loc="upper left")
    return figure


STUDY = Study(
    "The STVS regulariser and its proximal operator",
    "Figure 3",
    {"points": 201, "gamma": GAMMA},
    {"points": 1001, "gamma": GAMMA},
    compute,
    judge,
    draw,
)
