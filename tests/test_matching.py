"""Maps that are matched on coordinates and read in all features: who is compared with whom, and what moves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.linalg import subspace_angles
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.decomposition import PCA, TruncatedSVD

from occamap import L1, STVS, GroupLasso, KOverlap, MongeMap, SqL2, Subspace, load
from occamap._validate import Samples, check_samples
from occamap._workers import Workers
from occamap.errors import InputError
from occamap.maps.components import Components, principal_components
from tests.cluster import Cluster

D = 12
BASIS = np.linalg.qr(np.random.default_rng(0).normal(size=(D, 2)))[0].T
COSTS = {
    "sql2": SqL2(),
    "l1": L1(0.6),
    "frozen": L1(0.6, [np.inf, 0, *[1, 2] * 5]),
    "stvs": STVS(0.6),
    "overlap": KOverlap(0.8, k=3),
    "groups": GroupLasso(0.5, [[0, 1, 2], [4, 5]], l1_ratio=0.3),
    "subspace": Subspace(1.5, BASIS),
}
FORMS = {"dense": np.asarray, "csr": sp.csr_array}

costs = pytest.mark.parametrize("cost", COSTS.values(), ids=COSTS)
forms = pytest.mark.parametrize("wrap", FORMS.values(), ids=FORMS)


def reals(n: int, seed: int) -> np.ndarray:
    """Half of the entries 0, and features of very different spread, so that components are well separated."""
    rng = np.random.default_rng(seed)
    return np.where(rng.random((n, D)) < 0.5, rng.gamma(2.0, size=(n, D)), 0.0) * 1.4 ** -np.arange(D)


X, Y, Z = reals(150, 1), reals(90, 2) + 1.0 * (np.arange(D) == 4), reals(80, 3)


def as_bytes(moves: sp.csr_array) -> tuple[bytes, ...]:
    return moves.data.tobytes(), moves.indices.tobytes(), moves.indptr.tobytes()


def components(count: int, *rows: Any, threads: int = 1) -> Components:
    with Workers(threads) as workers:
        return principal_components([check_samples(part, "X") for part in rows], count, workers)


def coordinates(found: Components, rows: Any, threads: int = 1) -> np.ndarray:
    with Workers(threads) as workers:
        return found(check_samples(rows, "X"), workers)


def by_definition(cost: Any, rows: np.ndarray, P: np.ndarray) -> np.ndarray:
    """−prox(Σ_j p_j ∇h(x − y_j)) of each row, frozen features aside."""
    free = ~cost._frozen(D)
    return np.array([-cost.prox(p @ cost.grad((x - Y) * free)) for x, p in zip(rows, P, strict=True)])


# -- what is matched, and what is read -------------------------------------------------------------------------


@forms
@pytest.mark.parametrize("reach", [None, 2.0])
def test_the_match_is_that_of_the_coordinates(wrap: Any, reach: Any) -> None:
    a = np.random.default_rng(0).random(150)
    m = MongeMap(L1(0.6), match=4, reach=reach).fit(wrap(X), wrap(Y), a)
    found = components(4, wrap(X), wrap(Y))
    U, V, W = (coordinates(found, wrap(rows)) for rows in (X, Y, Z))
    plain = MongeMap(SqL2(), reach=reach).fit(U, V, a)
    assert m.epsilon_ == pytest.approx(plain.epsilon_, rel=1e-12)
    np.testing.assert_allclose(m.f_, plain.f_, atol=1e-10)
    np.testing.assert_allclose(m.g_, plain.g_, atol=1e-10)
    np.testing.assert_allclose(m.plan(), plain.plan(), rtol=1e-8, atol=1e-15)
    np.testing.assert_allclose(m.weights(wrap(X)), plain.weights(U), atol=1e-10)
    np.testing.assert_allclose(m.weights(wrap(Z)), plain.weights(W), atol=1e-10)
    np.testing.assert_allclose(m.potential(wrap(Z)), plain.potential(W), atol=1e-10)
    pair = MongeMap(L1(0.6), match=(U, V), reach=reach).fit(wrap(X), wrap(Y), a)
    np.testing.assert_allclose(pair.weights(wrap(X)), m.weights(wrap(X)), atol=1e-10)
    np.testing.assert_allclose(pair.displacement(wrap(X)).toarray(), m.displacement(wrap(X)).toarray(), atol=1e-8)


@costs
@forms
def test_displacements_are_read_in_all_features(cost: Any, wrap: Any) -> None:
    """By the definition of the paper, with the weights of the match; of fitted samples and of others."""
    m = MongeMap(cost, match=3).fit(wrap(X), wrap(Y))
    for rows in (X, Z):
        moves = m.displacement(wrap(rows)).toarray()
        np.testing.assert_allclose(moves, by_definition(cost, rows, m.weights(wrap(rows))), atol=1e-10)
    other = MongeMap(cost).fit(wrap(X), wrap(Y)).displacement(wrap(X)).toarray()
    assert np.abs(m.displacement(wrap(X)).toarray() - other).max() > 0.1


def test_all_components_are_all_features_under_sql2() -> None:
    m, plain = MongeMap(L1(0.6), match=D).fit(X, Y), MongeMap(SqL2()).fit(X, Y)
    np.testing.assert_allclose(m.weights(X), plain.weights(X), atol=1e-6)
    np.testing.assert_allclose(m.weights(Z), plain.weights(Z), atol=1e-6)
    np.testing.assert_allclose(m.displacement(X).toarray(), by_definition(L1(0.6), X, plain.weights(X)), atol=1e-5)
    free = MongeMap(SqL2(), match=D).fit(X, Y)
    np.testing.assert_allclose(free.transform(Z), plain.transform(Z), atol=1e-5)
    back = plain.inverse_transform(Y)
    np.testing.assert_allclose(free.inverse_transform(Y), back, atol=1e-5)


def test_relax_and_ties_are_read_after_the_match() -> None:
    m = MongeMap(L1(0.6), match=3).fit(X, Y)
    plain, shift = m.displacement(X).toarray(), m.weights(X) @ Y - X
    relaxed = m.set_params(relax=1.0).displacement(X).toarray()
    np.testing.assert_allclose(relaxed, np.where(plain != 0, shift, 0), atol=1e-12)
    occam = m.set_params(relax=0.0, ties="occam").displacement(X).toarray()
    assert np.all(np.abs(occam) <= np.abs(plain) + 1e-12)
    assert np.abs(occam).sum() < np.abs(plain).sum()


def test_frozen_features_have_no_part_in_the_match() -> None:
    cost, first = L1(0.6, [np.inf, *[1.0] * (D - 1)]), 1.0 * (np.arange(D) == 0)
    m = MongeMap(cost, match=4).fit(X, Y)
    other = MongeMap(cost, match=4).fit(X * (1 + 8 * first), Y + 9 * first)
    np.testing.assert_array_equal(other.weights(X * (1 + 8 * first)), m.weights(X))
    assert not m.displacement(X)[:, [0]].nnz
    loose = MongeMap(L1(0.6), match=4)
    assert np.abs(loose.fit(X, Y).weights(X) - loose.fit(X, Y + 9 * first).weights(X)).max() > 0.01


@pytest.mark.parametrize("match", [4, (X[:, :3], Y[:, :3])], ids=["number", "pair"])
def test_matched_maps_are_pooled_too(match: Any) -> None:
    labels = np.arange(150) % 3
    m = MongeMap(SqL2(), match=match, pool=labels).fit(X, Y)
    shifts = m.weights(X) @ Y - X
    wanted = np.array([shifts[labels == label].mean(axis=0) for label in labels])
    np.testing.assert_allclose(m.displacement(X).toarray(), wanted, atol=1e-10)
    W = m.set_params(pool=7).neighbourhoods()
    np.testing.assert_allclose(m.displacement(X).toarray(), W @ shifts, atol=1e-10)


# -- components ------------------------------------------------------------------------------------------------


def shrinkage(rows: Any, count: int) -> Any:
    """√(1 − s_{k+1}²/s_j²) of the first k singular values, by which components are shrunk."""
    values = np.linalg.svd(rows - rows.mean(axis=0), compute_uv=False)
    return np.sqrt(1 - (values[count] / values[:count]) ** 2)


@forms
@pytest.mark.parametrize("count", [1, 4])
def test_components_are_those_of_scikit_learn(wrap: Any, count: int) -> None:
    found, both = components(count, wrap(X), wrap(Y)), np.vstack([X, Y])
    exact, shrunk = PCA(count, svd_solver="full").fit(both), shrinkage(both, count)
    np.testing.assert_allclose(found.axes.T @ found.axes, np.diag(shrunk**2), atol=1e-5)
    assert np.max(subspace_angles(found.axes, exact.components_.T)) < 1e-6
    signs = np.sign(np.sum(found.axes * exact.components_.T, axis=0))
    for rows in (X, Y, Z):
        np.testing.assert_allclose(signs * coordinates(found, wrap(rows)), shrunk * exact.transform(rows), atol=1e-5)


def test_wide_samples_have_the_leading_components() -> None:
    """Far fewer samples than features, and a spectrum that falls."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(80, 20)) * 2.0 ** -np.arange(20) @ rng.normal(size=(20, 700))
    rows += 1e-4 * rng.normal(size=rows.shape) + 3.0
    found, exact = components(5, rows[:50], rows[50:]), PCA(5, svd_solver="full").fit(rows)
    assert np.max(subspace_angles(found.axes, exact.components_.T)) < 1e-4
    theirs = shrinkage(rows, 5) * np.abs(exact.transform(rows))
    np.testing.assert_allclose(np.abs(coordinates(found, rows)), theirs, atol=1e-2)


