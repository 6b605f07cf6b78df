"""Differences between matched means: standard errors, p-values, q-values, and the columns of tl.gene_table."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

import occamap as oc
from occamap.errors import InputError, InputWarning
from occamap.inference import Contrasts, balance, contrasts, q_values, significance
from occamap.inference.significance import FEWEST_FEATURES, STRONGEST, learn_prior, smooth_priors

CLOSE = {"rtol": 1e-8, "atol": 1e-12}
FORMS = {"dense": np.asarray, "csr": sp.csr_array, "csr matrix": sp.csr_matrix}
DONORS = np.array(["ann", "bob", "cyd", "dan", "eve", "flo"])


def uniform(*sizes):
    """A contrast that weighs all samples of a side alike, for each side."""
    return tuple(np.full((1, size), 1 / size) for size in sizes)


def compared(X, Y, replicates=None):
    found = contrasts(X, Y, *uniform(X.shape[0], Y.shape[0]), replicates)
    return found, significance(found)


def counts(rng, *shape):
    """Entries of which about half are zero."""
    return rng.gamma(2.0, size=shape) * rng.integers(2, size=shape)


def donor_cells(rng, features=30, cells=5):
    """Both sides of a design in which each donor has as many cells on either side, and an effect of its own."""
    names = np.repeat(DONORS, cells)
    own = rng.normal(size=(DONORS.size, features)).repeat(cells, axis=0)
    X, Y = (rng.normal(size=own.shape) + side * own for side in (1.0, 1.5))
    return X, Y + 0.3, (names, names.copy())


def assert_same(one, two, **tolerance):
    for name in Contrasts.__dataclass_fields__:
        first, second = getattr(one, name), getattr(two, name)
        assert (first is None) == (second is None), name
        if first is not None:
            np.testing.assert_allclose(first, second, **{**CLOSE, **tolerance}, err_msg=name)


# --- independent samples -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sizes", [(12, 9), (3, 40), (2, 2)], ids=str)
def test_uniform_weights_are_the_safer_of_two_t_tests(form, sizes):
    """Welch's, or one with the error of Student's and Welch's degrees of freedom if that error is larger."""
    rng = np.random.default_rng(sum(sizes))
    X, Y = counts(rng, sizes[0], 7), rng.normal(1.0, 3.0, size=(sizes[1], 7))
    X[0] += 1.0  # no feature is constant, of which SciPy would warn
    found, tested = compared(FORMS[form](X), FORMS[form](Y))
    oracle, student = (stats.ttest_ind(Y, X, equal_var=alike) for alike in (False, True))
    error = np.abs(found.difference[0]) / np.minimum(np.abs(oracle.statistic), np.abs(student.statistic))
    np.testing.assert_allclose(found.difference[0], Y.mean(axis=0) - X.mean(axis=0), **CLOSE)
    np.testing.assert_allclose(found.variance[0], error**2, **CLOSE)
    np.testing.assert_allclose(tested.degrees[0], oracle.df, **CLOSE)
    p = 2 * stats.t.sf(np.abs(found.difference[0]) / error, oracle.df)
    np.testing.assert_allclose(tested.p[0], p, **CLOSE)
    width = stats.t.isf(0.025, oracle.df) * error
    np.testing.assert_allclose(tested.half_width()[0], width, **CLOSE)


def test_as_many_samples_on_both_sides_are_welchs_test():
    rng = np.random.default_rng(14)
    X, Y = counts(rng, 9, 7), rng.normal(1.0, 3.0, size=(9, 7))
    X[0] += 1.0
    oracle = stats.ttest_ind(Y, X, equal_var=False)
    np.testing.assert_allclose(compared(X, Y)[1].p[0], oracle.pvalue, **CLOSE)


@pytest.mark.parametrize("sizes", [(20, 400), (400, 20)], ids=str)
def test_rare_features_of_unequal_sides_are_no_effect(sizes):
    """Where a small side shows none of a rare feature, its variance is not 0."""
    p = []
    for seed in range(10):
        rng = np.random.default_rng([22, seed])
        sides = [rng.poisson(0.02, size=(n, 500)).astype(float) for n in sizes]
        p.append(compared(*sides)[1].p.ravel())
    found = np.concatenate(p)
    found = found[~np.isnan(found)]
    assert np.mean(found < 1e-3) < 2e-3
    assert np.nanmin([q_values(one).min() for one in p if np.isfinite(one).any()]) > 0.1


@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
def test_intervals_have_the_level_that_is_asked_for(level):
    rng = np.random.default_rng(3)
    X, Y = rng.normal(size=(8, 4)), rng.normal(size=(11, 4))
    found, tested = compared(X, Y)
    degrees = stats.ttest_ind(Y, X, equal_var=False).df
    student, welch = (stats.ttest_ind(Y, X, equal_var=alike).statistic for alike in (True, False))
    error = np.abs(found.difference[0]) / np.minimum(np.abs(student), np.abs(welch))
    np.testing.assert_allclose(tested.half_width(level)[0], stats.t.isf((1 - level) / 2, degrees) * error, **CLOSE)


