"""The estimator of feature-sparse Monge maps."""

from occamap.maps.monge_map import MongeMap, load

__all__ = ["MongeMap", "load"]
