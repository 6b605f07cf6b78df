"""What is to be evaluated: the candidates as a caller asks for them, and with the costs that they need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from occamap._memory import Budget
from occamap._validate import Samples, check_choice, check_number
from occamap._workers import Workers
from occamap.costs import Cost
from occamap.errors import InputError
from occamap.maps import MongeMap
from occamap.maps.monge_map import TIES
from occamap.maps.neighbourhoods import check_pool
from occamap.maps.problem import Problem
from occamap.maps.progress import Progress
from occamap.maps.room import map_bytes
from occamap.maps.side import move_bytes
from occamap.selection.default_grid import MOVE, default_gammas, grid_bytes
from occamap.selection.grids import check_gammas, check_grid, check_template
from occamap.sinkhorn import CostFamily, EpsilonRule, Solver, cost_family
from occamap.sinkhorn.places import SPARE, scratch_bytes

Pool = int | str | None


@dataclass(frozen=True)
class Cell:
    """One candidate: the cost with its γ, the rule for ε, and how displacements are read off."""

    cost: Cost
    gamma: float
    solver: Solver
    ties: int
    relax: float
    pool: Pool = None


@dataclass(frozen=True)
class Chain:
    """Some γ of one penalty and ε, by their numbers: solved one after the other, each from those before."""

    family: int
    solver: int
    gammas: tuple[float, ...]


def chains(gammas: Sequence[tuple[float, ...]], solvers: int, longest: int | None = None) -> list[Chain]:
    """The γ of each penalty at each ε, in one chain or in several of at most so many γ.

    >>> [chain.gammas for chain in chains([(0.0, 0.1, 1.0)], 1, longest=2)]
    [(0.0, 0.1), (1.0,)]
    """
    return [
        Chain(family, solver, those[start : start + (longest or len(those))])
        for family, those in enumerate(gammas)
        for solver in range(solvers)
        for start in range(0, len(those), longest or len(those))
    ]


@dataclass(frozen=True)
class Plan:
    """What every split needs: samples, the costs of each penalty at each γ, and the grid."""

    problem: Problem
    families: tuple[CostFamily, ...]
    gammas: tuple[tuple[float, ...], ...]
    solvers: tuple[Solver, ...]
    ties: tuple[int, ...]
    relaxes: tuple[float, ...]
    pools: tuple[Pool, ...]
    projection: Any
    seed: int
    budget: Budget
    least: float
    """Bytes that a split takes where costs are computed again and again."""

    def __sizeof__(self) -> int:
        """Bytes of the arrays, so that a cluster knows what it would cost to move them."""
        parts = sum(part.nbytes for family in self.families for part in family.parts or ())
        return parts + self.problem.source.__sizeof__() + self.problem.target.__sizeof__()

    def at_once(self) -> int | None:
        """How many splits the budget has room for at a time, each with parts of the costs that they share; None: any.

        Where no costs are shared, each split keeps as many of its own as there is room for: then it is one.
        """
        if self.budget.limit is None:
            return None
        if any(family.parts is None for family in self.families):
            return 1
        n, m = self.problem.a.size, self.problem.b.size
        matrices = max((len(family.parts or ()) for family in self.families), default=2) + 1
        return max(1, int(self.budget.left() // (8.0 * n * m * matrices + self.least)))

    def cells(self) -> list[Cell]:
        """The grid, in the order in which it is evaluated."""
        return [
            Cell(family.cost._with_gamma(gamma), gamma, solver, *reading)
            for family, gammas in zip(self.families, self.gammas, strict=True)
            for solver in self.solvers
            for gamma in gammas
            for reading in self.readings()
        ]

    def readings(self) -> list[tuple[int, float, Pool]]:
        """How the displacements of each solve are read: every rule for ties, relaxation and pool."""
        return list(product(self.ties, self.relaxes, self.pools))

    def chains(self) -> list[Chain]:
        """The γ of each penalty and ε, in the order of the grid."""
        return chains(self.gammas, len(self.solvers))

    def family_index(self, cell: int) -> int:
        """Which of the families this cell of the grid belongs to."""
        each = len(self.solvers) * len(self.readings())
        ends = np.cumsum([each * len(gammas) for gammas in self.gammas])
        return int(np.searchsorted(ends, cell, side="right"))


@dataclass(frozen=True)
class Search:
    """The candidates as asked for; `grid` is a number where the γ are still to be found."""

    templates: tuple[Cost, ...]
    grid: int | list[float]
    solvers: tuple[Solver, ...]
    ties: tuple[int, ...]
    relaxes: tuple[float, ...]
    pools: tuple[Pool, ...]

    def costs(self) -> list[Cost]:
        """All costs that are known already."""
        if isinstance(self.grid, int):
            return list(self.templates)
        return [template._with_gamma(gamma) for template in self.templates for gamma in self.grid]

    def least_bytes(self, source: Samples, target: Samples, threads: int, held_out: float) -> tuple[float, float]:
        """What the evaluation of a split takes where costs are computed again: before some are kept, and beside them.

        The former are its parts, what a projection is learned on, twice, and a fit; or the search for a range of γ; and
        code that is loaded on the way. The latter are blocks of moves or of costs to score them by, the moves of a test
        part, and what is moved.
        """
        copies = 3.0 * (source.__sizeof__() + target.__sizeof__())
        probing = grid_bytes(source, target, self.solvers) if isinstance(self.grid, int) else 0.0
        fitting = max(scratch_bytes(template, target, threads) for template in self.templates)
        moving = max(map_bytes(template, target, threads) for template in self.templates)
        return max(copies, probing) + fitting + SPARE, moving + 3 * MOVE * held_out * source.shape[0] * source.shape[1]

    def plan(
        self,
        problem: Problem,
        projection: Any,
        seed: int,
        budget: Budget,
        least: tuple[float, float],
        workers: Workers,
        progress: Progress,
    ) -> Plan:
        """Find the γ that are to be found, and compute the costs that all splits share.

        `least` is what `least_bytes` tells: costs of a split, where they are computed then, leave the latter of it.
        """
        families, gammas = [], []
        for template in self.templates:
            given = None if isinstance(self.grid, int) else self.grid
            family = self._family(template, problem, given, budget.keeping(least[1]), workers, progress)
            if isinstance(self.grid, int):
                progress.note("looking for the range of γ")
                ends = list({solver.rule.value: solver for solver in (self.solvers[0], self.solvers[-1])}.values())
                given = default_gammas(family, problem, ends, self.ties[0], self.grid, workers).tolist()
                if family.parts is None:  # not linear in γ: now it is known at which γ costs are wanted
                    family = self._family(template, problem, given, budget.keeping(least[1]), workers, progress)
            families.append(family)
            gammas.append(tuple(given or ()))
        return Plan(
            problem=problem,
            families=tuple(families),
            gammas=tuple(gammas),
            solvers=self.solvers,
            ties=self.ties,
            relaxes=self.relaxes,
            pools=self.pools,
            projection=projection,
            seed=seed,
            budget=budget,
            least=sum(least),
        )


    def _family(
        self,
        template: Cost,
        problem: Problem,
        gammas: list[float] | None,
        budget: Budget,
        workers: Workers,
        progress: Progress,
    ) -> CostFamily:
        """The costs, if there is room for what splits need beside them: sub-matrices, costs within tests, moves."""
        X, Y = problem.source, problem.target
        n, m = X.shape[0], Y.shape[0]
        reserve = 8.0 * (2 * n * m + max(n, m) ** 2 / 25) + move_bytes(template, Y, workers.count)
        return cost_family(template, X, Y, gammas, budget, workers, progress.costs, reserve)


def check_search(
    cost: Any, gammas: Any, epsilon: Any, ties: Any, relax: Any, pool: Any, default: int, like: MongeMap
) -> Search:
    """One or several of each, as given; the other parameters are those of `like`."""
    several = cost if isinstance(cost, list | tuple) else [cost]
    if not several:
        raise InputError("cost must be a cost such as L1, or a list of at least one; got an empty list")
    templates = tuple(check_template(one) for one in several)
    scale = like.epsilon_scale
    epsilons = check_grid(epsilon, "epsilon", lambda value: EpsilonRule(value, scale))
    relaxes = check_grid(relax, "relax", lambda value: check_number(value, "relax", 0, 1))
    names = [ties] if isinstance(ties, str) or not hasattr(ties, "__iter__") else list(ties)
    if not names or len(set(map(str, names))) < len(names):
        raise InputError(f"ties must be one or both of {TIES[0]!r} and {TIES[1]!r}; got {ties!r}")
    rules = tuple(TIES.index(check_choice(name, "ties", TIES)) for name in names)
    _, solver = like._check_parameters()
    solvers = tuple(Solver(EpsilonRule(e, scale), solver.reach, solver.tol, solver.max_iter) for e in epsilons)
    pools = check_pools(pool)
    return Search(templates, check_gammas(gammas, templates, default), solvers, rules, tuple(relaxes), pools)


def check_pools(pool: Any) -> tuple[Pool, ...]:
    """One or several of None, "auto" and numbers of neighbours."""
    several = list(pool) if isinstance(pool, list | tuple) else [pool]
    for one in several:
        named = one is None or (isinstance(one, str) and one == "auto")
        if not named and (isinstance(one, bool) or not isinstance(one, int | np.integer)):
            raise InputError(
                f"pool must be None, 'auto', a number of neighbours, or a list of these, where held-out samples are "
                f"moved; got {one!r}"
            )
    checked = [check_pool(one) for one in several]
    if not checked or len(set(map(str, checked))) < len(checked):
        raise InputError(f"pool must be one or several different values; got {pool!r}")
    return tuple(checked)