def test_all_components_of_samples_are_not_shrunk() -> None:
    """Shrinkage takes the first component that is left out, and here there is none."""
    both = np.vstack([X, Y])
    found = components(D, X, Y)
    np.testing.assert_allclose(found.axes.T @ found.axes, np.eye(D), atol=1e-12)
    centred = both - both.mean(axis=0)
    np.testing.assert_allclose(cdist(coordinates(found, both), coordinates(found, both)), cdist(centred, centred))


@pytest.mark.parametrize("count", [1, 5])
def test_directions_in_which_nothing_varies_are_left_out(count: int) -> None:
    line = np.outer(np.arange(30.0), np.ones(D))
    assert components(count, line[:20], line[20:]).count == 1
    assert components(count, np.ones((20, D)), np.ones((10, D))).count == 1
    assert MongeMap(match=count).fit(np.ones((20, D)), np.ones((10, D))).displacement(np.ones((2, D))).nnz == 0


def test_large_samples_that_vary_in_one_feature_have_one_component() -> None:
    rows = 1e20 * np.outer(np.arange(12.0), np.eye(6)[0])
    with np.errstate(all="raise"):
        found = components(3, rows)
    np.testing.assert_array_equal(found.axes, np.eye(6)[:, :1])


def test_sparse_samples_are_never_made_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, z = map(sp.csr_array, (X, Y, Z))
    plain = as_bytes(MongeMap(L1(0.6), match=4).fit(x, y).displacement(z))

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("made dense")

    monkeypatch.setattr(Samples, "dense", refuse)
    for kind in (sp.csr_array, sp.csc_array, sp.coo_array, sp.csr_matrix):
        monkeypatch.setattr(kind, "toarray", refuse)
        monkeypatch.setattr(kind, "todense", refuse)
    found = components(4, x, y)
    assert found.count == 4
    assert coordinates(found, z).shape == (80, 4)
    assert as_bytes(MongeMap(L1(0.6), match=4).fit(x, y).displacement(z)) == plain


