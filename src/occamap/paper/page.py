"""One page, in Markdown, with the pictures and verdicts of all figures in a directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from occamap._files import replacing
from occamap.paper.reproduce import FIGURES

NAME = "verdicts.md"


def write_page(directory: Path) -> Path:
    """Collect the records in `directory`, of this run or of earlier ones, into its verdicts.md."""
    records = [record for name in FIGURES if (record := _read(directory / f"{name}.json", name))]
    text = "\n".join(["# The paper, figure by figure", "", *(line for record in records for line in _section(record))])
    page = directory / NAME
    with replacing(page) as stream:
        stream.write((text.rstrip() + "\n").encode())
    return page


def _read(path: Path, figure: str) -> dict[str, Any] | None:
    """The record, or None where there is none, or a file that is something else."""
    try:
        record = json.loads(path.read_text())
        return record if record["figure"] == figure and _section(record) else None
    except (OSError, ValueError, TypeError, LookupError):
        return None


def _section(record: dict[str, Any]) -> list[str]:
    name, command = record["figure"], f"occamap reproduce {record['figure']}"
    if record["setting"] == "full":
        command += " --full"
    if record["random_state"]:
        command += f" --seed {record['random_state']}"
    versions = ", ".join(f"{package} {version}" for package, version in record["versions"].items())
    rows = [
        f"| {_cell(verdict['claim'])}{'' if verdict['stated'] else ' *(not in the paper)*'} "
        f"| {_cell(verdict['measured'])} | {'holds' if verdict['holds'] else '**does not**'} |"
        for verdict in record["verdicts"]
    ]
    return [
        f"## {name}: {record['title']} ({record['source']})",
        "",
        f"![{record['title']}]({name}.png)",
        "",
        "| claim | measured | |",
        "|---|---|---|",
        *rows,
        "",
        f"`{command}`, {record['seconds']:.0f} s; {versions}.",
        "",
    ]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
