"""The subspace cost, its map, and the learner of its basis: closed forms, OTT-JAX, POT, and planted subspaces."""

from __future__ import annotations

import pickle
import tracemalloc
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import subspace_angles

import occamap as oc
from occamap._memory import Budget
from occamap._validate import check_samples
from occamap._workers import Workers
from occamap.costs.generic import GenericDisplacer
from occamap.maps.problem import check_problem
from occamap.maps.progress import Progress
from occamap.maps.side import Side
from occamap.sinkhorn import EpsilonRule
from occamap.subspaces import _retract, _Transport

Floats = NDArray[np.float64]


def drawn(k: int, d: int, seed: int = 0) -> Floats:
    """k random directions."""
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(d, k)))[0].T


def angle(A: Any, B: Any) -> float:
    """The largest principal angle between two spans."""
    return float(np.max(subspace_angles(np.asarray(A).T, np.asarray(B).T)))


rng = np.random.default_rng(0)
BASIS = drawn(2, 6)
X, Y = rng.normal(size=(70, 6)), rng.normal(size=(50, 6)) * 0.7 + BASIS[0] * 2
X[rng.random(X.shape) < 0.4], Y[rng.random(Y.shape) < 0.4] = 0, 0

# -- the cost --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [0.0, 0.3, 20.0, 1e6])
@pytest.mark.parametrize("k", [1, 2, 6])
def test_closed_forms(gamma: float, k: int) -> None:
    A = drawn(k, 6)
    cost, H = oc.Subspace(gamma, A), (1 + gamma) * np.eye(6) - gamma * A.T @ A
    for rows in (X, sp.csr_array(X)):
        np.testing.assert_allclose(cost.value(rows), 0.5 * np.einsum("ni,ij,nj->n", X, H, X), rtol=1e-9 * (1 + gamma))
        np.testing.assert_allclose(_dense(cost.grad(rows)), X @ H, atol=1e-14 * (1 + gamma))
        np.testing.assert_allclose(_dense(cost.prox(rows)), np.linalg.solve(H, X.T).T, atol=1e-14 * (1 + gamma))
        conjugate = 0.5 * np.einsum("ni,ni->n", X, np.linalg.solve(H, X.T).T)
        np.testing.assert_allclose(cost.conjugate(rows), conjugate, rtol=1e-8, atol=1e-12)


def _dense(rows: Any) -> Floats:
    return rows.toarray() if sp.issparse(rows) else rows


def test_moves_within_the_span_cost_no_more_than_half_their_square_however_large_gamma() -> None:
    """There ‖z‖² − ‖Az‖² is nothing but rounding, which γ would blow up."""
    A = drawn(3, 400)
    Z = np.random.default_rng(1).normal(size=(30, 3)) @ A
    for gamma in (1.0, 1e4, 1e9):
        cost = oc.Subspace(gamma, A)
        for rows in (Z, sp.csr_array(Z)):
            np.testing.assert_allclose(cost.value(rows), 0.5 * np.sum(Z**2, axis=1), rtol=1e-12)
            nothing = rows[:1] * 0
            np.testing.assert_allclose(cost.pairwise(rows, nothing)[:, 0], 0.5 * np.sum(Z**2, axis=1), rtol=1e-12)


@pytest.mark.peers
def test_against_ott(ott: ModuleType) -> None:
    import jax
    import jax.numpy as jnp
    from ott.geometry import costs, regularizers

    for gamma in (0.1, 3.0, 50.0):
        ours = oc.Subspace(gamma, BASIS)
        flags = {"is_complement": True, "is_orthogonal": True, "is_factor": True}
        theirs = costs.RegTICost(regularizers.Quadratic(jnp.array(BASIS), **flags), lam=gamma)
        np.testing.assert_allclose(ours.value(X), jax.vmap(theirs.h)(X), rtol=1e-10)
        np.testing.assert_allclose(ours.grad(X), jax.vmap(jax.grad(theirs.h))(X), atol=1e-10)
        np.testing.assert_allclose(ours.prox(X), jax.vmap(theirs.regularizer.prox)(X), atol=1e-10)
        np.testing.assert_allclose(ours.conjugate(X), jax.vmap(theirs.h_legendre)(X), rtol=1e-8, atol=1e-12)


