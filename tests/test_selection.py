"""MongeMapCV: folds equal explicit fits, rules, projections, determinism, Dask; and what a grid must not be."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator, clone
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError

from occamap import L1, STVS, KOverlap, MongeMap, MongeMapCV, datasets, gamma_path, load
from occamap._memory import Budget
from occamap.errors import ClusterError, InputError, MemoryBudgetError, SelectionError, SelectionWarning
from occamap.metrics import sinkhorn_divergence
from occamap.selection import monge_map_cv
from occamap.selection.diagnostics import NOTHING
from occamap.selection.splits import check_splits

D = 20
SEED = int(np.random.SeedSequence(0).generate_state(3)[2])  # what random_state=0 leads to


def sample(n: int, seed: int, shift: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    counts = rng.poisson(0.8, size=(n, D)) * rng.uniform(0.5, 1.5, size=(n, D))
    counts[:, :2] += shift * (rng.uniform(size=(n, 2)) < 0.9)
    return counts


X, Y = sample(50, 1), sample(60, 2, shift=3.0)
SMALL: dict[str, Any] = {"gammas": [0.2, 2.0], "epsilon": [0.02, 0.1], "cv": 3, "projection": None}


# -- folds ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("projection", [None, 5])
@pytest.mark.parametrize("weighted", [False, True])
def test_folds_equal_fits_on_the_explicit_subsamples(form: Any, projection: int | None, weighted: bool) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(0.5, 1.5, 50), rng.uniform(0.5, 1.5, 60)) if weighted else (None, None)
    costs = [L1, STVS, KOverlap(1.0, k=3), L1(1.0, weights=np.r_[np.inf, np.ones(D - 1)])]
    cv = MongeMapCV(costs, tol=1e-10, ties=("zero", "occam"), relax=(0.0, 0.5), **{**SMALL, "projection": projection})
    cv.fit(form(X), form(Y), a, b)
    results = cv.to_frame()
    assert len(results) == 4 * 2 * 2 * 2 * 2
    instances = {"L1": costs[0], "STVS": costs[1], "KOverlap(k=3)": costs[2], "L1(weights)": costs[3]}
    splits = check_splits(3, 50, 60, 0)
    for _, row in results.iloc[::3].iterrows():
        template = instances[row.cost]
        cost = template(row.gamma) if isinstance(template, type) else template._with_gamma(row.gamma)
        divergences, densities = [], []
        for split in splits:
            x, y = X[split.source_train], Y[split.target_train]
            weights = (None, None) if a is None else (a[split.source_train], b[split.target_train])
            m = MongeMap(cost, row.epsilon, ties=row.ties, relax=row.relax, tol=1e-10).fit(x, y, *weights)
            moved, held = m.transform(X[split.source_test]), Y[split.target_test]
            densities.append(m.displacement(X[split.source_test]).nnz / moved.size)
            if projection:
                drawn = np.random.default_rng(SEED).choice(y.shape[0], split.source_test.size, replace=False)
                pca = PCA(5).fit(np.vstack([x, np.delete(y, drawn, axis=0)]))
                moved, held = pca.transform(moved), pca.transform(held)
            masses = (None, None) if a is None else (a[split.source_test], b[split.target_test])
            divergences.append(sinkhorn_divergence(moved, held, *masses))
        found = [row[f"split{k}_divergence"] for k in range(3)]
        np.testing.assert_allclose(found, divergences, rtol=1e-6)
        assert row.mean_divergence == pytest.approx(np.mean(divergences), rel=1e-6)
        assert row.se_divergence == pytest.approx(np.std(divergences, ddof=1) / np.sqrt(3), rel=1e-4)
        assert row.mean_density == pytest.approx(np.mean(densities), abs=1e-3)


def test_the_choice_is_fitted_on_all_samples(tmp_path: Path) -> None:
    cv = MongeMapCV(tol=1e-10, **SMALL).fit(X, Y)
    row = cv.to_frame().iloc[cv.best_index_]
    alone = MongeMap(L1(row.gamma), row.epsilon, relax=row.relax, tol=1e-10).fit(X, Y)
    np.testing.assert_allclose(cv.best_map_.g_, alone.g_, atol=1e-8)
    np.testing.assert_allclose(cv.transform(X), alone.transform(X), atol=1e-8)
    np.testing.assert_allclose(cv.inverse_transform(Y), alone.inverse_transform(Y), atol=1e-8)
    assert cv.gamma_ == row.gamma
    reading = {"ties": "zero", "relax": row.relax, "pool": None}
    assert cv.best_params_ == {"cost": L1(row.gamma), "epsilon": row.epsilon, **reading}
    assert cv.n_features_in_ == D
    assert cv.n_splits_ == 3
    cv.save(tmp_path / "map.occamap")
    assert load(tmp_path / "map.occamap").transform(X).tobytes() == cv.transform(X).tobytes()


def test_a_planted_effect_is_found_and_the_rest_left_alone() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(150, 40)), rng.normal(size=(160, 40))
    y[:, 7] += 6.0
    cv = MongeMapCV(rule="one_se", gammas=[0.0, 1.0, 8.0, 64.0], epsilon=[0.03, 0.1], cv=4).fit(x, y)
    size = np.abs(cv.displacement(x)).mean(axis=0)
    assert size.argmax() == 7
    assert size[7] > 5
    lines = cv.diagnostics_
    assert lines.identity.divergence > lines.chosen.divergence
    assert lines.mean_shift.divergence == pytest.approx(lines.floor.divergence, rel=0.1)  # a mere translation


def test_splits_by_group_are_not_taken_for_alike() -> None:
    """Held-out donors lie elsewhere: the map, of their own cells, is closer to their targets than other donors' are."""
    rng = np.random.default_rng(0)
    donor = np.repeat(np.arange(4), 30)
    places = 5.0 * rng.normal(size=(4, 3))[donor]
    X, Y = rng.normal(size=(120, 3)) + places, rng.normal(size=(120, 3)) + places + [2.0, 0.0, 0.0]
    options = {"gammas": [0.1], "epsilon": 0.1, "projection": None}
    by_donor = [(donor != k, donor == k, donor != k, donor == k) for k in range(4)]
    lines = MongeMapCV(cv=by_donor, **options).fit(X, Y).diagnostics_
    assert lines.identity.divergence < lines.floor.divergence  # and yet there is something to learn
    assert "there is no floor" in str(lines)
    assert MongeMapCV(cv=4, **options).fit(X, Y).diagnostics_.alike