def test_contrasts_do_not_depend_on_each_other():
    """Several groups at once, each a row of the weights, are Welch's test of each group."""
    rng = np.random.default_rng(4)
    X, Y = counts(rng, 30, 5), counts(rng, 30, 5)
    mine, theirs = np.repeat([0, 1, 2], 10), np.repeat([0, 1, 2], 10)
    W, V = (np.equal.outer(np.arange(3), codes) / np.bincount(codes)[:, None] for codes in (mine, theirs))
    for one, two in ((W, V), (sp.csr_array(W), sp.csr_array(V))):
        tested = significance(contrasts(sp.csr_array(X), sp.csr_array(Y), one, two))
        for k in range(3):
            oracle = stats.ttest_ind(Y[theirs == k], X[mine == k], equal_var=False)
            np.testing.assert_allclose(tested.p[k], oracle.pvalue, **CLOSE)


def test_a_sample_that_is_there_twice_with_half_the_weight_has_the_same_mean():
    rng = np.random.default_rng(5)
    X, Y = counts(rng, 9, 6), counts(rng, 7, 6)
    W, V = rng.dirichlet(np.ones(9), size=2), rng.dirichlet(np.ones(7), size=2)
    once = contrasts(X, Y, W, V)
    twice = contrasts(np.vstack([X, X[:1]]), Y, np.hstack([W, W[:, :1]]) * np.r_[0.5, np.ones(8), 0.5], V)
    np.testing.assert_allclose(twice.difference, once.difference, **CLOSE)
    np.testing.assert_allclose(once.difference, V @ Y - W @ X, **CLOSE)


def test_samples_without_weight_change_nothing():
    rng = np.random.default_rng(6)
    X, Y, names = donor_cells(rng)
    W, V = uniform(X.shape[0], Y.shape[0])
    more = np.vstack([X, 100 * rng.normal(size=(4, X.shape[1]))])
    wider = np.hstack([W, np.zeros((1, 4))])
    assert_same(contrasts(more, Y, wider, V), contrasts(X, Y, W, V))
    labels = np.concatenate([names[0], ["gus", "gus", "ann", "hal"]]), names[1]
    assert_same(contrasts(more, Y, wider, V, labels), contrasts(X, Y, W, V, names))


# --- symmetries --------------------------------------------------------------------------------------------------

DESIGNS = ["cells", "paired", "disjoint", "partly paired"]


def design(kind, seed=7):
    X, Y, names = donor_cells(np.random.default_rng(seed))
    if kind == "cells":
        return X, Y, None
    if kind == "disjoint":
        names = names[0], np.char.add(names[1], " too")
    if kind == "partly paired":
        names = names[0], np.where(np.isin(names[1], DONORS[:2]), np.char.add(names[1], " too"), names[1])
    return X, Y, names


@pytest.mark.parametrize("kind", DESIGNS)
def test_exchanged_sides_have_the_opposite_difference(kind):
    X, Y, names = design(kind)
    found, tested = compared(X, Y, names)
    other, again = compared(Y, X, names and names[::-1])
    np.testing.assert_allclose(other.difference, -found.difference, **CLOSE)
    np.testing.assert_allclose(again.p, tested.p, **CLOSE)
    np.testing.assert_allclose(again.half_width(), tested.half_width(), **CLOSE)


@pytest.mark.parametrize("kind", DESIGNS)
@pytest.mark.parametrize("scale", [1e-3, 7.0, -2.0, 1e4])
def test_p_values_do_not_depend_on_units(kind, scale):
    X, Y, names = design(kind)
    found, tested = compared(X, Y, names)
    other, again = compared(scale * X, scale * Y, names)
    np.testing.assert_allclose(other.difference, scale * found.difference, **CLOSE)
    np.testing.assert_allclose(again.error, abs(scale) * tested.error, **CLOSE)
    np.testing.assert_allclose(again.p, tested.p, **CLOSE)


@pytest.mark.parametrize("kind", DESIGNS)
def test_the_order_of_cells_and_the_names_of_donors_do_not_matter(kind):
    X, Y, names = design(kind)
    rng = np.random.default_rng(8)
    mine, theirs = rng.permutation(X.shape[0]), rng.permutation(Y.shape[0])
    renamed = None
    if names is not None:
        known = np.unique(np.concatenate(names))
        called = dict(zip(known, rng.permutation(known.size).astype(str), strict=True))
        shuffled = names[0][mine], names[1][theirs]
        renamed = tuple(np.array([called[name] for name in side]) for side in shuffled)
    found, tested = compared(X, Y, names)
    other, again = compared(X[mine], Y[theirs], renamed)
    assert_same(other, found)
    np.testing.assert_allclose(again.p, tested.p, **CLOSE)


