"""What a solve gives back: potentials, and a report that says how it came about and what to do."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from occamap._memory import format_size

Floats = NDArray[np.float64]


class Status(StrEnum):
    """How a solve ended."""

    CONVERGED = "converged"
    MAX_ITER = "max_iter"
    STALLED = "stalled"


@dataclass(frozen=True)
class Report:
    """How a solve came about."""

    status: Status
    message: str
    epsilon: float
    epsilon_rule: str
    """How ε was found: "0.1 × mean cost", "perplexity 10"; if that number of effective targets is out of reach, also
    which number was taken instead, and why."""
    effective_targets: float
    n_targets: int
    mass: float
    n_iter: int
    error: float
    errors: tuple[float, ...]
    tol: float
    seconds: float
    peak_memory: int
    operator: str
    """Where the costs were: "in memory, float64", "in memory, float32", "on disk, float32", …"""
    choice: str = ""
    """Why, where they were not simply kept."""

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings, ready for JSON."""
        return {**asdict(self), "status": self.status.value, "errors": list(self.errors)}

    @classmethod
    def from_dict(cls, entries: dict[str, Any]) -> Report:
        return cls(**{**entries, "status": Status(entries["status"]), "errors": tuple(entries["errors"])})

    def __str__(self) -> str:
        mass = "" if self.mass == 1 else f"; {self.mass:.3g} of the mass is transported"
        if self.mass < 0.01:
            mass += ", next to nothing: raise reach"
        return (
            f"{self.message}\n"
            f"ε = {self.epsilon:.6g} ({self.epsilon_rule}); a sample has {self.effective_targets:.1f} effective "
            f"targets of {self.n_targets}{mass}; {self.n_iter} iteration{'s' * (self.n_iter != 1)}, "
            f"{self.seconds:.2f} s, peak memory of the process {format_size(self.peak_memory)}"
            f"{self.choice and chr(10) + self.choice[0].upper() + self.choice[1:]}"
        )


@dataclass(frozen=True)
class Solution:
    """Potentials relative to the product measure: P_ij = a_i b_j exp((f_i + g_j − C_ij)/ε)."""

    f: Floats
    g: Floats
    epsilon: float
    status: Status
    error: float
    errors: tuple[float, ...]
    effective_targets: float
    epsilon_rule: str = ""
    """How ε was found, for the report."""


def describe(status: Status, reached: float, tol: float, max_iter: int) -> str:
    """One sentence: how it ended and, where that is not well, what to do."""
    if status is Status.CONVERGED:
        return f"Converged: the marginal error is {reached:.2g}, at or below tol={tol:g}."
    if status is Status.STALLED:
        return (
            f"Stalled at a marginal error of {reached:.2g}, above tol={tol:g}, the limit of float64 here: "
            "raise tol, or raise epsilon."
        )
    return (
        f"Not converged: after max_iter={max_iter} iterations the marginal error is {reached:.2g}, above "
        f"tol={tol:g}: raise max_iter, raise epsilon, or accept the error by a larger tol."
    )
