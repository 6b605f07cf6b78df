"""The contract of every operator: a cost matrix is the same to the solver wherever it is kept."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from occamap import L1, STVS, MongeMap, SqL2
from occamap._memory import Budget
from occamap._validate import check_samples
from occamap._workers import Workers
from occamap.sinkhorn import DiskCost, EpsilonRule, RecomputedCost, Solver, StoredCost, cost_blocks, places, solve
from occamap.sinkhorn import operator as operators
from occamap.sinkhorn.operator import fill, tile_spans

PLACES = ("memory", "disk", "recomputed")
N, M, D = 700, 500, 40


def sample(n: int, seed: int, wrap: Any) -> Any:
    rng = np.random.default_rng(seed)
    return wrap(np.where(rng.random((n, D)) < 0.3, rng.gamma(2.0, size=(n, D)), 0.0).astype(np.float32))


def masses(n: int, seed: int) -> Any:
    weights = np.random.default_rng(seed).random(n) + 0.1
    weights[3] = 0.0
    return weights / weights.sum()


def build(place: str, dtype: Any, cost: Any, X: Any, Y: Any, directory: Any) -> Any:
    source = RecomputedCost(cost, check_samples(X, "X"), check_samples(Y, "Y"), dtype)
    if place == "recomputed":
        return source
    kept: Any = StoredCost(np.empty(source.shape, dtype))
    if place == "disk":
        kept = DiskCost(source.shape, dtype, str(directory))
    with Workers(2) as workers:
        fill(source, kept, workers)
    return kept


@pytest.fixture(autouse=True)
def several_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tiles, so that there are several of several blocks."""
    monkeypatch.setattr(operators, "BLOCK", 2**15)
    monkeypatch.setattr(operators, "TILE", 2**17)
    assert 2 < len(list(tile_spans((N, M)))) < 10


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("cost", [L1(0.3), STVS(0.5)])
def test_blocks_are_the_costs(place: str, dtype: Any, wrap: Any, cost: Any, tmp_path: Any) -> None:
    X, Y = sample(N, 0, wrap), sample(M, 1, wrap)
    costs, wanted = build(place, dtype, cost, X, Y, tmp_path), cost.pairwise(X, Y)
    found = np.vstack([costs.block(span) for span in costs.spans()])
    assert found.dtype == np.float64
    assert costs.place.endswith(np.dtype(dtype).name)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=costs.rounding + 1e-12 * wanted.max())
    assert (costs.rounding > 0) == (dtype == np.float32)
    assert costs.rounding < 2**-24 * wanted.max()
    np.testing.assert_array_equal(costs.block((70, 130)), found[70:130])  # other rows than those of a block


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("reach", [None, 3.0])
@pytest.mark.parametrize("rule", [EpsilonRule(0.05), EpsilonRule(20, "perplexity"), EpsilonRule(0.1, "median")])
def test_the_potentials_are_the_same_to_the_bit_wherever_the_costs_are(
    wrap: Any, reach: float | None, rule: EpsilonRule, tmp_path: Any
) -> None:
    X, Y, a, b = sample(N, 0, wrap), sample(M, 1, wrap), masses(N, 2), masses(M, 3)
    solver = Solver(rule, reach, tol=1e-5)
    for dtype in (np.float64, np.float32):
        found = []
        for place in PLACES:
            costs = build(place, dtype, L1(0.3), X, Y, tmp_path)
            for threads in (1, 2):
                with Workers(threads) as workers:
                    found.append(solver(costs, a, b, workers))
        for other in found[1:]:
            np.testing.assert_array_equal(found[0].f, other.f)
            np.testing.assert_array_equal(found[0].g, other.g)
            assert found[0].effective_targets == other.effective_targets
        if dtype == np.float64:
            exact = found[0]
    scale = np.ptp(exact.f)
    np.testing.assert_allclose(found[0].f, exact.f, rtol=0, atol=1e-5 * scale)
    np.testing.assert_allclose(found[0].g, exact.g, rtol=0, atol=1e-5 * scale)