# -- baselines ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "csr"])
def test_baselines_are_what_they_say(form: Any) -> None:
    cv = MongeMapCV(**SMALL).fit(form(X), form(Y))
    identity, shifted = [], []
    for split in check_splits(3, 50, 60, 0):
        x, held = X[split.source_test], Y[split.target_test]
        identity.append(sinkhorn_divergence(x, held))
        shift = Y[split.target_train].mean(axis=0) - X[split.source_train].mean(axis=0)
        shifted.append(sinkhorn_divergence(x + shift, held))
    lines = cv.diagnostics_
    assert lines.identity.divergence == pytest.approx(np.mean(identity), rel=1e-6)
    assert lines.mean_shift.divergence == pytest.approx(np.mean(shifted), rel=1e-4)
    assert 0 < lines.floor.divergence < lines.identity.divergence
    frame = lines.to_frame()
    assert frame.loc["nothing moves", "density"] == 0
    text = str(lines)
    assert "chosen: L1, γ = " in text
    assert "floor" in text
    assert f"{lines.identity.divergence:.4g}" in text


def test_two_halves_of_one_sample_have_nothing_to_learn() -> None:
    cloud = np.random.default_rng(0).normal(size=(200, 5))
    cv = MongeMapCV(**SMALL, random_state=1)
    with pytest.warns(SelectionWarning, match="there is nothing to learn"):
        cv.fit(cloud[:100], cloud[:100])
    lines = cv.diagnostics_
    assert hasattr(cv, "best_map_")  # as asked for, all the same
    assert lines.identity.divergence <= lines.floor.divergence
    assert lines.notes() == [NOTHING]


