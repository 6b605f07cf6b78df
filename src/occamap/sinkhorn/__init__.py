"""Entropic optimal transport: costs by blocks of rows → one loop → potentials and a report."""

from occamap.sinkhorn.epsilon import EpsilonRule
from occamap.sinkhorn.family import CostFamily, cost_family
from occamap.sinkhorn.operator import CostBlocks, Costs, DiskCost, RecomputedCost, StoredCost
from occamap.sinkhorn.places import cost_blocks
from occamap.sinkhorn.potentials import Solver
from occamap.sinkhorn.solution import Report, Solution, Status
from occamap.sinkhorn.solve import solve

__all__ = [
    "CostBlocks",
    "CostFamily",
    "Costs",
    "DiskCost",
    "EpsilonRule",
    "RecomputedCost",
    "Report",
    "Solution",
    "Solver",
    "Status",
    "StoredCost",
    "cost_blocks",
    "cost_family",
    "solve",
]