def test_passes_add_up_to_the_definitions(tmp_path: Any) -> None:
    """Statistics and soft minima by tiles, against the matrix written out."""
    X, Y, a, b = sample(N, 0, sp.csr_array), sample(M, 1, sp.csr_array), masses(N, 2), masses(M, 3)
    C = L1(0.3).pairwise(X, Y)
    costs = build("disk", np.float64, L1(0.3), X, Y, tmp_path)
    weight = np.outer(a, b)
    mean = (weight * C).sum()
    wanted = {
        "mean": mean,
        "std": np.sqrt((weight * (C - mean) ** 2).sum()),
        "max": C[np.ix_(a > 0, b > 0)].max(),
    }
    with Workers(2) as workers:
        for scale, value in wanted.items():
            choice = EpsilonRule(1.0, scale).resolve(costs, a, b, workers, None)  # type: ignore[arg-type]
            assert choice.steps[-1] == pytest.approx(value, rel=1e-12)
        found = solve(costs, a, b, [0.1 * mean], tol=1e-10, workers=workers)
    plan = weight * np.exp((found.f[:, None] + found.g - C) / found.epsilon)
    np.testing.assert_allclose(plan.sum(axis=0), b, atol=1e-10)
    np.testing.assert_allclose(plan.sum(axis=1), a, atol=1e-10)


# -- which place is chosen -------------------------------------------------------------------------------------


