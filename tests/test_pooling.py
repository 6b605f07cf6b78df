"""Pooled maps: the Bregman centroid of a neighbourhood's pairs, the same from any container, in any order and place."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import kneighbors_graph

import occamap as oc
from occamap import L1, STVS, GroupLasso, KOverlap, MongeMap, MongeMapCV, SqL2, Subspace, bregman_centroid, load
from occamap._kernels.pool import largest_averages
from occamap._memory import resident
from occamap._validate import check_samples
from occamap.costs import lanes
from occamap.costs.generic import Field, GenericDisplacer
from occamap.errors import InputError, MemoryBudgetError
from occamap.maps import pooling
from tests.cluster import Cluster

D = 8
BASIS = np.linalg.qr(np.random.default_rng(0).normal(size=(D, 2)))[0].T
SEPARABLE = {"sql2": SqL2(), "l1": L1(0.6), "frozen": L1(0.6, [np.inf, 0, *[1, 2] * 3]), "stvs": STVS(0.6)}
JOINT = {
    "overlap": KOverlap(0.8, k=3),
    "norm": KOverlap(0.8, k=3, squared=False),
    "groups": GroupLasso(0.5, [[0, 1, 2], [4, 5]], l1_ratio=0.3),
    "subspace": Subspace(1.5, BASIS),
}
COSTS = SEPARABLE | JOINT
FORMS = {"dense": np.asarray, "csr": sp.csr_array}

costs = pytest.mark.parametrize("cost", COSTS.values(), ids=COSTS)
separable = pytest.mark.parametrize("cost", SEPARABLE.values(), ids=SEPARABLE)
one_of_each = pytest.mark.parametrize("cost", [L1(0.6), KOverlap(0.8, k=3)], ids=["by feature", "by row"])
forms = pytest.mark.parametrize("wrap", FORMS.values(), ids=FORMS)


def counts(n: int, seed: int, d: int = D) -> np.ndarray:
    """Small multiples of ¼, half of them 0: differences are exact, and ties are everywhere."""
    return np.random.default_rng(seed).poisson(0.7, size=(n, d)) * 0.25 * (1 + np.arange(d) % 3)


def reals(n: int, seed: int, d: int = D) -> np.ndarray:
    """Half of the entries 0, the others all different: no two distances are equal."""
    rng = np.random.default_rng(seed)
    return np.where(rng.random((n, d)) < 0.5, rng.gamma(2.0, size=(n, d)), 0.0)


def dense(values: Any) -> np.ndarray:
    return values.toarray() if sp.issparse(values) else np.asarray(values)


def as_bytes(moves: sp.csr_array) -> tuple[bytes, ...]:
    return moves.data.tobytes(), moves.indices.tobytes(), moves.indptr.tobytes()


def random_operator(n: int, seed: int = 0, entries: int = 6) -> sp.csr_array:
    """Rows with a few random weights, which sum to one."""
    rng = np.random.default_rng(seed)
    columns = np.array([rng.permutation(n)[:entries] for _ in range(n)])
    weights = rng.dirichlet(np.ones(entries), size=n)
    return sp.csr_array((weights.ravel(), columns.ravel(), np.arange(0, n * entries + 1, entries)), shape=(n, n))


def block_operator(labels: np.ndarray, masses: np.ndarray) -> np.ndarray:
    """Each row has the weights of the samples with the same label."""
    W = (labels[:, None] == labels) * masses
    return W / W.sum(axis=1, keepdims=True)


X, Y, Z = counts(70, 1), counts(90, 2) + 0.5 * (np.arange(D) == 4), counts(20, 3)
A, B, C = reals(150, 1), reals(90, 2) + 1.0 * (np.arange(D) == 4), reals(80, 3)
MASSES = np.random.default_rng(0).random(70)
LABELS = np.random.default_rng(1).choice(["b", "a", "long name"], 70)


@pytest.fixture(scope="module")
def fitted() -> MongeMap:
    """Of samples without equal distances; each test says how it is read."""
    return MongeMap(L1(0.6)).fit(A, B)


@pytest.fixture(autouse=True)
def as_fitted(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test asks of the shared map does not outlast it."""
    yield
    if "fitted" in request.fixturenames:
        request.getfixturevalue("fitted").set_params(**MongeMap(L1(0.6)).get_params())


# -- what a pooled displacement is -----------------------------------------------------------------------------


