"""Barycenters against quantiles, Gaussians, POT and cvxpy, and by the laws that they obey."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import norm

import occamap as oc
from occamap._validate import check_samples
from occamap._workers import Workers
from occamap.barycenters import minimum
from occamap.errors import FeatureMismatchError, InputError, NotConvergedWarning

COSTS = [oc.SqL2(), oc.L1(0.5), oc.STVS(0.5), oc.KOverlap(0.5, k=1), oc.KOverlap(0.5, k=1, squared=False)]
SEPARABLE = COSTS[:3]
SHARP = {"epsilon": 1e-3, "max_iter": 20000}
FIVE_STEPS = {"max_steps": 5, "step_tol": 0.0, "tol": 1e-9, "max_iter": 20000}  # the same ones, not the last of them
unfinished = pytest.mark.filterwarnings("ignore::occamap.errors.NotConvergedWarning")
named = pytest.mark.parametrize("cost", COSTS, ids=repr)
separable = pytest.mark.parametrize("cost", SEPARABLE, ids=repr)

rng = np.random.default_rng(0)
A, B = rng.normal(size=(30, 3)), rng.normal(1.0, 2.0, size=(25, 3))


def counts(n, d=12, seed=0):
    """Rows most of whose entries are 0, one feature in which all are, and one in which all are 2."""
    draw = np.random.default_rng(seed)
    rows = draw.poisson(0.6, size=(n, d)).astype(float)
    rows[:, 3], rows[:, 5] = 0.0, 2.0
    return rows


def objective(x, weights, Y, cost):
    return float(weights @ cost.value(x[None, :] - Y))


# -- one dimension, where the couplings are known ----------------------------------------------------------------------


def best_quantile(points, lambdas, cost):
    """argmin_q Σ λ_k h(q − Q_k) by SciPy's search, each interval between two of the points on its own."""

    def mean_cost(q):
        return float(lambdas @ cost.value((q - points)[:, None]))

    grid = np.unique(points)
    searched = [
        minimize_scalar(mean_cost, bounds=pair, method="bounded", options={"xatol": 1e-10}).x
        for pair in pairwise(grid)
    ]
    return min([*grid, *searched], key=mean_cost)


@named
def test_in_one_dimension_each_quantile_is_the_centre_of_the_quantiles(cost):
    lambdas = np.array([0.5, 0.3, 0.2])
    u = (np.arange(12) + 0.5) / 12
    quantiles = np.stack([norm.ppf(u), 2 + 0.5 * norm.ppf(u), np.exp(norm.ppf(u)) - 4])
    expected = [best_quantile(quantiles[:, i], lambdas, cost) for i in range(u.size)]
    found = oc.barycenter([row[:, None] for row in quantiles], cost, lambdas, epsilon=3e-4, max_iter=50000)
    np.testing.assert_allclose(np.sort(found.support.ravel()), expected, atol=5e-3)


def test_a_strong_l1_takes_the_weighted_median_and_not_the_mean():
    places = np.array([0.0, 1.0, 10.0])
    measures = [np.full((1, 1), place) for place in places]
    assert oc.barycenter(measures, oc.SqL2()).support.item() == pytest.approx(places.mean())
    assert oc.barycenter(measures, oc.L1(100.0)).support.item() == 1.0
    assert oc.barycenter(measures, oc.L1(100.0), [0.2, 0.2, 0.6]).support.item() == 10.0


def test_the_fixed_points_of_the_maps_step_need_not_be_minima():
    """Why the step x − ∇h*(Σ λ ∇f) of the maps is not what is taken: it stays at 0, well above the minimum."""
    cost, Y, lambdas = oc.L1(2.0), np.array([[-1.0], [3.0]]), np.array([0.5, 0.5])
    assert oc.bregman_centroid(-Y, lambdas, cost).item() == 0.0
    found = oc.barycenter([Y[:1], Y[1:]], cost, lambdas, init=np.zeros((1, 1)))
    assert found.support.item() == pytest.approx(1.0)
    assert found.value < objective(np.zeros(1), lambdas, Y, cost) - 0.4


# -- Gaussians, with the entropy in the formula ------------------------------------------------------------------------


def gaussian(n, sigma, mean=0.0):
    return mean + sigma * norm.ppf((np.arange(n) + 0.5) / n)[:, None]


