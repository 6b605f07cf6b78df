"""The command line: parse, call, print."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command that the arguments name. Interrupts are quiet from the first import on."""
    try:
        from occamap.cli.app import run

        run(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)


__all__ = ["main"]
