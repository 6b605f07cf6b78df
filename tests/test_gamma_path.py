"""The path: equal to independent fits at every γ, from one pass; its default grid, its table and its picture."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from occamap import L1, STVS, Cost, KOverlap, MongeMap, SqL2, gamma_path
from occamap._memory import Budget
from occamap._optional import optional
from occamap.errors import InputError, MissingPackageError, NotConvergedWarning
from occamap.selection.continuation import Continuation
from occamap.sinkhorn import RecomputedCost, Status

D = 30
WEIGHTS = np.r_[np.inf, 0.0, np.linspace(0.5, 2, D - 2)]
COSTS = [L1, L1(7.0, weights=WEIGHTS), STVS, KOverlap(1.0, k=4), KOverlap(1.0, k=4, squared=False)]
FORMS = {"dense": np.asarray, "csr": sp.csr_array}
GAMMAS = [0.0, 0.1, 0.4, 1.0, 5.0]
RULES = [{"epsilon": 0.05}, {"epsilon": 6, "epsilon_scale": "perplexity"}, {"reach": 5.0}]


def sample(n: int, seed: int, shift: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    counts = rng.poisson(0.8, size=(n, D)) * rng.uniform(0.5, 1.5, size=(n, D))
    counts[:, :3] += shift * (rng.uniform(size=(n, 3)) < 0.8)
    return counts


X, Y = sample(60, 1), sample(80, 2, shift=2.0)


def name(cost: Any) -> str:
    return cost.__name__ if isinstance(cost, type) else repr(cost)[:20]


def instance(cost: Any, gamma: float) -> Cost:
    return cost(gamma) if isinstance(cost, type) else cost._with_gamma(gamma)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("cost", COSTS, ids=name)
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_it_equals_independent_fits(cost: Any, form: Any, rule: dict[str, Any]) -> None:
    given = {"tol": 1e-11, "ties": "occam", "relax": 0.3, **rule}
    path = gamma_path(form(X), form(Y), cost, GAMMAS, **given)
    loose = 1e-6 if "epsilon_scale" not in rule else 1e-2  # a search for ε stops within 0.2 % of the targets asked for
    for gamma, found in zip(GAMMAS, path.maps, strict=True):
        alone = MongeMap(instance(cost, gamma), **given).fit(form(X), form(Y))
        np.testing.assert_allclose(found.epsilon_, alone.epsilon_, rtol=loose)
        np.testing.assert_allclose(found.g_, alone.g_, atol=loose * alone.epsilon_ * 30)
        assert found.converged_
        if loose == 1e-6:
            moves = found.displacement(form(X)) - alone.displacement(form(X))
            assert abs(moves).max() < 1e-6
        assert found.get_params()["cost"] == alone.cost


def test_it_equals_independent_fits_of_float32_counts_to_their_precision() -> None:
    x, y = (sp.csr_array(np.floor(z).astype(np.float32)) for z in (X, Y))
    path = gamma_path(x, y, gammas=GAMMAS, epsilon=0.05, tol=1e-9)
    for gamma, found in zip(GAMMAS, path.maps, strict=True):
        alone = MongeMap(L1(gamma), epsilon=0.05, tol=1e-9).fit(x, y)
        assert abs(found.displacement(x) - alone.displacement(x)).max() < 1e-5


@pytest.mark.parametrize("cost", COSTS, ids=name)
def test_linear_penalties_take_one_pass_and_others_one_a_gamma(cost: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = {"parts": 0, "own": 0}
    of_parts, of_one = Cost._fill_parts, RecomputedCost.__init__

    def parts(self: Cost, *arguments: Any) -> None:
        passes["parts"] += 1
        of_parts(self, *arguments)

    def own(self: RecomputedCost, *arguments: Any) -> None:
        passes["own"] += 1
        of_one(self, *arguments)

    monkeypatch.setattr(Cost, "_fill_parts", parts)
    monkeypatch.setattr(RecomputedCost, "__init__", own)
    gamma_path(X, Y, cost, GAMMAS)
    assert passes == ({"parts": 0, "own": len(GAMMAS)} if cost is STVS else {"parts": 1, "own": 0})


@pytest.mark.parametrize(("left", "operator"), [(30e6, "in memory"), (15e6, ("computed again", "on disk"))])
def test_memory_that_does_not_hold_the_parts_changes_nothing_but_the_time(
    left: float, operator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = np.vstack([X] * 20), np.vstack([Y] * 15)
    roomy = gamma_path(x, y, gammas=GAMMAS, tol=1e-9)
    monkeypatch.setattr(Budget, "left", lambda self: left)
    tight = gamma_path(x, y, gammas=GAMMAS, tol=1e-9)
    for one, other in zip(roomy.maps, tight.maps, strict=True):
        assert one.report_.operator == "in memory, float64"
        assert other.report_.operator.startswith(operator)
        np.testing.assert_allclose(one.g_, other.g_, atol=1e-7)
    np.testing.assert_allclose(roomy.densities, tight.densities, atol=1e-4)


def test_warm_starts_save_iterations_and_the_line_is_continued() -> None:
    gammas = np.geomspace(0.05, 5, 30)
    path = gamma_path(X, Y, gammas=gammas, epsilon=0.02, density_samples=0)
    cold = sum(MongeMap(L1(gamma), epsilon=0.02).fit(X, Y).n_iter_ for gamma in gammas)
    assert sum(fitted.n_iter_ for fitted in path.maps) < cold / 2
    line = Continuation()
    assert line.near(1.0) is None
    for gamma in (1.0, 2.0):
        line.add(gamma, type("Solution", (), {"epsilon": 3 * gamma, "g": np.array([gamma, -gamma])})())  # type: ignore[arg-type]
    epsilon, g = line.near(4.0) or (0.0, np.empty(0))
    assert epsilon == 12.0
    assert g.tolist() == [4.0, -4.0]


@pytest.mark.parametrize("cost", COSTS, ids=name)
def test_the_default_grid_covers_the_range_in_which_gamma_matters(cost: Any) -> None:
    path = gamma_path(X, Y, cost, 7, epsilon=0.05, tol=1e-8)
    low, high = path.gammas[0], path.gammas[-1]
    assert len(path) == 7
    np.testing.assert_allclose(np.diff(np.log(path.gammas)), np.log(high / low) / 6)

    def moves(gamma: float) -> sp.csr_array:
        return MongeMap(instance(cost, gamma), epsilon=0.05, tol=1e-8).fit(X, Y).displacement(X)

    none, full = moves(0.0), moves(0.0).nnz
    size = np.linalg.norm(none.toarray())
    assert np.linalg.norm((moves(low) - none).toarray()) <= 0.0105 * size
    assert np.linalg.norm((moves(4 * low) - none).toarray()) >= 0.0095 * size
    assert moves(high).nnz - moves(4 * high).nnz <= 0.011 * full
    assert path.densities[0] > path.densities[-1]
    assert "found from the data" in path.grid


def test_densities_are_the_share_that_moves() -> None:
    path = gamma_path(X, Y, gammas=GAMMAS, density_samples=None, ties="occam", relax=1.0)
    shares = [fitted.displacement(X).nnz / X.size for fitted in path.maps]
    np.testing.assert_allclose(path.densities, shares)
    some = gamma_path(X, Y, gammas=GAMMAS, density_samples=20, ties="occam").densities
    rows = np.linspace(0, 59, 20).round().astype(int)
    np.testing.assert_allclose(some, [fitted.displacement(X[rows]).nnz / (20 * D) for fitted in path.maps])
    assert np.isnan(gamma_path(X, Y, gammas=GAMMAS, density_samples=0).densities).all()


def test_table_and_words() -> None:
    path = gamma_path(X, Y, gammas=GAMMAS)
    frame = path.to_frame()
    assert list(frame.columns) == ["gamma", "density", "epsilon", "effective_targets", "status", "n_iter", "error"]
    assert frame.gamma.tolist() == GAMMAS
    assert set(frame.status) == {"converged"}
    assert repr(path).startswith("GammaPath(L1: 5 γ from 0 to 5, density from")
    assert path.statuses == (Status.CONVERGED,) * 5
    assert path.grid == "as given"


def test_the_picture_has_a_point_a_gamma_and_marks_the_unconverged() -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="drawing needs matplotlib")
    with pytest.warns(NotConvergedWarning, match=r"At 5 of the γ \(0, 0.1, 0.4, 1, 5\) the solver did not converge"):
        path = gamma_path(X, Y, gammas=GAMMAS, epsilon=0.001, max_iter=3)
    assert path.statuses == (Status.MAX_ITER,) * 5
    _, ax = pyplot.subplots()
    assert path.plot(ax) is ax
    assert ax.get_xscale() == "log"
    assert "L1" in ax.get_xlabel()
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["not converged", "γ = 0"]
    pyplot.close("all")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    path = gamma_path(X, Y, gammas=[1.0])
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(MissingPackageError, match="to_frame needs pandas, which is not installed: pip install pandas"):
        path.to_frame()
    with pytest.raises(MissingPackageError, match="plot needs matplotlib"):
        path.plot()


def test_a_package_that_does_not_load_is_told_from_one_that_is_not_there(tmp_path, monkeypatch):
    (tmp_path / "halfway").mkdir()
    (tmp_path / "halfway" / "__init__.py").write_text('raise ImportError("libfreetype.so.6: no such file")')
    monkeypatch.syspath_prepend(tmp_path)
    told = r"a plot needs halfway, which is there but cannot be imported \(libfreetype.so.6: no such file\): pip"
    with pytest.raises(MissingPackageError, match=told):
        optional("halfway", "a plot")


def test_one_gamma_and_maps_that_work_on_their_own() -> None:
    path = gamma_path(X, Y, gammas=1.5)
    assert path.gammas.tolist() == [1.5]
    assert path.maps[0].transform(X).shape == X.shape
    assert path.maps[0].report_.operator == "in memory, float64"


def test_threads_do_not_matter() -> None:
    x, y = np.vstack([X] * 8), np.vstack([Y] * 8)
    one, three = (gamma_path(x, y, gammas=GAMMAS, n_jobs=jobs) for jobs in (1, 3))
    for left, right in zip(one.maps, three.maps, strict=True):
        assert left.g_.tobytes() == right.g_.tobytes()
    assert one.densities.tobytes() == three.densities.tobytes()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"gammas": []}, "gammas must be a list of at least one number"),
        ({"gammas": [[1.0, 2.0]]}, r"gammas must be a list.*shape \(1, 2\)"),
        ({"gammas": [1.0, 0.5]}, "gammas must rise, without repeats; got 0.5 after 1: give each once"),
        ({"gammas": [1.0, 1.0]}, "gammas must rise"),
        ({"gammas": [-1.0, 1.0]}, "gammas: gamma must be a finite number ≥ 0"),
        ({"gammas": [1.0, np.nan]}, "gammas: gamma must be a finite"),
        ({"gammas": [1.0, 1e101]}, "gammas: gamma must be"),
        ({"gammas": ["a"]}, "gammas must hold real numbers"),
        ({"gammas": 1}, r"gammas, if one integer, must be how many γ.*; for one γ give 1\.0"),
        ({"gammas": 10**9}, "gammas, if one integer, must be how many γ to have, 2 to 1,000; got 1,000,000,000"),
        ({"gammas": "auto"}, "gammas must be rising numbers, or None for a grid"),
        ({"epsilon": [0.1, 0.2]}, "epsilon must be one number for a path.*MongeMapCV takes several"),
        ({"gammas": True}, "gammas must be rising numbers, or how many of them; got True"),
        ({"cost": Cost}, "cost must be a cost such as occamap.L1"),
        ({"gammas": None, "cost": L1(1.0, weights=np.zeros(D))}, "gammas must be given: the penalty is 0"),
        ({"gammas": None, "X": X * 1e120, "Y": Y * 1e120}, "gammas must be given for data of this magnitude"),
        ({"verbose": "yes"}, "verbose must be True, False or None"),
        ({"gammas": [1.0, 1e10], "cost": STVS}, "gamma must be at most 1e8 times the largest entry"),
        ({"cost": SqL2}, "cost must have a strength gamma to vary, and SqL2 has none.*L1 with 0 among"),
        ({"cost": SqL2()}, "SqL2 has none"),
        ({"cost": KOverlap}, r"KOverlap\(1.0, k=…\)"),
        ({"cost": "l1"}, "cost must be a cost such as occamap.L1"),
        ({"cost": KOverlap(1.0, k=99)}, "k must be at most"),
        ({"epsilon": 0}, "epsilon must be"),
        ({"epsilon_scale": "huge"}, "epsilon_scale must be one of"),
        ({"ties": "none"}, "ties must be one of"),
        ({"relax": 2}, "relax must be"),
        ({"density_samples": -1}, "density_samples must be an integer ≥ 0"),
        ({"Y": X, "X": X[:1], "gammas": None, "epsilon": np.inf}, "epsilon must be"),
    ],
)
def test_bad_input(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        gamma_path(**{"X": X, "Y": Y, "gammas": [1.0], **change})


def test_nothing_to_move_has_no_range() -> None:
    with pytest.raises(InputError, match="gammas must be given: the penalty is 0"):
        gamma_path(np.ones((5, 3)), np.ones((4, 3)))


@pytest.mark.parametrize(("dtype", "offset", "close"), [("f4", 100, 1e-5), ("f4", 1e4, 1e-3), ("f8", 1e7, 1e-6)])
def test_sparse_samples_that_differ_little_next_to_their_size(dtype: str, offset: float, close: float) -> None:
    rng = np.random.default_rng(0)
    x = sp.csr_array((rng.normal(size=(60, 30)) + offset).astype(dtype))
    y = sp.csr_array((rng.normal(size=(70, 30)) + offset + 2 * np.eye(30)[0]).astype(dtype))
    path = gamma_path(x, y, gammas=[0.0, 0.5, 5.0], epsilon=0.05, tol=1e-9)
    for gamma, found in zip(path.gammas, path.maps, strict=True):
        alone = MongeMap(L1(gamma), epsilon=0.05, tol=1e-9).fit(x, y).displacement(x)
        assert abs(found.displacement(x) - alone).max() < close * abs(alone).max()


@pytest.mark.parametrize("scale", [1e-20, 1e12, 1e30])
def test_any_scale(scale: float) -> None:
    path = gamma_path(sp.csr_array(X * scale), sp.csr_array(Y * scale), gammas=[0.0, scale], epsilon=0.05, tol=1e-9)
    plain = gamma_path(sp.csr_array(X), sp.csr_array(Y), gammas=[0.0, 1.0], epsilon=0.05, tol=1e-9)
    for found, wanted in zip(path.maps, plain.maps, strict=True):
        moves = found.displacement(sp.csr_array(X * scale)) / scale - wanted.displacement(sp.csr_array(X))
        assert abs(moves).max() < 1e-6


@pytest.mark.parametrize("rule", [{}, {"epsilon": 5, "epsilon_scale": "perplexity"}], ids=str)
def test_samples_without_mass_count_for_nothing(rule: dict[str, Any]) -> None:
    dead = np.linspace(0, 999, 128).round().astype(int)  # those that would be looked at
    x = sample(1000, 3)
    x[dead] += 50
    a = np.ones(1000)
    a[dead] = 0
    path = gamma_path(x, Y, gammas=4, a=a, **rule)
    alive = gamma_path(np.delete(x, dead, axis=0), Y, gammas=path.gammas, **rule)
    np.testing.assert_allclose(path.densities, alive.densities, atol=0.02)


def test_maps_of_a_path_share_what_they_hold() -> None:
    path = gamma_path(X, Y, L1(1.0, weights=WEIGHTS), GAMMAS)
    assert len({id(fitted._target.data) for fitted in path.maps}) == 1
    assert len({id(fitted._towards.anchors.data) for fitted in path.maps}) == 1
    assert not any(fitted._towards._prepared for fitted in path.maps)


def test_a_path_without_densities_cannot_be_drawn() -> None:
    with pytest.raises(InputError, match="plot needs densities: call gamma_path with density_samples other than 0"):
        gamma_path(X, Y, gammas=GAMMAS, density_samples=0).plot()
    assert gamma_path(X, Y, gammas=[1.0]) != gamma_path(X, Y, gammas=[1.0])
