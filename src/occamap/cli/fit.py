"""`occamap fit`: from a file of cells to the genes that move."""

from __future__ import annotations

import json
import time
from math import isnan
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from occamap.cli import options as given
from occamap.cli.console import literal, out, progress

if TYPE_CHECKING:
    from occamap.run_record import RunRecord
    from occamap.runs.fitting import FitRun

SHOWN = 10  # genes
MIXED = 0.5  # share of a neighbourhood in the group of a cell, below which its group is named
DENSE = 0.3  # share of entries that move from which on a map is hard to read
HELP = """Learn which genes move from the control to the target cells, in which cells, and how far.

DIR gets [bold]map.occamap[/bold] (the map, for `occamap transform`), [bold]genes.csv[/bold] (one row per gene, sorted \
by how far it moves), [bold]cells.csv[/bold] and [bold]targets.csv[/bold] (one row per cell), [bold]report.html[/bold] \
(one page for a browser) and [bold]run.json[/bold] (options, data, versions and results). --by adds a table of genes \
for each group, --gene-sets adds [bold]pathways.csv[/bold] (one row per set), and [bold]choice.csv[/bold] has the \
candidates (with --gamma auto or --epsilon auto). Files are written completely or not at all. If interrupted, run the \
same command again to resume.

[bold]Examples[/bold]
  occamap fit cells.h5ad --groupby condition --control control --target stimulated --out run
  occamap fit cells.h5ad --groupby condition --control control --target stimulated --replicate donor \
--within cell_type --by cell_type --out run   [dim]# which genes respond in each type, also in new donors[/dim]
  occamap fit cells.h5ad --groupby drug --control DMSO --target Abexinostat --by cell_type --counts normalize --out run
  occamap fit cells.h5ad --groupby drug --control DMSO --target Abexinostat --gamma auto --epsilon auto --out run
  occamap fit cells.h5ad --groupby condition --control control --target stimulated --gene-sets hallmark.gmt \
--frozen 'MT-*' --frozen 'RPL*' --out run
"""


