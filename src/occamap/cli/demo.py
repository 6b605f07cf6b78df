"""`occamap demo`: the main job on simulated cells, end to end."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import Annotated

import typer

from occamap.cli.console import out, progress
from occamap.cli.fit import show


def demo(
    genes: Annotated[int, typer.Option(min=100, help="Number of genes.")] = 5000,
    cells: Annotated[int, typer.Option(min=12, help="Control cells, and as many treated.")] = 600,
    gamma: Annotated[
        float | None,
        typer.Option(min=0.0, help="Penalty strength.", show_default="what keeps out the noise of the cells"),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the simulation.")] = 0,
    out_directory: Annotated[
        str | None,
        typer.Option("--out", "-o", metavar="DIR", help="Write the cells there, and what `occamap fit` makes of them."),
    ] = None,
) -> None:
    """Learn a map between simulated cells, move unseen ones, and compare the genes that move with those planted.

    With --out, DIR gets the cells that the map is learned from as [bold]cells.h5ad[/bold], and the files of \
`occamap fit` beside it.

    [bold]Examples[/bold]
      occamap demo --genes 10000 --cells 1000
      occamap demo --out demo
    """
    from occamap import demo as job
    from occamap.errors import InputError
    from occamap.runs.directory import output_directory

    with nullcontext() if out_directory is None else output_directory(out_directory, [job.NAME]) as directory:
        try:
            data = job.run(genes, cells, gamma, seed)
        except ValueError as error:
            raise InputError(str(error)) from error
        if directory is not None:
            print(flush=True)
            begun = time.perf_counter()
            done, command = job.write(data, cells, gamma, seed, directory, progress)
            show(done, time.perf_counter() - begun)
            out.print(f"The same, from the file:\n  {command}", markup=False, soft_wrap=True)
