"""Costs h(z) = ½‖z‖² + τ(z): value, gradient, prox, conjugate, Bregman divergence and all pairs."""

from occamap.costs.base import Cost
from occamap.costs.group_lasso import GroupLasso
from occamap.costs.koverlap import KOverlap
from occamap.costs.l1 import L1, SqL2
from occamap.costs.stvs import STVS
from occamap.costs.subspace import Subspace

__all__ = ["L1", "STVS", "Cost", "GroupLasso", "KOverlap", "SqL2", "Subspace"]
