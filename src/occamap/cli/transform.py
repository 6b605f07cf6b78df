"""`occamap transform`: move cells that a map has not seen."""

from __future__ import annotations

import json
import time
from typing import Annotated

import typer
from rich.text import Text

from occamap.cli import options as given
from occamap.cli.console import literal, out, progress

HELP = """Move cells by a map that `occamap fit` or `occamap path` wrote, and write the predicted cells.

Genes are matched by name: they may stand in any order, and those that the map does not know stay as they are. \
FILE.h5ad holds the predicted cells in X and what moved in the layer occamap_displacement.

[bold]Examples[/bold]
  occamap transform run/map.occamap unseen.h5ad --out predicted.h5ad
  occamap transform run/map.occamap cells.h5ad --groupby donor --group "patient 7" --out predicted.h5ad
"""


def transform(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The map, a file such as run/map.occamap.")],
    data: Annotated[
        str,
        typer.Argument(metavar="DATA", help="Cells in the units that the map was fitted in: .h5ad file or Zarr store."),
    ],
    *,
    groupby: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of obs; all cells if not given.", rich_help_panel=given.CELLS),
    ] = None,
    group: Annotated[
        str | None, typer.Option(metavar="NAME", help="The group in it to move.", rich_help_panel=given.CELLS)
    ] = None,
    layer: given.Layer = None,
    counts: given.CountsChoice = given.Counts.refuse,
    within: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of obs with the groups of the cells. Required if the map was fitted with --within.",
            rich_help_panel=given.CELLS,
        ),
    ] = None,
    out_file: Annotated[
        str, typer.Option("--out", "-o", metavar="FILE.h5ad", help="Where they go.", rich_help_panel=given.OUTPUT)
    ],
    as_json: given.AsJson = False,
) -> None:
    begun = time.perf_counter()
    with progress("loading"):
        from occamap.runs.moving import move

    done = move(model, data, out_file, groupby, group, layer, counts.value, within, stage=progress)
    seconds = time.perf_counter() - begun
    if as_json:
        print(json.dumps({"command": "transform", **done, "seconds": round(seconds, 3)}, indent=2))
        return
    out.print(
        Text(
            f"{done['n_cells']:,} cells moved; in a cell, {done['median_genes_per_cell']:,.0f} of {done['n_genes']:,} "
            "genes move (median).",
            style="bold",
        )
    )
    out.print(Text(f"{seconds:.1f} s; wrote ") + literal(done["file"], longest=4096), soft_wrap=True)


transform.__doc__ = HELP