@costs
@forms
def test_a_group_moves_by_the_centroid_of_its_pairs(cost: Any, wrap: Any) -> None:
    """−C_h of all x_i − y_j with weights a_i p_j(x_i)."""
    m = MongeMap(cost, pool=LABELS).fit(wrap(X), wrap(Y), MASSES)
    moves, P = m.displacement(wrap(X)).toarray(), m.weights(wrap(X))
    for label in np.unique(LABELS):
        group = np.flatnonzero(label == LABELS)
        pairs = (X[group][:, None] - Y).reshape(-1, D)
        centroid = bregman_centroid(pairs, (MASSES[group][:, None] * P[group]).ravel(), cost)
        np.testing.assert_allclose(moves[group], np.tile(-centroid, (group.size, 1)), atol=1e-10)


@costs
def test_a_matrix_averages_the_field_before_the_prox(cost: Any) -> None:
    W = random_operator(70)
    m = MongeMap(cost, pool=W).fit(X, Y)
    free = ~cost._frozen(D)
    slopes = np.array([p @ cost.grad((x - Y) * free) for x, p in zip(X, m.weights(X), strict=True)])
    np.testing.assert_allclose(m.displacement(X).toarray(), -cost.prox(W @ slopes), atol=1e-10)


def test_pooling_over_everything_is_the_difference_of_means_under_sql2() -> None:
    b = np.random.default_rng(4).random(90)
    m = MongeMap(SqL2(), tol=1e-10, max_iter=20_000, pool=np.zeros(70, int)).fit(X, Y, MASSES, b)
    wanted = np.average(Y, axis=0, weights=b) - np.average(X, axis=0, weights=MASSES)
    np.testing.assert_allclose(m.displacement(X).toarray(), np.tile(wanted, (70, 1)), atol=1e-8)


@costs
@forms
def test_the_identity_is_the_plain_map(cost: Any, wrap: Any) -> None:
    m = MongeMap(cost).fit(wrap(X), wrap(Y))
    plain = m.displacement(wrap(X)).toarray()
    for identity in (np.eye(70), sp.eye_array(70, format="csr"), sp.eye(70, format="coo"), np.arange(70)):
        np.testing.assert_allclose(m.set_params(pool=identity).displacement(wrap(X)).toarray(), plain, atol=1e-11)


@one_of_each
@pytest.mark.parametrize("ties", ["zero", "occam"])
@pytest.mark.parametrize("relax", [0.0, 0.5])
def test_a_matrix_of_blocks_is_the_labels(cost: Any, ties: str, relax: float) -> None:
    m = MongeMap(cost, ties=ties, relax=relax, pool=LABELS).fit(X, Y, MASSES)
    by_label = m.displacement(X).toarray()
    assert np.unique(by_label, axis=0).shape[0] == 3
    blocks = block_operator(LABELS, MASSES)
    np.testing.assert_allclose(m.neighbourhoods().toarray(), blocks, atol=1e-15)
    np.testing.assert_allclose(m.set_params(pool=blocks).displacement(X).toarray(), by_label, atol=1e-11)


@settings(max_examples=10)
@given(share=st.floats(0, 1), seed=st.integers(0, 5))
def test_fields_of_mixed_neighbourhoods_are_mixed(share: float, seed: int) -> None:
    """Under SqL2 the prox is the identity, and the displacement is linear in the matrix."""
    m = MIXED
    one, other = random_operator(70, seed), random_operator(70, seed + 1, entries=3)
    moves = [m.set_params(pool=W).displacement(X) for W in (one, other, share * one + (1 - share) * other)]
    np.testing.assert_allclose(moves[2].toarray(), (share * moves[0] + (1 - share) * moves[1]).toarray(), atol=1e-12)


MIXED = MongeMap(SqL2()).fit(X, Y)


@costs
def test_relaxing_keeps_the_support_and_ends_at_the_pooled_shift(cost: Any) -> None:
    W = random_operator(70)
    m = MongeMap(cost, pool=W).fit(X, Y)
    plain, shift = m.displacement(X).toarray(), W @ (m.weights(X) @ Y - X)
    for relax in (0.3, 1.0):
        relaxed = m.set_params(relax=relax).displacement(X).toarray()
        np.testing.assert_array_equal(relaxed != 0, plain != 0)
        wanted = np.where(plain != 0, (1 - relax) * plain + relax * shift, 0)
        np.testing.assert_allclose(relaxed, wanted, atol=1e-11)