# -- rules -------------------------------------------------------------------------------------------------------------


def test_pareto_fits_the_whole_frontier() -> None:
    cv = MongeMapCV(rule="pareto", **SMALL).fit(X, Y)
    assert len(cv.maps_) == cv.frontier_.size
    frame = cv.to_frame().iloc[cv.frontier_]
    assert [m.cost.gamma for m in cv.maps_] == frame.gamma.tolist()
    assert [m.relax for m in cv.maps_] == frame.relax.tolist()
    assert frame.mean_density.is_monotonic_increasing
    assert frame.mean_divergence.is_monotonic_decreasing
    assert cv.best_index_ == cv.frontier_[-1]
    assert not hasattr(cv.set_params(rule="best").fit(X, Y), "maps_")


def test_another_rule_needs_no_other_evaluation() -> None:
    costs = [L1, STVS, L1(1.0, weights=np.r_[np.inf, np.ones(D - 1)])]
    cv = MongeMapCV(costs, tol=1e-10, **SMALL).fit(X, Y)
    density = float(np.median(cv.results_["mean_density"]))
    for rule, most in (("best", None), ("density", density), ("one_se", None)):
        picked = cv.select(rule, most)
        again = clone(cv).set_params(rule=rule, max_density=most).fit(X, Y)
        assert picked.cost == again.best_params_["cost"]
        np.testing.assert_allclose(picked.transform(X), again.transform(X), atol=1e-8)
    with pytest.raises(InputError, match="max_density must be given"):
        cv.select("density")


def test_cells_that_did_not_converge_are_kept_and_marked() -> None:
    cv = MongeMapCV(gammas=[0.5], epsilon=[1e-4, 0.5], relax=0.0, cv=2, max_iter=25, projection=None).fit(X, Y)
    assert cv.results_["converged"].tolist() == [False, True]
    assert cv.results_["status"].tolist() == ["max_iter", "converged"]
    assert cv.best_params_["epsilon"] == 0.5
    with pytest.raises(SelectionError, match=r"no candidate converged.*after max_iter=3 iterations"):
        cv.set_params(epsilon=1e-4, max_iter=3).fit(X, Y)
    assert cv.results_["status"].tolist() == ["max_iter"]


def test_an_epsilon_that_cannot_be_had_costs_one_cell_and_not_the_run() -> None:
    grid = {"epsilon": [1e-14, 0.5], "epsilon_scale": "max", "cv": 2, "relax": 0.0}
    cv = MongeMapCV(L1, [0.5, 2.0], **grid).fit(X, sample(60, 2, shift=3.0))
    assert set(cv.results_["status"][:2]) == {"no epsilon"}
    assert "epsilon must be at least 1e-13 of the mean cost" in cv.results_["message"][0]
    assert np.isnan(cv.results_["mean_divergence"][:2]).all()
    assert cv.results_["converged"].tolist() == [False, False, True, True]
    assert cv.best_params_["epsilon"] == 0.5
    cv.plot()


def test_effective_targets_that_cannot_be_had_are_replaced_by_a_nearby_number() -> None:
    y = np.repeat(sample(6, 2, shift=3.0), 10, axis=0)  # each target ten times, in one half about five times
    cv = MongeMapCV(L1, [0.5, 2.0], epsilon=[3, 20], epsilon_scale="perplexity", cv=2, relax=0.0).fit(X, y)
    assert cv.results_["converged"].all()
    assert (cv.results_["mean_effective_targets"][:2] > 3).all()


def test_names_of_features_and_costs() -> None:
    frame = pd.DataFrame(X, columns=[f"g{k}" for k in range(D)])
    weights = np.ones(D)
    costs = [L1(1.0, weights=weights), L1(1.0, weights=2 * weights), KOverlap(1.0, k=2, squared=False)]
    cv = MongeMapCV(costs, **SMALL).fit(frame, Y)
    names = list(dict.fromkeys(cv.results_["cost"]))
    assert names == ["L1(weights) #1", "L1(weights) #2", "KOverlap(k=2, squared=False)"]
    assert cv.feature_names_in_.tolist() == frame.columns.tolist()
    assert list(cv.transform(frame).columns) == frame.columns.tolist()


