"""Costs and grids as a caller gives them, checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, cast

import numpy as np

from occamap._validate import check_reals
from occamap.costs import Cost
from occamap.errors import InputError

MOST_GAMMAS = 1_000  # of a grid that is found from the data


def check_template(cost: Any) -> Cost:
    """A cost whose γ can be varied, from an instance (its γ does not matter) or a class that needs nothing else."""
    kind = cost if isinstance(cost, type) else type(cost)
    parameters = _parameters(kind)
    if parameters is None:
        raise InputError(f"cost must be a cost such as occamap.L1, or L1(1.0, weights=…); got {cost!r}")
    if "gamma" not in parameters:
        raise InputError(
            f"cost must have a strength gamma to vary, and {kind.__name__} has none: "
            "for ½‖z‖² take L1 with 0 among the gammas"
        )
    if not isinstance(cost, type):
        return cast(Cost, cost)
    needed = [name for name, field in parameters.items() if name != "gamma" and _is_required(field)]
    if needed:
        raise InputError(
            f"cost must be an instance where it needs more than gamma: {kind.__name__}(1.0, {needed[0]}=…); "
            f"got the class {kind.__name__}"
        )
    return cast(Cost, cost(gamma=1.0))


def _parameters(kind: Any) -> dict[str, Any] | None:
    """The parameters of a cost by name, or None where it is no cost."""
    if not issubclass(kind, Cost) or not is_dataclass(kind):
        return None
    return {field.name: field for field in fields(kind)}


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
            f"{name} must rise, without repeats; got {values[at + 1]:g} after {values[at]:g}: give each once, in order"
        )
    return [float(value) for value in values]


def check_gammas(raw: Any, templates: Sequence[Cost], default: int) -> int | list[float]:
    """A grid of γ that all the costs can have, or how many γ the default grid is to have."""
    if raw is None:
        return default
    if isinstance(raw, bool | np.bool_):
        raise InputError(f"gammas must be rising numbers, or how many of them; got {raw!r}")
    if isinstance(raw, int | np.integer):
        if not 2 <= raw <= MOST_GAMMAS:
            hint = f"; for one γ give {raw}.0" if raw == 1 else f"; got {raw:,}"
            raise InputError(f"gammas, if one integer, must be how many γ to have, 2 to {MOST_GAMMAS:,}{hint}")
        return int(raw)
    if isinstance(raw, str):
        raise InputError(f"gammas must be rising numbers, or None for a grid found from the data; got {raw!r}")

    def check(gamma: float) -> None:
        try:
            for template in templates:
                template._with_gamma(gamma)
        except InputError as error:
            raise InputError(f"gammas: {error}") from error

    return check_grid(raw, "gammas", check)