@pytest.mark.parametrize("kind", DESIGNS)
@pytest.mark.parametrize("permuted", ["cells", "features"])
def test_the_order_of_many_features_that_are_detected_as_often_does_not_matter(kind, permuted):
    """The prior is learned from features that are detected about as often, and many of them exactly as often."""
    rng = np.random.default_rng(16)
    _, _, names = design(kind)
    X, Y = counts(rng, 30, 900), counts(rng, 30, 900)
    W, V = uniform(30, 30)
    tested = significance(contrasts(X, Y, W, V, names))
    if permuted == "features":
        order = rng.permutation(900)
        again = significance(contrasts(X[:, order], Y[:, order], W, V, names))
        np.testing.assert_allclose(again.p, tested.p[:, order], **CLOSE)
    else:
        order = rng.permutation(30)
        shuffled = names and (names[0][order], names[1])
        again = significance(contrasts(X[order], Y, W[:, order], V, shuffled))
        np.testing.assert_allclose(again.p, tested.p, **CLOSE)


@pytest.mark.parametrize("kind", DESIGNS)
def test_the_storage_of_samples_does_not_matter(kind):
    X, Y, names = design(kind)
    X, Y = np.maximum(X, 0), np.maximum(Y, 0)
    expected, _ = compared(X, Y, names)
    for form in FORMS.values():
        assert_same(compared(form(X), form(Y), names)[0], expected)


def test_what_is_given_is_not_changed():
    X, Y, names = design("paired")
    X, Y = sp.csr_array(np.maximum(X, 0)), sp.csr_array(np.maximum(Y, 0))
    W, V = (sp.csr_array(w) for w in uniform(X.shape[0], Y.shape[0]))
    before = [part.copy() for part in (X, Y, W, V)]
    significance(contrasts(X, Y, W, V, names))
    for now, then in zip((X, Y, W, V), before, strict=True):
        for name in ("data", "indices", "indptr"):
            np.testing.assert_array_equal(getattr(now, name), getattr(then, name))


# --- replicates --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [3, 4, 11])
def test_a_cell_per_donor_and_condition_is_a_paired_t_test(n):
    rng = np.random.default_rng(n)
    names = np.array([f"donor {k}" for k in range(n)])
    own = 5 * rng.normal(size=(n, 6))
    X, Y = own + rng.normal(size=own.shape), own + rng.normal(0.5, 1.0, size=own.shape)
    order = rng.permutation(n)
    found, _ = compared(X, Y[order], (names, names[order]))
    oracle = stats.ttest_rel(Y, X)
    np.testing.assert_allclose(found.between[0], (found.difference[0] / oracle.statistic) ** 2, **CLOSE)
    np.testing.assert_allclose(found.between_degrees, n - 1, **CLOSE)
    assert found.n_replicates.tolist() == [n]


@pytest.mark.parametrize("sizes", [(3, 3), (4, 9), (12, 5)], ids=str)
def test_a_cell_per_donor_of_either_condition_is_the_error_of_welch(sizes):
    rng = np.random.default_rng(sizes)
    X, Y = rng.normal(size=(sizes[0], 6)), rng.normal(0.5, 3.0, size=(sizes[1], 6))
    names = tuple(np.array([f"{side} {k}" for k in range(n)]) for side, n in zip("xy", sizes, strict=True))
    found, _ = compared(X, Y, names)
    np.testing.assert_allclose(found.between[0], stats.sem(X) ** 2 + stats.sem(Y) ** 2, **CLOSE)
    np.testing.assert_allclose(found.between_degrees, sum(sizes) - 2, **CLOSE)
    assert found.n_replicates.tolist() == [min(sizes)]


def test_cells_of_a_donor_count_as_their_mean():
    """With as many cells a donor, the variance between donors is that of the means of donors."""
    X, Y, names = design("paired")
    means = [side.reshape(DONORS.size, -1, side.shape[1]).mean(axis=1) for side in (X, Y)]
    found, single = compared(X, Y, names)[0], compared(*means, (DONORS, DONORS))[0]
    np.testing.assert_allclose(found.between, single.between, **CLOSE)
    np.testing.assert_allclose(found.between_degrees, single.between_degrees, **CLOSE)


@pytest.mark.parametrize(("kind", "most"), [("paired", 5), ("disjoint", 10), ("partly paired", 7)])
def test_unequal_shares_leave_fewer_degrees_of_freedom_than_equal_ones(kind, most):
    X, Y, names = design(kind)
    W = np.linspace(1, 5, X.shape[0])[None]  # cells are sorted by donor
    even, uneven = compared(X, Y, names)[0], contrasts(X, Y, W / W.sum(), W / W.sum(), names)
    assert even.most_degrees.tolist() == uneven.most_degrees.tolist() == [most]
    assert even.between_degrees[0] <= most + 1e-9
    assert 0 < uneven.between_degrees[0] < even.between_degrees[0]


