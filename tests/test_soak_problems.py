"""Generated problems: a share of the soak, what its checks see, and the faults that it found."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from occamap import L1, STVS, GroupLasso, KOverlap, MongeMap, SqL2, Subspace
from occamap.costs import Cost
from occamap.errors import InputError, NotConvergedWarning
from occamap.maps import neighbourhoods
from occamap.maps.components import Components
from occamap.maps.pooling import _Pooled
from occamap.maps.side import Side
from occamap.sinkhorn.solve import _Sweep
from occamap.sinkhorn.target_search import EpsilonChoice
from soak import reference_pool
from soak.generate import Problem, problem
from soak.generate_pool import Projection, Reading
from soak.problems import attempt, run
from soak.problems_bounds import FaultError
from soak.problems_check import examine
from soak.reference import Penalty, displacement, gibbs
from soak.reference_groups import Groups
from soak.reference_koverlap import overlap
from soak.tally import Tally

Patch = pytest.MonkeyPatch
HANGS, ENDS = 3, 5


# -- the soak itself -------------------------------------------------------------------------------------------


def test_a_share_of_the_problems_ends_right_or_refused() -> None:
    tally = Tally("problems", seed=7, share=0.002)
    run(tally)
    assert not tally.faults
    assert tally.total() == 200
    right = sum(count for endings in tally.counts.values() for end, count in endings.items() if end.startswith("right"))
    assert right > 0.85 * tally.total()
    assert {what.split(",")[0] for what in tally.counts} >= {"SqL2", "L1", "STVS", "KOverlap", "GroupLasso", "Subspace"}
    read = [what for what in tally.counts if what.endswith((", pool", ", match"))]
    assert 0.2 * tally.total() < tally.total(read) < 0.5 * tally.total()


def stuck(seed: int, theirs: Connection) -> None:
    """Stands for `soak.problems.work`: one problem never ends, another ends the process."""
    theirs.send(None)
    while True:
        try:
            start, stop = theirs.recv()
        except EOFError:
            return
        for number in range(start, stop):
            if number == HANGS:
                time.sleep(60)
            if number == ENDS:
                os._exit(1)
            theirs.send(("some", "right", False, 0.0, 0.0))


def test_a_problem_that_hangs_or_ends_the_process_is_named_and_the_others_go_on() -> None:
    tally = Tally("problems", share=1e-4)
    begun = time.monotonic()
    run(tally, limit=4.0, target=stuck)
    assert tally.counts == {"some": {"right": 8}, "time": {"fault": 1}, "process": {"fault": 1}}
    assert tally.faults == [
        "time: problem 3 of seed 0 took more than 4 s",
        "process: problem 5 of seed 0 ended it",
    ]
    assert time.monotonic() - begun < 50


def test_a_problem_is_the_same_when_it_is_asked_for_again() -> None:
    for number in range(40):
        once, again = problem(3, number), problem(3, number)
        assert (once.kind, once.options, once.cost) == (again.kind, again.options, again.cost)
        assert str(once.reading.pool) == str(again.reading.pool)
        for x, y in ((once.X, again.X), (once.Y, again.Y), (once.new, again.new)):
            assert x.dtype == y.dtype
            same = (x != y).nnz == 0 if sp.issparse(x) else np.array_equal(x, y)
            assert same


def plain_problem() -> Any:
    """The first problem of L1 that is moved, dense, in float64 and converged."""
    for number in range(400):
        posed = problem(0, number)
        plain = posed.kind == "L1" and isinstance(posed.X, np.ndarray) and posed.X.dtype == np.float64
        simple = posed.options["epsilon_scale"] == "mean" and "debias" not in posed.options and posed.X.size > 20
        alone = posed.reading.pool is None and posed.reading.match is None
        if plain and simple and alone and examine(posed).ending == "right":
            return posed
    raise AssertionError("no such problem")


def scaled(method: Callable[..., Any], factor: float) -> Callable[..., Any]:
    return lambda *arguments, **options: method(*arguments, **options) * factor


def warns(method: Callable[..., Any]) -> Callable[..., Any]:
    def warned(*arguments: Any, **options: Any) -> Any:
        np.log(np.zeros(1))
        return method(*arguments, **options)

    return warned


def fails(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError("float division by zero")


def silent(self: MongeMap, *arguments: Any) -> MongeMap:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return FIT(self, *arguments)


FIT = MongeMap.fit


@pytest.mark.parametrize(
    ("where", "name", "broken", "told"),
    [
        (Cost, "pairwise", scaled(Cost.pairwise, 1 + 1e-9), "pairwise is"),
        (MongeMap, "weights", scaled(MongeMap.weights, 1 + 1e-9), "sums of weights is"),
        (MongeMap, "weights", scaled(MongeMap.weights, np.nan), "weights is not finite"),
        (MongeMap, "potential", scaled(MongeMap.potential, 1 + 1e-6), "potential is"),
        (MongeMap, "displacement", scaled(MongeMap.displacement, 1 + 1e-9), "displacement is"),
        (MongeMap, "transform", scaled(MongeMap.transform, 1 + 1e-9), "transform is"),
        (MongeMap, "inverse_transform", scaled(MongeMap.inverse_transform, 1 + 1e-6), "inverse_transform is"),
        (MongeMap, "weights", warns(MongeMap.weights), "RuntimeWarning at"),
    ],
)
def test_the_check_sees_what_is_wrong(where: Any, name: str, broken: Any, told: str, monkeypatch: Patch) -> None:
    posed = plain_problem()
    monkeypatch.setattr(where, name, broken)
    with pytest.raises(FaultError, match=told):
        examine(posed)


def test_an_error_that_is_not_typed_is_a_fault(monkeypatch: Patch) -> None:
    monkeypatch.setattr(MongeMap, "fit", fails)
    _, ending, fault, _ = attempt(0, 0)
    assert fault
    assert ending.startswith("ZeroDivisionError at")


def test_a_fit_that_does_not_say_that_it_has_not_converged_is_a_fault(monkeypatch: Patch) -> None:
    number = next(number for number in range(300) if examine(problem(0, number)).ending == "right, not converged")
    monkeypatch.setattr(MongeMap, "fit", silent)
    with pytest.raises(FaultError, match="status max_iter, warned: False"):
        examine(problem(0, number))


@pytest.mark.parametrize(("f_off", "g_off", "told"), [(0.1, 0.0, "f_ is"), (0.0, 0.5, "marginal error")])
def test_potentials_that_are_not_of_the_plan_are_a_fault(
    f_off: float, g_off: float, told: str, monkeypatch: Patch
) -> None:
    posed, finish = plain_problem(), _Sweep.finish

    def wrong(self: _Sweep, g: Any) -> Any:
        error = finish(self, g)[2]
        f, g, _ = finish(self, g + g_off * self.epsilon * np.eye(g.size)[0])
        return f + f_off * self.epsilon, g, error

    monkeypatch.setattr(_Sweep, "finish", wrong)
    with pytest.raises(FaultError, match=told):
        examine(posed)


# -- pool and match ---------------------------------------------------------------------------------------------


def kind_of(pool: Any) -> str:
    """A number, "auto", labels or a matrix."""
    if pool is None or isinstance(pool, int | str | np.integer):
        return "none" if pool is None else "auto" if isinstance(pool, str) else "number"
    return "matrix" if sp.issparse(pool) or np.ndim(pool) == 2 else "labels"


def some_problems(wanted: Callable[[Problem], bool], number: int = 12) -> list[Problem]:
    """The first of seed 0 that are sound and as wanted."""
    found: list[Problem] = []
    for posed in (problem(0, k) for k in count()):
        if len(found) == number:
            return found
        if not posed.reading.flaw and posed.kind != "GroupLasso overlap" and wanted(posed):
            found.append(posed)
    raise AssertionError


def uniform_labels(labels: Any, masses: Any) -> Any:
    return BY_LABELS(labels, (masses > 0) / np.count_nonzero(masses))


def unpooled_shifts(self: Any, out: Any, start: int) -> None:
    """Fields of which the shifts are all that of the first sample."""
    FIELDS(self, out, start)
    out.shifts[:] = out.shifts[:1]


def tieless(self: Any, out: Any, start: int) -> None:
    FIELDS(self, out, start)
    out.slack[:] = 0.0


def by_features_outside(self: Any, X: Any, displacer: Any, workers: Any) -> Any:
    """Costs that are those of the match for more samples than are new."""
    if self.space is not None and X.shape[0] <= 4:
        return lambda span: displacer.pairs.block(X.rows(*span))
    return COSTS(self, X, displacer, workers)


def nearest_of_all(points: Any, places: Any, masses: Any, *others: Any) -> Any:
    return NEAREST(points, places, np.maximum(masses, 1e-3), *others)


BY_LABELS, NEAREST = neighbourhoods.by_labels, neighbourhoods.nearest
FIELDS, COSTS = _Pooled._write_fields, Side._costs
APPLY = Components.__call__

MISTAKES: dict[str, tuple[Any, str, Any, Callable[[Problem], bool], str]] = {
    "labels without masses": (
        neighbourhoods, "by_labels", uniform_labels,
        lambda p: kind_of(p.reading.pool) == "labels" and p.a is not None, "neighbourhoods is",
    ),
    "relaxed to another shift": (
        _Pooled, "_write_fields", unpooled_shifts,
        lambda p: kind_of(p.reading.pool) == "matrix" and "relax" in p.options, "(transform|displacement) is",
    ),
    "ties are forgotten": (
        _Pooled, "_write_fields", tieless, lambda p: p.reading.pool is not None and "ties" in p.options,
        "(transform|displacement) is",
    ),
    "auto without a taper": (
        neighbourhoods, "TAPER", 0.0, lambda p: kind_of(p.reading.pool) == "auto", "another size than its weights say",
    ),
    "neighbours without mass": (
        neighbourhoods, "nearest", nearest_of_all,
        lambda p: kind_of(p.reading.pool) in ("number", "auto") and p.a is not None and not p.a.all(),
        "a sample without mass is in a neighbourhood",
    ),
    "new samples have the neighbourhood of the first": (
        neighbourhoods.Places, "closest", lambda self, points, workers: np.zeros(len(points), np.int64),
        lambda p: kind_of(p.reading.pool) in ("labels", "matrix"), "a point has not the neighbourhood",
    ),
    "new samples are matched in all features": (
        Side, "_costs", by_features_outside, lambda p: isinstance(p.reading.match, Projection), "potential is",
    ),
    "coordinates that are too large": (
        Components, "__call__", lambda self, X, workers: 2 * APPLY(self, X, workers),
        lambda p: isinstance(p.reading.match, int), "principal components of a sample is",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_check_sees_mistakes_in_pool_and_match(mistake: str, monkeypatch: Patch) -> None:
    where, name, broken, wanted, message = MISTAKES[mistake]
    posed = some_problems(wanted)
    assert all(examine(one).ending for one in posed)
    monkeypatch.setattr(where, name, broken)
    with pytest.raises(FaultError, match=message):
        all(examine(one).ending for one in posed)


def test_flaws_of_pool_and_match_are_refused_and_a_fit_that_goes_on_is_a_fault() -> None:
    flawed = [posed for posed in (problem(0, number) for number in range(2500)) if posed.reading.flaw]
    assert len({posed.reading.flaw for posed in flawed}) > 10
    for posed in flawed:
        assert examine(posed).ending.startswith("refused: InputError")
    with pytest.raises(FaultError, match="a flaw is not refused"):
        examine(replace(plain_problem(), reading=Reading(flaw="a flaw")))


# -- the reference ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "penalty",
    [
        Penalty("L1", 0.7, weights=np.array([0.0, 1.0, 2.0, 0.5, 1.0])),
        Penalty("STVS", 0.7),
        Penalty("KOverlap", 0.7, k=2),
        Penalty("KOverlap", 0.7, k=3, squared=False),
        Penalty("GroupLasso", 0.7, groups=[[0, 1], [2, 4]], l1_ratio=0.3),
        Penalty("GroupLasso", 0.7, groups=[[0, 1, 2], [2, 3], [1, 4]]),
        Penalty("Subspace", 0.7, basis=np.linalg.qr(np.random.default_rng(0).normal(size=(5, 2)))[0].T),
    ],
)
def test_the_prox_of_the_reference_is_a_minimum_and_its_gradient_a_slope(penalty: Penalty) -> None:
    random = np.random.default_rng(1)
    w = 2 * random.normal(size=(4, 5))
    z = penalty.prox(w)

    def objective(z: Any) -> Any:
        return 0.5 * ((z - w) ** 2).sum(axis=-1) + penalty.penalty(z)

    for size in (1e-3, 1e-1, 1.0):
        assert np.all(objective(z) <= objective(z + size * random.normal(size=z.shape)) + 1e-8)
    step = 1e-6 * random.normal(size=w.shape)
    slope = (penalty.value(w + step) - penalty.value(w - step)) / 2
    np.testing.assert_allclose(slope, (penalty.gradient(w) * step).sum(axis=-1), rtol=1e-3, atol=1e-10)


PENALTIES = [
    Penalty("SqL2"),
    Penalty("L1", 0.7, weights=np.array([0.0, 1.0, 2.0, 0.5, 1.0])),
    Penalty("STVS", 0.7),
    Penalty("KOverlap", 0.7, k=2),
    Penalty("KOverlap", 0.7, k=3, squared=False),
    Penalty("GroupLasso", 0.7, groups=[[0, 1], [2, 4]], l1_ratio=0.3),
    Penalty("Subspace", 0.7, basis=np.linalg.qr(np.random.default_rng(0).normal(size=(5, 2)))[0].T),
]


@pytest.mark.parametrize("penalty", PENALTIES)
def test_a_pooled_displacement_of_the_reference_is_minus_the_prox_of_the_pooled_field(penalty: Penalty) -> None:
    random = np.random.default_rng(1)
    x, y = random.integers(-2, 3, (4, 5)).astype(float), random.integers(-2, 3, (6, 5)).astype(float)
    p, W = random.dirichlet(np.ones(6), size=4), random.dirichlet(np.ones(4), size=3)
    fields = np.einsum("ij,ijt->it", p, penalty.gradient(x[:, None] - y))
    move, _ = reference_pool.pooled_displacement(penalty, x, y, p, W, occam=False, relax=0.0)
    np.testing.assert_allclose(move, -penalty.prox(W @ fields), atol=1e-12)
    relaxed, _ = reference_pool.pooled_displacement(penalty, x, y, p, W, occam=False, relax=0.5)
    np.testing.assert_allclose(relaxed, np.where(move != 0, 0.5 * (move + W @ (p @ y - x)), 0.0), atol=1e-12)


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("occam", [False, True])
def test_equal_samples_are_pooled_to_the_displacement_of_their_mean_weights(penalty: Penalty, occam: bool) -> None:
    random = np.random.default_rng(1)
    x, y = random.integers(-1, 2, 5).astype(float), random.integers(-1, 2, (6, 5)).astype(float)
    p, W = random.dirichlet(np.ones(6), size=4), random.dirichlet(np.ones(4), size=3)
    pooled, margin = reference_pool.pooled_displacement(penalty, np.tile(x, (4, 1)), y, p, W, occam, 0.0)
    wanted, other = displacement(penalty, np.tile(x, (3, 1)), y, W @ p, occam, 0.0)
    np.testing.assert_allclose(pooled, wanted, atol=1e-12)
    np.testing.assert_allclose(margin, other, atol=1e-12)


def test_the_neighbourhoods_of_the_reference() -> None:
    masses = np.array([0.1, 0.2, 0.3, 0.4])
    half = [[0.25, 0, 0.75, 0], [0, 1 / 3, 0, 2 / 3]] * 2
    np.testing.assert_allclose(reference_pool.neighbourhoods(["a", "b", "a", "b"], masses), half)
    np.testing.assert_allclose(reference_pool.neighbourhoods(sp.csr_array(np.eye(4)) * 2, masses), np.eye(4))
    assert reference_pool.neighbourhoods([0, 1, 1, 1], np.array([0.0, 1, 1, 1])) is None
    sizes = [reference_pool.count_neighbours("auto", np.ones(n)) for n in (10, 99, 240, 450, 5000)]
    assert sizes == [10, 99, 180, 250, 250]
    assert reference_pool.count_neighbours(7, np.array([1.0, 0, 1])) == 2
    factors = reference_pool.taper(np.array([[5.0, 0, 2, 1]]), 4)
    np.testing.assert_allclose(factors, np.exp([[-4.0, 0, -1.0, 0]]))
    means, clear = reference_pool.smooth(np.array([[0.0], [1.0]]), np.array([[0.0], [1], [3]]), 2, np.zeros(2))
    assert (means.tolist(), clear.tolist()) == ([[0.5], [0.5]], [True, True])
    assert reference_pool.Spectrum.of(np.diag([3.0, 1.0, 1e-8])).count_above(1e-6) == 2


# -- what it found ---------------------------------------------------------------------------------------------

RANDOM = np.random.default_rng(0)
X, Y = RANDOM.normal(size=(6, 4)), RANDOM.normal(size=(5, 4)) + 1


def test_the_reference_has_the_level_of_a_tail_beside_entries_that_are_larger_by_many_digits() -> None:
    """2 + 3/T = 4, which no comparison of squared norms sees."""
    assert overlap(np.array([[1.0, -9e8, 2.8e5, 1.0, 1.0]]), 4)[1] == pytest.approx(1.5)


def test_the_weights_of_the_reference_sum_to_one_however_far_the_targets_are() -> None:
    weights, _ = gibbs(np.array([[3.1e30, 3.1e30 * (1 + 1e-15), 3.2e30]]), np.zeros(3), np.ones(3) / 3, 1.7)
    assert weights.sum() == pytest.approx(1.0)


def test_the_slope_of_a_feature_that_hardly_counts_among_overlapping_groups_is_open() -> None:
    groups = Groups(1.0, [[0, 1], [1, 2]], [1.0, 2.0], 0.0, 3)
    assert groups.open(np.array([1.0, 1e-9, 1.0]), 1e-5).tolist() == [0.0, 4.0, 0.0]


@pytest.mark.parametrize("cost", [SqL2(), L1(0.5), STVS(0.5), GroupLasso(0.5, [[0, 1], [2, 3]]), KOverlap(0.5, 2)])
@pytest.mark.parametrize("far", [1e9, 1e20, 1e60])
def test_samples_far_from_all_targets_move_by_finite_numbers(cost: Cost, far: float) -> None:
    fitted = MongeMap(cost, epsilon=1e-3, tol=1e-2).fit(X, Y)
    np.testing.assert_allclose(fitted.weights(far * X).sum(axis=1), 1.0, rtol=1e-12)
    assert np.isfinite(fitted.potential(far * X)).all()
    moved = fitted.transform(far * X)
    assert np.abs(moved).max() < 1e-6 * far


def test_samples_so_far_that_costs_cannot_be_divided_are_refused() -> None:
    fitted = MongeMap(SqL2(), epsilon=1e-3, tol=1e-2).fit(1e-100 * X, 1e-100 * Y)
    with pytest.raises(InputError, match="samples must be near enough to the fitted ones"):
        fitted.transform(1e135 * X)


def test_a_sample_without_mass_far_from_all_others_does_not_spoil_a_fit() -> None:
    outlying, a = np.vstack([X, 1e12 * np.ones(4)]), np.array([1.0] * 6 + [0.0])
    fitted = MongeMap(SqL2(), epsilon=1e-3, tol=1e-2).fit(outlying, Y, a=a)
    np.testing.assert_allclose(fitted.f_[:6], MongeMap(SqL2(), epsilon=1e-3, tol=1e-2).fit(X, Y).f_, rtol=1e-8)


@pytest.mark.filterwarnings("ignore::occamap.errors.NotConvergedWarning")
def test_potentials_whose_error_depends_on_how_they_are_rounded_have_not_converged() -> None:
    """Costs from 0 to 1e59 at an ε of 1e46: an error below tol is chance, and the next pass has another."""
    X, Y = np.zeros((3, 5)), np.zeros((4, 5))
    X[1, 3], Y[0, 1], Y[1, 0], Y[1, 4], Y[2, 0], Y[2, 1] = 58909.5, 5.09e14, 1.84e23, 4.66e8, 1.7e25, 5.64e29
    cost, given = Subspace(16107.0, np.eye(3, 5)), {"epsilon_scale": "median", "reach": 1.965e60, "tol": 1e-4}
    reports = [MongeMap(cost, epsilon, **given).fit(X, Y).report_ for epsilon in (1.0, 2.0, 2.3, 3.0, 5.0)]
    assert all((report.error <= 1.000001e-4) == (report.status == "converged") for report in reports)
    assert "stalled" in {report.status for report in reports}


def test_the_free_constant_of_potentials_does_not_grow() -> None:
    x, y = np.array([[0.0], [0], [0], [0], [1]]), np.array([[0.0], [0], [1], [1]])
    fitted = MongeMap(SqL2(), epsilon=0.004).fit(x, y)
    s = (fitted.g_ - SqL2().pairwise(x, y)) / fitted.epsilon_
    top = s.max(axis=1)
    f = -fitted.epsilon_ * (top + np.log(np.exp(s - top[:, None]) @ fitted.b_))
    np.testing.assert_allclose(fitted.f_, f, rtol=0, atol=1e-13 * fitted.epsilon_)


def test_effective_targets_that_a_search_cut_short_did_not_find_are_refused() -> None:
    choice = EpsilonChoice([1.0], targets=2.0)
    choice.check(2.02, 5)
    with pytest.raises(InputError, match=r"2 effective targets were not found.*max_iter=5 .*are 3: raise max_iter"):
        choice.check(3.0, 5)
    for seed in range(40):
        random = np.random.default_rng(seed)
        x, y = np.exp(2 * random.normal(size=(2, 5, 2)))
        model = MongeMap(SqL2(), epsilon=1.2, epsilon_scale="perplexity", max_iter=4)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotConvergedWarning)
            try:
                model.fit(x, y)
            except InputError:
                continue
        assert not model.converged_ or abs(np.log(model.report_.effective_targets / 1.2)) < 0.05


@pytest.mark.parametrize("scale", [1e-100, 1.0, 1e130])
def test_the_deviation_of_costs_of_any_size(scale: float) -> None:
    fitted = MongeMap(SqL2(), epsilon=0.5, epsilon_scale="std").fit(scale * X, scale * Y)
    C = SqL2().pairwise(X, Y)
    assert fitted.epsilon_ / scale / scale == pytest.approx(0.5 * C.std(), rel=1e-12)


def test_debiasing_where_a_penalty_of_no_sum_has_gamma_0() -> None:
    with pytest.warns(FutureWarning, match="debias=True"):
        moved = MongeMap(KOverlap(0.0, 2), debias=True).fit(X, Y).displacement(X)
    np.testing.assert_allclose(moved.toarray(), MongeMap(SqL2()).fit(X, Y).displacement(X).toarray(), rtol=1e-9)


@pytest.mark.parametrize("cost", [GroupLasso(1.0, [[0, 1], [2, 3]]), KOverlap(1.0, 2, squared=False)])
@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_a_sample_next_to_its_target_moves_there(cost: Cost, container: Any) -> None:
    x = np.array([[1e6, 2e6, 3e6, 4e6], [-1e6, 5e6, -3e6, 2e6]])
    y = x * (1 + 1e-12 * RANDOM.normal(size=x.shape))
    moved = MongeMap(cost, epsilon=1e-4).fit(container(x), container(y)).displacement(container(x)).toarray()
    np.testing.assert_allclose(moved, y - x, rtol=0, atol=1e-13)


def test_what_is_left_of_a_group_in_which_samples_agree_but_for_little() -> None:
    cost = GroupLasso(1.0, [[0, 1, 2]], weights=[1.0])
    x, y = sp.csr_array([[1e6, 1e-5, 0.0]]), sp.csr_array([[1e6, 0.0, 0.0]])
    assert cost.pairwise(x, y)[0, 0] == pytest.approx(1e-5 + 0.5e-10, rel=1e-9)
    np.testing.assert_allclose(MongeMap(cost).fit(x, y).displacement(x).toarray(), [[0.0, -1e-5, 0.0]], atol=1e-14)


def test_a_target_that_is_nothing_next_to_gamma_is_moved_to_where_it_is_all_there_is() -> None:
    x, y = np.zeros((1, 3)), np.array([[0.0, 8.5e-23, -1e-24]])
    np.testing.assert_array_equal(MongeMap(L1(0.03)).fit(x, y).displacement(x).toarray(), y)


def test_the_k_overlap_norm_next_to_entries_that_are_larger_by_many_digits() -> None:
    w = np.array([7.4e9, 2.7e18, 7.2e8, 4.7e10, 3.4e-8, 7.8e19, 5e27, 4.2e-6])
    prox = KOverlap(1.0, 6, squared=False).prox(w)
    np.testing.assert_allclose(prox, w, rtol=0, atol=2e-15 * w.max())  # the norm of the projection is at most 1


@pytest.mark.parametrize(
    ("cost", "told"),
    [
        (GroupLasso(1e10, [[0, 1]]), "gamma times the weight of a group must be at most 1e8 times the largest entry"),
        (GroupLasso(1.0, [[0, 1]], weights=[1e10]), "got 1e.10: take a smaller one, or L1"),
        (KOverlap(1e10, 2, squared=False), "gamma must be at most 1e8 times the largest entry"),
        (KOverlap(1e10, 2), "gamma must be at most 1e8 for KOverlap"),
        (Subspace(1e20, np.eye(4)[:2]), "gamma must be at most 1e16 for Subspace"),
    ],
)
def test_a_penalty_that_leaves_no_digits_for_the_samples_is_refused(cost: Cost, told: str) -> None:
    with pytest.raises(InputError, match=told):
        MongeMap(cost).fit(X, Y)


def test_a_gradient_beyond_float32_asks_for_float64() -> None:
    cost, z = Subspace(1e12, np.eye(2)[:1]), np.full(2, 1e30)
    with pytest.raises(InputError, match=r"z must be float64 for gradients as large as 1e\+42"):
        cost.grad(z.astype(np.float32))
    assert cost.grad(z)[1] == pytest.approx(1e42)
    assert L1(1.0, [np.inf, 1.0]).grad(np.ones(2, np.float32))[0] == np.inf


def test_weights_that_are_not_finite_do_not_leave_a_side(monkeypatch: Patch) -> None:
    fitted = MongeMap(SqL2()).fit(X, Y)
    monkeypatch.setattr(Side, "_prepare", lambda self, samples, *_: (samples, Endless()))
    with pytest.raises(InputError, match="samples must be near enough"):
        fitted.weights(X)


class Endless:
    """Pairs of which all costs are infinite."""

    @property
    def pairs(self) -> Endless:
        return self

    def block(self, samples: Any) -> Any:
        return np.full((samples.shape[0], 5), np.inf)
