"""What a result was made with: versions of all that computes, and values that JSON and HDF5 can hold."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import version
from typing import Any

import numpy as np

from occamap._version import __version__

PACKAGES = {name: name for name in ("numpy", "scipy", "numba", "pandas", "anndata", "scanpy", "matplotlib")} | {
    "sklearn": "scikit-learn"
}  # as they are imported, and as they are installed


def versions() -> dict[str, str]:
    """Of occamap, Python, and those packages that this process has imported."""
    loaded = {package: version(package) for name, package in PACKAGES.items() if name in sys.modules}
    return {"occamap": __version__, "python": platform.python_version(), **loaded}


def plain(value: Any) -> Any:
    """NumPy's scalars and arrays as Python's, all the way down."""
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    return value.item() if isinstance(value, np.generic) else value


def without_none(entries: dict[str, Any]) -> dict[str, Any]:
    """The entries that say something, for files that cannot hold None."""
    return {
        key: without_none(value) if isinstance(value, dict) else value
        for key, value in entries.items()
        if value is not None
    }
