"""MongeMap(fdr=): displacements at a false-discovery rate, over samples or across replicates."""

from __future__ import annotations

import pickle
import warnings
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats
from sklearn.base import clone

import occamap as oc
from occamap import model_file
from occamap._kernels.evidence import moderate_ratios
from occamap._workers import Workers
from occamap.errors import InputError, ModelFileError
from occamap.inference import contrasts
from occamap.maps import evidence
from occamap.maps.evidence import BINS_PER_UNIT, LARGEST, LEAST_WEIGHT, Threshold
from occamap.maps.replicates import Replicates, centred, learn_priors

N, M, D = 90, 80, 60
MOVED = [1, 4, 7]
SPREAD = np.array([1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 8.0])  # between donors, of a feature
DONORS = np.array(["ann", "bob", "cyd", "dan", "eve"])


def draw(seed=0, n=N, m=M, d=D, effect=1.5, donors=0.0, shared=True, density=0.6):
    """Two samples of non-negative numbers, some of them 0, with an effect on MOVED; and the donor of each sample."""
    rng = np.random.default_rng(seed)
    sides, names = [], []
    for side, size in enumerate((n, m)):
        values = rng.gamma(3.0, 0.5, size=(size, d)) * (rng.uniform(size=(size, d)) < density)
        names.append(DONORS[np.arange(size) % DONORS.size])
        if not shared:
            names[-1] = np.char.add(names[-1], str(side))
        _, codes = np.unique(names[-1], return_inverse=True)
        values += donors * (SPREAD[np.arange(d) % SPREAD.size] * np.abs(rng.normal(size=(DONORS.size, d))))[codes]
        sides.append(values)
    sides[1][:, MOVED] += effect
    return (*sides, tuple(names))


def fitted(X, Y, replicate=None, **given):
    asked = {"relax": 1.0, "pool": "auto", "match": 5, "fdr": 0.1, "n_jobs": 2, "replicate": replicate, **given}
    return oc.MongeMap(None, 10, "perplexity", **asked).fit(X, Y)


@pytest.fixture(scope="module")
def samples():
    return draw()


@pytest.fixture(scope="module", params=["over samples", "paired", "unpaired"])
def tested(request):
    """Samples, a map between them, and its replicates if it has any."""
    design = {"over samples": {}, "paired": {"donors": 0.3}, "unpaired": {"donors": 0.3, "shared": False}}
    X, Y, names = draw(**design[request.param])
    replicate = None if request.param == "over samples" else names
    return X, Y, replicate, fitted(X, Y, replicate)


def evenly(W, V, source, target):
    """Weights of donors by their number of samples in effect e: 1/(1/e + 1/mean(e)), the same on both sides for pairs.

    Pairs share what they have on a side, and so do donors of one side.
    """
    W, V = W.toarray(), V.toarray()
    pairs = set(source) & set(target)
    for w, v in zip(W, V, strict=True):
        sides = [{donor: side[labels == donor] for donor in set(labels)} for side, labels in ((w, source), (v, target))]
        noise = [{donor: (part**2).sum() / part.sum() ** 2 for donor, part in side.items() if part.sum()}
                 for side in sides]  # fmt: skip
        both = {donor: noise[0][donor] + noise[1][donor] for donor in pairs if all(donor in side for side in noise)}
        for side, labels, mine, parts in zip((w, v), (source, target), noise, sides, strict=True):
            for group, kept in ((pairs, both), (set(labels) - pairs, mine)):
                e = {donor: 1 / kept[donor] for donor in group if donor in kept}
                wanted = {donor: 1 / (1 / size + len(e) / sum(e.values())) for donor, size in e.items()}
                total = sum(parts[donor].sum() for donor in group)
                for donor in group:
                    if parts[donor].sum():
                        share = wanted.get(donor, 0.0) / sum(wanted.values()) * total
                        side[labels == donor] = parts[donor] * share / parts[donor].sum()
    return sp.csr_array(W), sp.csr_array(V)