def chosen(
    room: float, *, single: bool = True, pair: float = 1e-7, rate: float | None = 1e9, free: float = 1e12
) -> Any:
    """The choice for 1,000 × 1,000 pairs on a machine like this."""
    X, Y = (check_samples(np.zeros((1000, 1)), "X") for _ in range(2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(places, "pair_seconds", lambda *_: pair)
        if rate is not None:
            patch.setattr(places, "disk_rates", lambda *_: (rate, rate))
        patch.setattr(places.shutil, "disk_usage", lambda _: type("Usage", (), {"free": free}))
        patch.setattr(places, "disk", lambda: "/somewhere")
        return places.choose(L1(1.0), X, Y, room, 1, single)


@pytest.mark.parametrize(
    ("given", "place", "dtype"),
    [
        ({"room": 9e6}, "memory", np.float64),
        ({"room": 5e6}, "memory", np.float32),
        ({"room": 5e6, "single": False}, "disk", np.float64),
        ({"room": 3e6}, "disk", np.float32),
        ({"room": 3e6, "rate": 1e6}, "recomputed", np.float32),  # 4 s a pass against 0.1 s
        ({"room": 3e6, "free": 1e6}, "recomputed", np.float32),
        ({"room": 3e6, "pair": 1e-9}, "recomputed", np.float32),  # 1 ms a pass: no need to look at the disk
        ({"room": -1e6}, "disk", np.float32),
    ],
)
def test_the_cheapest_place_that_has_room_is_chosen(given: Any, place: str, dtype: Any) -> None:
    choice = chosen(**given)
    assert (choice.place, choice.dtype) == (place, dtype)
    assert (choice.why == "") == (given["room"] == 9e6)


def test_the_choice_says_what_it_compared() -> None:
    assert chosen(3e6).why == (
        "costs of 1,000 × 1,000 pairs take 8 MB in float64, 4 MB in float32; there is room for 3 MB; computing them "
        "takes about 0.1 s a pass, reading them from disk 0.004 s and writing them once 0.004 s: on disk, float32"
    )


def test_a_file_system_in_memory_is_no_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(places.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(places, "_file_system", lambda _: "ext4")
    assert places.disk() == str(tmp_path)
    monkeypatch.setattr(places, "_file_system", lambda _: "tmpfs")
    assert places.disk() is None
    monkeypatch.undo()
    assert places._file_system("/proc/self") in ("proc", "")


@pytest.mark.parametrize("scale", [1e-23, 1e-12, 1e12, 1e19])
def test_numbers_beyond_the_range_of_float32_are_fitted_in_float64(
    scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, Y = scale * np.random.default_rng(0).normal(size=(2, 400, 5))
    wanted = MongeMap(SqL2()).fit(X, Y)
    monkeypatch.setattr(places, "available", lambda: 2e6)
    found = MongeMap(SqL2()).fit(X, Y)
    assert found.report_.operator.endswith("float32" if 1e-13 < scale < 1e13 else "float64")
    moves = (fitted.displacement(X).toarray() for fitted in (found, wanted))
    np.testing.assert_allclose(*moves, rtol=0, atol=1e-6 * scale)


def test_a_disk_that_cannot_be_written_to_is_done_without(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    X, Y = (check_samples(Z, "X") for Z in np.random.default_rng(0).normal(size=(2, 500, 2)))
    told: list[str] = []
    choice = places.Choice("disk", np.dtype(np.float32), "why", str(tmp_path / "gone"))
    monkeypatch.setattr(places, "choose", lambda *_: choice)
    with Workers(1) as workers:
        costs = cost_blocks(L1(1.0), X, Y, Budget(None), workers, note=told.append)
    assert costs.place == "computed again in each pass, float32"
    assert told[-1].endswith("cannot be written to (No such file or directory): costs are computed again in each pass")
    monkeypatch.undo()
    assert "cannot be written to (No such file or directory)" in chosen(3e6, rate=None).why


def test_rounding_that_would_show_is_not_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """At an ε so small that float32 is felt, the costs are computed once more, in float64."""
    X, Y = np.random.default_rng(0).normal(size=(2, 600, 2))
    monkeypatch.setattr(places, "available", lambda: 4e6)  # 2.9 MB in float64 do not fit in what is left of it
    told = MongeMap(L1(0.1), epsilon=0.1).fit(X, Y).report_
    assert told.operator.endswith("float32")
    told = MongeMap(L1(0.1), epsilon=1e-4, tol=1e-4).fit(X, Y).report_
    assert told.operator.endswith("float64")
    assert MongeMap(L1(0.1), epsilon=0.1, tol=1e-7).fit(X, Y).report_.operator.endswith("float64")


# -- files and limits ------------------------------------------------------------------------------------------

CHILD = """
import os, sys, numpy as np
from occamap.sinkhorn import DiskCost
costs = DiskCost((1000, 1000), np.float32, sys.argv[1])
costs.put((0, 1000), np.ones((1000, 1000), np.float32), np.zeros(1000))
assert costs.block((5, 9)).sum() == 4000
print(os.listdir(sys.argv[1]), flush=True)
os.kill(os.getpid(), 9)
"""


def test_nothing_is_left_on_the_disk_even_by_a_process_that_is_killed(tmp_path: Any) -> None:
    done = subprocess.run([sys.executable, "-c", CHILD, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == -9
    assert done.stdout == "[]\n", done.stderr
    assert os.listdir(tmp_path) == []


LIMITED = """
import resource, sys, numpy as np, occamap as oc
from occamap._memory import _status, peak, resident
rng = np.random.default_rng(0)
X, Y = rng.normal(size=(2, 6000, 30)).astype(np.float32)
oc.MongeMap(oc.L1(0.1), max_memory="1GB", n_jobs=2).fit(X[:100], Y[:100])  # code is loaded
held, room = resident(), int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_AS, (_status("VmSize:") + room + 60_000_000,) * 2)  # stacks of two threads
m = oc.MongeMap(oc.L1(0.1), max_memory=held + room, n_jobs=2).fit(X, Y)
m.transform(X[:100])
print(m.report_.operator, "|", peak() - held)
"""


@pytest.mark.parametrize("room", [400_000_000, 200_000_000, 100_000_000])
def test_the_budget_is_kept_under_a_hard_limit_of_address_space(room: int) -> None:
    """6,000 × 6,000 costs take 288 MB in float64, 144 MB in float32."""
    done = subprocess.run([sys.executable, "-c", LIMITED, str(room)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    place, used = re.fullmatch(r"(.*) \| (-?\d+)\n", done.stdout).groups()  # type: ignore[union-attr]
    wanted = {400_000_000: "in memory, float64", 200_000_000: "in memory, float32"}
    assert place == wanted.get(room, place)
    assert room != 100_000_000 or "memory" not in place
    assert int(used) < 1.1 * room


def test_without_a_budget_the_memory_of_the_machine_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = (check_samples(Z, "X") for Z in np.random.default_rng(0).normal(size=(2, 500, 2)))
    with Workers(1) as workers:
        assert cost_blocks(L1(1.0), X, Y, Budget(None), workers).place == "in memory, float64"
        monkeypatch.setattr(places, "available", lambda: 3e6)  # 2 MB of costs, 1.3 MB of scratch
        assert cost_blocks(L1(1.0), X, Y, Budget(None), workers).place == "computed again in each pass, float64"