@pytest.mark.parametrize("epsilon", [0.05, 0.2])
@unfinished
def test_the_variance_of_one_gaussian_shrinks_by_epsilon(epsilon):
    Y = gaussian(200, 1.0)
    given = {"epsilon": epsilon, "epsilon_scale": "absolute", "max_steps": 300, "step_tol": 1e-8, "tol": 1e-6}
    found = oc.barycenter([Y], oc.SqL2(), n_points=100, init=gaussian(100, 0.7), **given)
    assert found.support.var() == pytest.approx(Y.var() - epsilon, abs=0.02)
    assert found.spread == pytest.approx(found.support.var() / Y.var(), rel=1e-9)


def test_two_gaussians_have_the_entropic_closed_form():
    epsilon, sigmas, lambdas = 0.2, np.array([1.0, 3.0]), np.array([0.4, 0.6])
    measures = [gaussian(200, sigma, mean) for sigma, mean in zip(sigmas, (-2.0, 3.0), strict=True)]
    variances = np.array([Y.var() for Y in measures])

    def condition(s):  # Σ λ_k cov_k = s², where the covariance with measure k solves c² + εc = s²σ_k²
        return lambdas @ np.sqrt(epsilon**2 + 4 * s * variances) - 2 * s - epsilon

    expected = brentq(condition, 0.5, 9.0)
    found = oc.barycenter(measures, oc.SqL2(), lambdas, n_points=120, epsilon=epsilon, epsilon_scale="absolute")
    assert found.support.mean() == pytest.approx(1.0, abs=1e-3)
    assert found.support.var() == pytest.approx(expected, rel=0.02)


def test_commuting_covariances_have_the_mean_of_the_roots():
    """Bures: the root of the barycenter's covariance is Σ λ_k Σ_k^½; the maps between scaled samples are linear."""
    Z = rng.normal(size=(60, 2))
    scales = np.array([[1.0, 4.0], [3.0, 0.5], [2.0, 2.0]])
    lambdas = np.array([0.2, 0.5, 0.3])
    found = oc.barycenter([Z * scale for scale in scales], oc.SqL2(), lambdas, init=Z, **SHARP)
    expected = Z * (lambdas @ scales)
    np.testing.assert_allclose(np.cov(found.support.T), np.cov(expected.T), rtol=0.02, atol=0.03)


@pytest.mark.peers
def test_pots_free_support_barycenter_is_met_at_small_epsilon(pot):
    start = rng.normal(size=(20, 2))
    measures = [rng.normal(size=(20, 2)), rng.normal(3.0, 0.5, size=(20, 2)), rng.normal(-1.0, 2.0, size=(20, 2))]
    lambdas, uniform = np.array([0.5, 0.2, 0.3]), np.full(20, 1 / 20)
    common = [uniform] * 3
    theirs = pot.lp.free_support_barycenter(measures, common, start, uniform, lambdas, numItermax=200, stopThr=1e-12)

    def exact(X):
        return lambdas @ [pot.emd2(uniform, uniform, 0.5 * pot.dist(X, Y)) for Y in measures]

    ours = oc.barycenter(measures, oc.SqL2(), lambdas, init=start, epsilon=2e-3, max_iter=50000)
    assert exact(ours.support) <= 1.01 * exact(theirs)
    polished = pot.lp.free_support_barycenter(measures, common, ours.support, uniform, lambdas, numItermax=1)
    np.testing.assert_allclose(ours.support, polished, atol=0.05)


# -- the inner minimum -------------------------------------------------------------------------------------------------


@separable
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_minimum_of_a_feature_is_that_of_scipys_search(cost, seed):
    draw = np.random.default_rng(seed)
    Y = draw.normal(size=(draw.integers(1, 9), 2)).round(1) * (draw.random() < 0.7)
    weights = draw.dirichlet(np.full(Y.shape[0], 0.5), size=4).T
    with Workers(1) as workers:
        problem = minimum.minimiser(cost, [check_samples(Y, "Y")])
        found = problem.minimum(weights, check_samples(np.zeros((4, 2)), "X"), workers)
    for i in range(4):
        for t in range(2):
            expected = best_quantile(np.append(Y[:, t], Y[0, t] + 1e-9), np.append(weights[:, i], 0.0), cost)
            assert found[i, t] == pytest.approx(expected, abs=1e-6)