@forms
def test_the_same_bits_twice_and_with_more_threads(wrap: Any) -> None:
    axes = [components(4, wrap(X), wrap(Y), threads=threads).axes.tobytes() for threads in (1, 1, 2)]
    assert len(set(axes)) == 1
    moves = [MongeMap(L1(0.6), match=4, n_jobs=n).fit(wrap(X), wrap(Y)).displacement(wrap(Z)) for n in (1, 1, 2)]
    assert len({as_bytes(found) for found in moves}) == 1


def test_float32_is_close_to_float64() -> None:
    wide = MongeMap(L1(0.6), match=4).fit(X, Y)
    narrow = MongeMap(L1(0.6), match=4).fit(X.astype("f4"), Y.astype("f4"))
    np.testing.assert_allclose(narrow.weights(Z.astype("f4")), wide.weights(Z), atol=1e-4)
    moves = narrow.displacement(Z.astype("f4"))
    assert moves.dtype == np.float32
    np.testing.assert_allclose(moves.toarray(), wide.displacement(Z).toarray(), atol=1e-3)


# -- other samples, containers, files, clusters ------------------------------------------------------------------


@forms
@pytest.mark.parametrize("pool", [None, 6])
def test_rows_move_alike_alone_and_together(wrap: Any, pool: Any) -> None:
    m = MongeMap(L1(0.6), match=4, pool=pool).fit(wrap(X), wrap(Y))
    together = m.displacement(wrap(Z))
    alone = sp.csr_array(sp.vstack([m.displacement(wrap(Z[[i]])) for i in range(0, 80, 5)]))
    assert as_bytes(alone) == as_bytes(together[::5])


