"""Packages that only some calls need: imported when they do, with the remedy where they are absent."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType

from occamap.errors import MissingPackageError, one_line


def optional(module: str, what: str) -> ModuleType:
    """Import `module`, or say that `what` needs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        why, remedy = "which is not installed", f"pip install {package}"
        if importlib.util.find_spec(package) is not None:  # a part of it that is not there, or an interrupt
            why, remedy = f"which is there but cannot be imported ({one_line(error)})", f"{remedy} --force-reinstall"
        raise MissingPackageError(f"{what} needs {package}, {why}: {remedy}") from error


def require(packages: tuple[str, ...], what: str, extra: str) -> None:
    """Raise unless all packages of this extra are there."""
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise MissingPackageError(
            f"{what} needs {' and '.join(missing)}, which {verb} not installed: pip install 'occamap[{extra}]'"
        )
