"""python -m soak.page: the counts of soak/results, as tables, into docs/reliability.md."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results")
PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"
LONG = 24  # rows of a table that a reader opens to see
PLACE = re.compile(r"(<!-- counts: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(page: str, results: Path = RESULTS) -> str:
    """The page, with what the records say in the places for it."""

    def counts(place: re.Match[str]) -> str:
        return place[1] + table(json.loads((results / f"{place[2]}.json").read_text())) + place[3]

    return PLACE.sub(counts, page)


def table(record: dict[str, Any]) -> str:
    """Counts of a section: a row for what was tried, with its endings."""
    rows = ["| tried | times | how it ended |", "|---|--:|---|"]
    for what, endings in record["counts"].items():
        told = ", ".join(f"{ending} {count:,}" for ending, count in sorted(endings.items(), key=lambda e: -e[1]))
        rows.append(f"| {what} | {sum(endings.values()):,} | {told} |")
    if len(rows) > LONG:
        rows = ["<details><summary>What was tried, and how it ended</summary>", "", *rows, "", "</details>"]
    lines = [f"{record['tries']:,} tries, **{record['faults']:,} faults**, {record['seconds']:,.0f} s.", "", *rows]
    if record["figures"]:
        lines += ["", "| measured | |", "|---|--:|"]
        lines += [f"| {what} | {shown(value)} |" for what, value in record["figures"].items()]
    where = f"{record['CPU']}, {record['cores']} cores, {record['memory']}, Python {record['Python']}"
    packages = ", ".join(f"{name} {record[name]}" for name in ("numpy", "scipy", "numba"))
    lines += ["", f"{record['date']}, seed {record['seed']}; {where}; {packages}.", ""]
    return "\n".join(lines)


def shown(value: Any) -> str:
    """A figure for a reader; some come with the try that they are of."""
    if isinstance(value, list):
        return f"{shown(value[0])} ({', '.join(map(str, value[1:]))})"
    return f"{value:,}" if isinstance(value, int) else str(value)


def main() -> int:
    PAGE.write_text(filled(PAGE.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
