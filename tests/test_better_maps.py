"""MongeMap(debias=True): the moves of the plain map, without those that the source makes towards itself."""

from __future__ import annotations

import warnings

import numpy as np
import ot
import pytest
import scipy.sparse as sp

import occamap as oc
from occamap.errors import InputError
from occamap.maps.debias import WARNING

pytestmark = pytest.mark.filterwarnings("ignore:debias=True is deprecated")

COSTS = [oc.L1(0.4), oc.L1(0.3, weights=np.linspace(0.0, 2.0, 30)), oc.STVS(0.5), oc.KOverlap(0.5, k=4)]


def cells(seed: int, n: int, raised: float = 0.0) -> sp.csr_array:
    """Log counts of 30 genes, the first three of which may be raised."""
    rng = np.random.default_rng(seed)
    rates = np.linspace(0.1, 2.0, 30) * np.where(np.arange(30) < 3, 1 + raised, 1.0)
    return sp.csr_array(np.log1p(rng.poisson(rates, size=(n, 30)).astype(np.float64)))


def both(cost: oc.Cost, relax: float = 0.0, **given: object) -> tuple[oc.MongeMap, oc.MongeMap]:
    X, Y = cells(0, 60), cells(1, 70, raised=20.0)
    maps = [oc.MongeMap(cost, 0.05, relax=relax, tol=1e-9, debias=debias, **given) for debias in (False, True)]
    return maps[0].fit(X, Y), maps[1].fit(X, Y)


def field(cost: oc.Cost, x: np.ndarray, anchors: np.ndarray, g: np.ndarray, C: np.ndarray, eps: float) -> np.ndarray:
    """Σ_j p_j ∇h(x − y_j), p ∝ exp((g_j − C_j)/ε), one sample."""
    p = np.exp((g - C) / eps - ((g - C) / eps).max())
    return (p / p.sum()) @ cost.grad(x - anchors)


@pytest.mark.parametrize("cost", COSTS, ids=repr)
@pytest.mark.parametrize("fitted", [False, True])
def test_the_support_is_that_of_the_definition_with_potentials_of_POT(cost: oc.Cost, fitted: bool) -> None:
    plain, debiased = both(cost)
    X, Y, eps = cells(0, 60).toarray(), cells(1, 70, raised=20.0).toarray(), debiased.epsilon_
    new = X[:20] if fitted else cells(2, 20).toarray()
    within = cost.pairwise(X, X)
    same = 1e-6 * within.mean()
    within[within <= same] = np.inf  # no sample is a target of itself
    a = np.full(60, 1 / 60)
    _, log = ot.bregman.sinkhorn_log(a, a, np.minimum(within, 1e6), eps, numItermax=20000, stopThr=1e-10, log=True)
    own = eps * log["log_v"]
    expected = np.empty(new.shape, bool)
    for i, x in enumerate(new):
        C = cost.pairwise(x[None], X)[0]
        C[same >= C] = 1e6
        toward = field(cost, x, Y, debiased.g_, cost.pairwise(x[None], Y)[0], eps)
        expected[i] = cost.prox(toward - field(cost, x, X, own, C, eps)) != 0
    moves = plain.displacement(new).toarray()
    found = debiased.displacement(new).toarray()
    np.testing.assert_allclose(found, np.where(expected, moves, 0.0), atol=1e-12)
    assert 0 < np.count_nonzero(found) < np.count_nonzero(moves)


@pytest.mark.parametrize("relax", [0.0, 0.5, 1.0])
def test_what_stays_moves_as_before_in_any_container(relax: float) -> None:
    plain, debiased = both(oc.L1(0.4), relax)
    new = cells(2, 25)
    moves, kept = plain.displacement(new).toarray(), debiased.displacement(new).toarray()
    np.testing.assert_array_equal(kept, np.where(kept != 0, moves, 0.0))
    np.testing.assert_array_equal(debiased.displacement(new.toarray()).toarray() != 0, kept != 0)
    np.testing.assert_allclose(debiased.transform(new.toarray()), new.toarray() + kept, atol=1e-12)
    np.testing.assert_allclose(debiased.transform(new).toarray(), new.toarray() + kept, atol=1e-12)
    narrow = oc.MongeMap(**debiased.get_params())
    narrow.fit(cells(0, 60).astype(np.float32), cells(1, 70, raised=20.0).astype(np.float32))
    found = narrow.displacement(new.astype(np.float32))
    assert found.dtype == np.float32
    assert np.mean((found.toarray() != 0) != (kept != 0)) < 0.01


