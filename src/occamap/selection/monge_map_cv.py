"""MongeMapCV: cost, γ, ε, ties and relaxation chosen on held-out samples."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from occamap import _draw
from occamap._memory import Budget
from occamap._optional import optional
from occamap._validate import check_count
from occamap._workers import Workers, count_jobs
from occamap.costs import L1
from occamap.errors import InputError, NotConvergedWarning, SelectionWarning
from occamap.maps import MongeMap
from occamap.maps.monge_map import TIES
from occamap.maps.problem import Problem, check_problem
from occamap.maps.progress import Progress
from occamap.scale import given_client
from occamap.selection.diagnostics import NOTHING
from occamap.selection.plan import Cell, Plan, Search, check_search
from occamap.selection.results import collect, diagnose, table
from occamap.selection.rules import ONE_SPLIT, check_rule, choose, frontier
from occamap.selection.run import run_splits
from occamap.selection.scoring import check_projection
from occamap.selection.splits import Split, check_splits
from occamap.sinkhorn import CostFamily

COUNT = 10


class MongeMapCV(BaseEstimator):
    """A Monge map whose cost, γ, ε, ties and relaxation are chosen by how well it moves held-out samples.

    Both samples are split; each candidate is fitted on the train parts and moves the held-out source samples; its
    score is the Sinkhorn divergence between them and the held-out targets (½‖·‖², ε = 0.1 × the mean cost among these
    targets). The costs of all pairs are computed once for all splits, γ and ε. The chosen candidate is then fitted on
    all samples.

    Parameters
    ----------
    cost
        `L1`, `STVS`, an instance whose other parameters are kept, such as `KOverlap(1.0, k=10)`, or a list of those.
    gammas
        Rising strengths, 0 being ½‖z‖² alone; or how many the default grid of each cost is to have (10): evenly spaced
        in log γ over the range in which γ makes a difference, as for `gamma_path`, at the smallest or largest ε.
    epsilon, epsilon_scale
        One or several ε, each as for `MongeMap`: multiples of a statistic of the costs, or effective targets.
    ties, relax, pool
        One or several, each as for `MongeMap`; `pool` is None, "auto" or a number of neighbours.
    cv
        A number of folds; a scikit-learn splitter, such as `ShuffleSplit(10, test_size=0.2, random_state=0)`; or a list
        of splits (train rows of X, test rows of X, train rows of Y, test rows of Y), for example by donor.
    rule
        "best", the lowest mean divergence; "one_se", the sparsest map within one standard error of it; "density", the
        most faithful at or below `max_density`; "pareto", all that no other beats in both: then `maps_` holds them, and
        `best_map_` is the most faithful. Candidates that did not converge in every split are listed, and never chosen.
    max_density
        With rule="density": the largest mean share of entries of the held-out samples that may move.
    projection
        Where divergences are measured: on so many principal components of the train samples (where there are more
        features than that), by a transformer that is fitted on them, or, if None, on the features as they are.
    reach, tol, max_iter, max_memory
        As for `MongeMap`.
    n_jobs
        Threads; all cores if None or -1. Splits run side by side. The result does not depend on it.
    random_state
        Seed of the folds, of the principal components and of the targets drawn for the floor; a splitter or a
        transformer that you give has its own.
    verbose
        Show progress; None shows it on a terminal, when it takes more than two seconds.

    Attributes
    ----------
    best_map_
        The `MongeMap` fitted on all samples; `transform` and `displacement` are its own.
    gamma_, best_params_, best_index_
        What was chosen, and its row in `results_`.
    results_
        A row a candidate: means over the splits, standard errors, each split's divergence, status.
    diagnostics_
        The chosen map beside the identity, the mean shift and the floor; print it. Splits that you give may hold out
        groups, such as donors, whose targets differ: there is no floor then.
    frontier_, maps_
        Rows of `results_` than which no other is both sparser and more faithful, and their maps ("pareto").
    n_splits_, n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> import numpy as np, occamap as oc
    >>> X = np.random.default_rng(0).normal(size=(60, 8))
    >>> Y = np.random.default_rng(1).normal(size=(80, 8)) + 3 * np.eye(8)[0]
    >>> cv = oc.MongeMapCV(gammas=[0.0, 1.0, 4.0], epsilon=[0.03, 0.1], cv=3).fit(X, Y)
    >>> bool(cv.best_map_.displacement(X).nnz < cv.results_["mean_density"].max() * X.size)
    True
    """

    def __init__(
        self,
        cost: Any = L1,
        gammas: ArrayLike | int | None = None,
        epsilon: Any = (0.003, 0.01, 0.03, 0.1),
        epsilon_scale: str = "mean",
        ties: Any = "zero",
        relax: Any = (0.0, 1.0),
        cv: Any = 5,
        rule: str = "one_se",
        max_density: float | None = None,
        projection: Any = 50,
        reach: float | None = None,
        tol: float = 1e-4,
        max_iter: int = 2000,
        max_memory: int | str | None = None,
        n_jobs: int | None = None,
        random_state: int | None = 0,
        verbose: bool | None = None,
        pool: Any = None,
    ) -> None:
        self.cost = cost
        self.gammas = gammas
        self.epsilon = epsilon
        self.epsilon_scale = epsilon_scale
        self.ties = ties
        self.relax = relax
        self.cv = cv
        self.rule = rule
        self.max_density = max_density
        self.projection = projection
        self.reach = reach
        self.tol = tol
        self.max_iter = max_iter
        self.max_memory = max_memory
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.pool = pool

    # -- choosing ----------------------------------------------------------------------------------------------

    def fit(
        self, X: Any, Y: Any, a: ArrayLike | None = None, b: ArrayLike | None = None, client: Any = None
    ) -> MongeMapCV:
        """Evaluate the grid on splits of X (source) and Y (target), choose, and fit the choice on all samples.

        `a` and `b` are sample weights. `client` is a `dask.distributed.Client`, whose workers then share the splits.
        """
        search = self._check_parameters()
        held_out = 1 / self.cv if isinstance(self.cv, int) and self.cv > 1 else 0.5
        given, what = (count_jobs(self.n_jobs), held_out), "choosing a map by held-out samples"
        problem = check_problem(
            X, Y, a, b, search.costs(), self.max_memory, lambda X, Y: sum(search.least_bytes(X, Y, *given)), what
        )
        splits = check_splits(self.cv, problem.a.size, problem.b.size, self.random_state)
        _check_masses(problem, splits)
        if self.rule == "one_se" and len(splits) < 2:
            raise InputError(ONE_SPLIT)
        if client is not None:
            given_client(client)
        self._forget()
        seed = int(np.random.SeedSequence(self.random_state).generate_state(3)[2])
        budget = Budget(self.max_memory, problem.lent)
        least = search.least_bytes(problem.source, problem.target, *given)
        with Workers(self.n_jobs) as workers, Progress(self.verbose) as progress:
            plan = search.plan(problem, self.projection, seed, budget, least, workers, progress)
            scores = run_splits(plan, splits, self.n_jobs, progress, client)
            self.results_, self.n_splits_ = collect(plan, scores), len(splits)
            self._cells, self._problem, self._shared = plan.cells(), problem, self._like().get_params(deep=False)
            rows = table(self.results_)
            self.frontier_ = frontier(rows)
            why = next((text for text in self.results_["message"] if text), "")
            self.best_index_ = choose(rows, self.rule, self.max_density, why)
            alike = isinstance(self.cv, int | np.integer) or hasattr(self.cv, "split")
            self.diagnostics_ = diagnose(self.results_, scores, self.best_index_, choose(rows, "best"), alike)
            self._refit(plan, workers)
        if not self.diagnostics_.differs:
            warnings.warn(NOTHING, SelectionWarning, stacklevel=2)
        return self

    def select(self, rule: str, max_density: float | None = None) -> MongeMap:
        """The map that another rule would choose, fitted on all samples; the evaluation is not run again.

        Attributes stay those of the rule that was fitted. "pareto" gives its most faithful map, as `best_map_` is.

        >>> import numpy as np, occamap as oc
        >>> rng = np.random.default_rng(0)
        >>> X, Y = rng.normal(size=(2, 60, 4)) + [[[0.0] * 4], [[3.0, 0.0, 0.0, 0.0]]]
        >>> cv = oc.MongeMapCV(oc.L1, gammas=[0.1, 2.0], epsilon=0.1, cv=3, projection=None).fit(X, Y)
        >>> cv.select("density", max_density=0.7).cost
        L1(gamma=2.0, weights=None)
        """
        check_is_fitted(self, "results_")
        check_rule(rule, max_density)
        cell = self._cells[choose(table(self.results_), rule, max_density)]
        source, target = self._problem.source, self._problem.target
        with Workers(self.n_jobs) as workers:
            budget = Budget(self.max_memory, self._problem.lent)
            family = CostFamily(cell.cost, source, target, None, None, budget).unfrozen()
            return self._fit_cell(cell, family, workers)

    def _forget(self) -> None:
        """Drop what an earlier fit has left: a fit that fails must not leave a mixture of two."""
        for name in [name for name in vars(self) if name.endswith("_") or name in ("_cells", "_problem", "_shared")]:
            delattr(self, name)

    def _refit(self, plan: Plan, workers: Workers) -> None:
        def fitted(row: int) -> MongeMap:
            return self._fit_cell(self._cells[row], plan.families[plan.family_index(row)], workers)

        self.best_map_ = fitted(self.best_index_)
        names = "cost", "epsilon", "ties", "relax", "pool"
        self.best_params_ = {name: getattr(self.best_map_, name) for name in names}
        self.gamma_ = self._cells[self.best_index_].gamma
        self.n_features_in_ = self.best_map_.n_features_in_
        if self._problem.names is not None:
            self.feature_names_in_ = self._problem.names
        if self.rule == "pareto":
            self.maps_ = [fitted(row) for row in self.frontier_]

    def _fit_cell(self, cell: Cell, family: CostFamily, workers: Workers) -> MongeMap:
        """The map of one candidate on all samples."""
        begun, problem = time.perf_counter(), self._problem
        chosen = {"cost": cell.cost, "epsilon": cell.solver.rule.value, "ties": TIES[cell.ties], "relax": cell.relax}
        chosen["pool"] = cell.pool
        fitted = MongeMap(**{**self._shared, **chosen})
        costs = family.at(cell.gamma, workers)
        solution = cell.solver(costs, problem.a, problem.b, workers)
        seconds = time.perf_counter() - begun
        fitted._conclude(cell.cost, problem, solution, cell.solver, seconds, costs.place)
        if not fitted.converged_:
            warnings.warn(fitted.report_.message, NotConvergedWarning, stacklevel=4)
        return fitted

    # -- using -------------------------------------------------------------------------------------------------

    def displacement(self, X: Any) -> sp.csr_array:
        """Δ(x) of each row under the chosen map, as CSR that stores what moves and nothing else."""
        check_is_fitted(self, "best_map_")
        return self.best_map_.displacement(X)

    def transform(self, X: Any) -> Any:
        """x + Δ(x) of each row under the chosen map, in the container of X."""
        check_is_fitted(self, "best_map_")
        return self.best_map_.transform(X)

    def inverse_transform(self, Y: Any) -> Any:
        """The chosen map back, of each row, in the container of Y."""
        check_is_fitted(self, "best_map_")
        return self.best_map_.inverse_transform(Y)

    def save(self, path: Any) -> None:
        """Write the chosen map to one file, as `MongeMap.save` does; `occamap.load` reads it."""
        check_is_fitted(self, "best_map_")
        self.best_map_.save(path)

    def to_frame(self) -> Any:
        """`results_` as a pandas data frame."""
        check_is_fitted(self, "results_")
        return optional("pandas", "to_frame").DataFrame(self.results_)

    def plot(self, ax: Any = None) -> Any:
        """Divergence against density of all candidates, with the frontier, the choice and the baselines."""
        check_is_fitted(self, "best_map_")
        lines = self.diagnostics_
        baselines = {line.what: line.divergence for line in (lines.identity, lines.mean_shift, lines.floor)}
        rows = table(self.results_)
        return _draw.frontier(
            rows.divergence,
            rows.error,
            rows.density,
            rows.converged,
            self.results_["epsilon_rule"],
            self.frontier_,
            self.best_index_,
            baselines,
            ax,
        )

    # -- details -----------------------------------------------------------------------------------------------

    def _like(self) -> MongeMap:
        """An unfitted map with the parameters that all candidates share."""
        names = "epsilon_scale", "reach", "tol", "max_iter", "max_memory", "n_jobs"
        return MongeMap(epsilon=1.0, **{name: getattr(self, name) for name in names})

    def _check_parameters(self) -> Search:
        check_rule(self.rule, self.max_density)
        check_projection(self.projection)
        if self.random_state is not None:
            check_count(self.random_state, "random_state", 0)
        given = self.cost, self.gammas, self.epsilon, self.ties, self.relax, self.pool
        return check_search(*given, COUNT, self._like())


def _check_masses(problem: Problem, splits: list[Split]) -> None:
    def has_mass(weights: NDArray[np.float64], *parts: NDArray[np.int64]) -> bool:
        return all(weights[part].sum() > 0 for part in parts)

    for k, split in enumerate(splits):
        if not has_mass(problem.a, split.source_train, split.source_test):
            raise InputError(f"a must leave mass in the train and in the test part of every split; split {k} has none")
        if not has_mass(problem.b, split.target_train, split.target_test):
            raise InputError(f"b must leave mass in the train and in the test part of every split; split {k} has none")
