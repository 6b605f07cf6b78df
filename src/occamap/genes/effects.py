"""How much each gene differs between control cells and their matched targets, in each group, and how surely."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray

from occamap.genes.fold_changes import log2_fold_changes
from occamap.inference import Contrasts, balance, contrasts, q_values, significance

Floats = NDArray[np.float64]
Labels = NDArray[Any]

BLOCK = 2**24  # cells × sets whose scores are held at a time


@dataclass(frozen=True, eq=False)
class Effects:
    """Groups × genes: differences of matched means, 95 % intervals, log2 fold changes and p-values; and the replicates.

    `n_replicates` and `degrees`, the degrees of freedom between replicates, are None if cells were tested as if they
    were independent.
    """

    difference: Floats
    half_width: Floats
    log2_fold_change: Floats
    p: Floats
    n_replicates: NDArray[np.int64] | None
    degrees: Floats | None = None

    def columns(self, group: int, q: Floats) -> dict[str, Any]:
        """Those of the table of a group, where `q` has the q-values of its genes."""
        mean, width = self.difference[group], self.half_width[group]
        found: dict[str, Any] = {
            "difference": mean, "difference_low": mean - width, "difference_high": mean + width,
            "log2_fold_change": self.log2_fold_change[group], "p": self.p[group], "q": q,
        }  # fmt: skip
        if self.n_replicates is not None:
            found["n_replicates"] = int(self.n_replicates[group])
        return found


def effects(
    control: Any,
    target: Any,
    match: sp.csr_array | None,
    groups: NDArray[np.int64],
    n_groups: int,
    replicates: tuple[Labels, Labels] | None = None,
    base: float | None = None,
    sets: sp.csr_array | None = None,
) -> Effects:
    """Compare the control cells of each group with the target cells that `match` gives weights.

    `groups` has codes from 0 on, or −1 for cells in no group. `replicates` are the labels of the control and of the
    target cells; cells without one (None) take no part. `base` is that of the logs, or None if the values are not logs:
    there are no fold changes then. With `sets`, genes × sets, the weighted sums of genes are compared instead of genes,
    and have no fold changes. Everything is NaN without a match, or in groups without cells.
    """
    shape = n_groups, (control if sets is None else sets).shape[1]
    if match is None:
        nothing = np.full(shape, np.nan)
        return Effects(nothing, nothing, nothing, nothing, None if replicates is None else np.zeros(n_groups, np.int64))
    rows, columns = np.arange(control.shape[0]), np.arange(target.shape[0])
    if replicates is not None:
        rows, columns = (np.flatnonzero([entry is not None for entry in side]) for side in replicates)
        replicates = replicates[0][rows].astype(str), replicates[1][columns].astype(str)
    weights = sp.csr_array(match[rows][:, columns]).astype(np.float64)
    mass = np.asarray(weights.sum(axis=1)).ravel()
    held = np.flatnonzero((mass > 0) & (groups[rows] >= 0))
    codes = groups[rows][held]
    sizes = np.bincount(codes, minlength=n_groups)
    W = sp.csr_array((1.0 / sizes[codes], (codes, held)), shape=(n_groups, rows.size))
    V = W @ sp.diags_array(1.0 / np.where(mass > 0, mass, 1.0)) @ weights
    there = np.flatnonzero(sizes > 0)
    W, V = W[there], sp.csr_array(V)[there]
    if replicates is not None:
        W, V = balance(W, V, *_numbers(replicates))
    compared = control[rows], target[columns], W, V
    found = contrasts(*compared, replicates) if sets is None else _of_sets(*compared, replicates, sets)
    tested = significance(found)
    difference, width, fold_change, p = (np.full(shape, np.nan) for _ in range(4))
    difference[there], width[there], p[there] = found.difference, tested.half_width(), tested.p
    if base is not None and sets is None:
        fold_change[there] = log2_fold_changes(*compared, base)
    if found.n_replicates is None or found.between_degrees is None:
        return Effects(difference, width, fold_change, p, None)
    counts, degrees = np.zeros(n_groups, np.int64), np.zeros(n_groups)
    counts[there], degrees[there] = found.n_replicates, found.between_degrees
    return Effects(difference, width, fold_change, p, counts, degrees)


def _numbers(labels: tuple[Labels, Labels]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Labels of both sides as numbers, those of the same label alike."""
    codes = np.unique(np.concatenate(labels), return_inverse=True)[1]
    return codes[: labels[0].size], codes[labels[0].size :]


def _of_sets(
    control: Any, target: Any, W: Any, V: Any, replicates: tuple[Labels, Labels] | None, sets: sp.csr_array
) -> Contrasts:
    """Contrasts of weighted sums of genes, some sets at a time."""
    by_column = sp.csc_array(sets)
    step = max(1, BLOCK // max(1, control.shape[0] + target.shape[0]))
    parts = []
    for start in range(0, sets.shape[1], step):
        weights = sp.csr_array(by_column[:, start : start + step]).astype(np.float64)
        before, after = (sp.csr_array(side.astype(np.float64) @ weights) for side in (control, target))
        parts.append(contrasts(before, after, W, V, replicates))
    return Contrasts.joined(parts)


def add_effects(tables: list[pd.DataFrame], found: Effects, names: Labels, after: str, omit: str = "") -> None:
    """Insert the columns of each group into its table, behind the column `after`, but not the column `omit`.

    `names` are those of the rows; q-values are over all rows of all these tables together.
    """
    q = q_values(found.p)
    for group, table in enumerate(tables):
        columns = found.columns(group, q[group])
        columns.pop(omit, None)
        frame = pd.DataFrame(columns, index=pd.Index(names, name=table.index.name)).reindex(table.index)
        place = table.columns.get_loc(after) + 1
        for offset, name in enumerate(frame):
            table.insert(place + offset, name, frame[name])
