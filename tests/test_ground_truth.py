"""Known h-optimal maps: optimal by an exact assignment, equal to OTT-JAX's, and found again by a fit."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

import occamap as oc
from occamap.errors import InputError

COSTS = [
    oc.SqL2(),
    oc.L1(1.0),
    oc.L1(0.5, weights=[0.0, 2.0, 1.0, 1.0, 1.0, 1.0]),
    oc.STVS(1.0),
    oc.STVS(0.1),
    oc.KOverlap(1.0, k=2),
    oc.KOverlap(1.0, k=2, squared=False),
]


@pytest.mark.parametrize("cost", COSTS, ids=repr)
def test_no_other_pairing_is_cheaper(cost):
    """T is h-optimal between any samples and their images: scipy's exact assignment cannot beat it."""
    truth = oc.datasets.ground_truth(cost, 120, 10, 6, pull=4.0, random_state=1)
    C = cost.pairwise(truth.source, truth.image)
    rows, columns = linear_sum_assignment(C)
    assert np.trace(C) <= C[rows, columns].sum() * (1 + 1e-12)


@pytest.mark.parametrize("cost", COSTS, ids=repr)
def test_each_image_minimises_the_transform(cost):
    """T(x) = argmin_y h(x − y) − g(y): no point nearby is lower."""
    truth = oc.datasets.ground_truth(cost, 30, 10, 6, pull=4.0, random_state=2)
    draw = np.random.default_rng(0)

    def objective(y: np.ndarray) -> np.ndarray:
        return cost.value(truth.source - y) + 0.5 * np.einsum("ij,jk,ik->i", y, truth.curvature, y)

    reached = objective(truth.image)
    for size in (1e-4, 1e-2, 1.0):
        for _ in range(20):
            step = size * draw.normal(size=truth.image.shape) * (draw.random(truth.image.shape) < 0.5)
            assert (objective(truth.image + step) >= reached - 1e-11).all()


def test_frozen_features_stay():
    truth = oc.datasets.ground_truth(oc.L1(0.5, weights=[np.inf, 1.0, 1.0, 1.0]), 50, 50, 4)
    assert (truth.image[:, 0] == truth.source[:, 0]).all()
    assert (truth.image[:, 1] != truth.source[:, 1]).any()


def test_the_quadratic_map_is_the_closed_form():
    truth = oc.datasets.ground_truth(oc.SqL2(), 20, 20, 5, pull=3.0)
    expected = truth.source @ np.linalg.inv(np.eye(5) + truth.curvature)
    np.testing.assert_allclose(truth.image, expected, atol=1e-11)


@pytest.mark.peers
def test_it_is_the_map_of_ott(ott):
    """OTT-JAX's transport_map: min_z h(z) − g(x − z) by its own proximal gradient."""
    import jax.numpy as jnp
    from ott.geometry import costs, regularizers

    truth = oc.datasets.ground_truth(oc.L1(1.0), 25, 10, 6, pull=1.5)
    curvature = jnp.asarray(truth.curvature)
    peer = costs.RegTICost(regularizers.L1(), lam=1.0)

    def potential(y):
        return -0.5 * jnp.dot(y, curvature @ y)

    moved = peer.transport_map(potential)(jnp.asarray(truth.source), tol=1e-10, maxiter=5000)
    np.testing.assert_allclose(truth.image, np.asarray(moved), atol=2e-6)


@pytest.mark.parametrize("pull", [1e-6, 100.0])
def test_the_fixed_point_is_met_at_any_pull(pull):
    truth = oc.datasets.ground_truth(oc.L1(1.0), 20, 5, 5, pull=pull)
    w = truth.image @ truth.curvature  # w = M(x − prox(w)) = M T(x)
    np.testing.assert_allclose(truth.source - oc.L1(1.0).prox(w), truth.image, atol=1e-9)
    assert (truth.support == (truth.image != truth.source)).all()


def test_seeds_and_costs_share_what_they_should():
    first, again = (oc.datasets.ground_truth(oc.L1(1.0), 20, 30, 4, random_state=7) for _ in range(2))
    other = oc.datasets.ground_truth(oc.STVS(1.0), 20, 30, 4, random_state=7)
    assert (first.target == again.target).all()
    assert (first.source == other.source).all()
    assert (first.curvature == other.curvature).all()
    assert (first.image != other.image).any()
    assert first.target.shape == (30, 4)
    np.testing.assert_array_equal(first.transform(first.source), first.image)


def test_a_fit_with_the_own_cost_comes_nearer_with_more_samples():
    errors = []
    for n in (50, 500):
        truth = oc.datasets.ground_truth(oc.L1(2.0), n + 200, n, 5, pull=5.0)
        fitted = oc.MongeMap(oc.L1(2.0), epsilon=0.03).fit(truth.source[200:], truth.target)
        errors.append(oc.metrics.nmse(truth.image[:200], fitted.transform(truth.source[:200])))
    assert errors[1] < 0.5 * errors[0]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"cost": "l1"}, "cost must be"),
        ({"n_source": 0}, "n_source"),
        ({"n_features": 2.5}, "n_features"),
        ({"pull": 0}, "pull"),
        ({"pull": 1e4}, "pull"),
        ({"pull": np.nan}, "pull"),
        ({"random_state": -1}, "random_state"),
        ({"cost": oc.L1(1.0, weights=[1.0, 1.0])}, "weights"),
    ],
)
def test_bad_input_is_refused(arguments, told):
    with pytest.raises(InputError, match=told):
        oc.datasets.ground_truth(**{"cost": oc.L1(1.0), **arguments})


def test_transform_refuses_other_features():
    truth = oc.datasets.ground_truth(oc.L1(1.0), 5, 5, 3)
    with pytest.raises(InputError, match="3 features"):
        truth.transform(np.ones((2, 4)))
