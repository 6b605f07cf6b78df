"""Evaluations that leave out one donor at a time: their splits, what is refused, and what is reported."""

from __future__ import annotations

import html
import inspect
import json
import shlex
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import LeaveOneGroupOut
from typer.testing import CliRunner

import occamap as oc
from occamap.cli.app import app
from occamap.errors import InputError, InputWarning
from occamap.run_record import RunRecord

pytest.importorskip("anndata")
pytest.importorskip("pyarrow")
pytest.importorskip("jinja2")

from occamap.evaluation.held_out import leave_one_out
from occamap.evaluation.protocol import check_protocol
from occamap.reports import page
from occamap.reports.again import command
from occamap.reports.saved import read

PAIR = {"groupby": "condition", "control": "control"}
QUICK = {**PAIR, "costs": ["l1"], "gammas": [1.0], "components": 5, "markers": 10, "verbose": False}
WORDS = ["--groupby", "condition", "--control", "control", "--costs", "l1", "--gammas", "1"]
WORDS += ["--components", "5", "--markers", "10"]
BY_DONOR = {**QUICK, "replicate": "donor"}
DONORS = ["anna", "ben <b>", "cem", "dora"]
ROWS = 4  # of a split: one map and three baselines


def make():
    """80 control and 80 treated cells, 20 of each donor in either group."""
    cells = oc.datasets.simulate_perturbation(80, 80, 100, n_types=1, n_moved=10, effect=1.5).to_anndata()
    cells.obs["donor"] = [DONORS[i % 4] for i in range(80)] * 2
    return cells


@pytest.fixture(scope="module")
def plain():
    return make()


@pytest.fixture
def cells(plain):
    """A copy whose donors a test may change."""
    return plain.copy()


@pytest.fixture(scope="module")
def saved(plain, tmp_path_factory):
    """A complete run, its table and its directory; one donor is small, one has control cells only."""
    folder = tmp_path_factory.mktemp("saved")
    cells = plain.copy()
    rename(cells, "control", "cem", "one-sided & alone", 5)
    rename(cells, "treated", "dora", "few", 9)
    rename(cells, "control", "dora", "few", 2)
    with pytest.warns(InputWarning, match="'few"):
        table = oc.evaluate(cells, **BY_DONOR, out=folder)
    return table, folder


def rename(cells, condition, donor, name, count):
    """Give the first cells of a donor in a condition to another donor."""
    rows = np.flatnonzero((cells.obs["condition"] == condition) & (cells.obs["donor"] == donor))[:count]
    cells.obs.iloc[rows, cells.obs.columns.get_loc("donor")] = name


def conditions_of(cells, **changed):
    work = ("adata", "out", "max_memory", "n_jobs", "verbose", "tick", "client")
    defaults = {name: entry.default for name, entry in inspect.signature(oc.evaluate).parameters.items()}
    asked = {name: value for name, value in {**defaults, **BY_DONOR, **changed}.items() if name not in work}
    return check_protocol(cells, **asked)[1]


def run(*words, code=0):
    done = CliRunner().invoke(app, ["evaluate", *map(str, words)])
    assert done.exit_code == code, done.output
    return done


# -- splits ------------------------------------------------------------------------------------------------------


def test_splits_leave_one_group_out(plain):
    """The oracle is scikit-learn, for the cells of either group."""
    [condition] = conditions_of(plain)
    found = [condition.splits.split(k) for k in range(len(condition.splits))]
    for rows, name in ((condition.rows, "source"), (condition.others, "target")):
        groups = plain.obs["donor"].to_numpy()[rows]
        expected = list(LeaveOneGroupOut().split(rows, groups=groups))
        assert len(found) == len(expected) == 4
        for split, (train, test) in zip(found, expected, strict=True):
            np.testing.assert_array_equal(getattr(split, f"{name}_train"), train)
            np.testing.assert_array_equal(getattr(split, f"{name}_test"), test)


def test_table_names_donors(plain):
    table = oc.evaluate(plain, **BY_DONOR)
    assert table["replicate"].tolist() == [name for name in DONORS for _ in range(ROWS)]
    assert table["split"].tolist() == [k for k in range(4) for _ in range(ROWS)]
    assert (table["n_control_train"] == 60).all()
    assert (table["n_target_test"] == 20).all()
    assert np.isfinite(table["divergence"]).all()


def test_seed_moves_only_treated(plain):
    first, second = (oc.evaluate(plain, **BY_DONOR, random_state=seed) for seed in (0, 1))
    learned = ["method", "density", "epsilon_used", "n_control_test", "rbo_train"]
    pd.testing.assert_frame_equal(
        first.loc[first["method"] == "l1", learned], second.loc[second["method"] == "l1", learned]
    )