def test_a_feature_that_neither_side_has_stays_where_it_is() -> None:
    X, Y, new = cells(0, 60).toarray(), cells(1, 70).toarray(), cells(2, 10).toarray()
    X[:, 5] = Y[:, 5] = 0.0
    new[:, 5] = 1.5
    plain = oc.MongeMap(oc.L1(1.0)).fit(X, Y)
    np.testing.assert_allclose(plain.displacement(new).toarray()[:, 5], -1.5)  # whatever γ is
    debiased = oc.MongeMap(oc.L1(1.0), debias=True).fit(X, Y)
    assert not debiased.displacement(new).toarray()[:, 5].any()


def test_genes_that_are_raised_stay_and_noise_goes() -> None:
    new = cells(2, 100)
    shares = []
    for fitted in both(oc.L1(0.4)):
        moves = fitted.displacement(new).toarray() != 0
        shares.append((moves[:, :3].mean(), moves[:, 3:].mean()))
    (raised, others), (raised_kept, others_kept) = shares
    assert raised_kept > 0.9 * raised
    assert others_kept < 0.6 * others


def test_the_way_back_compares_with_the_targets() -> None:
    plain, debiased = both(oc.L1(0.4))
    back = oc.MongeMap(oc.L1(0.4), debiased.epsilon_, "absolute", tol=1e-9, debias=True)
    back.fit(cells(1, 70, raised=20.0), cells(0, 60))
    new = cells(3, 20, raised=20.0)
    np.testing.assert_allclose(debiased.inverse_transform(new).toarray(), back.transform(new).toarray(), atol=1e-6)
    assert abs(debiased.inverse_transform(new) - plain.inverse_transform(new)).max() > 0.1


def test_a_saved_map_moves_alike(tmp_path) -> None:  # type: ignore[no-untyped-def]
    _, debiased = both(oc.STVS(0.5))
    debiased.save(tmp_path / "m.occamap")
    new = cells(2, 10)
    again = oc.load(tmp_path / "m.occamap").displacement(new)
    assert (again != debiased.displacement(new)).nnz == 0


def test_dask_arrays_move_alike() -> None:
    array = pytest.importorskip("dask.array")
    _, debiased = both(oc.L1(0.4))
    new = cells(2, 20).toarray()
    moved = debiased.transform(array.from_array(new, chunks=(7, 30))).compute(scheduler="synchronous")
    np.testing.assert_allclose(moved, debiased.transform(new), atol=1e-12)


def test_equal_samples_have_no_others_to_be_compared_with() -> None:
    X, Y = np.ones((5, 3)), np.tile([3.0, 1.0, 1.0], (4, 1))
    moves = oc.MongeMap(oc.L1(0.5), debias=True).fit(X, Y).displacement(X).toarray()
    np.testing.assert_allclose(moves, np.tile([2.0, 0.0, 0.0], (5, 1)), atol=1e-6)


def test_it_warns_once_and_refuses_what_it_is_not_for() -> None:
    X, Y = cells(0, 20), cells(1, 20)
    fitted = oc.MongeMap(debias=True).fit(X, Y)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        fitted.transform(X)
        fitted.displacement(X)
    assert [str(w.message) for w in told] == [WARNING]
    assert told[0].filename == __file__
    assert told[0].category is FutureWarning
    with pytest.raises(InputError, match="reach must be None with debias=True"):
        oc.MongeMap(debias=True, reach=1.0).fit(X, Y)
    with pytest.raises(InputError, match="debias must be True or False; got 'yes'"):
        oc.MongeMap(debias="yes").fit(X, Y)  # type: ignore[arg-type]
