"""Faults that were found by attack, each with the smallest case that showed it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from occamap import L1, STVS, Cost, KOverlap, MongeMap, SqL2, Subspace, flow
from occamap._validate import check_samples
from occamap.datasets import simulate_perturbation
from occamap.errors import InputError

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(20, 4)), RNG.normal(size=(25, 4)) + 1


def test_the_reach_of_a_fitted_map_is_that_of_the_fit() -> None:
    m = MongeMap(L1(0.5), reach=1.0).fit(X, Y)
    mass = m.plan().sum()
    assert mass == pytest.approx(m.report_.mass)
    m.set_params(reach=None)
    assert m.plan().sum() == mass < 0.9
    np.testing.assert_allclose(m.potential(X), m.f_, atol=1e-9)


def test_a_warm_start_from_another_scale_is_dropped() -> None:
    m = MongeMap(SqL2(), warm_start=True, epsilon=0.05).fit(X * 1e9, Y * 1e9).fit(X, Y)
    np.testing.assert_allclose(m.transform(X), MongeMap(SqL2(), epsilon=0.05).fit(X, Y).transform(X), atol=1e-2)


def test_the_plan_of_a_sample_without_mass_is_zero_when_unbalanced() -> None:
    m = MongeMap(SqL2(), epsilon=0.01, epsilon_scale="absolute", reach=0.01)
    plan = m.fit([[0.0], [10.0]], [[0.0], [10.0]], a=[1, 0]).plan()
    assert (plan[1] == 0).all()
    assert np.isfinite(plan).all()


def test_the_median_of_the_costs_does_not_see_an_outlier() -> None:
    far = Y.copy()
    far[0] = 1e4
    C = SqL2().pairwise(X, far)
    m = MongeMap(SqL2(), epsilon=1.0, epsilon_scale="median").fit(X, far)
    assert m.epsilon_ == pytest.approx(np.median(C), rel=1e-9)


def test_names_that_json_cannot_hold_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    frame = pd.DataFrame(X, columns=pd.MultiIndex.from_product([["a", "b"], [1, 2]]))
    m = MongeMap(SqL2()).fit(frame, Y)
    with pytest.raises(InputError, match="feature names must be text or numbers"):
        m.save(tmp_path / "m")
    assert not list(tmp_path.iterdir())


def test_parameters_are_checked_before_a_map_is_saved(tmp_path: Path) -> None:
    m = MongeMap(SqL2()).fit(X, Y).set_params(epsilon=-1)
    with pytest.raises(InputError, match="epsilon"):
        m.save(tmp_path / "m")
    assert not list(tmp_path.iterdir())


def test_permuted_names_of_a_whole_transcriptome_are_told_at_once() -> None:
    names = [f"G{i}" for i in range(30_000)]
    frame = pd.DataFrame(np.ones((1, 30_000)), columns=names)
    m = MongeMap(SqL2()).fit(frame, frame + 1)
    with pytest.raises(InputError, match="same order"):  # it took minutes
        m.transform(frame[names[::-1]])


def test_strengths_that_overflow_are_refused() -> None:
    with pytest.raises(InputError, match="weights times gamma"):
        L1(1e10, weights=[1e300, 1.0])
    with pytest.raises(InputError, match="gamma"):
        STVS(1e160)


def test_tiny_strengths_are_no_strength() -> None:
    assert STVS(1e-320).value([1.0]) == 0.5
    assert STVS(1e-320).pairwise([[1.0]], [[0.0]]) == 0.5


def test_conjugates_of_large_float32_are_finite() -> None:
    assert L1(1.0).conjugate(np.float32([1e30])) == pytest.approx(5e59, rel=1e-6)


def test_a_series_of_weights_is_refused_since_it_is_not_aligned() -> None:
    with pytest.raises(InputError, match="reindex"):
        L1(1.0, weights=pd.Series([1.0, 2.0], index=["b", "a"]))


def test_masked_entries_are_refused() -> None:
    masked = np.ma.masked_array([[1.0, 999.0]], mask=[[0, 1]])
    for call in (lambda: SqL2().value(masked), lambda: MongeMap().fit(X, Y, a=np.ma.masked_less(np.ones(20), 2))):
        with pytest.raises(InputError, match="masked"):
            call()


def test_a_flow_needs_a_cost() -> None:
    with pytest.raises(InputError, match="cost must be"):
        flow(X, Y, None)  # type: ignore[arg-type]


def test_the_kink_of_a_vector_with_exactly_k_entries() -> None:
    y, x = np.array([1.0, 0, 0]), np.ones(3)  # k = 1 is the ℓ1 norm: ½γ‖·‖₁², whose slope at y is γ in every zero
    expected = 0.5 * 3 + 0.5 * 9 - (0.5 + 0.5) - 2 * 1.0
    assert KOverlap(1.0, k=1).divergence(x, y) == pytest.approx(expected)


def test_targets_beyond_the_range_of_float32_move_samples_of_float32_in_float64() -> None:
    small, huge = X.astype(np.float32), Y * 1e60
    m = MongeMap(SqL2()).fit(small, huge)
    wide = MongeMap(SqL2()).fit(small.astype(np.float64), huge)
    for container in np.asarray, sp.csr_array:
        moved = m.transform(container(small))
        assert moved.dtype == np.float64
        np.testing.assert_allclose(moved.toarray() if sp.issparse(moved) else moved, wide.transform(small), rtol=1e-6)
        assert np.isfinite(m.displacement(container(small)).data).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("gamma", [1e3, 1e6, 1e9, 1e15])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_however_large_gamma_is_a_feature_beyond_all_targets_moves_to_their_mean(form, gamma, dtype) -> None:
    source, target = X.astype(dtype), (Y + 20.0 * (np.arange(4) == 0)).astype(dtype)
    m = MongeMap(L1(gamma)).fit(form(source), form(target))
    wanted = m.weights(form(source)) @ target[:, 0].astype(np.float64) - source[:, 0]
    np.testing.assert_allclose(m.displacement(form(source)).toarray()[:, 0], wanted, rtol=1e-6)


@pytest.mark.parametrize("gamma", [0.3, 1.0, 10.0])
def test_stvs_moves_no_count_below_zero(gamma: float) -> None:
    data = simulate_perturbation(300, 250, 1500, effect=1.5)
    moved = MongeMap(STVS(gamma)).fit(data.control, data.treated).transform(data.control)
    assert moved.data.min() > 0


def test_a_sparse_frame_stays_sparse() -> None:
    rows = sp.csr_array(np.where(X > 0, X, 0).astype(np.float32))
    frame = pd.DataFrame.sparse.from_spmatrix(rows, columns=list("abcd"), index=[f"cell {i}" for i in range(20)])
    m = MongeMap(L1(0.5)).fit(frame, pd.DataFrame(np.maximum(Y, 0), columns=list("abcd")))
    moved = m.transform(frame)
    assert all(isinstance(dtype, pd.SparseDtype) for dtype in moved.dtypes)
    assert moved.index.equals(frame.index)
    np.testing.assert_allclose(moved.sparse.to_dense(), m.transform(frame.sparse.to_dense()), rtol=1e-6, atol=1e-7)
    with pytest.raises(InputError, match="features"):
        m.transform(frame[list("abdc")])


def test_next_to_no_mass_is_said() -> None:
    report = MongeMap(SqL2(), reach=1e-3).fit(X, Y + 100).report_
    assert "next to nothing: raise reach" in str(report)


def test_a_fitted_map_does_not_see_what_is_done_to_the_samples_later() -> None:
    target = sp.random_array((80, 3000), density=0.3, format="csr", rng=np.random.default_rng(0))
    target.data[::2] = 0
    source = target[:30].copy()
    m = MongeMap(L1(0.1)).fit(source, target)
    before = m.displacement(source).toarray()
    target.eliminate_zeros()
    target.data[:] = 7
    m._towards._prepared.clear()
    np.testing.assert_array_equal(m.displacement(source).toarray(), before)


@pytest.mark.parametrize("given", ["itself", "a view", "a read-only view", "a frame"])
def test_nor_through_a_view_or_a_frame(given: str) -> None:
    points = Y.copy()
    target: Any = points[:] if "view" in given else points
    target.flags.writeable = given != "a read-only view"
    target = pd.DataFrame(target, copy=False) if given == "a frame" else target
    m = MongeMap(L1(0.1)).fit(pd.DataFrame(X) if given == "a frame" else X, target)
    before = m.transform(m._source.data)
    points[:] = 0
    m._towards._prepared.clear()
    np.testing.assert_array_equal(m.transform(m._source.data), before)


def test_what_nobody_can_write_to_is_not_copied(tmp_path: Path) -> None:
    np.save(tmp_path / "Y.npy", Y)
    mapped = np.load(tmp_path / "Y.npy", mmap_mode="r")
    assert np.shares_memory(MongeMap(SqL2()).fit(X, mapped)._target.data, mapped)


def test_a_sparse_frame_is_not_made_dense_to_see_who_owns_it() -> None:
    rows = sp.random_array((2000, 2000), density=1e-3, format="csr", rng=np.random.default_rng(0))
    samples = check_samples(pd.DataFrame.sparse.from_spmatrix(rows), "X")
    tracemalloc.start()
    samples.owned()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1e6


def test_columns_that_no_longer_rise_are_seen_though_scipy_says_they_do() -> None:
    rows = sp.random_array((64, 5000), density=0.5, format="csr", rng=np.random.default_rng(0))
    assert rows.has_canonical_format
    rows.indices[:] = rows.indices[::-1].copy()
    right = sp.csr_array((rows.data, rows.indices, rows.indptr), shape=rows.shape).toarray()
    np.testing.assert_allclose(L1(1.0).pairwise(rows, rows), L1(1.0).pairwise(right, right), rtol=1e-12)


@pytest.mark.parametrize("cost", [SqL2(), L1(1.0), STVS(1.0)], ids=repr)
def test_many_equal_rows_in_float32_take_no_longer(cost: Cost) -> None:
    rows = RNG.poisson(0.05, (3000, 5)).astype(np.float32)
    begun = time.perf_counter()
    C = cost.pairwise(rows, rows)
    assert time.perf_counter() - begun < 20  # a loop over these pairs took minutes
    np.testing.assert_allclose(C[:50], cost.pairwise(rows[:50].astype(np.float64), rows), rtol=1e-6)


@pytest.mark.parametrize("cost", [SqL2(), L1(1e-20), L1(1.0)], ids=repr)
@pytest.mark.parametrize("left", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("right", [np.asarray, sp.csr_array])
def test_products_that_vanish_in_float32(cost: Cost, left: Any, right: Any) -> None:
    rows = np.array([[1e-23, 0], [2e-23, 1e-22], [0, 0], [1, 2]], np.float32)
    wanted = np.stack([cost.value(x - rows.astype(np.float64)) for x in rows.astype(np.float64)])
    np.testing.assert_allclose(cost.pairwise(left(rows), right(rows)), wanted, rtol=1e-6, atol=0)


@pytest.mark.parametrize("cost", [SqL2(), L1(1e-3), STVS(1.0)], ids=repr)
def test_long_rows_of_equal_terms_keep_twelve_digits(cost: Cost) -> None:
    rows, others = np.full((1, 20_000), 0.1), np.full((1, 20_000), 0.115)
    wanted = 20_000 * cost.value(np.array([0.1 - 0.115]))
    np.testing.assert_allclose(cost.pairwise(sp.csr_array(rows), sp.csr_array(others))[0, 0], wanted, rtol=1e-12)


def test_stvs_with_gamma_out_of_all_proportion() -> None:
    assert STVS(1e-50).pairwise([[1e105]], [[0.0]]) == pytest.approx(5e209)
    assert STVS(1e-50).pairwise(sp.csr_array([[1e105]]), sp.csr_array([[1.0]])) == pytest.approx(5e209)
    assert np.isfinite(MongeMap(STVS(1e-50)).fit([[0.0], [1.0]], [[1.0], [2.0]]).transform([[1e120]])).all()
    with pytest.raises(InputError, match=r"gamma must be at most 1e8 times the largest entry, .*or L1"):
        MongeMap(STVS(1e17)).fit(X, Y)
    tiny = np.array([[1e-31, 0]], np.float32), np.array([[0, 0], [0, 9e8]], np.float32)
    wanted = [STVS(5e9).value(tiny[0].astype(np.float64) - y)[0] for y in tiny[1].astype(np.float64)]
    np.testing.assert_allclose(STVS(5e9).pairwise(*tiny)[0], wanted, rtol=1e-6)


def test_an_epsilon_that_float64_cannot_resolve_is_refused() -> None:
    with pytest.raises(InputError, match="epsilon must be at least 1e-13 of the mean cost"):
        MongeMap(L1(1.0), epsilon=1e-20, epsilon_scale="absolute").fit(X, Y)


def test_moves_that_are_rounded_to_none_are_not_stored() -> None:
    target = np.zeros((16, 1), np.float32)
    target[0] = 1e-44
    assert MongeMap(SqL2()).fit(target[1:2], target).displacement(target[1:2]).nnz == 0


SCRIPT = "import occamap as oc; print(oc.SqL2().pairwise([[1.0, 2.0]], [[0.0, 0.0]])[0, 0])"


def _run(folder: Path, **extra: str) -> subprocess.CompletedProcess[str]:
    surroundings = {**os.environ, "NUMBA_CACHE_DIR": str(folder), **extra}
    return subprocess.run([sys.executable, "-c", SCRIPT], env=surroundings, capture_output=True, text=True, check=False)


@pytest.mark.skipif(sys.platform == "win32", reason="files in use cannot be cut there")
def test_a_damaged_cache_of_kernels_is_written_anew(tmp_path: Path) -> None:
    assert _run(tmp_path).stdout == "2.5\n"
    for damage in (lambda data: data[: len(data) // 2], lambda data: b"", lambda data: b"no pickle" * 50):
        for pattern in "*.nbc", "*.nbi":
            files = list(tmp_path.rglob(pattern))
            assert files
            for file in files:
                file.write_bytes(damage(file.read_bytes()))
        done = _run(tmp_path)
        assert done.stdout == "2.5\n", done.stderr
    for file in tmp_path.rglob("*.nb?"):
        assert file.stat().st_size > 0


def test_without_a_compiler_it_says_so(tmp_path: Path) -> None:
    assert "unset NUMBA_DISABLE_JIT" in _run(tmp_path, NUMBA_DISABLE_JIT="1").stderr


SMALL_COSTS = SqL2(), L1(1.0), STVS(1.0), KOverlap(1.0, 2), Subspace(1.0, np.eye(1, 5))


@pytest.mark.parametrize("cost", SMALL_COSTS, ids=lambda cost: type(cost).__name__)
@pytest.mark.parametrize("scale", [1e-145, 1e-170, 1e-300])
def test_samples_whose_squares_are_lost_are_refused(cost: Cost, scale: float) -> None:
    """All costs were 0, and every sample went to the mean of all targets."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(12, 5)), rng.normal(size=(9, 5)) + 1
    with pytest.raises(InputError, match=r"differences are squared; the largest is .*: rescale them"):
        MongeMap(cost).fit(scale * X, scale * Y)
    MongeMap(SqL2()).fit(0 * X, 0 * Y)  # one point is no reason


def test_row_pointers_that_end_at_0_lead_nowhere() -> None:
    wild = sp.csr_array((4, 3))
    wild.data, wild.indices, wild.indptr = np.ones(4), np.zeros(4, int), np.array([0, 10**7, 2 * 10**7, 3 * 10**7, 0])
    with pytest.raises(InputError, match="X must be a valid sparse matrix"):
        MongeMap(SqL2()).fit(wild, np.ones((2, 3)))


def test_weights_whose_sum_is_infinite_are_refused_without_a_warning() -> None:
    with pytest.raises(InputError, match="a must have a positive, finite sum; got inf"):
        MongeMap().fit(np.ones((12, 2)), np.ones((3, 2)), np.full(12, 1e308))
