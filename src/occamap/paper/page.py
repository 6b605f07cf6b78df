"""One page, in Markdown, with the pictures and verdicts of all figures in a directory."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

from occamap._files import replacing
from occamap.paper.figures import FIGURES
from occamap.paper.study import BEYOND

NAME = "verdicts.md"
WORDS = {True: "holds", False: "**fails**"}
LARGEST = 1 << 20  # bytes of a record


def write_page(directory: str | Path) -> Path:
    """Collect the records in `directory`, of this run or of earlier ones, into its verdicts.md."""
    directory = Path(directory)
    sections = [section for name in FIGURES if (section := _read(directory / f"{name}.json", name))]
    text = "\n".join(["# The paper, figure by figure", "", *(line for section in sections for line in section)])
    page = directory / NAME
    with replacing(page) as stream:
        stream.write((text.rstrip() + "\n").encode(errors="replace"))
    return page


def _read(path: Path, figure: str) -> list[str] | None:
    """The section of a record; None where there is none, or a file that is something else."""
    if not path.is_file() or path.stat().st_size > LARGEST:
        return None
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        return _section(record) if record["figure"] == figure else None
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None


def _section(record: dict[str, Any]) -> list[str]:
    name, command = record["figure"], f"occamap reproduce {record['figure']}"
    if record["setting"] == "full":
        command += " --full"
    if record["seed"]:
        command += f" --seed {int(record['seed'])}"
    beyond = record["source"] == BEYOND
    versions = ", ".join(f"{package} {version}" for package, version in record["versions"].items())
    rows = [
        f"| {_cell(verdict['claim'])}{'' if verdict['in_paper'] or beyond else ' *(not in the paper)*'} "
        f"| {_cell(verdict['measured'])} | {WORDS[verdict['holds']]} |"
        for verdict in record["verdicts"]
    ]
    title, size = _cell(record["title"]), ", ".join(f"{name} = {value}" for name, value in record["size"].items())
    return [
        f"## {name}: {title} ({_cell(record['source'])})",
        "",
        f"![{title}]({name}.png)",
        "",
        "| claim | measured | verdict |",
        "|---|---|---|",
        *rows,
        "",
        *([_cell(note), ""] if (note := record.get("note")) else []),
        f"`{command}`, {float(record['seconds']):.0f} s, with {_cell(size)}; {_cell(versions)}.",
        "",
    ]


def _cell(text: str) -> str:
    """One line in which nothing is markup."""
    return " ".join(html.escape(text, quote=False).split()).replace("|", "\\|")
