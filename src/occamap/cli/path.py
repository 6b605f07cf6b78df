"""`occamap path`: how sparse the map can be, and what that costs."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from occamap.cli import options as given
from occamap.cli.console import out, progress
from occamap.cli.fit import show_files

if TYPE_CHECKING:
    from occamap.runs.paths import PathRun

HELP = """Compare strengths of the penalty on held-out cells, and choose: how sparse can the map be?

DIR gets [bold]path.csv[/bold] (a row a γ), [bold]path.png[/bold] (divergence against density), \
[bold]map.occamap[/bold] (the chosen map: the sparsest within one standard error of the most faithful or, with \
--max-density, the most faithful at or below it) and [bold]run.json[/bold]. Each of them \
appears whole or not at all, run.json last. Ended before its time, the same command goes on where it was.

[bold]Examples[/bold]
  occamap path cells.h5ad --groupby condition --control control --target stimulated --out path
  occamap path cells.h5ad --groupby drug --control DMSO --target Abexinostat --gammas 0.1,0.3,1,3 --out path
  occamap path cells.h5ad --groupby drug --control DMSO --target Abexinostat --max-density 0.02 --out path
"""


def path(
    data: given.Data,
    *,
    groupby: given.Groupby,
    control: given.Control,
    target: given.Target,
    layer: given.Layer = None,
    use_genes: given.UseGenes = None,
    counts: given.CountsChoice = given.Counts.refuse,
    cost: given.Cost = given.CostName.l1,
    k: given.K = None,
    gammas: Annotated[
        str | None,
        typer.Option(
            metavar="G,G,…|N",
            help="Rising strengths, or how many to try, found from the data.",
            show_default="10",
            rich_help_panel=given.MAP,
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(metavar="E", help="Entropic regularisation.", show_default="10", rich_help_panel=given.MAP),
    ] = None,
    epsilon_scale: given.Scale = None,
    relax: given.Relax = None,
    pool: given.PathPool = "auto",
    splits: Annotated[
        int, typer.Option(min=2, help="Each part of the cells is held out once.", rich_help_panel=given.WORK)
    ] = 5,
    max_density: Annotated[
        float | None,
        typer.Option(
            metavar="D", help="The share of entries that may move at most, in the choice.", rich_help_panel=given.MAP
        ),
    ] = None,
    max_memory: given.MaxMemory = None,
    threads: given.Threads = None,
    dask: given.Dask = None,
    seed: given.Seed = 0,
    out_directory: given.OutDirectory,
    as_json: given.AsJson = False,
) -> None:
    os.environ["MPLBACKEND"] = "agg"  # nothing is shown, whatever the user shows pictures with
    begun = time.perf_counter()
    with progress("loading"):
        from occamap.runs.options import MapOptions, Question, parse_count, parse_gammas
        from occamap.runs.paths import path as run

    done = run(
        data,
        out_directory,
        Question(groupby, control, target, layer, use_genes, counts.value),
        MapOptions(
            cost.value, None, k, epsilon, given.value(epsilon_scale), relax, pool=parse_count(pool), match="none"
        ),
        parse_gammas(gammas),
        splits=splits,
        max_density=max_density,
        max_memory=max_memory,
        threads=threads,
        seed=seed,
        dask=dask,
        stage=progress,
    )
    if as_json:
        rows = json.loads(done.table.to_json(orient="records"))
        print(json.dumps({**done.record.to_dict(), "directory": str(done.directory), "path": rows}, indent=2))
    else:
        _show(done, time.perf_counter() - begun)


path.__doc__ = HELP


def _show(done: PathRun, seconds: float) -> None:
    result, parameters = done.record.result, done.record.parameters
    why = "the sparsest within one standard error of the most faithful"
    if parameters["max_density"] is not None:
        why = f"the most faithful of density {parameters['max_density']:g} or less"
    out.print(
        Text(
            f"γ = {result['gamma']:.4g} is chosen, {why}: {result['density']:.2%} of the entries of "
            f"{result['n_cells']:,} control cells × {result['n_genes']:,} genes move.",
            style="bold",
        ),
        soft_wrap=True,
    )
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for head in ("", "γ", "density", "divergence", "± se", "effective targets", "status"):
        drawn.add_column(head, justify="left" if head in ("", "status") else "right")
    for number, row in enumerate(done.table.to_dict("records")):
        here = number == done.chosen
        drawn.add_row(
            "★" if here else "",
            f"{row['gamma']:.4g}",
            f"{row['mean_density']:.3%}",
            f"{row['mean_divergence']:.4g}",
            f"{row['se_divergence']:.2g}",
            f"{row['mean_effective_targets']:.1f}",
            str(row["status"]),
            style="green" if here else None,
        )
    out.print(drawn)
    out.print(Text(f"\n{result['diagnostics']}"), soft_wrap=True)
    show_files(done.directory, done.record, seconds)