def test_what_a_donor_adds_to_both_sides_cancels():
    X, Y, names = design("paired")
    shift = dict(zip(DONORS, 10 * np.random.default_rng(9).normal(size=(DONORS.size, X.shape[1])), strict=True))
    added = np.array([shift[name] for name in names[0]])
    found, other = compared(X, Y, names)[0], compared(X + added, Y + added, names)[0]
    np.testing.assert_allclose(other.difference, found.difference, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(other.between, found.between, rtol=1e-8, atol=1e-10)


def test_with_few_features_the_error_is_that_between_replicates_or_that_of_cells_if_it_is_larger():
    X, Y, names = (part if isinstance(part, tuple) else part[:, :10] for part in design("paired"))
    found, tested = compared(X, Y, names)
    np.testing.assert_allclose(tested.error**2, np.maximum(found.between, found.variance), **CLOSE)
    wider = found.between > found.variance
    assert 0 < wider.mean() < 1
    np.testing.assert_allclose(tested.degrees[wider], DONORS.size - 1, **CLOSE)
    both = 1 / (1 / (DONORS.size - 1) + 1 / found.degrees[~wider])
    np.testing.assert_allclose(tested.degrees[~wider], both, **CLOSE)


@pytest.mark.parametrize("features", [10, 400])
@pytest.mark.parametrize("sizes", [(4, 11), (30, 30)], ids=str)
@pytest.mark.parametrize("paired", [False, True])
def test_replicates_never_make_a_test_more_certain_than_its_samples(features, sizes, paired):
    rng = np.random.default_rng([21, features, *sizes])
    X, Y = (counts(rng, size, features) + 1e-3 * rng.normal(size=(size, features)) for size in sizes)
    names = tuple(np.array([f"{k % 3} {0 if paired else side}" for k in range(n)]) for side, n in enumerate(sizes))
    cells, across = compared(X, Y)[1], compared(X, Y, names)[1]
    assert (across.p >= cells.p * (1 - 1e-9)).all()
    assert (across.half_width() >= cells.half_width() * (1 - 1e-9)).all()


@pytest.mark.parametrize("sides", [(1, 1), (2, 2), (2, 6), (6, 1)], ids=str)
@pytest.mark.parametrize("apart", [False, True])
def test_fewer_than_three_replicates_are_no_test(sides, apart):
    X, Y, _ = design("cells")
    names = [DONORS[np.arange(30) % n] for n in sides]
    if apart:
        names[1] = np.char.add(names[1], " too")
    found, tested = compared(X, Y, tuple(names))
    assert found.n_replicates.tolist() == [min(sides)]
    assert np.isfinite(found.difference).all()
    for part in (tested.p, tested.error, tested.degrees, tested.half_width()):
        assert np.isnan(part).all()


def test_three_replicates_are_enough():
    X, Y, _ = design("cells")
    names = DONORS[np.arange(30) % 3]
    tested = compared(X, Y, (names, names))[1]
    assert np.isfinite(tested.p).all()
    assert np.isfinite(tested.half_width()).all()
    assert ((tested.p > 0) & (tested.p <= 1)).all()


# --- nothing to test ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(1, 1), (1, 8), (8, 1)], ids=str)
@pytest.mark.parametrize("donors", [False, True])
def test_a_single_sample_is_no_test(sizes, donors):
    rng = np.random.default_rng(10)
    X, Y = rng.normal(size=(sizes[0], 25)), rng.normal(size=(sizes[1], 25))
    names = tuple(DONORS[np.arange(n) % 6] for n in sizes) if donors else None
    found, tested = compared(X, Y, names)
    np.testing.assert_allclose(found.difference[0], Y.mean(axis=0) - X.mean(axis=0), **CLOSE)
    for part in (found.variance, tested.p, tested.error, tested.half_width()):
        assert np.isnan(part).all()


@pytest.mark.parametrize("value", [1.0, 0.1, 1 / 3, -2.7, 1e-8, 12345.678])
@pytest.mark.parametrize("sizes", [(5, 5), (7, 13), (10, 31), (49, 6)], ids=str)
@pytest.mark.parametrize("donors", [False, True])
def test_a_constant_feature_does_not_differ(value, sizes, donors):
    """Rounding of the means must not pass for a difference without any error."""
    rng = np.random.default_rng(11)
    X, Y = (np.hstack([np.full((n, 1), value), rng.normal(size=(n, 3))]) for n in sizes)
    names = tuple(DONORS[np.arange(n) % 4] for n in sizes) if donors else None
    tested = compared(X, Y, names)[1]
    assert np.isnan(tested.p[0, 0]) or tested.p[0, 0] == pytest.approx(1.0)
    assert np.isfinite(tested.p[0, 1:]).all()


@pytest.mark.parametrize("kind", DESIGNS)
def test_a_feature_that_is_zero_everywhere_is_no_test(kind):
    X, Y, names = design(kind)
    X[:, 2], Y[:, 2] = 0.0, 0.0
    for form in FORMS.values():
        found, tested = compared(form(X), form(Y), names)
        assert found.difference[0, 2] == 0
        assert np.flatnonzero(np.isnan(tested.p[0])).tolist() == [2]
        assert np.flatnonzero(np.isnan(tested.half_width()[0])).tolist() == [2]


def test_zeros_that_are_stored_are_zeros():
    X, Y, _ = design("cells")
    X[:, 2], Y[:, 2] = 0.0, 0.0
    stored = [sp.csr_array((side.ravel(), np.tile(np.arange(30), 30), np.arange(0, 901, 30))) for side in (X, Y)]
    assert stored[0].nnz == X.size
    found, tested = compared(*stored)
    assert_same(found, compared(X, Y)[0])
    assert np.flatnonzero(np.isnan(tested.p[0])).tolist() == [2]


@pytest.mark.parametrize("kind", DESIGNS)
def test_nothing_but_zeros_is_no_test(kind):
    X, Y, names = design(kind)
    tested = compared(0 * X, 0 * Y, names)[1]
    assert np.isnan(tested.p).all()
    assert np.isnan(tested.half_width()).all()


# --- the prior ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("degrees", [2, 5, 20])
@pytest.mark.parametrize("prior", [3, 10, 40])
@pytest.mark.parametrize("ratio", [0.5, 1.0, 6.0])
def test_the_prior_of_scaled_f_samples_is_recovered(degrees, prior, ratio):
    ratios = ratio * np.random.default_rng([degrees, prior]).f(degrees, prior, size=400_000)
    found = learn_prior(ratios, degrees)
    assert found.ratio == pytest.approx(ratio, rel=0.02)
    assert found.degrees == pytest.approx(prior, rel=0.15)


def test_ratios_that_vary_no_more_than_a_variance_does_share_one():
    ratios = 3.0 * np.random.default_rng(12).chisquare(6, size=200_000) / 6
    assert learn_prior(ratios, 6).ratio == pytest.approx(3.0, rel=0.02)
    assert learn_prior(ratios, 6).degrees == STRONGEST
    even = learn_prior(np.full(50, 2.0), 6)
    assert even.degrees == STRONGEST
    assert np.isfinite(even.ratio)


@pytest.mark.parametrize("n", [0, 1, FEWEST_FEATURES - 1])
def test_few_ratios_are_no_prior(n):
    assert learn_prior(np.random.default_rng(13).f(5, 10, size=n), 5).degrees == 0


def test_ratios_of_rounding_shape_no_prior():
    """A gene that is constant within donors, who are paired: its levels cancel, but for rounding."""
    ratios = np.random.default_rng(14).f(5, 10, size=200)
    assert vars(learn_prior(np.sort([*ratios, 1e-30]), 5)) == vars(learn_prior(np.sort(ratios), 5))


def test_as_many_ratios_as_are_needed_are_a_prior():
    assert learn_prior(np.random.default_rng(13).f(5, 3, size=FEWEST_FEATURES), 5).degrees > 0


# --- q-values ----------------------------------------------------------------------------------------------------

p_values = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1e-300, 0.01, 0.05, 0.5, 1.0]))  # the latter are tied


