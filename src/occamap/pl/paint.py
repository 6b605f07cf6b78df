"""Cells in an embedding, by group or by a column of obs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from occamap import _draw
from occamap._optional import optional
from occamap.pl.look import LITERAL, PALETTE, Floats, Rows, literal
from occamap.tl.cells import labels

SIDES = _draw.BLUE, _draw.ORANGE
SHAPES = "o", "^"
MOST = 36  # names in the legend
PALE = "#BBBBBB"  # cells without an entry


def paint(
    ax: Any, adata: Any, where: Floats, sides: list[Rows], groups: list[str], color: str | None
) -> tuple[list[Any], list[str]]:
    """Draw the control and the target cells; handles and names for the legend."""
    size = float(np.clip(20_000 / sum(rows.size for rows in sides), 3, 25))
    look: dict[str, Any] = {"s": size, "linewidths": 0, "alpha": 0.5, "rasterized": True}
    names = [f"{group} ({rows.size:,})" for group, rows in zip(groups, sides, strict=True)]
    handle = optional("matplotlib.lines", "occamap.pl").Line2D
    if color is None:
        for rows, colour in zip(sides, SIDES, strict=True):
            ax.scatter(*where[rows].T, color=colour, **look)
        return [handle([], [], linestyle="", marker="o", color=colour) for colour in SIDES], names
    entries = labels(adata, color, "color")
    handles = [handle([], [], linestyle="", marker=shape, color=_draw.GREY) for shape in SHAPES]
    if adata.obs[color].dtype.kind in "fiu":
        _numbers(ax, where, sides, adata.obs[color], color, look)
        return handles, names
    kinds = _colours(adata, color, entries)
    for rows, shape in zip(sides, SHAPES, strict=True):
        ax.scatter(*where[rows].T, c=[kinds.get(entry, PALE) for entry in entries[rows]], marker=shape, **look)
    there = {entry for rows in sides for entry in entries[rows]}
    shown = {name: colour for name, colour in kinds.items() if name in there}
    if len(shown) > MOST:
        shown = dict(list(shown.items())[: MOST - 1]) | {f"and {len(shown) - MOST + 1:,} more": PALE}
    if None in there:
        shown["(no entry)"] = PALE
    handles += [handle([], [], linestyle="", marker="o", color=colour) for colour in shown.values()]
    return handles, [*names, *shown]


def _numbers(ax: Any, where: Floats, sides: list[Rows], column: Any, name: str, look: dict[str, Any]) -> None:
    """Cells shaded by a number, with a colour bar."""
    values = np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    drawn = values[np.concatenate(sides)]
    drawn = drawn[np.isfinite(drawn)]
    shades = optional("matplotlib", "occamap.pl").colormaps["viridis"].with_extremes(bad=PALE)
    low, high = (float(drawn.min()), float(drawn.max())) if drawn.size else (0.0, 1.0)
    for rows, shape in zip(sides, SHAPES, strict=True):
        shown = np.where(np.isfinite(values[rows]), values[rows], np.nan)
        points = ax.scatter(
            *where[rows].T, c=shown, marker=shape, cmap=shades, vmin=low, vmax=high, plotnonfinite=True, **look
        )
    bar = ax.figure.colorbar(points, ax=ax, shrink=0.6, location="bottom", aspect=40)
    bar.solids.set_alpha(1)
    bar.set_label(literal(name), **LITERAL)


def _colours(adata: Any, color: str, entries: NDArray[Any]) -> dict[Any, Any]:
    """A colour for each category: scanpy's where it has left them, or ours."""
    column = adata.obs[color]
    there = {entry for entry in entries if entry is not None}
    names = [str(name) for name in column.cat.categories] if hasattr(column, "cat") else sorted(there)
    given = [str(colour) for colour in adata.uns.get(f"{color}_colors", [])]
    valid = optional("matplotlib.colors", "occamap.pl").is_color_like
    if len(given) >= len(names) and all(valid(colour) for colour in given):
        return dict(zip(names, given, strict=False))
    maps = optional("matplotlib", "occamap.pl").colormaps
    if len(names) <= len(PALETTE):
        return dict(zip(names, PALETTE, strict=False))
    shades = maps["tab20"](np.arange(20)) if len(names) <= 20 else maps["turbo"](np.linspace(0, 1, len(names)))
    return dict(zip(names, [tuple(shade) for shade in shades], strict=False))