def expected(m, X, Y, replicate):
    """Shifts, scores and standard errors of all entries from a second implementation: scipy's t, and contrasts."""
    W, P = m.neighbourhoods(), m.weights(X)
    P[P / P.max(axis=1, keepdims=True) < LEAST_WEIGHT] = 0.0
    P /= P.sum(axis=1, keepdims=True)
    V = sp.csr_array(W @ P)
    if replicate is not None:
        W, V = evenly(W, V, *replicate)
    found = contrasts(X, Y, W, V, replicate)
    variance, degrees = found.variance, found.degrees
    if replicate is not None:
        ratio = found.between / found.inner
        detected = (X != 0).sum(axis=0) + (Y != 0).sum(axis=0).astype(float)
        most = np.unique(np.concatenate(replicate)).size - (1 if Replicates.of(replicate, len(X), len(Y)).paired else 2)
        typical = float(np.median(found.between_degrees))
        prior, worth, least = learn_priors(ratio.T, detected, most, typical)
        worth = np.where(ratio > least, 0.0, worth)
        own = found.between_degrees[:, None]
        mixed = (worth * prior + own * ratio) / (worth + own)
        borrowed = np.where(mixed * found.inner > variance, worth * prior / (worth + own) / mixed, 1.0)
        variance = np.maximum(variance, mixed * found.inner)
        degrees = np.minimum(degrees, 1 / (1 / (worth + own) + borrowed**2 / degrees))
    error = np.sqrt(variance)
    scores = stats.norm.isf(stats.t.sf(np.abs(found.difference) / error, degrees))
    return found.difference, scores, error


# --- against a second implementation -----------------------------------------------------------------------------


def test_finds_what_t_tests_find(tested):
    X, Y, replicate, m = tested
    shifts, scores, _ = expected(m, X, Y, replicate)
    q = stats.false_discovery_control(2 * stats.norm.sf(scores), axis=None).reshape(scores.shape)
    mine, moves = m.q_values(X), m.displacement(X)
    found = mine.toarray() > 0
    assert found.sum() > 100
    np.testing.assert_array_equal(found, moves.toarray() != 0)
    np.testing.assert_allclose(moves.toarray()[found], shifts[found], rtol=1e-6, atol=1e-9)
    clear = (q < 0.09) | (q > 0.11)
    np.testing.assert_array_equal(found[clear], q[clear] <= 0.1)
    ordinary = found & (scores < 6)
    np.testing.assert_allclose(mine.toarray()[ordinary], q[ordinary], rtol=0.15)  # few degrees of freedom round more
    assert (mine.toarray()[ordinary] > 0.98 * q[ordinary]).all()  # rounding is on the safe side


def test_penalties_are_what_a_score_takes(tested):
    """With relax=0, a move is what the shift has beyond the smallest shift that is found."""
    X, Y, replicate, m = tested
    shifts, _, error = expected(m, X, Y, replicate)
    whole = m.displacement(X).toarray()
    shrunk = clone(m).set_params(relax=0.0).fit(X, Y).displacement(X).toarray()
    found = whole != 0
    penalty = (np.abs(whole) - np.abs(shrunk))[found]
    assert (np.sign(shrunk) * np.sign(whole) >= 0).all()
    assert (penalty >= 0.999 * m.threshold_.critical * error[found]).all()
    assert (penalty <= np.abs(shifts[found]) * 1.02).all()
    half = clone(m).set_params(relax=0.5).fit(X, Y).displacement(X).toarray()
    np.testing.assert_allclose(half, (whole + shrunk) / 2, atol=1e-9)


