"""Figure 4: six steps of Euclidean and of Bregman descent of the transport cost, h = ½ℓ2² + ℓ1."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

import occamap as oc
from occamap.paper.canvas import GREY, ORANGE, SKY, panels
from occamap.paper.study import Setting, Study, Verdict

Floats = NDArray[np.float64]

STEP, STEPS = 0.25, 6
EPSILON = 0.03
SHIFT = -3.0  # of both samples: brings the origin, where ∇h has its kinks, between them
EUCLIDEAN, BREGMAN, ACROSS = "Euclidean", "Bregman", f"Bregman, with the origin at ({-SHIFT:g}, {-SHIFT:g})"


def compute(setting: Setting) -> pd.DataFrame:
    """Trajectories of three descents, and of two for ½ℓ2², with the divergence to the target after each step."""
    n, rng = setting.size["n"], np.random.default_rng(setting.seed)
    source = 1.5 + 0.45 * rng.normal(size=(n, 2))
    centres = np.array([[5.5, 2.0], [2.5, 5.5]])
    target = centres[rng.integers(2, size=n)] + 0.45 * rng.normal(size=(n, 2))
    plans = [
        (EUCLIDEAN, oc.L1(1.0), "euclidean", 0.0),
        (BREGMAN, oc.L1(1.0), "bregman", 0.0),
        (ACROSS, oc.L1(1.0), "bregman", SHIFT),
        (f"{EUCLIDEAN}, with the origin there", oc.L1(1.0), "euclidean", SHIFT),
        (f"{EUCLIDEAN}, ½ℓ2²", oc.SqL2(), "euclidean", 0.0),
        (f"{BREGMAN}, ½ℓ2²", oc.SqL2(), "bregman", 0.0),
    ]
    parts = [_points("target", 0, target, np.nan)]
    for name, cost, geometry, shift in setting.steps(plans):
        descent = oc.flow(source + shift, target + shift, cost, STEP, STEPS, geometry, epsilon=EPSILON)
        for step, state in enumerate(descent.trajectory):
            at = np.asarray(state) - shift
            parts.append(_points(name, step, at, oc.metrics.sinkhorn_divergence(at, target)))
    return pd.concat(parts, ignore_index=True)


def _points(what: str, step: int, at: Floats, divergence: float) -> pd.DataFrame:
    where = {"what": what, "step": step, "point": np.arange(len(at)), "x": at[:, 0], "y": at[:, 1]}
    return pd.DataFrame({**where, "divergence": divergence})


def _states(table: pd.DataFrame, what: str) -> Floats:
    """Steps × points × 2."""
    part = table[table["what"] == what]
    return part[["x", "y"]].to_numpy().reshape(part["step"].nunique(), -1, 2)


def judge(table: pd.DataFrame) -> list[Verdict]:
    def apart(first: str, second: str) -> Floats:
        """How far each point is, at most, from where it is at the same step of the other."""
        return np.linalg.norm(_states(table, first) - _states(table, second), axis=2).max(axis=0)

    ends = table[table["step"] == STEPS].groupby("what")["divergence"].first()
    begun = float(table.loc[(table["what"] == BREGMAN) & (table["step"] == 0), "divergence"].iloc[0])
    same = float(apart(f"{EUCLIDEAN}, ½ℓ2²", f"{BREGMAN}, ½ℓ2²").max())
    differ = float(np.median(apart(EUCLIDEAN, BREGMAN)))
    moved_euclidean = float(apart(EUCLIDEAN, f"{EUCLIDEAN}, with the origin there").max())
    moved_bregman = float(np.median(apart(BREGMAN, ACROSS)))
    across = float(ends[ACROSS] / begun)
    return [
        Verdict(
            "same for ½ℓ2²",
            "The two descents are exactly equivalent for h = ½ℓ2².",
            f"a point is at most {same:.1e} from where the other descent has it, after any step",
            same < 1e-8,
        ),
        Verdict(
            "differ for ℓ1",
            "The two descents result in very different trajectories for h = ½ℓ2² + ℓ1.",
            f"half of the points come {differ:.2f} or more from where the other descent has them; Sinkhorn divergence "
            f"to the target from {begun:.2g} to {ends[EUCLIDEAN]:.2g} (Euclidean) and {ends[BREGMAN]:.2g} (Bregman)",
            differ > 0.5,
        ),
        Verdict(
            "depends on the origin",
            "The Bregman descent, unlike the Euclidean one, depends on where the origin is, and can stall there.",
            f"with the origin between the samples, half of the points come {moved_bregman:.2f} or more from where they "
            f"were (Euclidean: {moved_euclidean:.1e} at most), held at the kinks of ∇h with {across:.0%} of the "
            "divergence left",
            moved_euclidean < 1e-6 and moved_bregman > 0.5 and across > 0.1,
            in_paper=False,
        ),
    ]


def draw(table: pd.DataFrame) -> Figure:
    figure, [axes] = panels(1, 3, (12.0, 4.6), sharex=True, sharey=True)
    target = _states(table, "target")[0]
    ends = table[table["step"] == STEPS].groupby("what")["divergence"].first()
    for ax, what in zip(axes, (EUCLIDEAN, BREGMAN, ACROSS), strict=True):
        states = _states(table, what)
        if what == ACROSS:
            ax.axvline(-SHIFT, color=GREY, linewidth=0.8, linestyle=":")
            ax.axhline(-SHIFT, color=GREY, linewidth=0.8, linestyle=":")
        ax.plot(states[:, :, 0], states[:, :, 1], color=ORANGE, linewidth=0.6, alpha=0.7)
        ax.scatter(*states[1:].reshape(-1, 2).T, s=4, color=ORANGE, linewidths=0)
        ax.scatter(*target.T, s=9, color=SKY, linewidths=0)
        ax.scatter(*states[0].T, s=9, color=GREY, linewidths=0, zorder=3)
        ax.set(aspect="equal", title=what, xlabel="first coordinate")
        corner = {"transform": ax.transAxes, "ha": "right", "va": "top", "fontsize": 8}
        ax.text(0.97, 0.97, f"divergence left {ends[what]:.2g}", **corner)
    axes[0].set_ylabel("second coordinate")
    point = {"marker": "o", "linestyle": "none"}
    handles = [
        Line2D([], [], color=GREY, label="source", **point),
        Line2D([], [], color=ORANGE, marker="o", markersize=3, label=f"{STEPS} steps, λ = 1/4"),
        Line2D([], [], color=SKY, label="target", **point),
        Line2D([], [], color=GREY, linestyle=":", label="axes through the origin"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4)
    return figure


FIXED = {"step": STEP, "steps": STEPS, "epsilon": f"{EPSILON:g} × mean cost at the start", "cost": "L1(1.0)"}
STUDY = Study(
    "Descents of the transport cost, h = ½ℓ2² + ℓ1",
    "Figure 4",
    {"n": 60, **FIXED},
    {"n": 150, **FIXED},
    compute,
    judge,
    draw,
)
