"""Costs h(z) = ½‖z‖² + τ(z): value, gradient, prox, conjugate, Bregman divergence and all pairs."""

from importlib import import_module
from pkgutil import iter_modules

from occamap.costs.base import Cost
from occamap.costs.group_lasso import GroupLasso
from occamap.costs.koverlap import KOverlap
from occamap.costs.l1 import L1, SqL2
from occamap.costs.stvs import STVS
from occamap.costs.subspace import Subspace

KINDS: dict[str, type[Cost]] = {kind.__name__: kind for kind in (SqL2, L1, STVS, KOverlap, GroupLasso, Subspace)}


def _find() -> None:
    """A cost in a file of this directory needs no list: a model file may name it."""
    for file in iter_modules(__path__):
        if file.name.startswith("_"):
            continue
        module = import_module(f"{__name__}.{file.name}")
        found = [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, Cost)]
        for kind in found:
            if hasattr(kind, "__dataclass_fields__") and KINDS.setdefault(kind.__name__, kind) is not kind:
                raise ImportError(f"{module.__name__} has a second cost of the name {kind.__name__}: rename it")


_find()

__all__ = ["KINDS", "L1", "STVS", "Cost", "GroupLasso", "KOverlap", "SqL2", "Subspace"]
