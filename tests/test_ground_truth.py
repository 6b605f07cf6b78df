"""Known h-optimal maps: optimal by an exact assignment and by brute force, equal to OTT-JAX's, found again by a fit."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment, minimize

import occamap as oc
from occamap.errors import InputError

# Each cost in six features, and its like in two.
BASIS = np.linalg.qr(np.random.default_rng(4).normal(size=(6, 2)))[0].T
COSTS: dict[str, tuple[oc.Cost, oc.Cost]] = {
    "½ℓ2²": (oc.SqL2(), oc.SqL2()),
    "ℓ1": (oc.L1(1.0), oc.L1(1.0)),
    "weighted ℓ1": (oc.L1(0.5, weights=[0.0, 2.0, 1.0, 1.0, 1.0, np.inf]), oc.L1(0.5, weights=[0.0, 2.0])),
    "STVS": (oc.STVS(1.0), oc.STVS(1.0)),
    "weak STVS": (oc.STVS(0.1), oc.STVS(0.1)),
    "k-overlap": (oc.KOverlap(1.0, k=2), oc.KOverlap(1.0, k=1)),
    "k-overlap norm": (oc.KOverlap(1.0, k=2, squared=False), oc.KOverlap(1.0, k=1, squared=False)),
    "groups": (oc.GroupLasso(1.0, [[0, 1, 2], [3, 4]]), oc.GroupLasso(0.5, [[0, 1]])),
    "sparse groups": (
        oc.GroupLasso(1.0, [[0, 1, 2], [3, 4]], l1_ratio=0.3),
        oc.GroupLasso(0.5, [[0, 1]], l1_ratio=0.3),
    ),
    "overlapping groups": (
        oc.GroupLasso(1.0, [[0, 1, 2], [2, 3, 4]]),
        oc.GroupLasso(0.5, [[0, 1], [1]], weights=[1.0, 0.8]),
    ),
    "subspace": (oc.Subspace(2.0, BASIS), oc.Subspace(2.0, [[0.6, -0.8]])),
}
POTENTIALS = ["quadratic", "logcosh"]
every_truth = pytest.mark.parametrize(("name", "potential"), [(name, p) for name in COSTS for p in POTENTIALS])


def concave(truth: oc.datasets.GroundTruth, y: np.ndarray) -> np.ndarray:
    """g, written down once more from its definition and the matrix M alone."""
    if truth.concave.kind == "quadratic":
        return -0.5 * np.einsum("ij,jk,ik->i", y, truth.curvature, y)
    curvatures, axes = np.linalg.eigh(truth.curvature)
    return -np.log(np.cosh(y @ axes)) @ curvatures


@every_truth
def test_no_other_pairing_is_cheaper(name, potential):
    """T is h-optimal between any samples and their images: scipy's exact assignment cannot beat it."""
    cost, _ = COSTS[name]
    truth = oc.datasets.ground_truth(cost, 6, 120, 10, potential=potential, pull=4.0, random_state=1)
    C = cost.pairwise(truth.source, truth.image)
    rows, columns = linear_sum_assignment(np.where(np.isinf(C), 1e9, C))
    assert np.trace(C) <= C[rows, columns].sum() * (1 + 1e-12)


@every_truth
def test_the_potentials_are_dual_and_tight_along_the_map(name, potential):
    """f(x) + g(y) ≤ h(x − y) for any y, near the image of x or far, and equal at the image."""
    cost, _ = COSTS[name]
    truth = oc.datasets.ground_truth(cost, 6, 40, 10, potential=potential, pull=4.0, random_state=2)
    draw = np.random.default_rng(0)
    f, g = truth.potential(truth.source), truth.potential(truth.image, "target")
    np.testing.assert_allclose(g, concave(truth, truth.image), atol=1e-12)
    np.testing.assert_allclose(f + g, cost.value(truth.source - truth.image), atol=1e-12)
    for size in (1e-4, 1e-2, 1.0, 10.0):
        for share in (0.2, 0.5, 1.0):
            step = size * draw.normal(size=truth.image.shape) * (draw.random(truth.image.shape) < share)
            y = truth.image + step
            assert (f + concave(truth, y) <= cost.value(truth.source - y) + 1e-11).all()
    C = cost.pairwise(truth.source, truth.target)
    assert (f[:, None] + truth.potential(truth.target, "target") <= C + 1e-11).all()


