"""`occamap report`: a saved run as one page."""

from __future__ import annotations

import json
import time
from typing import Annotated

import typer
from rich.text import Text

from occamap.cli import options as given
from occamap.cli.console import literal, out, progress

HELP = """Make one self-contained HTML page of a run: which genes move, in which cells, how far, how sure.

RUN is a directory that `occamap fit`, `path`, `evaluate` or `demo` wrote. They write the page, too; this makes it \
again from the saved map and tables, without fitting. It opens in any browser, from a file, without a network.

[bold]Examples[/bold]
  occamap report run
  occamap report run -o "lab meeting.html"
"""


def report(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The directory of a run, or its run.json.")],
    *,
    out_file: Annotated[
        str | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE.html",
            help="Where the page goes.",
            show_default="report.html in RUN",
            rich_help_panel=given.OUTPUT,
        ),
    ] = None,
    as_json: given.AsJson = False,
) -> None:
    begun = time.perf_counter()
    with progress("loading"):
        from occamap.reports import report as make

    with progress("drawing the page"):
        page = make(run, out_file)
    seconds, size = time.perf_counter() - begun, page.stat().st_size
    if as_json:
        told = {"command": "report", "run": run, "file": str(page), "bytes": size, "seconds": round(seconds, 3)}
        print(json.dumps(told, indent=2))
        return
    out.print(Text(f"{seconds:.1f} s; wrote {size / 1e6:.1f} MB to ") + literal(page, longest=4096), soft_wrap=True)


report.__doc__ = HELP