def test_labels_give_one_test_for_each_group(samples):
    X, Y, _ = samples
    labels = np.repeat(["a", "b"], N // 2)
    m = fitted(X, Y, pool=labels)
    q = m.q_values(X).toarray()
    for name in ("a", "b"):
        np.testing.assert_array_equal(q[labels == name], np.tile(q[labels == name][:1], (N // 2, 1)))
    assert m.threshold_.n_tested == N * D


def test_threshold_is_that_of_benjamini_and_hochberg():
    rng = np.random.default_rng(3)
    scores = np.abs(np.concatenate([rng.normal(size=5_000), rng.normal(4.5, size=200)]))
    counts = np.bincount((scores * BINS_PER_UNIT).astype(int), minlength=BINS_PER_UNIT * LARGEST + 1)
    for fdr in (0.01, 0.1, 0.3):
        threshold = Threshold(fdr, counts)
        q = stats.false_discovery_control(2 * stats.norm.sf(scores))
        np.testing.assert_allclose(threshold.q_of(scores)[q < 0.5], q[q < 0.5], rtol=0.05)
        assert threshold.critical == pytest.approx(scores[q <= fdr].min(), abs=0.02)


def test_threshold_of_nothing_finds_nothing():
    threshold = Threshold(0.1, np.zeros(BINS_PER_UNIT * LARGEST + 1, np.int64))
    assert threshold.critical == np.inf
    assert threshold.q_of(np.array([0.0, 50.0])).tolist() == [1.0, 1.0]


# --- laws --------------------------------------------------------------------------------------------------------


def assert_same(one, two, X, rtol=1e-6, **given):
    for name in ("displacement", "q_values"):
        first, second = getattr(one, name)(X).toarray(), getattr(two, name)(X, **given).toarray()
        np.testing.assert_allclose(first, second, rtol=rtol, atol=1e-12, err_msg=name)


def test_a_stricter_rate_finds_a_part_of_the_same(tested):
    X, Y, _, m = tested
    q = {}
    for fdr in (0.001, 0.05, 0.1, 0.5):
        other = clone(m).set_params(fdr=fdr).fit(X, Y)
        q[fdr] = other.q_values(X)
        assert q[fdr].data.max(initial=0.0) <= fdr
    found = [entries.toarray() > 0 for entries in q.values()]
    for less, more in pairwise(found):
        assert not (less & ~more).any()
    assert found[0].sum() < found[-1].sum()
    np.testing.assert_array_equal(q[0.05].toarray()[found[0]], q[0.5].toarray()[found[0]])


def test_the_rate_is_read_when_samples_move(samples):
    X, Y, _ = samples
    m = fitted(X, Y)
    m.set_params(fdr=0.01, pool=20)
    assert_same(m, fitted(X, Y, fdr=0.01, pool=20), X)


def test_storage_does_not_matter(tested):
    X, Y, replicate, m = tested
    sparse = fitted(sp.csr_array(X), sp.csr_array(Y), replicate)
    found, other = m.q_values(X).toarray(), sparse.q_values(sp.csr_array(X)).toarray()
    assert ((found > 0) != (other > 0)).mean() < 1e-3
    both = (found > 0) & (other > 0)
    np.testing.assert_allclose(found[both], other[both], rtol=0.02)


@pytest.mark.parametrize("replicates", [False, True])
def test_the_order_of_features_does_not_matter(replicates):
    X, Y, names = draw(d=450, donors=0.3)
    with Workers(1) as workers:
        space = fitted(X, Y)._space
        match = tuple(space.coordinates(side, workers, k) for k, side in enumerate(space.samples))
    order = np.random.default_rng(6).permutation(450)
    known = names if replicates else None
    one, other = fitted(X, Y, known, match=match), fitted(X[:, order], Y[:, order], known, match=match)
    found = one.q_values(X).toarray()[:, order]
    np.testing.assert_allclose(other.q_values(X[:, order]).toarray(), found, rtol=1e-6)


def test_precision_hardly_matters(tested):
    X, Y, replicate, m = tested
    single = fitted(X.astype(np.float32), Y.astype(np.float32), replicate)
    found, other = (one.toarray() != 0 for one in (m.displacement(X), single.displacement(X.astype(np.float32))))
    assert (found != other).mean() < 2e-3
    assert single.displacement(X.astype(np.float32)).dtype == np.float32


def test_threads_do_not_matter(tested):
    X, Y, replicate, m = tested
    one = fitted(X, Y, replicate, n_jobs=1)
    for name in ("displacement", "q_values"):
        assert (getattr(one, name)(X) != getattr(m, name)(X)).nnz == 0


def test_units_do_not_matter(tested):
    X, Y, replicate, m = tested
    for scale in (1e-6, 64.0, 1e6):
        other = fitted(scale * X, scale * Y, replicate)
        one, two = m.displacement(X).toarray(), other.displacement(scale * X).toarray()
        assert ((one != 0) != (two != 0)).mean() < 2e-3
        both = (one != 0) & (two != 0)
        np.testing.assert_allclose(two[both], scale * one[both], rtol=1e-3)


def test_the_order_of_samples_does_not_matter(tested):
    X, Y, replicate, m = tested
    rng = np.random.default_rng(4)
    rows, columns = rng.permutation(N), rng.permutation(M)
    labels = None if replicate is None else (replicate[0][rows], replicate[1][columns])
    other = fitted(X[rows], Y[columns], labels)
    one, two = m.displacement(X).toarray()[rows], other.displacement(X[rows]).toarray()
    # a threshold moves with the last digits, and priors with the neighbourhoods that they are learned from
    assert ((one != 0) != (two != 0)).mean() < 0.01
    both = (one != 0) & (two != 0)
    np.testing.assert_allclose(one[both], two[both], rtol=1e-5)


def test_the_order_of_many_samples_does_not_matter():
    """More than those that priors are learned from."""
    X, Y, names = draw(n=700, m=300, donors=0.3)
    order = np.random.default_rng(5).permutation(700)
    one, other = fitted(X, Y, names), fitted(X[order], Y, (names[0][order], names[1]))
    found = [m.displacement(side).toarray() != 0 for m, side in ((one, X), (other, X[order]))]
    assert (found[0][order] != found[1]).mean() < 1e-3


def test_storage_does_not_matter_for_features_that_few_neighbourhoods_have():
    """Where all is 0 nothing is tested, whether zeros are stored or not."""
    X, Y, names = draw(d=120, donors=0.3)
    X[30:, 90:], Y[:, 90:] = 0.0, 0.0
    pool = np.arange(N) // 30
    for replicate in (None, names):
        dense, sparse = (
            fitted(form(X), form(Y), replicate, pool=pool, match=(X[:, :3], Y[:, :3]))
            for form in (np.asarray, sp.csr_array)
        )
        assert dense.threshold_.n_tested == sparse.threshold_.n_tested == 30 * 120 + 60 * 90
        assert dense.threshold_.critical == pytest.approx(sparse.threshold_.critical, abs=2 / BINS_PER_UNIT)
        if replicate is not None:
            np.testing.assert_allclose(dense.threshold_.priors, sparse.threshold_.priors, rtol=1e-6)


@pytest.mark.parametrize("kind", [float, str, object])
def test_labels_of_both_sides_are_the_same_however_they_are_stored(kind):
    X, Y, names = draw(donors=0.3)
    codes = [np.searchsorted(DONORS, side) for side in names]
    one, other = fitted(X, Y, tuple(codes)), fitted(X, Y, (codes[0], codes[1].astype(kind)))
    assert one.displacement(X).nnz > 0
    assert (one.displacement(X) != other.displacement(X)).nnz == 0


def test_many_replicates_are_tested():
    """Each has less than a hundredth of a neighbourhood."""
    X, Y, _ = draw(n=300, m=300, donors=0.3)
    names = np.array([f"donor {k % 150}" for k in range(300)])
    m = fitted(X, Y, (names, names), pool=np.zeros(300, int))
    assert m.threshold_.n_tested == 300 * D


def test_names_of_replicates_do_not_matter():
    X, Y, names = draw(donors=0.3)
    numbers = tuple(np.searchsorted(DONORS, side) + 7 for side in names)
    shuffled = tuple(np.array(["z", "y", "x", "w", "v"])[np.searchsorted(DONORS, side)] for side in names)
    one = fitted(X, Y, names)
    for other in (numbers, shuffled, tuple(side.tolist() for side in names)):
        assert_same(one, fitted(X, Y, other), X, rtol=1e-5)


def test_features_that_are_constant_stay_and_change_nothing(tested, monkeypatch):
    """Whatever the tiles of features, and wherever they end."""
    X, Y, _, m = tested
    with Workers(1) as workers:
        coordinates = [m._space.coordinates(side, workers, k) for k, side in enumerate(m._space.samples)]
    wide = [np.concatenate([np.full((len(side), 3), 2.5), side, np.zeros((len(side), 2))], axis=1) for side in (X, Y)]
    asked = {"match": tuple(coordinates), "fdr": 0.1}
    given = fitted(X, Y, None, **asked)
    monkeypatch.setattr(evidence, "WIDTH", 16)
    other = fitted(*wide, None, **asked)
    moves = other.displacement(wide[0]).toarray()
    assert not moves[:, [0, 1, 2, -2, -1]].any()
    plain = given.displacement(X).toarray()
    assert ((moves[:, 3:-2] != 0) != (plain != 0)).mean() < 2e-3  # more entries are tested


def test_more_samples_than_set_the_threshold():
    X, Y, _ = draw(n=5_000, m=300, d=8, effect=1.0)
    m = fitted(X, Y)
    assert m.threshold_.n_tested == 4_096 * 8
    moves = m.displacement(X)
    assert (moves.toarray()[:, MOVED] != 0).mean() > 0.9
    assert m.q_values(X).nnz == moves.nnz


def test_some_samples_move_as_among_all(samples):
    X, Y, _ = samples
    m = fitted(X, Y)
    known = m.displacement(X[:20]).toarray()
    np.testing.assert_allclose(known, m.displacement(X).toarray()[:20], atol=1e-9)
    moved = m.transform(X[:20]) - X[:20]
    np.testing.assert_allclose(moved, known, atol=1e-12)


def test_new_samples_need_no_replicate():
    X, Y, names = draw(donors=0.3)
    m = fitted(X, Y, names)
    new, _, _ = draw(seed=9, donors=0.3)
    moves = m.displacement(new).toarray()
    assert np.isfinite(moves).all()
    assert (moves[:, MOVED] != 0).mean() > 0.5
    assert m.q_values(new).data.max() <= 0.1


def test_targets_go_back(tested):
    _, Y, _, m = tested
    back = m.inverse_transform(Y) - Y
    assert (back[:, MOVED] < 0).mean() > 0.6
    assert (back != 0).mean() < 0.5


def test_features_can_be_frozen(samples):
    X, Y, _ = samples
    weights = np.ones(D)
    weights[MOVED[0]] = np.inf
    m = oc.MongeMap(oc.L1(0.0, weights=weights), 10, "perplexity", pool="auto", match=5, fdr=0.1, relax=1.0).fit(X, Y)
    moves = m.displacement(X).toarray()
    assert not moves[:, MOVED[0]].any()
    assert moves[:, MOVED[1]].any()


def test_groups_are_tested_within_themselves():
    X, Y, names = draw(donors=0.3)
    groups = tuple(np.array(["a", "b"])[np.arange(size) % 2] for size in (N, M))
    m = fitted(X, Y, names, within=groups)
    W = m.neighbourhoods().toarray()
    assert not W[groups[0][:, None] != groups[0]].any()
    assert 0 < m.q_values(X).nnz < N * D / 2


# --- error rates -------------------------------------------------------------------------------------------------


def test_nothing_moves_where_nothing_changed():
    """The level is that of finding anything at all."""
    found = [fitted(*draw(seed=[1, seed], effect=0.0)[:2]).displacement(draw(seed=[1, seed])[0]).nnz > 0
             for seed in range(20)]  # fmt: skip
    assert np.mean(found) <= 0.15


@pytest.mark.parametrize(("n", "m"), [(20, 300), (300, 20)])
def test_nothing_moves_between_samples_of_unequal_sizes(n, m):
    """Rare features that the smaller side does not show have no variance there."""
    found = []
    for seed in range(6):
        X, Y, _ = draw(seed=[4, seed], n=n, m=m, d=400, effect=0.0, density=0.03)
        found.append(fitted(sp.csr_array(X), sp.csr_array(Y)).displacement(sp.csr_array(X)).nnz)
    assert np.mean(np.array(found) > 0) <= 0.2


@pytest.mark.parametrize("d", [5, 10, 30])
def test_few_features_are_no_prior_of_themselves(d):
    anything = []
    for seed in range(12):
        rng = np.random.default_rng([5, seed, d])
        names = np.repeat(["ann", "bob", "cyd"], 30)
        own = [rng.normal(size=(3, d)).repeat(30, axis=0) for _ in range(2)]
        X, Y = (rng.normal(size=(90, d)) + 0.6 * part for part in own)
        anything.append(fitted(X, Y, (names, names), match=3).displacement(X).nnz > 0)
    assert np.mean(anything) <= 0.2


@pytest.mark.parametrize("shared", [True, False])
def test_donors_that_differ_are_no_effect(shared):
    anything, over_samples = [], []
    for seed in range(12):
        X, Y, names = draw(seed=[2, seed], effect=0.0, donors=0.6, shared=shared)
        anything.append(fitted(X, Y, names).displacement(X).nnz > 0)
        over_samples.append(fitted(X, Y).displacement(X).nnz > 0)
    assert np.mean(anything) <= 0.2
    assert shared or np.mean(over_samples) > 0.8  # so that this test can fail


def test_false_moves_are_as_rare_as_asked_for():
    wrong = []
    for seed in range(12):
        X, Y, _ = draw(seed=[3, seed], effect=0.8)
        moves = fitted(X, Y, fdr=0.2).displacement(X).toarray() != 0
        right = moves[:, MOVED]
        assert right.mean() > 0.8
        wrong.append(1 - right.sum() / moves.sum())
    assert np.mean(wrong) <= 1.2 * 0.2


# --- replicates --------------------------------------------------------------------------------------------------


def test_centres_of_replicates_coincide():
    rng = np.random.default_rng(5)
    codes = np.repeat([0, 1, 2], [400, 300, 2])
    points = rng.normal(size=(702, 3)) + 10.0 * np.eye(3)[codes]
    found = centred(points, codes, None)
    centres = np.array([found[codes == code].mean(axis=0) for code in range(2)])
    np.testing.assert_allclose(centres[0], centres[1], atol=0.3)
    assert np.abs(found[codes == 2].mean(axis=0) - centres[0]).max() > 3  # of two samples, little is taken out


def test_centres_are_taken_within_groups():
    rng = np.random.default_rng(6)
    codes, groups = np.tile([0, 1], 200), np.repeat([0, 1], 200)
    points = rng.normal(size=(400, 2)) + np.where(groups == 1, 50.0, 0.0)[:, None]
    found = centred(points, codes, groups)
    for group in (0, 1):
        rows = groups == group
        np.testing.assert_allclose(found[rows], centred(points[rows], codes[rows], None))


def test_priors_know_how_often_features_are_stored():
    rng = np.random.default_rng(7)
    assert learn_priors(rng.f(4, 60, size=(19, 64)), np.full(19, 10.0), 4, 4)[1].max() == 0  # too few features
    detected = np.repeat([10.0, 1000.0], 500)
    ratios = rng.f(4, 60, size=(1000, 64)) * np.where(detected > 100, 3.0, 1.0)[:, None]
    prior, worth, least = learn_priors(ratios, detected, 4, 4)
    np.testing.assert_allclose(prior[[0, -1]], [1.0, 3.0], rtol=0.15)
    np.testing.assert_allclose(least, prior * stats.f.isf(1e-3, 4, worth))
    assert (worth > 5).all()


def test_a_ratio_far_above_the_prior_is_kept():
    priors = np.array([[1.5], [10.0], [9.0]])  # ratio, degrees of freedom, and where it ends
    ratios = np.array([[0.5, 3.0, 8.9, 9.1, -1.0]])
    inner, known, borrowed = np.ones((1, 5)), np.empty((1, 5)), np.empty((1, 5))
    small = ratios.copy()
    moderate_ratios(small, 0.1 * inner, np.full(5, 4.0), priors, known, borrowed)
    np.testing.assert_allclose(small[0], [1, 1, 1, 1, 0])  # never below the variance of samples
    moderate_ratios(ratios, inner, np.full(5, 4.0), priors, known, borrowed)
    mixed = (15 + 4 * np.array([0.5, 3.0, 8.9])) / 14
    np.testing.assert_allclose(ratios[0], [*mixed, 9.1, 0.0])
    np.testing.assert_allclose(known[0], [14, 14, 14, 4, 1])
    np.testing.assert_allclose(borrowed[0], [*(15 / 14 / mixed) ** 2, 0, 0])


# --- files and copies --------------------------------------------------------------------------------------------


def test_a_saved_map_gives_the_same_bits(tested, tmp_path):
    X, _, replicate, m = tested
    m.save(tmp_path / "map.occamap")
    loaded = oc.load(tmp_path / "map.occamap")
    for name in ("displacement", "q_values"):
        assert (getattr(loaded, name)(X) != getattr(m, name)(X)).nnz == 0
    assert loaded.threshold_.critical == m.threshold_.critical
    if replicate is not None:
        for mine, theirs in zip(loaded.replicate, replicate, strict=True):
            np.testing.assert_array_equal(np.asarray(mine).astype(str), theirs)


def test_a_copy_gives_the_same_bits(tested):
    X, _, _, m = tested
    copied = pickle.loads(pickle.dumps(m))
    assert (copied.q_values(X) != m.q_values(X)).nnz == 0


@pytest.mark.parametrize("change", ["no replicates", "too many scores", "scores that wrap around"])
def test_a_file_with_other_tests_is_refused(tmp_path, change):
    X, Y, names = draw(donors=0.3)
    fitted(X, Y, names).save(tmp_path / "map.occamap")
    meta, arrays = model_file.read(tmp_path / "map.occamap", lambda *parts: parts)
    if change == "no replicates":
        meta["parameters"]["replicate"] = None
    else:
        scores = np.zeros_like(arrays["scores"])
        scores[-3:] = 2**62 if "wrap" in change else X.size
        arrays["scores"] = scores
    model_file.write(tmp_path / "other.occamap", meta, arrays)
    with pytest.raises(ModelFileError, match=r"replicates of samples that it does not name|scores of its entries"):
        oc.load(tmp_path / "other.occamap")


# --- bad input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fdr", [0, 1, -0.1, 1.5, np.nan, np.inf, "x", True, [0.1]])
def test_rejects_rates_outside_0_and_1(samples, fdr):
    with pytest.raises(InputError, match="fdr must"):
        fitted(*samples[:2], fdr=fdr)


@pytest.mark.parametrize(("given", "message"), [
    ({"pool": None}, "pool must not be None with fdr"),
    ({"match": None}, "match must not be None with fdr"),
    ({"cost": oc.L1(1.0)}, "cost must not be given with fdr"),
    ({"cost": oc.STVS(1.0)}, "cost must not be given with fdr"),
    ({"replicate": (DONORS[np.arange(N) % 2], DONORS[np.arange(M) % 2])}, "at least 3 values in each sample; got 2"),
    ({"replicate": (["one"] * N, ["one"] * M)}, "at least 3 values in each sample; got 1"),
    ({"replicate": ([f"x{k % 4}" for k in range(N)], ["one"] * M)}, "at least 3 values in each sample; got 1"),
    ({"replicate": (["a"] * (N - 1), ["b"] * M)}, "90 labels"),
    ({"replicate": ([None] * N, ["b"] * M)}, "90 have none"),
    ({"replicate": ["a"] * N}, "a pair of arrays"),
    ({"replicate": (["a"] * N, ["b"] * M), "fdr": None}, "fdr must be given with replicate"),
])  # fmt: skip
def test_rejects_what_does_not_go_together(samples, given, message):
    asked = {"pool": "auto", "match": 5, "fdr": 0.1, **given}
    with pytest.raises(InputError, match=message):
        oc.MongeMap(asked.pop("cost", None), 10, "perplexity", **asked).fit(*samples[:2])


def test_q_values_need_a_rate(samples):
    m = oc.MongeMap(oc.L1(0.5), pool=5).fit(*samples[:2])
    with pytest.raises(InputError, match="fdr must be given for q-values"):
        m.q_values(samples[0])


def test_save_refuses_other_replicates(tmp_path):
    X, Y, names = draw(donors=0.3)
    m = fitted(X, Y, names).set_params(replicate=(names[0][::-1], names[1]))
    with pytest.raises(InputError, match="must be what the map was fitted with"):
        m.save(tmp_path / "map.occamap")


@pytest.mark.parametrize(("n", "m"), [(1, 1), (2, 2), (3, 8), (8, 3)])
def test_a_handful_of_samples_ends_in_no_error(n, m):
    X, Y, _ = draw(n=n, m=m, d=12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one = fitted(X, Y, match=2)
    assert np.isfinite(one.displacement(X).data).all()
    assert np.isfinite(one.q_values(X).data).all()


def test_samples_without_spread_are_not_tested():
    """Where all samples of a side are equal, a difference has no standard error, and nothing is claimed."""
    X, Y = np.zeros((30, 4)), np.tile([[0.0, 1.0, 2.0, 3.0]], (30, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        m = fitted(X, Y, match=2)
    assert np.isfinite(m.displacement(X).data).all()