def fit(
    data: given.Data,
    *,
    groupby: given.Groupby,
    control: given.Control,
    target: given.Target,
    layer: given.Layer = None,
    use_genes: given.UseGenes = None,
    counts: given.CountsChoice = given.Counts.refuse,
    cost: given.FitCost = None,
    gamma: Annotated[
        str | None,
        typer.Option(
            metavar="G|auto",
            help="One penalty strength for all genes, instead of --fdr. Larger values move fewer genes; with auto, "
            "held-out cells choose.",
            rich_help_panel=given.MAP,
        ),
    ] = None,
    fdr: Annotated[
        str,
        typer.Option(
            metavar="Q|none",
            help="False-discovery rate of the entries (cell × gene) that move; none: a penalty without an error rate.",
            show_default="0.1, unless another option sets the penalty",
            rich_help_panel=given.MAP,
        ),
    ] = "auto",
    k: given.K = None,
    epsilon: Annotated[
        str | None,
        typer.Option(
            metavar="E|auto",
            help="Entropic regularisation; with auto, held-out cells choose it.",
            show_default="10",
            rich_help_panel=given.MAP,
        ),
    ] = None,
    epsilon_scale: given.Scale = None,
    relax: given.Relax = None,
    pool: given.Pool = "auto",
    match: given.Match = "auto",
    within: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of obs, such as cell_type: match and pool cells only within its groups.",
            rich_help_panel=given.MAP,
        ),
    ] = None,
    max_density: Annotated[
        float | None,
        typer.Option(
            metavar="D",
            help="With --gamma auto: largest share of entries that may move.",
            show_default="0.1",
            rich_help_panel=given.MAP,
        ),
    ] = None,
    gene_sets: given.GeneSets = None,
    l1_ratio: given.L1Ratio = None,
    frozen: given.Frozen = None,
    weights: given.Weights = None,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of obs: also write a table of genes for each of its groups.",
            rich_help_panel=given.TABLE,
        ),
    ] = None,
    replicate: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of obs with the donors (or animals, cultures), at least 3 per condition. The entries that "
            "move, q-values and intervals are then based on differences between donors.",
            rich_help_panel=given.MAP,
        ),
    ] = None,
    subsamples: Annotated[
        int,
        typer.Option(
            min=0,
            help="Number of random halves of the cells to fit again, for the stability of genes. 0 skips them and the "
            "null maps that check the error rate.",
            rich_help_panel=given.TABLE,
        ),
    ] = 10,
    top: Annotated[
        int,
        typer.Option(
            min=1,
            help="Number of genes that count as selected in a half: those that move most. Take a third of the genes "
            "that move, or fewer.",
            rich_help_panel=given.TABLE,
        ),
    ] = 50,
    max_memory: given.MaxMemory = None,
    threads: given.Threads = None,
    dask: given.Dask = None,
    seed: given.Seed = 0,
    out_directory: given.OutDirectory,
    write_adata: Annotated[
        bool,
        typer.Option(
            "--write-adata", help="Write the cells with all results as cells.h5ad.", rich_help_panel=given.OUTPUT
        ),
    ] = False,
    as_json: given.AsJson = False,
) -> None:
    begun = time.perf_counter()
    with progress("loading"):
        from occamap.runs.fitting import fit as run
        from occamap.runs.options import MapOptions, Question, parse_count, parse_number, parse_rate

    done = run(
        data,
        out_directory,
        Question(groupby, control, target, layer, use_genes, counts.value, within),
        MapOptions(
            given.value(cost),
            parse_number(gamma, "gamma"),
            k,
            parse_number(epsilon, "epsilon"),
            given.value(epsilon_scale),
            relax,
            max_density,
            gene_sets,
            l1_ratio,
            tuple(frozen) if frozen else None,
            weights,
            parse_count(pool),
            parse_count(match),
            parse_rate(fdr),
        ),
        by=by,
        replicate=replicate,
        subsamples=subsamples,
        top=top,
        max_memory=max_memory,
        threads=threads,
        dask=dask,
        seed=seed,
        write_adata=write_adata,
        stage=progress,
    )
    if as_json:
        first = json.loads(done.table.head(SHOWN).reset_index().to_json(orient="records"))
        told = {**done.record.to_dict(), "directory": str(done.directory), "first_genes": first}
        if done.pathways is not None:
            told["first_pathways"] = json.loads(done.pathways.head(SHOWN).reset_index().to_json(orient="records"))
        print(json.dumps(told, indent=2))
    else:
        show(done, time.perf_counter() - begun)


fit.__doc__ = HELP


def show(done: FitRun, seconds: float) -> None:
    """The headline, how the solver ended, the first genes, and where the rest is."""
    from occamap.reports.words import shift

    result, table = done.record.result, done.table
    told = (
        f"{result['n_genes_in_half']:,} of {result['n_genes']:,} genes move in at least half of the "
        f"{result['n_cells']:,} control cells; in a cell, {result['median_genes_per_cell']:,.0f} move (median), and "
        f"{result['density']:.1%} of all entries do."
    )
    out.print(Text(told, style="bold"), soft_wrap=True)
    out.print(Text(f"{result['message']}", style="" if result["status"] == "converged" else "yellow"))
    gamma = "" if result["gamma"] is None else f"γ = {result['gamma']:.4g}; "
    targets = f"a cell has {result['effective_targets']:.1f} effective targets of {result['n_targets']:,}."
    if result["fdr"] is not None:
        out.print(Text(rate_words(result)), soft_wrap=True)
    elif done.record.parameters["replicate"] is not None:
        words = "The map has no error rate and does not use the replicates; "
        tables = "only the tables are tested across them." if "n_genes_found" in result else "genes have no q-values."
        words += tables
        out.print(Text(words, style="yellow"), soft_wrap=True)
    out.print(Text(f"{gamma}ε = {result['epsilon']:.4g} ({result['epsilon_rule']}); {targets}"))
    if result["neighbourhoods"] is not None:
        out.print(Text(neighbourhood_words(result["neighbourhoods"], done.record.parameters["by"])), soft_wrap=True)
    if result["costs_choice"]:
        why = result["costs_choice"]
        out.print(Text(f"{why[0].upper()}{why[1:]}."), soft_wrap=True)
    if result["density"] > DENSE and result["gamma"] is not None:
        out.print(Text("A larger --gamma moves fewer genes; `occamap path` shows what that costs.", style="yellow"))
    if result["diagnostics"]:
        out.print(Text(f"\n{result['diagnostics']}"), soft_wrap=True)
    if "n_genes_found" in result:
        out.print(Text(found_words(result, done.record.parameters["replicate"])), soft_wrap=True)
    for line in group_lines(result, done.record.parameters["by"], done.record.parameters["replicate"]):
        out.print(line, soft_wrap=True)
    if shifted := shift(done.record):
        out.print(literal(shifted, longest=1000), style="yellow", soft_wrap=True)
    if "null" in result:
        out.print(Text(null_words(result)), soft_wrap=True)
    if result.get("n_frozen"):
        out.print(frozen_words(result), soft_wrap=True)
    out.print(gene_rows(table.head(SHOWN), done.record.parameters["top"]))
    if done.pathways is not None:
        out.print(Text(f"\n{sets_words(result['gene_sets'])}"), soft_wrap=True)
        out.print(pathway_rows(done.pathways.head(SHOWN)))
    show_files(done.directory, done.record, seconds)


