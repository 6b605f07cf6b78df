"""The map: OTT-JAX and the definition as oracles, what the penalties promise, containers, memory, flows."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.special import softmax
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from occamap import L1, STVS, KOverlap, MongeMap, SqL2, bregman_centroid, flow
from occamap._memory import Budget, resident
from occamap._validate import check_samples
from occamap.costs import lanes
from occamap.costs.generic import GenericDisplacer
from occamap.errors import MemoryBudgetError

D = 9
COSTS = [SqL2(), L1(0.4), L1(0.4, [1, 0, 2] * 3), STVS(0.4), KOverlap(0.5, k=3), KOverlap(0.5, k=3, squared=False)]
CONTAINERS = [np.asarray, sp.csr_array, sp.csr_matrix, sp.csc_array, sp.coo_matrix, pd.DataFrame]
FORMS = {"dense": np.asarray, "csr": sp.csr_array}


def counts(n: int, seed: int = 0) -> np.ndarray:
    """Small multiples of ¼, half of them 0: differences are exact, and ties are everywhere."""
    return np.random.default_rng(seed).poisson(0.7, size=(n, D)) * 0.25 * (1 + np.arange(D) % 3)


def dense(values: Any) -> np.ndarray:
    return values.toarray() if sp.issparse(values) else np.asarray(values)


X, Y = counts(70, seed=1), counts(90, seed=2) + 0.5 * (np.arange(D) == 4)


@pytest.mark.peers
@pytest.mark.parametrize("name", ["SqL2", "L1", "STVS"])
@pytest.mark.usefixtures("ott")
def test_costs_potentials_and_maps_are_those_of_ott(name: str) -> None:
    from ott.geometry import costs, pointcloud, regularizers
    from ott.problems.linear import linear_problem
    from ott.solvers.linear import sinkhorn

    ours, theirs = {
        "SqL2": (SqL2(), costs.PNormP(2.0)),  # ‖z‖²/2, where SqEuclidean has no ½
        "L1": (L1(0.8), costs.RegTICost(regularizers.L1(), lam=0.8)),
        "STVS": (STVS(1.0), costs.RegTICost(regularizers.STVS(1.0))),
    }[name]
    X, Y, Z = np.random.default_rng(0).normal(size=(3, 45, 5)) * 1.2 + np.array([0, 1, 0])[:, None, None]
    m = MongeMap(ours, tol=1e-11).fit(X, Y)
    geometry = pointcloud.PointCloud(X, Y, cost_fn=theirs, epsilon=m.epsilon_)
    out = sinkhorn.Sinkhorn(threshold=1e-11, max_iterations=20_000)(linear_problem.LinearProblem(geometry))
    assert out.f.dtype == np.float64
    np.testing.assert_allclose(ours.pairwise(X, Y), geometry.cost_matrix, rtol=1e-12)
    assert m.a_ @ m.f_ + m.b_ @ m.g_ == pytest.approx(float(out.reg_ot_cost), rel=1e-6)
    assert np.ptp(m.f_ - out.f) < 1e-6 * np.ptp(m.f_)
    assert np.ptp(m.g_ - out.g) < 1e-6 * np.ptp(m.g_)
    np.testing.assert_allclose(m.transform(Z), out.to_dual_potentials().transport(Z), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cost", COSTS)
def test_displacements_follow_the_definition(cost: Any, form: str) -> None:
    x, b = FORMS[form](X), np.arange(1.0, 91) % 4 + 1e-9
    m = MongeMap(cost, epsilon=0.03).fit(x, FORMS[form](Y), None, b)
    slow, rows = GenericDisplacer(cost, check_samples(Y, "Y")), check_samples(X, "X")
    for ties in ("zero", "occam"):
        moving = np.ones_like(X, dtype=bool)
        for relax in (0.0, 0.4, 1.0):
            moves = m.set_params(ties=ties, relax=relax).displacement(x).toarray()
            gibbs = lambda C: softmax((m.g_ - C) / m.epsilon_ + np.log(b), axis=1)  # noqa: E731
            wanted = slow.block(rows, gibbs, int(ties == "occam"), relax).toarray()
            np.testing.assert_allclose(moves[moving], wanted[moving], atol=1e-11)
            moving &= np.abs(wanted) > 1e-9  # to relax a move of 1e-20 makes it a large one
            np.testing.assert_allclose(dense(m.transform(x)), X + moves, atol=1e-15)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cost", [SqL2(), L1(0.1), STVS(0.1), KOverlap(0.5, k=40)], ids=repr)
def test_so_many_features_that_they_take_several_tiles_and_their_moves_more_room(cost: Any, form: str) -> None:
    rng = np.random.default_rng(0)
    source, target = (rng.normal(size=(n, 5000)) * (rng.random((n, 5000)) < 0.5) for n in (5, 7))
    m = MongeMap(cost).fit(FORMS[form](source), FORMS[form](target))
    slow, rows = GenericDisplacer(cost, check_samples(target, "Y")), check_samples(source, "X")
    wanted = slow.block(rows, lambda C: softmax((m.g_ - C) / m.epsilon_, axis=1), 0, 0.0).toarray()
    moves = m.displacement(FORMS[form](source))
    np.testing.assert_allclose(moves.toarray(), wanted, atol=1e-11)
    assert moves.nnz > 5 * 2048 or isinstance(cost, KOverlap)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cost", [*COSTS, L1(2.0), STVS(2.0), KOverlap(10.0, k=3), KOverlap(2.0, k=3, squared=False)])
def test_displacements_store_what_moves_and_nothing_else(cost: Any, form: str) -> None:
    points = np.random.default_rng(0).standard_t(3, size=(2, 200, D))
    for source, target in ((X, Y), points):
        moves = MongeMap(cost).fit(FORMS[form](source), FORMS[form](target)).displacement(FORMS[form](source))
        assert moves.has_canonical_format
        assert np.abs(moves.data).min() > 1e-13  # no zero is stored, nor the rounding error of one


@pytest.mark.parametrize("cost", COSTS[:4])
def test_occam_moves_no_feature_that_zero_leaves(cost: Any) -> None:
    zero, occam = (dense(MongeMap(cost, ties=t).fit(X, Y).displacement(X)) != 0 for t in ("zero", "occam"))
    assert (occam <= zero).all()
    assert (occam.sum() < zero.sum()) == (cost != SqL2())


@pytest.mark.parametrize("cost", COSTS)
def test_relaxing_keeps_the_support_and_undoes_the_shrinkage(cost: Any) -> None:
    m = MongeMap(cost).fit(X, Y)
    plain, goal = m.displacement(X).toarray(), m.weights(X) @ Y - X
    for relax in (0.3, 1.0):
        relaxed = m.set_params(relax=relax).displacement(X).toarray()
        np.testing.assert_array_equal(relaxed != 0, plain != 0)
        np.testing.assert_allclose(relaxed, np.where(plain != 0, (1 - relax) * plain + relax * goal, 0), atol=1e-12)


def test_l1_falls_back_to_the_average_beyond_all_targets() -> None:
    Y = np.random.default_rng(0).normal(size=(40, 3))
    m = MongeMap(L1(1.5)).fit(np.random.default_rng(1).normal(size=(30, 3)), Y)
    points = np.array([[Y[:, 0].max() + 0.01, 0.0, 0.0], [Y[:, 0].min() - 0.01, 0.3, 0.0], [0.0, 0.0, 0.0]])
    gap = np.abs(m.transform(points) - m.weights(points) @ Y)[:, 0]
    assert ((gap < 1e-12) == [True, True, False]).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cost", [L1, STVS])
def test_a_count_where_all_targets_have_none_moves_to_exactly_zero(cost: Any, form: str, dtype: Any) -> None:
    X, Y = np.log1p(counts(70, seed=1)).astype(dtype), np.log1p(counts(130, seed=2)).astype(dtype)
    Y[:, :4] = 0
    for gamma, ties, relax in product((0.0, 0.01, 0.7, 30.0, 1e5), ("zero", "occam"), (0.0, 0.5)):
        m = MongeMap(cost(gamma), ties=ties, relax=relax).fit(FORMS[form](X), FORMS[form](Y))
        assert (dense(m.transform(FORMS[form](X)))[:, :4] == 0).all(), (gamma, ties, relax)


@pytest.mark.parametrize("form", FORMS)
def test_frozen_features_have_no_say_and_free_ones_move_as_in_sql2(form: str) -> None:
    cost, wrap = L1(0.4, [np.inf, 0, *[1] * (D - 2)]), FORMS[form]
    m = MongeMap(cost).fit(wrap(X), wrap(Y))
    moves = m.displacement(wrap(X)).toarray()
    assert (moves[:, 0] == 0).all()
    np.testing.assert_allclose(moves[:, 1], (m.weights(wrap(X)) @ Y - X)[:, 1], atol=1e-12)
    elsewhere = MongeMap(cost).fit(wrap(X * 9 ** (np.arange(D) == 0)), wrap(Y + 9 * (np.arange(D) == 0)))
    np.testing.assert_array_equal(elsewhere.displacement(wrap(X)).toarray(), moves)
    free = MongeMap(L1(0.4, np.zeros(D))).fit(wrap(X), wrap(Y))
    np.testing.assert_allclose(dense(free.transform(X)), MongeMap(SqL2()).fit(X, Y).transform(X), atol=1e-12)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("reach", [None, 1.0])
@pytest.mark.parametrize("cost", COSTS)
def test_potentials_weights_plan_and_the_map_back_agree(cost: Any, reach: Any, form: str) -> None:
    x, y = FORMS[form](X), FORMS[form](Y)
    m = MongeMap(cost, reach=reach, tol=1e-9).fit(x, y, np.arange(70.0))
    np.testing.assert_allclose(m.potential(x), m.f_, rtol=0, atol=1e-12)
    np.testing.assert_allclose(m.potential(y, "target"), m.g_, rtol=0, atol=1e-7)
    np.testing.assert_allclose(m.weights(x).sum(axis=1), 1, rtol=1e-12)
    back = MongeMap(cost, reach=reach, tol=1e-9).fit(y, x, None, np.arange(70.0))
    np.testing.assert_allclose(dense(m.inverse_transform(y)), dense(back.transform(y)), atol=1e-6)
    plan = np.outer(m.a_, m.b_) * np.exp((m.f_[:, None] + m.g_ - cost.pairwise(x, y)) / m.epsilon_)
    np.testing.assert_allclose(m.plan(), plan, rtol=1e-9, atol=1e-15)
    for axis, mass, potential in ((1, m.a_, m.f_), (0, m.b_, m.g_)):
        np.testing.assert_allclose(plan.sum(axis), mass * np.exp(-potential / (reach or np.inf)), atol=1e-9)


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.uint8])
def test_container_in_container_out(container: Any, dtype: Any) -> None:
    out, raw = np.dtype(dtype if np.dtype(dtype).kind == "f" else np.float64), container((4 * X).astype(dtype))
    if container is pd.DataFrame:
        raw = raw.set_axis(list("abcdefghi"), axis=1).set_axis(range(100, 170))
    m = MongeMap(L1(0.4)).fit(raw, (4 * Y).astype(out))
    for moved in (m.transform(raw), m.inverse_transform(raw)):
        assert type(moved) is type(raw)
        assert dense(moved).dtype == out
        if container is pd.DataFrame:
            assert moved.index.equals(raw.index)
            assert m.feature_names_in_.tolist() == moved.columns.tolist() == raw.columns.tolist()
    wanted = MongeMap(L1(0.4)).fit(4 * X, 4 * Y).transform(4 * X)
    np.testing.assert_allclose(dense(m.transform(raw)), wanted, atol=1e-12 if out == np.float64 else 1e-4)


def test_a_memory_budget_changes_the_work_and_not_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    held = resident()
    monkeypatch.setattr("occamap._memory.resident", lambda: held)  # what was freed before returns at any time
    X, Y = np.random.default_rng(0).normal(size=(2, 1600, 3))
    plain = MongeMap(L1(0.4), n_jobs=1).fit(X, Y)
    assert plain.report_.operator == "in memory, float64"
    assert plain.report_.choice == ""
    tight = MongeMap(L1(0.4), n_jobs=1, max_memory=held + 8_000_000).fit(X, Y)  # the costs alone take 20 MB
    assert tight.report_.operator == "computed again in each pass, float32"
    assert "Costs of 1,600 × 1,600 pairs take 21 MB in float64, 11 MB in float32; there is room" in str(tight.report_)
    np.testing.assert_allclose(tight.f_, plain.f_, rtol=0, atol=1e-6)
    exact = MongeMap(L1(0.4), n_jobs=1, tol=1e-8, max_memory=held + 12_000_000).fit(X, Y)
    assert exact.report_.operator == "computed again in each pass, float64"
    np.testing.assert_allclose(exact.f_, MongeMap(L1(0.4), tol=1e-8).fit(X, Y).f_, rtol=0, atol=1e-12)
    tight.set_params(max_memory=held + 15_000_000)
    np.testing.assert_allclose(tight.transform(X), plain.transform(X), rtol=0, atol=1e-6)
    tight.set_params(max_memory="1MB")
    for work in (lambda: tight.fit(X, Y), lambda: tight.transform(X), lambda: tight.weights(X)):
        with pytest.raises(MemoryBudgetError, match=r"max_memory at least [\d.]+ [MG]B; it is 1 MB"):
            work()


@pytest.mark.parametrize("held", [3e7, 3.1e8, 1.2e9, 7.3e9])
def test_the_budget_that_the_error_names_is_enough(held: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("occamap._memory.resident", lambda: int(held))
    with pytest.raises(MemoryBudgetError) as caught:
        Budget("1MB").require(1e6, "work")
    Budget(re.findall(r"at least ([\d.]+ [MG]B)", str(caught.value))[0]).require(1e6, "work")


def test_it_is_a_scikit_learn_estimator() -> None:
    m = MongeMap(L1(0.4, np.ones(D)), epsilon=0.2, ties="occam", n_jobs=1)
    before, twin = m.get_params(), clone(m)
    assert twin.fit(X, Y) is twin
    assert twin.get_params() == before == m.fit(X, Y).get_params()
    np.testing.assert_array_equal(twin.transform(X), m.transform(X))
    assert "epsilon=0.3" in repr(m.set_params(epsilon=0.3))
    assert "MongeMap" in m._repr_html_()
    for use in ("transform", "displacement", "inverse_transform", "potential", "weights", "save", "plan"):
        with pytest.raises(NotFittedError):
            getattr(clone(m), use)(*[X] * (use != "plan"))


@pytest.mark.parametrize("cost", COSTS)
def test_threads_may_share_a_map(cost: Any) -> None:
    queries = [wrap(counts(130, seed=s).astype(t)) for s in range(4) for wrap in FORMS.values() for t in ("f4", "f8")]
    shared, alone = (MongeMap(cost, n_jobs=2).fit(X.astype("f4"), Y.astype("f4")) for _ in range(2))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(shared.transform, queries))
    assert all((moved != alone.transform(query)).sum() == 0 for query, moved in zip(queries, found, strict=True))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cost", COSTS)
def test_flows_go_down(cost: Any, form: str) -> None:
    x, y = FORMS[form](X), FORMS[form](Y)
    paths = [flow(x, y, cost, step=0.3, n_steps=4, geometry=g, tol=1e-8) for g in ("bregman", "euclidean")]
    for path in paths:
        assert len(path) == len(path.trajectory) == 1 + len(path.costs) == 1 + len(path.reports) == 5
        assert path[0] is x
        assert type(path[4]) is type(x)
        assert (np.diff(path.costs) < 0).all()
    if cost == SqL2():
        np.testing.assert_allclose(dense(paths[0][4]), dense(paths[1][4]), atol=1e-9)


@pytest.mark.parametrize("geometry", ["bregman", "euclidean"])
def test_flows_leave_frozen_features_alone(geometry: str) -> None:
    path = flow(X, Y, L1(0.4, [np.inf, *[1] * (D - 1)]), n_steps=2, geometry=geometry)
    assert ((path[2] != X).any(axis=0) == (np.arange(D) > 0)).all()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cost", COSTS)
def test_a_centroid_has_the_smallest_mean_divergence(cost: Any, form: str) -> None:
    rng = np.random.default_rng(0)
    Z, p = rng.normal(size=(6, D)) + 1, rng.random(6)
    centre = dense(bregman_centroid(FORMS[form](Z), p, cost)).ravel()
    steps = np.vstack([np.zeros(D), *[size * rng.normal(size=(40, D)) for size in (1e-4, 1e-2, 1.0)]])
    means = [p @ cost.divergence(np.tile(centre + step, (6, 1)), Z) for step in steps]
    assert np.argmin(means) == 0


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("cost", [L1(0.3), L1(0.3, np.r_[np.inf, 0.0, np.ones(38)]), STVS(0.5), SqL2()])
@pytest.mark.parametrize("ties", [0, 1])
def test_many_targets_are_summed_block_by_block(
    cost: Any, dtype: Any, wrap: Any, ties: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of targets whose weights fit a cache, some of them empty in a feature, add up to the definition."""
    rng = np.random.default_rng(0)
    drawn = (np.where(rng.random((n, 40)) < 0.15, np.round(4 * rng.random((n, 40))) / 2, 0) for n in (70, 300))
    X, Y = (Z.astype(dtype) for Z in drawn)
    Y[:, 7] = 0
    Y[:150, 8] = 0
    frozen = cost._frozen(40)
    samples = [check_samples(wrap(Z), "Z").without(frozen) for Z in (X, Y)]
    p = rng.dirichlet(np.full(300, 0.05), size=70)
    monkeypatch.setattr(lanes, "WEIGHTS_BYTES", 2**14)
    found = cost._displacer(samples[1])
    assert found.columns[0].shape[0] - 1 == (300 * 64 * np.dtype(dtype).itemsize) // 2**14 + 1
    finite = L1(0.3, np.r_[1.0, cost.weights[1:]]) if frozen.any() else cost  # the frozen feature is 0 on both sides
    wanted = GenericDisplacer(finite, samples[1].astype(np.float64))
    for relax in (0.0, 1.0):
        moves, exact = (
            d.block(x, lambda _: p, ties, relax, p).toarray()
            for d, x in ((found, samples[0]), (wanted, samples[0].astype(np.float64)))
        )
        np.testing.assert_allclose(moves, exact, atol=2e-6 if dtype == np.float32 else 1e-12)
        if dtype == np.float64:
            np.testing.assert_array_equal(moves != 0, exact != 0)
