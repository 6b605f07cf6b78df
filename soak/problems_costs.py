"""Costs, gradients and proxes of the package, next to those of the reference."""

from __future__ import annotations

from typing import Any

import numpy as np

from soak.generate import Problem
from soak.problems_bounds import COST, EPS, GROUPS, LATENT, LATENT_MOVE, MOVE, Floats, ask, close, dense, require


class Costs:
    """Those of a problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.penalty = problem, problem.penalty
        self.X, self.Y = dense(problem.X), dense(problem.Y)
        self.dtype = np.result_type(problem.X.dtype, problem.Y.dtype)
        self.latent = problem.kind == "GroupLasso overlap" and self.penalty.grouped(self.X.shape[1]).overlap
        self.frozen = self.penalty.frozen(self.X.shape[1])

    def relative(self, kind: Any) -> float:
        """How far a cost in this precision is off, relative to itself."""
        dtype = np.dtype(kind)
        groups = GROUPS if self.penalty.name == "GroupLasso" else 0.0
        return COST[dtype] * EPS[dtype] / 2 + groups + (4 * LATENT if self.latent else 0.0)

    def check_pairs(self) -> None:
        """Those of all pairs, and where they are infinite."""
        got, _ = ask(self.problem.cost.pairwise, self.problem.X, self.problem.Y, n_jobs=1)
        z = self.X[:, None, :] - self.Y[None, :, :]
        moved = (z[..., self.frozen] != 0).any(axis=-1)
        require(np.array_equal(np.isinf(got), moved), "pairwise is infinite elsewhere than frozen features differ")
        wanted = self.between(self.X, self.Y)
        allowed = self.relative(self.dtype) * wanted
        if self.latent:  # what the reference has is a bound from above; there is one from below
            allowed = allowed + wanted - self.between(self.X, self.Y, least=True)
        close(got[~moved], wanted[~moved], allowed[~moved], "pairwise")

    def between(self, X: Floats, Y: Floats, least: bool = False) -> Floats:
        """By the reference, frozen features aside; the lower bound where groups overlap, if that is wanted."""
        thawed = ~self.frozen
        z = (X * thawed)[:, None, :] - (Y * thawed)[None, :, :]
        if least:
            return 0.5 * (z * z).sum(axis=-1) + self.penalty.grouped(X.shape[1]).bounds(z)[0]
        return self.penalty.value(z)

    def check_vectors(self) -> None:
        """value, grad and prox of the first rows."""
        rows = self.problem.X[: min(3, self.X.shape[0])]
        z, cost, unit = self.X[:3], self.problem.cost, EPS[self.problem.X.dtype]
        if (z[:, self.frozen] != 0).any():
            return
        value, grad, prox = (dense(ask(method, rows)[0]) for method in (cost.value, cost.grad, cost.prox))
        wanted = self.penalty.value(z)
        close(value, wanted, self.relative(np.float64) * wanted + (1e-3 * wanted if self.latent else 0.0), "value")
        wanted = self.penalty.gradient(z)
        separable = self.penalty.name in ("SqL2", "L1", "STVS")
        size = np.abs(wanted) if separable else np.abs(wanted).max(axis=1, keepdims=True)
        if self.penalty.name == "Subspace":  # the part out of the span is a difference, times 1 + γ
            size = (1 + self.penalty.gamma) * np.abs(z).max(axis=1, keepdims=True)
        close(grad, wanted, (MOVE * unit + LATENT_MOVE * self.latent) * size + 1e-44, "grad")
        wanted, size = self.penalty.prox(z), np.abs(z)
        if not separable:
            size = size.max(axis=1, keepdims=True)
        close(prox, wanted, (MOVE * unit + LATENT_MOVE * self.latent) * size + 1e-44, "prox")
