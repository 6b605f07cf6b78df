"""occamap: which features move, in which samples, and by how much.

Feature-sparse optimal transport maps between two samples, on dense and on sparse data.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from occamap._version import __version__

if TYPE_CHECKING:
    from occamap import datasets, errors, metrics, pl, tl
    from occamap.barycenters import Barycenter, barycenter
    from occamap.costs import L1, STVS, Cost, GroupLasso, KOverlap, SqL2, Subspace
    from occamap.evaluation import evaluate
    from occamap.flows import Flow, bregman_centroid, flow
    from occamap.maps import MongeMap, load
    from occamap.reports import report
    from occamap.selection import GammaPath, MongeMapCV, gamma_path
    from occamap.subspaces import learn_subspace

_HOMES = {
    "L1": "occamap.costs",
    "STVS": "occamap.costs",
    "Cost": "occamap.costs",
    "GroupLasso": "occamap.costs",
    "KOverlap": "occamap.costs",
    "SqL2": "occamap.costs",
    "Subspace": "occamap.costs",
    "Barycenter": "occamap.barycenters",
    "Flow": "occamap.flows",
    "GammaPath": "occamap.selection",
    "barycenter": "occamap.barycenters",
    "bregman_centroid": "occamap.flows",
    "evaluate": "occamap.evaluation",
    "flow": "occamap.flows",
    "gamma_path": "occamap.selection",
    "MongeMap": "occamap.maps",
    "MongeMapCV": "occamap.selection",
    "learn_subspace": "occamap.subspaces",
    "load": "occamap.maps",
    "report": "occamap.reports",
    "datasets": "",
    "errors": "",
    "metrics": "",
    "pl": "",
    "tl": "",
}

__all__ = [
    "L1",
    "STVS",
    "Barycenter",
    "Cost",
    "Flow",
    "GammaPath",
    "GroupLasso",
    "KOverlap",
    "MongeMap",
    "MongeMapCV",
    "SqL2",
    "Subspace",
    "__version__",
    "barycenter",
    "bregman_centroid",
    "datasets",
    "errors",
    "evaluate",
    "flow",
    "gamma_path",
    "learn_subspace",
    "load",
    "metrics",
    "pl",
    "report",
    "tl",
]


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that `import occamap` is instant."""
    if name not in _HOMES:
        raise AttributeError(f"module 'occamap' has no attribute {name!r}")
    home = _HOMES[name]
    value = getattr(importlib.import_module(home), name) if home else importlib.import_module(f"occamap.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