@forms
def test_fitted_samples_move_alike_among_others(wrap: Any) -> None:
    m = MongeMap(L1(0.6), match=4).fit(wrap(X), wrap(Y))
    assert as_bytes(m.displacement(wrap(np.vstack([X[:20], Z])))[:20]) == as_bytes(m.displacement(wrap(X))[:20])


def test_containers_agree() -> None:
    anndata = pytest.importorskip("anndata")
    names = [f"g{t}" for t in range(D)]
    wanted = MongeMap(L1(0.6), match=4).fit(X, Y).transform(Z)
    for wrap in (
        sp.csr_matrix,
        lambda rows: pd.DataFrame(rows, columns=names),
        lambda rows: anndata.AnnData(sp.csr_matrix(rows), var=pd.DataFrame(index=names)),
    ):
        moved = MongeMap(L1(0.6), match=4).fit(wrap(X), wrap(Y)).transform(wrap(Z))
        assert type(moved) is type(wrap(Z))
        rows = getattr(moved, "X", moved)
        np.testing.assert_allclose(rows.toarray() if sp.issparse(rows) else rows, wanted, atol=1e-9)


@forms
def test_a_transformer_gives_the_coordinates(wrap: Any, tmp_path: Path) -> None:
    svd = TruncatedSVD(3, algorithm="arpack", random_state=0)
    m = MongeMap(L1(0.6), match=svd).fit(wrap(X), wrap(Y))
    exact = clone(svd).fit(np.vstack([X, Y]))
    plain = MongeMap(SqL2()).fit(exact.transform(X), exact.transform(Y))
    np.testing.assert_allclose(m.weights(wrap(Z)), plain.weights(exact.transform(Z)), atol=1e-6)
    wanted = by_definition(L1(0.6), Z, m.weights(wrap(Z)))
    np.testing.assert_allclose(m.displacement(wrap(Z)).toarray(), wanted, atol=1e-9)
    with pytest.raises(InputError, match=r"match must be .* to be saved.*; got TruncatedSVD") as caught:
        m.save(tmp_path / "m")
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_two_maps_may_share_a_transformer() -> None:
    """A parameter is left as it was, as in scikit-learn: a later fit does not change an earlier map."""
    svd = TruncatedSVD(3, algorithm="arpack", random_state=0)
    first = MongeMap(L1(0.6), match=svd).fit(X, Y)
    before = first.weights(Z)
    MongeMap(L1(0.6), match=svd).fit(X[:, ::-1], Y[:, ::-1])
    np.testing.assert_array_equal(first.weights(Z), before)


def test_equal_samples_with_coordinates_of_their_own(tmp_path: Path) -> None:
    """Each side has its coordinates, in the fit, in both directions of the map, and from a file."""
    Y = X.copy()
    U, V = np.random.default_rng(5).normal(size=(2, 150, 3))
    m, plain = MongeMap(SqL2(), match=(U, V)).fit(X, Y), MongeMap(SqL2()).fit(U, V)
    m.save(tmp_path / "map.occamap")
    for one in (m, load(tmp_path / "map.occamap")):
        np.testing.assert_array_equal(one.weights(X), plain.weights(U))
        np.testing.assert_allclose(one.potential(Y, side="target"), plain.potential(V, side="target"), rtol=1e-12)
        back = one.plan() / one.plan().sum(axis=0)
        np.testing.assert_allclose(one.inverse_transform(Y), back.T @ X, atol=1e-3)


