"""The command line: parse, call, print."""

from __future__ import annotations

import signal
import sys
from types import FrameType


def main() -> None:
    """Run the command that the arguments name. Interrupts are quiet from the first import on."""
    signal.signal(signal.SIGTERM, _stop)
    try:
        from occamap.cli.app import run

        run(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)


def _stop(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)  # unwinds, so that no half-written file stays


__all__ = ["main"]
