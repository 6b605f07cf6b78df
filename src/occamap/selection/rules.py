"""Which cell of the grid to take, from the mean and standard error of its divergence, its density and whether it
converged: on plain arrays, so that the same rules serve any table of results."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from occamap._validate import check_choice, check_number
from occamap.errors import InputError, SelectionError

Floats = NDArray[np.float64]

RULES = ("best", "one_se", "density", "pareto")
ONE_SPLIT = "rule='one_se' needs a standard error, hence two splits or more, and cv gives one: take another rule"


@dataclass(frozen=True)
class Table:
    """A row a cell."""

    divergence: Floats
    error: Floats
    density: Floats
    converged: NDArray[np.bool_]


def check_rule(rule: str, max_density: float | None) -> None:
    """Raise unless the rule is known, and has its density if it needs one."""
    check_choice(rule, "rule", RULES)
    if rule == "density":
        if max_density is None:
            raise InputError("max_density must be given with rule='density', for example 0.1")
        check_number(max_density, "max_density", 0, 1)
    elif max_density is not None:
        raise InputError(f"max_density is for rule='density' only; the rule is {rule!r}: leave one of them out")


def choose(table: Table, rule: str, max_density: float | None = None, why: str = "") -> int:
    """The row that the rule takes. Cells that did not converge in every split are never taken.

    best, pareto: the lowest mean divergence (the frontier that pareto asks for is `frontier`);
    one_se: the lowest density within one standard error of it; density: the lowest mean divergence at or below
    max_density. `why` is what the first cell that failed says.
    """
    if not table.converged.any():
        told = f", and the first says: {why}" if why else ": raise max_iter or epsilon, or accept a larger tol"
        raise SelectionError(f"no candidate converged in every split{told} (results_ has all of them)")
    allowed = table.converged.copy()
    if rule == "density":
        allowed &= table.density <= (max_density or 0.0)
        if not allowed.any():
            sparsest = table.density[table.converged].min()
            raise SelectionError(
                f"no candidate that converged has a density of at most max_density={max_density:g}; the sparsest has "
                f"{sparsest:.6g}: raise max_density, or give larger gammas"
            )
    best = _lowest(table.divergence, table.density, allowed)
    if rule != "one_se":
        return best
    if np.isnan(table.error[best]):
        raise SelectionError(ONE_SPLIT)
    within = allowed & (table.divergence <= table.divergence[best] + table.error[best])
    return _lowest(table.density, table.divergence, within)


def frontier(table: Table) -> NDArray[np.int64]:
    """The converged cells than which no other is both sparser and more faithful, from sparse to faithful."""
    rows = np.flatnonzero(table.converged)
    order = rows[np.lexsort((table.divergence[rows], table.density[rows]))]
    kept, lowest = [], np.inf
    for row in order:
        if table.divergence[row] < lowest:
            kept.append(row)
            lowest = table.divergence[row]
    return np.array(kept, dtype=np.int64)


def _lowest(first: Floats, then: Floats, allowed: NDArray[np.bool_]) -> int:
    rows = np.flatnonzero(allowed)
    return int(rows[np.lexsort((then[rows], first[rows]))[0]])
