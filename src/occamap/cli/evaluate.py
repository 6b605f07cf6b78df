"""`occamap evaluate`: how good maps are on cells they have not seen."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from occamap.cli import options as given
from occamap.cli.console import literal, out, progress
from occamap.cli.fit import show_files

if TYPE_CHECKING:
    from occamap.run_record import RunRecord

SHOWN = {  # heads, and what they show the mean of
    "density": "density",
    "divergence": "divergence",
    "mmd": "MMD²",
    "energy": "energy",
    "pearson_r2_means_train": "r² of means",
    "r2_score_changes_train": "R² of changes",
    "rbo_train": "RBO",
}
HELP = """Fit maps on train cells, move held-out control cells, and compare them with held-out target cells.

Every target group (and every group of --within) is split at random, several times, or, with --replicate, by leaving \
out one donor at a time; for every cost and penalty strength, a map is fitted on the train cells alone. Baselines: no \
move, a shift of all cells by the difference of the means, and target cells of the train fold. DIR gets \
[bold]evaluation.parquet[/bold] and [bold]evaluation.csv[/bold] (one row per condition, split and method), \
[bold]report.html[/bold] and [bold]run.json[/bold]. If interrupted, run the same command again to resume. By \
default ε, relax and pool are those of the paper, not those of `occamap fit`.

[bold]Examples[/bold]
  occamap evaluate cells.h5ad --groupby condition --control control --out evaluation
  occamap evaluate cells.h5ad --groupby drug --control DMSO --within cell_line --hvg 5000 --splits 5 --out evaluation
  occamap evaluate cells.h5ad --groupby condition --control control --replicate donor --out evaluation
  occamap evaluate cells.h5ad --groupby condition --control control --costs l1 --gammas 0.3 --epsilon 10 \
--epsilon-scale perplexity --relax 1 --pool auto --out evaluation   [dim]# pooled as in `fit`, one γ for all genes[/dim]
  occamap evaluate cells.h5ad --groupby drug --control DMSO --targets Givinostat --targets Belinostat \
--costs sql2,l1 --gammas 0.1,1 --out evaluation
  occamap evaluate cells.h5ad --groupby drug --control DMSO --dask tcp://10.0.0.1:8786 --out evaluation
