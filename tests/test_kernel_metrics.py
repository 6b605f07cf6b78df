"""MMD and energy distance, against SciPy, scikit-learn and closed forms, and by the laws that they obey."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats
from scipy.spatial.distance import cdist, pdist
from sklearn.metrics.pairwise import rbf_kernel

from occamap.errors import FeatureMismatchError, InputError
from occamap.metrics import energy_distance, kernel, mmd

rng = np.random.default_rng(0)
X, Y = rng.normal(size=(40, 5)), rng.normal(0.5, 1.5, size=(30, 5))
a, b = rng.random(40), rng.random(30)
METRICS = [energy_distance, mmd, partial(mmd, bandwidth=0.7), partial(mmd, bandwidth=(1, 3))]

values = st.floats(-1e3, 1e3).map(lambda value: round(value, 3))
vectors = hnp.arrays(np.float64, st.integers(1, 8), elements=values)
wild = st.floats(-1e140, 1e140) | st.sampled_from([0.0, 1.0])
anything = hnp.arrays(np.float64, st.tuples(st.integers(1, 5), st.just(3)), elements=wild)


def sklearn_mmd(X, Y, a, b, sigma):
    """The definition on scikit-learn's kernel."""
    a, b, gamma = a / a.sum(), b / b.sum(), 1 / (2 * sigma**2)
    return a @ rbf_kernel(X, X, gamma) @ a + b @ rbf_kernel(Y, Y, gamma) @ b - 2 * a @ rbf_kernel(X, Y, gamma) @ b


# -- oracles ---------------------------------------------------------------------------------------------------


@given(vectors, vectors, st.integers(0, 2**32 - 1))
def test_in_one_dimension_the_energy_distance_is_the_square_of_scipys(x, y, seed):
    draw = np.random.default_rng(seed)
    u, v = draw.random(x.size) + 0.01, draw.random(y.size) + 0.01
    found = energy_distance(x[:, None], y[:, None], u, v)
    assert found == pytest.approx(stats.energy_distance(x, y, u, v) ** 2, rel=1e-9, abs=1e-9)


def test_in_more_dimensions_the_energy_distance_is_that_of_scipys_distances():
    u, v = a / a.sum(), b / b.sum()
    expected = 2 * u @ cdist(X, Y) @ v - u @ cdist(X, X) @ u - v @ cdist(Y, Y) @ v
    assert energy_distance(X, Y, a, b) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("sigma", [0.1, 1.0, 30.0])
def test_mmd_is_that_of_scikit_learns_kernel(sigma):
    assert mmd(X, Y, a, b, bandwidth=sigma) == pytest.approx(sklearn_mmd(X, Y, a, b, sigma), rel=1e-10)


def test_the_default_bandwidth_is_the_median_distance_among_samples_of_y():
    median = float(np.median(pdist(Y)))
    assert mmd(X, Y) == pytest.approx(mmd(X, Y, bandwidth=median), rel=1e-12)
    assert mmd(X, Y, a, b) == pytest.approx(mmd(X, Y, a, b, bandwidth=median), rel=1e-12)
    repeated = np.repeat(Y, 5, axis=0)
    distances = pdist(repeated)
    assert mmd(X, repeated) == pytest.approx(mmd(X, Y, bandwidth=float(np.median(distances[distances > 0]))))


def test_several_bandwidths_are_averaged():
    one, two = (sklearn_mmd(X, Y, np.ones(40), np.ones(30), sigma) for sigma in (0.5, 4.0))
    assert mmd(X, Y, bandwidth=[0.5, 4.0]) == pytest.approx((one + two) / 2)
    assert mmd(X, Y, bandwidth=np.array([2.0])) == mmd(X, Y, bandwidth=2)


def test_mmd_between_two_normal_laws():
    """E k = (σ² / (σ² + s² + t²))^(d/2) exp(−‖m‖² / 2(σ² + s² + t²)) for N(0, s²) and N(m, t²) in d dimensions."""
    d, shift, s, t, sigma, n = 3, 1.0, 1.0, 1.5, 2.0, 3000

    def expected(u, v, m):
        wide = sigma**2 + u**2 + v**2
        return (sigma**2 / wide) ** (d / 2) * np.exp(-(m**2) / (2 * wide))

    truth = expected(s, s, 0) + expected(t, t, 0) - 2 * expected(s, t, shift)
    draw = np.random.default_rng(1)
    first, second = draw.normal(0, s, (n, d)), draw.normal([shift, 0, 0], t, (n, d))
    assert mmd(first, second, bandwidth=sigma) == pytest.approx(truth, rel=0.05)


def test_energy_distance_of_two_normal_laws():
    """x − y of N(0, 1) and N(1, 1) is N(−1, 2), and |x − y| folded normal; quantiles stand for samples."""
    apart, own = (stats.foldnorm(shift / np.sqrt(2), scale=np.sqrt(2)).mean() for shift in (1, 0))
    x = stats.norm.ppf((np.arange(2000) + 0.5) / 2000)[:, None]
    assert energy_distance(x, x + 1) == pytest.approx(2 * apart - 2 * own, rel=1e-3)


# -- laws ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", METRICS)
def test_equal_measures_are_at_zero_and_others_are_not(metric):
    shuffled = rng.permutation(40)
    assert metric(X, X.copy()) == pytest.approx(0, abs=1e-13)
    assert metric(X, X[shuffled], a, a[shuffled]) == pytest.approx(0, abs=1e-13)
    assert metric(X, X + 0.1) > 1e-4