def test_a_score_that_did_not_converge_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("occamap.selection.scoring.MAX_ITER", 1)
    monkeypatch.setattr("occamap.selection.scoring.TOL", 1e-12)
    with pytest.raises(SelectionError, match="converged"):
        MongeMapCV(**SMALL).fit(X, Y)


# -- projections -------------------------------------------------------------------------------------------------------


class Spy(BaseEstimator):
    """A projection on the first two features that remembers what it was fitted on."""

    seen: list[np.ndarray] = []  # noqa: RUF012  (clones share it)

    def fit(self, samples: Any, y: Any = None) -> Spy:
        Spy.seen.append(samples)
        return self

    def transform(self, samples: Any) -> Any:
        return samples[:, :2]


def test_a_projection_sees_the_train_samples_and_nothing_else() -> None:
    Spy.seen.clear()
    cv = MongeMapCV(**{**SMALL, "projection": Spy()}, n_jobs=1).fit(X, Y)
    splits = check_splits(3, 50, 60, 0)
    assert len(Spy.seen) == 3
    for split, seen in zip(splits, Spy.seen, strict=True):
        n = split.source_train.size
        np.testing.assert_array_equal(seen[:n], X[split.source_train])
        train = {row.tobytes() for row in Y[split.target_train]}
        assert {row.tobytes() for row in seen[n:]} < train  # those drawn for the floor are kept from it
        assert len(seen) - n == split.target_train.size - split.source_test.size
    on_two = MongeMapCV(**SMALL).fit(X, Y).diagnostics_.identity.divergence
    assert cv.diagnostics_.identity.divergence < on_two
    x, y = X[splits[0].source_test], Y[splits[0].target_test]
    assert sinkhorn_divergence(x[:, :2], y[:, :2]) == pytest.approx(
        MongeMapCV(**{**SMALL, "projection": Spy(), "cv": [tuple(splits[0])], "rule": "best"})
        .fit(X, Y)
        .diagnostics_.identity.divergence
    )


def test_as_many_components_as_features_are_the_features() -> None:
    plain, turned = (MongeMapCV(**{**SMALL, "projection": p}).fit(X, Y).results_ for p in (None, 500))
    np.testing.assert_array_equal(plain["mean_divergence"], turned["mean_divergence"])


# -- what a fit leaves, and what it may take ---------------------------------------------------------------------------


def test_a_fit_that_fails_leaves_nothing_of_the_one_before() -> None:
    cv = MongeMapCV(rule="density", max_density=0.9, **SMALL).fit(X, Y)
    with pytest.raises(SelectionError):
        cv.set_params(max_density=0.0, gammas=[0.0, 0.1]).fit(X, Y)
    assert len(cv.results_["gamma"]) == 8
    assert not hasattr(cv, "best_map_")
    with pytest.raises(NotFittedError):
        cv.plot()


def test_select_is_of_the_parameters_that_were_fitted() -> None:
    cv = MongeMapCV(**SMALL).fit(X, Y)
    before = cv.select("best")
    after = cv.set_params(epsilon_scale="absolute", reach=1.0, tol=0.1).select("best")
    assert before.get_params() == after.get_params()
    assert before.g_.tobytes() == after.g_.tobytes()


def test_samples_without_mass_count_for_nothing() -> None:
    x, a = np.vstack([X, X + 50]), np.r_[np.ones(50), np.zeros(50)]
    splits = [tuple(split) for split in check_splits(3, 50, 60, 0)]
    dead = [(np.r_[p, p + 50], np.r_[q, q + 50], r, s) for p, q, r, s in splits]
    both = (
        MongeMapCV(**{**SMALL, "projection": 3, "cv": cv}).fit(z, Y, w)
        for z, w, cv in ((X, None, splits), (x, a, dead))
    )
    plain, weighted = (cv.results_ for cv in both)
    np.testing.assert_allclose(plain["mean_density"], weighted["mean_density"])
    np.testing.assert_allclose(plain["mean_divergence"], weighted["mean_divergence"], rtol=1e-4)


