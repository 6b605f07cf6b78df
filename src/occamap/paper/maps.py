"""Figure 1: which way unseen points go, and in how many coordinates."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

import occamap as oc
from occamap.paper.canvas import BLUE, GREY, KOVERLAP, L1, LIGHT, ORANGE, SKY, SQL2, STVS
from occamap.paper.planar import EPSILON, LARGE, SMALL, costs, displacements, draw_plane, frame, points
from occamap.paper.study import Setting, Study, Verdict

COLOURS = {0: GREY, 1: ORANGE, 2: BLUE}  # by the number of coordinates that move


def compute(setting: Setting) -> pd.DataFrame:
    """Fit each map on a sample and displace unseen points."""
    plane = draw_plane(setting.size["n"], setting.size["unseen"], setting.seed)
    moves = {}
    for name, gamma, cost in setting.steps(costs()):
        fitted = oc.MongeMap(cost, epsilon=EPSILON).fit(plane.source, plane.target)
        moves[name, gamma] = fitted.displacement(plane.fresh).toarray()
    return points(plane, moves)


def judge(table: pd.DataFrame) -> list[Verdict]:
    counts = {key: (move != 0).sum(axis=1) for key, move in displacements(table).items()}

    def share(name: str, gamma: float, coordinates: int) -> float:
        return float(np.mean(counts[name, gamma] == coordinates))

    sparse = (L1, STVS, KOVERLAP)
    fewer = {name: (float(counts[name, SMALL].mean()), float(counts[name, LARGE].mean())) for name in sparse}
    kinds = {name: set(map(tuple, _supports(table, name))) for name in sparse}
    null = {name: (share(name, SMALL, 0), share(name, LARGE, 0)) for name in (L1, STVS)}
    least = min(int(counts[KOVERLAP, gamma].min()) for gamma in (SMALL, LARGE))
    return [
        Verdict(
            "½ℓ2² is dense",
            "Displacements are not sparse for ½ℓ2².",
            f"both coordinates move in {share(SQL2, 0.0, 2):.0%} of the points",
            share(SQL2, 0.0, 2) == 1,
        ),
        Verdict(
            "sparser with γ",
            "Displacements become increasingly sparse as γ grows.",
            "coordinates that move, of 2, at small and large γ: "
            + ", ".join(f"{name} {few:.2f} → {fewest:.2f}" for name, (few, fewest) in fewer.items()),
            all(fewest < few < 2 for few, fewest in fewer.values()),
        ),
        Verdict(
            "support varies",
            "The support varies with x.",
            "at large γ, of the four supports (none, x, y, both) so many are seen: "
            + ", ".join(f"{name} {len(found)}" for name, found in kinds.items()),
            all(len(found) > 1 for found in kinds.values()),
        ),
        Verdict(
            "ℓ1 and STVS censor",
            "ℓ1 and STVS censor displacements as γ grows, to the extent that some become null.",
            "points that stay where they are, at small and large γ: "
            + ", ".join(f"{name} {low:.0%} → {high:.0%}" for name, (low, high) in null.items()),
            all(high > low + 0.1 for low, high in null.values()),
        ),
        Verdict(
            "k-overlap moves k",
            "The k-overlap cost enforces displacements with at least k non-zero values.",
            f"the fewest coordinates that move in a point, over both γ: {least} (k = 1)",
            least >= 1,
        ),
    ]


def _supports(table: pd.DataFrame, name: str) -> list[list[bool]]:
    supports: list[list[bool]] = (displacements(table)[name, LARGE] != 0).tolist()
    return supports


def draw(table: pd.DataFrame) -> Figure:
    figure, axes = frame()
    source, target = (table.loc[table["what"] == what, ["x", "y"]].to_numpy() for what in ("source", "target"))
    for (name, gamma), move in displacements(table).items():
        ax = axes[name, gamma]
        rows = (table["cost"] == name) & (table["gamma"] == gamma)
        start = table.loc[rows, ["x", "y"]].to_numpy()
        ax.scatter(*source.T, s=3, color=LIGHT, alpha=0.6, linewidths=0)
        ax.scatter(*target.T, s=3, color=SKY, alpha=0.6, linewidths=0)
        moving = (move != 0).sum(axis=1)
        for number in (2, 1):
            at = moving == number
            ax.quiver(
                *start[at].T, *move[at].T, angles="xy", scale_units="xy", scale=1, width=0.006, color=COLOURS[number]
            )
        ax.scatter(*start[moving == 0].T, s=14, facecolors="none", edgecolors=COLOURS[0])
    point = {"marker": "o", "linestyle": "none"}
    handles = [
        Line2D([], [], color=LIGHT, label="source", **point),
        Line2D([], [], color=SKY, label="target", **point),
        Line2D([], [], color=COLOURS[2], linewidth=2, label="both coordinates move"),
        Line2D([], [], color=COLOURS[1], linewidth=2, label="one moves"),
        Line2D([], [], color=COLOURS[0], markerfacecolor="none", label="none moves", **point),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=5)
    return figure


FIXED = {"epsilon": f"{EPSILON:g} × mean cost", "gammas": [SMALL, LARGE], "k": 1}
STUDY = Study(
    "Displacements of unseen points under four costs",
    "Figure 1",
    {"n": 300, "unseen": 80, **FIXED},
    {"n": 1000, "unseen": 120, **FIXED},
    compute,
    judge,
    draw,
)
