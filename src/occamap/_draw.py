"""Pictures of plain arrays on matplotlib's Axes: the only place that imports it, when something is drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from occamap._optional import optional

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#777777"  # told apart by the colour-blind


def axes(ax: Any, what: str, size: tuple[float, float] = (6.0, 4.0)) -> Any:
    """The Axes to draw on: the given ones, or new ones."""
    pyplot = optional("matplotlib.pyplot", what)
    return pyplot.subplots(figsize=size, layout="constrained")[1] if ax is None else ax


def density_path(gammas: Floats, densities: Floats, converged: Flags, name: str, ax: Any = None) -> Any:
    """Density against γ, in logarithms; γ = 0 as a line across, points that did not converge hollow."""
    ax = axes(ax, "plot")
    positive = gammas > 0
    ax.plot(gammas[positive], densities[positive], color=BLUE, zorder=1)
    for flags, face, label in ((converged, BLUE, "converged"), (~converged, "white", "not converged")):
        shown = positive & flags
        if shown.any():
            ax.scatter(gammas[shown], densities[shown], s=22, color=face, edgecolors=BLUE, label=label, zorder=2)
    if not positive.all():
        ax.axhline(densities[~positive][0], color=GREY, linestyle="--", label="γ = 0")
    if positive.any():
        ax.set_xscale("log")
    ax.yaxis.set_major_formatter(optional("matplotlib.ticker", "plot").PercentFormatter(xmax=1))
    ax.set(xlabel=f"γ of {name}", ylabel="entries that move", ylim=(0, None))
    if not converged.all() or not positive.all():
        ax.legend(frameon=False)
    return ax


def frontier(
    divergence: Floats,
    error: Floats,
    density: Floats,
    converged: Flags,
    rules: NDArray[np.str_],
    line: NDArray[np.int64],
    star: int,
    baselines: dict[str, float],
    ax: Any = None,
) -> Any:
    """Divergence against density, a shade a rule for ε; the frontier a line, the choice a star, baselines across."""
    ax = axes(ax, "plot", (8.5, 4.5))
    levels = list(dict.fromkeys(rules.tolist()))
    shades = optional("matplotlib", "plot").colormaps["viridis"](np.linspace(0.1, 0.9, len(levels)))
    for level, shade in zip(levels, shades, strict=True):
        for flags, face in ((converged, shade), (~converged, "white")):
            rows = flags & (rules == level)
            label = f"ε by {level}" if face is shade else f"ε by {level}, not converged"
            if rows.any():
                ax.scatter(density[rows], divergence[rows], s=20, color=face, edgecolors=shade, label=label, zorder=2)
    ax.plot(density[line], divergence[line], color=GREY, linewidth=1, zorder=1, label="frontier")
    ax.errorbar(density[star], divergence[star], yerr=np.nan_to_num(error[star]), color=ORANGE, zorder=3)
    ax.scatter(density[star], divergence[star], marker="*", s=160, color=ORANGE, label="chosen", zorder=4)
    for (what, value), style in zip(baselines.items(), (":", "-.", "--"), strict=False):
        ax.axhline(value, color=GREY, linestyle=style, linewidth=1, zorder=0, label=what)
    least = density[density > 0].min(initial=1.0)
    scale = {"value": "symlog", "linthresh": least} if (density == 0).any() else {"value": "log"}
    ax.set_xscale(**scale)
    ax.set(xlabel="entries that move", ylabel="divergence to held-out targets")
    ticker = optional("matplotlib.ticker", "plot")
    if scale["value"] == "log":
        ax.xaxis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.xaxis.set_major_formatter(ticker.PercentFormatter(xmax=1))
    ax.xaxis.set_minor_formatter(ticker.NullFormatter())
    ax.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))  # beside the points
    return ax
