"""The estimator of feature-sparse Monge maps."""

from occamap.maps.monge_map import MongeMap

__all__ = ["MongeMap"]