@pytest.mark.peers
def test_the_minimum_of_the_k_overlap_is_that_of_cvxpy(cvxpy):
    """By ‖z‖²_ovk = min Σ_t z_t²/θ_t over 0 ≤ θ ≤ 1, Σθ ≤ k."""
    draw, cost = np.random.default_rng(3), oc.KOverlap(1.5, k=2)
    Y, weights = draw.normal(size=(6, 4)).round(1), draw.dirichlet(np.ones(6))
    x, theta = cvxpy.Variable(4), cvxpy.Variable((6, 4))
    squares = [sum(cvxpy.quad_over_lin(x[t] - y[t], theta[j, t]) for t in range(4)) for j, y in enumerate(Y)]
    value = sum(w * 0.5 * (cvxpy.sum_squares(x - y) + 1.5 * s) for w, y, s in zip(weights, Y, squares, strict=True))
    cvxpy.Problem(cvxpy.Minimize(value), [theta >= 0, theta <= 1, cvxpy.sum(theta, axis=1) <= 2]).solve()
    problem = minimum.minimiser(cost, [check_samples(Y, "Y")])
    with Workers(1) as workers:
        found = problem.minimum(weights[:, None], check_samples(np.zeros((1, 4)), "X"), workers)[0]
    assert objective(found, weights, Y, cost) <= objective(x.value, weights, Y, cost) + 1e-5
    np.testing.assert_allclose(found, x.value, atol=5e-3)


@named
def test_no_small_step_lowers_the_minimum(cost, monkeypatch):
    monkeypatch.setattr(minimum, "INNER", 3000)
    weights = np.random.default_rng(5).dirichlet(np.full(25, 0.3), size=3).T
    problem = minimum.minimiser(cost, [check_samples(B, "Y")])
    with Workers(1) as workers:
        found = problem.minimum(weights, check_samples(A[:3], "X"), workers)
    for x, w in zip(found, weights.T, strict=True):
        least = objective(x, w, B, cost)
        for step in rng.normal(size=(200, 3)) * rng.choice([1e-3, 1e-2, 0.1], size=(200, 1)):
            assert objective(x + step, w, B, cost) > least - 1e-7


# -- laws --------------------------------------------------------------------------------------------------------------


@unfinished
@named
def test_the_value_never_rises_and_is_the_mean_transport_cost(cost):
    found = oc.barycenter([A, B], cost, [0.3, 0.7], max_steps=15, step_tol=1e-4)
    assert np.all(np.diff(found.values) <= 0)
    assert found.value == found.values[-1] < found.values[0]
    costs = [
        oc.metrics.ot_cost(found.support, Y, cost=cost, epsilon=found.epsilon, epsilon_scale="absolute", tol=1e-6)
        for Y in (A, B)
    ]
    assert found.value == pytest.approx(0.3 * costs[0] + 0.7 * costs[1], rel=1e-4)


@named
def test_identical_measures_give_that_measure(cost):
    found = oc.barycenter([A, A[::-1]], cost, **SHARP)
    np.testing.assert_allclose(found.support, A, atol=1e-3)


@separable
def test_a_measure_with_all_the_weight_is_the_barycenter(cost):
    found = oc.barycenter([B, A], cost, [0.0, 2.0], init=A + 0.01, **SHARP)
    np.testing.assert_allclose(found.support, A, atol=1e-3)


@named
def test_two_points_have_the_closed_form(cost):
    """Of λh(x − y) + (1 − λ)h(x − z): under ½‖·‖² the mean, under a strong kink the heavier end."""
    y, z = np.array([[0.0, 1.0, 4.0]]), np.array([[2.0, 1.0, -3.0]])
    found = oc.barycenter([y, z], cost, [0.8, 0.2]).support[0]
    if isinstance(cost, oc.SqL2):
        np.testing.assert_allclose(found, [0.4, 1.0, 2.6], atol=1e-12)
    if isinstance(cost, oc.L1):  # x + γ(0.8 sign(x − y) − 0.2 sign(z − x)) = mean: 0.4 − 0.3, and 2.6 + 0.3
        np.testing.assert_allclose(found, [0.1, 1.0, 2.9], atol=1e-12)
    assert found[1] == 1.0
    strong = oc.barycenter([y, z], oc.L1(10.0), [0.8, 0.2]).support[0]
    assert strong.tolist() == y[0].tolist()


@unfinished
@separable
def test_it_moves_with_the_measures(cost):
    shift, init = np.array([5.0, -2.0, 0.3]), A[:10]
    found = oc.barycenter([A, B], cost, init=init, **FIVE_STEPS)
    with_shift = oc.barycenter([A + shift, B + shift], cost, init=init + shift, **FIVE_STEPS)
    np.testing.assert_allclose(with_shift.support, found.support + shift, atol=1e-5)


