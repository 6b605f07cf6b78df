"""Distances between measures, against OTT-JAX, POT, closed forms and laws."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import occamap as oc
from occamap.errors import FeatureMismatchError, InputError, NotConvergedWarning
from occamap.metrics import ot_cost, sinkhorn_divergence


def clouds(n=40, m=50, d=6, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.normal(size=(m, d)) + 1.0


def simplex(n, seed):
    weights = np.random.default_rng(seed).uniform(0.1, 1.0, size=n)
    return weights / weights.sum()


@pytest.mark.peers
@pytest.mark.parametrize("weighted", [False, True])
def test_it_is_the_divergence_of_ott(ott, weighted):
    import jax.numpy as jnp
    from ott.geometry import pointcloud
    from ott.tools import sinkhorn_divergence as theirs

    X, Y = clouds()
    a, b = (simplex(40, 1), simplex(50, 2)) if weighted else (np.full(40, 1 / 40), np.full(50, 1 / 50))
    epsilon = 0.7
    value, _ = theirs.sinkhorn_divergence(
        pointcloud.PointCloud,
        jnp.array(X),
        jnp.array(Y),
        a=jnp.array(a),
        b=jnp.array(b),
        epsilon=2 * epsilon,  # their cost has no ½
        solve_kwargs={"threshold": 1e-10, "max_iterations": 100_000},
    )
    ours = sinkhorn_divergence(X, Y, a, b, epsilon=epsilon, epsilon_scale="absolute", tol=1e-10)
    assert ours == pytest.approx(0.5 * float(value), rel=1e-6)


@pytest.mark.peers
def test_the_cost_is_the_entropic_value_of_pot(pot):
    X, Y = clouds()
    a, b, epsilon = simplex(40, 1), simplex(50, 2), 0.5
    C = 0.5 * ((X[:, None] - Y) ** 2).sum(axis=2)
    plan = pot.sinkhorn(a, b, C, epsilon, method="sinkhorn_log", numItermax=100_000, stopThr=1e-12)
    value = (plan * C).sum() + epsilon * (plan * np.log(plan / np.outer(a, b))).sum()
    ours = ot_cost(X, Y, a, b, epsilon=epsilon, epsilon_scale="absolute", tol=1e-10)
    assert ours == pytest.approx(value, rel=1e-8)


@given(st.integers(0, 2**31), st.floats(0.1, 2.0))
def test_a_translation_costs_half_its_square(seed, epsilon):
    rng = np.random.default_rng(seed)
    Y, shift = rng.normal(size=(20, 4)), rng.normal(size=4)
    found = sinkhorn_divergence(Y + shift, Y, epsilon=epsilon, tol=1e-7, max_iter=20_000)
    assert found == pytest.approx(0.5 * shift @ shift, rel=1e-5, abs=1e-6)


def test_a_measure_is_at_no_distance_from_itself_and_at_some_from_another():
    X, Y = clouds()
    assert abs(sinkhorn_divergence(Y, Y)) < 1e-9
    assert abs(sinkhorn_divergence(Y, np.vstack([Y, Y]))) < 1e-6
    assert sinkhorn_divergence(X, Y) > 1


def test_epsilon_is_that_of_the_targets():
    X, Y = clouds()
    among = oc.SqL2().pairwise(Y, Y).mean()
    by_rule = sinkhorn_divergence(10 * X, Y, epsilon=0.2)
    assert by_rule == pytest.approx(sinkhorn_divergence(10 * X, Y, epsilon=0.2 * among, epsilon_scale="absolute"))


def test_sparse_dense_and_another_cost():
    X, Y = clouds()
    X[np.abs(X) < 0.8] = 0
    Y[np.abs(Y) < 0.8] = 0
    for cost in (oc.SqL2(), oc.L1(0.5)):
        dense = sinkhorn_divergence(X, Y, cost=cost)
        assert sinkhorn_divergence(sp.csr_array(X), sp.csr_matrix(Y), cost=cost) == pytest.approx(dense, rel=1e-9)
    assert sinkhorn_divergence(X, Y, cost=oc.L1(0.5)) > sinkhorn_divergence(X, Y)


@pytest.mark.parametrize("scale", [1e-10, 1.0, 1e8])
def test_a_single_target_is_measured_in_its_own_units(scale):
    X = clouds()[0]
    to_a_point = 0.5 * ((X - 1) ** 2).sum(axis=1).mean()
    found = sinkhorn_divergence(scale * X, np.full((1, 6), scale)) / scale**2
    assert 0 < found < to_a_point
    assert found == pytest.approx(sinkhorn_divergence(X, np.ones((1, 6))), rel=1e-6)
    assert abs(sinkhorn_divergence(np.ones((3, 2)), np.ones((1, 2)))) < 1e-12


def test_frozen_features_are_left_out():
    X, Y = clouds()
    frozen = oc.L1(0.5, weights=[np.inf, 1, 1, 1, 1, 1])
    assert ot_cost(X, Y, cost=frozen) == pytest.approx(ot_cost(X[:, 1:], Y[:, 1:], cost=oc.L1(0.5)))


def test_threads_do_not_matter():
    X, Y = clouds(300, 700)
    assert sinkhorn_divergence(X, Y, n_jobs=1) == sinkhorn_divergence(X, Y, n_jobs=3)


def test_what_did_not_converge_is_said():
    X, Y = clouds()
    with pytest.warns(NotConvergedWarning, match="max_iter=2"):
        sinkhorn_divergence(X, Y, epsilon=1e-3, max_iter=2)
    with pytest.warns(NotConvergedWarning, match="max_iter=2"):
        ot_cost(X, Y, epsilon=1e-3, max_iter=2)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"epsilon": 0.0}, InputError, "epsilon"),
        ({"epsilon_scale": "x"}, InputError, "epsilon_scale"),
        ({"cost": "l1"}, InputError, "cost"),
        ({"tol": -1.0}, InputError, "tol"),
        ({"max_iter": 0}, InputError, "max_iter"),
        ({"a": [1.0]}, InputError, "a must be"),
        ({"Y": np.ones((3, 2))}, FeatureMismatchError, "Y must have the 6 features"),
    ],
)
def test_bad_input(change, error, words):
    X, Y = clouds()
    given = {"X": X, "Y": Y, **change}
    with pytest.raises(error, match=words):
        sinkhorn_divergence(**given)
    with pytest.raises(error, match=words):
        ot_cost(**given)
