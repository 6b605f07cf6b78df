"""pl.means: predicted against observed mean expression."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from occamap import _draw
from occamap._validate import check_count
from occamap.errors import InputError
from occamap.metrics import pearson_r2
from occamap.pl.look import LARGEST, LITERAL, Floats, Rows, extent, font, literal, mean_of, room, spread, units
from occamap.tl.cells import check_enough, some
from occamap.tl.stored import Stored, read

LEADER = {"arrowstyle": "-", "linewidth": 0.5, "color": _draw.ORANGE, "shrinkA": 1, "shrinkB": 2, "relpos": (0, 0.5)}


def means(adata: Any, *, key: str = "occamap", markers: Any = None, n_labels: int = 10, ax: Any = None) -> Any:
    """The predicted mean of each gene against the mean of the target cells: a dot a gene, and the diagonal.

    The predicted mean is that of the control cells plus their mean displacement. In the corner stand two squared
    correlations over all dots: of the means themselves, and of the changes from the mean of the control cells. The
    first is near 1 even where nothing is predicted.

    Parameters
    ----------
    adata, key
        The AnnData, and the `key_added` of the map.
    markers
        Genes to name; those whose observed mean changes most if None.
    n_labels
        How many of these.
    ax
        Axes to draw on; new ones if None.

    Examples
    --------
    >>> import occamap as oc
    >>> adata = oc.datasets.simulate_perturbation(200, 150, 300, effect=1.5).to_anndata()
    >>> m = oc.tl.monge_map(adata, groupby="condition", control="control", target="treated")
    >>> oc.pl.means(adata, n_labels=5).collections[0].get_offsets().shape
    (300, 2)
    """
    stored = read(adata, key)
    count = check_count(n_labels, "n_labels", 0)
    named = None if markers is None else _places(markers, stored.names)
    moves, design = stored.moves(), stored.design
    before, observed = (_mean(stored, side) for side in ("control", "target"))
    predicted = before + mean_of(moves)
    known = np.isfinite(before) & np.isfinite(observed) & np.isfinite(predicted)
    if named is None:
        change = np.where(known, np.abs(observed - before), 0.0)
        named = np.argsort(-change, kind="stable")[:count]
        named = named[change[named] > 0]
    named = named[known[named]]
    names = [literal(name) for name in stored.names[named]]
    ax = _draw.axes(ax, "occamap.pl", (6.0 + room(names), 5.0))
    ax.scatter(observed[known], predicted[known], s=9, color=_draw.GREY, alpha=0.6, linewidths=0, rasterized=True)
    ends = _ends(observed[known], predicted[known])
    ax.plot(ends, ends, color="black", linewidth=0.8, zorder=0)
    ax.set(xlim=ends, ylim=ends)
    ax.scatter(observed[named], predicted[named], s=18, color=_draw.ORANGE, linewidths=0, zorder=3)
    _label(ax, names, observed[named], predicted[named], ends)
    changes = (observed - before)[known], (predicted - before)[known]
    told = f"of the means: {_r2(observed[known], predicted[known])}\nof the changes: {_r2(*changes)}"
    ax.text(0.03, 0.97, f"squared correlation (R²)\n{told}", transform=ax.transAxes, va="top", fontsize="small")
    ax.set_xlabel(literal(f"observed mean: {design.target} ({units(stored)})"), **LITERAL)
    ax.set_ylabel(literal(f"predicted mean: {design.control} + displacement"), **LITERAL)
    return ax


def _mean(stored: Stored, side: str) -> Floats:
    """Of each gene, over the cells of a side."""
    cells = stored.cells(side)
    check_enough(cells.shape[0], f"{side}, {getattr(stored.design, side)!r},", 1)
    return mean_of(cells)


def _places(markers: Any, names: Any) -> Rows:
    """Where the genes with these names are."""
    wanted = [markers] if isinstance(markers, str) else [str(name) for name in markers]
    place = {str(name): k for k, name in enumerate(names)}
    absent = [name for name in wanted if name not in place]
    if absent:
        raise InputError(f"markers must name genes of the map; {len(absent)} of {len(wanted)} do not: {some(absent)}")
    return np.array([place[name] for name in dict.fromkeys(wanted)], dtype=np.int64)


def _ends(*values: Floats) -> tuple[float, float]:
    """Limits that hold all values."""
    whole = np.concatenate([*values, [0.0]])
    low, high = float(whole.min()), float(whole.max())
    margin = 0.04 * ((high - low) or 1.0)
    return low - margin, high + margin


def _r2(truth: Floats, predicted: Floats) -> str:
    """The squared correlation in words, where there is one."""
    if truth.size < 2 or np.ptp(truth) == 0 or np.ptp(predicted) == 0:
        return "none, one is constant"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SciPy's, where a vector is nearly constant
        return f"{pearson_r2(truth, predicted):.3f}"


def _label(ax: Any, names: list[str], x: Floats, y: Floats, ends: tuple[float, float]) -> None:
    """Names in a column beside the Axes, in the order of the dots, each with a line to its own."""
    height = extent(ax)[1]
    size = min(font(height, len(names)), LARGEST)
    order = np.argsort(y, kind="stable")
    places = spread((y[order] - ends[0]) / (ends[1] - ends[0]), 1.2 * size / height)
    for k, place in zip(order, places, strict=True):
        ax.annotate(
            names[k],
            (x[k], y[k]),
            (1.04, place),
            textcoords="axes fraction",
            fontsize=size,
            va="center",
            arrowprops=LEADER,
            annotation_clip=False,
            **LITERAL,
        )
