"""Rows as they are measured, and the table and JSON file they end up in."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.timing import Measured

COLUMNS = ("problem", "what", "occamap", "peer", "its time", "ratio", "peer measured", "target", "met", "note")
LEGEND = (
    "`ratio` is the peer's time over occamap's: above 1, occamap is faster. Times are the best of a few runs after "
    "a warm-up; arrays are converted for a peer before its time starts, and results are checked to be equal first. "
    "“Extrapolated” takes the share of rows at which the peer has its best rate."
)


@dataclass(frozen=True)
class Target:
    """A bound on the "ratio", the "seconds" or the "megabytes" of a row."""

    of: str
    bound: float
    text: str
    at_least: bool = False


def at_least(ratio: float) -> Target:
    return Target("ratio", ratio, f"ratio ≥ {ratio:,g}", at_least=True)


def within(seconds: float) -> Target:
    return Target("seconds", seconds, f"≤ {format_seconds(seconds)}")


def below(megabytes: float) -> Target:
    return Target("megabytes", megabytes, f"≤ {megabytes:g} MB")


@dataclass(frozen=True)
class Row:
    """One measurement of occamap, with one of a peer beside it where there is a peer."""

    problem: str
    what: str
    seconds: float | None = None
    peer: str = ""
    peer_seconds: float | None = None
    how: str = ""
    target: Target | None = None
    note: str = ""
    megabytes: float | None = None
    comparable: bool = True

    @property
    def ratio(self) -> float | None:
        if self.seconds is None or self.peer_seconds is None or not self.comparable:
            return None
        return self.peer_seconds / self.seconds

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without a target or without what it bounds."""
        value = None if self.target is None else getattr(self, self.target.of)
        if self.target is None or value is None:
            return None
        return bool(value >= self.target.bound if self.target.at_least else value <= self.target.bound)

    def cells(self) -> list[str]:
        own = format_seconds(self.seconds) if self.megabytes is None else f"{self.megabytes:.0f} MB"
        ratio = "" if self.ratio is None else f"{self.ratio:,.0f}×" if self.ratio >= 20 else f"{self.ratio:.2g}×"
        target = "" if self.target is None else self.target.text
        met = {None: "", True: "yes", False: "**no**"}[self.met]
        peer_time = format_seconds(self.peer_seconds)
        return [self.problem, self.what, own, self.peer, peer_time, ratio, self.how, target, met, self.note]

    def to_dict(self) -> dict[str, object]:
        return {
            "problem": self.problem,
            "what": self.what,
            "occamap_seconds": self.seconds,
            "occamap_megabytes": self.megabytes,
            "peer": self.peer or None,
            "peer_seconds": self.peer_seconds,
            "ratio": self.ratio,
            "peer_measured": self.how or None,
            "target": None if self.target is None else self.target.text,
            "met": self.met,
            "note": self.note or None,
        }


@dataclass
class Record:
    """The rows so far; each is printed as it comes. A quick run has no targets: they hold at full size."""

    quick: bool
    rows: list[Row] = field(default_factory=list)
    failed: bool = False

    def add(self, row: Row) -> None:
        if self.quick:
            row = Row(**{**row.__dict__, "target": None})
        self.rows.append(row)
        print("  " + " | ".join(cell for cell in row.cells() if cell), flush=True)

    def against(
        self, problem: str, what: str, seconds: float, peer: str, measured: Measured | str, target: Target | None = None
    ) -> None:
        """A row with what was measured of the peer, or with the reason why nothing was."""
        if isinstance(measured, str):
            self.add(Row(problem, what, seconds, peer, None, measured, target))
            return
        rest = measured.how, target, measured.note, None, measured.comparable
        self.add(Row(problem, what, seconds, peer, measured.seconds, *rest))

    def fail(self, name: str, reason: str) -> None:
        self.failed = True
        self.add(Row(name, "failed", note=reason))

    def write(self, folder: Path, stem: str, facts: dict[str, str]) -> list[Path]:
        """Write the Markdown table and the JSON file."""
        folder.mkdir(parents=True, exist_ok=True)
        table, data = folder / f"{stem}.md", folder / f"{stem}.json"
        table.write_text(self._markdown(facts), encoding="utf-8")
        rows = [row.to_dict() for row in self.rows]
        text = json.dumps({"machine": facts, "quick": self.quick, "rows": rows}, indent=1, ensure_ascii=False)
        data.write_text(text + "\n", encoding="utf-8")
        return [table, data]

    def _markdown(self, facts: dict[str, str]) -> str:
        lines = [COLUMNS, ("---",) * len(COLUMNS), *(row.cells() for row in self.rows)]
        table = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
        title = "# Benchmarks" + (" (a quick run: small problems, no targets)" if self.quick else "")
        machine = "\n".join(f"- {name}: {value}" for name, value in facts.items())
        return f"{title}\n\n{machine}\n\n{LEGEND}\n\n{table}\n"


def format_seconds(seconds: float | None) -> str:
    """A time for people.

    >>> format_seconds(0.00123), format_seconds(12.34), format_seconds(3688.7)
    ('1.23 ms', '12.3 s', '3,690 s')
    """
    if seconds is None:
        return ""
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    return f"{float(f'{seconds:.3g}'):,g} s"
