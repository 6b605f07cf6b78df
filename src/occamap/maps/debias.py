"""Moves that the source makes towards itself, told from those that it makes towards the target."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from occamap._memory import Budget
from occamap._validate import Samples
from occamap._workers import Workers
from occamap.costs import Cost
from occamap.costs.base import Tick
from occamap.costs.generic import Displacer, Field, Pairs
from occamap.errors import NotConvergedWarning
from occamap.maps.side import Side
from occamap.sinkhorn import CostBlocks, EpsilonRule, Solver, Status, StoredCost
from occamap.sinkhorn.solution import describe

Floats = NDArray[np.float64]
Span = tuple[int, int]

SAME = 1e-6  # of the mean cost: a sample so near is the same one
FAR = 1e3  # times the largest cost: nothing goes there, unless there is nowhere else

WARNING = (
    "debias=True is deprecated and will be removed in version 0.3: use pool, such as pool='auto', which averages out "
    "the noise of single samples instead of comparing with what they do to one another"
)


@dataclass(frozen=True)
class OwnSide:
    """Samples as targets of their own kind: the same cost and ε, and no sample a target of itself."""

    side: Side
    same: float
    far: float

    def weights(self, C: Floats) -> Floats:
        """The Gibbs weights of points with these costs; a point that is one of the samples does not see itself."""
        return self.side._gibbs(np.where(self.same >= C, self.far, C))[0]


def own_side(
    cost: Cost, samples: Samples, masses: Floats, epsilon: float, solver: Solver, workers: Workers, budget: Budget
) -> OwnSide:
    """Solve the problem of the samples with themselves at this ε."""
    n = samples.shape[0]
    budget.require(own_bytes(n), f"debiasing, the costs among {n} samples,")
    within, C = samples.without(cost._frozen(samples.shape[1])), np.empty((n, n))
    cost._fill(within, within, C, workers)
    same, far = SAME * float(C.mean()), FAR * float(C.max())
    C[same >= C] = far
    solver = Solver(EpsilonRule(epsilon, "absolute"), None, solver.tol, solver.max_iter)
    solution = solver(StoredCost(C), masses, masses, workers)
    if solution.status is not Status.CONVERGED:
        told = describe(solution.status, solution.error, solver.tol, solver.max_iter)
        warnings.warn(f"the source against itself: {told}", NotConvergedWarning, stacklevel=6)
    return OwnSide(Side(cost, samples, masses, solution.g, epsilon), same, far)


def own_bytes(n: int) -> float:
    """What the costs among n samples take, and what is made of them."""
    return 16.0 * n * n


class DebiasedSide(Side):
    """A side that moves points as before, but only where prox(∇f − ∇f_own) is not 0, either.

    `own` gives the side that the points come from, when it is first needed. sign(0) = 0 in both fields.
    """

    def __init__(self, plain: Side, own: Callable[[], OwnSide]) -> None:
        self.__dict__.update(plain.__dict__)  # what is prepared for one serves the other
        self._own = own

    def displace(
        self,
        X: Samples,
        finish: Callable[[Span, sp.csr_array], sp.csr_array | None],
        ties: int,
        relax: float,
        workers: Workers,
        budget: Budget,
        tick: Tick = None,
        costs: CostBlocks | None = None,
    ) -> sp.csr_array:
        own = self._own()
        rows, displacer = self._prepare(X, budget, workers)
        own_rows, own_displacer = own.side._prepare(X, budget, workers)
        known = _AskedTwice(displacer.pairs, rows) if costs is None else costs

        def kept(span: Span, moves: sp.csr_array) -> sp.csr_array | None:
            part = own_rows.rows(*span)
            weights = own.weights(own_displacer.pairs.block(part))
            own_field = _field(own_displacer, part, weights)
            weights = self._gibbs(known.block(span))[0]
            excess = _field(displacer, rows.rows(*span), weights) - own_field
            entries = np.repeat(np.arange(moves.shape[0]), np.diff(moves.indptr)), moves.indices
            moves.data[self.cost._prox(Samples(excess.shape, excess))[entries] == 0] = 0
            moves.eliminate_zeros()
            return finish(span, moves)

        return super().displace(X, kept, ties, relax, workers, budget, tick, known)


class _AskedTwice(CostBlocks):
    """Costs that are computed when a block is asked for, and let go when it is asked for again."""

    place = "recomputed"

    def __init__(self, pairs: Pairs, X: Samples) -> None:
        super().__init__(X.shape)
        self.pairs, self.X, self._held = pairs, X, dict[Span, Floats]()

    def raw(self, span: Span) -> tuple[NDArray[Any], Floats]:
        C = self._held.pop(span, None)
        if C is None:
            C = self._held[span] = self.pairs.block(self.X.rows(*span))
        return C, np.zeros(C.shape[0])


def _field(displacer: Displacer, X: Samples, weights: Floats) -> Floats:
    """Σ_j p_j ∇h(x − y_j) of at most LANES rows, in float64."""
    found = Field.empty(*X.shape, displacer.dtype, shifts=False, balls=None)
    displacer.field(X, weights, found)
    return found.slopes.astype(np.float64, copy=False)
