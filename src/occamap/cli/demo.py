"""`occamap demo`: the main job on simulated cells, end to end."""

from __future__ import annotations

from typing import Annotated

import typer


def demo(
    genes: Annotated[int, typer.Option(min=100, help="Number of genes.")] = 5000,
    cells: Annotated[int, typer.Option(min=12, help="Control cells, and as many treated.")] = 600,
    gamma: Annotated[float, typer.Option(min=0.0, help="Strength of the ℓ1 penalty.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the simulation.")] = 0,
) -> None:
    """Learn a map between simulated cells, move unseen ones, and compare the genes that move with those planted.

    [bold]Example[/bold]
      occamap demo --genes 10000 --cells 1000
    """
    from occamap.demo import run
    from occamap.errors import InputError

    try:
        run(genes, cells, gamma, seed)
    except ValueError as error:
        raise InputError(str(error)) from error
