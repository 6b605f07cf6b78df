"""Matching and pooling within groups of samples."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import occamap as oc
from occamap._workers import Workers
from occamap.errors import InputError, MatchWarning

SIZES = {"a": (30, 9), "b": (15, 20), "cc": (3, 10)}
X_LABELS = np.repeat(list(SIZES), [n for n, _ in SIZES.values()])
Y_LABELS = np.repeat(list(SIZES), [m for _, m in SIZES.values()])[::-1]
COSTS = [oc.SqL2(), oc.L1(0.3), oc.STVS(0.5), oc.KOverlap(0.5, k=3)]


@pytest.fixture(scope="module")
def samples():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(48, 12)) + np.where(X_LABELS == "a", 3.0, 0.0)[:, None]
    Y = rng.normal(size=(39, 12)) + np.where(Y_LABELS == "b", 3.0, 0.0)[:, None]
    return X, Y


def fitted(samples, cost=None, **given):
    asked = {"relax": 1.0, "match": 4, "tol": 1e-10, "max_iter": 20_000, "within": (X_LABELS, Y_LABELS), **given}
    return oc.MongeMap(cost or oc.L1(0.3), 5, "perplexity", **asked).fit(*samples)


def coordinates(m):
    with Workers(1) as workers:
        return [m._space.coordinates(side, workers, k) for k, side in enumerate(m._space.samples)]


@pytest.mark.parametrize("cost", COSTS, ids=lambda cost: type(cost).__name__)
@pytest.mark.parametrize("pool", [None, 4, "auto"])
def test_equals_a_map_for_each_group(samples, cost, pool):
    X, Y = samples
    m = fitted(samples, cost, pool=pool)
    U, V = coordinates(m)
    whole = m.displacement(X).toarray()
    for group in SIZES:
        rows, columns = group == X_LABELS, group == Y_LABELS
        asked = {"relax": 1.0, "tol": 1e-10, "max_iter": 20_000, "match": (U[rows], V[columns])}
        one = oc.MongeMap(cost, m.epsilon_, "absolute", **asked).fit(X[rows], Y[columns])
        np.testing.assert_allclose(m.weights(X)[np.ix_(rows, columns)], one.weights(X[rows]), atol=1e-7)
        operator = m.neighbourhoods()[rows][:, rows]
        if pool is not None:
            one.set_params(pool=operator)
        np.testing.assert_allclose(whole[rows], one.displacement(X[rows]).toarray(), atol=1e-6)


def test_the_plan_stays_within_groups_and_keeps_the_masses_of_the_source(samples):
    m = fitted(samples)
    plan = m.plan()
    assert not plan[X_LABELS[:, None] != Y_LABELS].any()
    np.testing.assert_allclose(plan.sum(axis=1), 1 / 48, rtol=1e-9)
    for group, (n, size) in SIZES.items():
        np.testing.assert_allclose(plan[:, group == Y_LABELS].sum(axis=0), n / 48 / size, rtol=1e-6)
    assert "within 3 groups" in m.report_.epsilon_rule


def test_potentials_are_those_of_the_extended_map(samples):
    X, Y = samples
    m = fitted(samples)
    np.testing.assert_allclose(m.potential(X), m.f_, atol=1e-7)
    np.testing.assert_allclose(m.potential(Y, side="target"), m.g_, atol=1e-7)


@pytest.mark.parametrize("pool", [5, "auto"])
def test_neighbourhoods_stay_within_groups(samples, pool):
    W = fitted(samples, pool=pool).neighbourhoods()
    assert not W.toarray()[X_LABELS[:, None] != X_LABELS].any()
    np.testing.assert_allclose(W.sum(axis=1), 1.0)
    sizes = np.diff(W.indptr)
    assert sizes[X_LABELS == "cc"].max() == 3
    if pool == 5:
        assert (sizes[X_LABELS != "cc"] == 5).all()


def test_labels_for_pool_may_cross_groups(samples):
    m = fitted(samples, pool=np.zeros(48, int))
    moves = m.displacement(samples[0]).toarray()
    np.testing.assert_array_equal(moves, np.tile(moves[:1], (48, 1)))


@pytest.mark.parametrize("pool", [None, 5, "auto"])
def test_new_samples_move_by_their_labels(samples, pool):
    X, Y = samples
    m = fitted(samples, pool=pool)
    new = X[[0, 40, 46]] + 0.01
    moved = m.transform(new, within=X_LABELS[[0, 40, 46]])
    np.testing.assert_allclose(moved - new, m.displacement(X).toarray()[[0, 40, 46]], atol=0.2)
    weights = m.weights(new, within=X_LABELS[[0, 40, 46]])
    assert not weights[X_LABELS[[0, 40, 46]][:, None] != Y_LABELS].any()
    back = m.inverse_transform(Y)
    np.testing.assert_array_equal(back, m.inverse_transform(Y, within=Y_LABELS))


def test_other_labels_move_fitted_samples_otherwise(samples):
    """And leave no trace: the neighbourhoods of the fitted samples stay those of their own labels."""
    X, _ = samples
    m, other = fitted(samples, pool=5), np.where(X_LABELS == "a", "b", X_LABELS)
    halves = [m.transform(X[part], within=other[part]) for part in (slice(0, 24), slice(24, 48))]
    fresh = fitted(samples, pool=5)
    np.testing.assert_allclose(fresh.transform(X, within=other), np.concatenate(halves), atol=1e-12)
    np.testing.assert_array_equal(fresh.transform(X), m.transform(X))


def test_save_refuses_parameters_that_were_not_fitted(samples, tmp_path):
    for name, value in {"match": 3, "within": None, "reach": 1.0}.items():
        m = fitted(samples, pool=5).set_params(**{name: value, **({"match": 4} if name == "within" else {})})
        if name == "reach":
            m.set_params(within=None)
        with pytest.raises(InputError, match="must be what the map was fitted with"):
            m.save(tmp_path / "map.occamap")


def test_a_saved_map_gives_the_same_bits(samples, tmp_path):
    X, _ = samples
    m = fitted(samples, pool="auto")
    m.save(tmp_path / "map.occamap")
    loaded = oc.load(tmp_path / "map.occamap")
    np.testing.assert_array_equal(loaded.displacement(X).toarray(), m.displacement(X).toarray())
    new = X[:4] + 0.1
    np.testing.assert_array_equal(loaded.transform(new, within=X_LABELS[:4]), m.transform(new, within=X_LABELS[:4]))
    np.testing.assert_array_equal(loaded.within[0], X_LABELS)


def test_sparse_and_dense_samples_agree(samples):
    X, Y = (np.where(np.abs(side) > 0.5, side, 0.0) for side in samples)
    moves = fitted((X, Y), pool=4).displacement(X).toarray()
    sparse = fitted((sp.csr_array(X), sp.csr_array(Y)), pool=4).displacement(sp.csr_array(X)).toarray()
    np.testing.assert_allclose(moves, sparse, atol=1e-9)


def test_clones_and_frozen_features(samples):
    m = fitted(samples, oc.L1(0.3, weights=[np.inf] + [1.0] * 11), pool=4)
    assert not m.displacement(samples[0]).toarray()[:, 0].any()
    again = clone(m).fit(*samples)
    np.testing.assert_array_equal(again.g_, m.g_)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"match": None}, "match must not be None with within"),
        ({"reach": 1.0}, "reach must be None with within"),
        ({"within": (X_LABELS, [*Y_LABELS[:-1], float("nan")])}, "1 have none"),
        ({"within": ([[1], [1, 2]], Y_LABELS)}, "one label for each sample of X"),
        ({"within": X_LABELS}, "pair of arrays"),
        ({"within": (X_LABELS, Y_LABELS[:-1])}, "39 labels, one for each sample of Y"),
        ({"within": (X_LABELS, np.where(Y_LABELS == "a", "z", Y_LABELS))}, "'a' has none in Y"),
        ({"within": (np.where(X_LABELS == "a", "b", X_LABELS), Y_LABELS)}, "'a' has none in X"),
        ({"within": ([None] * 48, Y_LABELS)}, "48 have none"),
    ],
)
def test_rejects_what_cannot_be_matched(samples, given, message):
    with pytest.raises(InputError, match=message):
        fitted(samples, **given)


def test_rejects_unknown_samples_and_labels(samples):
    m = fitted(samples)
    new = samples[0][:3] + 0.1
    with pytest.raises(InputError, match="a label for each sample of X"):
        m.transform(new)
    with pytest.raises(InputError, match="got 'aa'"):  # not cut to the length of a known label
        m.transform(new, within=["aa", "a", "a"])
    with pytest.raises(InputError, match="fitted without it"):
        oc.MongeMap().fit(*samples).transform(new, within=["a"] * 3)
    lazy = pytest.importorskip("dask.array").from_array(new)
    with pytest.raises(InputError, match="Dask"):
        m.transform(lazy)


def test_a_group_without_mass_is_named(samples):
    masses = np.where(X_LABELS == "cc", 0.0, 1.0)
    with pytest.raises(InputError, match="'cc' has none"):
        oc.MongeMap(match=4, within=(X_LABELS, Y_LABELS)).fit(*samples, a=masses / masses.sum())


# -- AnnData and the command line ----------------------------------------------------------------------------------

ASKED = {"groupby": "condition", "control": "control", "target": "treated"}


@pytest.fixture
def adata():
    """Types of unequal share; one has no treated cells, and two control cells have no type."""
    made = oc.datasets.simulate_perturbation(240, 200, 300, effect=1.5, n_types=4).to_anndata()
    treated = (made.obs["condition"] == "treated").to_numpy()
    first = made.obs["cell_type"].astype(str).to_numpy() == str(made.obs["cell_type"].iloc[0])
    made = made[~(treated & first)].copy()
    types = made.obs["cell_type"].astype(str)
    types.iloc[np.flatnonzero(types != types.iloc[0])[:2]] = None
    made.obs["cell_type"] = types
    return made


def test_cells_are_matched_within_a_column(adata):
    left = str(adata.obs["cell_type"].iloc[0])
    with pytest.warns(MatchWarning, match=f"are left out .*'no entry' \\(2 and 0\\), '{left}' \\(60 and 0\\)"):
        m = oc.tl.monge_map(adata, **ASKED, within="cell_type")
    match = adata.obsp["occamap_match"].tocoo()
    types = adata.obs["cell_type"].to_numpy()
    assert match.nnz
    assert (types[match.row] == types[match.col]).all()
    gone = (adata.obs["condition"] == "control").to_numpy() & ((types == left) | adata.obs["cell_type"].isna())
    assert adata.obs["occamap_n_genes"][gone].isna().all()
    assert gone.sum() > 2
    assert adata.uns["occamap"]["params"]["within"] == "cell_type"
    with warnings.catch_warnings():
        warnings.simplefilter("error", MatchWarning)
        table = oc.tl.gene_table(adata, by="cell_type", subsamples=4)
    assert left not in table.index.get_level_values(0)
    assert (table["matched_within"] == 1).all()
    assert np.isfinite(table[["low", "high"]]).all(axis=None)
    assert m.a_.size == int((~gone & (adata.obs["condition"] == "control")).sum())


@pytest.mark.filterwarnings("ignore::occamap.errors.MatchWarning")
def test_tables_of_some_cells_count_those_that_were_mapped(adata):
    oc.tl.monge_map(adata, **ASKED, within="cell_type")
    whole = oc.tl.gene_table(adata)
    some = oc.tl.gene_table(adata[(adata.obs["condition"] == "control").to_numpy()].copy())
    np.testing.assert_array_equal(some["share"], whole["share"][some.index])


def test_unseen_cells_need_the_column(adata):
    with pytest.warns(MatchWarning):
        m = oc.tl.monge_map(adata, **ASKED, within="cell_type")
    types = adata.obs["cell_type"]
    unseen = adata[types.isin(m.within[0]).to_numpy()][:20].copy()
    unseen.X = unseen.X * 1.01
    made = oc.tl.transform(unseen, m, within="cell_type")
    assert made.shape == unseen.shape
    assert made.uns["occamap_transform"]["params"]["within"] == "cell_type"
    with pytest.raises(InputError, match="within must name the column"):
        oc.tl.transform(unseen, m)
    kinds = unseen.obs["cell_type"].astype(object).to_numpy()
    kinds[[1, 4, 5]] = ["unknown", "unknown", None]
    unseen.obs["some"] = kinds
    with pytest.warns(MatchWarning, match=r"not fitted on are left out: 'no entry \(1 cells\)', 'unknown \(2 cells\)'"):
        some = oc.tl.transform(unseen, m, within="some")
    assert some.obs_names.tolist() == np.delete(unseen.obs_names, [1, 4, 5]).tolist()
    one = np.delete(made.layers["occamap_displacement"].toarray(), [1, 4, 5], axis=0)
    np.testing.assert_array_equal(some.layers["occamap_displacement"].toarray(), one)
    unseen.obs["other"] = "other"
    with pytest.raises(InputError, match="fitted on; got"):
        oc.tl.transform(unseen, m, within="other")
    plain = oc.tl.monge_map(adata, **ASKED)
    with pytest.raises(InputError, match="within must be None"):
        oc.tl.transform(unseen, plain, within="cell_type")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"within": "cell_typ"}, "within must be a column of adata.obs"),
        ({"within": "condition"}, "20 control and 20 target cells"),
        ({"within": "cell_type", "match": None}, "matched in all genes"),
        ({"within": "cell_type", "gammas": "auto"}, "held-out cells choose"),
    ],
)
@pytest.mark.filterwarnings("ignore::occamap.errors.MatchWarning")
def test_rejects_what_within_cannot_do(adata, given, message):
    with pytest.raises(InputError, match=message):
        oc.tl.monge_map(adata, **ASKED, **given)


def test_rare_types_are_read_in_their_own_cells():
    """A type of 8 % whose response is its own: across types its genes are missed, within them they are found."""
    data = oc.datasets.simulate_perturbation(600, 600, 800, n_types=2, n_moved=30, n_shared=0, effect=1.5, density=0.3,
                                             total=1e4, composition=False, random_state=5)
    adata = data.to_anndata()
    types = np.concatenate([data.control_types, data.treated_types])
    rare = np.flatnonzero(types == 1)
    keep = np.setdiff1d(np.arange(adata.n_obs), np.concatenate([rare[rare < 600][40:], rare[rare >= 600][20:]]))
    adata = adata[keep].copy()
    truth = data.moved[1]
    found = {}
    for within in (None, "cell_type"):
        oc.tl.monge_map(adata, **ASKED, within=within)
        mine = ((adata.obs["condition"] == "control") & (types[keep] == 1)).to_numpy()
        moves = np.abs(adata.layers["occamap_displacement"][mine]).mean(axis=0)
        order = np.argsort(-np.asarray(moves).ravel(), kind="stable")
        found[within] = truth[order[: truth.sum()]].mean()
    assert found["cell_type"] >= 0.5
    assert found["cell_type"] > found[None] + 0.1


@pytest.mark.filterwarnings("ignore::occamap.errors.MatchWarning")
def test_the_command_line_matches_within_a_column(adata, tmp_path):
    from typer.testing import CliRunner

    from occamap.cli.app import app

    adata.write_h5ad(tmp_path / "cells.h5ad")
    runner = CliRunner()
    asked = ["--groupby", "condition", "--control", "control", "--target", "treated", "--within", "cell_type"]
    out = tmp_path / "run"
    done = runner.invoke(app, ["fit", str(tmp_path / "cells.h5ad"), *asked, "--subsamples", "2", "--by", "cell_type",
                               "--out", str(out)])
    assert done.exit_code == 0, done.output
    record = json.loads((out / "run.json").read_text())
    assert record["parameters"]["within"] == "cell_type"
    assert any("left out" in warning for warning in record["warnings"])
    assert record["result"]["neighbourhoods"]["within_group"] == 1
    page = (out / "report.html").read_text()
    assert "--within=cell_type" in page
    assert "within the groups of cell_type only" in page
    again = runner.invoke(app, ["report", str(out), "-o", str(tmp_path / "page.html")])
    assert again.exit_code == 0, again.output
    group = adata.obs["cell_type"].iloc[-1]
    moved = ["transform", str(out / "map.occamap"), str(tmp_path / "cells.h5ad"), "--groupby", "cell_type", "--group",
             str(group), "--out", str(tmp_path / "moved.h5ad")]
    refused = runner.invoke(app, moved)
    assert refused.exit_code != 0
    assert runner.invoke(app, [*moved, "--within", "cell_type"]).exit_code == 0


def test_nothing_moves_within_small_groups_if_nothing_was_done():
    """Control cells split at random, in types of 30 to 300 cells."""
    data = oc.datasets.simulate_perturbation(1400, 10, 800, n_types=4, density=0.3, total=1e4, random_state=3)
    adata = data.to_anndata()[:1400].copy()
    keep = np.concatenate([np.flatnonzero(data.control_types == t)[:size] for t, size in enumerate((60, 80, 150, 300))])
    adata = adata[np.sort(keep)].copy()
    adata.obs["half"] = np.random.default_rng(0).permutation(np.arange(adata.n_obs) % 2).astype(str)
    oc.tl.monge_map(adata, groupby="half", control="0", target="1", within="cell_type")
    assert adata.layers["occamap_displacement"].nnz <= 1e-4 * adata.n_obs * adata.n_vars


def test_stable_genes_are_selected_by_some_half():
    table = pd.DataFrame({"expected_false": [0.1, 1.0], "frequency": [0.9, 0.0]}, index=["moves", "never moves"])
    assert oc.tl.stable_genes(table).index.tolist() == ["moves"]
