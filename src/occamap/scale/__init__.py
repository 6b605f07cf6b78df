"""The same work on the workers of a Dask cluster that is there already."""

from occamap.scale.cluster import Recipe, connect, given_client, results, tasks

__all__ = ["Recipe", "connect", "given_client", "results", "tasks"]
