"""pl.genes: the genes that move most on average."""

from __future__ import annotations

from typing import Any

import numpy as np

from occamap import _draw
from occamap._containers import is_anndata, is_frame
from occamap._validate import check_count
from occamap.errors import InputError
from occamap.pl.look import DOWN, LITERAL, UP, Floats, blank, extent, font, legend, literal, room, units
from occamap.tl.cells import check_enough, some
from occamap.tl.gene_table import gene_table
from occamap.tl.stored import read

COLUMNS = "mean", "share"


def genes(adata_or_table: Any, *, key: str = "occamap", n: int = 20, group: Any = None, ax: Any = None) -> Any:
    """The mean displacement of the genes that move most on average: a bar a gene, the largest on top.

    Bars of genes that rise and that fall differ in colour; lines across them are the intervals from `low` to `high`,
    where the table has them; beside each bar stands the share of the control cells in which the gene moves.

    Parameters
    ----------
    adata_or_table
        An AnnData with a map, or a table of `tl.gene_table`.
    key
        The `key_added` of the map, for an AnnData.
    n
        How many genes; those that do not move are left out.
    group
        Of a table that is split `by` a column: the group to draw.
    ax
        Axes to draw on; new ones if None.

    Examples
    --------
    >>> import occamap as oc
    >>> adata = oc.datasets.simulate_perturbation(200, 150, 300, effect=1.5).to_anndata()
    >>> m = oc.tl.monge_map(adata, groupby="condition", control="control", target="treated")
    >>> len(oc.pl.genes(adata, n=10).patches)
    10
    """
    count = check_count(n, "n")
    table, title, unit = _table(adata_or_table, key)
    table, title = _pick(table, group, title)
    absent = [name for name in COLUMNS if name not in table.columns]
    if absent:
        raise InputError(f"adata_or_table must have the columns of tl.gene_table; {some(absent)} is absent")
    mean = _column(table, "mean")
    order = np.argsort(-np.abs(mean), kind="stable")
    order = order[np.isfinite(mean[order]) & (mean[order] != 0)][:count]
    shown, mean = table.iloc[order], mean[order]
    names = [literal(name) for name in shown.index.get_level_values(-1)]
    ax = _draw.axes(ax, "occamap.pl", (6.0 + room(names), 1.4 + 0.22 * max(len(names), 5)))
    ax.set_title(literal(title), **LITERAL)
    if not names:
        return blank(ax, "no gene moves")
    places = np.arange(len(names))
    rising = mean > 0
    bars = ax.barh(places, mean, color=np.where(rising, UP, DOWN), height=0.75, zorder=2)
    if "low" in shown.columns and "high" in shown.columns:
        sides = np.maximum([mean - _column(shown, "low"), _column(shown, "high") - mean], 0)  # NaN stays, undrawn
        ax.errorbar(mean, places, xerr=sides, fmt="none", ecolor="black", elinewidth=0.9, capsize=2, zorder=3)
    ax.axvline(0, color="black", linewidth=0.8, zorder=4)
    ax.set_ylim(len(names) - 0.5, -0.5)
    size = font(extent(ax)[1], len(names))
    ax.set_yticks(places, labels=names, fontsize=size, **LITERAL)
    ax.tick_params(axis="y", length=0)
    for place, share in zip(places, _column(shown, "share"), strict=True):
        ax.text(1.02, place, _percent(share), transform=ax.get_yaxis_transform(), fontsize=size, va="center")
    ax.text(1.02, 1.0, "cells it\nmoves in", transform=ax.transAxes, fontsize="small", va="bottom")
    ax.set_xlabel(f"mean displacement of control cells{unit}", **LITERAL)
    kinds = [(side, name) for side, name in ((rising, "rises"), (~rising, "falls")) if side.any()]
    legend(ax, [bars[int(np.argmax(side))] for side, _ in kinds], [name for _, name in kinds], loc="best")
    return ax


def _table(given: Any, key: str) -> tuple[Any, str, str]:
    """The table, what it compares, and its units where they are known."""
    if is_anndata(given):
        stored = read(given, key)
        check_enough(stored.rows("control").size, f"control, {stored.design.control!r},", 1)
        title = f"{stored.design.control} → {stored.design.target}"
        return gene_table(given, key=key, wilcoxon=False), title, f" ({units(stored)})"
    if is_frame(given):
        return given, "", ""
    raise InputError(f"adata_or_table must be an AnnData or a table of tl.gene_table; got {type(given).__name__}")


def _pick(table: Any, group: Any, title: str) -> tuple[Any, str]:
    """The rows of one group, and its name."""
    if table.index.nlevels < 2:
        if group is not None:
            raise InputError(f"group must be None unless the table is split: tl.gene_table(adata, by=…); got {group!r}")
        return table, title
    level = np.asarray(table.index.get_level_values(0).astype(str))
    there = list(dict.fromkeys(level.tolist()))
    if group is None or str(group) not in there:
        raise InputError(f"group must be one of those in the table ({some(there, 20)}); got {group!r}")
    return table[level == str(group)], f"{table.index.names[0] or 'group'}: {group}"


def _column(table: Any, name: str) -> Floats:
    return np.asarray(table[name].to_numpy(dtype=np.float64, na_value=np.nan))


def _percent(share: float) -> str:
    if not np.isfinite(share):
        return ""
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"