def neighbourhood_words(found: dict[str, Any], by: str | None) -> str:
    """At which resolution displacements are read, in a sentence."""
    words = (
        f"A cell is averaged with about {found['effective']:,.0f} similar cells (at most {found['largest']:,}); their "
        f"typical distance is {found['distance']:.0%} of that between two random cells."
    )
    if "within_group" not in found:
        return words
    words += f" {found['within_group']:.0%} of them share its {by}."
    mixed = sorted((share, name) for name, share in found["within_each_group"].items() if share < MIXED)
    if mixed:
        listed = ", ".join(f"{name} ({share:.0%})" for share, name in mixed[:SHOWN])
        words += f" Fewer than half do in {listed}: match within groups (--within {by}) to read these by themselves."
    return words


def rate_words(result: dict[str, Any]) -> str:
    """What the penalty of the entries is, in a sentence."""
    if not result["n_tested"]:
        return "No entry (cell × gene) could be tested, so nothing moves."
    rate = f"a false-discovery rate of {100 * result['fdr']:.3g} % over the {result['n_tested']:,} entries that can be "
    rate += "tested"
    if result["critical"] is None:
        return f"No entry (cell × gene) stands out from noise at {rate}."
    return f"An entry (cell × gene) moves if its score |z| is at least {result['critical']:.2f}, which gives {rate}."


def found_words(result: dict[str, Any], replicate: str | None) -> str:
    """How many genes differ, at which error rate, and whom that holds for."""
    count, rate = result["n_genes_found"], result["false_discovery_rate"]
    respond = "responds" if count == 1 else "respond"
    words = f"{count:,} of {result['n_genes_tested']:,} tested genes {respond} on average over all control cells, at a "
    words += f"false-discovery rate of {100 * rate:.3g} %"
    if replicate is not None:
        return f"{words}, tested across replicates ({replicate}; at least {result['n_replicates']:,} per condition)."
    return (
        f"{words}. Cells are not replicates: this holds for new cells of the same donors, not for new donors. "
        "If you have 3 or more donors per condition, name their column with --replicate."
    )


def group_lines(result: dict[str, Any], by: str | None, replicate: str | None) -> list[Text]:
    """How many genes respond in each group, across how many replicates, and which of them most."""
    parts = result.get("responses")
    if not parts:
        return []
    pairs = sum(found["n_genes_found"] for found in parts.values())
    head = f": {result['n_genes_found_in_groups']:,} genes respond in at least one group; {pairs:,} responses (gene × "
    head += f"group) in all. Their q-values are corrected for all {result['n_tests_in_groups']:,} tests:"
    lines = [Text("By ") + literal(by) + Text(head)]
    for name, found in sorted(parts.items(), key=lambda part: (-part[1]["n_genes_found"], part[0])):
        line = Text(f"  {found['n_genes_found']:6,}  ") + literal(name, longest=60)
        line += Text(f" ({found['n_genes_up']:,} up")
        line += Text(")" if replicate is None else f"; {found['n_replicates']:,} replicates)")
        first = literal(", ".join(found["first"]), longest=200) if found["first"] else Text("none")
        lines.append(line + Text(": ") + first)
    return lines