def test_donor_left_out_teaches_nothing(cells):
    """Changed target cells of a donor change the scores of its split, but not the map."""
    before = oc.evaluate(cells, **BY_DONOR)
    theirs = ((cells.obs["condition"] == "treated") & (cells.obs["donor"] == "cem")).to_numpy()
    matrix = cells.X.toarray()
    matrix[theirs] = 7.0
    cells.X = matrix
    after = oc.evaluate(cells, **BY_DONOR)
    row = (before["method"] == "l1") & (before["replicate"] == "cem")
    learned = ["density", "epsilon_used", "effective_targets", "rbo_train"]
    np.testing.assert_allclose(after.loc[row, learned], before.loc[row, learned], rtol=1e-5)
    assert (after.loc[row, "divergence"] > 2 * before.loc[row, "divergence"]).all()
    other = (before["method"] == "l1") & (before["replicate"] == "anna")
    assert not np.isclose(after.loc[other, "epsilon_used"], before.loc[other, "epsilon_used"]).any()


def test_keeps_small_donor_for_learning(cells):
    rename(cells, "treated", "dora", "anna", 11)  # 9 are left
    with pytest.warns(InputWarning, match=r"fewer than 10 .* 'dora \(20 control and 9 target cells\)'"):
        table = oc.evaluate(cells, **BY_DONOR)
    assert list(dict.fromkeys(table["replicate"])) == DONORS[:3]
    assert (table["n_control_train"] == 60).all()  # with those of the small donor
    assert table.groupby("replicate")["n_target_train"].first().to_dict() == {"anna": 49, "ben <b>": 60, "cem": 60}


def test_ten_cells_are_enough(cells):
    rename(cells, "treated", "dora", "anna", 10)
    [condition] = conditions_of(cells)
    assert list(condition.splits.names) == DONORS


