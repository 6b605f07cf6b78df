"""The k-overlap norm and its two proxes, against exact arithmetic and against duality."""

from __future__ import annotations

import subprocess
import sys
import time
import tracemalloc
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from occamap import KOverlap
from occamap._kernels.koverlap import top_norm

Floats = NDArray[np.float64]

SHAPES = [(d, k) for d in range(1, 7) for k in range(1, d + 1)]
ROWS = 64


def square_by_definition(z: Floats, k: int) -> Fraction:
    """‖z‖² from the sorted magnitudes and the one index r of the definition, without rounding."""
    m = sorted((abs(Fraction(v)) for v in z.tolist()), reverse=True)
    for r in range(k):
        tail = sum(m[k - r - 1 :], Fraction(0)) / (r + 1)
        if (r == k - 1 or m[k - r - 2] > tail) and tail >= m[k - r - 1]:
            return sum((v * v for v in m[: k - r - 1]), Fraction(0)) + tail * tail * (r + 1)
    raise AssertionError("the definition has no r")


def norm(z: Floats, k: int) -> float:
    return float(square_by_definition(z, k)) ** 0.5


def dual_norm(w: Floats, k: int) -> float:
    return float(np.linalg.norm(np.sort(np.abs(w))[-k:]))


def exact_prox(w: Floats, k: int, gamma: Fraction) -> tuple[Floats, NDArray[np.bool_]]:
    """argmin ½‖z − w‖² + ½γ‖z‖² by trying every split into full, shrunk and dropped magnitudes, without rounding.

    With ‖z‖² = min Σ z²/θ over 0 ≤ θ ≤ 1, Σθ ≤ k, exactly one z satisfies the optimality conditions of a split.
    The mask tells the features that are dropped with room to spare: a rounded prox must drop them, too.
    """
    m = [abs(Fraction(v)) for v in w.tolist()]
    s = sorted(m, reverse=True)
    if sum(v > 0 for v in s) <= k:
        return w / float(1 + gamma), w == 0
    for full in range(k + 1):
        for kept in range(max(k, full), len(s) + 1):
            middle = s[full:kept]
            if middle:
                alpha = (k - full + gamma * len(middle)) / sum(middle)
            else:  # Σθ = k on a whole interval of α that begins here
                alpha = (1 + gamma) / s[full - 1]
            fits = all(0 < alpha * v - gamma < 1 for v in middle)
            fits &= all(alpha * v >= 1 + gamma for v in s[:full]) and all(alpha * v <= gamma for v in s[kept:])
            if not fits:
                continue
            theta = [min(max(alpha * v - gamma, Fraction(0)), Fraction(1)) for v in m]
            z = [float(t / (t + gamma)) * v if t else 0.0 for t, v in zip(theta, w.tolist(), strict=True)]
            return np.array(z), np.array([alpha * v < gamma * (1 - Fraction(1, 10**9)) for v in m])
    raise AssertionError("no split is optimal")


def cases(d: int, seed: int) -> Floats:
    """Rows with every kind of trouble: ties, zeros, integers, decimals whose sums round, wide ranges."""
    rng = np.random.default_rng(seed)
    kinds = [
        rng.standard_normal((ROWS, d)),
        rng.integers(-3, 4, (ROWS, d)).astype(np.float64),
        rng.choice([0.0, 0.1, -0.2, 0.3, 0.4, -0.7], (ROWS, d)),
        np.log1p(rng.integers(0, 4, (ROWS, d))),
        rng.standard_normal((ROWS, d)) * 10.0 ** rng.integers(-6, 7, (ROWS, d)),
    ]
    return np.stack([kinds[i % 5][i] for i in range(ROWS)])


