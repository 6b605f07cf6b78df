"""What tests of groups of cells need: codes, labels of replicates, and warnings of groups that are not tested."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from occamap.errors import InputError, InputWarning
from occamap.genes.effects import Effects
from occamap.inference import FEWEST_REPLICATES
from occamap.tl.cells import labels, replicate_labels, some
from occamap.tl.error_rates import check_replicates
from occamap.tl.resolution import AUTO
from occamap.tl.stored import Stored

FEWEST_DEGREES = 0.5  # of freedom between replicates; with fewer, hardly anything is ever found


def replicate_column(stored: Stored, replicate: str | None) -> str | None:
    """The column of replicates; "auto" is that of the map."""
    return stored.design.replicate if replicate == AUTO else replicate


def replicates_of(stored: Stored, replicate: str | None) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """The replicates of the control and of the target cells; None without a column."""
    if replicate is None:
        return None
    found = replicate_labels(stored.adata, replicate, stored.design.groupby)
    sides = found[stored.rows("control")], found[stored.rows("target")]
    if replicate != stored.design.replicate:
        check_replicates(replicate, *sides)
    return sides


def group_codes(stored: Stored, by: str) -> tuple[list[str | None], NDArray[np.int64], NDArray[np.int64]]:
    """The groups of the control cells, and which of them each control and each target cell is in (−1: none).

    Control cells without an entry are a group of their own, None, the last.
    """
    found = labels(stored.adata, by, "by")
    mine, theirs = found[stored.rows("control")], found[stored.rows("target")]
    names: list[str | None] = sorted({entry for entry in mine if entry is not None})
    if not names:
        raise InputError("by must be a column in which control cells have an entry; none has")
    if any(entry is None for entry in mine):
        names.append(None)
    place = {name: k for k, name in enumerate(names)}
    codes, others = (np.array([place.get(entry, -1) for entry in side], np.int64) for side in (mine, theirs))
    return names, codes, others


def warn_of_unequal_replicates(replicate: str, by: str | None, tested: Effects, names: list[str]) -> None:
    """Warn of groups in which one replicate has nearly all cells."""
    if tested.n_replicates is None or tested.degrees is None:
        return
    unequal = (tested.n_replicates >= FEWEST_REPLICATES) & (tested.degrees < FEWEST_DEGREES)
    if unequal.any():
        where = "" if by is None else f" in groups of {by!r}: {some([names[k] for k in np.flatnonzero(unequal)], 5)}"
        warnings.warn(
            f"One replicate of adata.obs[{replicate!r}] has nearly all cells{where}. Then hardly any gene can "
            "be found: take a random part of the cells of this replicate, or add replicates",
            InputWarning,
            stacklevel=4,
        )


def warn_of_few_replicates(replicate: str, count: int) -> None:
    """Warn if replicates are too few for any test."""
    if count < FEWEST_REPLICATES:
        warnings.warn(
            f"replicate must have at least {FEWEST_REPLICATES} values in each condition for a test; "
            f"adata.obs[{replicate!r}] has {count} in one of them, so p, q and intervals are NaN: add replicates, or "
            "treat cells as independent (replicate=None)",
            InputWarning,
            stacklevel=4,
        )


def warn_of_untested_groups(replicate: str, by: str, counts: dict[str, int]) -> None:
    """Warn of groups with too few replicates for any test."""
    few = [f"{name} ({count})" for name, count in counts.items() if count < FEWEST_REPLICATES]
    if few:
        warnings.warn(
            f"Groups of {by!r} with fewer than {FEWEST_REPLICATES} replicates ({replicate!r}) in a condition are not "
            f"tested, and their q is NaN (number of replicates in brackets): {some(few, 5)}",
            InputWarning,
            stacklevel=4,
        )
