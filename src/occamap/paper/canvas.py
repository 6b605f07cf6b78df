"""Panels, and one look for each cost."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

BLACK, GREY, LIGHT = "#000000", "#777777", "#BBBBBB"
BLUE, ORANGE, GREEN, PURPLE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9"  # Okabe and Ito's

SQL2, L1, STVS, KOVERLAP, NORM = "½ℓ2²", "ℓ1", "STVS", "k-overlap", "k-overlap, not squared"
COLOURS = {SQL2: BLACK, L1: BLUE, STVS: ORANGE, KOVERLAP: GREEN, NORM: PURPLE}
MARKERS = {SQL2: "s", L1: "o", STVS: "^", KOVERLAP: "D", NORM: "v"}
SIZES = {SQL2: 4, L1: 6, STVS: 3, KOVERLAP: 4, NORM: 4}  # so that curves that coincide are both seen


def panels(rows: int, columns: int, size: tuple[float, float], **same: Any) -> tuple[Figure, list[list[Axes]]]:
    """A figure without a window, and its panels by row and column."""
    figure = Figure(figsize=size, layout="constrained")
    return figure, [list(row) for row in figure.subplots(rows, columns, squeeze=False, **same)]


def band(ax: Axes, x: Any, rows: Any, cost: str) -> None:
    """The mean over seeds (rows) as a line, all of them as a band."""
    ax.fill_between(x, rows.min(axis=0), rows.max(axis=0), color=COLOURS[cost], alpha=0.15, linewidth=0)
    line(ax, x, rows.mean(axis=0), cost)


def line(ax: Axes, x: Any, y: Any, cost: str, label: str | None = None, style: str = "-") -> None:
    """A curve in the look of its cost; hollow where it is not a solid line."""
    face = COLOURS[cost] if style == "-" else "white"
    look = {"color": COLOURS[cost], "marker": MARKERS[cost], "markersize": SIZES[cost], "markerfacecolor": face}
    ax.plot(x, y, linestyle=style, linewidth=1.3, label=cost if label is None else label, **look)
