"""Halves of the cells: complementary pairs, shared costs, bounds on false genes, and intervals that cover."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats
from sklearn.base import clone

import occamap as oc
from occamap.errors import InputError, MemoryBudgetError, NotConvergedWarning
from occamap.genes import expected_false, refits, subsampled_means
from occamap.genes.bounds import tail_bounds
from occamap.genes.halves import complementary_halves
from occamap.genes.refits import refitted_means
from occamap.genes.stability import frequency, half_width, selection

ASKED = {"groupby": "condition", "control": "control", "target": "treated"}


# -- halves ------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(1, 15), st.integers(1, 7), st.integers(0, 99))
@settings(deadline=None, max_examples=50)
def test_halves_are_complementary_in_every_group(sizes, m, count, seed):
    groups = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    halves = complementary_halves(groups, np.zeros(m, int), count, np.random.default_rng(seed))
    assert len(halves) == count
    for half in halves:
        expected = [max(1, size // 2) for size in sizes]
        assert np.bincount(groups[half.rows], minlength=len(sizes)).tolist() == expected
        assert half.columns.size == max(1, m // 2)
        assert np.unique(half.rows).size == half.rows.size
    for first, second in zip(halves[::2], halves[1::2], strict=False):
        shared = np.intersect1d(first.rows, second.rows)
        assert all(sizes[group] == 1 for group in groups[shared])
        assert np.intersect1d(first.columns, second.columns).size == (m == 1)


def test_halves_do_not_depend_on_how_many_follow():
    mine, others = np.zeros(20, int), np.zeros(30, int)
    few, many = (complementary_halves(mine, others, n, np.random.default_rng(3)) for n in (3, 8))
    for one, other in zip(few, many, strict=False):
        np.testing.assert_array_equal(one.rows, other.rows)
        np.testing.assert_array_equal(one.columns, other.columns)


# -- shared costs ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cells():
    return oc.datasets.simulate_perturbation(140, 151, 220, effect=1.5, density=0.2, random_state=1)


COSTS = [
    oc.L1(0.3),
    oc.SqL2(),
    oc.STVS(0.5),
    oc.KOverlap(0.5, k=5),
    oc.L1(0.3, weights=np.where(np.arange(220) % 10 == 0, np.inf, 1.0)),
]


@pytest.mark.parametrize("cost", COSTS, ids=["L1", "SqL2", "STVS", "KOverlap", "frozen"])
@pytest.mark.parametrize("options", [{}, {"relax": 1.0, "ties": "occam"}, {"reach": 5.0}], ids=["", "relax", "reach"])
def test_sub_matrices_give_what_a_fit_of_the_half_gives(cells, cost, options):
    """The oracle is MongeMap itself, which computes the costs of the half and knows nothing of the others."""
    like = oc.MongeMap(cost, epsilon=0.05, n_jobs=1, **options)
    X, Y, groups = cells.control, cells.treated, cells.control_types
    halves = complementary_halves(groups, np.zeros(Y.shape[0], int), 2, np.random.default_rng(0))
    found = refitted_means(like, X, Y, groups, halves)
    for half, means in zip(halves, found, strict=True):
        moves = clone(like).fit(X[half.rows], Y[half.columns]).displacement(X[half.rows]).toarray()
        for group in range(groups.max() + 1):
            mine = moves[groups[half.rows] == group].mean(axis=0, dtype=float)
            np.testing.assert_allclose(means[group], mine, rtol=1e-5, atol=1e-6)


def fits(monkeypatch):
    """How often a map is fitted the long way."""
    count, long_way = [], oc.MongeMap.fit

    def fit(self, *args, **more):
        count.append(1)
        return long_way(self, *args, **more)

    monkeypatch.setattr(oc.MongeMap, "fit", fit)
    return count


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_costs_are_computed_once_and_threads_do_not_show(cells, monkeypatch, n_jobs):
    count, ticks = fits(monkeypatch), []
    like, groups = oc.MongeMap(oc.L1(0.3), n_jobs=n_jobs), np.zeros(140, int)
    given = cells.control, cells.treated, groups, 5
    found = subsampled_means(like, *given, np.random.default_rng(0), lambda *done: ticks.append(done))
    assert not count
    assert ticks == [(k, 5) for k in range(1, 6)]
    single = subsampled_means(like.set_params(n_jobs=1), *given, np.random.default_rng(0))
    np.testing.assert_array_equal(found, single)


def test_within_a_budget_halves_share_costs_where_they_fit_and_else_compute_their_own(cells, monkeypatch):
    count = fits(monkeypatch)
    groups, others = np.zeros(140, int), np.zeros(151, int)
    halves = complementary_halves(groups, others, 4, np.random.default_rng(0))
    given = cells.control, cells.treated, groups, halves
    free = refitted_means(oc.MongeMap(oc.L1(0.3)), *given)
    roomy = refitted_means(oc.MongeMap(oc.L1(0.3), max_memory="64GB"), *given)
    assert not count
    np.testing.assert_allclose(roomy, free, rtol=1e-6, atol=1e-9)
    monkeypatch.setattr(refits, "available", lambda: 1e4)
    short = refitted_means(oc.MongeMap(oc.L1(0.3)), *given)
    assert len(count) == 4
    np.testing.assert_allclose(short, free, rtol=1e-5, atol=1e-7)


def test_where_the_budget_ends_on_the_way_shared_costs_are_let_go(cells, monkeypatch):
    count, tried = fits(monkeypatch), []

    def refuse(half):
        tried.append(half)
        raise MemoryBudgetError("no room")

    halves = complementary_halves(np.zeros(140, int), np.zeros(151, int), 3, np.random.default_rng(0))
    given = oc.MongeMap(oc.L1(0.3), max_memory="64GB"), cells.control, cells.treated, np.zeros(140, int), halves
    shared = refitted_means(*given)
    monkeypatch.setattr(refits, "_shared", lambda *_: refuse)
    np.testing.assert_allclose(refitted_means(*given), shared, rtol=1e-5, atol=1e-7)
    assert (len(tried), len(count)) == (1, 3)


def test_halves_that_do_not_converge_say_so(cells):
    like = oc.MongeMap(oc.L1(0.3), epsilon=0.01, max_iter=1, tol=1e-9)
    with pytest.warns(NotConvergedWarning):
        subsampled_means(like, cells.control, cells.treated, np.zeros(140, int), 2, np.random.default_rng(0))


# -- bounds ------------------------------------------------------------------------------------------------------


def bound(tau, halves, top, genes, assume):
    return float(expected_false(np.array([tau]), halves, top, genes, assume)[0])


@pytest.mark.parametrize(
    ("top", "genes", "tau", "unimodal", "r_concave"),
    [  # as the R package stabs prints them for B = 50 (tests/regtest-inference.Rout.save, version of 2021)
        (1, 100, 0.6, 0.02631579, 0.006971364),
        (2, 100, 0.6, 0.1052632, 0.03342845),
        (3, 100, 0.6, 0.2368421, 0.08691176),
        (4, 100, 0.6, 0.4210526, 0.1637231),
        (5, 100, 0.6, 0.6578947, 0.2605329),
        (6, 100, 0.6, 0.9473684, 0.3820466),
        (7, 100, 0.6, 1.289474, 0.5295188),
        (8, 100, 0.6, 1.684211, 0.7042719),
        (9, 100, 0.6, 2.131579, 0.9077127),
        (10, 100, 0.6, 2.631579, 1.141338),
        (3, 10, 0.96, 0.1764706, None),
        (7, 200, 0.62, None, 0.196),
        (7, 200, 0.61, None, 0.219),
        (6, 200, 0.6, None, 0.174),
    ],
)
def test_bounds_are_the_published_ones(top, genes, tau, unimodal, r_concave):
    if unimodal is not None:
        assert bound(tau, 100, top, genes, "unimodal") == pytest.approx(unimodal, rel=1e-6)
    if r_concave is not None:  # R's optimiser stops at 1e-4, below the maximum
        assert bound(tau, 100, top, genes, "r-concave") == pytest.approx(r_concave, rel=4e-3)
        assert bound(tau, 100, top, genes, "r-concave") > r_concave * (1 - 3e-3)


def test_bounds_by_hand():
    assert bound(0.9, 100, 50, 1000, "none") == pytest.approx(50**2 / (0.8 * 1000))  # Meinshausen and Bühlmann
    assert bound(1.0, 20, 50, 2000, "none") == pytest.approx(1.25)
    assert bound(0.4, 20, 50, 2000, "none") == pytest.approx(50 / 0.4)  # Markov
    assert bound(0.9, 100, 50, 1000, "unimodal") == pytest.approx(4 * (0.1 + 0.01) / 1.02 * 50**2 / 1000)
    assert bound(0.6, 100, 50, 1000, "unimodal") == pytest.approx(50**2 / 1000 / (2 * (0.2 - 0.01)))
    assert bound(0.0, 20, 50, 2000, "r-concave") == 2000
    assert bound(1.0, 20, 50, 30, "none") == 30  # all are selected in each half
    # an odd half is taken to have selected the gene: 20 of 21 are 19 of 20
    assert bound(20 / 21, 21, 50, 2000, "unimodal") == bound(0.95, 20, 50, 2000, "unimodal")


@given(st.integers(2, 60), st.integers(1, 80), st.integers(1, 3000))
@settings(deadline=None, max_examples=40)
def test_bounds_fall_with_the_frequency_and_with_what_is_assumed(halves, top, genes):
    tau = np.arange(halves + 1) / halves
    found = [expected_false(tau, halves, top, genes, assume) for assume in ("none", "unimodal", "r-concave")]
    for one in found:
        assert (np.diff(one) <= 1e-12).all()
        assert (one >= 0).all()
        assert one[0] == genes
    assert (found[1] <= found[0]).all()
    assert (found[2] <= found[1]).all()


def largest_unimodal_tail(mean, count, t):
    """The largest P(X ≥ t) of a unimodal X, by a linear programme for each mode."""
    best, i = 0.0, np.arange(count + 1)
    for mode in i:
        rise = [np.eye(count + 1)[k] - np.eye(count + 1)[k + 1] for k in range(mode)]
        fall = [np.eye(count + 1)[k + 1] - np.eye(count + 1)[k] for k in range(mode, count)]
        rows = np.array([*rise, *fall, i])
        right = np.r_[np.zeros(count), mean * count]
        found = optimize.linprog(-1.0 * (i >= t), rows, right, np.ones((1, count + 1)), [1.0])
        best = max(best, -found.fun) if found.status == 0 else best
    return best


@pytest.mark.parametrize("theta", [0.05, 0.2, 0.4])
def test_the_unimodal_bound_is_reached_by_a_unimodal_distribution(theta):
    """The largest probability that a share 2τ − 1 of the pairs selects a low gene twice, by linear programming, and
    Markov's for the share of halves: the bound for a gene is the lesser, and not below it where the theorem is silent.
    """
    pairs, genes = 10, 1000
    tau = np.arange(pairs + 2, 2 * pairs + 1) / (2 * pairs)
    worst = np.array([largest_unimodal_tail(theta**2, pairs, t) for t in range(2, pairs + 1)])
    found = expected_false(tau, 2 * pairs, int(theta * genes), genes, "unimodal") / genes
    worst = np.minimum(worst, theta / tau)
    assert (found >= worst - 1e-9).all()
    speaks = tau > 1 / 2 + min(theta**2, 1 / (2 * pairs) + 3 / 4 * theta**2)
    assert speaks.sum() >= 7
    np.testing.assert_allclose(found[speaks], worst[speaks], rtol=1e-6)


@pytest.mark.parametrize(("mean", "r"), [(0.05, -0.5), (0.1, -0.5), (0.1, -0.25), (0.15, -0.25)])
def test_the_r_concave_tail_is_the_largest_that_a_general_optimiser_finds(mean, r):
    """Over u = f^r convex and positive, by sequential quadratic programming from several starts."""
    count, i = 6, np.arange(7)
    found = tail_bounds(mean, count, r)

    def f(log_u):
        weights = np.exp(log_u / r - (log_u / r).max())
        return weights / weights.sum()

    rng = np.random.default_rng(0)
    for t in (3, 4, 6):
        rules = (
            {"type": "ineq", "fun": lambda log_u: np.diff(np.exp(log_u - log_u.max()), 2)},
            {"type": "ineq", "fun": lambda log_u: mean * count - f(log_u) @ i},
        )
        best = 0.0
        for _ in range(12):
            start = np.log(rng.uniform(0.02, 1) + i * rng.uniform(0.2, 1.0)) + 0.01 * rng.normal(size=7)
            done = optimize.minimize(lambda log_u, t=t: -f(log_u)[t:].sum(), start, method="SLSQP", constraints=rules)
            feasible = all((rule["fun"](done.x) > -1e-7).all() for rule in rules)
            best = max(best, -done.fun) if feasible else best
        assert best == pytest.approx(found[t], rel=0.02)
        assert best <= found[t] * (1 + 1e-4)


def test_binomial_genes_respect_every_bound():
    """Genes that halves select by independent coins, which is r-concave: exact tails of the binomial."""
    halves, top, genes = 20, 50, 1000
    tau = np.arange(halves + 1) / halves
    exact = genes * stats.binom.sf(np.arange(halves + 1) - 1, halves, top / genes)
    for assume in ("none", "unimodal", "r-concave"):
        assert (expected_false(tau, halves, top, genes, assume) >= exact).all()


def test_what_cannot_be_asked():
    with pytest.raises(InputError, match="assume must be one of"):
        expected_false(np.ones(1), 20, 50, 1000, "normal")
    with pytest.raises(InputError, match="halves must be"):
        expected_false(np.ones(1), 1, 50, 1000)
    with pytest.raises(InputError, match="table must have expected_false"):
        oc.tl.stable_genes(pd.DataFrame({"mean": [1.0]}))
    with pytest.raises(InputError, match="expected_false must be"):
        oc.tl.stable_genes(pd.DataFrame({"expected_false": [1.0]}), 0)


# -- frequencies and intervals -----------------------------------------------------------------------------------


def test_frequencies_count_the_halves_in_which_a_gene_is_among_the_first(cells):
    means = subsampled_means(
        oc.MongeMap(oc.L1(0.3)), cells.control, cells.treated, np.zeros(140, int), 6, np.random.default_rng(0)
    )[:, 0]
    often, false = selection(means, 15)
    by_hand = np.zeros(means.shape[1])
    for half in means:
        by_hand[np.argsort(-np.abs(half), kind="stable")[:15]] += 1 / 6
    np.testing.assert_allclose(often, by_hand, atol=1e-12)
    genes = int((means != 0).any(axis=0).sum())
    np.testing.assert_allclose(false, expected_false(by_hand, 6, 15, genes))
    # of a pair at least 2Π − 1 of the halves agree
    both = np.mean([frequency(means[k : k + 2], 15) == 1 for k in (0, 2, 4)], axis=0)
    assert (both >= 2 * often - 1 - 1e-12).all()


def test_the_width_is_unbiased_for_a_mean_and_has_a_degree_of_freedom_a_pair():
    """For plain means of normal numbers the interval is exact: 95 %, for any number of halves."""
    rng, hits = np.random.default_rng(0), {2: [], 5: [], 10: []}
    for _ in range(150):
        values = rng.normal(size=(100, 40))
        halves = complementary_halves(np.zeros(100, int), np.zeros(2, int), 10, rng)
        means = np.array([values[half.rows].mean(axis=0) for half in halves])
        for count, hit in hits.items():
            hit.append(np.abs(values.mean(axis=0)) <= half_width(means[:count]))
    for hit in hits.values():
        assert 0.935 < np.mean(hit) < 0.965


@pytest.fixture(scope="module")
def population():
    return oc.datasets.simulate_perturbation(4000, 4000, 150, n_moved=15, effect=1.2, density=0.2, random_state=0)


def draws(X, Y, count, halves, rng):
    """Mean displacements of maps between random samples, and those of their halves."""
    like = oc.MongeMap(oc.L1(0.3), epsilon=1.0, epsilon_scale="absolute", relax=1.0)
    for _ in range(count):
        x, y = (part[np.sort(rng.permutation(part.shape[0])[:120])] for part in (X, Y))
        mean = like.fit(x, y).displacement(x).toarray().mean(axis=0, dtype=float)
        yield mean, subsampled_means(like, x, y, np.zeros(120, int), halves, rng)[:, 0]


def test_intervals_cover_the_mean_over_samples(population):
    found = list(draws(population.control, population.treated, 60, 10, np.random.default_rng(1)))
    means = np.array([mean for mean, _ in found])
    widths = np.array([half_width(halves) for _, halves in found])
    moving = (means != 0).mean(axis=0) > 0.9
    covered = (np.abs(means - means.mean(axis=0)) <= widths)[:, moving].mean()
    assert 0.90 < covered < 0.975
    narrow = np.array([1.96 * halves[:4].std(axis=0, ddof=1) for _, halves in found])  # what would not do
    assert (np.abs(means - means.mean(axis=0)) <= narrow)[:, moving].mean() < 0.9


@pytest.mark.parametrize("kind", ["null", "planted"])
def test_few_genes_are_selected_that_halves_rarely_select(population, kind):
    """The number of low genes that are selected, over draws, is below each bound."""
    control, top, halves = population.control, 15, 10
    X, Y = (control[:2000], control[2000:]) if kind == "null" else (control, population.treated)
    found = np.array([frequency(means, top) for _, means in draws(X, Y, 25, halves, np.random.default_rng(2))])
    low = found.mean(axis=0) <= top / 150
    assert low.sum() > 75
    for tau in (0.6, 0.7, 0.8, 0.9, 1.0):
        false = (found[:, low] >= tau - 1e-9).sum(axis=1).mean()
        for assume in ("none", "unimodal", "r-concave"):
            assert false <= bound(tau, halves, top, 150, assume)


@pytest.mark.filterwarnings("ignore:Control cells of some groups")
def test_stable_genes_are_those_that_were_planted(population):
    rows = np.r_[:300, 4000:4300]
    adata = population.to_anndata()[rows].copy()
    oc.tl.monge_map(adata, **ASKED, pool=None, match=None)
    table = oc.tl.gene_table(adata, subsamples=20, top=10)
    stable = oc.tl.stable_genes(table, 0.5)
    assert (stable["frequency"].min() > table.drop(stable.index)["frequency"]).all()
    planted = set(population.genes[population.moved.any(axis=0)])
    assert len(stable) >= 4
    assert len(set(stable.index) - planted) <= 1
    strict = oc.tl.gene_table(adata, subsamples=20, top=10, assume="none")
    assert (strict["expected_false"] >= table.loc[strict.index, "expected_false"]).all()
    assert set(oc.tl.stable_genes(strict, 0.5).index) <= set(stable.index)
    kinds = oc.tl.stable_genes(oc.tl.gene_table(adata, by="cell_type", subsamples=10, top=10))
    assert kinds.index.names == ["cell_type", "gene"]


def test_a_cluster_gives_the_same_halves(cells):
    distributed = pytest.importorskip("distributed")
    like, given = oc.MongeMap(oc.L1(0.3)), (cells.control, cells.treated, np.zeros(140, int), 2)
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0"
    ) as cluster, distributed.Client(cluster) as client:
        there = subsampled_means(like, *given, np.random.default_rng(0), client=client)
    here = subsampled_means(like, *given, np.random.default_rng(0))
    np.testing.assert_allclose(there, here, rtol=1e-5, atol=1e-7)