def test_no_complement_or_no_gamma_is_half_the_square() -> None:
    plain = oc.SqL2().pairwise(X, Y)
    np.testing.assert_allclose(oc.Subspace(0.0, BASIS).pairwise(X, Y), plain, rtol=1e-14)
    np.testing.assert_allclose(oc.Subspace(7.0, drawn(6, 6)).pairwise(X, Y), plain, rtol=1e-13)


@pytest.mark.parametrize(
    ("basis", "words"),
    [
        (np.ones((2, 6)), "np.linalg.qr"),
        (2 * BASIS, "orthonormal rows"),
        (BASIS[0], "shape"),
        (np.eye(6)[:, :3], "1 ≤ k ≤ d"),
        (np.empty((0, 6)), "1 ≤ k ≤ d"),
        (np.where(BASIS > 0, np.nan, BASIS), "finite"),
        (BASIS.astype(complex), "real numbers"),
    ],
)
def test_a_bad_basis_is_named(basis: Any, words: str) -> None:
    with pytest.raises(oc.errors.InputError, match="basis must") as caught:
        oc.Subspace(1.0, basis)
    assert words in str(caught.value)


def test_gamma_and_features_are_checked() -> None:
    with pytest.raises(oc.errors.InputError, match="gamma must"):
        oc.Subspace(-1.0, BASIS)
    with pytest.raises(oc.errors.InputError, match="one column for each of the 5 features; got 6"):
        oc.Subspace(1.0, BASIS).value(X[:, :5])
    frame = pytest.importorskip("pandas").DataFrame(BASIS)
    with pytest.raises(oc.errors.InputError, match="data frame"):
        oc.Subspace(1.0, frame)


def test_the_basis_is_ours_and_exact() -> None:
    given = BASIS.astype(np.float32).copy()  # orthonormal to 1e-7
    cost = oc.Subspace(1.0, given)
    given[:] = 0
    np.testing.assert_allclose(cost.basis @ cost.basis.T, np.eye(2), atol=1e-15)
    assert angle(cost.basis, BASIS) < 1e-6
    with pytest.raises(ValueError, match="read-only"):
        cost.basis[0, 0] = 1  # type: ignore[index]
    np.testing.assert_array_equal(oc.Subspace(2.0, cost.basis).basis, cost.basis)


def test_equality_hash_repr_and_pickle() -> None:
    one, same = oc.Subspace(1.0, BASIS), oc.Subspace(1, BASIS.tolist())
    assert one == same
    assert hash(one) == hash(same)
    assert oc.Subspace(1.0, np.eye(2)) == oc.Subspace(1.0, np.eye(2) * [1.0, 1.0] - 0.0)
    assert one != oc.Subspace(1.0, BASIS[::-1])
    assert one != oc.Subspace(2.0, BASIS)
    assert repr(one) == "Subspace(gamma=1.0, basis=<2 directions × 6 features>)"
    one.value(X)
    assert pickle.loads(pickle.dumps(one)) == one


# -- its map ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("ties", "relax"), [("zero", 0.0), ("occam", 0.0), ("zero", 1.0)])
def test_the_map_is_the_mean_of_the_targets(wrap: Any, dtype: Any, ties: str, relax: float) -> None:
    x, y = X.astype(dtype), Y.astype(dtype)
    model = oc.MongeMap(oc.Subspace(3.0, BASIS), ties=ties, relax=relax).fit(wrap(x), wrap(y))
    expected = model.weights(wrap(x)) @ y.astype(np.float64)
    close = 3e-6 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(_dense(model.transform(wrap(x))), expected, atol=close)
    moves = model.displacement(wrap(x))
    assert moves.dtype == dtype
    np.testing.assert_allclose(moves.toarray(), expected - x, atol=close)
    generic = Side(model.cost, check_samples(wrap(y), "Y"), model.b_, model.g_, model.epsilon_)
    generic._prepared = {np.dtype(t): GenericDisplacer(model.cost, check_samples(y, "Y")) for t in (dtype, np.float64)}
    with Workers(1) as workers:
        given = int(ties == "occam"), relax, workers, Budget(None)
        slow = generic.displace(check_samples(wrap(x), "X"), lambda _, moves: moves, *given)
    np.testing.assert_allclose(moves.toarray(), slow.toarray(), atol=close)


