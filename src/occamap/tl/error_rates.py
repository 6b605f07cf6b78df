"""Which false-discovery rate a map of cells can have: the rate itself, and replicates to test across."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from occamap._validate import check_rate
from occamap.errors import InputError, InputWarning
from occamap.inference import FEWEST_REPLICATES
from occamap.tl.cells import NO_REPLICATE, Rows, replicate_labels, some
from occamap.tl.resolution import AUTO

RATE = 0.1  # false-discovery rate of the entries that move, unless another is given
FEWEST_POOLED = 30  # cells of a neighbourhood; with fewer, the choice of neighbours is in the test
FEWEST_TESTED = 3  # cells in a condition that can be tested
MOST_REPLICATES = 200  # beyond, a column with more values than half of the cells is a measurement


def rate_of(fdr: Any, others: dict[str, Any], pool: Any, match: Any) -> float | None:
    """The false-discovery rate to use: the one given, or the default if nothing else sets the penalty.

    `others` are the parameters that set the penalty otherwise.
    """
    if isinstance(fdr, str) and fdr == AUTO:
        free = all(value is None for value in others.values()) and pool is not None and match is not None
        return RATE if free else None
    if fdr is None:
        return None
    rate = check_rate(fdr, "fdr", "'auto', None or ")
    if others["gammas"] is not None or others["epsilon"] is not None:
        raise InputError("fdr must not be given with gammas or epsilon='auto', because held-out cells then choose "
                         "the map: give a number for epsilon and no gammas, or leave fdr out")
    return rate


def warn_of_small_pools(pool: Any) -> None:
    """Warn of neighbourhoods that hold fewer cells than an error rate needs."""
    what = f"use pool={AUTO!r}"
    if isinstance(pool, int | np.integer) and not isinstance(pool, bool):
        small, named = 1 <= pool < FEWEST_POOLED, f"pool={pool}"
    elif isinstance(pool, sp.csr_array):
        with np.errstate(divide="ignore"):
            typical = float(np.median(1 / np.asarray(pool.power(2).sum(axis=1)).ravel()))
        small, named = typical < FEWEST_POOLED, f"a graph with neighbourhoods of {typical:.3g} cells in effect"
    elif isinstance(pool, np.ndarray):
        sizes = Counter(pool.tolist())
        few = sorted(name for name, size in sizes.items() if size < FEWEST_POOLED)
        small, named, what = bool(few), f"groups {some(few, 5)}", "use larger groups"
    else:
        return
    if small:
        warnings.warn(
            f"With neighbourhoods of fewer than {FEWEST_POOLED} cells, the share of false displacements may exceed "
            f"fdr; got {named}: {what}",
            InputWarning,
            stacklevel=3,
        )


def enough_cells(fewest: int) -> bool:
    """Whether there are enough cells in each condition to test; else a warning says that there are not."""
    if fewest >= FEWEST_TESTED:
        return True
    warnings.warn(
        f"A test needs at least {FEWEST_TESTED} control and {FEWEST_TESTED} target cells; got {fewest} in one of "
        "them. The default gamma is used instead; it controls no error rate, and there are no q-values: use larger "
        "groups, or pass fdr=None",
        InputWarning,
        stacklevel=3,
    )
    return False


def warn_of_nothing_tested(replicate: str | None) -> None:
    """Warn that no entry of a map could be tested."""
    needed = "several cells"
    if replicate is not None:
        needed = f"cells of {FEWEST_REPLICATES} replicates ({replicate})"
    warnings.warn(
        f"No entry could be tested, so nothing moves. In each condition, a neighbourhood must have {needed}, and genes "
        f"must vary: use larger neighbourhoods, such as pool={AUTO!r}, and check that the values are not constant",
        InputWarning,
        stacklevel=3,
    )


def pair_with_replicates(adata: Any, replicate: str, groupby: str, pair: tuple[Rows, Rows]) -> tuple[Rows, Rows]:
    """The cells of a pair that have an entry in the column of replicates, with warnings of what looks odd in it."""
    found = replicate_labels(adata, replicate, groupby)
    held = np.array([entry is not None for entry in found])
    kept = pair[0][held[pair[0]]], pair[1][held[pair[1]]]
    if not (kept[0].size and kept[1].size):
        raise InputError(f"replicate must have entries in both conditions; adata.obs[{replicate!r}] has none in one of "
                         "them: fill the column, or leave replicate out")
    check_replicates(replicate, *(found[rows] for rows in pair))
    mine, theirs = (Counter(found[rows].tolist()) for rows in kept)
    alone = {name: (mine + theirs)[name] for name in mine | theirs if not (mine[name] and theirs[name])}
    if alone and len(alone) < len(mine | theirs):
        listed = some([f"{name} ({_cells(size)})" for name, size in sorted(alone.items())], 5)
        warnings.warn(
            f"Some values of adata.obs[{replicate!r}] occur in only one condition, and count as unpaired replicates: "
            f"{listed}. If they are not replicates, set these entries to NaN or 'unassigned'",
            InputWarning,
            stacklevel=3,
        )
    return kept


def check_replicates(replicate: str, *sides: NDArray[Any]) -> None:
    """Refuse a measurement as a column of replicates, and warn of cells without one."""
    entries = [entry for side in sides for entry in side.tolist()]
    held = [entry for entry in entries if entry is not None]
    count, cells, absent = len(set(held)), len(held), len(entries) - len(held)
    if count > max(MOST_REPLICATES, cells / 2):
        raise InputError(
            f"replicate must be a column of donors, animals or batches; adata.obs[{replicate!r}] has {count:,} values "
            f"for {cells:,} cells"
        )
    if absent:
        warnings.warn(
            f"{_cells(absent)} without a replicate in adata.obs[{replicate!r}] (no entry, or one of "
            f"{', '.join(NO_REPLICATE)}) {'is' if absent == 1 else 'are'} left out",
            InputWarning,
            stacklevel=4,
        )


def _cells(count: int) -> str:
    return "1 cell" if count == 1 else f"{count:,} cells"


def fewest_replicates(
    replicates: tuple[NDArray[Any], NDArray[Any]] | None, groups: tuple[NDArray[Any], NDArray[Any]] | None
) -> dict[str, int]:
    """The number of replicates in the condition with fewer, of each group of control cells ("" without groups)."""
    if replicates is None:
        return {"": 0}
    if groups is None:
        return {"": min(len(set(side)) for side in replicates)}
    return {
        str(name): min(len(set(side[part == name])) for side, part in zip(replicates, groups, strict=True))
        for name in np.unique(groups[0])
    }


def enough_replicates(replicate: str, counts: dict[str, int], within: str | None) -> bool:
    """Whether any group has enough replicates to test across; else a warning says that there are not."""
    most = max(counts.values())
    if most >= FEWEST_REPLICATES:
        return True
    where, found = "each condition", f"adata.obs[{replicate!r}] has {most} in one of them"
    if within is not None:
        where, found = f"each condition of a group of {within!r}", f"no group has more than {most}"
    warnings.warn(
        f"replicate must have at least {FEWEST_REPLICATES} values in {where}; {found}, so the default gamma is used "
        "instead; it controls no error rate, and there are no q-values: add replicates, or leave replicate out to "
        "treat cells as independent",
        InputWarning,
        stacklevel=3,
    )
    return False
