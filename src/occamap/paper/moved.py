"""Figure 2: a fresh sample after the move, beside the target."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

import occamap as oc
from occamap.paper.canvas import KOVERLAP, L1, ORANGE, SKY, SQL2, STVS
from occamap.paper.planar import EPSILON, LARGE, SMALL, costs, displacements, draw_plane, frame, points
from occamap.paper.study import Setting, Study, Verdict

LIMIT = 1e4  # a γ that stands for infinity; computed, not drawn


def compute(setting: Setting) -> pd.DataFrame:
    """Move a fresh sample by each map, and measure its divergence to the target before and after."""
    plane = draw_plane(setting.size["n"], setting.size["fresh"], setting.seed)
    moves, divergences = {}, {}
    limits = [(L1, LIMIT, oc.L1(LIMIT)), (STVS, LIMIT, oc.STVS(LIMIT)), (KOVERLAP, LIMIT, oc.KOverlap(LIMIT, k=1))]
    for name, gamma, cost in setting.steps([*costs(), *limits]):
        fitted = oc.MongeMap(cost, epsilon=EPSILON).fit(plane.source, plane.target)
        move = fitted.displacement(plane.fresh).toarray()
        moves[name, gamma] = move
        divergences[name, gamma] = oc.metrics.sinkhorn_divergence(plane.fresh + move, plane.target)
    table = points(plane, moves)
    keys = zip(table["cost"], table["gamma"], strict=True)
    table["divergence"] = [divergences.get(key, np.nan) for key in keys]
    rest = {"what": "fresh", "x": plane.fresh[:, 0], "y": plane.fresh[:, 1]}
    before = pd.DataFrame({**rest, "divergence": oc.metrics.sinkhorn_divergence(plane.fresh, plane.target)})
    return pd.concat([table, before], ignore_index=True)


def judge(table: pd.DataFrame) -> list[Verdict]:
    moves = displacements(table)
    rows = table[table["what"] == "displacement"].groupby(["cost", "gamma"])["divergence"].first()
    divergence = {key: float(rows[key]) for key in moves}
    rest = float(table.loc[table["what"] == "fresh", "divergence"].iloc[0])
    sparsity = {key: float((move == 0).mean()) for key, move in moves.items()}
    moving = {
        name: [float((moves[name, gamma] != 0).any(axis=1).mean()) for gamma in (SMALL, LARGE, LIMIT)]
        for name in (L1, STVS)
    }
    stuck = max(float((moves[KOVERLAP, gamma] == 0).all(axis=1).mean()) for gamma in (SMALL, LARGE, LIMIT))
    return [
        Verdict(
            "trade-off",
            "γ trades the sparsity of displacements for the recovery of the target.",
            "Sinkhorn divergence to the target (share of moves that are zero), from small to large γ: "
            + ", ".join(
                f"{name} {divergence[name, SMALL]:.2g} ({sparsity[name, SMALL]:.0%}) → "
                f"{divergence[name, LARGE]:.2g} ({sparsity[name, LARGE]:.0%})"
                for name in (L1, STVS, KOVERLAP)
            )
            + f"; ½ℓ2² {divergence[SQL2, 0.0]:.2g}, nothing moved {rest:.2g}",
            all(
                divergence[name, LARGE] > divergence[name, SMALL] and sparsity[name, LARGE] > sparsity[name, SMALL]
                for name in (L1, STVS, KOVERLAP)
            ),
        ),
        Verdict(
            "comes to rest",
            "As γ increases, ultimately, the map no longer moves points (ℓ1, STVS; 2 % of the points or fewer).",
            f"points that move at γ = {SMALL:g}, {LARGE:g} and {LIMIT:g}: "
            + ", ".join(f"{name} {' → '.join(f'{x:.1%}' for x in found)}" for name, found in moving.items())
            + "; the target surrounds the points here: a coordinate that has all targets on one side never rests",
            all(limit <= 0.02 < small for small, _, limit in moving.values()),
        ),
        Verdict(
            "k-overlap always moves",
            "The k-overlap norm enforces at least one displacement, no matter what γ (k = 1).",
            f"points that stay, at most, at any γ up to {LIMIT:g}: {stuck:.0%}",
            stuck == 0,
        ),
    ]


def draw(table: pd.DataFrame) -> Figure:
    figure, axes = frame()
    target = table.loc[table["what"] == "target", ["x", "y"]].to_numpy()
    rows = table[table["what"] == "displacement"]
    for (name, gamma), part in rows[rows["gamma"] < LIMIT].groupby(["cost", "gamma"]):
        ax = axes[str(name), float(gamma)]
        ax.scatter(*target.T, s=5, color=SKY, alpha=0.7, linewidths=0)
        ax.scatter(part["x"] + part["move_x"], part["y"] + part["move_y"], s=5, color=ORANGE, linewidths=0)
        divergence = part["divergence"].iloc[0]
        ax.text(0.03, 0.03, f"divergence {divergence:.2g}", transform=ax.transAxes, fontsize=8)
    rest = float(table.loc[table["what"] == "fresh", "divergence"].iloc[0])
    figure.suptitle(f"Sinkhorn divergence to the target; before the move it is {rest:.2g}", fontsize=10)
    point = {"marker": "o", "linestyle": "none"}
    handles = [
        Line2D([], [], color=ORANGE, label="fresh sample, moved", **point),
        Line2D([], [], color=SKY, label="target", **point),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


FIXED = {"epsilon": f"{EPSILON:g} × mean cost", "gammas": [SMALL, LARGE, LIMIT], "k": 1}
STUDY = Study(
    "A fresh sample, moved, and the target",
    "Figure 2",
    {"n": 300, "fresh": 300, **FIXED},
    {"n": 1000, "fresh": 1000, **FIXED},
    compute,
    judge,
    draw,
)