@unfinished
@separable
def test_the_order_of_measures_samples_and_points_does_not_matter(cost):
    found = oc.barycenter([A, B], cost, [0.3, 0.7], init=A[:10], **FIVE_STEPS)
    turned = oc.barycenter([B[::-1], A[::-1]], cost, [0.7, 0.3], init=A[:10][::-1], **FIVE_STEPS)
    np.testing.assert_allclose(turned.support[::-1], found.support, atol=1e-5)


@unfinished
def test_a_sample_of_weight_two_is_two_samples():
    twice = np.concatenate([A, A[:5]])
    weights = np.where(np.arange(30) < 5, 2.0, 1.0)
    given = {"init": A[:10], **FIVE_STEPS, "epsilon": 0.5, "epsilon_scale": "absolute"}
    one, two = oc.barycenter([twice, B], oc.L1(0.5), **given), oc.barycenter([(A, weights), B], oc.L1(0.5), **given)
    np.testing.assert_allclose(one.support, two.support, atol=1e-5)


def test_masses_of_the_points_are_kept_and_used():
    found = oc.barycenter([np.array([[0.0], [10.0]])], oc.SqL2(), masses=[3.0, 1.0], epsilon=1e-3)
    assert found.masses.tolist() == [0.75, 0.25]
    np.testing.assert_allclose(found.support.ravel(), [10 / 3, 10.0], atol=0.01)


@unfinished
@named
def test_sparse_and_dense_measures_give_the_same(cost):
    dense = [counts(20), counts(15, seed=1)]
    given = {**FIVE_STEPS, "max_steps": 2, "n_points": 8, "epsilon": 0.1}
    one = oc.barycenter(dense, cost, **given)
    two = oc.barycenter([sp.csr_array(rows) for rows in dense], cost, **given)
    mixed = oc.barycenter([sp.csr_matrix(dense[0]), dense[1]], cost, **given)
    assert sp.issparse(two.support)
    assert two.support.format == "csr"
    assert isinstance(mixed.support, np.ndarray)
    np.testing.assert_allclose(two.support.toarray(), one.support, atol=1e-6)
    np.testing.assert_allclose(mixed.support, one.support, atol=1e-6)
    assert two.value == pytest.approx(one.value, rel=1e-9)


@named
def test_where_all_measures_agree_the_points_agree_exactly(cost):
    measures = [sp.csr_array(counts(20)), sp.csr_array(counts(15, seed=1))]
    found = oc.barycenter(measures, cost, n_points=4, epsilon=0.05, step_tol=1e-3).support
    assert found[:, [3]].nnz == 0
    if cost in SEPARABLE:
        assert np.all(found[:, [5]].toarray() == 2.0)
    else:
        np.testing.assert_allclose(found[:, [5]].toarray(), 2.0, atol=1e-6)


def test_a_kink_keeps_zeros_that_the_mean_does_not():
    measures = [sp.csr_array(counts(40)), sp.csr_array(counts(40, seed=1)), sp.csr_array(counts(40, seed=2))]
    stored = [oc.barycenter(measures, cost, epsilon=0.05, step_tol=1e-4).support.nnz for cost in SEPARABLE]
    assert stored[1] < 0.7 * stored[0]
    assert stored[2] < 0.7 * stored[0]


def test_frozen_features_stay_as_they_are_in_the_start():
    cost = oc.L1(0.5, weights=[1.0, np.inf, 1.0])
    for wrap in (np.asarray, sp.csr_array):
        found = oc.barycenter([wrap(A), wrap(B)], cost, init=wrap(B[:7])).support
        dense = found.toarray() if sp.issparse(found) else found
        np.testing.assert_array_equal(dense[:, 1], B[:7, 1])
        assert np.all(dense[:, 0] != B[:7, 0])


def test_data_frames_and_anndata_come_back_as_such():
    anndata = pytest.importorskip("anndata", reason="it reads AnnData: install the extra `cells`")
    names = ["x", "y", "z"]
    frames = [pd.DataFrame(rows, columns=names) for rows in (A, B)]
    found = oc.barycenter(frames, oc.L1(0.5), n_points=9)
    assert isinstance(found.support, pd.DataFrame)
    assert list(found.support) == names
    assert found.support.shape == (9, 3)
    var = pd.DataFrame(index=names)
    cells = [anndata.AnnData(sp.csr_matrix(frame.to_numpy(np.float32)), var=var) for frame in frames]
    found = oc.barycenter(cells, oc.L1(0.5), n_points=9).support
    assert isinstance(found, anndata.AnnData)
    assert sp.issparse(found.X)
    assert found.X.dtype == np.float32
    assert list(found.var_names) == names
    assert found.n_obs == 9


