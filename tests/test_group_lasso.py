"""Norms of groups against scikit-learn, skglm and cvxpy, and what overlapping groups mean."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.linear_model import MultiTaskLasso

import occamap as oc
from occamap import GroupLasso, MongeMap
from occamap._validate import check_samples
from occamap.costs.generic import GenericDisplacer
from occamap.errors import InputError

Floats = NDArray[np.float64]
SETS = [[0, 1, 2, 3], [3, 4, 5], [5, 6, 7, 0], [8, 9]]


def random_sets(seed: int, d: int, count: int, size: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [np.sort(rng.choice(d, rng.integers(2, size + 1), replace=False)) for _ in range(count)]


def counts(n: int, d: int, seed: int) -> Floats:
    rng = np.random.default_rng([seed, n, d])
    return rng.integers(0, 4, (n, d)) * (rng.random((n, d)) < 0.4).astype(float)


@pytest.mark.parametrize("gamma", [0.1, 0.7, 3.0])
def test_prox_is_that_of_the_multi_task_lasso_of_scikit_learn(gamma: float) -> None:
    """Whose groups are the rows of a table of coefficients; its loss is divided by the number of samples."""
    W = np.random.default_rng(0).normal(size=(7, 4))
    theirs = MultiTaskLasso(alpha=gamma / 7, fit_intercept=False, tol=1e-12, max_iter=10_000).fit(np.eye(7), W)
    cost = GroupLasso(gamma, np.arange(28).reshape(7, 4), weights=np.ones(7))
    np.testing.assert_allclose(cost.prox(W.ravel()), theirs.coef_.T.ravel(), atol=1e-9)


@pytest.mark.peers
@pytest.mark.parametrize("ratio", [0.0, 0.4])
def test_prox_is_that_of_skglm(skglm: ModuleType, ratio: float) -> None:
    from skglm.penalties import WeightedGroupL2
    from skglm.utils.prox_funcs import ST_vec

    groups = [np.array([0, 4, 5]), np.array([1, 2]), np.array([3, 6, 7, 8])]
    weights, w = np.array([0.5, 2.0, 1.3]), 2 * np.random.default_rng(1).normal(size=(20, 9))
    indices, ends = np.concatenate(groups).astype(np.int32), np.cumsum([0, 3, 2, 4]).astype(np.int32)
    theirs = WeightedGroupL2(0.8 * (1 - ratio), weights, ends, indices)
    soft = np.array([ST_vec(row, 0.8 * ratio) for row in w])
    expected = soft.copy()
    for k, group in enumerate(groups):
        for row, out in zip(soft, expected, strict=True):
            out[group] = theirs.prox_1group(row[group], 1.0, k)
    np.testing.assert_allclose(GroupLasso(0.8, groups, weights, ratio).prox(w), expected, atol=1e-14)


@pytest.mark.peers
@pytest.mark.parametrize("seed", range(4))
def test_the_latent_prox_is_a_group_lasso_over_copies_of_the_features(skglm: ModuleType, seed: int) -> None:
    d, sets = 10, random_sets(seed, 10, 5, 5)
    alone = [np.array([t]) for t in range(d) if not any(t in group for group in sets)]
    copies = np.concatenate(sets + alone)
    sizes = [len(group) for group in sets + alone]
    w = 3 * np.random.default_rng(seed).normal(size=d)
    groups = [list(range(end - size, end)) for size, end in zip(sizes, np.cumsum(sizes), strict=True)]
    theirs = skglm.GroupLasso(groups, alpha=0.9 / d, weights=np.sqrt(sizes), fit_intercept=False, tol=1e-11)
    design = np.asfortranarray(np.eye(d)[:, copies])
    expected = design @ theirs.fit(design, w).coef_
    np.testing.assert_allclose(GroupLasso(0.9, sets).prox(w), expected, atol=1e-5)


@pytest.mark.peers
@pytest.mark.parametrize("seed", range(4))
def test_the_latent_norm_is_the_cheapest_split(cvxpy: ModuleType, seed: int) -> None:
    d, sets = 9, random_sets(10 + seed, 9, 4, 5)
    sets += [[t] for t in range(d) if not any(t in group for group in sets)]
    weights = np.random.default_rng(seed).uniform(0.5, 2, len(sets))
    z = np.random.default_rng(seed).normal(size=d) * (np.random.default_rng(seed).random(d) < 0.7)
    parts = [cvxpy.Variable(len(group)) for group in sets]
    whole = sum(np.eye(d)[:, list(group)] @ part for group, part in zip(sets, parts, strict=True))
    size = sum(weight * cvxpy.norm(part) for weight, part in zip(weights, parts, strict=True))
    expected = cvxpy.Problem(cvxpy.Minimize(size), [whole == z]).solve(solver="CLARABEL")
    assert GroupLasso(1.0, sets, weights).value(z) - 0.5 * (z @ z) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("scale", [1e-120, 1e-30, 1e30, 1e139])
def test_latent_norms_of_any_scale(scale: float) -> None:
    cost, z = GroupLasso(1.0, [[0, 1], [1, 2]]), np.array([1.0, 3.0, 0.0])
    penalty = scale * 20**0.5  # one group, of weight √2, holds all of it
    assert cost.value(scale * z) == pytest.approx(5 * scale**2 + penalty, rel=1e-9)
    assert cost.pairwise([scale * z], np.zeros((1, 3))) == pytest.approx(5 * scale**2 + penalty, rel=2e-5)
    strong = GroupLasso(min(scale, 1e100), [[0, 1], [1, 2]])
    np.testing.assert_allclose(strong.grad(z), z + strong.gamma * z / 5**0.5, rtol=1e-6)
    assert not strong.prox(z).any() if scale > 1 else np.allclose(strong.prox(z), z)


def test_weights_of_overlapping_groups_far_apart() -> None:
    z = np.array([[-0.694, 1.680, -1.525, 0.0795]])
    cost = GroupLasso(10.0, [[0, 1], [1, 2], [2, 3], [3, 0]], weights=[1000, 2, np.inf, 0.001], l1_ratio=0.3)
    assert cost.pairwise(z, 0 * z) == pytest.approx(cost.value(z)[0], rel=2e-5)


def test_the_order_of_groups_counts_in_comparisons() -> None:
    first = GroupLasso(1.0, {"a": [0, 1], "b": [2, 3]}, weights=[1, 2])
    assert first != GroupLasso(1.0, {"b": [2, 3], "a": [0, 1]}, weights=[1, 2])


def test_a_set_given_twice_is_the_cheaper_of_the_two() -> None:
    z = np.array([[3.0, -1.0, 0.5, 0.0]])
    twice, once = GroupLasso(1.0, [[0, 1], [0, 1]], weights=[2.0, 0.7]), GroupLasso(1.0, [[0, 1]], weights=[0.7])
    assert twice.value(z) == pytest.approx(once.value(z), rel=1e-9)
    np.testing.assert_allclose(twice.prox(z), once.prox(z), atol=1e-9)
    np.testing.assert_allclose(twice.grad(z), once.grad(z), atol=1e-6)


def test_what_moves_is_a_union_of_sets() -> None:
    cost, rng = GroupLasso(1.0, SETS), np.random.default_rng(0)
    sizes = set()
    for _ in range(200):
        moved = cost.prox(2 * rng.normal(size=10)) != 0
        covered = np.zeros(10, bool)
        for group in SETS:
            covered[group] |= moved[group].all()
        np.testing.assert_array_equal(moved, covered)
        sizes.add(int(moved.sum()))
    assert len(sizes) > 4


def test_weights_of_nothing_and_of_infinity() -> None:
    cost = GroupLasso(1.0, {"free": [0, 1], "held": [1, 2], "frozen": [3, 4]}, weights=[0, 5, np.inf])
    np.testing.assert_allclose(cost.prox([1.0, 1.0, 1.0, 9.0, 9.0, 3.0]), [1, 1, 0, 0, 0, 2])
    assert cost.value([1.0, 2.0, 0, 0, 0, 0]) == 2.5  # feature 1 is free, whatever else holds it
    assert np.isinf(cost.value([0, 0, 0, 1e-30, 0, 0]))
    by_name = GroupLasso(1.0, cost.groups, weights={"frozen": np.inf, "held": 5, "free": 0})
    assert by_name == cost
    assert hash(by_name) == hash(cost)
    assert cost != GroupLasso(1.0, cost.groups)


@pytest.mark.parametrize("ratio", [0.0, 0.3])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_pairs_of_overlapping_groups(ratio: float, form: Any, dtype: str) -> None:
    cost, (X, Y) = GroupLasso(0.8, SETS, l1_ratio=ratio), (counts(n, 12, n).astype(dtype) for n in (70, 9))
    expected = np.stack([cost.value(x.astype(float) - Y) for x in X])
    np.testing.assert_allclose(cost.pairwise(form(X), form(Y)), expected, rtol=2e-5)
    half, penalty = np.empty((2, 70, 9))
    from occamap._workers import Workers

    with Workers(2) as workers:
        cost._fill_parts(check_samples(form(X), "X"), check_samples(form(Y), "Y"), half, penalty, workers)
    np.testing.assert_allclose(half + 0.8 * penalty, expected, rtol=2e-5)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize(
    ("cost", "close"),
    [
        (GroupLasso(0.4, [[0, 1, 2], [4, 5], [7, 9]]), 1e-11),
        (GroupLasso(0.4, [[0, 1, 2], [4, 5], [7, 9]], weights=[0, 1, np.inf], l1_ratio=0.3), 1e-11),
        (GroupLasso(0.4, SETS), 2e-3),
        (GroupLasso(0.4, SETS, l1_ratio=0.3), 2e-3),
    ],
    ids=["groups", "weights", "latent", "latent-sparse"],
)
def test_displacements_follow_the_definition(cost: GroupLasso, close: float, form: Any) -> None:
    X, Y = counts(70, 12, 1), counts(40, 12, 2) + 0.5 * (np.arange(12) == 4)
    Y[:, cost._frozen(12)] = X[0, cost._frozen(12)]
    m = MongeMap(cost, epsilon=0.05).fit(form(X), form(Y))
    frozen = cost._frozen(12)
    held = (np.where(frozen, 0.0, rows) for rows in (Y, X))
    slow, rows = (check_samples(part, "X") for part in held)
    overlapping = cost._norms(12).layout.overlapping
    for ties in ("zero",) if overlapping else ("zero", "occam"):
        for relax in (0.0, 0.6):
            moves = m.set_params(ties=ties, relax=relax).displacement(form(X)).toarray()
            gibbs = lambda C: softmax((m.g_ - C) / m.epsilon_, axis=1)  # noqa: E731
            wanted = GenericDisplacer(cost, slow).block(rows, gibbs, int(ties == "occam"), relax).toarray()
            moving = np.abs(wanted) > 10 * close  # relaxed, a move of 1e-9 becomes a large one
            np.testing.assert_allclose(moves[moving], wanted[moving], atol=close)
            assert ((moves != 0) == (wanted != 0)).mean() > 0.995


def test_occam_is_refused_where_groups_overlap() -> None:
    X, Y = counts(20, 12, 1), counts(20, 12, 2)
    fitted = MongeMap(GroupLasso(0.4, SETS), ties="occam").fit(X, Y)
    with pytest.raises(InputError, match="ties must be 'zero' for groups that overlap"):
        fitted.displacement(X)


def test_many_groups_are_balanced_without_newton() -> None:
    """More groups than systems are solved for: only multiplications are left, and the laws still hold."""
    d, sets = 500, [[t, t + 1] for t in range(499)]
    z = np.random.default_rng(0).normal(size=d)
    cost = GroupLasso(0.5, sets)
    w = cost.grad(z)
    u = w - z
    assert max(np.hypot(u[t], u[t + 1]) for t in range(499)) <= 0.5 * 2**0.5 * (1 + 1e-6)
    assert cost.value(z) - 0.5 * (z @ z) == pytest.approx(z @ u, rel=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([],), "at least one group"),
        (("abc",), "a list of index lists, or a dict"),
        (([[0, 1.5]],), "whole numbers from 0"),
        (([[]],), "whole numbers from 0"),
        (([[-1, 2]],), "whole numbers from 0"),
        (([["a", "b"]],), r"tl.monge_map\(gene_sets=…\)"),
        (([0, 1],), "group 0 is 0"),
        (({"a": b"ab"},), "group 'a' is b'ab'"),
        (([[0, 1]], [1, 2]), "one number for each of the 1 groups"),
        (([[0, 1]], [-1.0]), "≥ 0"),
        (([[0, 1]], [np.nan]), "weights"),
        (({"a": [0]}, {"b": 1.0}), "'a' is in one of them alone"),
        (([[0, 1]], None, 1.5), "l1_ratio"),
    ],
)
def test_wrong_groups(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        GroupLasso(1.0, *arguments)
    with pytest.raises(InputError, match="indices below the number of features, 3; group 'b' has 3"):
        GroupLasso(1.0, {"a": [0], "b": [1, 3]}).value(np.zeros(3))


def test_a_gamma_path_and_a_choice_by_held_out_samples() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(2, 60, 12))
    Y[:, :4] += 1.5
    cost = GroupLasso(1.0, SETS)
    path = oc.gamma_path(X, Y, cost=cost, gammas=[0.1, 1.0], epsilon=0.1)
    for gamma, found in zip((0.1, 1.0), path.maps, strict=True):
        alone = MongeMap(GroupLasso(gamma, SETS), epsilon=0.1, tol=1e-8).fit(X, Y)
        np.testing.assert_allclose(found.transform(X), alone.transform(X), atol=0.02)
    search = oc.MongeMapCV(cost, gammas=[0.1, 0.5], cv=2).fit(X, Y)
    assert isinstance(search.best_map_.cost, GroupLasso)
