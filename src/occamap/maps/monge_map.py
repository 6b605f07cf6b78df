"""MongeMap: from two samples to exactly sparse displacements of any sample."""

from __future__ import annotations

import os
import time
import warnings
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from occamap import model_file
from occamap._containers import is_dask
from occamap._memory import Budget, peak
from occamap._validate import (
    Samples,
    check_choice,
    check_count,
    check_number,
    check_rate,
    check_same_features,
    check_samples,
    restore,
)
from occamap._workers import Workers, count_jobs
from occamap.costs import L1, Cost, SqL2
from occamap.errors import InfeasibleError, InputError, NotConvergedWarning
from occamap.inference import FEWEST_REPLICATES
from occamap.maps import debias, saved
from occamap.maps.components import components_bytes
from occamap.maps.debias import DebiasedSide, OwnSide
from occamap.maps.evidence import ScoredSide, Threshold
from occamap.maps.here import solve_here
from occamap.maps.later import moved_later, moved_on_cluster
from occamap.maps.matching import Coordinates, MatchingSpace, as_samples, check_match, learn_coordinates
from occamap.maps.neighbourhoods import (
    JointPool,
    JointSpace,
    NeighbourhoodReport,
    check_pool,
    describe_neighbourhoods,
)
from occamap.maps.on_cluster import RemoteSamples, solve_on_cluster
from occamap.maps.pooling import Neighbourhoods, PooledSide
from occamap.maps.problem import Problem, check_problem
from occamap.maps.progress import Progress
from occamap.maps.replicates import Replicates, centred
from occamap.maps.room import map_bytes
from occamap.maps.side import Side
from occamap.maps.strata import Strata, check_within
from occamap.sinkhorn import EpsilonRule, Report, Solution, Solver, Status
from occamap.sinkhorn.solution import describe

Floats = NDArray[np.float64]

TIES = ("zero", "occam")