@every_truth
def test_brute_force_finds_the_same_image(name, potential):
    """In two dimensions: Nelder and Mead's search, from the image that is claimed and from elsewhere."""
    _, cost = COSTS[name]
    truth = oc.datasets.ground_truth(cost, 2, 4, 1, potential=potential, pull=3.0, random_state=3)
    for x, image in zip(truth.source, truth.image, strict=True):
        options = {"xatol": 1e-8, "fatol": 1e-14, "maxiter": 2000}

        def objective(y: np.ndarray, x: np.ndarray = x) -> float:
            return float(cost.value(x - y) - concave(truth, y[None, :])[0])

        found = [minimize(objective, start, method="Nelder-Mead", options=options) for start in (image, 0.9 * x)]
        best = min(found, key=lambda result: result.fun)
        assert objective(image) <= best.fun + 1e-12
        np.testing.assert_allclose(best.x, image, atol=2e-6)


@pytest.mark.parametrize("name", ["groups", "overlapping groups"])
def test_what_moves_is_a_union_of_groups(name):
    cost, _ = COSTS[name]
    truth = oc.datasets.ground_truth(cost, 6, 200, 10, pull=4.0)
    groups = np.zeros((3, 6), dtype=bool)
    for row, group in zip(groups, [*cost.groups.values(), [5]], strict=True):
        row[group] = True
    inside = (groups[None] <= truth.support[:, None]).all(axis=2)  # of each sample: the groups that move as a whole
    assert (truth.support == (inside[:, :, None] & groups).any(axis=1)).all()
    assert 0.1 < inside.mean() < 0.9


def test_frozen_features_stay_and_free_ones_are_linear():
    truth = oc.datasets.ground_truth(oc.L1(0.5, weights=[np.inf, 1.0, 1.0, 1.0]), 4, 50, 50)
    assert (truth.image[:, 0] == truth.source[:, 0]).all()
    assert (truth.image[:, 1] != truth.source[:, 1]).any()
    free = oc.datasets.ground_truth(oc.L1(7.0, weights=np.zeros(4)), 4, 50, 50)
    np.testing.assert_allclose(free.image, oc.datasets.ground_truth(oc.SqL2(), 4, 50, 50).image, atol=1e-11)


def test_the_quadratic_map_is_the_closed_form():
    truth = oc.datasets.ground_truth(oc.SqL2(), 5, 20, 20, pull=3.0)
    expected = truth.source @ np.linalg.inv(np.eye(5) + truth.curvature)
    assert np.abs(truth.image - expected).max() <= truth.accuracy < 1e-10


def test_the_map_for_a_subspace_is_the_closed_form():
    """h = ½zᵀHz with H = I + γ(I − AᵀA), hence H(x − y) = My."""
    truth = oc.datasets.ground_truth(oc.Subspace(2.0, BASIS), 6, 20, 20, pull=3.0)
    H = 3.0 * np.eye(6) - 2.0 * BASIS.T @ BASIS
    expected = np.linalg.solve(H + truth.curvature, H @ truth.source.T).T
    assert np.abs(truth.image - expected).max() <= truth.accuracy < 1e-10


def test_one_feature_solves_its_equation():
    """d = 1: y + c tanh(y) = x under ½z², and the soft threshold of it under ℓ1."""
    plain = oc.datasets.ground_truth(oc.SqL2(), 1, 30, 30, potential="logcosh", pull=3.0)
    np.testing.assert_allclose(plain.image + 3 * np.tanh(plain.image), plain.source, atol=1e-11)
    sparse = oc.datasets.ground_truth(oc.L1(1.0), 1, 200, 30, potential="logcosh", pull=3.0)
    stays = 3 * np.abs(np.tanh(sparse.source)) <= 1
    assert 0.1 < stays.mean() < 0.9
    assert (sparse.support == ~stays).all()
    y, sign = sparse.image[~stays], np.sign(sparse.source[~stays])
    np.testing.assert_allclose(y + 3 * np.tanh(y) - sign, sparse.source[~stays], atol=1e-11)