def test_a_pair_moves_fitted_samples_alone(tmp_path: Path) -> None:
    U, V = X[:, :3], Y[:, :3]
    m = MongeMap(L1(0.6), match=(U, V)).fit(X, Y)
    np.testing.assert_allclose(m.weights(X), MongeMap(SqL2()).fit(U, V).weights(U), atol=1e-12)
    moves = m.displacement(X)
    np.testing.assert_allclose(moves.toarray(), by_definition(L1(0.6), X, m.weights(X)), atol=1e-10)
    assert np.isfinite(m.inverse_transform(Y)).all()
    for use in (m.displacement, m.transform, m.weights, m.potential):
        with pytest.raises(InputError, match="match was given as coordinates of the fitted samples") as caught:
            use(Z)
        assert "\n" not in str(caught.value)
    m.save(tmp_path / "m")
    twin = load(tmp_path / "m")
    np.testing.assert_array_equal(np.asarray(twin.match[0]), U)
    assert as_bytes(twin.displacement(X)) == as_bytes(moves)
    with pytest.raises(InputError, match="match was given as coordinates"):
        twin.displacement(Z)


@forms
@pytest.mark.parametrize("pool", [None, 6, "auto"])
def test_a_file_keeps_the_match(wrap: Any, pool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    m = MongeMap(L1(0.6), match=4, pool=pool).fit(wrap(X), wrap(Y))
    m.save(tmp_path / "m")

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("learned again")

    for place in ("matching", "neighbourhoods"):
        monkeypatch.setattr(f"occamap.maps.{place}.principal_components", refuse)
    twin = load(tmp_path / "m")
    assert (twin.match, twin.pool) == (4, pool)
    np.testing.assert_array_equal(twin.weights(wrap(Z)), m.weights(wrap(Z)))
    np.testing.assert_array_equal(twin.plan(), m.plan())
    for rows in (X, Z):
        assert as_bytes(twin.displacement(wrap(rows))) == as_bytes(m.displacement(wrap(rows)))
    twin.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "m").read_bytes()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    pytest.importorskip("distributed")
    with Cluster(tmp_path_factory.mktemp("cluster"), workers=2) as cluster, cluster.client() as connected:
        yield connected


@forms
@pytest.mark.parametrize("pool", [None, 6])
def test_a_cluster_gives_the_same_bits(client: Any, wrap: Any, pool: Any) -> None:
    here = MongeMap(L1(0.6), match=4, pool=pool).fit(wrap(X), wrap(Y))
    there = MongeMap(L1(0.6), match=4, pool=pool).fit(wrap(X), wrap(Y), client=client)
    np.testing.assert_array_equal(there.f_, here.f_)
    np.testing.assert_array_equal(there.g_, here.g_)
    assert as_bytes(there.displacement(wrap(Z))) == as_bytes(here.displacement(wrap(Z)))
    assert as_bytes(here.displacement(wrap(Z), client=client)) == as_bytes(here.displacement(wrap(Z)))


def test_dask_arrays_are_moved_and_not_matched() -> None:
    da = pytest.importorskip("dask.array")
    with pytest.raises(InputError, match="match must be None for a Dask array"):
        MongeMap(match=4).fit(da.from_array(X, chunks=(50, D)), Y)
    m = MongeMap(L1(0.6), match=4).fit(X, Y)
    moved = m.displacement(da.from_array(Z, chunks=(30, D))).compute(scheduler="sync")
    assert as_bytes(sp.csr_array(moved)) == as_bytes(m.displacement(Z))


# -- wrong input -----------------------------------------------------------------------------------------------


WRONG = {
    "zero": 0,
    "below zero": -1,
    "share": 2.5,
    "bool": True,
    "text": "x",
    "one array": X[:, :3],
    "three arrays": (X[:, :3], Y[:, :3], X[:, :3]),
    "rows of X": (X[:50, :3], Y[:, :3]),
    "rows of Y": (X[:, :3], Y[:50, :3]),
    "columns": (X[:, :3], Y[:, :2]),
    "not finite": (np.full((150, 3), np.nan), Y[:, :3]),
    "no numbers": ("a", "b"),
    "a class": object(),
}


@pytest.mark.parametrize("match", WRONG.values(), ids=WRONG)
def test_wrong_matches_are_refused_by_name(match: Any) -> None:
    with pytest.raises(InputError, match=r"^match "):
        MongeMap(L1(0.6), match=match).fit(X, Y)


def test_debias_and_match_exclude_each_other() -> None:
    with pytest.raises(InputError, match="debias must be False with pool or match"):
        MongeMap(match=3, debias=True).fit(X, Y)
