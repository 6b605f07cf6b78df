"""The evaluation: its numbers against public functions, its splits, and that nothing is lost when it is killed."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.decomposition import PCA

import occamap as oc
from occamap._memory import Budget
from occamap._validate import check_samples
from occamap._workers import Workers
from occamap.errors import InputError, InputWarning, MemoryBudgetError

anndata = pytest.importorskip("anndata")
pytest.importorskip("pyarrow")

from occamap.evaluation.components import Gram  # noqa: E402
from occamap.evaluation.markers import moments, welch_t  # noqa: E402
from occamap.evaluation.protocol import check_protocol  # noqa: E402
from occamap.evaluation.shared import Preparation  # noqa: E402
from occamap.evaluation.split import _drawn  # noqa: E402
from occamap.metrics.against import Against  # noqa: E402
from occamap.run_record import RunRecord  # noqa: E402

ASKED = {"groupby": "drug", "control": "none", "within": "line"}
SMALL = {"gammas": [0.1, 1.0], "splits": 2, "components": 5, "markers": 10, "verbose": False}


def make(seed=0, n_genes=150):
    """Two lines with two drugs each."""
    parts = []
    for line in ("A one", "B/2"):
        data = [
            oc.datasets.simulate_perturbation(60, 40, n_genes, n_moved=10, effect=1.5, random_state=seed + k)
            for k in (0, 1)
        ]
        control, first, second = data[0].control, data[0].treated, data[1].treated
        for cells, drug in ((control, "none"), (first, "x"), (second, "y, z")):
            names = [f"{line}{drug}{i}" for i in range(cells.shape[0])]
            obs = pd.DataFrame({"drug": drug, "line": line}, index=names)
            parts.append(anndata.AnnData(sp.csr_matrix(cells), obs=obs))
            parts[-1].var_names = data[0].genes
        seed += 5
    made = anndata.concat(parts)
    made.obs["drug"], made.obs["line"] = made.obs["drug"].astype("category"), made.obs["line"].astype("category")
    return made


@pytest.fixture(scope="module")
def cells():
    return make()


@pytest.fixture(scope="module")
def table(cells):
    return oc.evaluate(cells, **ASKED, **SMALL, close_ups=["A one: x"])


def shared_of(cells, label, **changed):
    """What the evaluation prepares for a condition."""
    names = inspect.signature(oc.evaluate).parameters
    work = ("adata", "out", "max_memory", "n_jobs", "verbose", "tick", "client")
    asked = {name: entry.default for name, entry in names.items() if name not in work}
    asked |= {**ASKED, **{name: value for name, value in SMALL.items() if name in asked}, **changed}
    protocol, conditions, _ = check_protocol(cells, **asked)
    [condition] = [condition for condition in conditions if condition.label == label]
    return Preparation(cells, protocol, None, None)(condition, lambda: None)


def test_a_row_for_each_condition_split_method_and_strength(table):
    methods = ["sql2", "l1", "l1", "stvs", "stvs", "sql2_pca", "identity", "mean_shift", "treated"]
    assert len(table) == 4 * 2 * len(methods)
    for _, part in table.groupby(["within", "target", "split"]):
        assert part["method"].tolist() == methods
    assert set(zip(table["within"], table["target"], strict=True)) == {
        (line, drug) for line in ("A one", "B/2") for drug in ("x", "y, z")
    }
    assert (table["n_control_test"] == 12).all()
    assert (table["n_target_train"] == 32).all()
    numbers = table.drop(columns=["within", "target", "method", "status", "message"])
    assert table.loc[table["method"] == "sql2", numbers.columns.drop("divergence_genes")].notna().all(axis=None)
    assert np.isfinite(numbers[["divergence", "mmd", "energy"]]).all(axis=None)
    assert table["divergence_genes"].notna().equals((table["within"] == "A one") & (table["target"] == "x"))


def test_the_rows_are_what_public_functions_give(cells, table):
    """One split by hand: components by scikit-learn, maps by MongeMap, scores by oc.metrics."""
    shared = shared_of(cells, "A one: x", close_ups=["A one: x"])
    split, problem = shared.split(1), shared.problem
    source, target = problem.source.csr(), problem.target.csr()
    X, unseen = source[split.source_train], source[split.source_test]
    Y, held_out = target[split.target_train], target[split.target_test]
    others = np.delete(np.arange(Y.shape[0]), _drawn(Y.shape[0], held_out.shape[0], 0, 1))
    dense = np.vstack([X.toarray(), Y[others].toarray()]).astype(float)
    components = PCA(5, svd_solver="full").fit(dense)
    rows = table[(table["within"] == "A one") & (table["target"] == "x") & (table["split"] == 1)]
    change = np.asarray(held_out.mean(axis=0) - unseen.mean(axis=0)).ravel()
    t_train = welch_t(moments(Y), moments(X))
    markers = np.argsort(-t_train, kind="stable")[:10]

    def check(method, gamma, moved, density):
        row = rows[(rows["method"] == method) & (rows["gamma"].eq(gamma) | (gamma is None))].iloc[0]
        here, there = components.transform(np.asarray(moved, dtype=float)), components.transform(held_out.toarray())
        close = {"rel": 2e-3, "abs": 1e-4}  # solved to 1e-4
        assert row["divergence"] == pytest.approx(oc.metrics.sinkhorn_divergence(here, there), **close)
        assert row["mmd"] == pytest.approx(oc.metrics.mmd(here, there), rel=1e-3, abs=1e-5)
        assert row["energy"] == pytest.approx(oc.metrics.energy_distance(here, there), rel=1e-3, abs=1e-5)
        genes = oc.metrics.sinkhorn_divergence(np.asarray(moved, dtype=float), held_out.toarray().astype(float))
        assert row["divergence_genes"] == pytest.approx(genes, **close)
        told = np.asarray(moved).mean(axis=0) - np.asarray(unseen.mean(axis=0)).ravel()
        if np.ptp(told) > 1e-6:
            r = oc.metrics.pearson_r(change[markers], told[markers])
            assert row["pearson_r_changes_train"] == pytest.approx(r, abs=1e-4)
            assert row["r2_score_changes_train"] == pytest.approx(
                oc.metrics.r2_score(change[markers], told[markers]), rel=1e-3, abs=1e-3
            )
        assert row["density"] == pytest.approx(density, abs=1e-9)

    for method, gamma, cost in (("sql2", 0.0, oc.SqL2()), ("l1", 1.0, oc.L1(1.0)), ("stvs", 0.1, oc.STVS(0.1))):
        fitted = oc.MongeMap(cost).fit(X, Y)
        moves = fitted.displacement(unseen)
        check(method, gamma, (unseen + moves).toarray(), oc.metrics.density(moves))
        row = rows[(rows["method"] == method) & (rows["gamma"] == gamma)].iloc[0]
        assert row["epsilon_used"] == pytest.approx(fitted.epsilon_, rel=1e-9)
        assert row["status"] == "converged"
    reduced = oc.MongeMap(oc.SqL2()).fit(components.transform(X.toarray()), components.transform(Y.toarray()))
    steps = reduced.displacement(components.transform(unseen.toarray())).toarray()
    lifted = steps @ components.components_
    check("sql2_pca", None, unseen.toarray() + lifted, oc.metrics.density(lifted))
    shift = np.asarray(Y.mean(axis=0) - X.mean(axis=0)).ravel()
    check("identity", None, unseen.toarray(), 0.0)
    check("mean_shift", None, unseen.toarray() + shift, np.mean(np.abs(shift) > 1e-8))


@pytest.mark.parametrize("components", [2, 20])
def test_other_treated_cells_score_best_whatever_the_number_of_components(components):
    """They stand for a perfect map: components that were learned on them would make them the worst of all."""
    cells = oc.datasets.simulate_perturbation(90, 80, 400, n_types=1, effect=2.0).to_anndata()
    asked = {**SMALL, "components": components, "splits": 4, "gammas": [0.3]}
    found = oc.evaluate(cells, groupby="condition", control="control", costs=["l1"], **asked)
    energy = found.groupby("method")["energy"].mean()
    assert energy["treated"] == energy.min()
    assert (
        found.groupby("method")["divergence"].mean()["treated"]
        < found.groupby("method")["divergence"].mean()["identity"]
    )


def test_overlap_is_that_of_the_markers_and_the_displacements(cells, table):
    shared = shared_of(cells, "B/2: y, z")
    split, problem = shared.split(0), shared.problem
    X, Y = problem.source.csr()[split.source_train], problem.target.csr()[split.target_train]
    moves = oc.MongeMap(oc.L1(1.0)).fit(X, Y).displacement(problem.source.csr()[split.source_test])
    row = table[(table["within"] == "B/2") & (table["target"] == "y, z") & (table["split"] == 0)]
    row = row[(row["method"] == "l1") & (row["gamma"] == 1.0)].iloc[0]
    mean = moves.toarray().mean(axis=0, dtype=float)
    for t, suffix in ((shared.t, "all"), (welch_t(moments(Y), moments(X)), "train")):
        overlap = oc.metrics.rbo_scores(t, mean, depth=10)
        assert row[f"rbo_{suffix}"] == pytest.approx(overlap.extrapolated, abs=1e-6)
        assert row[f"rbo_min_{suffix}"] == pytest.approx(overlap.min, abs=1e-6)
        assert row[f"rbo_residual_{suffix}"] == pytest.approx(overlap.residual, abs=1e-6)


def test_markers_are_those_of_scanpy(cells):
    scanpy = pytest.importorskip("scanpy")
    part = cells[(cells.obs["line"] == "A one") & cells.obs["drug"].isin(["none", "x"])].copy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scanpy.tl.rank_genes_groups(part, "drug", groups=["x"], reference="none", method="t-test")
        theirs = scanpy.get.rank_genes_groups_df(part, "x").set_index("names").loc[part.var_names, "scores"]
    ours = shared_of(cells, "A one: x").t
    varies = np.isfinite(ours)
    np.testing.assert_allclose(ours[varies], theirs[varies], rtol=1e-4, atol=1e-5)


def test_splits_share_no_cell_and_depend_on_names_alone(cells):
    shared = shared_of(cells, "A one: x")
    for k in (0, 1):
        split = shared.split(k)
        for train, test, size in (
            (split.source_train, split.source_test, 60),
            (split.target_train, split.target_test, 40),
        ):
            assert sorted([*train, *test]) == list(range(size))
    assert not np.array_equal(shared.split(0).source_test, shared.split(1).source_test)
    alone = oc.evaluate(cells, **ASKED, **{**SMALL, "splits": 1}, targets=["x"], costs="l1")
    both = oc.evaluate(cells, **ASKED, **{**SMALL, "splits": 2}, costs="l1")
    again = both[(both["target"] == "x") & (both["split"] == 0)].reset_index(drop=True)
    pd.testing.assert_frame_equal(alone, again)


def test_nothing_of_the_held_out_targets_leaks_into_the_maps(cells):
    """Held-out target cells that are changed change the scores, and nothing that was learned."""
    shared = shared_of(cells, "A one: x")
    held = shared.condition.others[shared.split(0).target_test]
    changed = cells.copy()
    matrix = changed.X.toarray()
    matrix[held] = 7.0
    changed.X = sp.csr_matrix(matrix)
    asked = {**ASKED, **SMALL, "splits": 1, "targets": ["x"], "costs": ["sql2", "sql2_pca", "l1"]}
    before, after = oc.evaluate(cells, **asked), oc.evaluate(changed, **asked)
    here = before["within"] == "A one"
    learned = ["density", "epsilon_used", "effective_targets"]
    pd.testing.assert_frame_equal(before.loc[here, learned], after.loc[here, learned])
    assert (before.loc[here, "divergence"] * 2 < after.loc[here, "divergence"]).all()
    assert not np.allclose(before.loc[here, "rbo_all"], after.loc[here, "rbo_all"])
    columns = ["rbo_train", "rbo_min_train"]
    pd.testing.assert_frame_equal(before.loc[here, columns], after.loc[here, columns])


def test_threads_do_not_change_the_table(cells):
    asked = {**ASKED, **SMALL, "targets": ["x"], "costs": ["sql2", "sql2_pca", "l1"]}
    one, two = (oc.evaluate(cells, **asked, n_jobs=jobs) for jobs in (1, 2))
    pd.testing.assert_frame_equal(one, two)


def test_k_overlap_several_epsilons_and_variable_genes(cells):
    asked = {**ASKED, **SMALL, "splits": 1, "targets": ["x"]}
    found = oc.evaluate(cells, **asked, costs=["koverlap"], k=3, epsilon=[0.05, 0.2], hvg=40)
    maps = found[found["method"] == "koverlap"]
    assert sorted(set(maps["epsilon"])) == [0.05, 0.2]
    assert sorted(set(maps["gamma"])) == [0.1, 1.0]
    assert (maps["density"] * 40 >= 3 - 1e-9).all()
    ratio = maps.groupby("epsilon")["epsilon_used"].mean()
    assert ratio[0.2] / ratio[0.05] == pytest.approx(4, rel=0.2)


# -- principal components ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(60, 40), (900, 300)])  # all eigenvectors; block Lanczos
def test_components_from_inner_products_are_those_of_scikit_learn(size):
    rng = np.random.default_rng(1)
    basis = rng.normal(size=(8, 120)) * np.linspace(4, 1, 8)[:, None]
    X, Y = (
        sp.csr_array((rng.normal(size=(n, 8)) @ basis + rng.normal(size=(n, 120)) + 3) * (rng.random((n, 120)) < 0.5))
        for n in size
    )
    with Workers(1) as workers:
        gram = Gram(check_samples(X, "X"), check_samples(Y, "Y"), workers, Budget(None))
        rows, others = np.arange(size[0])[::2], np.arange(size[1])[1::2]
        found = gram.components(rows, others, 6)
    both = np.vstack([X[rows].toarray(), Y[others].toarray()])
    truth = PCA(6, svd_solver="full").fit(both)
    overlap = np.linalg.svd(truth.components_ @ found.axes, compute_uv=False)
    np.testing.assert_allclose(overlap, 1, atol=1e-3)
    np.testing.assert_allclose(found.axes.T @ found.axes, np.eye(6), atol=1e-5)
    np.testing.assert_allclose(found(sp.csr_array(both)).var(axis=0, ddof=1), truth.explained_variance_, rtol=1e-4)
    np.testing.assert_allclose(found(sp.csr_array(both)).mean(axis=0), 0, atol=1e-3)


def test_fewer_cells_than_components():
    X = sp.csr_array(np.random.default_rng(0).normal(size=(4, 30)))
    with Workers(1) as workers:
        gram = Gram(check_samples(X, "X"), check_samples(X[:3], "Y"), workers, Budget(None))
        found = gram.components(np.arange(4), np.arange(3), 50)  # three of the seven cells are there twice
    assert found.axes.shape == (30, 3)


def test_distances_from_one_matrix_are_the_metrics():
    rng = np.random.default_rng(2)
    X, Y = rng.normal(size=(50, 7)) + 1, rng.normal(size=(30, 7))
    with Workers(1) as workers:
        for x, y in ((X, Y), (sp.csr_array(X), sp.csr_array(Y)), (X, sp.csr_array(Y))):
            found = Against(y, workers)(x)
            assert found.divergence.value == pytest.approx(oc.metrics.sinkhorn_divergence(X, Y), rel=1e-3)
            assert found.mmd == pytest.approx(oc.metrics.mmd(X, Y), rel=1e-9)
            assert found.energy == pytest.approx(oc.metrics.energy_distance(X, Y), rel=1e-9)


# -- nothing is lost ---------------------------------------------------------------------------------------------


class KilledError(Exception):
    pass


@pytest.mark.parametrize("kind", ["fifo", "huge"])
def test_what_stands_in_the_place_of_a_part_may_be_anything(cells, tmp_path, kind):
    asked = {**ASKED, **SMALL, "costs": ["l1"]}
    whole = oc.evaluate(cells, **asked, out=tmp_path)
    part = sorted((tmp_path / "parts").glob("*-*.json"))[0]
    part.unlink()
    if kind == "fifo":
        os.mkfifo(part)
    else:
        with part.open("wb") as stream:
            stream.truncate(2**34)
    pd.testing.assert_frame_equal(whole, oc.evaluate(cells, **asked, out=tmp_path))


@pytest.mark.parametrize("rows", ["{}", "[[]]", '[{"method": "l1"}]', "[1]", "[" * 5000])
def test_rows_that_are_forged_behind_their_digest_are_refused(cells, tmp_path, rows):
    asked = {**ASKED, **SMALL, "costs": ["l1"]}
    oc.evaluate(cells, **asked, out=tmp_path)
    part = sorted((tmp_path / "parts").glob("*-*.json"))[0]
    known = json.loads(part.read_text())
    known |= {"rows": rows, "sha256": hashlib.sha256(rows.encode()).hexdigest()}
    part.write_text(json.dumps(known))
    with pytest.raises(InputError, match="is damaged: remove it"):
        oc.evaluate(cells, **asked, out=tmp_path)


@pytest.mark.parametrize("at", [1, 10, 30])
def test_an_interrupted_evaluation_goes_on_and_ends_the_same(cells, tmp_path, at):
    asked = {**ASKED, **SMALL, "costs": ["sql2", "l1"]}
    whole = oc.evaluate(cells, **asked, out=tmp_path / "whole")

    def kill(done, total):
        if done >= at:
            raise KilledError

    with pytest.raises(KilledError):
        oc.evaluate(cells, **asked, out=tmp_path / "cut", tick=kill)
    assert not (tmp_path / "cut" / "evaluation.csv").exists()
    seen = []
    again = oc.evaluate(cells, **asked, out=tmp_path / "cut", tick=lambda done, total: seen.append(done))
    pd.testing.assert_frame_equal(whole, again)
    for name in ("evaluation.csv", "evaluation.parquet"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    if at == 30:
        assert seen[0] > 0  # what was done is not done again
        assert RunRecord.read(tmp_path / "cut").result["splits_from_earlier_runs"] > 0
    third = oc.evaluate(cells, **asked, out=tmp_path / "cut")
    pd.testing.assert_frame_equal(whole, third)
    assert not list(tmp_path.rglob("*.occamap-part"))


@pytest.mark.slow
def test_a_killed_process_leaves_what_it_had(cells, tmp_path):
    cells.write_h5ad(tmp_path / "cells.h5ad")
    words = [sys.executable, "-m", "occamap", "evaluate", str(tmp_path / "cells.h5ad"), "--groupby", "drug"]
    words += ["--control", "none", "--within", "line", "--gammas", "0.1,1", "--splits", "3", "--costs", "sql2,l1,stvs"]
    subprocess.run([*words, "--out", str(tmp_path / "whole")], check=True, capture_output=True)
    cut = [*words, "--out", str(tmp_path / "cut")]
    running = subprocess.Popen(cut, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while len(list((tmp_path / "cut").glob("parts/*-*.json"))) < 2 and running.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "cut" / "parts").glob("*-*.json")}
    subprocess.run(cut, check=True, capture_output=True)
    assert all(path.stat().st_mtime_ns == before for path, before in kept.items())
    for name in ("evaluation.csv", "evaluation.parquet"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_part_that_is_damaged_is_computed_again(cells, tmp_path):
    asked = {**ASKED, **SMALL, "targets": ["x"], "costs": ["l1"], "out": tmp_path}
    whole = oc.evaluate(cells, **asked)
    first, second, third, fourth = sorted((tmp_path / "parts").glob("*-*.json"))
    first.write_text(first.read_text()[:50])
    second.write_text(json.dumps({"key": "other", "rows": [{"divergence": 0}]}))
    known = json.loads(third.read_text())
    third.write_text(json.dumps({**known, "rows": known["rows"].replace("1", "2")}))
    fourth.write_text("[" * 100_000)
    pd.testing.assert_frame_equal(whole, oc.evaluate(cells, **asked))
    (tmp_path / "parts" / "protocol.json").write_text('{"key": "x", "parameters": [1]}')
    with pytest.raises(InputError, match="is damaged"):
        oc.evaluate(cells, **asked)


def test_one_split_that_is_left_gives_the_same_bytes(cells, tmp_path):
    """However many run side by side: sums must not depend on it."""
    asked = {**ASKED, **SMALL, "targets": ["x"], "out": tmp_path, "n_jobs": 2}
    oc.evaluate(cells, **asked)
    before = (tmp_path / "evaluation.csv").read_bytes()
    sorted((tmp_path / "parts").glob("*-001.json"))[0].unlink()
    oc.evaluate(cells, **asked)
    assert (tmp_path / "evaluation.csv").read_bytes() == before


def test_conditions_whose_labels_are_the_same_are_told_apart(cells):
    """ "a" and "b: c" read as "a: b" and "c" do."""
    other = cells.copy()
    other.obs["line"] = other.obs["line"].cat.rename_categories({"A one": "a", "B/2": "a: b"})
    drug = other.obs["drug"].astype(str).to_numpy()
    drug[(other.obs["line"] == "a") & (drug == "x")] = "b: c"
    drug[(other.obs["line"] == "a: b") & (drug == "x")] = "c"
    other.obs["drug"] = pd.Categorical(drug)
    found = oc.evaluate(other, **ASKED, **SMALL, targets=["b: c", "c"], costs=["l1"])
    assert set(zip(found["within"], found["target"], strict=True)) == {("a", "b: c"), ("a: b", "c")}
    first, second = (part["divergence"].to_numpy() for _, part in found.groupby("within"))
    assert not np.allclose(first, second)


def test_the_data_are_not_overwritten(cells, tmp_path):
    cells.write_h5ad(tmp_path / "evaluation.csv")
    before = (tmp_path / "evaluation.csv").read_bytes()
    with pytest.raises(InputError, match="would be overwritten"):
        oc.evaluate(tmp_path / "evaluation.csv", **ASKED, **SMALL, out=tmp_path)
    assert (tmp_path / "evaluation.csv").read_bytes() == before


def test_numbers_may_be_numpys(cells):
    asked = {"splits": np.int64(1), "components": np.int32(5), "markers": np.int64(10), "relax": np.float32(0)}
    found = oc.evaluate(cells, **ASKED, costs="l1", gammas=np.float64(1.0), targets="x", verbose=False, **asked)
    assert len(found) == 8


def test_a_directory_belongs_to_one_evaluation(cells, tmp_path):
    asked = {**ASKED, **SMALL, "targets": ["x"], "costs": ["l1"], "out": tmp_path / "a"}
    oc.evaluate(cells, **asked)
    with pytest.raises(InputError, match="holds one of other gammas: take another directory"):
        oc.evaluate(cells, **{**asked, "gammas": [3.0]})
    other = cells.copy()
    other.X.data[0] += 1
    with pytest.raises(InputError, match="holds one of other data"):
        oc.evaluate(other, **asked)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "run.json").write_text("{}")
    with pytest.raises(InputError, match="holds another run"):
        oc.evaluate(cells, **{**asked, "out": tmp_path / "b"})


def test_splits_and_targets_may_be_added(cells, tmp_path):
    asked = {**ASKED, **SMALL, "costs": ["l1"], "out": tmp_path}
    oc.evaluate(cells, **{**asked, "splits": 1}, targets=["x"])
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "parts").glob("*-*.json")}
    more = oc.evaluate(cells, **asked)
    assert all(path.stat().st_mtime_ns == before for path, before in kept.items())
    assert RunRecord.read(tmp_path).result["splits_from_earlier_runs"] == 2
    pd.testing.assert_frame_equal(more, oc.evaluate(cells, **{**asked, "out": None}))


def test_the_record_says_all(cells, tmp_path):
    oc.evaluate(cells, **{**ASKED, **SMALL}, targets=["x"], costs=["l1"], out=tmp_path)
    record = RunRecord.read(tmp_path)
    assert record.command == "evaluate"
    assert record.seed == 0
    assert record.data.shape == cells.shape
    names = set(inspect.signature(oc.evaluate).parameters)
    assert names - {"adata", "out", "max_memory", "n_jobs", "verbose", "tick", "client"} == set(record.parameters)
    assert record.result["rows"] == len(pd.read_csv(tmp_path / "evaluation.csv"))
    assert {"occamap", "numpy", "pandas"} <= set(record.versions)
    assert all((tmp_path / name).exists() for name in record.files.values())


# -- what is refused ---------------------------------------------------------------------------------------------

BAD = {
    "a column": ({"groupby": "drog"}, "groupby must be a column"),
    "a control": ({"control": "nothing"}, r"control must be a group .*'none'"),
    "a target": ({"targets": ["z"]}, "target must be a group"),
    "the control as target": ({"targets": ["none"]}, "another group than control"),
    "no target": ({"targets": []}, "targets must be one or several"),
    "a line": ({"within": "cell line"}, "within must be a column"),
    "a cost": ({"costs": ["l2"]}, "costs must be one of"),
    "no cost": ({"costs": []}, "costs must be one or several"),
    "a cost twice": ({"costs": ["l1", "l1"]}, "each once"),
    "k-overlap without k": ({"costs": ["koverlap"]}, "k must be given with the cost 'koverlap'"),
    "k without k-overlap": ({"k": 3}, "k must be given with the cost 'koverlap', and with no other"),
    "gammas that fall": ({"gammas": [1.0, 0.1]}, "gammas must be rising"),
    "gamma 0": ({"gammas": [0.0]}, "gammas must be a finite number > 0"),
    "epsilon": ({"epsilon": -1}, "epsilon must be"),
    "splits": ({"splits": 0}, "splits must be an integer ≥ 1"),
    "test size": ({"test_size": 0.9}, "test_size must be"),
    "hvg": ({"hvg": 1000}, "hvg must be at most the number of genes, 150"),
    "a close-up": ({"close_ups": ["A one: q"]}, r"close_ups must be conditions \('A one: x'"),
    "a layer": ({"layer": "raw"}, "layer must be a layer"),
    "memory": ({"max_memory": "much"}, "max_memory must be"),
    "a directory": ({"out": ""}, "out must name a directory"),
    "gammas for no cost": ({"costs": ["sql2", "sql2_pca"]}, "gammas must be given only with costs that have one"),
    "no costs": ({"costs": None}, "costs must be given"),
    "too many splits": ({"splits": 10**9}, "splits must be at most 10,000"),
    "a close-up as text": ({"close_ups": "q"}, "close_ups must be conditions"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_told_before_the_work(cells, case):
    changed, message = BAD[case]
    with pytest.raises(InputError, match=message):
        oc.evaluate(cells, **{**ASKED, **SMALL, **changed}, tick=lambda done, total: pytest.fail("it began"))


def test_small_groups_are_left_out_and_named(cells):
    few = cells[~((cells.obs["line"] == "B/2") & (cells.obs["drug"] == "x") & (np.arange(cells.n_obs) % 8 > 0))].copy()
    with pytest.warns(InputWarning, match=r"left out of the evaluation: 'B/2: x \(60 control and 5 target cells\)'"):
        table = oc.evaluate(few, **ASKED, **SMALL)
    pairs = set(zip(table["within"], table["target"], strict=True))
    assert pairs == {("A one", "x"), ("A one", "y, z"), ("B/2", "y, z")}


def test_too_few_cells_are_named(cells):
    few = cells[~((cells.obs["drug"] == "x") & (np.arange(cells.n_obs) % 12 > 0))].copy()
    asked = {**ASKED, "within": None}
    with pytest.raises(InputError, match=r"at least 10 cells of both groups; too few: 'x \(\d+ control and \d target"):
        oc.evaluate(few, **asked, **SMALL)


def test_cells_that_do_not_differ_are_told():
    cells = anndata.AnnData(
        np.ones((40, 5), np.float32), obs=pd.DataFrame({"g": ["a", "b"] * 20}, index=map(str, range(40)))
    )
    with pytest.raises(InputError, match="must differ"):
        oc.evaluate(cells, groupby="g", control="a", counts="keep", **SMALL)


def test_a_budget_that_is_too_small_is_refused(cells):
    with pytest.raises(MemoryBudgetError, match="give max_memory at least"):
        oc.evaluate(cells, **ASKED, **SMALL, max_memory="1MB")


def test_an_evaluation_that_was_refused_leaves_its_directory_to_others(cells, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(MemoryBudgetError, match="give max_memory at least"):
        oc.evaluate(cells, **ASKED, **SMALL, max_memory="1MB", out=out)
    assert not list(out.iterdir())
    oc.evaluate(cells, **ASKED, **{**SMALL, "gammas": [0.5]}, out=out)


# -- real cells --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_interferon(data_directory):
    """At the chosen γ: R² of marker means above 0.95, and RBO at least that of ½ℓ2²."""
    adata = oc.datasets.kang_ifnb(data_directory)
    asked = {"groupby": "condition", "control": "control", "counts": "normalize", "verbose": False}
    found = oc.evaluate(adata, **asked, costs=["sql2", "l1"], gammas=[0.1, 0.3, 1.0], relax=1.0, epsilon=0.01, splits=3)
    means = found.groupby(["method", "gamma"], dropna=False).mean(numeric_only=True)
    chosen = means.loc["l1", "divergence"].idxmin()
    best, dense = means.loc[("l1", chosen)], means.loc[("sql2", 0.0)]
    for suffix in ("all", "train"):
        assert best[f"pearson_r2_means_{suffix}"] > 0.95
        assert best[f"r2_score_means_{suffix}"] > 0.95
        assert best[f"rbo_{suffix}"] >= dense[f"rbo_{suffix}"] - 1e-9
    assert best["density"] < 0.5 * dense["density"]