@given(st.lists(p_values, min_size=1, max_size=40))
def test_q_values_are_those_of_benjamini_and_hochberg(p):
    np.testing.assert_allclose(q_values(p), stats.false_discovery_control(p, method="bh"), rtol=1e-12)


@given(st.lists(st.one_of(p_values, st.just(np.nan)), max_size=40))
def test_q_values_leave_nan_out(p):
    p = np.array(p)
    tested, q = ~np.isnan(p), q_values(p)
    np.testing.assert_array_equal(np.isnan(q), ~tested)
    np.testing.assert_array_equal(q[tested], q_values(p[tested]))


@given(st.lists(p_values, min_size=2, max_size=40), st.randoms(use_true_random=False))
def test_q_values_follow_the_order_of_p_values(p, random):
    p = np.array(p)
    q, order = q_values(p), np.array(random.sample(range(p.size), p.size))
    assert (np.diff(q[np.argsort(p, kind="stable")]) >= 0).all()
    assert all(np.ptp(q[p == value]) == 0 for value in p)
    np.testing.assert_array_equal(q_values(p[order]), q[order])
    assert ((q <= 1) & (q >= p * (1 - 1e-12))).all()


def test_q_values_have_the_shape_of_p_values_and_leave_them_alone():
    p = np.random.default_rng(14).uniform(size=(4, 6))
    before = p.copy()
    np.testing.assert_array_equal(q_values(p).ravel(), q_values(p.ravel()))
    np.testing.assert_array_equal(p, before)
    assert q_values([]).shape == (0,)
    assert np.isnan(q_values([np.nan])).all()


