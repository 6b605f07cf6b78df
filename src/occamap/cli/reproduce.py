"""`occamap reproduce`: the figures of the paper, with a verdict on each claim."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from occamap.cli.console import out, progress
from occamap.paper import FIGURES, Outcome, write_page
from occamap.paper import reproduce as compute

ALL = "all"
Figures = StrEnum("Figures", {name: name for name in (*FIGURES, ALL)})  # type: ignore[misc]

LIST = "\n".join(f"[bold]{name:<10}[/bold]  {what}" for name, what in {**FIGURES, ALL: "every one of them"}.items())
HELP = f"""Draw figures of the paper, and say of each claim what was measured and whether it holds.

{LIST}

Each becomes four files in DIR: the picture as PNG and SVG, the numbers behind it as CSV, and the verdicts with \
settings, versions and seed as JSON. All pictures and verdicts in DIR are on one page, verdicts.md. It takes seconds \
to a minute a figure, less than five minutes for all; with --full less than half an hour for all (on two cores).

[bold]Examples[/bold]
  occamap reproduce maps
  occamap reproduce synthetic scaling --full --out figures
  occamap reproduce all --json > verdicts.json
"""


def reproduce(
    figures: Annotated[list[Figures], typer.Argument(metavar="FIGURE...", help="One or more of the above, or all.")],
    full: Annotated[
        bool, typer.Option("--full/--quick", help="The sizes of the paper, or fewer seeds, sizes and grid points.")
    ] = False,
    out_directory: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Where the files go; made if need be.")
    ] = Path("occamap-figures"),
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of all that is drawn at random.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdicts as JSON, for machines.")] = False,
) -> None:
    names = list(FIGURES) if ALL in figures else list(dict.fromkeys(str(figure) for figure in figures))
    outcomes = []
    for name in names:
        with progress(name) as tick:
            outcome = compute(name, out_directory, quick=not full, random_state=seed, tick=tick)
        outcomes.append(outcome)
        page = write_page(out_directory)
        if not as_json:
            _print(outcome)
    if as_json:
        out.print_json(json.dumps([_record(outcome) for outcome in outcomes], ensure_ascii=False))
    elif len(outcomes) > 1:
        _print_summary(outcomes)
        out.print(Text(f"All of them on one page: {page}"), soft_wrap=True)


reproduce.__doc__ = HELP


def _record(outcome: Outcome) -> dict[str, object]:
    [record] = [path for path in outcome.files if path.suffix == ".json"]
    return {**json.loads(record.read_text()), "files": [str(path) for path in outcome.files]}


def _print(outcome: Outcome) -> None:
    out.print(Text(f"{outcome.name}: {outcome.title}", style="bold"))
    rows = Table.grid(padding=(0, 2))
    rows.add_column(no_wrap=True)
    rows.add_column()
    for verdict in outcome.verdicts:
        told = Text.assemble(verdict.claim, "" if verdict.stated else Text(" (not the paper's claim)", style="dim"))
        rows.add_row(_flag(verdict.holds), told)
        rows.add_row("", Text(f"measured: {verdict.measured}", style="dim"))
    out.print(rows)
    pictures = ", ".join(str(path) for path in outcome.files)
    out.print(Text(f"{outcome.seconds:.0f} s; wrote {pictures}\n"), soft_wrap=True)


def _print_summary(outcomes: list[Outcome]) -> None:
    for outcome in outcomes:
        held = sum(verdict.holds for verdict in outcome.verdicts)
        missed = [verdict.about for verdict in outcome.verdicts if not verdict.holds]
        what = f" (not: {'; '.join(missed)})" if missed else ""
        out.print(Text(f"{outcome.name:<11} {held} of {len(outcome.verdicts)} claims hold{what}"), soft_wrap=True)


def _flag(holds: bool) -> Text:
    return Text("✓ holds", style="green") if holds else Text("✗ does not", style="yellow")