"""


def evaluate(
    data: given.Data,
    *,
    groupby: given.Groupby,
    control: given.Control,
    targets: Annotated[
        list[str] | None,
        typer.Option(
            "--targets",
            metavar="NAME",
            help="A group to move the control to; give it again for another. All others if not given.",
            rich_help_panel=given.CELLS,
        ),
    ] = None,
    within: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of obs, such as the cell line: evaluate in each of its groups.",
            rich_help_panel=given.CELLS,
        ),
    ] = None,
    layer: given.Layer = None,
    counts: given.CountsChoice = given.Counts.refuse,
    hvg: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Use the N genes that vary most; all if not given.", rich_help_panel=given.CELLS
        ),
    ] = None,
    costs: Annotated[
        str,
        typer.Option(metavar="NAME,…", help="Of sql2, sql2_pca, l1, stvs and koverlap.", rich_help_panel=given.MAP),
    ] = "sql2,sql2_pca,l1,stvs",
    gammas: Annotated[
        str | None,
        typer.Option(
            metavar="G,G,…",
            help="Penalty strengths in increasing order, for costs with a penalty.",
            show_default="0.01,0.03,0.1,0.3,1,3",
            rich_help_panel=given.MAP,
        ),
    ] = None,
    k: given.K = None,
    epsilon: Annotated[
        str, typer.Option(metavar="E,…", help="Entropic regularisation, one or several.", rich_help_panel=given.MAP)
    ] = "0.1",
    epsilon_scale: Annotated[
        given.EpsilonScale, typer.Option("--epsilon-scale", help="What ε is a multiple of.", rich_help_panel=given.MAP)
    ] = given.EpsilonScale.mean,
    relax: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, help="How much of the penalty's shrinkage to undo.", rich_help_panel=given.MAP),
    ] = 0.0,
    pool: given.PathPool = "none",
    splits: Annotated[
        int | None,
        typer.Option(min=1, help="Number of random splits.", show_default="10", rich_help_panel=given.WORK),
    ] = None,
    test_size: Annotated[
        float | None,
        typer.Option(
            min=0.05, max=0.5, help="Share of cells to hold out.", show_default="0.2", rich_help_panel=given.WORK
        ),
    ] = None,
    replicate: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of obs with the donors: leave out one at a time instead of random cells. At least 3 donors "
            "must have both control and target cells.",
            rich_help_panel=given.WORK,
        ),
    ] = None,
    components: Annotated[
        int,
        typer.Option(min=1, help="Principal components to measure distances on.", rich_help_panel=given.WORK),
    ] = 50,
    markers: Annotated[int, typer.Option(min=2, help="Genes that count as markers.", rich_help_panel=given.WORK)] = 50,
    close_ups: Annotated[
        list[str] | None,
        typer.Option(
            "--close-up",
            metavar="CONDITION",
            help='Also compute the divergence over all genes for this condition, such as "MCF7: Givinostat" (slow); '
            "may be repeated.",
            rich_help_panel=given.WORK,
        ),
    ] = None,
    max_memory: given.MaxMemory = None,
    threads: given.Threads = None,
    dask: given.Dask = None,
    seed: given.Seed = 0,
    out_directory: given.OutDirectory,
    as_json: given.AsJson = False,
) -> None:
    begun = time.perf_counter()
    with progress("loading"):
        from occamap.evaluation import evaluate as run
        from occamap.run_record import RunRecord
        from occamap.runs.options import parse_numbers, parse_pool
        from occamap.scale import connect

    with progress("evaluating") as tick, connect(dask) as client:
        table = run(
            data,
            groupby=groupby,
            control=control,
            targets=targets or None,
            within=within,
            layer=layer,
            counts=counts.value,
            costs=[name.strip() for name in costs.split(",") if name.strip()],
            gammas=None if gammas is None else parse_numbers(gammas, "gammas"),
            k=k,
            epsilon=parse_numbers(epsilon, "epsilon"),
            epsilon_scale=epsilon_scale.value,
            relax=relax,
            pool=parse_pool(pool),
            splits=splits,
            test_size=test_size,
            replicate=replicate,
            hvg=hvg,
            components=components,
            markers=markers,
            close_ups=close_ups or [],
            out=out_directory,
            max_memory=max_memory,
            n_jobs=threads,
            random_state=seed,
            verbose=False,
            tick=tick,
            client=client,
        )
    record = RunRecord.read(out_directory)
    if as_json:
        rows = json.loads(_means(table).to_json(orient="records"))
        print(json.dumps({**record.to_dict(), "directory": out_directory, "means": rows}, indent=2))
        return
    result = record.result
    out.print(_splits(record), soft_wrap=True)
    for text in result["notes"]:
        out.print(literal(text, longest=2000), soft_wrap=True)
    out.print(
        Text(
            f"Lower is better for divergence, MMD² and energy (on {components} principal components), higher for r² "
            f"(squared correlation of the means of {markers} markers), R² (coefficient of determination of their "
            "changes) and RBO (of their ranking). Markers are those of the train cells; the table has both kinds."
        ),
        soft_wrap=True,
    )
    out.print(_drawn(table))
    if result["rows_not_converged"]:
        out.print(Text(f"{result['rows_not_converged']} rows did not converge: {result['message']}", style="yellow"))
    show_files(out_directory, record, time.perf_counter() - begun)


evaluate.__doc__ = HELP


def _splits(record: RunRecord) -> Text:
    """What the means are over: conditions and splits, and the replicates that were left out."""
    result, asked = record.result, record.parameters
    count, resumed = len(result["conditions"]), result["splits_from_earlier_runs"]
    again = f" ({resumed} of them computed before)" if resumed else ""
    conditions = f"{count} condition{'s' * (count != 1)}"
    if asked["replicate"] is None:
        splits = f"{asked['splits']} split{'s' * (asked['splits'] != 1)}"
        return Text(f"{conditions} × {splits}{again}: means over all of them.", style="bold")
    total = sum(map(len, result["replicates"]))
    names = dict.fromkeys(name for left_out in result["replicates"] for name in left_out)
    return Text.assemble(
        (f"{conditions}, {total} splits{again}: means over all of them.", "bold"),
        " Each split leaves out one replicate (",
        literal(asked["replicate"]),
        "): ",
        literal(", ".join(names), longest=400),
        ".",
    )


def _means(table: Any) -> Any:
    """A row a method, γ and ε, in the order of the table."""
    keys = ["method", "gamma", "epsilon"]
    return table.groupby(keys, dropna=False, sort=False)[list(SHOWN)].mean().reset_index()


def _drawn(table: Any) -> Table:
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    drawn.add_column("method")
    for head in ("γ", "ε", *SHOWN.values()):
        drawn.add_column(head, justify="right")
    for row in _means(table).to_dict("records"):
        shown = [_number(row[name]) for name in ("gamma", "epsilon")]
        shown += [f"{row['density']:.1%}" if row["density"] == row["density"] else ""]
        drawn.add_row(literal(row["method"]), *shown, *(_number(row[name]) for name in list(SHOWN)[1:]))
    return drawn


def _number(value: float) -> str:
    return "" if value != value else f"{value:.3g}"