# --- calibration -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("density", "least"), [(0.3, 0.03), (0.05, 0.0)])
def test_p_values_are_uniform_where_nothing_moves(density, least):
    """Of genes in few cells, p-values are too large, as those of any test of a few counts: never too small."""
    found = []
    for seed in range(20):
        data = oc.datasets.simulate_perturbation(150, 150, 200, effect=0.0, density=density, random_state=seed)
        kinds = np.arange(data.response.shape[0])
        sides = [np.equal.outer(kinds, codes) / np.bincount(codes)[:, None]
                 for codes in (data.control_types, data.treated_types)]  # fmt: skip
        found.append(significance(contrasts(data.control, data.treated, *sides)).p.ravel())
    p = np.concatenate(found)
    p = p[~np.isnan(p)]
    assert p.size > 5_000
    assert least < np.mean(p < 0.05) < 0.07


@pytest.mark.parametrize("paired", [False, True])
def test_donors_that_differ_are_no_effect(paired):
    """If donors differ, tests across them hold their level, where those of cells do not."""
    across, cells = [], []
    for seed in range(20):
        rng = np.random.default_rng([15, seed])
        sides, names = [], []
        for side in range(2):
            names.append(np.repeat([f"{k} {0 if paired else side}" for k in range(5)], 30))
            sides.append(rng.normal(size=(150, 200)) + rng.normal(size=(5, 200)).repeat(30, axis=0))
        across.append(compared(*sides, tuple(names))[1].p)
        cells.append(compared(*sides)[1].p)
    assert 0.03 < np.mean(np.array(across) < 0.05) < 0.07
    assert np.mean(np.array(cells) < 0.05) > 0.3


def test_a_few_genes_that_differ_between_donors_of_unequal_size_are_no_effect():
    """The others, which do not differ, must not lend them a small variance."""
    sizes, anything, found = (60, 30, 20, 10), [], []
    for seed in range(20):
        rng = np.random.default_rng([17, seed])
        spread = np.where(rng.uniform(size=600) < 0.1, 0.5, 0.0)
        sides = [rng.normal(size=(120, 600)) + np.repeat(spread * rng.normal(size=(4, 600)), sizes, axis=0)
                 for _ in range(2)]  # fmt: skip
        names = tuple(np.repeat([f"{k} {side}" for k in range(4)], sizes) for side in range(2))
        p = compared(*sides, names)[1].p
        anything.append((q_values(p) <= 0.1).any())
        found.append(p)
    assert np.mean(anything) <= 0.1
    assert np.mean(np.array(found) < 0.001) < 0.0015
    assert 0.01 < np.mean(np.array(found) < 0.05) < 0.06


# --- tl.gene_table -----------------------------------------------------------------------------------------------

COLUMNS = ["difference", "difference_low", "difference_high", "log2_fold_change", "p", "q"]


@pytest.fixture(scope="module")
def mapped():
    adata = oc.datasets.simulate_perturbation(120, 100, 150, effect=1.5, n_moved=10, density=0.2).to_anndata()
    oc.tl.monge_map(adata, groupby="condition", control="control", target="treated", within="cell_type")
    return adata


def with_donors(adata, n, missing=0):
    """A copy with so many donors, all of them in both conditions, and the first cells of either without one."""
    adata = adata.copy()
    place = adata.obs.groupby("condition", observed=True).cumcount().to_numpy()
    names = np.array([f"donor {k % n}" for k in place], dtype=object)
    names[place < missing] = None
    adata.obs["donor"] = pd.Categorical(names)
    return adata


def test_the_table_has_q_values_of_all_genes(mapped):
    table = oc.tl.gene_table(mapped)
    place = table.columns.get_loc("observed") + 1
    assert table.columns[place : place + 6].tolist() == COLUMNS
    tested = table[table["p"].notna()]
    assert len(tested) > 50
    np.testing.assert_allclose(tested["q"], stats.false_discovery_control(tested["p"]), rtol=1e-12)
    assert table.loc[table["p"].isna(), "q"].isna().all()
    assert (tested["difference_low"] <= tested["difference"]).all()
    assert (tested["difference"] <= tested["difference_high"]).all()
    beside = (tested["difference_low"] > 0) | (tested["difference_high"] < 0)
    np.testing.assert_array_equal(beside, tested["p"] < 0.05)


def test_genes_without_counts_have_no_p_value(mapped):
    table = oc.tl.gene_table(mapped)
    counted = pd.Series(np.asarray(mapped.X.sum(axis=0)).ravel() > 0, mapped.var_names)
    np.testing.assert_array_equal(table["p"].notna(), counted[table.index])


@pytest.mark.parametrize("replicate", [None, "donor"])
def test_q_values_are_over_genes_and_groups_jointly(mapped, replicate):
    table = oc.tl.gene_table(with_donors(mapped, 4), by="cell_type", replicate=replicate)
    assert table.index.get_level_values(0).nunique() == 3
    assert ("n_replicates" in table) == (replicate is not None)
    tested = table[table["p"].notna()]
    assert len(tested) > 150
    np.testing.assert_allclose(tested["q"], stats.false_discovery_control(tested["p"]), rtol=1e-12)
    assert table.loc[table["p"].isna(), "q"].isna().all()


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("by", [None, "cell_type"])
def test_the_table_warns_of_few_replicates(mapped, n, by):
    with pytest.warns(InputWarning, match=f"at least 3.*'donor'.*has {n} in one of them") as caught:
        table = oc.tl.gene_table(with_donors(mapped, n), replicate="donor", by=by)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert (table["n_replicates"] == n).all()
    assert table[["p", "q", "difference_low", "difference_high"]].isna().all(axis=None)
    assert table["difference"].notna().all()