@pytest.mark.parametrize(("d", "k"), SHAPES)
def test_norm_is_the_sorted_definition(d: int, k: int) -> None:
    Z = cases(d, seed=d)
    expected = np.array([float(square_by_definition(z, k)) for z in Z])
    half_square = 0.5 * np.sum(Z * Z, axis=1)
    np.testing.assert_allclose(KOverlap(2.0, k).value(Z), half_square + expected, rtol=1e-13)
    np.testing.assert_allclose(KOverlap(2.0, k, squared=False).value(Z), half_square + 2 * expected**0.5, rtol=1e-13)


def test_norm_lies_between_its_two_ends() -> None:
    z = np.random.default_rng(0).standard_normal(500)
    values = [np.sqrt(KOverlap(2.0, k).value(z) - 0.5 * (z @ z)) for k in range(1, 501)]
    assert values[0] == pytest.approx(np.abs(z).sum(), rel=1e-12)
    assert values[-1] == pytest.approx(np.linalg.norm(z), rel=1e-12)
    assert np.all(np.diff(values) < 0)


@pytest.mark.parametrize(("d", "k"), SHAPES)
@pytest.mark.parametrize("gamma", [0.125, 1.5, 20.0])
def test_squared_prox_is_exact(d: int, k: int, gamma: float) -> None:
    W = cases(d, seed=100 + d)
    Z = KOverlap(gamma, k).prox(W)
    for w, z in zip(W, Z, strict=True):
        expected, dropped = exact_prox(w, k, Fraction(gamma))
        np.testing.assert_allclose(z, expected, rtol=1e-11, atol=1e-13 * np.max(np.abs(w)))
        assert not z[dropped].any(), f"{w.tolist()}, k={k}: {z.tolist()}"


def test_a_feature_that_the_squared_prox_drops_is_exactly_zero() -> None:
    """Where magnitudes k and k + 1 are far apart Σθ = k holds for a range of α, whose end must not let one in."""
    assert KOverlap(50.0, k=2).prox([5.0, 5.0, 4.0625])[2] == 0
    W = np.random.default_rng(0).standard_cauchy((500, 50))
    Z = np.abs(KOverlap(10.0, k=5).prox(W))
    assert np.all(Z[Z > 0] > 1e-13 * np.abs(W)[Z > 0])


@pytest.mark.parametrize(("d", "k"), [(40, 1), (40, 7), (500, 20), (500, 499), (3000, 64), (3000, 3000)])
@pytest.mark.parametrize("gamma", [1e-3, 1.0, 300.0])
def test_squared_prox_is_optimal_in_many_dimensions(d: int, k: int, gamma: float) -> None:
    """u = (w − z)/γ is a subgradient of ½‖·‖² at z: ½‖z‖² + ½‖u‖*² = ⟨u, z⟩."""
    rng = np.random.default_rng(d + k)
    W = np.stack([rng.standard_normal(d), rng.standard_cauchy(d), np.log1p(rng.poisson(1.0, d))])
    for w, z in zip(W, KOverlap(gamma, k).prox(W), strict=True):
        u = (w - z) / gamma
        primal = (KOverlap(1.0, k).value(z) - 0.5 * (z @ z)) + 0.5 * dual_norm(u, k) ** 2
        assert primal == pytest.approx(u @ z, rel=1e-9)
        assert np.all(z * w >= 0)
        assert np.all(np.diff(np.abs(z)[np.argsort(np.abs(w))]) >= -1e-15)


@pytest.mark.parametrize("gamma", [1e-3, 1.0, 50.0, 1e6])
@pytest.mark.parametrize("k", [1, 2, 9, 60])
def test_squared_prox_keeps_at_least_k_features(gamma: float, k: int) -> None:
    rng = np.random.default_rng(k)
    W = np.concatenate([rng.standard_normal((40, 60)), rng.choice([0.5, -0.5, 1.0], (40, 60)), np.ones((1, 60))])
    W[:20, k:] *= rng.random((20, 60 - k)) < 0.3
    assert np.all(np.count_nonzero(KOverlap(gamma, k).prox(W), axis=1) >= k)