@separable
@pytest.mark.parametrize("pool", [5, LABELS], ids=["number", "labels"])
def test_occam_moves_no_more_than_zero(cost: Any, pool: Any) -> None:
    m = MongeMap(cost, pool=pool).fit(X, Y)
    zero, occam = (np.abs(m.set_params(ties=ties).displacement(X).toarray()) for ties in ("zero", "occam"))
    assert np.all(occam <= zero + 1e-12)
    assert (occam.sum() < 0.99 * zero.sum()) == (cost != SqL2())


def test_frozen_features_stay_and_have_no_say() -> None:
    cost, first = L1(0.6, [np.inf, 0, *[1, 2] * 3]), 1.0 * (np.arange(D) == 0)
    m, other = (MongeMap(cost, pool=5).fit(*pair) for pair in ((A, B), (A * (1 + 8 * first), B + 9 * first)))
    moves = m.displacement(A)
    assert not moves[:, [0]].nnz
    assert moves.nnz
    assert as_bytes(other.displacement(A * (1 + 8 * first))) == as_bytes(moves)


@costs
def test_unbalanced_maps_are_pooled(cost: Any) -> None:
    m = MongeMap(cost, reach=2.0, pool=LABELS).fit(X, Y, MASSES)
    moves, P = m.displacement(X).toarray(), m.weights(X)
    group = np.flatnonzero(LABELS == "a")
    pairs = (X[group][:, None] - Y).reshape(-1, D)
    centroid = bregman_centroid(pairs, (MASSES[group][:, None] * P[group]).ravel(), cost)
    np.testing.assert_allclose(moves[group[0]], -centroid, atol=1e-10)