def test_cells_without_a_replicate_take_no_part(mapped):
    adata = with_donors(mapped, 4, missing=10)
    with pytest.warns(InputWarning, match="20 cells without a replicate"):
        table = oc.tl.gene_table(adata, replicate="donor")
    assert (table["n_replicates"] == 4).all()
    assert np.isfinite(table["difference"]).all()
    assert table["q"].notna().sum() > 50
    kept = adata.obs["donor"].notna().to_numpy()
    adata.X = sp.csr_matrix(adata.X.multiply(kept[:, None].astype(np.float32)))
    adata.X.eliminate_zeros()
    with pytest.warns(InputWarning, match="without a replicate"):
        again = oc.tl.gene_table(adata, replicate="donor").loc[table.index]
    pd.testing.assert_frame_equal(again[[*COLUMNS, "n_replicates"]], table[[*COLUMNS, "n_replicates"]])


@pytest.mark.parametrize("condition", ["control", "treated", "both"])
def test_a_condition_without_replicates_is_no_test(mapped, condition):
    adata = with_donors(mapped, 4)
    lost = np.ones(adata.n_obs, bool) if condition == "both" else (adata.obs["condition"] == condition).to_numpy()
    adata.obs.loc[lost, "donor"] = np.nan
    with pytest.warns(InputWarning) as told:
        table = oc.tl.gene_table(adata, replicate="donor")
    assert any("has 0 in one of them" in str(warning.message) for warning in told)
    assert (table["n_replicates"] == 0).all()
    assert table[["p", "q"]].isna().all(axis=None)


def test_an_unknown_replicate_column_is_named_with_those_there_are(mapped):
    with pytest.raises(InputError, match=r"replicate.*'donr'") as caught:
        oc.tl.gene_table(with_donors(mapped, 4), replicate="donr")
    for column in ("condition", "cell_type", "donor"):
        assert column in str(caught.value)


@pytest.mark.parametrize("asked", [{}, {"by": "cell_type"}, {"replicate": "donor"}], ids=str)
def test_two_calls_give_the_same_table(mapped, asked):
    adata = with_donors(mapped, 5)
    pd.testing.assert_frame_equal(oc.tl.gene_table(adata, **asked), oc.tl.gene_table(adata, **asked))


def test_enough_replicates_are_no_reason_to_warn(mapped):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = oc.tl.gene_table(with_donors(mapped, 3), replicate="donor")
    assert (table["n_replicates"] == 3).all()
    assert table["p"].notna().sum() > 50


def test_priors_follow_how_often_features_are_detected():
    """Ratios whose scale rises with detection, and a prior worth 8 degrees of freedom: both are found at either end."""
    rng = np.random.default_rng(23)
    detected = rng.uniform(2, 400, size=6000)
    scale = 1 + detected / 100
    ratio, degrees = smooth_priors(
        detected, np.arange(6000), lambda part: learn_prior((scale * rng.f(4, 8, size=6000))[part], 4)
    )
    for low, high in ((5, 50), (150, 250), (300, 390)):
        part = (detected > low) & (detected < high)
        assert np.median(ratio[part] / scale[part]) == pytest.approx(1, rel=0.15)
    assert np.median(degrees) == pytest.approx(8, rel=0.25)
    order = np.argsort(detected)
    steps = np.abs(np.diff(np.log(ratio[order])))
    assert steps.max() < 0.1, "no steps between windows"


@pytest.mark.parametrize("known", [0, 1, FEWEST_FEATURES - 1])
def test_few_features_have_no_prior(known):
    ratio, degrees = smooth_priors(np.arange(1.0, 101.0), np.arange(known), lambda part: pytest.fail("too few"))
    assert (ratio == 1).all()
    assert (degrees == 0).all()


def test_features_that_are_detected_alike_share_a_prior():
    rng = np.random.default_rng(24)
    detected, ratios = np.repeat(rng.integers(2, 9, size=40), 20).astype(float), rng.f(4, 8, size=800)

    def found(order):
        return smooth_priors(detected[order], np.arange(800), lambda part: learn_prior(np.sort(ratios[order][part]), 4))

    plain, shuffled = found(np.arange(800)), found(order := rng.permutation(800))
    for one, other in zip(plain, shuffled, strict=True):
        np.testing.assert_allclose(other, one[order], rtol=1e-9)


