"""pl.arrows: where the map sends control cells, in an embedding."""

from __future__ import annotations

from typing import Any

import numpy as np

from occamap import _draw
from occamap._optional import optional
from occamap._validate import check_count
from occamap.errors import InputError
from occamap.pl.embedding import predicted_at
from occamap.pl.look import LITERAL, Floats, evenly, legend, literal, room
from occamap.pl.paint import paint
from occamap.tl.cells import check_enough, some
from occamap.tl.stored import read

LINES = "sc.pp.pca(adata); sc.pp.neighbors(adata); sc.tl.umap(adata)"
SIZE = 7.5, 4.8


def arrows(
    adata: Any,
    *,
    basis: str = "pca",
    key: str = "occamap",
    color: str | None = None,
    n_neighbors: int = 10,
    max_arrows: int = 200,
    ax: Any = None,
) -> Any:
    """Control and target cells in an embedding, and arrows from control cells to where their predicted cells would be.

    With the basis "pca" and `varm["PCs"]` an arrow is the displacement times the components, exactly; they have to be
    components of the numbers that the map was fitted on. In other embeddings it ends at the mean position of the target
    cells nearest to the predicted cell, in the space of `obsm["X_pca"]` if `varm["PCs"]` is there, else in 50 principal
    components of the cells of both groups.

    Parameters
    ----------
    adata, key
        The AnnData, and the `key_added` of the map.
    basis
        An embedding in `adata.obsm`: "umap" or "X_umap".
    color
        A column of `adata.obs` to colour cells by; control and target differ in colour if None, else in shape.
    n_neighbors
        How many target cells an arrow ends at the mean of.
    max_arrows
        Arrows for so many control cells at most, evenly spaced.
    ax
        Axes to draw on; new ones if None.

    Examples
    --------
    >>> import occamap as oc
    >>> adata = oc.datasets.simulate_perturbation(200, 150, 300, effect=1.5).to_anndata()
    >>> m = oc.tl.monge_map(adata, groupby="condition", control="control", target="treated")
    >>> adata.obsm["X_two"] = adata.X[:, :2].toarray()
    >>> oc.pl.arrows(adata, basis="two", max_arrows=50).get_xlabel()
    'two 1'
    """
    stored = read(adata, key)
    neighbours, most = check_count(n_neighbors, "n_neighbors"), check_count(max_arrows, "max_arrows", 0)
    name = _basis(adata, basis)
    raw: Any = adata.obsm[name]
    where = np.asarray(raw.toarray() if hasattr(raw, "toarray") else raw, dtype=np.float64)
    if where.ndim != 2 or where.shape[1] < 2:
        raise InputError(f"basis must have at least two dimensions; adata.obsm[{name!r}] has shape {where.shape}")
    placed = np.asarray(np.isfinite(where[:, :2]).all(axis=1))
    sides = {side: stored.rows(side) for side in ("control", "target")}
    sides = {side: rows[placed[rows]] for side, rows in sides.items()}
    for side, rows in sides.items():
        check_enough(rows.size, f"{side}, {getattr(stored.design, side)!r},", 1)
    begin = sides["control"][evenly(sides["control"].size, most)]
    ends = predicted_at(stored, name, where, begin, sides["target"], neighbours)
    own, ax = ax is None, _draw.axes(ax, "occamap.pl", SIZE)
    groups = [getattr(stored.design, side) for side in sides]
    handles, names = paint(ax, adata, where[:, :2], list(sides.values()), groups, color)
    if begin.size:
        handles.append(_arrows(ax, where[begin, :2], ends))
        whole = sides["control"].size
        names.append("predicted" + (f" (of {begin.size:,} of {whole:,})" if begin.size < whole else ""))
    columns = 1 + len(names) // 20
    if own:
        ax.figure.set_size_inches(SIZE[0] + columns * room(map(literal, names), free=26) + 1.5 * (columns - 1), SIZE[1])
    legend(ax, handles, names, loc="upper left", bbox_to_anchor=(1.0, 1.0), ncols=columns)
    shown = name.removeprefix("X_")
    stem = {"pca": "PC", "umap": "UMAP", "tsne": "tSNE"}.get(shown, f"{shown} ")
    for dimension, set_label in enumerate((ax.set_xlabel, ax.set_ylabel), 1):
        set_label(literal(f"{stem}{dimension}"), **LITERAL)
    if shown != "pca":
        ax.set(xticks=[], yticks=[])  # these have no units
    return ax


def _basis(adata: Any, basis: Any) -> str:
    """The key of an embedding."""
    there = [str(name) for name in adata.obsm]
    for name in (str(basis), f"X_{basis}"):
        if name in there:
            return name
    told = f"there are {some(there, 12)}" if there else "there is none"
    raise InputError(f"basis must be an embedding in adata.obsm ({told}); got {basis!r}; scanpy makes them: {LINES}")


def _arrows(ax: Any, begin: Floats, end: Floats) -> Any:
    """Arrows in the units of the axes, which hold their heads; and a line that stands for them in a legend."""
    ax.quiver(
        *begin.T,
        *(end - begin).T,
        angles="xy",
        scale_units="xy",
        scale=1,
        width=0.0016,
        headwidth=5,
        headlength=6,
        headaxislength=5.5,
        color="black",
        alpha=0.55,
        zorder=3,
    )
    ax.update_datalim(end)
    ax.autoscale_view()
    lines = optional("matplotlib.lines", "occamap.pl")
    return lines.Line2D([], [], color="black", marker=">", markersize=4, linewidth=1)