@pytest.mark.parametrize("wrap", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("cost", [L1(0.3), L1(0.3, np.r_[np.inf, 0.0, np.ones(38)]), STVS(0.5), SqL2()])
def test_fields_of_several_tiles_and_blocks_add_up(cost: Any, dtype: Any, wrap: Any, monkeypatch: Any) -> None:
    """Ranges that begin within a tile of features, and targets in several blocks, some of them empty in a feature."""
    rng, d = np.random.default_rng(0), 40
    drawn = [np.where(rng.random((n, d)) < 0.2, np.round(4 * rng.random((n, d))) / 2, 0) for n in (60, 300)]
    drawn[1][:, 7] = drawn[1][:150, 8] = 0
    x, y = (check_samples(wrap(rows.astype(dtype)), "Z").without(cost._frozen(d)) for rows in drawn)
    p = rng.dirichlet(np.full(300, 0.5), size=60)
    monkeypatch.setattr(lanes, "WEIGHTS_BYTES", 2**14)
    monkeypatch.setattr(lanes, "TILE_BYTES", 7 * 64 * np.dtype(dtype).itemsize)  # 7 features
    displacer, free = cost._displacer(y), ~cost._frozen(d)
    wanted = Field.empty(60, d, np.float64, shifts=True, balls=0)
    GenericDisplacer(cost, y.astype(np.float64)).field(x.astype(np.float64), p, wanted)
    for start, stop in ((0, d), (3, 31), (14, 15), (39, d)):
        found = Field.empty(60, stop - start, displacer.dtype, shifts=True, balls=0)
        displacer.field(x, p, found, start)
        for part in ("slopes", "shifts", "slack"):
            those = getattr(found, part)[:, free[start:stop]], getattr(wanted, part)[:, start:stop][:, free[start:stop]]
            np.testing.assert_allclose(*those, atol=1e-12 if dtype == np.float64 else 3e-6)


@settings(max_examples=20)
@given(scale=st.floats(0.1, 10), entries=st.integers(1, 70), seed=st.integers(0, 100))
def test_no_average_exceeds_its_bound(scale: float, entries: int, seed: int) -> None:
    """Also where few samples have a value, as most genes do."""
    W, rng = random_operator(70, seed, entries), np.random.default_rng(seed)
    field = np.asfortranarray(rng.normal(scale, size=(70, 9)) * (rng.random((70, 9)) < 0.3), dtype=np.float32)
    weights, bounds = W.toarray(), np.empty(9)
    largest_averages(field, weights.max(axis=0), np.sqrt((weights**2).sum(axis=1).max()), bounds)
    assert np.all(np.abs(weights @ field).max(axis=0) <= bounds * (1 + 1e-12))


# -- who is whose neighbour ------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 2, 7, 150, 1000])
def test_neighbourhoods_are_row_stochastic_and_hold_the_sample(fitted: MongeMap, k: int) -> None:
    W = fitted.set_params(pool=k).neighbourhoods()
    assert W.shape == (150, 150)
    np.testing.assert_allclose(W.sum(axis=1), 1, rtol=1e-12)
    assert W.data.min() >= 0
    assert 1 <= np.diff(W.indptr).max() <= min(k, 150)
    assert (W.diagonal() > 0).all()
    assert fitted.describe_neighbourhoods().largest == min(k, 150)
    assert fitted.set_params(pool=None).describe_neighbourhoods() is None


def test_displacements_are_those_of_the_neighbourhoods(fitted: MongeMap) -> None:
    nearest = fitted.set_params(pool=6)
    moves, W = nearest.displacement(A).toarray(), nearest.neighbourhoods()
    np.testing.assert_allclose(fitted.set_params(pool=W).displacement(A).toarray(), moves, atol=1e-12)
    assert (fitted.set_params(pool=None).neighbourhoods() != sp.eye_array(150)).nnz == 0


def test_samples_without_mass_are_nobodys_neighbours() -> None:
    masses = np.r_[np.zeros(50), np.ones(100)]
    W = MongeMap(L1(0.6), pool=6).fit(A, B, masses).neighbourhoods()
    assert W[:, :50].nnz == 0
    np.testing.assert_allclose(W.sum(axis=1), 1, rtol=1e-12)


def test_look_alikes_with_two_fates_keep_apart() -> None:
    """Neighbours share a destination: averages over those that look alike end in the middle between two targets."""
    rng, fate = np.random.default_rng(0), np.repeat([-1.0, 1.0], 60)
    X = rng.normal(size=(120, 5)) * [0.02, 1, 1, 1, 1] + np.outer(fate, [0.1, 0, 0, 0, 0])
    Y = rng.normal(size=(120, 5)) * [0.1, 1, 1, 1, 1] + np.outer(fate, [10.0, 0, 0, 0, 0])
    m = MongeMap(L1(0.3), epsilon=0.5, epsilon_scale="absolute", tol=1e-3, pool=15).fit(X, Y)

    def apart() -> np.ndarray:
        return np.abs(np.abs(m.transform(X)[:, 0]) - 10) < 2.5

    assert apart().all()
    assert np.mean(np.sign(m.transform(X)[:, 0]) == fate) > 0.9
    alike = kneighbors_graph(X[:, 1:], 15, include_self=True) / 15  # the control: it can fail
    m.set_params(pool=alike)
    assert apart().mean() < 0.2


def test_new_samples_have_the_neighbourhood_of_the_nearest_fitted_one(fitted: MongeMap) -> None:
    order = np.random.default_rng(0).permutation(150)[:40]
    near = A[order] + 1e-9
    for pool in (np.arange(150) % 4, random_operator(150)):
        moves = fitted.set_params(pool=pool).displacement(A)
        assert as_bytes(fitted.displacement(near)) == as_bytes(moves[order])
    moves = fitted.set_params(pool=6).displacement(A)[order].toarray()
    np.testing.assert_allclose(fitted.displacement(near).toarray(), moves, atol=1e-6)


def test_auto_chooses_a_valid_number_and_tells_it(fitted: MongeMap) -> None:
    moves, W = fitted.set_params(pool="auto").displacement(A), fitted.neighbourhoods()
    np.testing.assert_allclose(W.sum(axis=1), 1, rtol=1e-12)
    assert (W.diagonal() > 0).all()
    assert np.isfinite(moves.data).all()
    assert moves.nnz
    assert 1 < fitted.describe_neighbourhoods().largest == np.diff(W.indptr).max() <= 150
    np.testing.assert_allclose(fitted.set_params(pool=W).displacement(A).toarray(), moves.toarray(), atol=1e-12)


# -- the same, whatever the container, the order and the machine ------------------------------------------------


@one_of_each
@pytest.mark.parametrize("pool", [5, "labels"])
def test_transform_adds_the_displacement_in_every_container(cost: Any, pool: Any) -> None:
    anndata = pytest.importorskip("anndata")
    names, labels = list("abcdefgh"), np.arange(150) % 3
    containers = {
        "array": np.asarray,
        "csr_array": sp.csr_array,
        "csr_matrix": sp.csr_matrix,
        "frame": lambda rows: pd.DataFrame(rows, columns=names, index=[f"s{i}" for i in range(len(rows))]),
        "AnnData": lambda rows: anndata.AnnData(sp.csr_matrix(rows), var=pd.DataFrame(index=names)),
    }
    pool = labels if pool == "labels" else pool
    wanted = MongeMap(cost, pool=pool).fit(A, B).displacement(A).toarray()
    for wrap in containers.values():
        raw = wrap(A)
        m = MongeMap(cost, pool=pool).fit(raw, wrap(B))
        moves, moved = m.displacement(raw), m.transform(raw)
        assert type(moved) is type(raw)
        np.testing.assert_allclose(dense(getattr(moved, "X", moved)), A + moves.toarray(), atol=1e-14)
        np.testing.assert_allclose(moves.toarray(), wanted, atol=1e-10)


@costs
def test_float32_is_close_to_float64(cost: Any) -> None:
    wide = MongeMap(cost, pool=5).fit(A, B).displacement(A)
    moves = MongeMap(cost, pool=5).fit(A.astype("f4"), B.astype("f4")).displacement(A.astype("f4"))
    assert moves.dtype == np.float32
    np.testing.assert_allclose(moves.toarray(), wide.toarray(), atol=2e-4)


@one_of_each
@forms
@pytest.mark.parametrize("pool", [7, np.arange(150) % 4], ids=["number", "labels"])
def test_rows_move_alike_alone_and_together(cost: Any, wrap: Any, pool: Any) -> None:
    m = MongeMap(cost, relax=0.5, pool=pool).fit(wrap(A), wrap(B))
    for rows in (A, C):
        together = m.displacement(wrap(rows))
        alone = sp.csr_array(sp.vstack([m.displacement(wrap(rows[[i]])) for i in range(0, rows.shape[0], 7)]))
        assert as_bytes(alone) == as_bytes(together[::7])


@costs
def test_the_number_of_threads_changes_no_bit(cost: Any) -> None:
    one, two = (MongeMap(cost, n_jobs=n, ties="occam", relax=0.5, pool=6).fit(A, B) for n in (1, 2))
    assert as_bytes(one.displacement(A)) == as_bytes(two.displacement(A))
    assert as_bytes(one.displacement(C)) == as_bytes(two.displacement(C))


def test_changing_the_pool_needs_no_fit(fitted: MongeMap, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("fitted again")

    plain = as_bytes(MongeMap(L1(0.6)).fit(A, B).displacement(A))
    pooled = as_bytes(MongeMap(L1(0.6), pool=9).fit(A, B).displacement(A))
    monkeypatch.setattr("occamap.maps.monge_map.solve_here", refuse)
    for pool, wanted in ((None, plain), (9, pooled), (None, plain)):
        assert as_bytes(fitted.set_params(pool=pool).displacement(A)) == wanted


@costs
def test_the_map_back_is_that_of_the_swapped_samples(cost: Any) -> None:
    m = MongeMap(cost, tol=1e-10, max_iter=20_000, pool=5).fit(A, B)
    back = MongeMap(cost, tol=1e-10, max_iter=20_000, pool=5).fit(B, A)
    assert np.abs(m.inverse_transform(B) - B).max() > 0.1
    np.testing.assert_allclose(m.inverse_transform(B), back.transform(B), atol=1e-6)
    np.testing.assert_allclose(m.inverse_transform(C), back.transform(C), atol=1e-6)


@pytest.mark.parametrize("pool", [np.arange(150) % 3, random_operator(150)], ids=["labels", "matrix"])
def test_the_map_back_refuses_what_is_over_the_source(fitted: MongeMap, pool: Any) -> None:
    with pytest.raises(InputError, match="pool must be None, 'auto' or a number for inverse_transform") as caught:
        fitted.set_params(pool=pool).inverse_transform(B)
    assert "\n" not in str(caught.value)


# -- memory, files, clusters -----------------------------------------------------------------------------------


@forms
@pytest.mark.parametrize("cost", [L1(0.1), STVS(0.1)])
def test_features_in_chunks_give_the_same_bits(cost: Any, wrap: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = (wrap(reals(n, n, d=300)) for n in (100, 80))
    m = MongeMap(cost, ties="occam", relax=0.5, pool=6).fit(source, target)
    whole, seen = as_bytes(m.displacement(source)), []
    chunk = pooling._Pooled._chunk
    monkeypatch.setattr(pooling._Pooled, "_chunk", lambda self, *rest: seen.append(1) or chunk(self, *rest))
    for room in (1, 2**16):
        monkeypatch.setattr(pooling, "ROOM", room)
        assert as_bytes(m.displacement(source)) == whole
        assert len(seen) > 3
        seen.clear()
    m.set_params(max_memory=resident() + 50_000_000)
    assert as_bytes(m.displacement(source)) == whole


@one_of_each
def test_a_budget_that_is_too_small_is_told_with_a_number(cost: Any) -> None:
    m = MongeMap(cost, pool=6).fit(A, B).set_params(max_memory="1MB")
    with pytest.raises(MemoryBudgetError, match=r"max_memory at least [\d.]+ [MG]B; it is 1 MB"):
        m.displacement(A)


@pytest.mark.parametrize(
    ("cost", "n", "d"), [(L1(0.1), 3000, 64), (KOverlap(0.8, k=3), 600, 2000)], ids=["by feature", "by row"]
)
def test_the_budget_that_the_error_names_is_enough(
    cost: Any, n: int, d: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step of the work may ask for more than the one before, and there are few."""
    source, target = reals(n, 1, d), reals(20, 2, d)
    m, held = MongeMap(cost, pool=6, n_jobs=1).fit(source, target), 10**8  # bytes, whatever earlier tests left
    wanted, refusals = as_bytes(m.displacement(source)), []
    monkeypatch.setattr("occamap._memory.resident", lambda: held)
    m._lent = ()  # nothing of what is held is the caller's
    m.set_params(max_memory=held)
    for _ in range(6):
        try:
            found = as_bytes(m.displacement(source))
            break
        except MemoryBudgetError as error:
            refusals.append(str(error))
            m.set_params(max_memory=re.findall(r"at least ([\d.]+ [MG]B)", refusals[-1])[0])
    assert found == wanted
    assert any(f"pooling the field of {n} samples" in text for text in refusals)


POOLS = {
    "number": 6,
    "numpy number": np.int64(6),
    "auto": "auto",
    "text": np.array(["a", "ü b", ""])[np.arange(150) % 3],
    "numbers": np.arange(150) % 4,
    "frame column": pd.Series(np.arange(150) % 4, dtype="category"),
    "objects": np.array(["a", "b", "c"], dtype=object)[np.arange(150) % 3],
    "sparse": random_operator(150),
    "dense": random_operator(150).toarray(),
}


@pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS)
@pytest.mark.parametrize("used", [False, True], ids=["fresh", "used"])
def test_a_file_keeps_the_pool(pool: Any, used: bool, tmp_path: Path) -> None:
    m = MongeMap(L1(0.6), relax=0.5, pool=pool).fit(sp.csr_array(A), sp.csr_array(B))
    if used:
        m.displacement(sp.csr_array(C))
    m.save(tmp_path / "m")
    twin = load(tmp_path / "m")
    if sp.issparse(twin.pool):
        np.testing.assert_allclose(twin.pool.toarray(), dense(pool), rtol=1e-14)
    else:
        assert np.array_equal(twin.pool, pool)
    for rows in (A, C):
        assert as_bytes(twin.displacement(sp.csr_array(rows))) == as_bytes(m.displacement(sp.csr_array(rows)))
    twin.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "m").read_bytes()
    plain = twin.set_params(pool=None).displacement(A)
    assert as_bytes(plain) == as_bytes(m.set_params(pool=None).displacement(A))


def test_rows_that_nearly_sum_to_one_are_divided_in_their_order(tmp_path: Path) -> None:
    """So that a map moves samples by the same bits when it is read from its file."""
    W = random_operator(70) * (1 + 5e-7 * np.random.default_rng(1).random((70, 1)))
    m = MongeMap(STVS(0.6), pool=sp.csr_array(W)).fit(X, Y)
    m.save(tmp_path / "map.occamap")
    assert as_bytes(load(tmp_path / "map.occamap").displacement(X)) == as_bytes(m.displacement(X))


def test_a_matrix_with_entries_in_parts_stays_as_it_is() -> None:
    W = random_operator(70)
    order = np.concatenate([row[::-1] for row in np.split(np.arange(W.nnz), W.indptr[1:-1])])
    data, indices = np.repeat(W.data[order], 2) / 2, np.repeat(W.indices[order], 2)
    parts = sp.csr_array((data, indices, 2 * W.indptr), shape=W.shape)
    before = [part.copy() for part in (parts.data, parts.indices, parts.indptr)]
    for part in (parts.data, parts.indices, parts.indptr):
        part.setflags(write=False)
    m = MongeMap(L1(0.6), pool=parts).fit(X, Y)
    np.testing.assert_allclose(m.displacement(X).toarray(), m.set_params(pool=W).displacement(X).toarray(), atol=1e-12)
    for part, was in zip((parts.data, parts.indices, parts.indptr), before, strict=True):
        np.testing.assert_array_equal(part, was)


def test_files_of_the_first_version_are_read() -> None:
    """Written by occamap 0.1.0, as what it displaced: L1(0.4), ε = 0.2 × mean, ties occam, relax 0.5, in CSR."""
    m = load(Path(__file__).with_name("data") / "map-0.1.0.occamap")
    assert (m.pool, m.match, m.debias, m.ties, m.relax) == (None, None, False, "occam", 0.5)
    rows = np.random.default_rng(4).poisson(0.8, size=(9, 7)) * 0.5
    wanted = np.zeros((9, 7))
    wanted[tuple(np.transpose(FIRST_PLACES))] = FIRST_MOVES
    moves = m.displacement(rows).toarray()
    np.testing.assert_array_equal(moves != 0, wanted != 0)
    np.testing.assert_allclose(moves, wanted, atol=1e-8)
    assert m.set_params(pool=5).displacement(rows).nnz


FIRST_PLACES = [(0, 0), (0, 2), (0, 3), (0, 6), (1, 2), (1, 3), (1, 6), (2, 0), (2, 2), (2, 5), (2, 6), (3, 0), (3, 2)]
FIRST_PLACES += [(3, 6), (4, 2), (4, 4), (5, 2), (6, 2), (6, 6), (7, 2), (7, 5), (7, 6), (8, 2), (8, 4)]
FIRST_MOVES = [-0.97155563, 1.4075858, -0.4927368, -0.54251744, 1.43036585, -0.60435651, -0.35350948, -0.6180525]
FIRST_MOVES += [1.0603333, 0.36453342, -0.30940105, -0.15547272, 1.88798579, -0.22445682, 1.64315805, -0.51604341]
FIRST_MOVES += [1.4110927, 1.86544846, -0.326909, 1.43150776, 0.24126925, 0.20553291, 1.83371389, -0.77178677]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    pytest.importorskip("distributed")
    with Cluster(tmp_path_factory.mktemp("cluster"), workers=2) as cluster, cluster.client() as connected:
        yield connected


@pytest.mark.parametrize("pool", [6, np.arange(150) % 4, random_operator(150)], ids=["number", "labels", "matrix"])
def test_dask_arrays_and_clusters_give_the_same_bits(client: Any, pool: Any) -> None:
    da = pytest.importorskip("dask.array")
    here = MongeMap(L1(0.6), pool=pool).fit(A, B)
    lazy, wanted = da.from_array(A, chunks=(40, D)), here.displacement(A)
    assert as_bytes(sp.csr_array(here.displacement(lazy).compute(scheduler="sync"))) == as_bytes(wanted)
    np.testing.assert_array_equal(here.transform(lazy).compute(scheduler="sync"), here.transform(A))
    assert as_bytes(here.displacement(A, client=client)) == as_bytes(wanted)
    assert as_bytes(here.displacement(C, client=client)) == as_bytes(here.displacement(C))
    with client.as_current():
        there = MongeMap(L1(0.6), pool=pool).fit(lazy, B, client=client)
        assert as_bytes(there.displacement(C)) == as_bytes(here.displacement(C))
        assert as_bytes(sp.csr_array(there.displacement(lazy).compute())) == as_bytes(wanted)


# -- wrong input -----------------------------------------------------------------------------------------------


half = np.full((70, 70), 1 / 70)
WRONG = {
    "few labels": np.arange(69),
    "many labels": list(range(71)),
    "missing number": np.r_[np.nan, np.zeros(69)],
    "missing label": np.array([None, *"a" * 69], dtype=object),
    "missing category": pd.Series(pd.Categorical([None, *"a" * 69])),
    "negative": np.eye(70) + np.outer(np.ones(70), np.r_[1, -1, np.zeros(68)]),
    "not stochastic": np.ones((70, 70)),
    "empty row": sp.csr_array(([1.0], ([0], [0])), shape=(70, 70)),
    "not finite": np.where(np.eye(70) > 0, np.nan, half),
    "not square": half[:, :69] * 70 / 69,
    "small matrix": np.eye(69),
    "three dimensions": np.ones((70, 70, 1)),
    "zero": 0,
    "below zero": -1,
    "share": 2.5,
    "text": "x",
    "bool": True,
    "dict": {"a": 1},
}


@pytest.mark.parametrize("pool", WRONG.values(), ids=WRONG)
def test_wrong_pools_are_refused_by_name(pool: Any) -> None:
    with pytest.raises(InputError, match=r"^pool must "):
        MongeMap(L1(0.6), pool=pool).fit(X, Y).displacement(X)


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        (L1(1e12), "gamma times the weight of a feature, with pool, must be at most 1e8 times the largest entry"),
        (L1(1.0, [1e12, *[1.0] * (D - 1)]), "take a smaller one, or pool=None, whose moves stay exact"),
        (Subspace(1e12, BASIS), "gamma must be at most 1e8 for Subspace with pool"),
    ],
)
def test_a_penalty_that_leaves_no_digits_for_fields_is_refused(cost: Any, message: str) -> None:
    m = MongeMap(cost, pool=5).fit(X, Y)
    with pytest.raises(InputError, match=re.escape(message)):
        m.displacement(X)
    assert np.isfinite(m.set_params(pool=None).displacement(X).data).all()


def test_a_group_without_mass_is_refused() -> None:
    with pytest.raises(InputError, match="pool must have mass in every group of its labels; that of 'b'"):
        MongeMap(pool=LABELS).fit(X, Y, 1.0 * (LABELS != "b")).displacement(X)


def test_debias_and_pool_exclude_each_other() -> None:
    with pytest.raises(InputError, match="debias must be False with pool"):
        MongeMap(pool=5, debias=True).fit(X, Y)


# -- selection and evaluation ----------------------------------------------------------------------------------


def test_cross_validation_lists_the_pool_and_keeps_it() -> None:
    shifted = B + 4.0 * (np.arange(D) < 2)
    cv = MongeMapCV(L1, gammas=[0.2, 1.0], pool=[None, 5], epsilon=0.1, relax=0.0, cv=2).fit(A, shifted)
    assert sorted(cv.results_["pool"].tolist(), key=str) == [5, 5, None, None]
    assert np.isfinite(cv.results_["mean_divergence"]).all()
    by_pool = [cv.results_["mean_density"][cv.results_["pool"] == pool] for pool in (None, 5)]
    assert (by_pool[1] < by_pool[0]).all()
    assert cv.best_map_.pool == cv.best_params_["pool"] == cv.results_["pool"][cv.best_index_]


@pytest.mark.parametrize("pool", [np.arange(150) % 3, random_operator(150), [None, None], True, 2.5, "x", []])
def test_cross_validation_refuses_other_pools(pool: Any) -> None:
    with pytest.raises(InputError, match="pool must be"):
        MongeMapCV(L1, gammas=[0.2], pool=pool).fit(A, B)


def test_a_path_of_pooled_maps_has_their_density() -> None:
    path = oc.gamma_path(A, B, gammas=[0.2, 1.0], pool=5, tol=1e-8)
    for gamma, fitted, density in zip(path.gammas, path.maps, path.densities, strict=True):
        assert fitted.pool == 5
        moves = MongeMap(L1(float(gamma)), pool=5, tol=1e-8).fit(A, B).displacement(A)
        np.testing.assert_allclose(fitted.displacement(A).toarray(), moves.toarray(), atol=1e-6)
        assert density == pytest.approx(moves.nnz / A.size, abs=0.01)


def test_an_evaluation_may_pool() -> None:
    pytest.importorskip("anndata")
    assert inspect.signature(oc.evaluate).parameters["pool"].default is None
    adata = oc.datasets.simulate_perturbation(80, 70, 100, effect=2.0, random_state=1).to_anndata()
    asked = {"groupby": "condition", "control": "control", "costs": ["l1"], "gammas": [0.5], "splits": 2}
    plain, pooled = (
        oc.evaluate(adata, **asked, pool=pool, components=5, markers=10, verbose=False) for pool in (None, 5)
    )
    rows = plain["method"] == "l1"
    assert (pooled.loc[rows, "density"] < plain.loc[rows, "density"]).all()
    assert np.isfinite(pooled.loc[rows, "divergence"]).all()
    pd.testing.assert_frame_equal(pooled[~rows].filter(like="divergence"), plain[~rows].filter(like="divergence"))
    with pytest.raises(InputError, match="pool must be"):
        oc.evaluate(adata, **asked, pool=[None, 5], verbose=False)