def test_a_budget_is_kept_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    roomy = MongeMapCV(**SMALL).fit(X, Y)
    monkeypatch.setattr(Budget, "left", lambda self: 20e6)
    tight = MongeMapCV(**SMALL, max_memory="9GB").fit(X, Y)
    np.testing.assert_allclose(roomy.results_["mean_divergence"], tight.results_["mean_divergence"])
    monkeypatch.setattr(Budget, "held", lambda self: 9_000_000_000 - 10_000)
    with pytest.raises(MemoryBudgetError, match="give max_memory at least"):
        MongeMapCV(**SMALL, max_memory="9GB").fit(X, Y)


# -- a scikit-learn citizen --------------------------------------------------------------------------------------------


def test_it_is_an_estimator() -> None:
    cv = MongeMapCV([L1, STVS], **SMALL)
    again = clone(cv)
    assert again.get_params()["gammas"] == [0.2, 2.0]
    assert again.get_params()["cost"] == [L1, STVS]
    with pytest.raises(NotFittedError):
        cv.transform(X)
    with pytest.raises(NotFittedError):
        cv.to_frame()


def test_same_seed_same_bytes_on_any_number_of_threads() -> None:
    def scores(jobs: int, seed: int) -> bytes:
        found = MongeMapCV(**{**SMALL, "projection": 5}, n_jobs=jobs, random_state=seed).fit(X, Y)
        told = str(found.diagnostics_).encode()
        return found.results_["mean_divergence"].tobytes() + found.best_map_.g_.tobytes() + told

    assert scores(1, 0) == scores(4, 0)
    assert scores(1, 0) != scores(1, 1)


def test_the_default_grid_and_effective_targets() -> None:
    cv = MongeMapCV([L1, STVS], 3, epsilon=[4, 12], epsilon_scale="perplexity", relax=1.0, cv=2).fit(X, Y)
    results = cv.to_frame()
    assert len(results) == 12
    assert results.groupby("cost").gamma.nunique().tolist() == [3, 3]
    small, large = (results[results.epsilon == value].mean_effective_targets for value in (4, 12))
    assert (small.to_numpy() < large.to_numpy()).all()
    assert set(results.epsilon_rule) == {"perplexity 4", "perplexity 12"}


def test_the_picture_shows_all_cells_and_the_choice() -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="drawing needs matplotlib")
    cv = MongeMapCV(**SMALL).fit(X, Y)
    ax = cv.plot()
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels[:2] == ["ε by 0.02 × mean cost", "ε by 0.1 × mean cost"]
    assert {"frontier", "chosen", "nothing moves"} < set(labels)
    assert sum(len(dots.get_offsets()) for dots in ax.collections if hasattr(dots, "get_offsets")) >= 8
    pyplot.close("all")


def test_progress_is_a_bar_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    MongeMapCV(**SMALL, verbose=True).fit(X, Y)
    assert "24/24 candidates × splits" in capsys.readouterr().err
    MongeMapCV(**SMALL).fit(X, Y)
    assert capsys.readouterr().err == ""


def test_an_error_in_one_split_stops_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    from occamap.selection import run

    calls, lock = [], threading.Lock()
    whole = run.evaluate_split

    def failing(plan: Any, split: Any, threads: int, tick: Any) -> Any:
        with lock:
            calls.append(1)
            if len(calls) == 1:
                raise KeyboardInterrupt
        return whole(plan, split, threads, tick)

    monkeypatch.setattr(run, "evaluate_split", failing)
    with pytest.raises(KeyboardInterrupt):
        MongeMapCV(**{**SMALL, "cv": 10}, n_jobs=2).fit(X, Y)
    assert len(calls) < 10


