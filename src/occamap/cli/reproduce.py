"""`occamap reproduce`: the figures of the paper, with a verdict on each claim."""

from __future__ import annotations

import json
import os
import textwrap
from typing import Annotated

import typer
from rich.text import Text

from occamap.cli.console import out, progress
from occamap.errors import InputError
from occamap.paper import FIGURES, Outcome
from occamap.paper import reproduce as compute

ALL = "all"
LIST = "\n".join(f"[bold]{name:<10}[/bold]  {what}" for name, what in {**FIGURES, ALL: "every one of them"}.items())
HELP = f"""Draw figures of the paper, and say of each claim what was measured and whether it holds.

{LIST}

Each becomes four files in DIR: the picture as PNG and SVG, the numbers behind it as CSV, and the verdicts with \
settings, versions and seed as JSON. All pictures and verdicts in DIR are on one page, verdicts.md. It takes seconds \
to a minute per figure and less than five minutes for all; with --full, less than an hour for all (on two cores).

[bold]Examples[/bold]
  occamap reproduce maps
  occamap reproduce synthetic scaling --full --out figures
  occamap reproduce all --json > verdicts.json
"""


def _complete(typed: str) -> list[str]:
    return [name for name in (*FIGURES, ALL) if name.startswith(typed)]


def reproduce(
    figures: Annotated[
        list[str], typer.Argument(metavar="FIGURE...", help="Names of the above.", autocompletion=_complete)
    ],
    full: Annotated[
        bool, typer.Option("--full/--quick", help="Sizes like the paper's, or fewer seeds, sizes and grid points.")
    ] = False,
    out_directory: Annotated[
        str, typer.Option("--out", "-o", metavar="DIR", help="Where the files go; made if need be.")
    ] = "occamap-figures",
    seed: Annotated[int, typer.Option("--seed", min=0, help="Random seed.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdicts as JSON, for machines.")] = False,
) -> None:
    unknown = [name for name in figures if name not in (*FIGURES, ALL)]
    if unknown:
        raise InputError(f"FIGURE must be one of {', '.join((*FIGURES, ALL))}; got {unknown[0]!r}")
    os.environ["MPLBACKEND"] = "agg"  # nothing is shown, whatever the user shows pictures with
    names = list(FIGURES) if ALL in figures else list(dict.fromkeys(figures))
    outcomes = []
    for name in names:
        with progress(name) as tick:
            outcome = compute(name, out_directory, quick=not full, random_state=seed, tick=tick)
        outcomes.append(outcome)
        if not as_json:
            _print(outcome)
    if as_json:
        print(json.dumps([_record(outcome) for outcome in outcomes], indent=2))
    elif len(outcomes) > 1:
        _print_summary(outcomes)


reproduce.__doc__ = HELP


def _record(outcome: Outcome) -> dict[str, object]:
    [record] = [path for path in outcome.files if path.suffix == ".json"]
    return {**json.loads(record.read_text(encoding="utf-8")), "files": [str(path) for path in outcome.files]}


def _print(outcome: Outcome) -> None:
    out.print(Text(f"{outcome.name}: {outcome.title}", style="bold"))
    for verdict in outcome.verdicts:
        aside = "" if verdict.in_paper or outcome.beyond else " (not in the paper)"
        flag, style = ("✓ holds  ", "green") if verdict.holds else ("✗ fails  ", "yellow")
        _print_wrapped(flag, style, verdict.claim + aside, "")
        _print_wrapped(" " * len(flag), "", f"measured: {verdict.measured}", "dim")
    if outcome.note:
        _print_wrapped("note     ", "", outcome.note, "")
    files = ", ".join(str(path) for path in outcome.files)
    out.print(Text(f"{outcome.seconds:.0f} s; wrote {files}\n"), soft_wrap=True)


def _print_wrapped(flag: str, style: str, text: str, text_style: str) -> None:
    """The flag, and the text beside it in lines that fit."""
    lines = textwrap.wrap(text, max(20, out.width - len(flag) - 1))
    for number, line in enumerate(lines):
        first = Text(flag, style=style) if number == 0 else Text(" " * len(flag))
        out.print(first + Text(line, style=text_style), soft_wrap=True)


def _print_summary(outcomes: list[Outcome]) -> None:
    for outcome in outcomes:
        held = sum(verdict.holds for verdict in outcome.verdicts)
        missed = [verdict.about for verdict in outcome.verdicts if not verdict.holds]
        what = f"; fails: {'; '.join(missed)}" if missed else ""
        out.print(Text(f"{outcome.name:<11} {held} of {len(outcome.verdicts)} claims hold{what}"), soft_wrap=True)
