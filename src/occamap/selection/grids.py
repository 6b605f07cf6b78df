"""Costs and grids as a caller gives them, checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields
from typing import Any

import numpy as np

from occamap._validate import check_count, check_reals
from occamap.costs import Cost
from occamap.errors import InputError


def check_template(cost: Any) -> Cost:
    """A cost whose γ can be varied, from an instance (its γ does not matter) or a class that needs nothing else."""
    if isinstance(cost, type) and issubclass(cost, Cost):
        needed = [f.name for f in fields(cost) if f.name != "gamma" and _is_required(f)]  # type: ignore[arg-type]
        if needed:
            raise InputError(
                f"cost must be an instance where it needs more than gamma: {cost.__name__}(1.0, {needed[0]}=…); "
                f"got the class {cost.__name__}"
            )
        template = cost(1.0) if _has_gamma(cost) else cost()  # type: ignore[call-arg]
    else:
        template = cost
    if not isinstance(template, Cost):
        raise InputError(f"cost must be a cost such as L1, or L1(1.0, weights=…); got {cost!r}")
    if not _has_gamma(type(template)):
        raise InputError(
            f"cost must have a strength gamma to vary, and {type(template).__name__} has none: "
            "for ½‖z‖² take L1 with 0 among the gammas"
        )
    return template


def _has_gamma(cost: type[Cost]) -> bool:
    return any(field.name == "gamma" for field in fields(cost))  # type: ignore[arg-type]


def _is_required(field: Any) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def check_grid(raw: Any, name: str, check: Callable[[Any], Any], rising: bool = True) -> list[float]:
    """Numbers, each of which passes `check`: at least one, and each larger than the one before it."""
    values = check_reals(raw, name)
    if values.ndim == 0:
        values = values[None]
    if values.ndim != 1 or values.size == 0:
        raise InputError(f"{name} must be a list of at least one number; got shape {values.shape}")
    for value in values:
        check(float(value))
    if rising and np.any(np.diff(values) <= 0):
        at = int(np.flatnonzero(np.diff(values) <= 0)[0])
        raise InputError(
            f"{name} must rise, without repeats; got {values[at + 1]:g} after {values[at]:g}: sort it with numpy.unique"
        )
    return [float(value) for value in values]


def check_gammas(raw: Any, templates: Sequence[Cost], default: int) -> int | list[float]:
    """A grid of γ that all the costs can have, or how many γ the default grid is to have."""
    if raw is None:
        return default
    if isinstance(raw, int | np.integer) and not isinstance(raw, bool):
        return check_count(raw, "gammas", 2)

    def check(gamma: float) -> None:
        try:
            for template in templates:
                template._with_gamma(gamma)
        except InputError as error:
            raise InputError(f"gammas: {error}") from error

    return check_grid(raw, "gammas", check)
