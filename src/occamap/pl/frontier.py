"""pl.frontier: faithfulness on held-out cells against sparsity."""

from __future__ import annotations

from typing import Any

import numpy as np

from occamap import _draw
from occamap._containers import is_frame
from occamap._optional import optional
from occamap.errors import InputError
from occamap.pl.look import PALETTE, legend, literal, room
from occamap.selection import MongeMapCV
from occamap.tl.cells import some

COLUMNS = "density", "divergence"
BASELINES = {
    "identity": "nothing moves",
    "mean_shift": "all move by the difference of the means",
    "treated": "other treated cells",
}
METHODS = {"l1": "ℓ1", "stvs": "STVS", "sql2": "½ℓ2²", "koverlap": "k-overlap"}
COLOURS = {"l1": PALETTE[0], "stvs": PALETTE[1], "koverlap": PALETTE[2], "sql2": "#000000"}
MARKERS = {"l1": "o", "stvs": "^", "koverlap": "D", "sql2": "s"}
STYLES = ":", "-.", "--"


def frontier(source: Any, *, ax: Any = None) -> Any:
    """Divergence to held-out target cells against the share of entries that move, both low where a map is good.

    Of a `MongeMapCV`: all candidates, the frontier, the choice and the baselines, as its `plot` draws them. Of a
    table: the mean over the rows of each method and γ; a line for a method with several γ, the smallest and the largest
    written at its ends; a point for one with a single γ; lines across for the methods "identity", "mean_shift" and
    "treated".

    Parameters
    ----------
    source
        A fitted `MongeMapCV`; a map that held-out cells chose (with `selection_`); or a data frame with columns
        `density` and `divergence`, a row a split. Column `method`, or else `cost`, says whose row it is. Without a
        column `gamma`, each row is a point. Rows without a divergence are left out.
    ax
        Axes to draw on; new ones if None.

    Examples
    --------
    >>> import pandas as pd, occamap as oc
    >>> rows = [("l1", 0.1, 0.2, 3.0), ("l1", 1.0, 0.1, 4.0), ("sql2", 0.0, 1.0, 2.5), ("identity", None, 0.0, 9.0)]
    >>> ax = oc.pl.frontier(pd.DataFrame(rows, columns=["method", "gamma", "density", "divergence"]))
    >>> [text.get_text() for text in ax.texts]
    ['γ = 0.1', 'γ = 1']
    """
    chosen = getattr(source, "selection_", source)
    if isinstance(chosen, MongeMapCV):
        return chosen.plot(ax)
    if not is_frame(chosen):
        raise InputError(
            "source must be a fitted MongeMapCV, a map with selection_ (that held-out cells chose) or a data frame; "
            f"got {type(source).__name__}"
        )
    absent = [name for name in COLUMNS if name not in chosen.columns]
    if absent:
        there = [str(name) for name in chosen.columns]
        raise InputError(f"source must have columns 'density' and 'divergence'; it has {some(there, 12) or 'none'}")
    curves, baselines = _curves(chosen)
    names = [*(METHODS.get(name, name) for name in curves), *(BASELINES[name] for name in baselines)]
    ax = _draw.axes(ax, "occamap.pl", (8.0 + room(map(literal, names), free=40), 4.5))
    drawn = [_curve(ax, curve, name, k) for k, (name, curve) in enumerate(curves.items())]
    lines = [
        ax.axhline(value, color=_draw.GREY, linestyle=STYLES[k % 3], linewidth=1, zorder=0)
        for k, value in enumerate(baselines.values())
    ]
    _scale(ax, np.concatenate([curve[:, 1] for curve in curves.values()] or [np.ones(1)]))
    ax.set(xlabel="entries that move", ylabel="divergence to held-out target cells")
    if any(names):
        legend(ax, [*drawn, *lines], names, loc="upper left", bbox_to_anchor=(1.0, 1.0))  # beside the points
    return ax


def _curves(table: Any) -> tuple[dict[str, Any], dict[str, float]]:
    """Rows of (γ, density, divergence) by method, and the divergence of each baseline."""
    column = next((name for name in ("method", "cost") if name in table.columns), None)
    methods = np.full(len(table), "") if column is None else np.asarray(table[column].astype(str))
    values = {name: np.asarray(table[name].to_numpy(dtype=np.float64, na_value=np.nan)) for name in COLUMNS}
    if "gamma" in table.columns:
        gammas = np.nan_to_num(table["gamma"].to_numpy(dtype=np.float64, na_value=np.nan), nan=-1.0)
    else:
        gammas = None
    curves, baselines = {}, {}
    for name in dict.fromkeys(methods.tolist()):
        rows = np.flatnonzero((methods == name) & np.isfinite(values["divergence"]))
        if name in BASELINES and rows.size:
            baselines[name] = float(values["divergence"][rows].mean())
        rows = rows[np.isfinite(values["density"][rows])]
        if name in BASELINES or not rows.size:
            continue
        if gammas is None:
            rows = rows[np.argsort(values["density"][rows], kind="stable")]
            curves[name] = np.column_stack([np.full(rows.size, np.nan), *(values[part][rows] for part in COLUMNS)])
        else:
            means = [
                [gamma, *(values[part][rows[gammas[rows] == gamma]].mean() for part in COLUMNS)]
                for gamma in np.unique(gammas[rows])
            ]
            curves[name] = np.array(means)
    return curves, baselines


def _curve(ax: Any, curve: Any, name: str, k: int) -> Any:
    """A line, or points, in the look of its method; γ at the ends, above and below in turn."""
    colour = COLOURS.get(name, PALETTE[(k + 3) % len(PALETTE)])
    look = {"color": colour, "marker": MARKERS.get(name, "v"), "markersize": 5, "linewidth": 1.3}
    path = len(curve) > 1 and bool(np.isfinite(curve[:, 0]).all())
    line = ax.plot(curve[:, 1], curve[:, 2], linestyle="-" if path else "", **look)[0]
    if path:
        for gamma, density, divergence in curve[[0, -1]]:
            ax.annotate(
                f"γ = {gamma:.3g}",
                (density, divergence),
                (0, (6 + 11 * (k // 2)) * (-1) ** k),
                textcoords="offset points",
                ha="center",
                va="top" if k % 2 else "bottom",
                fontsize="small",
                color=colour,
            )
    return line


def _scale(ax: Any, density: Any) -> None:
    """Densities in logarithms and percent; 0, which has none, at the left end of a linear stretch."""
    ticker = optional("matplotlib.ticker", "occamap.pl")
    if (density <= 0).any():
        ax.set_xscale("symlog", linthresh=float(density[density > 0].min(initial=1.0)))
    else:
        ax.set_xscale("log")
        ax.xaxis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.xaxis.set_major_formatter(ticker.FuncFormatter(lambda share, _: f"{100 * share:g}%"))
    ax.xaxis.set_minor_formatter(ticker.NullFormatter())