def test_threads_do_not_change_the_result():
    one, two = (oc.barycenter([A, B], oc.STVS(0.5), n_jobs=jobs).support for jobs in (1, 2))
    np.testing.assert_array_equal(one, two)


def test_a_large_epsilon_pulls_the_points_together():
    spreads = [oc.barycenter([A], oc.SqL2(), epsilon=epsilon, step_tol=1e-4).spread for epsilon in (0.003, 0.03, 0.3)]
    assert spreads[0] > spreads[1] > spreads[2]
    assert spreads[0] > 0.95
    assert spreads[2] < 0.5


def test_the_result_says_how_it_ended():
    with pytest.warns(NotConvergedWarning, match="raise max_steps"):
        found = oc.barycenter([A, B], oc.SqL2(), max_steps=2)
    assert not found.converged
    assert found.n_iter == 2
    assert len(found.values) == 3
    with pytest.warns(NotConvergedWarning, match="couplings with measure 0"):
        oc.barycenter([A, B], oc.SqL2(), max_iter=2)
    found = oc.barycenter([A, B], oc.SqL2(), epsilon=0.1)
    assert found.converged
    assert found.message.startswith("Converged")
    assert len(found.reports) == 2


def test_progress_is_shown_where_it_is_asked_for(capsys):
    oc.barycenter([A, B], oc.SqL2(), verbose=True, step_tol=0.01)
    assert "mean transport cost" in capsys.readouterr().err
    oc.barycenter([A, B], oc.SqL2(), step_tol=0.01)
    assert capsys.readouterr().err == ""


# -- wrong input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"measures": []}, "measures must hold at least one measure"),
        ({"measures": A}, "measures must be a list of samples; got ndarray"),
        ({"measures": [A, np.ones((3, 2))]}, r"measures\[1\] must have the 3 features of measures\[0\]; got 2"),
        ({"measures": [A, np.full((3, 3), np.nan)]}, r"measures\[1\] must be finite"),
        ({"measures": [(A, [1.0, 2.0]), B]}, r"the weights of measures\[0\] must be one weight a sample"),
        ({"cost": "l1"}, "cost must be a cost"),
        ({"weights": [1.0, -1.0]}, "weights must be finite and not negative; got -1"),
        ({"weights": [1.0]}, r"weights must be one number a measure, shape \(2,\); got shape \(1,\)"),
        ({"weights": [0.0, 0.0]}, "weights must have a positive, finite sum"),
        ({"n_points": 0}, "n_points must be an integer ≥ 1; got 0"),
        ({"n_points": 56}, "n_points must be at most the 55 samples with mass to start from; got 56: give init"),
        ({"init": np.ones((4, 2))}, "init must have the 3 features"),
        ({"init": A[:4], "n_points": 5}, "n_points must be the number of rows of init, 4, or None; got 5"),
        ({"masses": [1.0, 1.0]}, "masses must be one weight a sample"),
        ({"max_steps": 0}, "max_steps must be an integer"),
        ({"step_tol": -1.0}, "step_tol must be a finite number"),
        ({"relax": 1.0}, "relax must not be given for a barycenter"),
        ({"reach": 1.0}, "reach must not be given for a barycenter"),
        ({"epsilon": 0.0}, "epsilon must be a finite number > 0"),
        ({"cost": oc.KOverlap(1.0, k=4)}, "k must be at most the number of features, 3"),
    ],
    ids=str,
)
def test_wrong_input_is_named(change, message):
    given = {"measures": [A, B], "cost": oc.L1(1.0), **change}
    with pytest.raises(InputError, match=message):
        oc.barycenter(given.pop("measures"), given.pop("cost"), **given)


def test_features_must_have_the_same_names():
    frames = [pd.DataFrame(A, columns=list("xyz")), pd.DataFrame(B, columns=list("xyw"))]
    with pytest.raises(FeatureMismatchError, match="1 absent: 'z'"):
        oc.barycenter(frames, oc.L1(1.0))
