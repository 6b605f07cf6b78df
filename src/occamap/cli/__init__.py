"""The command line: parse, call, print."""

from occamap.cli.app import main

__all__ = ["main"]
