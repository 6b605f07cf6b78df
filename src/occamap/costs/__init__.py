"""Costs h(z) = ½‖z‖² + τ(z): value, gradient, prox, conjugate, Bregman divergence and all pairs."""

from dataclasses import is_dataclass
from importlib import import_module
from pkgutil import iter_modules

from occamap.costs.base import Cost
from occamap.costs.group_lasso import GroupLasso
from occamap.costs.koverlap import KOverlap
from occamap.costs.l1 import L1, SqL2
from occamap.costs.stvs import STVS
from occamap.costs.subspace import Subspace

KINDS: dict[str, type[Cost]] = {  # those that a model file may name: a cost in a file of this directory needs no list
    name: kind
    for module in iter_modules(__path__, f"{__name__}.")
    for name, kind in vars(import_module(module.name)).items()
    if isinstance(kind, type) and issubclass(kind, Cost) and is_dataclass(kind)
}

__all__ = ["KINDS", "L1", "STVS", "Cost", "GroupLasso", "KOverlap", "SqL2", "Subspace"]