@pytest.mark.parametrize("replicates", [False, True])
def test_a_feature_that_all_targets_and_no_source_sample_have_is_found(replicates):
    """Neither side varies: p is tiny, but neither 0 nor NaN."""
    X, Y, names = design("paired")
    X, Y = np.abs(X), np.abs(Y)
    X[:, 3], Y[:, 3] = 0.0, 1.5
    for form in FORMS.values():
        found, tested = compared(form(X), form(Y), names if replicates else None)
        assert found.difference[0, 3] == pytest.approx(1.5)
        assert 0 < tested.p[0, 3] < 1e-9
        assert 0 < tested.half_width()[0, 3] < 0.01
        assert np.isfinite(tested.p).all()


# -- replicates with other shares in each condition ----------------------------------------------------------------


def shared_out(rng, sizes, n_features, level=1.0, deviation=0.3, noise=1.0):
    """Samples of donors, with (source, target) sizes, and their numbers; nothing differs between the sides."""
    sides, labels = ([], []), ([], [])
    for donor, pair in enumerate(sizes):
        own = rng.normal(scale=level, size=n_features)
        for side, count in enumerate(pair):
            centre = own + rng.normal(scale=deviation, size=n_features)
            sides[side].append(centre + rng.normal(scale=noise, size=(count, n_features)))
            labels[side].append(np.full(count, donor))
    return [np.concatenate(part) for part in (*sides, *labels)]


DESIGNS = {
    "equal": [(50, 50)] * 4,
    "crossed": [(250, 20), (20, 250), (40, 40), (40, 40)],
    "two of three": [(80, 20), (20, 80), (80, 20), (20, 80)],
    "some unpaired": [(50, 20), (20, 50), (30, 30), (60, 0), (0, 60)],
    "two pairs": [(50, 20), (20, 50), (60, 0), (0, 60), (60, 0), (0, 60)],
}


@pytest.mark.parametrize("design", DESIGNS)
def test_p_values_are_uniform_whatever_the_shares_of_paired_replicates(design):
    X, Y, *labels = shared_out(np.random.default_rng(3), DESIGNS[design], 4000)
    W, V = balance(*uniform(len(X), len(Y)), *labels)
    found = contrasts(X, Y, W, V, labels)
    assert 0.85 < found.between.mean() / (found.difference**2).mean() < 1.25
    p = significance(found).p
    assert (p < 0.05).mean() < 0.065
    assert (p < 0.001).mean() < 0.003


def test_without_balance_the_variance_is_widened():
    X, Y, *labels = shared_out(np.random.default_rng(4), DESIGNS["crossed"], 4000)
    found = contrasts(X, Y, *uniform(len(X), len(Y)), labels)
    assert 0.85 < found.between.mean() / (found.difference**2).mean() < 1.25
    assert (significance(found).p < 0.05).mean() < 0.06


@given(
    shares=hnp.arrays(np.int64, (4, 2), elements=st.integers(1, 12)),
    levels=hnp.arrays(np.float64, 4, elements=st.floats(-5, 5)),
    seed=st.integers(0, 99),
)
def test_levels_of_paired_replicates_cancel(shares, levels, seed):
    X, Y, *labels = shared_out(np.random.default_rng(seed), shares.tolist(), 3)
    W, V = balance(*uniform(len(X), len(Y)), *labels)
    for side in (W, V):
        np.testing.assert_allclose(side.sum(axis=1), 1)
    one = contrasts(X, Y, W, V, labels)
    other = contrasts(X + levels[labels[0]][:, None], Y + levels[labels[1]][:, None], W, V, labels)
    np.testing.assert_allclose(other.difference, one.difference, atol=1e-9)
    np.testing.assert_allclose(other.between, one.between, rtol=1e-7, atol=1e-12)


def test_balanced_weights_keep_what_they_should():
    source, target = np.array([0, 0, 1, 1, 2, 3, 3]), np.array([0, 1, 1, 2, 2, 2, 4])
    even = np.full((1, 7), 1 / 7)
    W, V = balance(even, even, source, target)
    mine, theirs = np.bincount(source, W.toarray()[0], 5), np.bincount(target, V.toarray()[0], 5)
    assert mine[3] == pytest.approx(2 / 7)  # in one condition only
    assert theirs[4] == pytest.approx(1 / 7)
    np.testing.assert_allclose(mine[:3] / mine[:3].sum(), theirs[:3] / theirs[:3].sum())
    e = np.array([1 / (1 / a + 1 / b) for a, b in ((2, 1), (2, 2), (1, 3))])  # samples of each pair, in effect
    common = 1 / (1 / e + 1 / e.mean())
    np.testing.assert_allclose(mine[:3], common / common.sum() * 5 / 7)
    inside = W.toarray()[0][source == 0]
    assert inside[0] == inside[1]  # samples of a replicate weigh alike
    two = np.array([0, 0, 1, 1, 2, 2, 2]), np.array([0, 1, 1, 1, 3, 3, 3])  # two pairs: too few
    for side, given_side in zip(balance(even, even, *two), (even, even), strict=True):
        np.testing.assert_array_equal(side.toarray(), given_side)
    again = balance(W, V, source, target)
    np.testing.assert_allclose(again[0].toarray(), W.toarray())
