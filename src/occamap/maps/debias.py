"""Moves that the source makes towards itself, told from those that it makes towards the target."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from occamap._memory import Budget
from occamap._validate import Samples
from occamap._workers import Workers
from occamap.costs import Cost
from occamap.costs.generic import GenericPairs
from occamap.costs.separable import Separable
from occamap.errors import NotConvergedWarning
from occamap.maps.side import Side
from occamap.sinkhorn import EpsilonRule, Solver, Status, StoredCost
from occamap.sinkhorn.solution import describe

Floats = NDArray[np.float64]

SAME = 1e-6  # of the mean cost: a sample so near is the same one
FAR = 1e3  # times the largest cost: nothing goes there, unless there is nowhere else
BLOCK = 1 << 24  # weights held at once

WARNING = (
    "debias=True leaves out what the source samples do to one another; where the treatment makes samples more alike, "
    "that is part of the effect, and with large epsilon or few samples debiasing is known to make maps worse: compare "
    "the map with debias=False on held-out samples"
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
    budget.require(16.0 * n * n, f"debiasing, the costs among {n} samples,")
    within, C = samples.without(cost._frozen(samples.shape[1])), np.empty((n, n))
    cost._fill(within, within, C, workers)
    same, far = SAME * float(C.mean()), FAR * float(C.max())
    C[same >= C] = far
    solver = Solver(EpsilonRule(epsilon, "absolute"), None, solver.tol, solver.max_iter)
    solution = solver(StoredCost(C), masses, masses, workers)
    if solution.status is not Status.CONVERGED:
        told = describe(solution.status, solution.error, solver.tol, solver.max_iter)
        warnings.warn(f"the source against itself: {told}", NotConvergedWarning, stacklevel=5)
    return OwnSide(Side(cost, samples, masses, solution.g, epsilon), same, far)


def keep(
    own: OwnSide, towards: Side, X: Samples, moves: sp.csr_array, workers: Workers, budget: Budget
) -> sp.csr_array:
    """The moves at which prox(∇f_μν − ∇f_μμ) is not 0, either, without the others; sign(0) = 0 in both fields."""
    cost, kept = towards.cost, []
    sides = [(side, *side._prepare(X, budget, workers)) for side in (towards, own.side)]
    for start, stop in _spans(X.shape[0], max(side.g.size for side, _, _ in sides)):
        block = sp.csc_array(moves[start:stop])
        places = block.indices, np.repeat(np.arange(block.shape[1]), np.diff(block.indptr))
        fields = []
        for side, rows, displacer in sides:
            part = rows.rows(start, stop)
            C = displacer.pairs.block(part)
            weights = own.weights(C) if side is own.side else side._gibbs(C)[0]
            field = _entries if isinstance(cost, Separable) else _rows
            fields.append(field(side, part, weights, block))
        excess = fields[0] - fields[1]
        if isinstance(cost, Separable):
            stays = cost._shrink(excess, places[1]) != 0
        else:
            stays = cost._prox(Samples(excess.shape, excess))[places] != 0
        block.data = np.where(stays, block.data, 0)
        block.eliminate_zeros()
        kept.append(sp.csr_array(block))
    return sp.csr_array(sp.vstack(kept, format="csr"))


def _spans(n: int, m: int) -> Iterator[tuple[int, int]]:
    step = max(1, BLOCK // max(1, m))
    return ((start, min(start + step, n)) for start in range(0, n, step))


def _rows(side: Side, X: Samples, weights: Floats, pattern: sp.csc_array) -> Floats:
    """Σ_j p_j ∇h(x − y_j) of each row, whole and straight from the definition."""
    differences = GenericPairs(side.cost, side.anchors).differences
    return np.stack([p @ side.cost._gradient(differences(x)) for x, p in zip(X.dense(), weights, strict=True)])


def _entries(side: Side, X: Samples, weights: Floats, pattern: sp.csc_array) -> Floats:
    """Σ_j p_j h′(x − y_j) at the stored entries of the pattern, in their order, of a cost that is a sum over features.

    Only stored entries of the anchors count one by one: all the others differ from x by x itself.
    """
    assert isinstance(side.cost, Separable)
    columns = np.repeat(np.arange(pattern.shape[1]), np.diff(pattern.indptr))
    at = pattern.indices, columns
    x = np.asarray(X.csr()[at] if X.is_sparse else X.data[at], dtype=np.float64).ravel()
    colptr, stored, values = side.anchors.columns
    out = np.empty(x.size)
    for t in np.flatnonzero(np.diff(pattern.indptr)):
        here, column = slice(*pattern.indptr[t : t + 2]), slice(*colptr[t : t + 2])
        rows = pattern.indices[here]
        p = weights[rows] if stored is None else weights[np.ix_(rows, stored[column])]
        slopes = side.cost._slopes(x[here, None] - values[column].astype(np.float64), t)
        rest = 0.0 if stored is None else 1.0 - p.sum(axis=1)
        out[here] = np.einsum("ij,ij->i", p, slopes) + rest * side.cost._slopes(x[here], t)
    return out