class MongeMap(BaseEstimator):
    """The entropic Monge map between two samples for a cost h = ½‖·‖² + τ, with feature-sparse displacements.

    A sample x moves by Δ(x) = −prox_τ(∇f_ε(x)), where f_ε is the entropic dual potential: exactly 0 in the
    features that need not move, and not in the same ones for every x.

    Parameters
    ----------
    cost
        `SqL2`, `L1`, `STVS`, `KOverlap`, `GroupLasso` or `Subspace`; `L1(1.0)` if not given.
    epsilon, epsilon_scale
        The entropic regularisation: `epsilon` × the "mean", "median", "std" or "max" of the costs, the number
        itself ("absolute"), or the ε at which a sample has `epsilon` effective targets on average ("perplexity").
        The effective number of targets of x is exp of the entropy of its `weights`. If the samples do not allow that
        number, a nearby one is used, and `report_.epsilon_rule` says which and why: with equal weights, a sample
        has at least m/n effective targets, m and n being the rows of Y and X, and fewer than m.
    ties
        Where x and targets agree in a feature, τ has a kink: "zero" takes sign(0) = 0, "occam" the element of
        the sub-differential that moves least.
    relax
        From 0 to 1, how much of the penalty's shrinkage is undone on the features it chose.
    reach
        Unbalanced transport: marginals may differ, at `reach` times their Kullback-Leibler divergence; in units of
        the cost, so compare it with the mean cost. `report_.mass` is the mass that is left.
    tol, max_iter
        Stop at this marginal error (Σ_j |mass at y_j − b_j|), or after so many iterations.
    max_memory
        Bytes, or a size such as "2GB", that the process is to stay within, beside the arrays that you pass. Where the
        costs of all pairs do not fit, they are kept in float32 (if the tolerance allows that), on disk, or computed
        again in each pass, whichever is faster; `report_` says which. None: the costs may take most of the memory that
        the machine has left.
    n_jobs
        Threads; all cores if None or -1. The result does not depend on it.
    verbose
        Show progress on stderr: costs, iterations, samples moved; None shows it on a terminal, when it takes more than
        two seconds.
    warm_start
        Start from the potentials of the previous fit, if there are as many targets.
    debias
        Deprecated: use `pool`. Leave out moves that the source samples make towards one another.
    pool
        Which fitted source samples the field is averaged over before the prox is taken. None: the sample itself, as in
        the paper. An integer k: the k nearest source samples, in the joint space of a sample and where it goes.
        "auto": k is chosen from the data. An array with a label for each source sample: those with the same label. A
        row-stochastic matrix over the source samples: its weights. With labels or a matrix, a new sample takes the
        neighbourhood of the nearest fitted one. Like `relax` and `ties`, it is read when samples are moved: one fit
        serves every resolution.
    match
        Where samples are matched. None: in all features, under `cost`, as in the paper. An integer: on that many
        principal components of both samples. A transformer with `fit` and `transform`: on its output. A pair of
        arrays: on these coordinates of X and of Y. Except for None, the match is optimal for ½‖·‖² on the coordinates,
        displacements are read under `cost` in all features, and f_, g_, `potential`, `weights` and `plan` are those of
        the match.
    within
        A pair of arrays, a label for each row of X and of Y: samples are matched only with targets of the same label.
        The targets of a label get the total mass of the samples of X with that label, whatever their number. All labels
        share one ε, the median over the samples of the values that `epsilon_scale` gives for each label. Neighbours
        ("auto" or a number) are found among samples of the same label; labels or a matrix for `pool` are used as they
        are. `match` must not be None. Samples that were not fitted need labels: `transform(X, within=labels)`.
    fdr
        A false-discovery rate between 0 and 1, in place of a penalty of `cost`: a feature of a sample moves where the
        shift of its neighbourhood stands out from noise, so that of all moves (sample × feature) at most this share is
        expected to be false. The penalty is then a multiple of the standard error of each shift. It needs `pool` and
        `match`, and takes the samples as independent, unless there are replicates; `q_values` has the rate of each
        move. None: as `cost` says.
    replicate
        With `fdr`: a pair of arrays, the replicate (such as the donor) of each row of X and of Y, at least 3 in each.
        Moves are then tested against the differences between replicates, and hold for others of them. Replicates in
        both samples are paired. What is particular to a replicate is taken out of the coordinates of the fitted
        samples before they are matched; other samples are moved as if they came from no replicate in particular.

    Attributes
    ----------
    f_, g_
        Dual potentials at the fitted samples, relative to the product measure.
    epsilon_, reach_, converged_, n_iter_
        The ε and reach used, whether the tolerance was met, iterations.
    threshold_
        With `fdr`: the score that a move needs (`critical`, a z-score), and how many entries were tested
        (`n_tested`).
    report_
        Status and what to do, error by iteration, effective targets, seconds, memory.
    n_features_in_, feature_names_in_
        The latter where X or Y was a data frame.

    Examples
    --------
    >>> import numpy as np, occamap as oc
    >>> X = np.random.default_rng(0).normal(size=(50, 5))
    >>> Y = np.random.default_rng(1).normal(size=(60, 5)) + [3, 0, 0, 0, 0]
    >>> m = oc.MongeMap(oc.L1(2.0)).fit(X, Y)
    >>> (m.displacement(X) != 0).mean(axis=0).round(1).tolist()  # the share of samples that each feature moves in
    [1.0, 0.3, 0.4, 0.1, 0.4]
    """

    def __init__(
        self,
        cost: Cost | None = None,
        epsilon: float = 0.1,
        epsilon_scale: str = "mean",
        ties: str = "zero",
        relax: float = 0.0,
        reach: float | None = None,
        tol: float = 1e-4,
        max_iter: int = 2000,
        max_memory: int | str | None = None,
        n_jobs: int | None = None,
        verbose: bool | None = False,
        warm_start: bool = False,
        debias: bool = False,
        pool: Any = None,
        match: Any = None,
        within: Any = None,
        fdr: float | None = None,
        replicate: Any = None,
    ) -> None:
        self.cost = cost
        self.epsilon = epsilon
        self.epsilon_scale = epsilon_scale
        self.ties = ties
        self.relax = relax
        self.reach = reach
        self.tol = tol
        self.max_iter = max_iter
        self.max_memory = max_memory
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.warm_start = warm_start
        self.debias = debias
        self.pool = pool
        self.match = match
        self.within = within
        self.fdr = fdr
        self.replicate = replicate

    # -- learning ----------------------------------------------------------------------------------------------

    def fit(
        self, X: Any, Y: Any, a: ArrayLike | None = None, b: ArrayLike | None = None, client: Any = None
    ) -> MongeMap:
        """Learn the map from samples X (source) to Y (target), with sample weights a and b (uniform if None).

        X and Y may have different numbers of rows. The map keeps copies of both, unless they are read-only.

        If X is a Dask array (dense, or of SciPy matrices) or `client`, a `dask.distributed.Client`, is given, the
        workers of that cluster hold X and the costs, in blocks of rows, and all of them Y; the result is the same. A
        Dask array stays where it is: what needs X itself later (`inverse_transform`, `plan`, `save`) computes it here.

        >>> import numpy as np, occamap as oc
        >>> oc.MongeMap(oc.L1(1.0)).fit(np.zeros((1, 3)), np.array([[0.0, 0.0, 5.0]])).converged_
        True
        """
        begun = time.perf_counter()
        cost, solver = self._check_parameters()
        matched = None
        with Progress(self.verbose) as progress:
            if self.match is not None:
                problem = self._check_problem(cost, X, Y, a, b)
                strata = self._check_strata(problem)
                if strata is not None:
                    problem = strata.balanced(problem)
                cluster = None if client is None else (client, a, b)
                matched, solution, place, why = self._solve_match(cost, solver, problem, strata, cluster, progress)
            elif client is not None or is_dask(X):
                given = cost, solver, X, Y, a, b, client, self.max_memory
                problem, solution, place, why = solve_on_cluster(*given, self._near, progress)
            else:
                problem = self._check_problem(cost, X, Y, a, b)
                given_here = self.max_memory, self.n_jobs, self._near(problem), progress
                solution, place, why = solve_here(cost, solver, problem, *given_here)
        check_pool(self.pool, problem.a.size)
        self._conclude(cost, problem, solution, solver, time.perf_counter() - begun, place, why, matched)
        if not self.converged_:
            warnings.warn(self.report_.message, NotConvergedWarning, stacklevel=2)
        if self.fdr is not None:
            self._calibrate()
        return self

    def _check_problem(self, cost: Cost, X: Any, Y: Any, a: ArrayLike | None, b: ArrayLike | None) -> Problem:
        if is_dask(X):
            raise InputError("match must be None for a Dask array, whose coordinates would have to be computed here")
        threads, what = count_jobs(self.n_jobs), "fitting a map, and moving some samples at a time,"

        def need(source: Samples, target: Samples) -> float:
            within = debias.own_bytes(source.shape[0]) if self.debias else 0.0
            if isinstance(self.match, int | np.integer):
                within += components_bytes([source, target], int(self.match))
            return within + map_bytes(cost, target, threads)

        return check_problem(X, Y, a, b, [cost], self.max_memory, need, what)

    def _check_strata(self, problem: Problem) -> Strata | None:
        """The groups that samples are matched within, if there are any."""
        return None if self.within is None else Strata.of(self.within, problem.a.size, problem.b.size)

    def _solve_match(
        self, cost: Cost, solver: Solver, problem: Problem, strata: Strata | None, cluster: Any, progress: Progress
    ) -> tuple[Coordinates, Solution, str, str]:
        """The coordinates to match on, the potentials of the match, where its costs were, and why.

        `cluster` is a client with the masses of all samples as they were given, if it is to do the work.
        """
        frozen = cost._frozen(problem.source.shape[1])
        pair = problem.source.without(frozen), problem.target.without(frozen)
        with Workers(self.n_jobs) as workers:
            matched = learn_coordinates(self.match, *pair, workers)
            U, V = (matched(side, workers, k) for k, side in enumerate(pair))
        if self.replicate is not None:
            found = Replicates.of(self.replicate, problem.a.size, problem.b.size)
            self._check_replicates(found)
            groups = (None, None) if strata is None else (strata.source, strata.target)
            U, V = centred(U, found.source, groups[0]), centred(V, found.target, groups[1])
            matched = replace(matched, given=((pair[0], U), (pair[1], V)))

        def solve(on: Problem, by: Solver, near: tuple[float, Floats] | None) -> tuple[Solution, str, str]:
            if cluster is None:
                return solve_here(SqL2(), by, on, self.max_memory, self.n_jobs, near, progress)
            client, a, b = cluster if strata is None else (cluster[0], on.a, on.b)
            given = SqL2(), by, on.source.data, on.target.data, a, b, client, self.max_memory
            return solve_on_cluster(*given, lambda _: near, progress)[1:]

        on = replace(problem, source=as_samples(U), target=as_samples(V))
        if strata is not None:
            return matched, *strata.solve(on, solver, solve)
        return matched, *solve(on, solver, self._near(problem))

    def _restricted(self, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> MongeMap:
        """An unfitted map with the same parameters, for these rows of X and of Y."""
        pool, match = check_pool(self.pool), self.match
        if isinstance(pool, sp.csr_array):
            among = sp.csr_array(pool[rows][:, rows])
            sums = np.asarray(among.sum(axis=1)).ravel()
            alone = sp.diags_array(np.where(sums > 0, 0.0, 1.0))
            pool = sp.csr_array(sp.diags_array(1 / np.where(sums > 0, sums, 1.0)) @ among + alone)
        elif isinstance(pool, np.ndarray):
            pool = pool[rows]
        if isinstance(match, tuple | list):
            match = np.asarray(match[0])[rows], np.asarray(match[1])[columns]
        within = self.within
        if within is not None:
            within = np.asarray(within[0])[rows], np.asarray(within[1])[columns]
        replicate = self.replicate
        if replicate is not None:
            replicate = np.asarray(replicate[0])[rows], np.asarray(replicate[1])[columns]
        return cast(MongeMap, clone(self).set_params(pool=pool, match=match, within=within, replicate=replicate))

    def _near(self, problem: Problem) -> tuple[float, Floats] | None:
        """Where to start, if it is from the previous fit."""
        if not self.warm_start or not hasattr(self, "g_") or self.g_.size != problem.b.size:
            return None
        return self.epsilon_, self.g_

    def _conclude(
        self,
        cost: Cost,
        problem: Problem,
        solution: Solution,
        solver: Solver,
        seconds: float,
        operator: str,
        choice: str = "",
        matched: Coordinates | None = None,
    ) -> None:
        """Store the solution and its report; `matched` are the coordinates of the match, if it has any."""
        if not np.isfinite([solution.error, solution.epsilon, solution.effective_targets]).all():
            largest = max(problem.source.largest(), problem.target.largest())
            raise InfeasibleError(
                f"the costs of samples as large as {largest:.3g} are too large to be compared: scale the samples first"
            )
        self._keep(cost, problem, solution, matched)
        self.report_ = Report(
            status=solution.status,
            message=describe(solution.status, solution.error, solver.tol, solver.max_iter),
            epsilon=solution.epsilon,
            epsilon_rule=solution.epsilon_rule or str(solver.rule),
            effective_targets=solution.effective_targets,
            n_targets=problem.target.shape[0],
            mass=1.0 if self.reach_ is None else float(self._row_masses().sum()),
            n_iter=len(solution.errors),
            error=solution.error,
            errors=solution.errors,
            tol=solver.tol,
            seconds=seconds,
            peak_memory=peak(),
            operator=operator,
            choice=choice,
        )
        self._set_outcome()

    def _keep(
        self,
        cost: Cost,
        problem: Problem,
        solution: Solution,
        matched: Coordinates | None = None,
        space: JointSpace | None = None,
    ) -> None:
        self.f_, self.g_, self.a_, self.b_ = solution.f, solution.g, problem.a, problem.b
        self.epsilon_, self.reach_ = solution.epsilon, self._checked_reach()
        self.n_features_in_ = problem.source.shape[1]
        if problem.names is not None:
            self.feature_names_in_ = problem.names
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        self._given: Samples | RemoteSamples = problem.source
        self._target, self._backward = problem.target, cast("Side | None", None)
        self._strata = self._check_strata(problem)
        self._replicates = None
        if self.replicate is not None:
            self._replicates = Replicates.of(self.replicate, problem.a.size, problem.b.size)
        self._fitted_with = {name: getattr(self, name) for name in ("match", "within", "reach", "replicate")}
        if self._strata is not None:
            self._given = replace(problem.source, strata=self._strata.source)
            self._target = replace(problem.target, strata=self._strata.target)
        self._lent = problem.lent
        self._own: dict[bool, OwnSide] = {}
        self._calibrated_with: tuple[float | None, Any] | None = None
        if hasattr(self, "threshold_"):
            del self.threshold_
        self._matched, self._space_held = matched, space
        self._forward = Side(cost, self._target, self.b_, self.g_, self.epsilon_)
        if matched is not None:
            self._forward.space = self._matching(forth=True)

    @property
    def _source(self) -> Samples:
        if isinstance(self._given, RemoteSamples):
            self._given = self._given.gather(self._budget())
        return self._given

    @property
    def _towards(self) -> Side:
        return self._read(self._forward, forth=True)

    @property
    def _back(self) -> Side:
        if self._backward is None:
            self._backward = Side(self._forward.cost, self._source, self.a_, self.f_, self.epsilon_)
            if self._matched is not None:
                self._backward.space = self._matching(forth=False)
        return self._read(self._backward, forth=False)

    def _read(self, side: Side, forth: bool) -> Side:
        """The side as `debias` and `pool` say that it is read."""
        if self.debias:
            return DebiasedSide(side, partial(self._own_side, forth))
        if self.pool is None:
            return side
        source, masses = (self._source, self.a_) if forth else (self._target, self.b_)
        pool = check_pool(self.pool, self.a_.size)
        if not forth and not isinstance(pool, int | str):
            raise InputError("pool must be None, 'auto' or a number for inverse_transform: labels and matrices are of "
                             "the source samples, and it moves targets")
        found = JointPool(self._space, forth, pool, masses)
        if self.fdr is None:
            return PooledSide(side, source, found)
        replicates = self._replicates if forth or self._replicates is None else self._replicates.swapped()
        return ScoredSide(side, source, found, self._calibrate, replicates)

    def _calibrate(self) -> Threshold:
        """The threshold of moves at this `fdr` and `pool`; found once."""
        known = self._calibrated_with
        if known is None or known[0] != self.fdr or known[1] is not self.pool:
            fdr, side = check_rate(self.fdr, "fdr", "None or "), cast(ScoredSide, self._towards)
            with Workers(self.n_jobs) as workers:
                self.threshold_ = side.calibrate(fdr, workers, self._budget())
            self._calibrated_with = self.fdr, self.pool
        return self.threshold_

    @property
    def _space(self) -> JointSpace:
        """The coordinates of the fitted samples, and who is near to whom."""
        if self._space_held is None:
            frozen = self._forward.frozen
            pair = self._source.without(frozen), self._forward.anchors
            self._space_held = JointSpace(*pair, self._matched, self._strata)
        return self._space_held

    def _find_places(self) -> None:
        """Find out where the source samples are in the joint space, unless that is known."""
        side = self._read(self._forward, forth=True)
        if isinstance(side, PooledSide):
            with Workers(self.n_jobs) as workers:
                self._space.places_of(True, side.neighbours(workers, self._budget()), workers)

    def _matching(self, forth: bool) -> MatchingSpace | None:
        with Workers(self.n_jobs) as workers:
            return self._space.matching(forth, workers)

    def _row_masses(self) -> Floats:
        """What the plan takes from each source sample."""
        if self.reach_ is None:
            return self.a_
        held = self.a_ > 0
        masses = np.zeros_like(self.a_)
        masses[held] = self.a_[held] * np.exp(-self.f_[held] / self.reach_)
        return masses

    def _set_outcome(self) -> None:
        self.converged_ = self.report_.status is Status.CONVERGED
        self.n_iter_ = self.report_.n_iter

    # -- using -------------------------------------------------------------------------------------------------

    def displacement(self, X: Any, client: Any = None, within: Any = None) -> sp.csr_array:
        """Δ(x) = T(x) − x of each row, as CSR that stores what moves and nothing else; of Dask arrays, as those.

        `client` is a `dask.distributed.Client`, whose workers then share the rows, unless `match` is a pair of arrays
        or the map has `within`. If the map has `within`, pass one label per row, unless X is the fitted source.

        >>> import numpy as np, occamap as oc
        >>> m = oc.MongeMap(oc.L1(1.0)).fit(np.zeros((2, 3)), [[1.0, 0.0, 5.0], [-1.0, 0.0, 5.0]])
        >>> m.displacement([[0.0, 0.0, 0.0]]).toarray().tolist()  # targets disagree on the first feature
        [[0.0, 0.0, 5.0]]
        """
        if self.debias and (is_dask(X) or client is not None):
            self._own_side(forth=True)  # here, where the source is; it travels with the map
        if is_dask(X):
            self._refuse_strata("X", within)
            return cast(sp.csr_array, moved_later(self, X, "displacement"))
        samples = self._check_new(X, within=within)
        given = isinstance(self.match, tuple | list) or self.replicate is not None  # coordinates are of all rows
        known = not given and samples.strata is None  # rows by themselves
        if client is not None and known:
            return moved_on_cluster(self, samples, client)
        return self._displace(self._towards, self._towards.holding(samples), lambda _, moves: moves)

    def q_values(self, X: Any, within: Any = None) -> sp.csr_array:
        """The lowest false-discovery rate at which each move is found: CSR with the pattern of `displacement(X)`.

        It needs `fdr`. Entries that are not stored did not reach that rate. `within` as for `displacement`.

        >>> import numpy as np, occamap as oc
        >>> rng = np.random.default_rng(0)
        >>> X, Y = rng.normal(size=(200, 20)), rng.normal(size=(200, 20))
        >>> Y[:, 3] += 2
        >>> m = oc.MongeMap(match=5, pool="auto", relax=1, fdr=0.01).fit(X, Y)
        >>> q = m.q_values(X)
        >>> np.unique(q.indices).tolist(), bool(q.data.max() <= 0.01)
        ([3], True)
        """
        return self._tested(X, within)[1]

    def _tested(self, X: Any, within: Any = None) -> tuple[sp.csr_array, sp.csr_array]:
        """Displacements and their q-values."""
        samples = self._check_new(X, within=within)
        if self.fdr is None:
            raise InputError("fdr must be given for q-values, such as fdr=0.1")
        side = cast(ScoredSide, self._towards)
        samples, relax = side.holding(samples), check_number(self.relax, "relax", 0, 1)
        with Workers(self.n_jobs) as workers, Progress(self.verbose) as progress:
            return side.tested(samples, relax, workers, self._budget(), progress.moves)

    def transform(self, X: Any, within: Any = None) -> Any:
        """T(x) = x + Δ(x) of each row, in the container of X; a Dask array stays one, chunk by chunk.

        `within` as for `displacement`.

        >>> import numpy as np, occamap as oc
        >>> oc.MongeMap(oc.L1(1.0)).fit([[0.0, 1.0]], [[3.0, 1.0]]).transform([[0.0, 2.0]]).tolist()
        [[3.0, 1.0]]
        """
        if is_dask(X):
            self._refuse_strata("X", within)
            if self.debias:
                self._own_side(forth=True)
            return moved_later(self, X, "transform")
        samples = self._check_new(X, within=within)
        return self._apply(self._towards, samples)

    def inverse_transform(self, Y: Any, within: Any = None) -> Any:
        """The map back, from the potential of the targets, of each row, in the container of Y.

        `within` has one label per row of Y if the map has `within`. It may be left out if Y holds the fitted targets.

        >>> import numpy as np, occamap as oc
        >>> oc.MongeMap(oc.L1(1.0)).fit([[0.0, 1.0]], [[3.0, 1.0]]).inverse_transform([[3.0, 1.0]]).tolist()
        [[0.0, 1.0]]
        """
        if is_dask(Y):
            self._refuse_strata("Y", within)
            return moved_later(self, Y, "inverse_transform")
        samples = self._check_new(Y, "Y", within)
        return self._apply(self._back, samples)

    def potential(self, Z: Any, side: str = "source", within: Any = None) -> Floats:
        """The entropic potential f_ε ("source") or g_ε ("target") of each row; `within` as for `displacement`.

        At the fitted samples these are f_ and, as far as the solver has converged, g_: within ε times the relative
        error of the mass there.

        >>> import numpy as np, occamap as oc
        >>> X, Y = np.random.default_rng(0).normal(size=(2, 40, 3))
        >>> m = oc.MongeMap(oc.L1(1.0)).fit(X, Y)
        >>> bool(np.allclose(m.potential(X), m.f_))
        True
        """
        check_choice(side, "side", ("source", "target"))
        samples = self._check_new(Z, "Z", within, side == "target")
        with Workers(self.n_jobs) as workers:
            chosen = self._towards if side == "source" else self._back
            damping = 1.0 if self.reach_ is None else self.reach_ / (self.reach_ + self.epsilon_)
            return damping * chosen.potential(samples, workers, self._budget())

    def weights(self, X: Any, within: Any = None) -> Floats:
        """The Gibbs weights p_j(x) of the targets, one row per sample, each summing to one.

        `within` as for `displacement`.

        >>> import numpy as np, occamap as oc
        >>> X, Y = np.random.default_rng(0).normal(size=(2, 40, 3))
        >>> p = oc.MongeMap(oc.L1(1.0)).fit(X, Y).weights(X)
        >>> round(float(np.exp(-(p * np.log(p)).sum(axis=1)).mean()), 1)  # effective targets of a sample, of 40
        9.4
        """
        samples = self._check_new(X, within=within)
        with Workers(self.n_jobs) as workers:
            return self._towards.weights(samples, workers, self._budget())

    def _largest_weights(self, least: float = 1e-3) -> sp.csr_array:
        """The weights of the targets of each fitted source sample, without those that hardly count."""
        with Workers(self.n_jobs) as workers:
            return self._forward.largest_weights(self._source, least, workers, self._budget())

    def neighbourhoods(self) -> sp.csr_array:
        """The weights of the source samples in the neighbourhood of each of them: CSR, with rows that sum to one.

        >>> import numpy as np, occamap as oc
        >>> X, Y = np.random.default_rng(0).normal(size=(2, 40, 3))
        >>> m = oc.MongeMap(oc.L1(1.0), pool=5).fit(X, Y)
        >>> W = m.neighbourhoods()
        >>> W.shape, np.diff(W.indptr).max().item(), round(float(W.sum()), 6)
        ((40, 40), 5, 40.0)
        """
        check_is_fitted(self, "g_")
        if self.pool is None:
            return sp.csr_array(sp.eye_array(self.a_.size))
        found = self._found_neighbourhoods()
        return sp.csr_array(found.weights[found.of])

    def describe_neighbourhoods(self) -> NeighbourhoodReport | None:
        """How large the neighbourhoods are, and how far they reach; None if `pool` is None.

        >>> import numpy as np, occamap as oc
        >>> X, Y = np.random.default_rng(0).normal(size=(2, 200, 3))
        >>> oc.MongeMap(oc.L1(1.0), pool=10).fit(X, Y).describe_neighbourhoods().largest
        10
        """
        check_is_fitted(self, "g_")
        if self.pool is None:
            return None
        found = self._found_neighbourhoods()
        self._find_places()
        return describe_neighbourhoods(found, self._space.places[True], self.a_)

    def _found_neighbourhoods(self) -> Neighbourhoods:
        """Those of the fitted source samples."""
        side = cast(PooledSide, self._towards)
        with Workers(self.n_jobs) as workers:
            budget = self._budget()
            return side.pool(side.source, side.neighbours(workers, budget), side, workers, budget)

    def plan(self) -> Floats:
        """The coupling P_ij = a_i b_j exp((f_i + g_j − C_ij)/ε) of the fitted samples.

        >>> import numpy as np, occamap as oc
        >>> X, Y = np.random.default_rng(0).normal(size=(2, 40, 3))
        >>> P = oc.MongeMap(oc.L1(1.0)).fit(X, Y).plan()
        >>> P.shape, round(float(P.sum()), 6), bool(np.allclose(P.sum(axis=1), 1 / 40))
        ((40, 40), 1.0, True)
        """
        check_is_fitted(self, "g_")
        with Workers(self.n_jobs) as workers:
            plan = self._towards.weights(self._source, workers, self._budget())
        plan *= self._row_masses()[:, None]
        return plan

    def save(self, path: Any) -> None:
        """Write the fitted map to one file, atomically; `occamap.load` reads it. It holds the fitted samples.

        >>> import os, tempfile, occamap as oc
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     oc.MongeMap(oc.L1(1.0)).fit([[0.0, 1.0]], [[3.0, 1.0]]).save(os.path.join(folder, "map.occamap"))
        ...     os.listdir(folder)
        ['map.occamap']
        """
        check_is_fitted(self, "g_")
        self._check_parameters()
        saved.save(self, path)

    # -- details -----------------------------------------------------------------------------------------------

    def _check_parameters(self) -> tuple[Cost, Solver]:
        cost = self._default_cost() if self.cost is None else self.cost
        if not isinstance(cost, Cost):
            raise InputError(f"cost must be a cost with its parameters, such as occamap.L1(1.0); got {cost!r}")
        self._check_fdr(cost)
        check_choice(self.ties, "ties", TIES)
        check_number(self.relax, "relax", 0, 1)
        check_match(self.match)
        check_pool(self.pool)
        check_within(self.within)
        check_within(self.replicate, "replicate")
        if self.replicate is not None and self.fdr is None:
            raise InputError("fdr must be given with replicate: pass fdr=0.1, for example")
        if self.within is not None and self.match is None:
            raise InputError("match must not be None with within: pass match=30, for example, to match samples on 30 "
                             "principal components")
        if self.within is not None and self.reach is not None:
            raise InputError(f"reach must be None with within, which keeps the mass of each group; got {self.reach!r}")
        if self.debias and (self.pool is not None or self.match is not None):
            raise InputError("debias must be False with pool or match, which serve the same end")
        if self.debias is True and self.reach is not None:
            raise InputError(f"reach must be None with debias=True, which is for equal masses; got {self.reach!r}")
        tol = check_number(self.tol, "tol", 0, open_low=True)
        max_iter = check_count(self.max_iter, "max_iter")
        count_jobs(self.n_jobs)
        Budget(self.max_memory)
        for name, others in (("verbose", None), ("warm_start", False), ("debias", False)):
            if not isinstance(getattr(self, name), bool | np.bool_ | int) and getattr(self, name) is not others:
                raise InputError(f"{name} must be True or False; got {getattr(self, name)!r}")
        return cost, Solver(EpsilonRule(self.epsilon, self.epsilon_scale), self._checked_reach(), tol, max_iter)

    def _default_cost(self) -> Cost:
        return L1(1.0) if self.fdr is None else SqL2()

    def _check_fdr(self, cost: Cost) -> None:
        """Raise unless `fdr` is None, or a rate that the other parameters allow."""
        if self.fdr is None:
            return
        check_rate(self.fdr, "fdr", "None or ")
        if self.pool is None or self.match is None:
            name = "pool" if self.pool is None else "match"
            raise InputError(f"{name} must not be None with fdr, which tests neighbourhoods that are matched on "
                             f"components: pass {name}={'auto' if name == 'pool' else 30!r}")
        if not isinstance(cost, SqL2) and not (isinstance(cost, L1) and cost.gamma == 0):
            raise InputError(f"cost must not be given with fdr, which sets the penalty; got {type(cost).__name__}: "
                             "leave one of them out (to freeze features, use L1 with gamma=0 and infinite weights)")

    def _check_replicates(self, found: Replicates) -> None:
        """Raise where there are too few replicates to say how much they differ."""
        if found.fewest < FEWEST_REPLICATES:
            raise InputError(f"replicate must have at least {FEWEST_REPLICATES} values in each sample; got "
                             f"{found.fewest}: leave it out to treat samples as independent")

    def _own_side(self, forth: bool) -> OwnSide:
        """The side that a map starts from, as its own target; solved when it is first needed."""
        if forth not in self._own:
            _, solver = self._check_parameters()
            samples, masses = (self._source, self.a_) if forth else (self._target, self.b_)
            warnings.warn(debias.WARNING, FutureWarning, stacklevel=6)
            with Workers(self.n_jobs) as workers:
                given = self._forward.cost, samples, masses, self.epsilon_, solver, workers, self._budget()
                self._own[forth] = debias.own_side(*given)
        return self._own[forth]

    def _checked_reach(self) -> float | None:
        return None if self.reach is None else check_number(self.reach, "reach", 0, open_low=True)

    def _check_new(self, raw: Any, name: str = "X", within: Any = None, target: bool | None = None) -> Samples:
        """Samples with the features of the fitted ones, and the group of each, if they are matched within groups."""
        check_is_fitted(self, "g_")
        samples = check_samples(raw, name)
        check_same_features(
            samples, name, self.n_features_in_, getattr(self, "feature_names_in_", None), "the fitted samples"
        )
        if self._strata is None:
            if within is not None:
                raise InputError("within must be None for samples of a map that was fitted without it")
            return samples
        fitted = self._target if (name == "Y" if target is None else target) else self._source
        if within is not None:
            return replace(samples, strata=self._strata.codes(within, name, samples.shape[0]))
        if not samples.equals(fitted):
            raise InputError(
                f"within must have a label for each sample of {name}, since the map matches within groups and {name} "
                "is not what it was fitted on"
            )
        return replace(samples, strata=fitted.strata)

    def _refuse_strata(self, name: str, within: Any) -> None:
        """Raise where the samples of a Dask array would need labels, or have some for no reason."""
        if getattr(self, "_strata", None) is not None or within is not None:
            raise InputError(f"{name} must not be a Dask array with within: pass arrays with their labels")

    def _budget(self) -> Budget:
        return Budget(self.max_memory, self._lent)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_lent": ()}

    def _displace(self, side: Side, samples: Samples, finish: Any) -> sp.csr_array:
        ties = TIES.index(check_choice(self.ties, "ties", TIES))
        relax = check_number(self.relax, "relax", 0, 1)
        with Workers(self.n_jobs) as workers, Progress(self.verbose) as progress:
            moved = side.displace(samples, finish, ties, relax, workers, self._budget(), progress.moves)
        if moved.dtype != samples.dtype:
            moved = moved.astype(samples.dtype)
            moved.eliminate_zeros()
        return moved

    def _along_field(self, X: Any, step: float) -> Any:
        """x + step·∇f_ε(x) of each row, in the container of X."""
        samples = self._check_new(X)
        with Workers(self.n_jobs) as workers:
            field = self._towards.field(samples, workers, self._budget())
        return restore(samples.dense() + step * field, samples)

    def _apply(self, side: Side, samples: Samples) -> Any:
        samples = side.holding(samples)
        if samples.is_sparse:
            moved = self._displace(side, samples, lambda span, moves: _add(samples.rows(*span).csr(), moves))
            return restore(moved, samples)
        out = samples.data.copy()

        def add(span: tuple[int, int], moves: sp.csr_array) -> None:
            rows = np.repeat(np.arange(*span), np.diff(moves.indptr))
            out[rows, moves.indices] += moves.data

        self._displace(side, samples, add)
        return restore(out, samples)


def load(path: str | os.PathLike[str]) -> MongeMap:
    """Read a map written by `MongeMap.save`; it gives the same results to the bit.

    Raises `ModelFileError` for a file that is truncated, altered, of a later version, or something else.

    >>> import os, tempfile, occamap as oc
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "map.occamap")
    ...     oc.MongeMap(oc.L1(1.0)).fit([[0.0, 1.0]], [[3.0, 1.0]]).save(path)
    ...     oc.load(path).transform([[0.0, 1.0]]).tolist()
    [[3.0, 1.0]]
    """
    return model_file.read(path, partial(saved.build, MongeMap))


def _add(x: sp.csr_array, moves: sp.csr_array) -> sp.csr_array:
    total = sp.csr_array(x + moves)
    total.eliminate_zeros()
    return total
