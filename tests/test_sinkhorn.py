"""The solver: plans of POT, closed forms, and the laws that every solution obeys."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.linalg import sqrtm
from scipy.special import logsumexp
from scipy.stats import entropy

from occamap import L1, STVS, KOverlap, MongeMap, SqL2
from occamap._kernels import softmin
from occamap._validate import check_samples
from occamap._workers import Workers
from occamap.errors import NotConvergedWarning
from occamap.sinkhorn import RecomputedCost, Status, StoredCost, solve
from occamap.sinkhorn.epsilon import schedule
from occamap.sinkhorn.solve import log_weights

COSTS = [SqL2(), L1(0.7), STVS(0.7), KOverlap(0.7, k=2)]
STATISTICS = {"mean": np.mean, "median": np.median, "std": np.std, "max": np.max}
RULES = ["mean", "median", "std", "max", "absolute"]


def clouds(n: int, m: int, d: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), 1.2 * rng.normal(size=(m, d)) + 0.5


def masses(n: int, seed: int = 1, weighted: bool = True) -> np.ndarray:
    weights = np.random.default_rng(seed).random(n) * (np.arange(n) % 7 > 0) if weighted else np.ones(n)
    return weights / weights.sum()


def fit(X: Any, Y: Any, a: Any = None, b: Any = None, **parameters: Any) -> MongeMap:
    return MongeMap(**{"cost": SqL2(), "tol": 1e-11, **parameters}).fit(X, Y, a, b)


@pytest.mark.peers
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("epsilon", [0.03, 0.5])
def test_balanced_plan_and_potentials_are_those_of_pot(epsilon: float, weighted: bool, pot: Any) -> None:
    X, Y = clouds(40, 30)
    a, b = masses(40, 1, weighted), masses(30, 2, weighted)
    m = fit(X, Y, a, b, epsilon=epsilon)
    C, i, j = SqL2().pairwise(X, Y), a > 0, b > 0
    with np.errstate(divide="ignore"):
        options = {"method": "sinkhorn_log", "stopThr": 1e-13, "numItermax": 50_000, "log": True}
        plan, log = pot.sinkhorn(a, b, C, m.epsilon_, **options)
    np.testing.assert_allclose(m.plan(), plan, atol=1e-9 * plan.max(), rtol=1e-6)
    assert np.ptp(m.f_[i] / m.epsilon_ - (log["log_u"][i] - np.log(a[i]))) < 1e-8
    assert np.ptp(m.g_[j] / m.epsilon_ - (log["log_v"][j] - np.log(b[j]))) < 1e-8


@pytest.mark.peers
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reach", [0.3, 3.0, 50.0])
def test_unbalanced_plan_is_that_of_pot(reach: float, weighted: bool, pot: Any) -> None:
    X, Y = clouds(40, 30)
    a, b = masses(40, 1, weighted), masses(30, 2, weighted)
    m = fit(X, Y, a, b, reach=reach)
    held = np.ix_(a > 0, b > 0)  # POT divides by zero masses
    options, C = {"reg_type": "kl", "stopThr": 1e-14, "numItermax": 50_000}, SqL2().pairwise(X, Y)
    plan = pot.unbalanced.sinkhorn_unbalanced(a[a > 0], b[b > 0], C[held], m.epsilon_, reach, **options)
    ours = m.plan()
    assert plan.sum() < 0.99
    np.testing.assert_allclose(ours[held], plan, atol=1e-9 * plan.max(), rtol=1e-6)
    assert ours.sum() == pytest.approx(ours[held].sum(), rel=1e-12)


@pytest.mark.parametrize("cost", COSTS)
def test_one_point_to_one_and_to_many(cost: Any) -> None:
    X, Y = clouds(1, 12)
    b, C = masses(12), cost.pairwise(X, Y)[0]
    m = fit(X, Y[:1], cost=cost, reach=2.0)
    np.testing.assert_allclose(m.plan(), np.exp(-C[0] / (m.epsilon_ + 4.0)), rtol=1e-10)
    np.testing.assert_allclose(m.transform(X), Y[:1], atol=1e-12)
    m = fit(X, Y, None, b, cost=cost)
    np.testing.assert_allclose(m.plan()[0], b, atol=1e-13)
    np.testing.assert_allclose(m.f_, 0.5 * b @ C, rtol=1e-10)
    np.testing.assert_allclose(m.g_, C - 0.5 * b @ C, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(m.transform(X)[0], X[0] - cost.prox(b @ cost.grad(X - Y)), atol=1e-10)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 5.0])
@pytest.mark.parametrize(("left", "right"), [([[1.0]], [[1.7]]), ([[1.0, 0.3], [0.3, 0.8]], [[1.2, -0.4], [0.1, 0.7]])])
def test_gaussians(left: Any, right: Any, epsilon: float) -> None:
    """On a grid of step 0.4 with the density as weights, whose sums err by e^−30 and less where ε is not small."""
    d, shift, left, right = len(left), 2.0, np.array(left), np.array(right)
    grid = np.stack(np.meshgrid(*[np.linspace(-7, 7, 36)] * d), axis=-1).reshape(-1, d)
    X, Y, density = grid @ left.T, grid @ right.T + shift, np.exp(-0.5 * np.sum(grid**2, axis=1))
    m = fit(X, Y, density, density, epsilon=epsilon, epsilon_scale="absolute", tol=1e-10)
    A, B, one = left @ left.T, right @ right.T, np.eye(d)
    root = sqrtm(A)  # Janati et al. 2020, with our ½
    cross = 0.5 * (root @ sqrtm(4 * root @ B @ root + epsilon**2 * one) @ np.linalg.inv(root) - epsilon * one)
    x = np.random.default_rng(0).normal(size=(20, d)) @ left.T
    np.testing.assert_allclose(m.transform(x), shift + x @ np.linalg.inv(A) @ cross, atol=1e-6)
    value = 0.5 * (d * shift**2 + np.trace(A + B)) - np.trace(cross)
    assert np.sum(m.plan() * SqL2().pairwise(X, Y)) == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("tol", [1e-2, 1e-6])
def test_marginals_are_met_and_reported(cost: Any, tol: float) -> None:
    X, Y = clouds(50, 35)
    a, b = masses(50), masses(35, 2)
    m = fit(X, Y, a, b, cost=cost, tol=tol, epsilon=0.02)
    error = np.abs(m.plan().sum(axis=0) - b).sum()
    np.testing.assert_allclose(m.plan().sum(axis=1), a, atol=1e-15)
    assert error <= tol
    assert m.report_.errors[-1] == pytest.approx(error, abs=1e-13)
    assert (m.converged_, m.report_.status) == (True, Status.CONVERGED)
    assert m.n_iter_ == m.report_.n_iter == len(m.report_.errors)


@pytest.mark.parametrize("scale", [1e-120, 1e-3, 10.0, 1e120])
def test_scaling_the_data_scales_epsilon_and_the_potentials(scale: float) -> None:
    X, Y = clouds(30, 20)
    plain, scaled = fit(X, Y), fit(scale * X, scale * Y)
    assert scaled.epsilon_ == pytest.approx(scale**2 * plain.epsilon_, rel=1e-10)
    np.testing.assert_allclose(scaled.f_ / scale**2, plain.f_, atol=1e-8)
    np.testing.assert_allclose(scaled.transform(scale * X) / scale, plain.transform(X), atol=1e-8)


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("reach", [None, 2.0])
def test_swapping_the_samples_swaps_the_potentials(cost: Any, reach: float | None) -> None:
    X, Y = clouds(30, 20)
    a, b = masses(30), masses(20, 2)
    there, back = fit(X, Y, a, b, cost=cost, reach=reach), fit(Y, X, b, a, cost=cost, reach=reach)
    np.testing.assert_allclose(there.f_, back.g_, atol=1e-8)
    np.testing.assert_allclose(there.g_, back.f_, atol=1e-8)


@pytest.mark.parametrize("rule", RULES)
def test_a_row_twice_is_a_row_of_twice_the_weight_and_one_without_weight_is_none(rule: str) -> None:
    X, Y = clouds(6, 9)
    far = np.vstack([X, X[:1] + 100])
    weighted = fit(far, Y, [2, 1, 1, 1, 1, 1, 0], epsilon_scale=rule)
    twice = fit(X[[0, 1, 2, 3, 4, 5, 0]], Y, epsilon_scale=rule)
    assert twice.epsilon_ == pytest.approx(weighted.epsilon_, rel=1e-10)
    np.testing.assert_allclose(twice.f_, weighted.f_[[0, 1, 2, 3, 4, 5, 0]], atol=1e-8)
    np.testing.assert_allclose(twice.transform(far), weighted.transform(far), atol=1e-8)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_the_rows_does_not_matter(rule: str, seed: int) -> None:
    X, Y = clouds(6, 6, seed=seed)  # an even number of costs: their median lies between two of them
    order = np.random.default_rng(seed)
    p, q = order.permutation(6), order.permutation(6)
    plain, permuted = fit(X, Y, epsilon_scale=rule), fit(X[p], Y[q], epsilon_scale=rule)
    assert permuted.epsilon_ == pytest.approx(plain.epsilon_, rel=1e-10)
    np.testing.assert_allclose(permuted.f_, plain.f_[p], atol=1e-8)
    np.testing.assert_allclose(permuted.g_, plain.g_[q], atol=1e-8)


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("rule", STATISTICS)
def test_epsilon_is_a_multiple_of_a_statistic_of_the_costs(cost: Any, rule: str) -> None:
    X, Y = clouds(21, 15)
    m = fit(X, Y, cost=cost, epsilon=0.3, epsilon_scale=rule)
    assert m.epsilon_ == pytest.approx(0.3 * STATISTICS[rule](cost.pairwise(X, Y)), rel=1e-9)
    assert rule in m.report_.epsilon_rule
    assert fit(X, Y, cost=cost, epsilon=0.3, epsilon_scale="absolute").epsilon_ == 0.3


@pytest.mark.parametrize("wanted", [3.0, 10.0, 50.0])
def test_perplexity_is_the_number_of_targets_asked_for(wanted: float) -> None:
    X, Y = clouds(80, 70)
    m = fit(X, Y, cost=L1(0.7), epsilon=wanted, epsilon_scale="perplexity")
    p = m.weights(X)
    found = np.exp(-np.sum(p * np.log(np.maximum(p, 1e-300)), axis=1)).mean()
    assert found == pytest.approx(wanted, rel=0.01)
    assert m.report_.effective_targets == pytest.approx(found, rel=1e-9)


def one_gene(n: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Most cells are exactly 0."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(2, 0.3, (n, 1)), rng.normal(2, 0.3, (m, 1))
    return X * (rng.random((n, 1)) < 0.1), Y * (rng.random((m, 1)) < 0.3)


def repeated(X: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return X, np.repeat(Y, 15, axis=0)


def uneven(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random(n) ** 30


FEW, EACH, EQUAL = "since there (is|are) only", "targets for each source sample", "allow hardly fewer"
SHAPES = {  # samples and weights, and what the report says of ten effective targets
    "80 to 1500": ((*clouds(80, 1500), None, None), EACH),
    "80 to 800": ((*clouds(80, 800), None, None), EACH),
    "2 to 1500": ((*clouds(2, 1500), None, None), EACH),
    "1500 to 80": ((*clouds(1500, 80), None, None), None),
    "10 to 10": ((*clouds(10, 10), None, None), FEW),
    "2 to 2": ((*clouds(2, 2), None, None), FEW),
    "3 to 2": ((*clouds(3, 2), None, None), FEW),
    "1 to 5": ((*clouds(1, 5), None, None), FEW),
    "5 to 1": ((*clouds(5, 1), None, None), FEW),
    "1 to 30": ((*clouds(1, 30), None, None), EACH),
    "one gene": ((*one_gene(200, 300), None, None), EQUAL),
    "equal targets": ((*repeated(*clouds(60, 12)), None, None), EQUAL),
    "one target, often": ((*repeated(*clouds(60, 1)), None, None), EQUAL),
    "all equal": ((np.ones((20, 3)), np.ones((30, 3)), None, None), "all costs are 0"),
    "the same cells": ((*clouds(40, 1)[:1] * 2, None, None), None),
    "uneven sources": ((*clouds(80, 70), uneven(80, 0), None), EACH),
    "uneven targets": ((*clouds(80, 70), None, uneven(70, 1)), "since by their weights"),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_ten_effective_targets_or_a_nearby_number_for_samples_of_any_shape(shape: str) -> None:
    """No error and no warning, the report gives the number and the reason, and it is the number of the weights."""
    (X, Y, a, b), reason = SHAPES[shape]
    m = fit(X, Y, a, b, cost=L1(0.3), epsilon=10, epsilon_scale="perplexity", relax=1.0, tol=1e-4)
    report, weights = m.report_, m.weights(X)
    number = float(m.a_ @ np.exp(entropy(weights, axis=1)))
    assert m.converged_
    assert np.isfinite(m.displacement(X).toarray()).all()
    assert report.effective_targets == pytest.approx(number, rel=1e-6)
    if reason is None:
        assert report.epsilon_rule == "perplexity 10"
        assert number == pytest.approx(10, rel=0.05)
    else:
        sentence = r"perplexity 10, (raised|lowered) to ([\d.,]+) effective targets?, (since .*)"
        parts = re.fullmatch(sentence, report.epsilon_rule)
        assert parts is not None
        assert parts[1] == ("raised" if number > 10 else "lowered")
        assert float(parts[2].replace(",", "")) == pytest.approx(number, rel=0.01)
        assert re.search(reason, parts[3])
        assert report.epsilon_rule in str(report)
    again = fit(X, Y, a, b, cost=L1(0.3), epsilon=10, epsilon_scale="perplexity", relax=1.0, tol=1e-4, n_jobs=2)
    assert (again.epsilon_, again.g_.tobytes()) == (m.epsilon_, m.g_.tobytes())


@pytest.mark.parametrize(("n", "m"), [(80, 1500), (30, 700), (2, 60), (1, 12)])
def test_balanced_masses_bound_the_effective_targets_from_below(n: int, m: int) -> None:
    X, Y = clouds(n, m)
    fewest, most = m / n, m
    for epsilon in (1e-2, 1e-1, 1.0, 100.0):
        number = fit(X, Y, epsilon=epsilon, tol=1e-6).report_.effective_targets
        assert fewest * (1 - 1e-3) <= number <= most * (1 + 1e-9)
    nearby = fit(X, Y, epsilon=1.5, epsilon_scale="perplexity", tol=1e-4).report_.effective_targets
    assert nearby == pytest.approx(min(2 * fewest, (fewest + most) / 2), rel=0.01)


@pytest.mark.parametrize("reach", [0.3, 3.0, 50.0])
def test_unbalanced_masses_may_have_fewer_effective_targets(reach: float) -> None:
    m = fit(*clouds(60, 900), epsilon=10, epsilon_scale="perplexity", reach=reach, tol=1e-4)
    assert m.converged_
    assert 9.5 < m.report_.effective_targets < 1.2 * 900 / 60
    assert (m.report_.epsilon_rule == "perplexity 10") == (m.report_.effective_targets < 10.5)


@pytest.mark.parametrize("wanted", [1.0, 1.5, 12.0, 100.0])
def test_repeated_targets_have_a_number_near_the_one_wanted(wanted: float) -> None:
    X, Y = clouds(20, 4)
    found = fit(X, np.repeat(Y, 3, axis=0), epsilon=wanted, epsilon_scale="perplexity", tol=1e-4).report_
    assert 3 <= found.effective_targets < 12
    assert found.epsilon_rule.startswith(f"perplexity {wanted:g}, {'raised' if wanted < 3 else 'lowered'} to")


def test_an_epsilon_near_the_fewest_targets_is_not_smaller_than_it_needs_to_be() -> None:
    X, Y = one_gene(200, 300)
    m = fit(X, Y, cost=L1(0.3), epsilon=10, epsilon_scale="perplexity", tol=1e-4)
    fewest = fit(X, Y, cost=L1(0.3), epsilon=1e-3 * m.epsilon_, epsilon_scale="absolute", tol=1e-4).report_
    assert fewest.effective_targets <= 1.01 * m.report_.effective_targets <= 1.01 * 1.11 * fewest.effective_targets


@pytest.mark.filterwarnings("ignore::occamap.errors.NotConvergedWarning")
@pytest.mark.parametrize("cost", COSTS)
def test_results_are_finite_over_six_decades_of_epsilon(cost: Any) -> None:
    X, Y = clouds(60, 50)
    for epsilon in 10.0 ** np.arange(-4, 3):
        m = fit(X, Y, cost=cost, epsilon=epsilon, tol=1e-4)
        for numbers in (m.f_, m.g_, m.plan(), m.transform(3 * X)):
            assert np.isfinite(numbers).all()
        np.testing.assert_allclose(m.plan().sum(axis=1), 1 / 60, rtol=1e-9)


@pytest.mark.parametrize(("epsilon", "max_iter"), [(0.003, 20), (0.003, 50), (1e-4, 700)])
def test_not_converging_is_a_warning_with_the_remedy_and_the_error_of_the_plan(epsilon: float, max_iter: int) -> None:
    remedy = rf"max_iter={max_iter} .*tol=1e-06.*max_iter.*epsilon.*tol"
    with pytest.warns(NotConvergedWarning, match=remedy) as caught:
        m = fit(*clouds(80, 70), epsilon=epsilon, max_iter=max_iter, tol=1e-6)
    assert len(caught) == 1
    assert (m.converged_, m.report_.status) == (False, Status.MAX_ITER)
    assert len(m.report_.errors) == m.n_iter_ == max_iter
    error = np.abs(m.plan().sum(axis=0) - 1 / 70).sum()
    assert f"the marginal error is {error:.2g}," in m.report_.message


def test_acceleration_saves_two_thirds_of_the_iterations() -> None:
    X, Y = clouds(300, 300, seed=3)
    C = SqL2().pairwise(X, Y)
    problem = StoredCost(C), *[np.full(300, 1 / 300)] * 2, schedule(0.003 * C.mean(), C.mean())
    with Workers(2) as workers:
        fast, plain = (solve(*problem, max_iter=20_000, workers=workers, accelerate=on) for on in (True, False))
    assert fast.status is plain.status is Status.CONVERGED
    assert 3 * len(fast.errors) <= len(plain.errors)
    plans = [np.exp((s.f[:, None] + s.g - C) / s.epsilon) / C.size for s in (fast, plain)]
    assert np.abs(plans[0] - plans[1]).sum() < 0.01


def test_a_warm_start_takes_fewer_iterations() -> None:
    X, Y = clouds(100, 80)
    m = fit(X, Y, epsilon=0.01, tol=1e-8, warm_start=True)
    g = m.g_
    assert m.fit(X, Y).n_iter_ == 1
    np.testing.assert_allclose(m.g_, g, atol=1e-12)
    cold = fit(1.001 * X, Y, epsilon=0.01, tol=1e-8)
    assert m.fit(1.001 * X, Y).n_iter_ < 0.8 * cold.n_iter_
    np.testing.assert_allclose(m.g_, cold.g_, atol=1e-6)


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array])
def test_costs_computed_again_give_the_same_potentials(cost: Any, wrap: Any) -> None:
    X, Y = (wrap(np.where(np.abs(Z) > 0.8, Z, 0.0)) for Z in clouds(600, 500))
    again = RecomputedCost(cost, check_samples(X, "X"), check_samples(Y, "Y"))
    assert len(list(again.spans())) > 1
    with Workers(2) as workers:
        options: Any = masses(600), masses(500, 2), [0.5]
        first, second = (solve(c, *options, workers=workers) for c in (again, StoredCost(cost.pairwise(X, Y))))
    np.testing.assert_allclose(first.f, second.f, rtol=0, atol=1e-12)
    np.testing.assert_allclose(first.g, second.g, rtol=0, atol=1e-12)


@pytest.mark.parametrize("reach", [None, 2.0])
def test_the_number_of_threads_does_not_change_a_bit(reach: float | None) -> None:
    X, Y = clouds(1000, 400)
    maps = [fit(X, Y, cost=L1(0.7), reach=reach, tol=1e-6, n_jobs=jobs) for jobs in (1, 2, 4)]
    one, two, four = ((m.f_.tobytes(), m.g_.tobytes(), m.transform(X).tobytes()) for m in maps)
    assert one == two == four


def test_the_exponential_is_right_to_a_few_units_in_the_last_place() -> None:
    x = np.r_[np.linspace(-699.9, 700, 200_001), np.random.default_rng(0).normal(size=10_000), 0.0]
    ours = np.array([softmin.exp(value) for value in x])
    assert np.max(np.abs(ours / np.exp(x) - 1)) < 3.5 * np.finfo(float).eps
    assert [softmin.exp(value) for value in (-701.0, -1e300)] == [0.0, 0.0]
    assert softmin.exp(1e9) == softmin.exp(700.0)


@pytest.mark.parametrize("damping", [1.0, 0.3])
def test_a_sweep_does_not_depend_on_the_potential_that_it_starts_from(damping: float) -> None:
    rng = np.random.default_rng(0)
    C, g, b, a, epsilon = rng.gamma(2.0, size=(40, 50)), rng.normal(size=50), masses(50), masses(40, 2), 0.01
    log_b = log_weights(b)
    exact = -epsilon * damping * logsumexp((g - C) / epsilon, axis=1, b=b)
    for start in (exact, exact + 0.1 * epsilon, np.zeros(40), np.full(40, 1e6), np.full(40, -1e6)):
        f, column = start.copy(), np.zeros(50)
        softmin.sweep(C, np.zeros(40), g, log_b, a, epsilon, damping, 0.0, f, column, np.empty(50))
        np.testing.assert_allclose(f, exact, rtol=1e-11)
        plan = a[:, None] * b * np.exp((exact[:, None] + g - C) / epsilon)
        np.testing.assert_allclose(column, plan.sum(axis=0), rtol=1e-9, atol=1e-300)
        out = np.empty(40)
        softmin.perplexities(C, g, log_b, epsilon, start, out)
        weights = b * np.exp((exact[:, None] / damping + g - C) / epsilon)
        np.testing.assert_allclose(out, np.exp(entropy(weights, axis=1)), rtol=1e-9)
