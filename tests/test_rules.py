"""The rules of choice on tables made by hand and at random, and the sentences under the table of a choice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from occamap.errors import SelectionError
from occamap.selection.diagnostics import Diagnostics, Line
from occamap.selection.rules import RULES, Table, choose, frontier


def line(divergence: float, error: float = 1.0, targets: float = 5.0) -> Line:
    return Line("x", divergence, error, 0.1, targets, 100)


@pytest.mark.parametrize(
    ("chosen", "shift", "words"),
    [
        (line(20.0), 50.0, ["at the floor"]),
        (line(10.0), 50.0, ["below the floor"]),
        (line(40.0), 50.0, ["covers 75% of the way"]),
        (line(60.0), 50.0, ["covers 50%", "less faithful than the mean shift"]),
        (line(20.0), 20.5, ["at the floor", "mean shift reaches the floor, too"]),
        (line(20.0, targets=80.0), 50.0, ["at the floor", "most targets at once"]),
    ],
)
def test_the_table_says_what_to_make_of_it(chosen: Line, shift: float, words: list[str]) -> None:
    notes = Diagnostics(line(100.0), line(shift), chosen, chosen, line(20.0)).notes()
    assert len(notes) == len(words)
    assert all(word in note for word, note in zip(words, notes, strict=True))


def test_where_splits_are_given_other_targets_are_no_floor() -> None:
    notes = Diagnostics(line(100.0), line(20.5), line(10.0), line(10.0), line(20.0), alike=False).notes()
    assert len(notes) == 1
    assert "there is no floor" in notes[0]


def table(divergence: Any, density: Any, error: Any = 1.0, converged: Any = True) -> Table:
    n = len(divergence)
    return Table(
        np.array(divergence, float),
        np.broadcast_to(np.asarray(error, float), n),
        np.array(density, float),
        np.broadcast_to(np.asarray(converged, bool), n),
    )


def test_the_rules_by_hand() -> None:
    rows = table([10.0, 10.5, 10.9, 14.0, 30.0], [0.9, 0.5, 0.3, 0.1, 0.05])
    assert choose(rows, "best") == 0
    assert choose(rows, "one_se") == 2
    assert choose(rows, "density", 0.1) == 3
    assert choose(rows, "density", 0.09) == 4
    assert choose(rows, "pareto") == 0
    assert frontier(rows).tolist() == [4, 3, 2, 1, 0]
    assert frontier(table([1.0, 2.0, 3.0], [0.1, 0.2, 0.3])).tolist() == [0]


def test_what_did_not_converge_is_never_chosen() -> None:
    rows = table([1.0, 10.0, 10.1], [0.01, 0.5, 0.4], converged=[False, True, True])
    assert [choose(rows, rule, 0.9 if rule == "density" else None) for rule in RULES] == [1, 2, 1, 1]
    assert 0 not in frontier(rows)
    with pytest.raises(SelectionError, match="no candidate converged"):
        choose(table([1.0], [0.5], converged=False), "best")


def test_rules_that_cannot_be_met_say_what_could() -> None:
    with pytest.raises(SelectionError, match=r"at most max_density=0.05; the sparsest has 0.3: raise max_density"):
        choose(table([1.0, 2.0], [0.3, 0.4]), "density", 0.05)
    with pytest.raises(SelectionError, match="two splits or more"):
        choose(table([1.0], [0.3], error=np.nan), "one_se")


columns = hnp.arrays(float, 12, elements=st.integers(0, 6).map(float))


@given(columns, columns, hnp.arrays(bool, 12))
def test_nothing_beats_the_frontier_and_all_else_is_beaten(divergence: Any, density: Any, converged: Any) -> None:
    rows = table(divergence, density, 0.5, converged)
    kept = frontier(rows)
    for row in np.flatnonzero(converged):
        beaten = any(
            divergence[k] <= divergence[row]
            and density[k] <= density[row]
            and (divergence[k] < divergence[row] or density[k] < density[row] or k != row)
            for k in kept
        )
        assert (row in kept) or beaten
    for row in kept:
        strictly = converged & (divergence <= divergence[row]) & (density <= density[row])
        strictly &= (divergence < divergence[row]) | (density < density[row])
        assert not strictly.any()
    if converged.any():
        assert choose(rows, "best") in kept
        taken = choose(rows, "one_se")
        assert divergence[taken] <= divergence[choose(rows, "best")] + 0.5
