"""The subspace in which one sample moves to another: descent on the Stiefel manifold (after Klein et al., 2024)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.linalg import LinearOperator, eigsh

from occamap._kernels import softmin
from occamap._memory import Budget
from occamap._validate import Samples, check_count, check_number
from occamap._workers import Workers
from occamap.costs import SqL2, Subspace
from occamap.errors import InputError, NotConvergedWarning
from occamap.maps.problem import Problem, check_problem
from occamap.maps.progress import Progress
from occamap.sinkhorn import EpsilonRule, Solution, Status, StoredCost, solve
from occamap.sinkhorn.epsilon import schedule
from occamap.sinkhorn.solve import log_weights

Floats = NDArray[np.float64]

FEW = 200  # features: with no more of them S is formed, once, to find where to start
STRIDE = 8.0  # the longest step, in steps of the power method
SUFFICIENT = 1e-4  # of the decrease that the slope promises: a step that has less is halved


@dataclass(frozen=True, eq=False)
class LearnedSubspace:
    """A basis and how it was found.

    Attributes
    ----------
    basis, cost
        The directions, (k, d) with orthonormal rows, those that move most first, and `Subspace(gamma, basis)`.
    share
        The share of the mean squared displacement that lies in the span.
    objective, angles
        The objective, and the angle in radians by which a step with this coupling would still turn the span: at the
        start and after each step.
    epsilon
        The ε of all solves.
    status, message, converged, n_iter
        How it ended, and after how many steps.
    sinkhorn_iterations
        In all solves of each evaluation of the objective, those of rejected steps included.
    """

    basis: Floats = field(repr=False)
    cost: Subspace
    share: float
    objective: tuple[float, ...] = field(repr=False)
    angles: tuple[float, ...] = field(repr=False)
    epsilon: float
    status: Status
    message: str
    sinkhorn_iterations: tuple[int, ...] = field(repr=False)

    @property
    def converged(self) -> bool:
        return self.status is Status.CONVERGED

    @property
    def n_iter(self) -> int:
        return len(self.objective) - 1


def learn_subspace(
    X: Any,
    Y: Any,
    k: int,
    gamma: float = 1.0,
    *,
    a: ArrayLike | None = None,
    b: ArrayLike | None = None,
    epsilon: float = 0.1,
    epsilon_scale: str = "mean",
    debias: bool = True,
    start: ArrayLike | str | None = None,
    tol: float = 1e-3,
    max_iter: int = 100,
    sinkhorn_tol: float = 1e-4,
    sinkhorn_max_iter: int = 2000,
    n_jobs: int | None = None,
    verbose: bool | None = None,
    random_state: int = 0,
) -> LearnedSubspace:
    """Find the k directions in which X moves to Y: the basis under whose `Subspace` cost transport is least.

    By the envelope theorem the gradient needs no derivative of the coupling P: with S = Σ P_ij z_ij z_ijᵀ of the
    differences z_ij = x_i − y_j it is −γAS. Steps go along it, projected on the Stiefel manifold and scaled by
    (ASAᵀ)⁻¹, which makes a step of length 1 one of the power method; a line search guards each, and potentials start
    from those of the step before. S is not formed unless it is small; memory is that of two cost matrices, six with
    `debias`.

    Parameters
    ----------
    X, Y, a, b
        Samples, dense or sparse, and their weights (uniform if None).
    k
        How many directions, at most the number of features.
    gamma
        What a move out of the span costs beside 1, while learning. A larger one trusts the span more: good where each
        sample has a true partner, harmful where independent samples move little.
    epsilon, epsilon_scale
        As for `MongeMap`, but not "perplexity"; the costs are those at the start, and the ε is then held.
    debias
        Whether half the transport of each sample to itself is subtracted, as in a Sinkhorn divergence: else the blur of
        the coupling counts as movement.
    start
        A basis to start from, or "random"; None takes the leading directions of the coupling under ½‖·‖².
    tol, max_iter
        Stop when a step would turn the span by less than `tol` radians, or after so many steps.
    sinkhorn_tol, sinkhorn_max_iter
        `tol` and `max_iter` of the solves in between.
    n_jobs, verbose
        As for `MongeMap`; progress shows on a terminal from two seconds on if None.
    random_state
        Seed of the random start, and of the search for leading directions among many features.

    Returns
    -------
    A `LearnedSubspace`: `basis` (k × features, orthonormal rows), `cost` (the `Subspace` with it, for `MongeMap`),
    `share` of the mean squared displacement in the span, `objective` and `angles` at each step, `epsilon`, `status`,
    `message`, `converged`, `n_iter`, `sinkhorn_iterations`.

    Examples
    --------
    >>> import numpy as np, occamap as oc
    >>> X, Y = np.random.default_rng(0).normal(size=(2, 200, 4))
    >>> Y[:, 1] += 6
    >>> oc.learn_subspace(X, Y, 1).basis.round(1).tolist()
    [[0.0, 1.0, 0.0, 0.0]]
    """
    rule = EpsilonRule(epsilon, epsilon_scale)
    if epsilon_scale == "perplexity":
        raise InputError("epsilon_scale must be a statistic of the costs or 'absolute' here; got 'perplexity'")
    if not isinstance(debias, bool | np.bool_):
        raise InputError(f"debias must be True or False; got {debias!r}")
    check_count(max_iter, "max_iter")
    limits = check_number(sinkhorn_tol, "sinkhorn_tol", 0, open_low=True), sinkhorn_max_iter
    check_count(sinkhorn_max_iter, "sinkhorn_max_iter")
    rng = np.random.default_rng(check_count(random_state, "random_state", 0))
    goal, gamma = check_number(tol, "tol", 0, open_low=True), check_number(gamma, "gamma", 0, 1e100, open_low=True)
    problem = check_problem(X, Y, a, b, [], None)
    n, m = problem.a.size, problem.b.size
    if check_count(k, "k") > problem.source.shape[1]:
        raise InputError(f"k must be at most the number of features, {problem.source.shape[1]}; got {k}")
    pairs = n * m + (n * n + m * m if debias else 0)
    Budget(None).require(16 * pairs, f"two matrices of costs for each of {3 if debias else 1} pairs of samples")
    with Workers(n_jobs) as workers, Progress(verbose) as progress:
        transport = _Transport(problem, gamma, rule, bool(debias), limits, workers, progress)
        first = _first_basis(start, k, transport, rng)
        found = _descend(transport, first, goal, max_iter, progress)
    if not found.converged:
        warnings.warn(found.message, NotConvergedWarning, stacklevel=2)
    return found


def _first_basis(start: Any, k: int, transport: _Transport, rng: np.random.Generator) -> Floats:
    d = transport.d
    if start is None:
        transport.solve(None)
        return transport.leading(k, rng)
    if isinstance(start, str):
        if start != "random":
            raise InputError(f"start must be a basis, 'random' or None; got {start!r}")
        return cast(Floats, np.linalg.qr(rng.normal(size=(d, k)))[0].T)
    basis = np.asarray(Subspace(1.0, start).basis)
    if basis.shape != (k, d):
        raise InputError(f"start must be a basis of {k} directions × {d} features; got shape {basis.shape}")
    return basis


def _descend(transport: _Transport, A: Floats, tol: float, max_iter: int, progress: Progress) -> LearnedSubspace:
    """Gradient descent on the Stiefel manifold with a line search, until a step would turn the span no more."""
    value = transport.solve(A)
    D, slope, share = transport.direction(A)
    values, angles, stride, status = [value], [_angle(D)], 1.0, Status.MAX_ITER
    while angles[-1] > tol and len(values) <= max_iter:
        progress.note(f"step {len(values)}, objective {value:.6g}, turning by {angles[-1]:.1e} rad")
        tried, reached = A, math.inf
        while stride * angles[-1] > 0.1 * tol:
            tried = _retract(A + stride * D)
            reached = transport.solve(tried)
            if reached <= value - SUFFICIENT * stride * slope + transport.noise:
                break
            stride *= 0.5
        else:
            transport.solve(A)
            status = Status.STALLED
            break
        A, value = tried, reached
        D, slope, share = transport.direction(A)
        values.append(value)
        angles.append(_angle(D))
        left = angles[-1] / angles[-2]  # of the angle: from it, how much longer a step would have left nothing
        stride = min(STRIDE, max(1.0, stride / (1 - left))) if left < 0.9 else min(STRIDE, 2 * stride)
    if angles[-1] <= tol:
        status = Status.CONVERGED
    if not transport.solved:
        status = Status.MAX_ITER
    message = _describe(status, angles[-1], tol, max_iter, transport.solved)
    basis = transport.ordered(A)
    cost, epsilon = Subspace(transport.gamma, basis), transport.epsilon
    iterations = tuple(transport.iterations)
    return LearnedSubspace(basis, cost, share, tuple(values), tuple(angles), epsilon, status, message, iterations)


def _describe(status: Status, angle: float, tol: float, max_iter: int, solved: bool) -> str:
    if not solved:
        advice = "raise sinkhorn_max_iter, raise epsilon, or accept the error by a larger sinkhorn_tol"
        return f"Not converged: the last coupling did not reach sinkhorn_tol: {advice}."
    if status is Status.CONVERGED:
        return f"Converged: a step would turn the span by {angle:.2g} rad, at or below tol={tol:g}."
    if status is Status.STALLED:
        return (
            f"Stalled: no step lowers the objective, though one would turn the span by {angle:.2g} rad, above "
            f"tol={tol:g}: lower sinkhorn_tol, or accept it by a larger tol."
        )
    return (
        f"Not converged: after max_iter={max_iter} steps one would still turn the span by {angle:.2g} rad, above "
        f"tol={tol:g}: raise max_iter, raise epsilon, or lower gamma."
    )


def _retract(A: Floats) -> Floats:
    """The orthonormal basis of the same span, by QR."""
    return cast(Floats, np.linalg.qr(A.T)[0].T)


def _angle(D: Floats) -> float:
    """By how much a step of length 1 turns the span, in radians."""
    return math.atan(float(np.linalg.norm(D, 2)))


class _Transport:
    """The entropic cost from X to Y as a function of the basis and, to remove its bias, half of that to themselves."""

    def __init__(
        self,
        problem: Problem,
        gamma: float,
        rule: EpsilonRule,
        debias: bool,
        limits: tuple[float, int],
        workers: Workers,
        progress: Progress,
    ) -> None:
        self.gamma, self.rule, self.workers, self.progress = gamma, rule, workers, progress
        self.d, self.epsilon, self.iterations = problem.source.shape[1], 0.0, cast("list[int]", [])
        (X, a), (Y, b) = (problem.source, problem.a), (problem.target, problem.b)
        sides = [(X, a, Y, b, 1.0)] + ([(X, a, X, a, -0.5), (Y, b, Y, b, -0.5)] if debias else [])
        self.pairs = [_Coupling(*side, limits, workers, progress) for side in sides]

    def solve(self, A: Floats | None) -> float:
        """The objective at A, or for ½‖·‖² alone, and the couplings there."""
        gamma, epsilon = (0.0, 0.0) if A is None else (self.gamma, self.epsilon)
        iterations = 0
        for pair in self.pairs:
            epsilon = pair.solve(A, gamma, epsilon or self.rule)
            iterations += pair.iterations
        self.iterations.append(iterations)
        if A is not None:
            self.epsilon = epsilon
        return sum(pair.sign * pair.value for pair in self.pairs)

    @property
    def solved(self) -> bool:
        return all(pair.solved for pair in self.pairs)

    @property
    def noise(self) -> float:
        """What two values of the objective may differ by for no reason: duals are flat about their optimum."""
        return sum(10 * self.epsilon * pair.limits[0] ** 2 + 1e-12 * abs(pair.value) for pair in self.pairs)

    def moments(self, V: Floats) -> Floats:
        """S V, for vectors in columns."""
        return cast(Floats, sum(pair.sign * pair.moments(V) for pair in self.pairs))

    def direction(self, A: Floats) -> tuple[Floats, float, float]:
        """The step, how fast the objective falls along it, and the share of tr S in the span."""
        SA = self.moments(A.T).T
        M = SA @ A.T
        G = SA - M @ A
        sizes, axes = np.linalg.eigh(0.5 * (M + M.T))
        sizes = np.maximum(np.abs(sizes), 1e-3 * np.abs(sizes).max(initial=1e-300))
        D = (axes / sizes) @ axes.T @ G
        total = sum(pair.sign * pair.square for pair in self.pairs)
        return D, self.gamma * float(np.sum(D * G)), float(np.trace(M)) / total if total > 0 else 0.0

    def leading(self, k: int, rng: np.random.Generator) -> Floats:
        """The k leading eigenvectors of S, in rows."""
        if k == self.d:
            return np.eye(k)
        if self.d <= FEW:
            S = self.moments(np.eye(self.d))
            return np.ascontiguousarray(np.linalg.eigh(0.5 * (S + S.T))[1][:, : -k - 1 : -1].T)
        operator = LinearOperator((self.d, self.d), self._moment, dtype=np.float64)
        _, vectors = eigsh(operator, k=k, which="LA", v0=rng.normal(size=self.d), tol=1e-6)
        return _retract(vectors[:, ::-1].T)

    def _moment(self, v: Floats) -> Floats:
        return self.moments(v.reshape(-1, 1)).ravel()

    def ordered(self, A: Floats) -> Floats:
        """The same span, its axes by how much they move, each with its largest entry positive."""
        axes = np.linalg.eigh(A @ self.moments(A.T))[1][:, ::-1]
        A = axes.T @ A
        largest = np.take_along_axis(A, np.abs(A).argmax(axis=1)[:, None], axis=1)
        return np.asarray(A * np.sign(largest))


class _Coupling:
    """The coupling of two samples under the cost of a basis; ½‖x − y‖² is kept, what A changes is k-dimensional."""

    def __init__(
        self,
        X: Samples,
        a: Floats,
        Y: Samples,
        b: Floats,
        sign: float,
        limits: tuple[float, int],
        workers: Workers,
        progress: Progress,
    ) -> None:
        self.a, self.b, self.sign, self.limits, self.workers = a, b, sign, limits, workers
        self.report: Callable[[int, float], None] = progress.iteration
        self.X, self.Y = (rows.astype(np.float64).csr() if rows.is_sparse else rows.data for rows in (X, Y))
        self.half = np.empty((a.size, b.size))
        SqL2()._fill(X, Y, self.half, workers, progress.costs)
        self.plan = np.empty_like(self.half)  # holds the costs until they are solved for
        self.solution = cast("Solution | None", None)

    def solve(self, A: Floats | None, gamma: float, epsilon: float | EpsilonRule) -> float:
        """Potentials and coupling; returns the ε."""
        C = self._costs(A, gamma)
        costs, (tol, max_iter) = StoredCost(C), self.limits
        if isinstance(epsilon, EpsilonRule):
            steps = epsilon.resolve(costs, self.a, self.b, self.workers, _no_solver).steps
        else:
            steps = schedule(epsilon, float(self.a @ C @ self.b))
        near = None if self.solution is None else self.solution.g
        found = solve(
            costs,
            self.a,
            self.b,
            steps if near is None else steps[-1:],
            tol=tol,
            max_iter=max_iter,
            start=near,
            workers=self.workers,
        )
        self.solution, self.iterations = found, len(found.errors)
        self.solved = found.status is not Status.MAX_ITER
        self.value = float(self.a @ found.f + self.b @ found.g)
        self._couple(C, found)
        return found.epsilon

    def _costs(self, A: Floats | None, gamma: float) -> Floats:
        C = self.plan
        if A is None:
            C[:] = self.half
            return C
        u, w = (_samples(rows @ A.T) for rows in (self.X, self.Y))
        SqL2()._fill(u, w, C, self.workers)
        C *= -gamma
        C += (1 + gamma) * self.half
        return np.maximum(C, 0.0, out=C)

    def _couple(self, C: Floats, found: Solution) -> None:
        """The costs become the coupling, in place."""
        log_b = log_weights(self.b)

        def block(span: tuple[int, int]) -> float:
            rows = slice(*span)
            weights, potential = np.empty((span[1] - span[0], self.b.size)), np.empty(span[1] - span[0])
            softmin.gibbs(C[rows], found.g, log_b, found.epsilon, weights, potential)
            np.multiply(weights, self.a[rows, None], out=self.plan[rows])
            return 2 * float(np.vdot(self.plan[rows], self.half[rows]))

        self.square = sum(self.workers.map(block, StoredCost(C).spans()))
        self.column = self.plan.sum(axis=0)

    def moments(self, V: Floats) -> Floats:
        """Σ P_ij z zᵀ V, z = x_i − y_j."""
        u, w = self.X @ V, self.Y @ V
        left, right = self.a[:, None] * u - self.plan @ w, self.column[:, None] * w - self.plan.T @ u
        return cast(Floats, self.X.T @ left + self.Y.T @ right)


def _samples(rows: Floats) -> Samples:
    return Samples((rows.shape[0], rows.shape[1]), np.ascontiguousarray(rows, dtype=np.float64))


def _no_solver(epsilon: float, start: Floats | None) -> Solution:
    raise AssertionError("only a number of effective targets is found by solving")