def test_keeps_one_sided_donor_for_learning(cells, capsys):
    rename(cells, "control", "dora", "eve", 12)
    rename(cells, "control", "dora", "cem", 8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = oc.evaluate(cells, **{**BY_DONOR, "verbose": True})
    assert list(dict.fromkeys(table["replicate"])) == DONORS[:3]
    told = capsys.readouterr()
    assert "without cells in both groups are only used to fit maps: 'dora', 'eve'" in told.out + told.err
    one = table[table["replicate"] == "anna"]
    assert (one["n_control_train"] == 60).all()
    assert (one["n_target_train"] == 60).all()


def test_drops_cells_without_entry(cells):
    nameless = np.zeros(cells.n_obs, bool)
    nameless[[0, 5, 90]] = True
    cells.obs["donor"] = cells.obs["donor"].where(~nameless)
    with pytest.warns(InputWarning, match="3 cells have no replicate in 'donor': left out of the evaluation"):
        table = oc.evaluate(cells, **BY_DONOR)
    pd.testing.assert_frame_equal(table, oc.evaluate(cells[~nameless].copy(), **BY_DONOR))


def test_conditions_have_their_own_donors(cells):
    cells.obs["line"] = ["A" if i % 80 < 40 else "B" for i in range(160)]
    rename(cells, "treated", "dora", "cem", 1)  # 9 of line A are left
    with pytest.warns(InputWarning, match=r"'A: treated: dora \(10 control and 9 target cells\)'"):
        table = oc.evaluate(cells, **BY_DONOR, within="line")
    found = table.groupby("within")["replicate"].unique()
    assert found["A"].tolist() == DONORS[:3]
    assert found["B"].tolist() == DONORS


def test_memory_bound_holds_for_each_split():
    rng = np.random.default_rng(0)
    splits = leave_one_out(*(rng.choice(DONORS, 200, p=[0.1, 0.2, 0.3, 0.4]) for _ in range(2)))
    sizes = [splits.split(k) for k in range(4)]
    assert splits.largest() == (
        max(part.source_train.size + part.target_train.size for part in sizes),
        max(part.source_test.size + part.target_test.size for part in sizes),
    )


def test_random_splits_are_as_before(plain):
    """Cells and scores that version 0.1 had before it knew of donors."""
    [condition] = conditions_of(plain, replicate=None)
    assert len(condition.splits) == 10
    split = condition.splits.split(1)
    control = [0, 3, 4, 17, 27, 28, 35, 36, 44, 54, 58, 60, 62, 65, 69, 77]
    target = [8, 9, 10, 15, 16, 22, 28, 35, 44, 45, 46, 51, 66, 71, 73, 78]
    assert split.source_test.tolist() == control
    assert split.target_test.tolist() == target
    table = oc.evaluate(plain, **QUICK, splits=2)
    assert set(table["replicate"]) == {""}
    divergence = [0.425185, 0.848530, 0.499134, 0.218595, 0.249441, 1.016200, 0.436627, 0.288119]
    energy = [0.478291, 0.803798, 0.348024, 0.116721, 0.273364, 0.842276, 0.194784, 0.139189]
    np.testing.assert_allclose(table["divergence"], divergence, rtol=1e-3)
    np.testing.assert_allclose(table["energy"], energy, rtol=1e-3)


# -- what is refused ---------------------------------------------------------------------------------------------


def refused(cells, message, **changed):
    with pytest.raises(InputError, match=message):
        oc.evaluate(cells, **{**BY_DONOR, **changed}, tick=lambda done, total: pytest.fail("it began"))


def test_rejects_one_donor(cells):
    cells.obs["donor"] = "anna"
    refused(cells, "must be a column with several values; .* only 'anna' .*: name .* donors, or leave replicate out")


def test_rejects_no_donor(cells):
    cells.obs["donor"] = pd.Series([None] * cells.n_obs, index=cells.obs_names, dtype=object)
    refused(cells, "has no entry in these cells: name the column of the donors")


def test_rejects_two_donors(cells):
    cells.obs["donor"] = [DONORS[i % 2] for i in range(cells.n_obs)]
    refused(cells, r"at least 3 values with both .* too few: 'treated \(2\)': name other .* or leave replicate out")


def test_rejects_donors_on_one_side(cells):
    """Four donors, of whom two have both control and target cells."""
    rename(cells, "control", "dora", "anna", 20)
    rename(cells, "treated", "cem", "ben <b>", 20)
    refused(cells, r"at least 3 values with both control and target cells in each condition; too few: 'treated \(2\)'")


def test_rejects_small_donors(cells):
    for donor in DONORS[1:]:
        rename(cells, "treated", donor, "anna", 11)
    refused(cells, r"at least 2 values with 10 control and 10 target cells .* too few: 'treated \(1\)': name other")


@pytest.mark.parametrize("name", ["splits", "test_size"])
def test_rejects_random_splits_beside(plain, name):
    value = {"splits": 3, "test_size": 0.2}[name]
    refused(plain, f"{name} must not be given with replicate='donor'.*got {value}", **{name: value})


def test_rejects_unknown_column(plain):
    refused(plain, "replicate must be a column of adata.obs .*'donor'", replicate="doner")


# -- files -------------------------------------------------------------------------------------------------------


class KilledError(Exception):
    pass


def test_resumes_to_same_table(plain, tmp_path):
    whole = oc.evaluate(plain, **BY_DONOR, n_jobs=1)

    def kill(done, total):
        assert total == 4 * ROWS
        if done > 2 * ROWS:
            raise KilledError

    with pytest.raises(KilledError):
        oc.evaluate(plain, **BY_DONOR, n_jobs=1, out=tmp_path, tick=kill)
    assert not (tmp_path / "evaluation.csv").exists()
    seen = []
    again = oc.evaluate(plain, **BY_DONOR, n_jobs=1, out=tmp_path, tick=lambda done, total: seen.append(done))
    pd.testing.assert_frame_equal(again, whole)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "evaluation.parquet"), whole)
    assert RunRecord.read(tmp_path).result["splits_from_earlier_runs"] >= 1
    assert seen[0] >= ROWS


def test_directory_belongs_to_donors(cells, tmp_path):
    oc.evaluate(cells, **BY_DONOR, out=tmp_path)
    with pytest.raises(InputError, match=r"holds one of other .*replicate: take another directory"):
        oc.evaluate(cells, **QUICK, out=tmp_path)
    swapped = cells.obs["donor"].replace({"anna": "cem", "cem": "anna"})
    cells.obs["donor"] = swapped
    with pytest.raises(InputError, match="holds one of other data"):
        oc.evaluate(cells, **BY_DONOR, out=tmp_path)


def test_record_says_who_was_left_out(saved):
    record = RunRecord.read(saved[1])
    assert record.parameters["replicate"] == "donor"
    assert record.parameters["splits"] is None
    assert record.parameters["test_size"] is None
    assert record.result["replicates"] == [DONORS]
    assert len(record.result["notes"]) == len(record.warnings) == 1


# -- the page ----------------------------------------------------------------------------------------------------


