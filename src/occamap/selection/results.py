"""The scores of all splits as one table, and what the choice in it means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from occamap.costs import Cost
from occamap.maps.monge_map import TIES
from occamap.selection.diagnostics import Diagnostics, Line
from occamap.selection.evaluation import SplitScores
from occamap.selection.plan import Plan
from occamap.selection.rules import Table
from occamap.sinkhorn import Status

Results = dict[str, NDArray[Any]]


def collect(plan: Plan, splits: Sequence[SplitScores]) -> Results:
    """A column a quantity, a row a cell: the parameters, means over the splits and standard errors, and each split."""
    cells, labels = plan.cells(), _labels([family.cost for family in plan.families])

    def of(name: str) -> NDArray[Any]:
        return np.array([[getattr(score, name) for score in split.scores] for split in splits])

    divergence, density, statuses = of("divergence"), of("density"), of("status")
    converged = statuses == Status.CONVERGED.value
    worst = [next((s for s in column if s != Status.CONVERGED.value), column[0]) for column in statuses.T]
    results: Results = {
        "cost": np.array([labels[plan.family_index(row)] for row in range(len(cells))]),
        "gamma": np.array([cell.gamma for cell in cells]),
        "epsilon": np.array([cell.solver.rule.value for cell in cells]),
        "epsilon_rule": np.array([str(cell.solver.rule) for cell in cells]),
        "ties": np.array([TIES[cell.ties] for cell in cells]),
        "relax": np.array([cell.relax for cell in cells]),
        "pool": np.array([cell.pool for cell in cells], dtype=object),
        "mean_divergence": divergence.mean(axis=0),
        "se_divergence": standard_error(divergence),
        "mean_density": density.mean(axis=0),
        "se_density": standard_error(density),
        "mean_effective_targets": of("effective_targets").mean(axis=0),
        "converged": converged.all(axis=0),
        "status": np.array([str(status) for status in worst]),
        "message": np.array([next((text for text in column if text), "") for column in of("message").T], dtype=object),
        "fit_seconds": of("fit_seconds").sum(axis=0),
        "map_seconds": of("map_seconds").sum(axis=0),
        "score_seconds": of("score_seconds").sum(axis=0),
    }
    for k, row in enumerate(divergence):
        results[f"split{k}_divergence"] = row
    return results


def standard_error(values: NDArray[Any]) -> NDArray[np.float64]:
    """Of the mean over the rows; NaN where there is one. Splits share samples, so it is a guide, not a test."""
    count = values.shape[0]
    if count < 2:
        return np.full(values.shape[1:], np.nan)
    return np.asarray(values.std(axis=0, ddof=1) / np.sqrt(count))


def table(results: Results) -> Table:
    """What the rules look at."""
    return Table(
        results["mean_divergence"], results["se_divergence"], results["mean_density"], results["converged"]
    )


def diagnose(results: Results, splits: Sequence[SplitScores], chosen: int, best: int, alike: bool) -> Diagnostics:
    """The chosen cell and the most faithful one beside the baselines."""

    def baseline(name: str, what: str, density: float | None = None) -> Line:
        values = np.array([[getattr(split.baselines, name).value] for split in splits])
        return Line(what, float(values.mean()), float(standard_error(values)[0]), density)

    def cell(row: int, what: str) -> Line:
        named = f"{what}: {results['cost'][row]}, γ = {results['gamma'][row]:.3g}, ε by {results['epsilon_rule'][row]}"
        return Line(
            what=f"{named}, relax = {results['relax'][row]:g}, ties = {results['ties'][row]}"
            + ("" if results["pool"][row] is None else f", pool = {results['pool'][row]}"),
            divergence=float(results["mean_divergence"][row]),
            error=float(results["se_divergence"][row]),
            density=float(results["mean_density"][row]),
            effective_targets=float(results["mean_effective_targets"][row]),
            n_targets=splits[0].n_targets,
        )

    return Diagnostics(
        identity=baseline("identity", "nothing moves", 0.0),
        mean_shift=baseline("mean_shift", "all move by the difference of the means"),
        chosen=cell(chosen, "chosen"),
        most_faithful=cell(best, "chosen" if best == chosen else "most faithful"),
        floor=baseline("floor", "floor: other targets against held-out targets"),
        alike=alike,
    )


def _labels(costs: Sequence[Cost]) -> list[str]:
    """The penalties without their γ; those that look the same are numbered."""
    plain = [_label(cost) for cost in costs]
    return [
        name if plain.count(name) == 1 else f"{name} #{plain[: k + 1].count(name)}" for k, name in enumerate(plain)
    ]


def _label(cost: Cost) -> str:
    others = [(f.name, getattr(cost, f.name), f.default) for f in fields(cost) if f.name != "gamma"]  # type: ignore[arg-type]
    told = [
        f"{name}={value!r}" if np.ndim(value) == 0 else name
        for name, value, default in others
        if np.ndim(value) > 0 or value != default
    ]
    return type(cost).__name__ + (f"({', '.join(told)})" if told else "")
