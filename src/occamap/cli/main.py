"""The entry point: quiet about interrupts from the first import on."""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Run the command that the arguments name."""
    try:
        from occamap.cli.app import run

        run(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)
    except MemoryError:  # before a command has begun: there is none left even for its code
        sys.exit("occamap: not enough memory for this")
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is said and written: an interrupt now changes nothing
