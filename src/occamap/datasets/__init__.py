"""Data to try a map on: simulators whose truth is known, and cells that answered to interferon."""

from occamap.datasets.ground_truth import GroundTruth, ground_truth
from occamap.datasets.kang import kang_ifnb
from occamap.datasets.sciplex import sciplex_like
from occamap.datasets.simulate import Perturbation, simulate_perturbation

__all__ = ["GroundTruth", "Perturbation", "ground_truth", "kang_ifnb", "sciplex_like", "simulate_perturbation"]