@pytest.mark.peers
def test_the_plan_against_pot(pot: ModuleType) -> None:
    model = oc.MongeMap(oc.Subspace(3.0, BASIS), tol=1e-10).fit(X, sp.csr_array(Y))
    z = X[:, None] - Y
    out = z - z @ BASIS.T @ BASIS
    C = 0.5 * np.sum(z**2, axis=2) + 1.5 * np.sum(out**2, axis=2)
    plan = pot.sinkhorn(model.a_, model.b_, C, model.epsilon_, stopThr=1e-12, numItermax=10_000)
    np.testing.assert_allclose(model.plan(), plan, atol=1e-9)
    assert model.epsilon_ == pytest.approx(0.1 * C.mean())


def test_saved_and_loaded(tmp_path: Path) -> None:
    model = oc.MongeMap(oc.Subspace(3.0, BASIS.astype(np.float32))).fit(X, sp.csr_array(Y))
    model.save(tmp_path / "map.occamap")
    again = oc.load(tmp_path / "map.occamap")
    assert again.cost == model.cost
    assert (again.displacement(X) != model.displacement(X)).nnz == 0


def test_a_path_over_gamma() -> None:
    path = oc.gamma_path(X, Y, cost=oc.Subspace(1.0, BASIS), gammas=[0.1, 1.0, 50.0])
    out = [m.displacement(X) - (m.displacement(X) @ BASIS.T) @ BASIS for m in path.maps]
    sizes = [float(np.linalg.norm(moved)) for moved in out]
    assert sizes[0] > sizes[1] > sizes[2]  # a larger γ leaves less out of the span


# -- the learner -----------------------------------------------------------------------------------------------


def planted(n: int, d: int, k: int, size: float, seed: int = 0) -> tuple[Floats, Floats, Floats]:
    """Independent samples: the target has moved outward along each of k directions, by `size` times its deviation."""
    A, draw = drawn(k, d, seed + 100), np.random.default_rng(seed)
    source, other = draw.normal(size=(2, n, d))
    return source, other + size * np.sign(other @ A.T) @ A, A


@pytest.mark.parametrize(("n", "d", "k", "size"), [(1200, 10, 2, 12.0), (1200, 30, 1, 32.0)])
@pytest.mark.parametrize("start", [None, "random"])
def test_recovers_a_planted_subspace_of_independent_samples(n: int, d: int, k: int, size: float, start: Any) -> None:
    source, target, A = planted(n, d, k, size)
    found = oc.learn_subspace(source, target, k, start=start, debias=start is None)
    assert found.converged
    assert found.basis.shape == (k, d)
    assert angle(found.basis, A) < 1e-2
    assert found.share > 0.8
    assert found.cost == oc.Subspace(1.0, found.basis)


def test_recovers_the_subspace_of_a_known_optimal_map() -> None:
    A = drawn(3, 10)
    truth = oc.datasets.ground_truth(oc.Subspace(1e3, A))  # 500 samples a side, 10 features
    target = np.random.default_rng(0).permutation(truth.image)
    found = oc.learn_subspace(truth.source, target, 3, gamma=10.0, epsilon=0.01)
    assert found.converged
    assert angle(found.basis, A) < 1e-2


@pytest.mark.parametrize("debias", [True, False])
def test_the_gradient_is_the_finite_difference(debias: bool) -> None:
    """Through the solves, of which the gradient takes no derivative."""
    with Workers(1) as workers, Progress(False) as progress:
        problem = check_problem(X, sp.csr_array(Y), None, None, [], None)
        given = EpsilonRule(2.0, "absolute"), debias, (1e-10, 2000), workers, progress
        transport = _Transport(problem, 2.0, *given)
        A = drawn(2, 6, seed=3)
        transport.solve(A)
        D, slope, _ = transport.direction(A)
        ahead, behind = (transport.solve(_retract(A + t * D)) for t in (1e-4, -1e-4))
    np.testing.assert_allclose(D @ A.T, 0, atol=1e-12)
    assert slope > 0
    assert (ahead - behind) / 2e-4 == pytest.approx(-slope, rel=1e-5)


@pytest.mark.parametrize("debias", [True, False])
def test_the_objective_is_the_transport_cost_and_goes_down(debias: bool) -> None:
    source, target, _ = planted(150, 5, 1, 2.0)
    found = oc.learn_subspace(source, target, 1, 2.0, debias=debias, start="random", random_state=3, sinkhorn_tol=1e-8)
    assert found.n_iter == len(found.objective) - 1 == len(found.angles) - 1 > 0
    assert np.all(np.diff(found.objective) < 1e-9)
    assert found.angles[-1] <= 1e-3
    fixed = {"epsilon": found.epsilon, "epsilon_scale": "absolute", "tol": 1e-8}
    sides = [(source, target, 1.0)] + ([(source, source, -0.5), (target, target, -0.5)] if debias else [])
    value = 0.0
    for left, right, sign in sides:
        model = oc.MongeMap(found.cost, **fixed).fit(left, right)
        value += sign * float(model.a_ @ model.f_ + model.b_ @ model.g_)
    assert found.objective[-1] == pytest.approx(value, rel=1e-5)


