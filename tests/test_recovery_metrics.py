"""Metrics of recovery, agreement and ranking, against scipy, scikit-learn, closed forms and the definitions."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.stats import linregress
from sklearn.metrics import mean_squared_error
from sklearn.metrics import r2_score as sklearn_r2

from occamap.errors import InputError
from occamap.metrics import density, nmse, pearson_r, pearson_r2, r2_score, rbo, rbo_scores, support_error

rng = np.random.default_rng(0)
finite = st.floats(-1e6, 1e6, allow_subnormal=False)
matrices = hnp.arrays(np.float64, st.tuples(st.integers(1, 6), st.integers(1, 6)), elements=finite)


@given(matrices)
def test_nmse_is_scikit_learns_mean_squared_error_dense_and_sparse(truth):
    predicted = truth[::-1] * 0.5
    expected = mean_squared_error(truth.ravel(), predicted.ravel())
    assert nmse(truth, predicted) == pytest.approx(expected, rel=1e-12)
    assert nmse(sp.csr_array(truth), sp.csr_array(predicted)) == pytest.approx(expected, rel=1e-12)
    assert nmse(truth, sp.csr_array(predicted)) == pytest.approx(expected, rel=1e-12)


@given(matrices, st.integers(0, 2**32 - 1))
def test_support_error_follows_its_definition(moves, seed):
    support = np.random.default_rng(seed).random(moves.shape) < 0.5
    shares = []
    for row, mask in zip(moves, support, strict=True):
        total = float(np.sum((row / (np.abs(row).max() or 1)) ** 2))
        shares.append(float(np.sum((row[~mask] / (np.abs(row).max() or 1)) ** 2)) / total if total else 0.0)
    assert support_error(moves, support) == pytest.approx(np.mean(shares), abs=1e-12)
    assert support_error(sp.csr_array(moves), support) == pytest.approx(np.mean(shares), abs=1e-12)
    assert support_error(moves, support[0]) == pytest.approx(support_error(moves, np.tile(support[0], (len(moves), 1))))


def test_support_error_is_zero_on_the_support_and_one_off_it():
    moves = rng.normal(size=(5, 4))
    on = np.array([True, True, False, False])
    assert support_error(moves * on, on) == 0
    assert support_error(moves * ~on, on) == 1
    assert support_error(1e-200 * moves, on) == pytest.approx(support_error(moves, on))
    assert support_error(np.zeros((3, 4)), on) == 0


def test_float32_is_taken_in_float64():
    large = np.full((1, 2), 3e38, dtype=np.float32)
    assert np.isfinite(nmse(large, -large))
    assert np.isfinite(nmse(sp.csr_array(large), sp.csr_array(-large)))


def test_density_counts_what_is_above_the_threshold():
    moves = np.array([[0.0, 1e-9, 1e-7, -2.0]])
    assert density(moves) == 0.5
    assert density(sp.csr_array(moves)) == 0.5
    assert density(moves, tol=0) == 0.75


def test_the_two_things_called_r2_are_scipys_and_scikit_learns():
    truth = rng.normal(size=40)
    predicted = 3 + 0.5 * truth + 0.1 * rng.normal(size=40)
    fit = linregress(truth, predicted)
    assert pearson_r(truth, predicted) == pytest.approx(fit.rvalue)
    assert pearson_r2(truth, predicted) == pytest.approx(fit.rvalue**2)
    assert r2_score(truth, predicted) == pytest.approx(sklearn_r2(truth, predicted))
    assert r2_score(1e200 * truth, 1e200 * predicted) == pytest.approx(sklearn_r2(truth, predicted))
    assert pearson_r(1e-200 * truth, 1e200 * predicted) == pytest.approx(fit.rvalue)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: pearson_r([1.0, 1.0], [1.0, 2.0]), "truth must not be constant"),
        (lambda: pearson_r2([1.0, 2.0], [3.0, 3.0]), "predicted must not be constant"),
        (lambda: r2_score([2.0, 2.0], [1.0, 2.0]), "truth must not be constant"),
        (lambda: r2_score([1.0, 2.0], [1.0, 2.0, 3.0]), "as long as truth"),
        (lambda: r2_score([1.0, np.nan], [1.0, 2.0]), "finite"),
        (lambda: r2_score([[1.0, 2.0]], [1.0, 2.0]), "vector"),
        (lambda: nmse(np.ones((2, 3)), np.ones((3, 3))), "as many samples"),
        (lambda: nmse(np.ones((2, 3)), np.ones((2, 2))), "feature"),
        (lambda: support_error(np.ones((2, 3)), [True, False]), "support must be True or False"),
        (lambda: support_error(np.ones((2, 3)), [1, 0, 1]), "support must be True or False"),
        (lambda: density(np.ones((2, 3)), tol=-1), "tol"),
        (lambda: rbo("abc", ["a"]), "list of items"),
        (lambda: rbo(["a", "a"], ["a"]), "comes twice"),
        (lambda: rbo([], ["a"]), "at least one item"),
        (lambda: rbo(["a"], [["a"]]), "items or sets"),
        (lambda: rbo(np.array(5), ["a"]), "list of items"),
        (lambda: rbo([(1, [2])], ["a"]), "items or sets"),
        (lambda: rbo(["a"], ["a"], p=1), "below 1"),
        (lambda: rbo(["a"], ["a"], p=0), "p must"),
        (lambda: rbo_scores([1.0, 2.0], [1.0]), "as long as first"),
        (lambda: rbo_scores([1.0, np.nan], [1.0, 2.0]), "without NaN"),
        (lambda: rbo_scores([0.0, 0.0, 0.0], [1.0, 2.0, 3.0], depth=2), "tie for the first place"),
        (lambda: rbo_scores([0.0, 1.0], [1.0, 2.0], depth=0), "depth"),
    ],
)
def test_bad_input_is_refused_with_the_argument_named(call, told):
    with pytest.raises(InputError, match=told):
        call()


# -- rank-biased overlap ---------------------------------------------------------------------------------------


def definition(first: list[set], second: list[set], p: float, depth: int) -> float:
    """(1 − p) Σ p^(d−1) A_d over the first `depth` places, written out: a tie enters at the first of its places."""
    def top(ranking: list[set], d: int) -> set:
        found, place = set(), 1
        for group in ranking:
            if place <= d:
                found |= group
            place += len(group)
        return found

    total = 0.0
    for d in range(1, depth + 1):
        s, t = top(first, d), top(second, d)
        total += (1 - p) * p ** (d - 1) * 2 * len(s & t) / (len(s) + len(t))
    return total


def webber(first: list, second: list, p: float) -> tuple[float, float, float]:
    """Equations 11, 30 and 23 of the paper, for rankings of one length without ties."""
    k = len(first)
    overlap = [len(set(first[:d]) & set(second[:d])) for d in range(1, k + 1)]
    last = overlap[-1]
    series = sum((x - last) * p**d / d for d, x in enumerate(overlap, start=1))
    least = (1 - p) / p * (series - last * np.log(1 - p))
    f = 2 * k - last
    tails = 2 * k * sum(p**d / d for d in range(k + 1, f + 1))
    seen = last * (np.log(1 / (1 - p)) - sum(p**d / d for d in range(1, f + 1)))
    residual = 2 * p**k - p**f - (1 - p) / p * (tails + seen)
    extrapolated = last / k * p**k + (1 - p) / p * sum(x / d * p**d for d, x in enumerate(overlap, start=1))
    return least, residual, extrapolated


@given(st.permutations(range(12)), st.permutations(range(12)), st.integers(1, 10), st.floats(0.05, 0.98))
def test_rbo_without_ties_is_webbers(first, second, depth, p):
    found = rbo(first[:depth], second[:depth], p)
    assert found == pytest.approx(webber(first[:depth], second[:depth], p), abs=1e-10)


@given(st.permutations(range(14)), st.permutations(range(14)), st.integers(0, 2**32 - 1), st.floats(0.05, 0.9))
def test_rbo_with_ties_is_the_definition_of_complete_rankings(first, second, seed, p):
    """Two rankings of the same items agree fully from their end on, so the whole sum is known."""
    draw = np.random.default_rng(seed)
    groups = []
    for ranking in (first, second):
        cuts = np.sort(draw.choice(np.arange(1, 14), size=draw.integers(0, 13), replace=False))
        groups.append([set(part) for part in np.split(np.array(ranking), cuts)])
    found = rbo(*groups, p)
    whole = definition(*groups, p, 14) + p**14
    assert found.extrapolated == pytest.approx(whole, abs=1e-10)
    assert found.min <= whole + 1e-10
    assert found.min + found.residual >= whole - 1e-10


@given(st.permutations(range(30)), st.permutations(range(30)), st.integers(2, 12), st.floats(0.3, 0.9))
def test_the_bounds_hold_whatever_follows(first, second, depth, p):
    found = rbo(first[:depth], second[:depth], p)
    whole = rbo(first, second, p).extrapolated  # complete
    assert found.min - 1e-10 <= whole <= found.min + found.residual + 1e-10


def test_rbo_of_the_same_of_disjoint_and_of_uneven_rankings():
    assert rbo(list("abc"), list("abc")).extrapolated == pytest.approx(1)
    assert rbo(list("abc"), list("def")).extrapolated == 0
    assert rbo(list("ab"), list("abxyz")) == rbo(list("ab"), list("ab"))
    assert rbo(np.array(["a", "b"]), ["a", "b"]).extrapolated == pytest.approx(1)


@pytest.mark.parametrize("p", [1e-9, 0.5, 0.999, 0.9999999, 1 - 1e-12])
def test_every_p_is_fast_and_exact(p):
    """Two places swapped: A_1 = 0, and 1 from the second on."""
    found = rbo([1, 2], [2, 1], p)
    assert found.extrapolated == pytest.approx(p, rel=1e-12)
    assert found.min + found.residual == pytest.approx(p, rel=1e-9)
    # min = (1 − p) (p + 2 Σ_{d > 2} p^(d−1) / d), with Σ p^d / d = −log(1 − p)
    tail = sum(p ** (d - 1) / d for d in range(3, 60)) if p < 0.6 else (-np.log1p(-p) - p - p * p / 2) / p
    assert found.min == pytest.approx((1 - p) * (p + 2 * tail), rel=1e-6, abs=1e-15)
    assert type(rbo([1], [1], np.float32(0.5)).extrapolated) is float


@pytest.mark.parametrize("p", [0.5, 0.9, 0.95, 0.98, 0.999])
@pytest.mark.parametrize("depth", [150, 200, 1000])
def test_long_rankings_have_the_bounds_of_their_sums(depth, p):
    """Reversed, two rankings share 2d − n items in the first d places; if nothing new is shared, n of d after them."""
    found, d = rbo(list(range(depth)), list(range(depth))[::-1], p), np.arange(1, 60_000)
    shared = np.clip(2 * d - depth, 0, depth)
    least = float((1 - p) * np.sum(p ** (d - 1.0) * shared / d))
    assert found.min == pytest.approx(least, abs=1e-12)
    assert found.min + found.residual == pytest.approx(found.extrapolated, abs=1e-12)  # all items are known


def test_long_rankings_end_at_one():
    assert rbo_scores(np.arange(20_000.0), np.arange(20_000.0)).extrapolated <= 1


def test_scores_rank_the_largest_first_and_ties_enter_together():
    markers = np.array([5.0, 4.0, 3.0, 0.1, 0.05, 0.01])
    sparse = np.array([2.0, 1.0, 0.0, 0.0, 0.0, -1.0])
    expected = rbo([0, 1, 2], [0, 1, {2, 3, 4}, 5])
    assert rbo_scores(markers, sparse, depth=3) == expected
    assert rbo_scores(markers, sparse) == rbo([0, 1, 2, 3, 4, 5], [0, 1, {2, 3, 4}, 5])
