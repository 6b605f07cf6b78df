"""All pairs: C[i, j] = h(x_i − y_j), however the two sides are stored and scaled."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from itertools import product
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import euclidean_distances, manhattan_distances

from occamap import L1, STVS, Cost, GroupLasso, KOverlap, SqL2, Subspace
from occamap._validate import check_samples
from occamap._workers import Workers
from occamap.costs.generic import GenericPairs
from occamap.costs.lanes import by_tiles, pairs_bytes, tile_width

Rows = NDArray[Any]

CLOSE = {"float32": 1e-6, "float64": 1e-12}  # relative, for float32 input against float64 arithmetic on the same values
LAYOUTS: dict[str, Callable[[Rows], Any]] = {
    "dense": np.asarray,
    "csr_array": sp.csr_array,
    "csr_matrix": sp.csr_matrix,
    "csc_array": sp.csc_array,
}
COSTS: dict[str, Cost] = {
    "sql2": SqL2(),
    "l1": L1(0.6),
    "stvs": STVS(0.4),
    "overlap": KOverlap(0.7, k=3),
    "norm": KOverlap(2.0, k=3, squared=False),
    "subspace": Subspace(3.0, np.eye(3)),
    "groups": GroupLasso(0.6, [[0, 1], [2]]),
    "groups-sparse": GroupLasso(0.6, [[0, 1], [2]], l1_ratio=0.3),
}
every_cost = pytest.mark.parametrize("cost", COSTS.values(), ids=COSTS.keys())
both_precisions = pytest.mark.parametrize("dtype", ["float32", "float64"])


def sized(cost: Cost, d: int) -> Cost:
    """The cost for samples of d features, where it depends on their number."""
    if isinstance(cost, GroupLasso):
        rng, d = np.random.default_rng(d), min(d, 10_000)
        members = np.split(rng.permutation(d), np.unique(rng.integers(0, d, 2 + d // 7)))[:-1]  # of many sizes
        return GroupLasso(cost.gamma, [group for group in members if group.size] or [[0]], l1_ratio=cost.l1_ratio)
    if not isinstance(cost, Subspace) or np.shape(cost.basis)[1] == d:
        return cost
    return Subspace(cost.gamma, np.linalg.qr(np.random.default_rng(d).normal(size=(d, 3)))[0].T)


def one_by_one(cost: Cost, X: Rows, Y: Rows) -> NDArray[np.float64]:
    """The definition, in float64."""
    return np.stack([cost.value(x - Y.astype(np.float64)) for x in X.astype(np.float64)])


def draw(n: int, d: int, dtype: str = "float64", seed: int = 0, density: float = 0.2) -> Rows:
    """Signed values with zeros; the third row, if there is one, is empty."""
    rng = np.random.default_rng([seed, n, d])
    rows = rng.standard_normal((n, d)) * (rng.random((n, d)) < density)
    rows[2:3] = 0
    return rows.astype(dtype)


def check(cost: Cost, X: Rows, Y: Rows, rtol: float, layouts: tuple[str, ...] = ("dense", "csr_array")) -> None:
    cost = sized(cost, X.shape[1])
    expected = one_by_one(cost, X, Y)
    for left, right in product(layouts, repeat=2):
        C = cost.pairwise(LAYOUTS[left](X), LAYOUTS[right](Y))
        assert C.dtype == np.float64
        np.testing.assert_allclose(C, expected, rtol=rtol, atol=0, err_msg=f"{cost}, {left} × {right}")


@pytest.mark.parametrize("cost", [SqL2(), L1(0.3), STVS(0.5)], ids=["sql2", "l1", "stvs"])
def test_equal_terms_whose_rounding_errors_all_point_one_way(cost: Cost) -> None:
    values = np.concatenate([np.linspace(0.01, 5, 300), np.random.default_rng(0).lognormal(0, 2, 300)])
    X = np.repeat(values.astype(np.float32)[:, None], 640, axis=1)
    for Y in np.zeros_like(X[:1]), np.float32(0.3) * X[150:151]:
        check(cost, X, Y, CLOSE["float32"])


@every_cost
@both_precisions
def test_every_layout_on_both_sides(cost: Cost, dtype: str) -> None:
    X, Y = draw(9, 30, dtype), draw(7, 30, dtype, seed=1)
    cost = sized(cost, 30)
    check(cost, X, Y, CLOSE[dtype], tuple(LAYOUTS))
    mixed = cost.pairwise(sp.csr_array(X), Y.astype(np.float64))
    np.testing.assert_allclose(mixed, one_by_one(cost, X, Y), rtol=1e-12)
    whole = np.rint(3 * X).astype(np.int64)
    np.testing.assert_array_equal(cost.pairwise(whole, whole), cost.pairwise(whole * 1.0, whole * 1.0))


@every_cost
@both_precisions
@pytest.mark.parametrize("n", [1, 63, 64, 65, 130])
def test_any_number_of_rows(cost: Cost, dtype: str, n: int) -> None:
    X = draw(n, 20, dtype)
    for m in (1, 65):
        check(cost, X, draw(m, 20, dtype, seed=1), CLOSE[dtype])


@every_cost
@both_precisions
@pytest.mark.parametrize("d", [3, 511, 512, 513, 1024, 1025, 2500])
def test_features_across_tiles(cost: Cost, dtype: str, d: int) -> None:
    X, Y = draw(5, d, dtype), draw(4, d, dtype, seed=1)
    X[0], Y[0] = 0, 0
    X[0, -1], Y[0, d - 2 :] = 2, -1  # alone in the last tile
    check(cost, X, Y, CLOSE[dtype])


def uneven(n: int, d: int, dtype: str, signed: bool, seed: int) -> Rows:
    """Many entries in some tiles, few or none in others; an empty row, and one that is full."""
    rng = np.random.default_rng([seed, n, d])
    rows = rng.lognormal(0, 1, (n, d)) * (rng.random((n, d)) < rng.beta(0.2, 1, d))
    rows[:, 1100:1700] = 0
    rows[3], rows[n // 2] = 0, 1 + rng.random(d)
    return (rows * rng.choice([-1, 1], (n, d)) if signed else rows).astype(dtype)


WEIGHTS = np.random.default_rng(5).choice([0.0, 0.5, 1.0, 4.0, np.inf], 2300)


@pytest.mark.parametrize("cost", [*COSTS.values(), L1(0.6, np.minimum(WEIGHTS, 9)), L1(0.6, WEIGHTS)], ids=str)
@pytest.mark.parametrize("signed", [True, False])
@both_precisions
def test_many_rows_over_several_tiles(cost: Cost, signed: bool, dtype: str) -> None:
    X, Y = (uneven(n, 2300, dtype, signed, seed) for n, seed in ((70, 0), (90, 1)))
    cost = sized(cost, 2300)
    frozen = cost._frozen(2300)
    Y[:, frozen] = X[0, frozen]
    X[:60, frozen] = X[0, frozen]
    X[65, frozen], X[65, np.flatnonzero(frozen)[:1]] = X[0, frozen], 7
    expected = GenericPairs(cost, check_samples(Y, "Y")).block(check_samples(X, "X"))
    C = cost.pairwise(sp.csr_array(X), sp.csr_array(Y))
    np.testing.assert_allclose(C, expected, rtol=CLOSE[dtype], atol=0)
    assert np.isinf(C).any() == frozen.any()


@pytest.mark.parametrize(
    "cost", [L1(3.0), L1(3.0, np.minimum(WEIGHTS, 9)), COSTS["overlap"], COSTS["subspace"], COSTS["groups"]], ids=str
)
@pytest.mark.parametrize("signed", [True, False])
@both_precisions
def test_both_parts_over_several_tiles(cost: Any, signed: bool, dtype: str) -> None:
    X, Y = (uneven(n, 2300, dtype, signed, seed) for n, seed in ((70, 0), (90, 1)))
    cost, half, penalty = sized(cost, 2300), *np.empty((2, 70, 90))
    with Workers(1) as workers:
        cost._fill_parts(*(check_samples(sp.csr_array(rows), "X") for rows in (X, Y)), half, penalty, workers)
    square = GenericPairs(SqL2(), check_samples(Y, "Y")).block(check_samples(X, "X"))
    whole = GenericPairs(cost._with_gamma(1.0), check_samples(Y, "Y")).block(check_samples(X, "X"))
    np.testing.assert_allclose(half, square, rtol=CLOSE[dtype], atol=0)
    np.testing.assert_allclose(penalty, whole - square, rtol=4 * CLOSE[dtype], atol=1e-12 * whole.max())


@both_precisions
@pytest.mark.parametrize("d", [1, 512, 1024, 1025, 2300])
def test_entries_by_tiles_are_those_of_the_rows(d: int, dtype: str) -> None:
    dense = draw(40, d, dtype)
    dense[:, 3 * d // 4 :] = 0  # an empty tile at the end
    Y = check_samples(sp.csr_array(dense), "Y")
    begins, features, values = by_tiles(Y)
    width = tile_width(d, Y.dtype)
    tile, row = np.divmod(np.repeat(np.arange(begins.size - 1), np.diff(begins)), 40)
    assert begins[-1] == values.size == Y.data.size
    again = sp.coo_array((values, (row, tile * width + features)), shape=Y.shape)
    np.testing.assert_array_equal(again.toarray(), dense)
    assert np.all(features < width)
    assert begins.nbytes + features.nbytes + values.nbytes <= pairs_bytes(Y)
    assert pairs_bytes(check_samples(dense, "Y")) == 0


@both_precisions
@pytest.mark.parametrize("gamma", [0.0, 1e-6, 1e-2, 1.0, 1e2, 1e6])
@pytest.mark.parametrize(
    "kind",
    [
        L1,
        STVS,
        lambda gamma: KOverlap(gamma, k=4),
        lambda gamma: Subspace(gamma, np.eye(3)),
        lambda gamma: GroupLasso(gamma, [[0]]),
    ],
    ids=["l1", "stvs", "overlap", "subspace", "groups"],
)
def test_any_strength(kind: Callable[[float], Cost], gamma: float, dtype: str) -> None:
    check(kind(gamma), draw(70, 90, dtype), draw(20, 90, dtype, seed=1), CLOSE[dtype])


@every_cost
@both_precisions
@pytest.mark.parametrize("scale", [1e-30, 1e-15, 1e-8, 1e8, 1e15, 1e30])
def test_any_scale(cost: Cost, dtype: str, scale: float) -> None:
    X, Y = draw(66, 40) * scale, draw(8, 40, seed=1) * scale
    check(cost, X.astype(dtype), Y.astype(dtype), CLOSE[dtype])
    check(cost, X, draw(8, 40, seed=1), CLOSE["float64"])  # two scales against each other


@every_cost
@both_precisions
@pytest.mark.parametrize("d", [6, 130, 1500])
def test_nearly_identical_rows(cost: Cost, dtype: str, d: int) -> None:
    """The difference of two sums would lose the digits of a small cost."""
    rng = np.random.default_rng(d)
    for base in (rng.standard_normal((20, d)) * (rng.random((20, d)) < 0.5), 5 + rng.random((20, d))):
        for step in (1e-7, 1e-5, 1e-3, 0.03, 0.1, 0.3):
            X, Y = base.astype(dtype), (base * (1 + step * rng.standard_normal(base.shape))).astype(dtype)
            check(cost, X, Y, CLOSE[dtype])


@every_cost
@both_precisions
def test_identical_rows_cost_nothing(cost: Cost, dtype: str) -> None:
    cost = sized(cost, 80)
    X = np.concatenate([draw(66, 80, dtype), 1e3 + draw(5, 80, dtype)])
    for left, right in product(LAYOUTS.values(), repeat=2):
        C = cost.pairwise(left(X), right(X))
        assert np.all(np.diag(C) == 0)
        assert np.all(C[:66, 66:] > 0)


@pytest.mark.parametrize(
    "cost", [SqL2(), L1(1.0), STVS(1.0), Subspace(3.0, np.eye(3)[:1]), GroupLasso(1.0, [[0, 1]])], ids=str
)
def test_tiny_rows_beside_large_ones_in_float32(cost: Cost) -> None:
    """Their squares are below the range of float32."""
    X = np.array([[2e-25, 0.0, -1e-25], [1e-25, 3e-25, 0.0], [1.0, 2.0, 0.0]], np.float32)
    check(cost, X, X, CLOSE["float32"])


@every_cost
@pytest.mark.parametrize("layout", LAYOUTS)
def test_threads_do_not_change_a_byte(cost: Cost, layout: str) -> None:
    cost = sized(cost, 700)
    X, Y = LAYOUTS[layout](draw(300, 700, "float32")), LAYOUTS[layout](draw(150, 700, "float32", seed=1))
    assert cost.pairwise(X, Y, n_jobs=1).tobytes() == cost.pairwise(X, Y, n_jobs=2).tobytes()


@pytest.mark.parametrize("gamma", [0.0, 0.3, 40.0])
def test_l1_against_scipy_and_scikit_learn(gamma: float) -> None:
    X, Y = draw(100, 700), draw(70, 700, seed=1)
    by_scipy = gamma * cdist(X, Y, "cityblock") + 0.5 * cdist(X, Y, "sqeuclidean")
    sparse = sp.csr_array(X), sp.csr_array(Y)
    by_sklearn = gamma * manhattan_distances(*sparse) + 0.5 * euclidean_distances(*sparse, squared=True)
    costs = [L1(gamma), L1(gamma / 2, weights=np.full(700, 2.0))] + ([SqL2()] if gamma == 0 else [])
    for cost, (left, right) in product(costs, [(X, Y), sparse]):
        np.testing.assert_allclose(cost.pairwise(left, right), by_scipy, rtol=1e-12)
        np.testing.assert_allclose(cost.pairwise(left, right), by_sklearn, rtol=1e-9)


@pytest.mark.peers
@pytest.mark.parametrize("gamma", [0.05, 1.0, 20.0])
def test_against_ott(ott: ModuleType, gamma: float) -> None:
    import jax.numpy as jnp
    from ott.geometry import costs, regularizers

    X, Y = draw(40, 120), draw(30, 120, seed=1)
    basis = np.linalg.qr(np.random.default_rng(2).normal(size=(120, 3)))[0].T
    complement = regularizers.Quadratic(jnp.array(basis), is_complement=True, is_orthogonal=True, is_factor=True)
    pairs = [
        (L1(gamma), costs.RegTICost(regularizers.L1(), lam=gamma)),
        (STVS(gamma), costs.RegTICost(regularizers.STVS(gamma), lam=1.0)),  # OTT-JAX is right at weight 1 only
        (KOverlap(gamma, k=4), costs.RegTICost(regularizers.SqKOverlap(4), lam=gamma)),
        (Subspace(gamma, basis), costs.RegTICost(complement, lam=gamma)),
    ]
    for ours, theirs in pairs:
        expected = np.asarray(theirs.all_pairs(X, Y))
        assert expected.dtype == np.float64
        for layout in (np.asarray, sp.csr_array):
            np.testing.assert_allclose(ours.pairwise(layout(X), layout(Y)), expected, rtol=1e-6)


@both_precisions
def test_infinite_weights_forbid_a_difference(dtype: str) -> None:
    weights = np.array([np.inf, 1.0, 0.0, np.inf, 2.5, np.inf])
    cost = L1(0.8, weights)
    rng = np.random.default_rng(0)
    X, Y = (rng.integers(-1, 2, (n, 6)).astype(dtype) for n in (90, 70))
    X[:, 5] = 0
    Y[:, 5] = rng.choice([0.0, 0.0, 1e-30 if dtype == "float32" else 1e-200], 70)  # however small, it is a difference
    differ = np.any((X[:, None] != Y[None])[:, :, np.isinf(weights)], axis=2)
    assert differ.any()
    assert not differ.all()
    free = np.isfinite(weights)
    finite = one_by_one(L1(0.8, weights[free]), X[:, free], Y[:, free])
    for left, right in product(LAYOUTS.values(), repeat=2):
        C = cost.pairwise(left(X), right(Y))
        np.testing.assert_array_equal(np.isinf(C), differ)
        np.testing.assert_allclose(C[~differ], finite[~differ], rtol=CLOSE[dtype])


@every_cost
def test_sparse_rows_are_never_dense(cost: Cost) -> None:
    """200 × 2,000,000 would be 3.2 GB; the entries are 160 kB."""
    rng = np.random.default_rng(0)
    n, d = 200, 2_000_000
    cost = sized(cost, d)
    columns = np.concatenate([rng.choice(d, (2, n, 30)), rng.choice(100, (2, n, 20))], axis=2)  # some are shared
    rows = np.repeat(np.arange(n), 50)
    X, Y = (sp.coo_array((rng.standard_normal(50 * n), (rows, c.ravel())), shape=(n, d)).tocsr() for c in columns)
    tracemalloc.start()
    C = cost.pairwise(X, Y, n_jobs=2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < (2**28 if isinstance(cost, GroupLasso) else 2**27)  # groups have some arrays of one number a feature
    for i, j in [(0, 0), (17, 180), (199, 64)]:
        assert C[i, j] == pytest.approx(cost.value(X[[i]] - Y[[j]])[0], rel=1e-12)


@pytest.mark.parametrize(
    "cost",
    [L1(3.0), L1(3.0, np.linspace(0, 2, 500)), *(COSTS[name] for name in ("overlap", "norm", "subspace", "groups"))],
)
@pytest.mark.parametrize("layouts", list(product(["dense", "csr_array"], repeat=2)), ids=str)
@pytest.mark.parametrize("signed", [True, False])
@both_precisions
def test_one_pass_gives_the_square_and_the_penalty_apart(
    cost: Any, layouts: tuple[str, str], signed: bool, dtype: str
) -> None:
    X, Y = (rows if signed else abs(rows) for rows in (draw(150, 500, dtype), draw(70, 500, dtype, seed=1)))
    cost, half, penalty = sized(cost, 500), *np.empty((2, 150, 70))
    left, right = (check_samples(LAYOUTS[form](rows), "X") for form, rows in zip(layouts, (X, Y), strict=True))
    with Workers(2) as workers:
        cost._fill_parts(left, right, half, penalty, workers)
    scale = one_by_one(SqL2(), X, Y).mean()
    np.testing.assert_allclose(half, one_by_one(SqL2(), X, Y), atol=CLOSE[dtype] * scale)
    for gamma in (0.0, 0.5, 20.0):
        exact = one_by_one(cost._with_gamma(gamma), X, Y)
        np.testing.assert_allclose(half + gamma * penalty, exact, atol=CLOSE[dtype] * exact.mean())
    assert min(half.min(), penalty.min()) >= 0
