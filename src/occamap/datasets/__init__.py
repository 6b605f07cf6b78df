"""Data to try a map on: simulators whose truth is known."""

from occamap.datasets.ground_truth import GroundTruth, ground_truth
from occamap.datasets.simulate import Perturbation, simulate_perturbation

__all__ = ["GroundTruth", "Perturbation", "ground_truth", "simulate_perturbation"]