def null_words(result: dict[str, Any]) -> str:
    """What moves where nothing has changed, in a sentence."""
    null, beyond = result["null"], result["n_genes_beyond_null"]
    if result["fdr"] is not None:
        words = f"In {null['n_maps']} maps between random halves of the control cells, "
        words += f"{null['density']:.2%} of the entries move"
        if null["width"] is None:
            return f"{words}."
        words += f"; the largest scores of all entries are {null['width']:.2f} times the expected ones"
        return f"{words} (above 1, q-values are too small; below 1, they are conservative)."
    return (
        f"Between random halves of the control cells {null['density']:.1%} of the entries move, and no gene by more "
        f"than {null['largest_mean']:.2g} on average; from control to target, {beyond:,} genes do."
    )


def frozen_words(result: dict[str, Any]) -> Text:
    """How many genes were kept from moving, and some of them, in a sentence."""
    count, names = result["n_frozen"], result["some_frozen"]
    told = Text(f"{count:,} {'gene is' if count == 1 else 'genes are'} frozen, such as ")
    told += Text(", ").join(literal(name, longest=30) for name in names)
    return told + Text(".")


def gene_rows(table: object, top: int) -> Table:
    """The genes as a table for people."""
    rows = table.reset_index().to_dict("records")  # type: ignore[attr-defined]
    halves = bool(rows) and "frequency" in rows[0]
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    drawn.add_column("gene")
    heads = "moves in", "mean", "difference (95 %)", "q", *((f"in top {top} of",) if halves else ())
    for head in heads:
        drawn.add_column(head, justify="right")
    for row in rows:
        difference = f"{row['difference']:+.2f}"
        if not isnan(row["q"]):
            difference += f" ({row['difference_low']:+.2f} to {row['difference_high']:+.2f})"
        numbers = f"{row['share']:.0%} of cells", f"{row['mean']:+.3f}", difference, _q(row)
        stable = (f"{row['frequency']:.0%} of halves",) if halves else ()
        drawn.add_row(literal(row["gene"], longest=30), *numbers, *stable)
    return drawn


def _q(row: dict[str, Any]) -> str:
    return "–" if isnan(row["q"]) else f"{row['q']:.2g}"


def sets_words(used: dict[str, Any]) -> str:
    """How many gene sets were used, and what was dropped, in a sentence."""
    given_sets, dropped, absent = used["n_sets_given"], used["n_sets_dropped"], used["n_genes_absent"]
    told = f"{given_sets - dropped:,} of {given_sets:,} gene sets are used; those that move most:"
    if dropped or absent:
        told = f"{absent:,} genes of the sets are not among those used, and {dropped:,} sets have too few left. {told}"
    return told


def pathway_rows(table: object) -> Table:
    """The pathways as a table for people."""
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    drawn.add_column("pathway")
    for head in ("genes", "moves in", "with", "shift", "mean", "q"):
        drawn.add_column(head, justify="right")
    drawn.add_column("by")
    for row in table.reset_index().to_dict("records"):  # type: ignore[attr-defined]
        numbers = f"{row['n_genes']:,}", f"{row['share']:.0%} of cells", f"{row['mean_genes']:.0%} of genes"
        moved = f"{row['shift']:.3f}", f"{row['mean']:+.3f}", _q(row)
        drawn.add_row(literal(row["pathway"], longest=40), *numbers, *moved, literal(row["top_genes"], longest=40))
    return drawn


def show_files(directory: object, record: RunRecord, seconds: float) -> None:
    """What was written, how long it took, and what had been done before."""
    known = (record.result.get(f"{what}_from_earlier_runs", 0) for what in ("pieces", "splits"))
    files, earlier = record.files, sum(known)
    listed = ", ".join(files.values())
    if earlier:
        out.print(Text(f"\n{earlier:,} halves or splits were reused from an interrupted run."))
    out.print(Text(f"\n{seconds:.1f} s; wrote {listed} in ") + literal(directory, longest=4096), soft_wrap=True)