def test_both_are_symmetric_for_a_fixed_bandwidth():
    assert energy_distance(X, Y, a, b) == pytest.approx(energy_distance(Y, X, b, a), rel=1e-12)
    assert mmd(X, Y, a, b, bandwidth=1.3) == pytest.approx(mmd(Y, X, b, a, bandwidth=1.3), rel=1e-12)
    assert mmd(X, Y) != pytest.approx(mmd(Y, X), rel=1e-3)


@pytest.mark.parametrize("metric", METRICS)
def test_weights_are_repetitions(metric):
    counts = rng.integers(0, 4, size=40)
    again = metric(np.repeat(X, counts, axis=0), Y)
    assert metric(X, Y, counts) == pytest.approx(again, rel=1e-11)
    assert metric(X, Y, 7.0 * counts) == pytest.approx(again, rel=1e-11)
    some = np.arange(30) % 3 > 0
    assert metric(X, Y, None, some) == pytest.approx(metric(X, Y[some]), rel=1e-12)


def test_scores_move_with_the_samples():
    shift, (axes, _) = rng.normal(size=5), np.linalg.qr(rng.normal(size=(5, 5)))
    for metric in METRICS:
        assert metric(X + shift, Y + shift) == pytest.approx(metric(X, Y), rel=1e-10)
        assert metric(X @ axes, Y @ axes) == pytest.approx(metric(X, Y), rel=1e-10)
    for scale in (1e-200, 1e-20, 1e20, 1e130):
        assert energy_distance(scale * X, scale * Y) == pytest.approx(scale * energy_distance(X, Y))
        assert mmd(scale * X, scale * Y) == pytest.approx(mmd(X, Y))
        assert mmd(scale * X, scale * Y, bandwidth=scale) == pytest.approx(mmd(X, Y, bandwidth=1))


@pytest.mark.parametrize("metric", METRICS)
def test_the_container_does_not_matter(metric):
    left, right = (rows * (rng.random(rows.shape) < 0.3) for rows in (X, Y))
    expected = metric(left, right, a, b)
    for one in (np.asarray, sp.csr_array, sp.csc_matrix, pd.DataFrame):
        for two in (np.asarray, sp.csr_array):
            assert metric(one(left), two(right), a, b) == pytest.approx(expected, rel=1e-12)
    assert metric(left.astype(np.float32), right.astype(np.float32), a, b) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("block", [1, 100, 1000])
@pytest.mark.parametrize("metric", METRICS)
def test_blocks_do_not_matter(metric, block, monkeypatch):
    expected = metric(X, Y, a, b)
    monkeypatch.setattr(kernel, "BLOCK", block)
    assert metric(X, Y, a, b) == pytest.approx(expected, rel=1e-12)


def test_where_samples_of_y_are_all_equal():
    point = np.ones((1, 5))
    expected = mmd(X, point, bandwidth=float(np.median(cdist(X, point))))
    assert mmd(X, point) == pytest.approx(expected)
    assert mmd(X, np.repeat(point, 3, axis=0)) == pytest.approx(expected)
    assert mmd(point, point) == mmd(np.repeat(point, 3, axis=0), point) == 0
    assert mmd(np.zeros((2, 5)), point) == pytest.approx(2 - 2 * np.exp(-0.5))
    assert mmd(np.zeros((2, 1)), np.zeros((3, 1))) == energy_distance(np.zeros((2, 1)), np.zeros((3, 1))) == 0


@given(anything, anything, st.sampled_from([5e-324, 1e-200, 1.0, 1e300]))
def test_every_score_is_finite_and_not_negative(x, y, sigma):
    for found in (mmd(x, y), mmd(x, y, bandwidth=sigma)):
        assert 0 <= found <= 2 + 1e-12
    assert 0 <= energy_distance(x, y) < np.inf
    assert type(mmd(x, y)) is type(energy_distance(x, y)) is float


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: mmd(X, Y[:, :3]), "Y must have the 5 features of X"),
        (lambda: mmd(X[0], Y), "X must have two dimensions"),
        (lambda: mmd(X, Y, a[:3]), "a must be one weight a sample"),
        (lambda: mmd(X, Y, None, -b), "b must be finite and not negative"),
        (lambda: mmd(X, Y, bandwidth=0), "bandwidth must be a finite number > 0; got 0"),
        (lambda: mmd(X, Y, bandwidth=[1.0, -1.0]), "bandwidth must be a finite number > 0; got -1"),
        (lambda: mmd(X, Y, bandwidth=np.inf), "bandwidth must be a finite number > 0; got inf"),
        (lambda: mmd(X, Y, bandwidth="median"), "bandwidth must be a finite number > 0; got 'median'"),
        (lambda: mmd(X, Y, bandwidth=[]), "bandwidth must be .*; got none"),
        (lambda: mmd(X, Y, bandwidth=np.ones((2, 2))), "bandwidth must be a finite number > 0"),
        (lambda: energy_distance(np.full((2, 5), np.nan), Y), "X must be finite"),
        (lambda: energy_distance(X, np.ones((0, 5))), "Y must hold at least one sample"),
        (lambda: energy_distance(X, Y, np.zeros(40)), "a must have a positive, finite sum"),
    ],
)
def test_bad_input_is_refused_with_the_argument_named(call, told):
    with pytest.raises(InputError, match=told):
        call()


def test_features_are_compared_by_name():
    left, right = pd.DataFrame(X, columns=list("abcde")), pd.DataFrame(Y, columns=list("abced"))
    for metric in METRICS:
        with pytest.raises(FeatureMismatchError, match="same order"):
            metric(left, right)
