"""Packages that only some calls need: imported when they do, with the remedy where they are absent."""

from __future__ import annotations

import importlib
from types import ModuleType

from occamap.errors import MissingPackageError


def optional(module: str, what: str) -> ModuleType:
    """Import `module`, or say that `what` needs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingPackageError(f"{what} needs {package}, which is not installed: pip install {package}") from error
