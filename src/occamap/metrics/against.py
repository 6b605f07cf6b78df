"""Several distances to one sample, from the same matrices of pairwise distances."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from occamap._validate import check_samples
from occamap._workers import Workers
from occamap.costs import SqL2
from occamap.metrics.transport import Transport, Value
from occamap.sinkhorn import EpsilonRule, StoredCost

Floats = NDArray[np.float64]

EPSILON = 0.1  # × the mean cost among the targets
TOL, MAX_ITER = 1e-4, 5000
FEATURES = 2048  # in one product
MANY = 0.045  # share of stored entries from which on dense products are faster


class Distances(NamedTuple):
    """To the targets: `sinkhorn_divergence`, `mmd` and `energy_distance` with their default parameters."""

    divergence: Value
    mmd: float
    energy: float


class Against:
    """Distances of samples to the rows of Y; what Y alone determines is computed once.

    Samples are dense rows, or CSR. Of CSR with many entries, pairwise distances come from matrix products in the
    precision of the data, summed in float64: good to 1e-6 of the largest, and much faster.
    """

    def __init__(self, Y: Any, workers: Workers) -> None:
        self.Y, self.workers = Y, workers
        self._dense: NDArray[Any] | None = Y.toarray() if _is_sparse(Y) else None
        half = self._half(Y, Y)
        transport = Transport(EpsilonRule(EPSILON), SqL2(), TOL, MAX_ITER)
        masses = _uniform(Y)
        self._own, epsilon = transport.solve(StoredCost(half), masses, masses, workers)
        self._transport = replace(transport, rule=EpsilonRule(epsilon, "absolute"))
        distances = np.sqrt(2 * half)
        apart = distances[np.triu_indices_from(distances, 1)]
        self._sigma = float(np.median(apart[apart > 0])) if apart.any() else 1.0
        self._own_kernel, self._own_mean = float(self._kernel(half).mean()), float(distances.mean())

    def __sizeof__(self) -> int:
        """Bytes of the samples, so that a cluster knows what it would cost to move them."""
        stored = self.Y.data.nbytes + self.Y.indices.nbytes if _is_sparse(self.Y) else self.Y.nbytes
        return int(stored + (0 if self._dense is None else self._dense.nbytes))

    def __call__(self, X: Any) -> Distances:
        a, b = _uniform(X), _uniform(self.Y)
        across, within = self._halves(X)
        there, _ = self._transport.solve(StoredCost(across), a, b, self.workers)
        here, _ = self._transport.solve(StoredCost(within), a, a, self.workers)
        divergence = there.value - 0.5 * here.value - 0.5 * self._own.value
        mmd = float(self._kernel(within).mean()) + self._own_kernel - 2 * float(self._kernel(across).mean())
        energy = 2 * float(np.sqrt(2 * across).mean()) - float(np.sqrt(2 * within).mean()) - self._own_mean
        trouble = there.trouble or here.trouble or self._own.trouble
        return Distances(Value(divergence, trouble), max(0.0, mmd), max(0.0, energy))

    def _halves(self, X: Any) -> tuple[Floats, Floats]:
        """½‖x − y‖² from X to Y, and within X."""
        if self._dense is None or (_is_sparse(X) and X.nnz < MANY * X.shape[0] * X.shape[1]):
            return self._half(X, self.Y), self._half(X, X)
        dense = X.toarray() if _is_sparse(X) else X
        return _products(dense, self._dense), _products(dense, dense)

    def _half(self, X: Any, Y: Any) -> Floats:
        """½‖x − y‖² of all pairs."""
        out = np.empty((X.shape[0], Y.shape[0]))
        SqL2()._fill(check_samples(X, "X"), check_samples(Y, "Y"), out, self.workers)
        np.maximum(out, 0.0, out=out)
        if X is Y:
            np.fill_diagonal(out, 0.0)
        return out

    def _kernel(self, half: Floats) -> Floats:
        return np.asarray(np.exp(-half / self._sigma**2))


def _products(X: NDArray[Any], Y: NDArray[Any]) -> Floats:
    """½‖x − y‖² of all pairs, as ½‖x‖² + ½‖y‖² − ⟨x, y⟩, some features at a time."""
    out = np.zeros((X.shape[0], Y.shape[0]))
    squares = np.zeros(X.shape[0]), np.zeros(Y.shape[0])
    for start in range(0, X.shape[1], FEATURES):
        x, y = X[:, start : start + FEATURES], Y[:, start : start + FEATURES]
        centre = Y[0, start : start + FEATURES]  # keeps the numbers small where they are far from 0
        x = x - centre
        y = x if X is Y else y - centre
        out -= x @ y.T
        for total, side in zip(squares, (x, y), strict=True):
            total += np.einsum("if,if->i", side, side)
    out += 0.5 * squares[0][:, None] + 0.5 * squares[1]
    np.maximum(out, 0.0, out=out)
    if X is Y:
        np.fill_diagonal(out, 0.0)
    return out


def _is_sparse(X: Any) -> bool:
    return bool(sp.issparse(X))


def _uniform(X: Any) -> Floats:
    return np.full(X.shape[0], 1.0 / X.shape[0])
