"""pl.heatmap: the displacement of single cells."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from occamap import _draw
from occamap._validate import check_count
from occamap.pl.look import LITERAL, Floats, Rows, blank, evenly, extent, font, literal, mean_of, room, spread, units
from occamap.tl.cells import check_enough, labels
from occamap.tl.stored import read

COLOURS = "RdBu_r"
CLIP = 0.99  # of the displacements lie within the colours
NOBODY = "(no entry)"


def heatmap(
    adata: Any,
    *,
    key: str = "occamap",
    n_genes: int = 40,
    groupby: str | None = None,
    max_cells: int = 500,
    ax: Any = None,
) -> Any:
    """The displacement of control cells (rows) in the genes that move most on average (columns), as colours.

    Genes stand by their mean displacement, those that rise most on the left. Cells stand by how far they move, the
    farthest on top, in each group. Colours are centred at 0; the 1 % of displacements that are largest share the ends.

    Parameters
    ----------
    adata, key
        The AnnData, and the `key_added` of the map.
    n_genes
        How many genes; those that move in no cell are left out.
    groupby
        A column of `adata.obs`, such as the cell type, to group the rows by.
    max_cells
        Where there are more, so many are drawn, of each group in proportion, evenly spaced by how far they move.
    ax
        Axes to draw on; new ones if None.

    Examples
    --------
    >>> import occamap as oc
    >>> adata = oc.datasets.simulate_perturbation(200, 150, 300, effect=1.5).to_anndata()
    >>> m = oc.tl.monge_map(adata, groupby="condition", control="control", target="treated")
    >>> oc.pl.heatmap(adata, n_genes=10, groupby="cell_type").images[0].get_array().shape
    (200, 10)
    """
    stored = read(adata, key)
    most, wanted = check_count(max_cells, "max_cells"), check_count(n_genes, "n_genes")
    groups = None if groupby is None else labels(adata, groupby)[stored.rows("control")]
    moves = stored.moves()
    check_enough(moves.shape[0], f"control, {stored.design.control!r},", 1)
    columns = _columns(moves, wanted)
    names = [literal(name) for name in stored.names[columns]]
    parts = _parts(groups, None if groupby is None else adata.obs[groupby])
    rows, kept = _rows(moves, list(parts.values()), most)
    size = (3.0 + 0.17 * max(len(names), 15), 6.6 + room(names))
    own, size = ax is None, (size[0] + (0 if groupby is None else room(parts)), size[1])
    ax = _draw.axes(ax, "occamap.pl", size)
    ax.set_title(literal(f"{stored.design.control} → {stored.design.target}"), **LITERAL)
    if not names:
        return blank(ax, "no gene moves")
    values = moves[rows][:, columns].toarray().astype(np.float64)
    _colours(ax, values, f"displacement ({units(stored)})")
    ax.set_xticks(range(len(names)), labels=names, rotation=90, fontsize=font(extent(ax)[0], len(names)), **LITERAL)
    ax.set_xlabel(f"{len(names):,} of {moves.shape[1]:,} genes, by mean displacement")
    ax.tick_params(axis="both", length=0)
    ax.set_yticks([])
    whole = moves.shape[0]
    told = f"{whole:,} control cells" if rows.size == whole else f"{rows.size:,} of {whole:,} control cells (sampled)"
    if groupby is not None:
        _separate(ax, [f"{name} ({part.size:,})" for name, part in parts.items()], kept, own)
        told += f", by {groupby}"
    ax.set_ylabel(literal(told), **LITERAL)
    return ax


def _columns(moves: sp.csr_array, most: int) -> Rows:
    """The genes that move most on average, the most positive mean first."""
    mean = np.nan_to_num(mean_of(moves))
    first = np.argsort(-np.abs(mean), kind="stable")[:most]
    first = first[mean[first] != 0]
    return np.asarray(first[np.argsort(-mean[first], kind="stable")])


def _parts(groups: NDArray[Any] | None, column: Any) -> dict[str, Rows]:
    """The cells of each group, in the order of the categories, or else of the names; those in none come last."""
    if groups is None:
        return {"": np.array([], dtype=np.int64)}
    there = {entry for entry in groups if entry is not None}
    order = [str(entry) for entry in column.cat.categories] if hasattr(column, "cat") else sorted(there)
    parts = {name: np.flatnonzero(groups == name) for name in order if name in there}
    nobody = np.flatnonzero([entry is None for entry in groups])
    return {**parts, NOBODY: nobody} if nobody.size else parts


def _rows(moves: sp.csr_array, parts: list[Rows], most: int) -> tuple[Rows, list[int]]:
    """The cells to draw, part by part, those that move farthest first; and how many each part has among them."""
    distance = np.asarray(moves.multiply(moves).sum(axis=1), dtype=np.float64).ravel()
    if len(parts) == 1 and not parts[0].size:
        parts = [np.arange(moves.shape[0])]
    counts = _shares(np.array([part.size for part in parts]), most)
    ordered = [part[np.argsort(-distance[part], kind="stable")] for part in parts]
    chosen = [part[evenly(part.size, int(count))] for part, count in zip(ordered, counts, strict=True)]
    return np.concatenate(chosen), counts.tolist()


def _shares(sizes: Rows, most: int) -> Rows:
    """How many of each group, in proportion: `most` of them, or all; one at least of each as far as there is room."""
    if sizes.sum() <= most:
        return sizes
    quota = most * sizes / sizes.sum()
    counts: Rows = np.maximum(np.floor(quota), 1).astype(np.int64)
    while counts.sum() > most:
        counts[np.argmax(counts)] -= 1
    while counts.sum() < most:
        counts[np.argmax(np.where(counts < sizes, quota - counts, -np.inf))] += 1
    return counts


def _colours(ax: Any, values: Floats, label: str) -> None:
    """The image and its colour bar."""
    moved = np.abs(values[np.isfinite(values) & (values != 0)])
    end = float(np.quantile(moved, CLIP)) if moved.size else 1.0
    image = ax.imshow(values, aspect="auto", interpolation="nearest", cmap=COLOURS, vmin=-end, vmax=end)
    beyond = "both" if moved.size and moved.max() > end else "neither"
    bar = ax.figure.colorbar(image, ax=ax, extend=beyond, shrink=0.6, aspect=25)
    bar.set_label(label, **LITERAL)


def _separate(ax: Any, names: list[str], counts: list[int], own: bool) -> None:
    """Lines between the groups, and their names beside them, moved apart where they would overlap."""
    total, ends = sum(counts), np.cumsum(counts)
    for end in ends[:-1]:
        ax.axhline(end - 0.5, color="black", linewidth=0.6)
    height = extent(ax, own)[1]
    size = font(height, len(names))
    centres = (ends - np.array(counts) / 2) / total
    places = spread(centres, 1.2 * size / height)
    ax.set_yticks(places * total - 0.5, labels=[literal(name) for name in names], fontsize=size, **LITERAL)
    ax.set_ylim(total - 0.5, -0.5)
    ax.tick_params(axis="y", pad=10)
    for centre, place in zip(centres, places, strict=True):
        ax.annotate(
            "",
            (0, 1 - centre),
            (-9, 1 - place),
            xycoords="axes fraction",
            textcoords=("axes points", "axes fraction"),
            arrowprops={"arrowstyle": "-", "linewidth": 0.6, "shrinkA": 0, "shrinkB": 0},
            annotation_clip=False,
        )
