"""How good a map is. Each function says exactly what it computes."""

from occamap.metrics.agreement import pearson_r, pearson_r2, r2_score
from occamap.metrics.kernel import energy_distance, mmd
from occamap.metrics.ranking import RBO, rbo, rbo_scores
from occamap.metrics.recovery import density, nmse, support_error
from occamap.metrics.transport import ot_cost, sinkhorn_divergence

__all__ = [
    "RBO",
    "density",
    "energy_distance",
    "mmd",
    "nmse",
    "ot_cost",
    "pearson_r",
    "pearson_r2",
    "r2_score",
    "rbo",
    "rbo_scores",
    "sinkhorn_divergence",
    "support_error",
]
