"""Samples that are matched within their groups: labels of both sides, the masses of the targets, and one ε for all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from occamap.errors import InputError
from occamap.maps.problem import Problem
from occamap.sinkhorn import EpsilonRule, Solution, Solver, Status

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
Solved = tuple[Solution, str, str]  # and where the costs were, and why


def check_within(within: Any, parameter: str = "within") -> None:
    """Raise unless it is None or a pair of arrays of labels."""
    if within is None:
        return
    if not isinstance(within, tuple | list) or len(within) != 2:
        got = " ".join(repr(within).split())
        raise InputError(f"{parameter} must be None or a pair of arrays, the labels of X and of Y; got {got:.80}")
    for name, labels in zip("XY", within, strict=True):
        check_labels(labels, parameter, f"sample of {name}")


def check_labels(labels: Any, name: str, what: str, n: int | None = None) -> NDArray[Any]:
    """One label for each sample: numbers, if all are, else text."""
    if isinstance(labels, np.ma.MaskedArray):
        labels = [None if gone else label for label, gone in zip(labels.data, np.ma.getmaskarray(labels), strict=True)]
    values = labels.tolist() if isinstance(labels, np.ndarray) else labels
    entries = list(values) if hasattr(values, "__iter__") and not isinstance(values, str | bytes) else None
    flat = entries is not None and not any(isinstance(entry, list | tuple | np.ndarray) for entry in entries)
    if entries is None or not flat or (n is not None and len(entries) != n):
        wanted = "one label" if n is None else f"{n} labels, one"
        shape = getattr(labels, "shape", None) or (f"{len(entries)} entries" if flat and entries else labels)
        raise InputError(f"{name} must have {wanted} for each {what}; got {' '.join(str(shape).split()):.60}")
    missing = sum(_is_missing(entry) for entry in entries)
    if missing:
        raise InputError(f"{name} must have a label for each {what}; {missing} have none")
    if all(isinstance(entry, Real | np.bool_) for entry in entries):
        return np.array(entries)
    return np.array([str(entry) for entry in entries])


def _is_missing(entry: Any) -> bool:
    """None, NaN, NaT or pandas' NA, which has no truth value."""
    return entry is None or type(entry).__name__ in ("NAType", "NaTType") or bool(entry != entry)


@dataclass(frozen=True, eq=False)
class Strata:
    """The groups that samples are matched within: their names, and the group of each source sample and each target."""

    names: NDArray[Any]
    source: Rows
    target: Rows

    @classmethod
    def of(cls, within: Any, n: int, m: int) -> Strata:
        """Those of n source samples and m targets."""
        source, target = (
            check_labels(side, "within", f"sample of {name}", count).astype(str)
            for side, name, count in zip(within, "XY", (n, m), strict=True)
        )
        names = np.unique(source)
        for these, others, name in ((names, target, "Y"), (np.unique(target), source, "X")):
            absent = np.setdiff1d(these, others)
            if absent.size:
                raise InputError(
                    f"within must have samples of every group on both sides; {str(absent[0])!r} has none in {name}: "
                    "leave out the samples of that group"
                )
        return cls(names, np.searchsorted(names, source), np.searchsorted(names, target))

    def codes(self, labels: Any, name: str, n: int) -> Rows:
        """The groups of other samples, by their labels."""
        found = check_labels(labels, "within", f"sample of {name}", n).astype(str)
        known = np.isin(found, self.names)
        if not known.all():
            unknown = str(found[~known][0])
            raise InputError(f"within must name groups that the map was fitted on; got {unknown!r}")
        return np.searchsorted(self.names, found)

    def balanced(self, problem: Problem) -> Problem:
        """The same problem, in which the targets of a group have the mass of its source samples."""
        given, wanted = (np.bincount(codes, mass, self.names.size) for codes, mass in
                         ((self.target, problem.b), (self.source, problem.a)))
        if not (given.min() > 0 and wanted.min() > 0):
            empty = str(self.names[np.argmin(np.minimum(given, wanted))])
            raise InputError(f"within must have mass in every group on both sides; {empty!r} has none")
        return replace(problem, b=problem.b * (wanted / given)[self.target])

    def solve(self, problem: Problem, solver: Solver, solve: Callable[[Problem, Solver, Any], Solved]) -> Solved:
        """Potentials of a balanced problem, from those of each group by itself, at one ε.

        ε is the median, over the source samples, of what the rule of the solver finds for each group.
        """
        parts = [(np.flatnonzero(self.source == k), np.flatnonzero(self.target == k)) for k in range(self.names.size)]
        problems = [problem.restricted(*part) for part in parts]
        masses = np.array([problem.a[rows].sum() for rows, _ in parts])
        solved = [solve(one, solver, None) for one in problems]
        epsilons = np.array([solution.epsilon for solution, _, _ in solved])
        order = np.argsort(epsilons, kind="stable")
        epsilon = float(epsilons[order[np.searchsorted(np.cumsum(masses[order]), 0.5 * masses.sum())]])
        at_one = replace(solver, rule=EpsilonRule(epsilon, "absolute"))
        for k, (solution, _, _) in enumerate(solved):
            if solution.epsilon != epsilon:
                solved[k] = solve(problems[k], at_one, (solution.epsilon, solution.g))
        f, g = np.empty(self.source.size), np.empty(self.target.size)
        for (rows, columns), mass, (solution, _, _) in zip(parts, masses, solved, strict=True):
            f[rows] = solution.f
            g[columns] = solution.g - epsilon * np.log(mass)  # relative to the masses of all samples
        solutions = [solution for solution, _, _ in solved]
        worst = next((one for one in solutions if one.status is not Status.CONVERGED), solutions[0])
        length = max(len(one.errors) for one in solutions)
        errors = masses @ [one.errors + (one.error,) * (length - len(one.errors)) for one in solutions]
        whole = Solution(
            f, g, epsilon, worst.status, float(masses @ [one.error for one in solutions]), tuple(errors.tolist()),
            float(masses @ [one.effective_targets for one in solutions]), f"{solver.rule}, within {len(parts)} groups",
        )  # fmt: skip
        return whole, *solved[int(np.argmax([one.data.size for one in (p.source for p in problems)]))][1:]
