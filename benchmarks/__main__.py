"""python -m benchmarks: time and memory of occamap, side by side with the peers that are installed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.machine import facts
from benchmarks.suite import BENCHMARKS, run

EXAMPLES = """examples:
  python -m benchmarks                     everything, in less than a quarter of an hour on 2 cores
  python -m benchmarks --quick             a smoke test on small problems
  python -m benchmarks --only l1 --only map
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        "python -m benchmarks", description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small problems, no targets: shows that all of it runs")
    names = ", ".join(BENCHMARKS)
    parser.add_argument(
        "--only", action="append", metavar="NAME", choices=BENCHMARKS, help=f"one of {names}; may be repeated"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        default=Path(__file__).with_name("results"),
        help="where results.md and results.json go (benchmarks/results);\n"
        "a quick or partial run adds that to the names and leaves those two alone",
    )
    arguments = parser.parse_args()
    chosen = [name for name in BENCHMARKS if not arguments.only or name in arguments.only]
    machine = facts()
    record = run(chosen, arguments.quick)
    partial = chosen if arguments.only else []
    stem = "-".join(["results", *(["quick"] if arguments.quick else []), *partial])
    print("written: " + ", ".join(path.name for path in record.write(arguments.out, stem, machine)))
    return int(record.failed)


if __name__ == "__main__":
    sys.exit(main())