def test_the_curved_map_is_the_quadratic_one_close_to_the_origin_only():
    straight, curved = (oc.datasets.ground_truth(oc.SqL2(), 4, 5, 5, potential=p) for p in POTENTIALS)
    x = np.random.default_rng(0).normal(size=(20, 4))
    np.testing.assert_allclose(curved.transform(1e-4 * x), straight.transform(1e-4 * x), atol=1e-10)
    far = np.linalg.norm(1e3 * x - curved.transform(1e3 * x), axis=1)
    assert (far <= np.linalg.norm(curved.concave.curvatures) + 1e-9).all()  # the pull levels off


@pytest.mark.peers
@pytest.mark.parametrize(
    ("name", "potential"),
    [
        ("SqL2", "quadratic"),
        ("SqEuclidean", "logcosh"),
        ("L1", "quadratic"),
        ("weak L1", "logcosh"),
        ("STVS", "quadratic"),
    ],
)
def test_it_is_the_map_of_ott(ott, name, potential):
    """OTT-JAX's transport_map: min_z h(z) − g(x − z) by its own proximal gradient, or L-BFGS where h is ‖z‖².

    Its STVS takes the prox at one weight only, and its proximal gradient asks for others: so L-BFGS, too, with the
    images that are on a kink left out.
    """
    import jax
    import jax.numpy as jnp
    from ott.geometry import costs, regularizers

    own = {"SqL2": oc.SqL2(), "SqEuclidean": oc.SqL2(), "L1": oc.L1(1.0), "weak L1": oc.L1(0.3), "STVS": oc.STVS(0.5)}
    peers = {
        "SqL2": costs.RegTICost(regularizers.SqL2(), lam=0.0),
        "SqEuclidean": costs.SqEuclidean(),  # h = ‖z‖²: twice ours, hence twice g
        "L1": costs.RegTICost(regularizers.L1(), lam=1.0),
        "weak L1": costs.RegTICost(regularizers.L1(), lam=0.3),
        "STVS": costs.RegTICost(regularizers.STVS(0.5), lam=1.0),
    }
    d = 2 if name == "STVS" else 6
    truth = oc.datasets.ground_truth(own[name], d, 25, 10, potential=potential, pull=1.5)
    curvatures, axes = (jnp.asarray(part) for part in np.linalg.eigh(truth.curvature))
    scale = 2.0 if name == "SqEuclidean" else 1.0

    def g(y):
        along = y @ axes
        values = 0.5 * along**2 if potential == "quadratic" else jnp.log(jnp.cosh(along))
        return -scale * curvatures @ values

    x, kept = jnp.asarray(truth.source), np.ones(25, dtype=bool)
    if name == "STVS":
        kept = truth.support.all(axis=1)
        assert 3 < kept.sum() < 25
        transform = costs.TICost.h_transform
        gradient = jax.vmap(jax.grad(lambda p: transform(peers[name], g)(p, tol=1e-12, max_iter=500)))
        move = jax.vmap(lambda p, w: peers[name].twist_operator(p, w, False))
        moved = jax.jit(lambda points: move(points, gradient(points)))(x)
    else:
        ends = {"tol": 1e-12, "max_iter": 500} if name == "SqEuclidean" else {"tol": 1e-10, "maxiter": 5000}
        moved = jax.jit(lambda points: peers[name].transport_map(g)(points, **ends))(x)
    np.testing.assert_allclose(truth.image[kept], np.asarray(moved)[kept], atol=2e-6)


@pytest.mark.parametrize("potential", POTENTIALS)
@pytest.mark.parametrize("pull", [1e-6, 100.0])
def test_the_fixed_point_is_met_at_any_pull(pull, potential):
    truth = oc.datasets.ground_truth(oc.L1(1.0), 5, 20, 5, potential=potential, pull=pull)
    curvatures, axes = np.linalg.eigh(truth.curvature)
    along = truth.image @ axes
    w = ((along if potential == "quadratic" else np.tanh(along)) * curvatures) @ axes.T
    np.testing.assert_allclose(truth.source - oc.L1(1.0).prox(w), truth.image, atol=1e-9)
    assert (truth.support == (truth.image != truth.source)).all()


