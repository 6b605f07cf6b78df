"""Barycenters of several measures in the geometry of a cost."""

from occamap.barycenters.descent import Barycenter, barycenter

__all__ = ["Barycenter", "barycenter"]
