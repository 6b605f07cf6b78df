"""Barycenters of measures under any cost: a free support that lowers the weighted mean of the transport costs.

For fixed couplings the mean cost is Σ_i a_i q_i(x_i) with q_i(x) = Σ_k λ_k Σ_j p^k_j(x_i) h(x − y^k_j), convex, and it
lies above the functional, which takes the best couplings. So minimising each q_i and solving the couplings again never
goes up, whatever the kinks of h. The step x − ∇h*(Σ_k λ_k ∇f_k(x)) of the maps does not serve here: it stays where
the field lies within a kink of 0, and that need not be a minimum.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from occamap._containers import is_anndata, is_frame
from occamap._validate import (
    Samples,
    check_count,
    check_number,
    check_reals,
    check_same_features,
    check_samples,
    check_weights,
    restore,
)
from occamap._workers import Workers
from occamap.barycenters.minimum import minimiser, pool
from occamap.costs import Cost
from occamap.errors import InputError, NotConvergedWarning
from occamap.maps import MongeMap
from occamap.maps.progress import Progress
from occamap.sinkhorn import EpsilonRule, Report, Status

Floats = NDArray[np.float64]

UNUSED = {
    "ties": "the minimum at a kink is exact",
    "relax": "nothing is shrunk by a prox",
    "reach": "all mass is transported",
    "debias": "nothing is moved by a map",
    "pool": "nothing is moved by a map",
    "match": "points are matched under the cost",
    "within": "points have no labels",
    "warm_start": "every step starts from the potentials before it",
}


@dataclass(frozen=True)
class Barycenter:
    """A measure on free points, and how it was found.

    `values` holds Σ_k λ_k OT_ε(X, Y_k) at the start and after each step, and never rises; `epsilon` is the ε of all
    of them; `reports` how the last solve against each measure ended. `spread` is the total
    variance of the barycenter over the mean of those of the measures: near 0, ε has pulled the points together.

    >>> import occamap as oc
    >>> found = oc.barycenter([[[0.0, 0.0]], [[2.0, 4.0]]], oc.SqL2())
    >>> found.support.tolist(), found.weights.tolist(), found.converged
    ([[1.0, 2.0]], [0.5, 0.5], True)
    """

    support: Any = field(repr=False)
    masses: Floats = field(repr=False)
    weights: Floats
    values: tuple[float, ...] = field(repr=False)
    epsilon: float
    spread: float
    reports: tuple[Report, ...] = field(repr=False)
    n_iter: int
    converged: bool
    message: str

    @property
    def value(self) -> float:
        """Σ_k λ_k OT_ε(X, Y_k) of the support."""
        return self.values[-1]


def barycenter(
    measures: Iterable[Any],
    cost: Cost,
    weights: ArrayLike | None = None,
    *,
    n_points: int | None = None,
    masses: ArrayLike | None = None,
    init: Any = None,
    max_steps: int = 100,
    step_tol: float = 1e-6,
    random_state: int | None = 0,
    verbose: bool | None = None,
    **map_parameters: Any,
) -> Barycenter:
    """The measure Σ_i a_i δ_{x_i} whose weighted mean of entropic transport costs to the measures is lowest.

    Each step finds the couplings P^k of the support with every measure, then moves each point to the minimum of
    Σ_k λ_k Σ_j P^k_ij h(x − y^k_j). The functional is not convex in the support: another start may end elsewhere.

    Parameters
    ----------
    measures
        Samples Y_k with the same features, dense or sparse, or pairs (Y_k, b_k) with weights of the samples.
    cost
        `SqL2`, `L1`, `STVS`; any other (`GroupLasso`, `Subspace`, `KOverlap`) takes about ten times as long as `L1`, or
        more, with hundreds of features. Features that it freezes stay as they are in the start.
    weights
        λ_k ≥ 0, one a measure, scaled to sum to one; uniform if None.
    n_points, masses
        Points of the support, as many as the smallest measure has samples if None, and their masses; uniform if None.
    init
        The points to start from, one a row; if None, samples drawn from the measure with the largest weight (the
        first of them), and from the others too where it has too few.
    max_steps, step_tol
        Stop after so many steps, or once one lowers the value by no more than this share of it.
    random_state
        Seed of the draw.
    verbose
        Show progress on stderr; None shows it on a terminal, when it takes more than two seconds.
    map_parameters
        Of `MongeMap`: epsilon, epsilon_scale, tol, max_iter, max_memory, n_jobs. One ε serves all steps and measures:
        the mean of what the rule gives for the costs within each. It pulls the points together; 0.01 if not given.

    Returns
    -------
    A `Barycenter`: `support` (one point a row), their `masses`, the `weights` λ, `values` of the functional at each
    step and the last as `value`, `epsilon`, `spread` beside that of the measures, `reports` (one a measure), `n_iter`,
    `converged`, `message`.

    Examples
    --------
    >>> import numpy as np, occamap as oc
    >>> low, high = np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([[4.0, 0.0], [5.0, 0.0]])
    >>> found = oc.barycenter([low, high], oc.SqL2(), [0.75, 0.25])
    >>> found.support.round(3).tolist()
    [[1.0, 0.0], [2.0, 0.0]]
    """
    for name in map_parameters.keys() & UNUSED.keys():
        got = map_parameters[name]
        raise InputError(f"{name} must not be given for a barycenter, where {UNUSED[name]}; got {got!r}")
    check_count(max_steps, "max_steps")
    check_number(step_tol, "step_tol", 0)
    if not isinstance(cost, Cost):
        raise InputError(f"cost must be a cost such as L1(1.0); got {cost!r}")
    targets, shares = _check_measures(measures)
    lambdas = _check_lambdas(weights, len(targets))
    if random_state is not None:
        check_count(random_state, "random_state", 0)
    start = _check_start(init, n_points, targets, shares, lambdas, random_state)
    cost._check_features(start.shape[1])
    held = check_weights(masses, start.shape[0], "masses")
    model = MongeMap(cost, **{"epsilon": 0.01, **map_parameters})
    with Progress(verbose) as progress:
        descent = _Descent(model, targets, shares, lambdas, held, progress)
        return descent.run(start, max_steps, step_tol)


class _Descent:
    """Couplings and points in turn."""

    def __init__(
        self,
        model: MongeMap,
        targets: list[Samples],
        shares: list[Floats],
        lambdas: Floats,
        masses: Floats,
        progress: Progress,
    ) -> None:
        self.cost, self.n_jobs, self.progress = cast(Cost, model.cost), model.n_jobs, progress
        self.targets, self.shares, self.lambdas, self.masses = targets, shares, lambdas, masses
        self.frozen = self.cost._frozen(targets[0].shape[1])
        self.inner = minimiser(self.cost, [target.without(self.frozen) for target in targets])
        self.epsilon = self._find_epsilon(model)
        held = {"epsilon": self.epsilon, "epsilon_scale": "absolute", "warm_start": True}
        self.models = [clone(model).set_params(**held) for _ in targets]

    def _find_epsilon(self, model: MongeMap) -> float:
        """The weighted mean of the ε that the rule gives within each measure; among all of them if each is a point."""
        if model.epsilon_scale == "absolute":
            return EpsilonRule(model.epsilon, "absolute").value
        varied = [k for k, target in enumerate(self.targets) if self.lambdas[k] > 0 and _varies(target, self.shares[k])]
        if varied:
            return float(sum(self.lambdas[k] * _epsilon(model, self.targets[k], self.shares[k]) for k in varied))
        pooled = check_samples(pool(self.targets), "measures")
        masses = [share * b for share, b in zip(self.lambdas, self.shares, strict=True)]
        return _epsilon(model, pooled, np.concatenate(masses))

    def run(self, start: Samples, max_steps: int, step_tol: float) -> Barycenter:
        support, values = start, [self._couple(start)]
        reports = self._reports()
        steps, settled = 0, False
        while steps < max_steps and not settled:
            self.progress.note(f"step {steps + 1}, mean transport cost {values[-1]:.6g}")
            moved = self._move(support)
            value, steps = self._couple(moved), steps + 1
            settled = values[-1] - value <= step_tol * abs(values[-1])
            if value <= values[-1]:
                support, reports = moved, self._reports()
                values.append(value)
        return self._conclude(support, values, reports, steps, settled, step_tol)

    def _couple(self, support: Samples) -> float:
        """Solve the couplings; the weighted mean of the dual values."""
        values = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotConvergedWarning)  # said once, of the result
            for model, target, b in zip(self.models, self.targets, self.shares, strict=True):
                given = _rows(support), _rows(target), self.masses, b
                warm = hasattr(model, "g_")
                if warm and not model.fit(*given).converged_:  # the support has gone far: let ε come down in steps
                    del model.g_
                    warm = False
                if not warm:
                    model.fit(*given)
                values.append(float(model.a_ @ model.f_ + model.b_ @ model.g_))
        return float(self.lambdas @ values)

    def _move(self, support: Samples) -> Samples:
        """Each point to the minimum of its mean cost under the couplings."""
        pairs = zip(self.lambdas, self.models, strict=True)
        parts = [share * model.weights(_rows(support)).T for share, model in pairs]
        with Workers(self.n_jobs) as workers:
            moved = self.inner.minimum(np.concatenate(parts), support.without(self.frozen), workers)
        if self.frozen.any():
            kept = support.without(~self.frozen)
            moved = sp.csr_array(moved + kept.csr()) if kept.is_sparse else moved + kept.data
        return check_samples(moved, "support")

    def _reports(self) -> tuple[Report, ...]:
        return tuple(model.report_ for model in self.models)

    def _conclude(
        self,
        support: Samples,
        values: list[float],
        reports: tuple[Report, ...],
        steps: int,
        settled: bool,
        step_tol: float,
    ) -> Barycenter:
        poor = [k for k, report in enumerate(reports) if report.status is not Status.CONVERGED]
        message = f"Converged: the last step lowered the value by at most {step_tol:g} of it."
        if not settled:
            message = (
                f"Not converged: after max_steps={steps} steps the value still falls by more than {step_tol:g} of it a "
                "step: raise max_steps, or accept it by a larger step_tol."
            )
        if poor:
            message = f"The couplings with measure {poor[0]} are not solved. {reports[poor[0]].message}"
        each = [_variance(target, b) for target, b in zip(self.targets, self.shares, strict=True)]
        own = float(self.lambdas @ each)
        spread = _variance(support, self.masses) / own if own > 0 else 1.0
        if not settled or poor:
            warnings.warn(message, NotConvergedWarning, stacklevel=4)
        return Barycenter(
            support=_like_first(support, self.targets),
            masses=self.masses,
            weights=self.lambdas,
            values=tuple(values),
            epsilon=self.epsilon,
            spread=spread,
            reports=reports,
            n_iter=steps,
            converged=settled and not poor,
            message=message,
        )


# -- what comes in and goes out ----------------------------------------------------------------------------------------


def _check_measures(measures: Iterable[Any]) -> tuple[list[Samples], list[Floats]]:
    if hasattr(measures, "shape") or isinstance(measures, str | bytes) or not isinstance(measures, Iterable):
        raise InputError(f"measures must be a list of samples; got {type(measures).__name__}")
    given = list(measures)
    if not given:
        raise InputError("measures must hold at least one measure; got none")
    targets: list[Samples] = []
    shares: list[Floats] = []
    for k, measure in enumerate(given):
        raw, b = measure if isinstance(measure, tuple) and len(measure) == 2 else (measure, None)
        samples = check_samples(raw, f"measures[{k}]")
        if targets:
            check_same_features(samples, f"measures[{k}]", targets[0].shape[1], targets[0].names, "measures[0]")
        targets.append(samples)
        shares.append(check_weights(b, samples.shape[0], f"the weights of measures[{k}]"))
    return targets, shares


def _check_lambdas(raw: ArrayLike | None, count: int) -> Floats:
    if raw is not None and check_reals(raw, "weights").shape != (count,):
        shape = check_reals(raw, "weights").shape
        raise InputError(f"weights must be one number a measure, shape ({count},); got shape {shape}")
    return check_weights(raw, count, "weights")


def _check_start(
    init: Any, n_points: int | None, targets: list[Samples], shares: list[Floats], lambdas: Floats, seed: int | None
) -> Samples:
    if init is not None:
        start = check_samples(init, "init")
        check_same_features(start, "init", targets[0].shape[1], targets[0].names, "measures[0]")
        if n_points is not None and check_count(n_points, "n_points") != start.shape[0]:
            raise InputError(f"n_points must be the number of rows of init, {start.shape[0]}, or None; got {n_points}")
        return start.astype(np.float64)
    n = min(target.shape[0] for target in targets) if n_points is None else check_count(n_points, "n_points")
    return _draw(n, targets, shares, lambdas, np.random.default_rng(seed))


def _draw(
    n: int, targets: list[Samples], shares: list[Floats], lambdas: Floats, rng: np.random.Generator
) -> Samples:
    """Different samples, by their masses, of the measure with the largest weight, then of those that come next."""
    chosen: list[Samples] = []
    for k in np.argsort(-lambdas, kind="stable"):
        held = int(np.count_nonzero(shares[k]))
        take = min(n, held)
        rows = np.sort(rng.choice(shares[k].size, size=take, replace=False, p=shares[k]))
        chosen.append(targets[k].take(rows).astype(np.float64))
        n -= take
        if n == 0:
            break
    if n > 0:
        total = sum(int(np.count_nonzero(b)) for b in shares)
        most = f"the {total} samples with mass to start from"
        raise InputError(f"n_points must be at most {most}; got {total + n}: give init")
    if all(piece.is_sparse for piece in chosen):
        return check_samples(sp.csr_array(sp.vstack([piece.csr() for piece in chosen])), "init")
    return check_samples(np.concatenate([piece.dense() for piece in chosen]), "init")


def _like_first(support: Samples, targets: list[Samples]) -> Any:
    """The support in the container of the first measure; dense where one of them is."""
    first = targets[0]
    sparse = all(target.is_sparse for target in targets)
    raw = first.template
    values: Any = support.csr().astype(first.dtype) if sparse else support.dense().astype(first.dtype)
    if is_anndata(raw):
        return type(raw)(sp.csr_matrix(values) if sparse else values, var=raw.var.copy())
    if is_frame(raw):
        make = type(raw).sparse.from_spmatrix if sparse else type(raw)
        return make(values, columns=raw.columns)
    return restore(values, first) if sparse or not first.is_sparse else values


def _rows(samples: Samples) -> Any:
    return samples.csr() if samples.is_sparse else samples.data


def _epsilon(model: MongeMap, samples: Samples, masses: Floats) -> float:
    """What the rule gives for the costs within one measure."""
    short = {} if model.epsilon_scale == "perplexity" else {"max_iter": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        fitted = clone(model).set_params(**short).fit(_rows(samples), _rows(samples), masses, masses)
    return float(fitted.epsilon_)


def _varies(samples: Samples, masses: Floats) -> bool:
    rows = samples.take(np.flatnonzero(masses)).csr()
    return bool((rows.max(axis=0) - rows.min(axis=0)).count_nonzero())


def _variance(samples: Samples, masses: Floats) -> float:
    """The mean square distance from the mean."""
    X = samples.csr().astype(np.float64)
    centre = masses @ X
    return max(float(masses @ np.asarray(X.multiply(X).sum(axis=1)).ravel()) - float(centre @ centre), 0.0)
