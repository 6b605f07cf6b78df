"""What a result was made with: versions of all that computes, and values that JSON and HDF5 can hold."""

from __future__ import annotations

import json
import math
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


def read_json(content: bytes) -> Any:
    """JSON as occamap writes it: UTF-8, finite numbers, no key twice, and brackets that end; else a `ValueError`."""
    try:
        return json.loads(
            content.decode(), parse_constant=_finite, parse_float=_finite, object_pairs_hook=_once
        )
    except RecursionError as error:
        raise ValueError("brackets within brackets without end") from error


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"the number {text[:20]} is not finite")
    return number


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise ValueError("a key comes twice")
    return entries
