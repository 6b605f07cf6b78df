"""What a section of the soak tried, how it ended, and what went wrong."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KEPT = 100  # faults that a record describes; all are counted


@dataclass
class Tally:
    """Counts by what was tried and how it ended; a fault is an ending that no guard should let through."""

    section: str
    seed: int = 0
    share: float = 1.0
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    n_faults: int = 0
    begun: float = field(default_factory=time.monotonic)

    def count(self, what: str, ending: str, times: int = 1) -> None:
        """So many tries of `what` had this ending."""
        self.counts.setdefault(what, Counter())[ending] += times

    def fault(self, what: str, detail: str) -> None:
        """A try of `what` that went wrong, with all that is needed to do it again."""
        self.count(what, "fault")
        self.n_faults += 1
        if len(self.faults) < KEPT:
            self.faults.append(f"{what}: {detail}")

    def figure(self, name: str, value: Any) -> None:
        """A number that was measured, such as a peak of memory."""
        self.figures[name] = value

    def add(self, other: Tally) -> None:
        """What another process counted of the same section."""
        for what, endings in other.counts.items():
            self.counts.setdefault(what, Counter()).update(endings)
        self.figures |= other.figures
        self.n_faults += other.n_faults
        self.faults = (self.faults + other.faults)[:KEPT]

    def total(self, kinds: Iterable[str] | None = None) -> int:
        """All tries, or those of some kinds."""
        chosen = self.counts if kinds is None else kinds
        return sum(sum(self.counts.get(what, Counter()).values()) for what in chosen)

    def full(self, number: int) -> int:
        """This share of a number that a whole soak has, at least one."""
        return max(1, round(number * self.share))

    def record(self, about: dict[str, Any]) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "section": self.section,
            "seed": self.seed,
            "share": self.share,
            "tries": self.total(),
            "faults": self.n_faults,
            "counts": {what: dict(sorted(endings.items())) for what, endings in sorted(self.counts.items())},
            "figures": self.figures,
            "described": self.faults,
            "seconds": round(time.monotonic() - self.begun, 1),
            **about,
        }

    def write(self, path: Path, about: dict[str, Any]) -> None:
        """The record as a file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.record(about), indent=1, ensure_ascii=False) + "\n")
