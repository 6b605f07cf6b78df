"""Data to try a map on: simulators whose truth is known."""

from occamap.datasets.simulate import Perturbation, simulate_perturbation

__all__ = ["Perturbation", "simulate_perturbation"]
