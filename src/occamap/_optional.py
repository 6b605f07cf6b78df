"""Packages that only some calls need: imported when they do, with the remedy where they are absent."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType

from occamap.errors import MissingPackageError


def optional(module: str, what: str) -> ModuleType:
    """Import `module`, or say that `what` needs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingPackageError(f"{what} needs {package}, which is not installed: pip install {package}") from error


def require(packages: tuple[str, ...], what: str, extra: str) -> None:
    """Raise unless all packages of this extra are there."""
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise MissingPackageError(
            f"{what} needs {' and '.join(missing)}, which {verb} not installed: pip install 'occamap[{extra}]'"
        )