def test_what_it_is_fitted_on_does_not_matter_but_its_values_do() -> None:
    source, target, _ = planted(120, 8, 2, 4.0)
    source[rng.random(source.shape) < 0.5] = 0
    once = oc.learn_subspace(source, target, 2)
    sparse = oc.learn_subspace(sp.csr_array(source), sp.csc_matrix(target), 2)
    threads = oc.learn_subspace(source, target, 2, n_jobs=1, random_state=5)
    for other in (sparse, threads):
        np.testing.assert_allclose(other.basis, once.basis, atol=1e-5)
    narrow = oc.learn_subspace(source.astype(np.float32), target.astype(np.float32), 2)
    np.testing.assert_allclose(narrow.basis, once.basis, atol=1e-3)
    turn = drawn(8, 8, seed=9)
    turned = oc.learn_subspace(source @ turn, target @ turn, 2)
    assert angle(turned.basis @ turn.T, once.basis) < 2e-3


def test_weights_are_copies() -> None:
    source, target, _ = planted(60, 4, 1, 3.0)
    counts = np.random.default_rng(0).integers(1, 4, 60)
    copies = oc.learn_subspace(np.repeat(source, counts, axis=0), target, 1)
    weighted = oc.learn_subspace(source, target, 1, a=counts)
    np.testing.assert_allclose(weighted.basis, copies.basis, atol=1e-4)
    assert weighted.epsilon == pytest.approx(copies.epsilon)


def test_sparse_rows_of_many_features() -> None:
    """A matrix of 30,000 × 30,000 would be 7 GB, the rows as dense ones 72 MB a side."""
    draw, d = np.random.default_rng(0), 30_000
    left, right = (sp.random_array((300, d), density=0.003, rng=draw, format="csr") for _ in range(2))
    genes = sp.csr_array((np.ones(20), (np.zeros(20, int), np.arange(0, 200, 10))), shape=(1, d))
    right = right + sp.csr_array(np.full((300, 1), 3.0)) @ genes
    tracemalloc.start()
    found = oc.learn_subspace(left, right, 1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5e7
    assert angle(found.basis, genes.toarray()) < 0.06
    assert set(np.argsort(-np.abs(found.basis[0]))[:20]) == set(range(0, 200, 10))


def test_as_many_directions_as_features_leave_nothing_to_learn() -> None:
    found = oc.learn_subspace(X, Y, 6)
    assert found.n_iter == 0
    assert found.converged
    assert found.share == pytest.approx(1)


def test_bad_input() -> None:
    for given, words in (
        ({"k": 7}, "k must be at most"),
        ({"k": 0}, "k must"),
        ({"k": 2, "gamma": 0.0}, "gamma must"),
        ({"k": 2, "epsilon_scale": "perplexity", "epsilon": 9.0}, "epsilon_scale must"),
        ({"k": 2, "start": "pca"}, "start must"),
        ({"k": 1, "start": BASIS}, "1 directions × 6 features"),
        ({"k": 2, "start": np.ones((2, 6))}, "orthonormal"),
        ({"k": 2, "debias": "no"}, "debias must"),
        ({"k": 2, "tol": 0.0}, "tol must"),
        ({"k": 2, "max_iter": 0}, "max_iter must"),
        ({"k": 2, "sinkhorn_tol": -1.0}, "sinkhorn_tol must"),
        ({"k": 2, "random_state": -1}, "random_state must"),
    ):
        with pytest.raises(oc.errors.InputError, match=words):
            oc.learn_subspace(X, Y, **given)


def test_it_says_when_it_has_not_converged() -> None:
    with pytest.warns(oc.errors.NotConvergedWarning, match="raise max_iter"):
        found = oc.learn_subspace(X, Y, 2, 10.0, start="random", max_iter=1)
    assert not found.converged
    assert found.n_iter == 1
    with pytest.warns(oc.errors.NotConvergedWarning, match="raise sinkhorn_max_iter"):
        found = oc.learn_subspace(X, Y, 2, sinkhorn_max_iter=1, sinkhorn_tol=1e-12)
    assert not found.converged
