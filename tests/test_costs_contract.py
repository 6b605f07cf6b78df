"""One contract for every cost: the identities that follow from h(z) = ½‖z‖² + τ(z) and its prox.

A cost that is new needs a line in COSTS; CONTRIBUTING.md shows how.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from occamap import L1, STVS, Cost, GroupLasso, KOverlap, MongeMap, SqL2, Subspace, costs, load
from occamap._validate import Samples, check_samples
from occamap.costs.generic import Displacer, Field, GenericDisplacer

Floats = NDArray[np.float64]
D = 6
WEIGHTS = np.array([0.0, 1.0, np.inf, 2.0, 0.5, np.inf])
BASIS = np.linalg.qr(np.random.default_rng(0).normal(size=(D, 2)))[0].T
COSTS: dict[str, Cost] = {
    "sql2": SqL2(),
    "l1-0": L1(0.0),
    "l1": L1(1.5),
    "l1-large": L1(40.0),
    "l1-weights": L1(0.7, weights=WEIGHTS),
    "l1-0-weights": L1(0.0, weights=WEIGHTS),
    "stvs-0": STVS(0.0),
    "stvs-small": STVS(0.01),
    "stvs": STVS(1.3),
    "stvs-large": STVS(60.0),
    "overlap-0": KOverlap(0.0, k=2),
    "overlap-k1": KOverlap(0.8, k=1),
    "overlap-k2": KOverlap(20.0, k=2),
    "overlap-kd": KOverlap(0.8, k=D),
    "norm-0": KOverlap(0.0, k=2, squared=False),
    "norm-k1": KOverlap(0.8, k=1, squared=False),
    "norm-k2": KOverlap(3.0, k=2, squared=False),
    "norm-kd": KOverlap(0.8, k=D, squared=False),
    "groups-0": GroupLasso(0.0, [[0, 1], [2, 4]]),
    "groups": GroupLasso(1.2, [[0, 1, 2], [4, 5]]),
    "groups-large": GroupLasso(50.0, [[0, 1, 2], [4, 5]]),
    "groups-sparse": GroupLasso(1.2, {"a": [0, 3, 2], "b": [1, 5]}, l1_ratio=0.4),
    "groups-all-l1": GroupLasso(1.2, [[0, 1, 2], [4, 5]], l1_ratio=1.0),
    "groups-weights": GroupLasso(0.9, [[0, 1], [2, 4], [3], [5]], weights=[0.0, 2.0, np.inf, 0.5], l1_ratio=0.2),
    "latent-0": GroupLasso(0.0, [[0, 1], [1, 2]]),
    "latent": GroupLasso(1.1, [[0, 1, 2], [2, 3], [3, 4, 0]]),
    "latent-nested": GroupLasso(0.8, [[0, 1, 2, 3], [1, 2], [2]], weights=[2.0, 1.0, 1.5]),
    "latent-sparse": GroupLasso(1.1, [[0, 1, 2], [2, 3, 4]], l1_ratio=0.3),
    "latent-weights": GroupLasso(0.9, [[0, 1], [1, 2], [2, 4], [4, 5]], weights=[0.0, 2.0, np.inf, np.inf]),
    "subspace-0": Subspace(0.0, BASIS),
    "subspace": Subspace(2.5, BASIS),
    "subspace-large": Subspace(300.0, BASIS),
    "subspace-axes": Subspace(1.5, np.eye(D)[[0, 3]]),
    "subspace-all": Subspace(1.5, np.linalg.qr(np.random.default_rng(1).normal(size=(D, D)))[0]),
}


OVERLAPPING = [cost for name, cost in COSTS.items() if name.startswith("latent")]


def latent(cost: Cost) -> bool:
    """Whether its values are found by iteration."""
    return cost in OVERLAPPING


def costs_where(keep: Callable[[Cost], bool]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("cost", [pytest.param(c, id=name) for name, c in COSTS.items() if keep(c)])


def lists(entries: st.SearchStrategy[float]) -> st.SearchStrategy[Floats]:
    return st.lists(entries, min_size=D, max_size=D).map(np.array)


# On the grid there are ties, zeros and duplicated magnitudes, and nothing is close to a kink without being on it.
on_grid = lists(st.integers(-12, 12).map(lambda i: i / 4)) | lists(st.sampled_from([0.0, 0.0, -0.0, 1.0, -1.0, 2.5]))
vectors = on_grid | lists(st.floats(-9, 9).map(lambda v: v if abs(v) > 1e-6 else 0.0))


def gamma(cost: Cost) -> float:
    return float(getattr(cost, "gamma", 0.0))


def radii(cost: GroupLasso) -> dict[tuple[int, ...], float]:
    """γ(1 − ρ)w of each group by its features, those in no group among them."""
    found = [list(group) for group in cost.groups.values()]
    weights = [len(group) ** 0.5 for group in found] if cost.weights is None else list(np.asarray(cost.weights))
    alone = [[t] for t in range(D) if not any(t in group for group in found)]
    pairs = zip(found + alone, weights + [1.0] * len(alone), strict=True)
    share = cost.gamma * (1 - cost.l1_ratio)
    return {tuple(int(t) for t in group): weight if np.isinf(weight) else share * weight for group, weight in pairs}


def strengths(cost: Cost) -> Floats:
    """γ w_t of the ℓ1 costs, ∞ for frozen features, 0 for the others."""
    if isinstance(cost, GroupLasso):
        least = [min(radius for group, radius in radii(cost).items() if t in group) for t in range(D)]
        return np.where(np.isinf(least), np.inf, 0.0)
    if not isinstance(cost, L1):
        return np.zeros(D)
    weights = np.ones(D) if cost.weights is None else WEIGHTS
    return np.where(np.isinf(weights), np.inf, cost.gamma * np.where(np.isinf(weights), 0.0, weights))


def finite(cost: Cost, z: Floats) -> Floats:
    """z with the frozen features at 0, where h is finite."""
    return np.where(np.isinf(strengths(cost)), 0.0, z)


def out_of_span(cost: Subspace, z: Floats) -> Floats:
    return z - cost.basis.T @ (cost.basis @ z)


def modulus(cost: Cost) -> float:
    """How strongly h is convex; the τ of STVS is not, and takes half of it away."""
    return 0.5 if isinstance(cost, STVS) else 1.0


def slack(cost: Cost, *vectors: Floats) -> float:
    """Rounding of a sum of squares and penalties of these vectors."""
    size = 1 + sum(float(np.max(np.abs(v))) for v in vectors)
    return (1e-8 if latent(cost) else 1e-12) * D * size * (size + gamma(cost))


@costs_where(lambda _: True)
@given(z=vectors)
def test_h_is_even_and_at_least_half_the_square(cost: Cost, z: Floats) -> None:
    assert cost.value(np.zeros(D)) == 0
    assert cost.value(z) == cost.value(-z)
    assert cost.value(z) >= 0.5 * (z @ z) * (1 - 1e-14)
    assert np.isinf(cost.value(z)) == bool(np.any(z[np.isinf(strengths(cost))] != 0))


def l1_penalty(cost: L1 | SqL2, z: Floats) -> float:
    return float(np.sum(np.where(z == 0, 0.0, strengths(cost)) * np.abs(z)))


def stvs_penalty(cost: STVS, z: Floats) -> float:
    sigma = np.arcsinh(np.abs(z) / (2 * cost.gamma)) if cost.gamma > 0 else np.zeros(D)
    return cost.gamma**2 * float(np.sum(sigma + 0.5 - 0.5 * np.exp(-2 * sigma)))


def group_penalty(cost: GroupLasso, z: Floats) -> float:
    norms = sum(radius * np.linalg.norm(z[list(group)]) for group, radius in radii(cost).items() if radius < np.inf)
    return float(norms + cost.gamma * cost.l1_ratio * np.abs(z).sum())


def subspace_penalty(cost: Subspace, z: Floats) -> float:
    return 0.5 * cost.gamma * float(np.sum(out_of_span(cost, z) ** 2))


TAU: dict[type[Cost], Callable[[Any, Floats], float]] = {  # k-overlap and overlapping groups have files of their own
    SqL2: l1_penalty,
    L1: l1_penalty,
    STVS: stvs_penalty,
    GroupLasso: group_penalty,
    Subspace: subspace_penalty,
}


@costs_where(lambda c: type(c) in TAU and c not in OVERLAPPING)
@given(z=vectors)
def test_values_follow_their_formula(cost: Cost, z: Floats) -> None:
    z = finite(cost, z)
    tau = TAU[type(cost)](cost, z)
    assert cost.value(z) == pytest.approx(0.5 * (z @ z) + tau, rel=1e-10, abs=1e-13 * gamma(cost) ** 2)


@costs_where(lambda _: True)
@given(z=vectors)
def test_prox_inverts_the_gradient(cost: Cost, z: Floats) -> None:
    z = finite(cost, z)
    close = {"rtol": 1e-7, "atol": 1e-7} if latent(cost) else {"rtol": 1e-11, "atol": 1e-13 * (1 + gamma(cost))}
    np.testing.assert_allclose(cost.prox(cost.grad(z)), z, **close)


@costs_where(lambda _: True)
@given(w=vectors)
def test_prox_is_below_all_else_by_strong_convexity(cost: Cost, w: Floats) -> None:
    z = cost.prox(w)
    directions = np.random.default_rng(0).standard_normal((30, D))
    directions = np.concatenate([directions, np.eye(D), -np.eye(D), [-z, z, w - z]])
    others = z + np.concatenate([size * directions for size in (1.0, 0.1, 1e-3)])
    excess = (cost.value(others) - others @ w) - (cost.value(z) - z @ w)
    least = 0.5 * modulus(cost) * np.sum((others - z) ** 2, axis=1)
    assert np.all(excess >= least - 10 * slack(cost, w, others))


@costs_where(lambda c: isinstance(c, SqL2 | L1 | KOverlap | GroupLasso | Subspace))  # whose τ* are known here
@given(w=vectors)
def test_moreau(cost: Cost, w: Floats) -> None:
    """w − prox_τ(w) = prox_τ*(w): it lies in the domain of τ* and τ(z) + τ*(w − z) = ⟨z, w − z⟩."""
    w = finite(cost, w) if isinstance(cost, GroupLasso) else w
    z = cost.prox(w)
    u = w - z
    tau, conjugate = cost.value(z) - 0.5 * (z @ z), 0.0
    if isinstance(cost, KOverlap) and cost.gamma > 0:
        dual = float(np.linalg.norm(np.sort(np.abs(u))[-cost.k :]))
        if cost.squared:
            conjugate = dual**2 / (2 * cost.gamma)
        else:
            assert dual <= cost.gamma * (1 + 1e-12)
    elif isinstance(cost, GroupLasso):  # the ℓ1 norm takes of u what it can, and the groups must hold the rest
        rest = np.maximum(np.abs(u) - cost.gamma * cost.l1_ratio, 0.0)
        for group, radius in radii(cost).items():
            assert np.linalg.norm(rest[list(group)]) <= radius * (1 + 1e-6) + 1e-9
    elif isinstance(cost, Subspace) and cost.gamma > 0:
        conjugate = float(u @ u) / (2 * cost.gamma)
        np.testing.assert_allclose(cost.basis @ u, 0, atol=slack(cost, w))
    else:
        assert np.all(np.abs(u) <= strengths(cost) + 1e-14 * np.abs(w))
    assert tau + conjugate == pytest.approx(z @ u, abs=slack(cost, w))


@costs_where(lambda _: True)
@given(z=vectors, w=vectors)
def test_fenchel_young(cost: Cost, z: Floats, w: Floats) -> None:
    z = finite(cost, z)
    slope, nearest = cost.grad(z), cost.prox(w)
    assert cost.conjugate(w) + cost.value(z) >= w @ z - slack(cost, z, w)
    assert cost.conjugate(w) + cost.value(nearest) == pytest.approx(w @ nearest, abs=slack(cost, w))
    assert cost.conjugate(slope) + cost.value(z) == pytest.approx(slope @ z, abs=slack(cost, z, slope))


@costs_where(lambda _: True)
@given(z=on_grid)
def test_gradient_is_the_finite_difference(cost: Cost, z: Floats) -> None:
    z = finite(cost, z)
    assume(z.any())
    steps = 2.0**-16 * np.eye(D)[z != 0]  # a power of two: z ± step is exact; 0 may be a kink
    difference = (cost.value(z + steps) - cost.value(z - steps)) / 2.0**-15
    np.testing.assert_allclose(cost.grad(z)[z != 0], difference, rtol=1e-6, atol=2e-5 * (1 + gamma(cost)))
    if not isinstance(cost, Subspace):  # whose gradient mixes features
        assert not cost.grad(z)[z == 0].any()


@costs_where(lambda _: True)
@given(x=vectors, y=vectors)
def test_divergence(cost: Cost, x: Floats, y: Floats) -> None:
    x, y, off_kinks = finite(cost, x), finite(cost, y), finite(cost, np.where(y == 0, 0.75, y))
    assert cost.divergence(x, x) == 0
    assert cost.divergence(x, y) >= max(0.0, 0.5 * modulus(cost) * np.sum((x - y) ** 2) - slack(cost, x, y))
    expected = cost.value(x) - cost.value(off_kinks) - cost.grad(off_kinks) @ (x - off_kinks)
    assert cost.divergence(x, off_kinks) == pytest.approx(expected, abs=slack(cost, x, y))


@costs_where(lambda _: True)
@given(x=on_grid, y=on_grid)
@example(x=np.ones(D), y=np.eye(D)[0])
@example(x=np.ones(D), y=np.eye(D)[0] - np.eye(D)[1])
def test_divergence_at_kinks_takes_the_steepest_slope(cost: Cost, x: Floats, y: Floats) -> None:
    """sup ⟨∂h(y), u⟩ is the one-sided derivative of h at y along u."""
    x, y = finite(cost, x), finite(cost, y)
    step, close = (2.0**-18, 3e-4) if latent(cost) else (2.0**-24, 1e-5)  # values by iteration have fewer digits
    steepest = (cost.value(y + step * (x - y)) - cost.value(y)) / step
    expected = cost.value(x) - cost.value(y) - steepest
    assert cost.divergence(x, y) == pytest.approx(expected, abs=close * (1 + gamma(cost)))


def layouts(rows: NDArray[Any]) -> dict[str, Any]:
    full = np.indices(rows.shape)[1].ravel(), np.arange(len(rows) + 1) * D
    return {
        "dense": rows,
        "csr_array": sp.csr_array(rows),
        "csr_matrix": sp.csr_matrix(rows),
        "csc_array": sp.csc_array(rows),
        "stored zeros": sp.csr_array((rows.ravel(), *full), shape=rows.shape),
    }


def check_container(raw: Any, out: Any) -> NDArray[Any]:
    """`out` has the container of `raw` (CSR for any sparse one, nothing stored that is 0); it as a dense array."""
    if not sp.issparse(raw):
        return out
    assert out.format == "csr"
    assert isinstance(out, sp.sparray) == isinstance(raw, sp.sparray)
    assert np.all(out.data != 0)
    return out.toarray()


@costs_where(lambda _: True)
@settings(max_examples=15)  # each has five layouts and five methods
@given(rows=st.lists(vectors, min_size=1, max_size=4).map(np.array), shift=vectors)
def test_one_vector_rows_and_sparse_rows_agree(cost: Cost, rows: Floats, shift: Floats) -> None:
    close = {"rtol": 1e-12, "atol": slack(cost, rows, shift)}
    values, conjugates = [cost.value(z) for z in rows], [cost.conjugate(z) for z in rows]
    inside, target = finite(cost, rows), finite(cost, shift)
    divergences = [cost.divergence(z, target) for z in inside]
    targets, points = layouts(np.tile(target, (len(rows), 1))), layouts(inside)
    for name, raw in layouts(rows).items():
        np.testing.assert_allclose(cost.value(raw), values, **close)
        np.testing.assert_allclose(cost.conjugate(raw), conjugates, **close)
        np.testing.assert_allclose(cost.divergence(points[name], targets[name]), divergences, **close)
        for method in (cost.grad, cost.prox):
            one_by_one, out = np.array([method(z) for z in rows]), check_container(raw, method(raw.copy()))
            np.testing.assert_allclose(out, one_by_one, **close)
            if not isinstance(cost, KOverlap | Subspace):  # where a feature that is nearly 0 goes by rounding
                np.testing.assert_array_equal(out != 0, one_by_one != 0)


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("method", ["value", "grad", "prox", "conjugate"])
def test_sparse_input_is_left_as_it_was(method: str, index: type[np.integer]) -> None:
    data = np.array([0.5, 3.0, 2.0, 0.02, 0.0, 0.1, -0.3])  # one stored zero, some that the prox sets to 0
    stored = data, np.array([0, 1, 3, 0, 1, 3, 4], index), np.array([0, 3, 7], index)
    for cost in COSTS.values():
        raw = sp.csr_array(tuple(part.copy() for part in stored), shape=(2, D))
        getattr(cost, method)(raw)
        for part, before in zip((raw.data, raw.indices, raw.indptr), stored, strict=True):
            np.testing.assert_array_equal(part, before)


@costs_where(lambda _: True)
@given(z=on_grid)
def test_float32_stays_float32_and_integers_become_float64(cost: Cost, z: Floats) -> None:
    narrow = z.astype(np.float32)[None, :]
    for method in (cost.grad, cost.prox):
        expected = method(z)
        for raw in (narrow, sp.csr_array(narrow), narrow[0]):
            out = method(raw)
            assert out.dtype == np.float32
            out = out.toarray() if sp.issparse(out) else out
            np.testing.assert_allclose(out.ravel(), expected, rtol=2e-7, atol=1e-12)
        whole = np.rint(z).astype(np.int64)
        assert method(whole).dtype == np.float64
        np.testing.assert_array_equal(method(whole), method(whole.astype(np.float64)))


def samples(cost: Cost) -> tuple[Floats, Floats]:
    """Two samples with zeros, equal entries and one sample in common."""
    rng = np.random.default_rng(0)
    X, Y = (finite(cost, rng.integers(-3, 4, (n, D)) * (rng.random((n, D)) < 0.6) / 2) for n in (7, 5))
    Y[0] = X[0]
    return X, Y


@costs_where(lambda _: True)
def test_pairs_are_the_values_of_all_differences(cost: Cost) -> None:
    X, Y = samples(cost)
    expected = [[cost.value(x - y) for y in Y] for x in X]
    for left in layouts(X).values():
        for right in layouts(Y).values():
            np.testing.assert_allclose(cost.pairwise(left, right), expected, rtol=1e-5 if latent(cost) else 1e-12)


@costs_where(lambda _: True)
def test_a_map_moves_by_its_definition_and_survives_its_file(cost: Cost, tmp_path: Path) -> None:
    """−prox_τ(Σ_j p_j ∇h(x − y_j)) with the weights of the map, dense and CSR; the same bits from a file."""
    X, Y = samples(cost)
    close = {"rtol": 1e-3, "atol": 1e-4} if latent(cost) else {"rtol": 1e-9, "atol": 1e-9 * (1 + gamma(cost))}
    for left, right in ((X, Y), (sp.csr_array(X), sp.csr_array(Y))):
        m = MongeMap(cost, epsilon=0.5, epsilon_scale="absolute").fit(left, right)
        fields = [p @ np.array([cost.grad(x - y) for y in Y]) for x, p in zip(X, m.weights(left), strict=True)]
        moves = m.displacement(left)
        np.testing.assert_allclose(moves.toarray(), [-cost.prox(field) for field in fields], **close)
        m.save(tmp_path / "map.occamap")
        again = load(tmp_path / "map.occamap")
        assert again.cost == cost
        np.testing.assert_array_equal(again.displacement(left).toarray(), moves.toarray())


def least_conjugate(cost: Cost, z: Floats, p: Floats, steps: int = 400) -> tuple[float, float]:
    """Bounds on min h*(v) over v in Σ_j p_j ∂h(z_j), by Frank and Wolfe.

    Its element that is least along u is the limit of Σ_j p_j ∇h(z_j − t u) for t → 0, and ∇h* is the prox.
    """
    v, low, high = p @ cost.grad(z), -np.inf, np.inf
    for k in range(steps):
        u = cost.prox(v)
        if not u.any():
            return 0.0, 0.0
        corner = p @ cost.grad(z - 1e-9 * u / np.abs(u).max())
        value, gap = cost.conjugate(v), float(u @ (v - corner))
        low, high = max(low, value - gap), min(high, value)
        v = v + 2 / (k + 3) * (corner - v)
    return low, high


@costs_where(lambda c: not latent(c))  # for which it is refused
def test_ties_occam_takes_the_element_that_moves_least(cost: Cost) -> None:
    """h* is least there: ½‖prox‖² for a norm, and rising in the size of each feature for a sum over features."""
    X, Y = samples(cost)
    X[1], Y[1:3] = 0.0, 0.0  # a sample that equals two targets
    m = MongeMap(cost, epsilon=2.0, epsilon_scale="absolute", ties="occam").fit(X, Y)
    for i, p in enumerate(m.weights(X)):
        z = -m.displacement(X[[i]]).toarray()[0]
        found = cost.grad(z) @ z - cost.value(z)  # h* at what the prox takes to z
        low, high = least_conjugate(cost, X[i] - Y, p)
        scale = 1e-3 + 0.02 * abs(high)
        assert low - scale <= found <= high + scale


def field_of(displacer: Displacer, cost: Cost, X: Samples, p: Floats, start: int = 0, stop: int = D) -> Field:
    """The field of each row in the features start:stop, with all its parts; the sets of ties are refused for some."""
    balls = None if latent(cost) else cost._n_balls(D)
    found = Field.empty(X.shape[0], stop - start, displacer.dtype, shifts=True, balls=balls)
    for part in (found.slopes, found.shifts, found.slack):
        part.fill(np.nan)  # everything has to be written; balls are 0 unless there are any
    displacer.field(X, p, found, start)
    return found


def check_field(cost: Cost, found: Field, wanted: Field, features: slice, **close: float) -> None:
    """Part by part; nobody reads the slack of a frozen feature, or a ball of radius 0."""
    free = ~np.isinf(strengths(cost))
    np.testing.assert_allclose(found.slopes, wanted.slopes[:, features], **close)
    np.testing.assert_allclose(found.shifts, wanted.shifts[:, features], **close)
    assert found.slack.shape[0] == wanted.slack.shape[0]
    np.testing.assert_allclose(found.slack[:, free[features]], wanted.slack[:, features][:, free[features]], **close)
    np.testing.assert_allclose(gamma(cost) * found.balls, gamma(cost) * wanted.balls, **close)


def accuracy(cost: Cost, dtype: Any) -> dict[str, float]:
    """Tolerances for fields and moves in this precision."""
    if latent(cost):
        return {"rtol": 1e-3, "atol": 1e-4}
    digits = 1e-9 if dtype == np.float64 else 2e-6
    return {"rtol": digits, "atol": digits * (1 + gamma(cost))}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array], ids=["dense", "csr"])
@costs_where(lambda _: True)
def test_the_field_follows_its_definition(cost: Cost, wrap: Any, dtype: Any) -> None:
    """Slopes, shifts, slack and balls are those of `GenericDisplacer`, in all features and in ranges of them."""
    X, Y = (check_samples(wrap(rows.astype(dtype)), "X") for rows in samples(cost))
    p = np.random.default_rng(0).dirichlet(np.full(Y.shape[0], 0.5), size=X.shape[0])
    displacer, plain = cost._displacer(Y), GenericDisplacer(cost, Y.astype(np.float64))
    wanted, close = field_of(plain, cost, X.astype(np.float64), p), accuracy(cost, dtype)
    for start, stop in ((0, D), (0, 1), (2, D), (1, 4)):
        check_field(cost, field_of(displacer, cost, X, p, start, stop), wanted, slice(start, stop), **close)


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array], ids=["dense", "csr"])
@costs_where(lambda _: True)
def test_moves_are_minus_the_prox_of_the_field(cost: Cost, wrap: Any) -> None:
    """Of its element with sign(0) = 0, or of the one that moves least."""
    X, Y = (check_samples(wrap(rows), "X") for rows in samples(cost))
    p = np.random.default_rng(0).dirichlet(np.full(Y.shape[0], 0.5), size=X.shape[0])
    displacer = cost._displacer(Y)
    found, close = field_of(displacer, cost, X, p), accuracy(cost, np.float64)
    moves = displacer.block(X, lambda _: p, 0, 0.0).toarray()
    np.testing.assert_allclose(moves, -cost.prox(found.slopes), **close)
    if not latent(cost):
        parts = zip(found.slopes, found.slack, found.balls, strict=True)
        least = np.array([cost._least(*(part.copy() for part in row)) for row in parts])
        np.testing.assert_allclose(displacer.block(X, lambda _: p, 1, 0.0).toarray(), -cost.prox(least), **close)


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array], ids=["dense", "csr"])
@costs_where(lambda _: True)
def test_pool_of_one_is_the_plain_map(cost: Cost, wrap: Any) -> None:
    """The neighbourhood of one fitted sample is the sample itself, however ties and shrinkage are read."""
    X, Y = map(wrap, samples(cost))
    m = MongeMap(cost, epsilon=0.5, epsilon_scale="absolute").fit(X, Y)
    for ties in ("zero",) if latent(cost) else ("zero", "occam"):
        m.set_params(ties=ties)
        clear = np.ones((X.shape[0], D), dtype=bool)
        for relax in (0.0, 0.5):
            plain = m.set_params(pool=None, relax=relax).displacement(X).toarray()
            pooled = m.set_params(pool=1).displacement(X).toarray()
            np.testing.assert_allclose(pooled[clear], plain[clear], **accuracy(cost, np.float64))
            clear = (np.abs(plain) > 1e-3) | ((plain == 0) & (pooled == 0))  # a move of 1e-16 relaxes to a large one
        assert clear.mean() > 0.5


GROUPS = np.array(["a", "b", "a", "c", "b", "a", "c"])
MASSES = np.array([1.0, 2.0, 0.5, 3.0, 1.0, 0.0, 2.0])


def move_groups(cost: Cost, X: Floats, Y: Floats, P: Floats, masses: Floats) -> Floats:
    """−prox_τ(Σ_ij a_i p_ij ∇h(x_i − y_j) / Σ_i a_i) of each group, for all of its samples."""
    fields = np.array([p @ np.array([cost.grad(x - y) for y in Y]) for x, p in zip(X, P, strict=True)])
    W = (GROUPS[:, None] == GROUPS) * masses
    return -np.array([cost.prox(field) for field in W @ fields / W.sum(axis=1, keepdims=True)])


@pytest.mark.parametrize("matched", [False, True], ids=["all features", "coordinates"])
@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array], ids=["dense", "csr"])
@costs_where(lambda _: True)
def test_a_group_moves_by_the_centroid_of_its_pairs(cost: Cost, wrap: Any, matched: bool) -> None:
    """By labels and by the matrix that they stand for, whatever the samples are matched on."""
    X, Y = samples(cost)
    coordinates = np.random.default_rng(1).normal(size=(12, 2))
    match = (coordinates[:7], coordinates[7:]) if matched else None
    m = MongeMap(cost, epsilon=0.5, epsilon_scale="absolute", match=match, pool=GROUPS).fit(wrap(X), wrap(Y), MASSES)
    wanted = move_groups(cost, X, Y, m.weights(wrap(X)), MASSES)
    np.testing.assert_allclose(m.displacement(wrap(X)).toarray(), wanted, **accuracy(cost, np.float64))
    W = (GROUPS[:, None] == GROUPS) * MASSES
    m.set_params(pool=W / W.sum(axis=1, keepdims=True))
    np.testing.assert_allclose(m.displacement(wrap(X)).toarray(), wanted, **accuracy(cost, np.float64))


@costs_where(lambda c: gamma(c) == 0 and not np.isinf(strengths(c)).any())
def test_all_samples_together_move_by_the_difference_of_means_without_a_penalty(cost: Cost) -> None:
    X, Y = samples(cost)
    m = MongeMap(cost, epsilon=2.0, epsilon_scale="absolute", tol=1e-11, max_iter=20_000, pool=np.zeros(7))
    moves = m.fit(X, Y, MASSES).displacement(X).toarray()
    wanted = Y.mean(axis=0) - np.average(X, axis=0, weights=MASSES)
    np.testing.assert_allclose(moves, np.tile(wanted, (7, 1)), rtol=0, atol=1e-8)


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array], ids=["dense", "csr"])
@costs_where(lambda _: True)
def test_a_match_on_coordinates_is_read_under_the_cost(cost: Cost, wrap: Any) -> None:
    """The weights are those of ½‖·‖² on the coordinates, and displacements follow from them in all features."""
    X, Y = samples(cost)
    U, V = np.random.default_rng(1).normal(size=(7, 2)), np.random.default_rng(2).normal(size=(5, 2))
    options = {"epsilon": 0.5, "epsilon_scale": "absolute"}
    m = MongeMap(cost, **options, match=(U, V)).fit(wrap(X), wrap(Y))
    P = MongeMap(SqL2(), **options).fit(U, V).weights(U)
    np.testing.assert_allclose(m.weights(wrap(X)), P, rtol=1e-9, atol=1e-300)
    fields = np.array([p @ np.array([cost.grad(x - y) for y in Y]) for x, p in zip(X, P, strict=True)])
    wanted = [-cost.prox(field) for field in fields]
    np.testing.assert_allclose(m.displacement(wrap(X)).toarray(), wanted, **accuracy(cost, np.float64))


def test_every_cost_of_the_package_is_held_to_the_contract() -> None:
    assert {type(cost) for cost in COSTS.values()} == set(costs.KINDS.values())
