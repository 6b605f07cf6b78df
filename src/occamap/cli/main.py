"""The entry point: one sentence about interrupts from the first import on."""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    """Run the command that the arguments name."""
    try:
        from occamap.cli.app import run

        run(sys.argv[1:])
    except KeyboardInterrupt:  # later ones are the command's to tell of
        os.write(2, b"occamap: interrupted before it began: nothing has changed\n")
        sys.exit(130)
    except MemoryError:  # none is left even for the code of a command, nor for that of a proper end
        os.write(2, b"occamap: not enough memory for this\n")
        os._exit(1)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is said and written: an interrupt now changes nothing