# -- Dask --------------------------------------------------------------------------------------------------------------


def test_a_dask_client_gives_the_same_bytes() -> None:
    distributed = pytest.importorskip("distributed", reason="needs dask.distributed: pip install 'dask[distributed]'")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        distributed.Client(cluster) as client,
    ):
        spread = MongeMapCV(**SMALL).fit(sp.csr_array(X), sp.csr_array(Y), client=client)
        turned = MongeMapCV(**{**SMALL, "projection": 5}).fit(X, Y, client=client)
    here = MongeMapCV(**SMALL).fit(sp.csr_array(X), sp.csr_array(Y))
    components = MongeMapCV(**{**SMALL, "projection": 5}).fit(X, Y)  # their rounding is that of BLAS, on its threads
    np.testing.assert_allclose(
        turned.results_["mean_divergence"], components.results_["mean_divergence"], rtol=1e-4
    )
    assert spread.results_["mean_divergence"].tobytes() == here.results_["mean_divergence"].tobytes()
    assert spread.best_index_ == here.best_index_
    assert str(spread.diagnostics_) == str(here.diagnostics_)
    with pytest.raises(InputError, match="client must be connected"):
        MongeMapCV(**SMALL).fit(X, Y, client=client)


def test_work_that_fails_on_a_cluster_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed", reason="needs dask.distributed: pip install 'dask[distributed]'")
    from occamap.selection import run

    with (
        distributed.LocalCluster(n_workers=1, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        distributed.Client(cluster) as client,
    ):
        monkeypatch.setattr(run, "_on_worker", _fails)
        with pytest.raises(ClusterError, match="a worker of the cluster failed: RuntimeError: broken"):
            MongeMapCV(**SMALL).fit(X, Y, client=client)
        monkeypatch.setattr(run, "_on_worker", _is_lost)
        with pytest.raises(ClusterError, match=r"lost the work 7 times, .*; the last it says: lost"):
            MongeMapCV(**SMALL).fit(X, Y, client=client)


def test_a_task_on_a_worker_stops_when_told() -> None:
    distributed = pytest.importorskip("distributed", reason="needs dask.distributed: pip install 'dask[distributed]'")
    from occamap.scale import task
    from occamap.selection import run

    with (
        distributed.LocalCluster(n_workers=1, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        distributed.Client(cluster) as client,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(task, "LATENCY", 0.0)
        patch.setattr(run, "evaluate_split", lambda plan, split, threads, tick: [tick(0) for _ in range(100)])
        assert client.submit(run._on_worker, None, None, "go-on").result() == [None] * 100
        distributed.Event("stop-now", client=client).set()
        with pytest.raises(task.StoppedError):
            client.submit(run._on_worker, None, None, "stop-now").result()


def _fails(*_: Any) -> Any:
    raise RuntimeError("broken")


def _is_lost(*_: Any) -> Any:
    raise OSError("lost")


def test_a_client_must_be_one() -> None:
    pytest.importorskip("distributed", reason="needs dask.distributed: pip install 'dask[distributed]'")
    cv = MongeMapCV(**SMALL).fit(X, Y)
    before = cv.best_map_
    with pytest.raises(InputError, match=r"client must be a dask\.distributed\.Client\(address\); got str"):
        cv.fit(X, Y, client="tcp://somewhere")
    assert cv.best_map_ is before  # what is refused at the door costs nothing


def test_the_default_count_is_what_the_documentation_says() -> None:
    assert monge_map_cv.COUNT == 10
    assert "(10)" in (MongeMapCV.__doc__ or "")


def test_a_grid_is_found_where_targets_are_many_and_few_are_asked_for():
    """The range of γ is looked for with some of the sources, which must not have too many targets each."""
    data = datasets.simulate_perturbation(400, 1500, 60, effect=1.5, density=0.3)
    path = gamma_path(data.control, data.treated, gammas=3, epsilon=8, epsilon_scale="perplexity")
    assert [round(float(m.report_.effective_targets)) for m in path.maps] == [8, 8, 8]
