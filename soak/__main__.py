"""python -m soak: faults, load and hostile input, by the thousand, with counts."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from benchmarks.machine import facts
from soak.tally import Tally

SECTIONS = {
    "problems": "generated problems against a plain reference",
    "files": "damaged and forged files",
    "fuzz": "coverage-guided fuzzing of the readers",
    "crashes": "kill -9, SIGINT, full disks and read-only directories",
    "concurrency": "processes and threads that meet",
    "determinism": "the same bytes over threads and processes",
    "limits": "budgets under a hard limit of memory",
}
RESULTS = Path(__file__).with_name("results")


def main() -> int:
    parser = argparse.ArgumentParser("python -m soak", description=__doc__)
    listed = "; ".join(f"{name} ({what})" for name, what in SECTIONS.items())
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"some of: {listed}; all by default")
    parser.add_argument("--share", type=float, default=1.0, help="of the full numbers (1)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="DIR", help="where counts go (soak/results)")
    asked = parser.parse_args()
    unknown = [name for name in asked.sections if name not in SECTIONS]
    if unknown or not 0 < asked.share <= 1 or asked.seed < 0:
        parser.error(f"no section {unknown[0]!r}" if unknown else "the share is in (0, 1], the seed at least 0")
    if asked.share < 1 and asked.out == RESULTS:
        parser.error("soak/results is for full numbers: name another directory with --out")
    return sum(_run(name, asked.seed, asked.share, asked.out) for name in asked.sections or SECTIONS) and 1


def _run(name: str, seed: int, share: float, out: Path) -> int:
    """Run one section, print and write what it counted; 1 if there was a fault."""
    print(f"{name}: {SECTIONS[name]}", flush=True)
    tally = Tally(name, seed, share)
    importlib.import_module(f"soak.{name}").run(tally)
    tally.write(out / f"{name}.json", facts())
    for what, endings in sorted(tally.counts.items()):
        print(f"  {what}: " + ", ".join(f"{count:,} {ending}" for ending, count in sorted(endings.items())))
    for what, value in tally.figures.items():
        print(f"  {what}: {value}")
    for fault in tally.faults[:10]:
        print(f"  FAULT {fault}")
    record = tally.record({})
    print(f"  {record['tries']:,} tries, {record['faults']:,} faults, {record['seconds']:,.0f} s", flush=True)
    return int(tally.n_faults > 0)


if __name__ == "__main__":
    sys.exit(main())