@pytest.mark.parametrize(("d", "k"), [*SHAPES, (300, 1), (300, 12), (300, 300)])
@pytest.mark.parametrize("share", [1e-4, 0.3, 0.9, 0.999])
def test_prox_of_the_norm_is_optimal(d: int, k: int, share: float) -> None:
    """w − z is on the dual ball of radius γ and attains γ‖z‖ there: it is the projection of w on it."""
    W = cases(d, seed=200 + d) if d < 10 else np.random.default_rng(d).standard_normal((5, d))
    for w in W[W.any(axis=1)]:
        gamma = share * dual_norm(w, k)
        z = KOverlap(gamma, k, squared=False).prox(w)
        u = w - z
        assert z.any()
        assert dual_norm(u, k) == pytest.approx(gamma, rel=1e-9, abs=1e-14 * dual_norm(w, k))
        assert u @ z == pytest.approx(gamma * norm(z, k), rel=1e-9, abs=1e-14 * float(w @ w))


@pytest.mark.parametrize("above", [1e-2, 1e-6, 1e-10])
def test_prox_of_the_norm_keeps_its_digits_next_to_the_dual_ball(above: float) -> None:
    """Equal magnitudes outside the ball are shrunk to it, all alike; a prox never magnifies a rounding error."""
    for d, k in [(3, 2), (6, 2), (40, 13)]:
        w = np.resize([1.0, -1.0], d) * (1 + above)
        z = KOverlap(k**0.5, k, squared=False).prox(w)
        np.testing.assert_allclose(z, w - np.sign(w), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("d", "k"), SHAPES)
def test_prox_of_the_norm_vanishes_exactly_in_the_dual_ball(d: int, k: int) -> None:
    for w, factor in product(cases(d, seed=300 + d), (1.0 + 1e-12, 1.5, 1e6)):
        assert not KOverlap(factor * dual_norm(w, k), k, squared=False).prox(w).any()
    w = np.array([3.0, -4.0, *np.zeros(d)])
    assert not KOverlap(5.0, 2, squared=False).prox(w).any()  # on its surface
    assert top_norm(w, 2) == 5


def test_every_loop_ends_whatever_the_rounding() -> None:
    """In a process of its own, since a kernel that never returns cannot be interrupted."""
    program = """
import numpy as np
from occamap import KOverlap
KOverlap(1.0, 3).value([0.3, 0.3, 0.4, 0.2])
KOverlap(1.0, 13).grad(np.log1p([3.0] * 3 + [1.0] * 20))
decimals = np.random.default_rng(0).integers(0, 11, (200, 10)) / 10
for k in range(1, 11):
    KOverlap(1.0, k).pairwise(decimals, decimals, n_jobs=1)
    for w in decimals[:50]:
        surface = np.linalg.norm(np.sort(w)[-k:])
        for digits in (3, 8, 12, 14, 16):
            assert np.all(np.isfinite(KOverlap(surface * (1 - 10.0**-digits), k, squared=False).prox(w)))
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_prox_at_the_size_of_a_genome_is_fast_and_small() -> None:
    d = 34_636
    rng = np.random.default_rng(0)
    vectors = {
        "dense": rng.standard_normal(d),
        "counts": np.log1p(rng.poisson(0.1, d).astype(np.float64)),
        "heavy tails": rng.standard_cauchy(d),
        "all equal": np.ones(d),
    }
    for (name, w), k, gamma in product(vectors.items(), (1, 50, 5000), (0.1, 100.0)):
        cost = KOverlap(gamma, k)
        cost.prox(w)
        seconds = []
        for _ in range(5):
            start = time.perf_counter()
            cost.prox(w)
            seconds.append(time.perf_counter() - start)
        assert min(seconds) < 0.020, f"{name}, k={k}, gamma={gamma}: {1000 * min(seconds):.1f} ms"
        tracemalloc.start()
        cost.prox(w)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 10 * w.nbytes
