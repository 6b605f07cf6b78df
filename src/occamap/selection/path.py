"""gamma_path: the map at every strength of the penalty, from one pass over the data."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from occamap import _draw
from occamap._memory import Budget
from occamap._optional import optional
from occamap._validate import Samples, check_count
from occamap._workers import Workers, count_jobs
from occamap.costs import L1, Cost
from occamap.errors import InputError, NotConvergedWarning
from occamap.maps import MongeMap
from occamap.maps.monge_map import TIES
from occamap.maps.problem import Floats, Problem, check_problem
from occamap.maps.progress import Progress
from occamap.maps.side import move_bytes
from occamap.selection.continuation import Continuation
from occamap.selection.default_grid import GRID, default_gammas, evenly, grid_bytes
from occamap.selection.grids import check_gammas, check_template
from occamap.sinkhorn import CostBlocks, Status, StoredCost, cost_family
from occamap.sinkhorn.places import scratch_bytes

COUNT = 20


@dataclass(frozen=True, eq=False)
class GammaPath:
    """A map for each γ.

    `gammas` rise; `maps` are fitted; `densities` are the shares of entries that move (NaN where not measured);
    `statuses` say how each solve ended; `grid` says where the γ come from.

    >>> import numpy as np, occamap as oc
    >>> X, Y = np.random.default_rng(0).normal(size=(2, 40, 3))
    >>> oc.gamma_path(X, Y, gammas=[0.0, 1.0, 4.0])
    GammaPath(L1: 3 γ from 0 to 4, density from 1 to 0.15, 3 converged)
    """

    gammas: Floats
    maps: tuple[MongeMap, ...]
    densities: Floats
    statuses: tuple[Status, ...]
    grid: str

    def __len__(self) -> int:
        return len(self.maps)

    def __repr__(self) -> str:
        first, last = self.gammas[0], self.gammas[-1]
        fine = sum(status is Status.CONVERGED for status in self.statuses)
        return (
            f"GammaPath({type(self.maps[0].cost).__name__}: {len(self)} γ from {first:.3g} to {last:.3g}, "
            f"density from {self.densities[0]:.3g} to {self.densities[-1]:.3g}, {fine} converged)"
        )

    def to_frame(self) -> Any:
        """One row a γ, as a pandas data frame."""
        pandas = optional("pandas", "to_frame")
        reports = [fitted.report_ for fitted in self.maps]
        return pandas.DataFrame(
            {
                "gamma": self.gammas,
                "density": self.densities,
                "epsilon": [report.epsilon for report in reports],
                "effective_targets": [report.effective_targets for report in reports],
                "status": [status.value for status in self.statuses],
                "n_iter": [report.n_iter for report in reports],
                "error": [report.error for report in reports],
            }
        )

    def plot(self, ax: Any = None) -> Any:
        """Density against γ on matplotlib's Axes; maps that did not converge are hollow."""
        if np.isnan(self.densities).all():
            raise InputError("plot needs densities: call gamma_path with density_samples other than 0")
        converged = np.array([status is Status.CONVERGED for status in self.statuses])
        return _draw.density_path(self.gammas, self.densities, converged, type(self.maps[0].cost).__name__, ax)