def test_page_says_who_was_left_out(saved):
    table, folder = saved
    raw = (folder / "report.html").read_text(encoding="utf-8")
    assert "ben <b>" not in raw
    text = html.unescape(raw)
    names = "anna, ben <b>, cem and dora"
    assert "Over 1 condition, with 4 replicates (donor) left out one at a time, ℓ1" in text
    assert "Means over 4 replicates (donor), left out one at a time." in text
    assert f"for replicates that the map has not seen: {names}. Each number is a mean over 4 replicates" in text
    assert f"4 replicates were left out one at a time ({names}), with occamap" in text
    assert "random split" not in text
    spread = table.loc[table["method"] == "l1", "divergence"].std()
    assert f"standard deviation of {spread:.2g}. They are too few to tell small differences." in text
    means = table.groupby("method")["divergence"].mean()
    assert f"Target cells of other replicates are at {means['treated']:.3g} from those held out" in text
    assert f"the closest sparse map is at {means['l1']:.3g}: " in text
    assert "only used to fit maps: 'one-sided & alone'." in text  # the note
    assert "never left out: 'few (2 control and 9 target cells)'." in text  # the warning


def test_page_lists_donors_by_condition(saved):
    run, _ = read(saved[1])
    run.record.result["conditions"] = ["A: x", "B: x"]
    run.record.result["replicates"] = [["anna", "cem"], [f"d{i}" for i in range(23)]]
    text = html.unescape(page(run).decode())
    assert "has not seen: A: x: anna and cem; B: x: d0, d1," in text
    assert "d18, d19 and 3 more. Each number is a mean over 2 to 23 replicates" in text


def test_page_of_earlier_run(plain, tmp_path):
    """Records of runs before there were replicates have no such entries."""
    oc.evaluate(plain, **QUICK, splits=2, out=tmp_path)
    before = (tmp_path / "report.html").read_bytes()
    assert b"Means over 2 random splits." in before
    record = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    del record["parameters"]["replicate"], record["result"]["replicates"], record["result"]["notes"]
    (tmp_path / "run.json").write_text(json.dumps(record), encoding="utf-8")
    text = oc.report(tmp_path).read_text(encoding="utf-8")
    assert "Over 1 condition × 2 splits into train and test cells" in text
    assert "on 80% of the cells and scored on the others, in 2 random splits" in text


# -- the command line --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def file(plain, tmp_path_factory):
    path = tmp_path_factory.mktemp("cells") / "cells.h5ad"
    cells = plain.copy()
    rename(cells, "control", "dora", "eve", 2)
    cells.write_h5ad(path)
    return path


def test_command_gives_same_table(file, tmp_path):
    told = run(file, *WORDS, "--replicate", "donor", "--out", tmp_path / "a").stdout
    table = oc.evaluate(file, **BY_DONOR)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "a" / "evaluation.parquet"), table)
    assert "1 condition, 4 splits: means over all of them." in told
    assert "Each split leaves out one replicate (donor): anna, ben <b>, cem, dora." in told
    assert "without cells in both groups are only used to fit maps: 'eve'." in told
    again = json.loads(run(file, *WORDS, "--replicate", "donor", "--out", tmp_path / "a", "--json").stdout)
    assert again["result"]["replicates"] == [DONORS]
    assert again["result"]["splits_from_earlier_runs"] == 4


def test_command_of_page_runs(file, tmp_path, monkeypatch):
    oc.evaluate(file, **BY_DONOR, out=tmp_path / "a")
    words = shlex.split(command(RunRecord.read(tmp_path / "a")))
    assert "--replicate=donor" in words
    assert not [word for word in words if word.startswith(("--splits", "--test-size"))]
    monkeypatch.chdir(file.parent)
    run(*words[2:-1], f"--out={tmp_path / 'b'}")
    one, two = (pd.read_parquet(tmp_path / name / "evaluation.parquet") for name in "ab")
    pd.testing.assert_frame_equal(one, two)


@pytest.mark.parametrize("option", [("--splits", 10), ("--test-size", 0.2)])
def test_command_rejects_random_splits_beside(file, tmp_path, option):
    """Their defaults are refused as well."""
    told = run(file, *WORDS, "--replicate", "donor", *option, "--out", tmp_path / "a", code=2)
    assert f"{option[0]} must not be given with --replicate donor, which leaves out each replicate once" in told.stderr
    assert told.stdout == ""
    assert not (tmp_path / "a").exists()


def test_command_names_its_option(file, tmp_path):
    told = run(file, *WORDS, "--replicate", "cell_type", "--out", tmp_path / "a", code=2).stderr
    assert "--replicate must be a column with several values" in told


def test_command_has_random_splits_by_default(file, tmp_path):
    told = run(file, *WORDS, "--out", tmp_path / "a").stdout
    assert "1 condition × 10 splits: means over all of them." in told
    assert RunRecord.read(tmp_path / "a").parameters["test_size"] == 0.2
