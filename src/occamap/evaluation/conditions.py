"""The conditions of an evaluation: the cells of each, how they are split, and what to tell of those not judged on."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from occamap.errors import InputError
from occamap.evaluation.held_out import FEWEST_CELLS, FEWEST_REPLICATES, RandomSplits, ReplicateSplits, leave_one_out
from occamap.tl.cells import Rows, labels, pair_of, replicate_labels, rows_of, some

FEWEST = 10  # cells of each group: two to test on, at a fifth


class Condition(NamedTuple):
    """A target group against the control, within a group of cells if asked for."""

    label: str
    within: str
    target: str
    rows: Rows
    others: Rows
    splits: RandomSplits | ReplicateSplits

    @property
    def key(self) -> str:
        """What no other condition is called; two labels can be the same."""
        return _key(self.within, self.target)


def _key(within: str, target: str) -> str:
    return json.dumps([within, target])


def find_conditions(adata: Any, targets: Any, asked: dict[str, Any]) -> tuple[list[Condition], list[str]]:
    """Every target within every group that has cells of it, and what is left out.

    Within groups, conditions that are too small are left out if others are not; otherwise they are refused.
    """
    groupby, control, within, replicate = (asked[name] for name in ("groupby", "control", "within", "replicate"))
    groups = labels(adata, groupby)
    rows_of(adata, groupby, control, "control")
    wanted = None if targets is None else list(several(targets, "targets"))
    if wanted is None:
        wanted = sorted({entry for entry in groups if entry is not None and entry != str(control)})
    if not len(wanted):
        raise InputError(f"targets must be one or several groups in adata.obs[{groupby!r}] beside the control")
    pairs = {str(target): pair_of(adata, groupby, control, target) for target in wanted}
    kinds = np.full(adata.n_obs, "") if within is None else labels(adata, within, "within")
    replicates = None if replicate is None else replicate_labels(adata, replicate, groupby)
    if replicates is not None:
        _check_several(replicates, np.concatenate([rows for pair in pairs.values() for rows in pair]), replicate)
    found, small = [], []
    for kind in sorted({entry for entry in kinds if entry is not None}):
        for target, pair in pairs.items():
            rows, theirs = (side[kinds[side] == kind] for side in pair)
            if not theirs.size:
                continue
            if replicates is not None:
                rows, theirs = (side[~_without_entry(replicates[side])] for side in (rows, theirs))
            label = f"{kind}: {target}" if within is not None else target
            if min(rows.size, theirs.size) < FEWEST:
                small.append(f"{label} ({rows.size} control and {theirs.size} target cells)")
                continue
            splits: RandomSplits | ReplicateSplits
            if replicates is None:
                sizes, name = (rows.size, theirs.size), _key(str(kind), target)
                splits = RandomSplits(sizes, asked["splits"], asked["test_size"], asked["random_state"], name)
            else:
                splits = leave_one_out(replicates[rows], replicates[theirs])
            found.append(Condition(label, str(kind), target, rows, theirs, splits))
    small_groups = (
        f"each condition must have at least {FEWEST} cells of both groups; too few: {some(small)}: drop "
        "their cells, or name the other groups as targets"
    )
    if small and (within is None or not found):
        raise InputError(small_groups)
    kept, few, unjudged = _with_enough_replicates(found)
    if (few or unjudged) and (within is None or not kept):
        _refuse_replicates(few, unjudged)
    left_out = []
    if small:
        left_out.append(f"Fewer than {FEWEST} control or target cells, left out of the evaluation: {some(small, 10)}.")
    if few or unjudged:
        listed = some([f"{label} ({count})" for label, count in [*few, *unjudged]], 10)
        left_out.append(f"Too few replicates ({replicate}), left out of the evaluation (replicates): {listed}.")
    return kept, left_out


def _without_entry(entries: NDArray[Any]) -> NDArray[np.bool_]:
    return np.array([entry is None for entry in entries], dtype=bool)


def _check_several(replicates: Any, rows: Rows, column: str) -> None:
    """Raise unless the cells of an evaluation are of several replicates."""
    there = sorted({entry for entry in replicates[rows] if entry is not None})
    if len(there) < 2:
        known = f"only {there[0]!r}" if there else "no entry"
        raise InputError(
            f"replicate must be a column with several values; adata.obs[{column!r}] has {known} in these cells: name "
            "the column of the donors, or leave replicate out for random splits"
        )


def _with_enough_replicates(
    conditions: list[Condition],
) -> tuple[list[Condition], list[tuple[str, int]], list[tuple[str, int]]]:
    """Conditions with enough replicates, those with too few to learn from, and those with too few to be judged on."""
    kept, few, unjudged = [], [], []
    for condition in conditions:
        splits = condition.splits
        both = len(splits) + len(splits.small) if isinstance(splits, ReplicateSplits) else FEWEST_REPLICATES
        if both < FEWEST_REPLICATES:
            few.append((condition.label, both))
        elif isinstance(splits, ReplicateSplits) and len(splits) < 2:
            unjudged.append((condition.label, len(splits)))
        else:
            kept.append(condition)
    return kept, few, unjudged


def _refuse_replicates(few: list[tuple[str, int]], unjudged: list[tuple[str, int]]) -> None:
    """Raise, as these conditions have too few replicates."""
    few_named, unjudged_named = ([f"{label} ({count})" for label, count in part] for part in (few, unjudged))
    remedy = "name other groups as targets, or leave replicate out for random splits"
    if few:
        raise InputError(
            f"replicate must have at least {FEWEST_REPLICATES} values with both control and target cells in each "
            f"condition; too few: {some(few_named)}: {remedy}"
        )
    raise InputError(
        f"replicate must have at least 2 values with {FEWEST_CELLS} control and {FEWEST_CELLS} target cells in "
        f"each condition, so that they can be left out; too few: {some(unjudged_named)}: {remedy}"
    )


def notes_on_splits(adata: Any, asked: Any, conditions: list[Condition]) -> tuple[list[str], list[str]]:
    """What to warn of, and what to note, if replicates are left out; `asked` is the protocol."""
    column = asked.replicate
    if column is None:
        return [], []
    warned, noted = [], []
    groups, nameless = labels(adata, asked.groupby), _without_entry(replicate_labels(adata, column))
    count = int(np.isin(groups.astype(str), [asked.control, *asked.targets])[nameless].sum())
    if count:
        have = "1 cell has no replicate" if count == 1 else f"{count:,} cells have no replicate"
        warned.append(f"{have} in {column!r}: left out of the evaluation.")
    small, one_sided = [], []
    for condition in conditions:
        if isinstance(condition.splits, ReplicateSplits):
            prefix = f"{condition.label}: " if len(conditions) > 1 else ""
            small += [
                f"{prefix}{name} ({mine:,} control and {theirs:,} target cells)"
                for name, (mine, theirs) in condition.splits.small.items()
            ]
            one_sided += [f"{prefix}{name}" for name in condition.splits.one_sided]
    if small:
        warned.append(
            f"Replicates ({column}) with fewer than {FEWEST_CELLS} control or target cells are only used to fit maps, "
            f"never left out: {some(small, 10)}."
        )
    if one_sided:
        noted.append(
            f"Replicates ({column}) without cells in both groups are only used to fit maps: {some(one_sided, 10)}."
        )
    return warned, noted


def several(given: Any, name: str) -> tuple[Any, ...]:
    """One or several, as a tuple."""
    if given is None:
        raise InputError(f"{name} must be given, one or several; got None")
    return tuple(given) if np.iterable(given) and not isinstance(given, str | bytes) else (given,)