def gamma_path(
    X: Any,
    Y: Any,
    cost: type[Cost] | Cost = L1,
    gammas: ArrayLike | int | None = None,
    a: ArrayLike | None = None,
    b: ArrayLike | None = None,
    *,
    epsilon: float = 0.1,
    epsilon_scale: str = "mean",
    ties: str = "zero",
    relax: float = 0.0,
    reach: float | None = None,
    tol: float = 1e-4,
    max_iter: int = 2000,
    density_samples: int | None = 512,
    max_memory: int | str | None = None,
    n_jobs: int | None = None,
    verbose: bool | None = None,
    pool: Any = None,
) -> GammaPath:
    """Fit the map from X to Y at every γ.

    For penalties that are linear in γ (`L1`, `KOverlap`) one pass over the data gives the costs at all of them; `STVS`
    has a pass a γ. Each solve starts from where those before it point to, and ends at the tolerance of a fit alone.

    Parameters
    ----------
    X, Y, a, b
        As for `MongeMap.fit`.
    cost
        `L1`, `STVS`, or an instance, whose other parameters are kept: `KOverlap(1.0, k=10)`, `L1(1.0, weights=w)`.
    gammas
        Rising strengths, 0 being ½‖z‖² alone; or how many the default grid is to have (20). That is evenly spaced in
        log γ, from the γ, within a factor of two, that changes the displacements of γ = 0 by 1 % (in the root of the
        mean square) to the first, in steps of four, from which another step lowers their density by less than 1 % of
        that at γ = 0; both are looked for on at most 128 source and 1,024 target samples.
    epsilon, epsilon_scale, ties, relax, reach, tol, max_iter, max_memory, n_jobs, pool
        As for `MongeMap`. Statistics of the costs, and so ε, are those at each γ.
    density_samples
        How many of X's samples, evenly spaced, the densities are measured on; None for all, 0 for none.
    verbose
        Show progress; None shows it on a terminal, when it takes more than two seconds.

    Examples
    --------
    >>> import numpy as np, occamap as oc
    >>> X = np.random.default_rng(0).normal(size=(50, 5))
    >>> Y = np.random.default_rng(1).normal(size=(60, 5)) + [3, 0, 0, 0, 0]
    >>> path = oc.gamma_path(X, Y, gammas=[0.0, 1.0, 2.0, 5.0])
    >>> path.densities.round(2).tolist()
    [1.0, 0.54, 0.46, 0.36]
    """
    template = check_template(cost)
    grid = check_gammas(gammas, [template], COUNT)
    samples = None if density_samples is None else check_count(density_samples, "density_samples", 0)

    def unfitted(gamma: float) -> MongeMap:
        return MongeMap(
            template._with_gamma(gamma), epsilon, epsilon_scale, ties, relax, reach, tol, max_iter, max_memory, n_jobs,
            pool=pool,
        )

    if np.ndim(epsilon) > 0:
        raise InputError(f"epsilon must be one number for a path; got {epsilon!r}: MongeMapCV takes several")
    _, solver = unfitted(1.0)._check_parameters()
    costs = [template] if isinstance(grid, int) else [template._with_gamma(gamma) for gamma in grid]
    threads = count_jobs(n_jobs)

    def need(source: Samples, target: Samples) -> float:
        probing = grid_bytes(source, target, [solver]) if isinstance(grid, int) else 0.0
        return probing + move_bytes(template, target, threads) + scratch_bytes(template, target, threads)

    what = "fitting a path of maps, and moving samples by them,"
    problem = check_problem(X, Y, a, b, costs, max_memory, need, what)
    with Workers(n_jobs) as workers, Progress(verbose) as progress:
        source, target = problem.source, problem.target
        budget = Budget(max_memory, problem.lent).keeping(move_bytes(template, target, threads))
        family = cost_family(template, source, target, None, budget, workers, progress.costs)
        told = "as given"
        if isinstance(grid, int):
            progress.note("looking for the range of γ")
            grid = default_gammas(family, problem, [solver], TIES.index(ties), grid, workers).tolist()
            told = f"found from the data: {GRID}"
        behind, maps, densities = Continuation(), [], []
        for gamma in progress.steps(grid, "γ"):
            begun = time.perf_counter()
            fitted = unfitted(gamma)
            cost_there, blocks = template._with_gamma(gamma), family.at(gamma, workers)
            solution = solver(blocks, problem.a, problem.b, workers, behind.near(gamma))
            behind.add(gamma, solution)
            fitted._conclude(
                cost_there, problem, solution, solver, time.perf_counter() - begun, blocks.place
            )
            maps.append(fitted)
            densities.append(_density(fitted, problem, samples, blocks, workers))
            del blocks  # else they are there while the next are made
    statuses = tuple(fitted.report_.status for fitted in maps)
    _warn(grid, maps)
    return GammaPath(np.array(grid), tuple(maps), np.array(densities), statuses, told)


def _density(
    fitted: MongeMap, problem: Problem, samples: int | None, blocks: CostBlocks, workers: Workers
) -> float:
    """The share of entries that move, of at most so many source samples."""
    (n, d), moved = problem.source.shape, 0
    rows = evenly(problem.a, n if samples is None else samples)
    if rows.size == 0:
        return float("nan")

    def count(_: tuple[int, int], moves: sp.csr_array) -> None:
        nonlocal moved
        moved += int(np.count_nonzero(moves.data.astype(X.dtype, copy=False)))

    known = blocks.take(rows) if isinstance(blocks, StoredCost) else None
    X, ties, budget = problem.source.take(rows), TIES.index(fitted.ties), fitted._budget()
    fitted._towards.displace(X, count, ties, 0.0, workers, budget, costs=known)
    fitted._towards.release()  # a path has many maps, and few of them will be asked again
    if fitted.max_memory is not None:
        problem.target.release()
    return moved / (rows.size * d)


def _warn(gammas: Iterable[float], maps: Iterable[MongeMap]) -> None:
    bad = [(gamma, fitted) for gamma, fitted in zip(gammas, maps, strict=True) if not fitted.converged_]
    if bad:
        listed = ", ".join(f"{gamma:.3g}" for gamma, _ in bad[:5]) + (", …" if len(bad) > 5 else "")
        first = bad[0][1].report_.message
        message = f"At {len(bad)} of the γ ({listed}) the solver did not converge; at the first: {first}"
        warnings.warn(message, NotConvergedWarning, stacklevel=3)