def test_seeds_and_costs_share_what_they_should():
    first, again = (oc.datasets.ground_truth(oc.L1(1.0), 4, 20, 30, random_state=7) for _ in range(2))
    other = oc.datasets.ground_truth(oc.STVS(1.0), 4, 20, 30, potential="logcosh", random_state=7)
    assert (first.target == again.target).all()
    assert (first.source == other.source).all()
    assert (first.curvature == other.curvature).all()
    assert (first.image != other.image).any()
    assert first.target.shape == (30, 4)
    np.testing.assert_allclose(first.transform(first.source), first.image, atol=2 * first.accuracy)


def test_a_fit_with_the_own_cost_comes_nearer_with_more_samples():
    errors = []
    for n in (50, 500):
        truth = oc.datasets.ground_truth(oc.L1(2.0), 5, n + 200, n, pull=5.0)
        fitted = oc.MongeMap(oc.L1(2.0), epsilon=0.03).fit(truth.source[200:], truth.target)
        errors.append(oc.metrics.nmse(truth.image[:200], fitted.transform(truth.source[:200])))
    assert errors[1] < 0.5 * errors[0]


@pytest.mark.peers
@pytest.mark.parametrize("cost", [oc.SqL2(), oc.L1(2.0), oc.STVS(2.0)], ids=repr)
def test_the_error_of_a_fit_is_that_of_ott(ott, cost):
    """The same samples and ε: OTT-JAX's entropic map is as far from the truth as ours."""
    import jax
    import jax.numpy as jnp
    from ott.geometry import costs, pointcloud, regularizers
    from ott.solvers import linear

    truth = oc.datasets.ground_truth(cost, 4, 150, 100, pull=5.0)
    x, unseen, goal = truth.source[:100], truth.source[100:], truth.image[100:]
    fitted = oc.MongeMap(cost, epsilon=0.03, tol=1e-8, max_iter=20000).fit(x, truth.target)
    peer = {
        "SqL2": costs.SqEuclidean(),
        "L1": costs.RegTICost(regularizers.L1(), lam=2.0),
        "STVS": costs.RegTICost(regularizers.STVS(2.0), lam=1.0),
    }[type(cost).__name__]
    epsilon = fitted.epsilon_ * (2.0 if isinstance(cost, oc.SqL2) else 1.0)  # their SqEuclidean has no ½
    clouds = pointcloud.PointCloud(jnp.asarray(x), jnp.asarray(truth.target), cost_fn=peer, epsilon=epsilon)
    solved = linear.solve(clouds, threshold=1e-8, max_iterations=20000)
    theirs = np.asarray(jax.jit(solved.to_dual_potentials().transport)(jnp.asarray(unseen)))
    ours = fitted.transform(unseen)
    assert oc.metrics.nmse(goal, ours) == pytest.approx(oc.metrics.nmse(goal, theirs), rel=1e-6)
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"cost": "l1"}, "cost must be"),
        ({"n_source": 0}, "n_source"),
        ({"d": 2.5}, "d must be"),
        ({"potential": "convex"}, "potential must be one of"),
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


def test_a_cost_whose_prox_is_not_its_own_is_refused():
    """The bound on the error is computed, not hoped for: where it is not met, there is no truth."""

    class Wrong(oc.L1):
        def _prox(self, w):
            return 3.0 * np.sign(w.data) * (np.abs(w.data) > 0.1)

    with pytest.raises(InputError, match="prox exact"):
        oc.datasets.ground_truth(Wrong(1.0), 3, 20, 20)


def test_transform_and_potential_refuse_other_features():
    truth = oc.datasets.ground_truth(oc.L1(1.0), 3, 5, 5)
    with pytest.raises(InputError, match="3 features"):
        truth.transform(np.ones((2, 4)))
    with pytest.raises(InputError, match="Z must have 3 features"):
        truth.potential(np.ones((2, 4)))
    with pytest.raises(InputError, match="side must be one of"):
        truth.potential(np.ones((2, 3)), "both")
