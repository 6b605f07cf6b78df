"""Two measures in the plane, a disc and the ring around it, and the maps between them that Figures 1 and 2 show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

import occamap as oc
from occamap.paper.canvas import KOVERLAP, L1, LIGHT, SQL2, STVS

Floats = NDArray[np.float64]

EPSILON = 0.03  # × the mean cost: sharp enough to see a direction, blurred enough for a penalty to matter
SMALL, LARGE = 1.0, 30.0
REACH = 4.3  # half the side of a panel


@dataclass(frozen=True)
class Plane:
    """Samples of the two measures, and a fresh one of the first."""

    source: Floats
    target: Floats
    fresh: Floats


def draw_plane(n: int, n_fresh: int, seed: int) -> Plane:
    """Uniform on a disc of radius 1.2; a ring of radius 3 and width 0.3."""
    rng = np.random.default_rng(seed)

    def around(count: int, radius: Floats) -> Floats:
        angle = rng.uniform(0, 2 * np.pi, count)
        return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])

    source = around(n, 1.2 * np.sqrt(rng.uniform(size=n)))
    target = around(n, 3 + 0.3 * rng.normal(size=n))
    return Plane(source, target, around(n_fresh, 1.2 * np.sqrt(rng.uniform(size=n_fresh))))


def costs() -> list[tuple[str, float, oc.Cost]]:
    """Name, γ and cost of each panel: ½ℓ2² once, the others weak, then strong."""
    penalties: dict[str, Callable[[float], oc.Cost]] = {
        L1: oc.L1,
        STVS: oc.STVS,
        KOVERLAP: lambda gamma: oc.KOverlap(gamma, k=1),
    }
    shown: list[tuple[str, float, oc.Cost]] = [(SQL2, 0.0, oc.SqL2())]
    for gamma in (SMALL, LARGE):
        shown += [(name, gamma, make(gamma)) for name, make in penalties.items()]
    return shown


def points(plane: Plane, moves: dict[tuple[str, float], Floats]) -> pd.DataFrame:
    """A row a point: the samples, then the fresh points with their displacement under each map."""
    parts = [
        pd.DataFrame({"what": what, "x": z[:, 0], "y": z[:, 1]})
        for what, z in (("source", plane.source), ("target", plane.target))
    ]
    for (cost, gamma), move in moves.items():
        fresh = {"what": "displacement", "cost": cost, "gamma": gamma, "x": plane.fresh[:, 0], "y": plane.fresh[:, 1]}
        parts.append(pd.DataFrame({**fresh, "move_x": move[:, 0], "move_y": move[:, 1]}))
    return pd.concat(parts, ignore_index=True)


def displacements(table: pd.DataFrame) -> dict[tuple[str, float], Floats]:
    """The displacement of the fresh points under each map, in the order of the table."""
    rows = table[table["what"] == "displacement"]
    return {
        (str(cost), float(gamma)): part[["move_x", "move_y"]].to_numpy()
        for (cost, gamma), part in rows.groupby(["cost", "gamma"], sort=False)
    }


def frame() -> tuple[Figure, dict[tuple[str, float], Axes]]:
    """A panel a map, all on the same axes: ½ℓ2² on the left, small γ above, large γ below."""
    figure = Figure(figsize=(11.5, 5.9), layout="constrained")
    grid = figure.add_gridspec(4, 4)
    names = (L1, STVS, KOVERLAP)
    cells = {(SQL2, 0.0): grid[1:3, 0]}
    cells |= {(name, SMALL): grid[0:2, column] for column, name in enumerate(names, start=1)}
    cells |= {(name, LARGE): grid[2:4, column] for column, name in enumerate(names, start=1)}
    axes: dict[tuple[str, float], Axes] = {}
    for (name, gamma), cell in cells.items():
        ax = figure.add_subplot(cell)
        ax.set(xlim=(-REACH, REACH), ylim=(-REACH, REACH), xticks=[], yticks=[], aspect="equal")
        ax.spines[:].set_visible(True)
        ax.spines[:].set_color(LIGHT)
        ax.set_title(name if name == SQL2 else f"{name}{', k = 1' if name == KOVERLAP else ''}, γ = {gamma:g}")
        axes[name, gamma] = ax
    return figure, axes
