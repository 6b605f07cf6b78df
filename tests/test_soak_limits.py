"""Limits of memory: what the system allows is found out, and threads are bounded."""

from __future__ import annotations

import pickle
import re
import resource
import subprocess
import sys
import tracemalloc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from occamap import L1, MongeMap, _memory
from occamap._validate import check_samples
from occamap._workers import MOST, Workers, count_jobs
from occamap.costs import Cost
from occamap.errors import InputError, MemoryBudgetError
from occamap.maps.room import rehearse
from occamap.maps.side import Side, move_bytes
from occamap.sinkhorn.places import cost_blocks
from soak import limits
from soak.limits_child import COSTS, samples
from soak.tally import Tally


def group(folder: Path, limit: str, used: int, idle: int = 0) -> None:
    """A control group of version 2."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(limit)
    (folder / "memory.current").write_text(str(used))
    (folder / "memory.stat").write_text(f"anon 1\ninactive_file {idle}\n")


def test_the_control_group_of_a_job_and_those_around_it_bound_what_is_left(tmp_path: Path) -> None:
    """A batch system limits a group further down than the root; files that the kernel would give back do not count."""
    (tmp_path / "groups").write_text("0::/slurm/job_7\n")
    root = tmp_path / "cgroup"
    given = str(tmp_path / "groups"), str(root)
    assert _memory._left_in_groups(*given) == float("inf")
    group(root / "slurm" / "job_7", "max\n", 10)
    assert _memory._left_in_groups(*given) == float("inf")
    group(root / "slurm", "1000\n", 300, idle=50)
    assert _memory._left_in_groups(*given) == 750
    group(root / "slurm" / "job_7", "500\n", 100)
    assert _memory._left_in_groups(*given) == 400
    (tmp_path / "groups").write_text("0::/../../elsewhere\n")
    assert _memory._left_in_groups(*given) == float("inf")


def test_the_control_group_of_version_1(tmp_path: Path) -> None:
    (tmp_path / "groups").write_text("5:devices:/\n4:memory:/job\n")
    folder = tmp_path / "cgroup" / "memory" / "job"
    folder.mkdir(parents=True)
    for name, value in (("limit_in_bytes", 900), ("usage_in_bytes", 600), ("stat", "total_inactive_file 100")):
        (folder / f"memory.{name}").write_text(f"{value}\n")
    assert _memory._left_in_groups(str(tmp_path / "groups"), str(tmp_path / "cgroup")) == 400


LIMITED = """
import resource, sys
from occamap._memory import _status, available
kind, field = {"data": (resource.RLIMIT_DATA, "VmData:"), "addresses": (resource.RLIMIT_AS, "VmSize:")}[sys.argv[1]]
before = available()
resource.setrlimit(kind, (_status(field) + 50_000_000,) * 2)
print(before > 100_000_000, 40_000_000 < available() <= 50_000_000)
"""


@pytest.mark.parametrize("kind", ["data", "addresses"])
@pytest.mark.skipif(not hasattr(resource, "RLIMIT_DATA"), reason="this system has no such limit")
def test_what_ulimit_leaves_is_what_is_available(kind: str) -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED, kind], capture_output=True, text=True)
    assert done.stdout == "True True\n", done.stderr


def test_a_reserve_is_left_by_what_is_kept_and_refuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a call needs at the least was checked before: code that was loaded since must not refuse it."""
    held, size = 200_000_000, 5_000_000
    monkeypatch.setattr(_memory, "resident", lambda: held)  # what a refusal frees is not the subject
    budget = _memory.Budget(held + 30_000_000, reserve=40_000_000)
    assert budget.left() == -10_000_000
    budget.require(size, "a little")
    with pytest.raises(MemoryBudgetError, match=r"more needs 31 MB more.*at least 242 MB; it is 230 MB"):
        budget.require(31_000_000, "more")
    X = check_samples(np.ones((500, 2)), "X")
    with Workers(1) as workers:
        costs = cost_blocks(L1(0.3), X, X, _memory.Budget(held + 30_000_000, reserve=28_000_000), workers)
    assert costs.place == "computed again in each pass, float64"


def test_what_a_run_does_later_is_part_of_the_number_and_refuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_memory, "resident", lambda: 200_000_000)
    budget, least = _memory.Budget(230_000_000), []
    with _memory.foreseeing(50_000_000), _memory.foreseeing(50_000_000):
        budget.require(20_000_000, "a little")
        with pytest.raises(MemoryBudgetError) as caught:
            budget.require(40_000_000, "more")
    least.append(re.search(r"at least (\d+) MB", str(caught.value)))
    with pytest.raises(MemoryBudgetError) as caught:
        budget.require(40_000_000, "more")
    least.append(re.search(r"at least (\d+) MB", str(caught.value)))
    assert [int(found[1]) for found in least if found] == [352, 252]


def test_threads_are_bounded() -> None:
    assert count_jobs(MOST) == MOST
    with pytest.raises(InputError, match=r"n_jobs must be at most 1,024 threads.*; got 5,000"):
        count_jobs(5_000)


def test_threads_that_cannot_be_started_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    said = "n_jobs must be a number of threads that this process can start"
    with pytest.raises(InputError, match=said), Workers(2) as workers:
        list(workers.map(abs, [1, 2]))


def test_a_share_of_the_soak() -> None:
    tally = Tally("limits", share=0.03)
    limits.run(tally)
    assert not tally.faults
    assert tally.total() >= 3


def test_no_memory_even_for_code_is_one_sentence() -> None:
    code = "import sys, occamap.cli.app as app\nfrom occamap.cli.main import main\n"
    code += "def run(_): raise MemoryError\napp.run = run\nmain()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "occamap: not enough memory for this\n")


SIZES = {
    "fit": {"n": 1500, "m": 1200, "d": 500, "kind": "csr", "cost": "stvs"},
    "path": {"n": 2257, "m": 687, "d": 186, "kind": "csr", "cost": "sql2"},
    "choose": {"n": 1475, "m": 2263, "d": 300, "kind": "csr", "cost": "l1"},
    "evaluate": {"n": 586, "m": 938, "d": 120, "kind": "dense", "cost": "l1"},
}


@pytest.mark.parametrize("gammas", [True, False])
@pytest.mark.parametrize("work", SIZES)
def test_the_number_that_a_refusal_names_is_enough_for_the_call(work: str, gammas: bool) -> None:
    """It is told of all that comes, before anything is computed; and costs that are kept leave room for the rest."""
    tally, job = Tally("limits"), {"work": work, **SIZES[work], "n_jobs": 2, "gammas": gammas}
    limits._follow(tally, {**job, "room": 2_000_000} if gammas else {**job, "fresh": True, "budget": limits.SMALLEST})
    assert not tally.faults
    assert tally.counts[f"{work}: refused"] == {"within a second": 1} or not gammas  # else code is loaded first
    assert all(ending.startswith("kept, after") for ending in tally.counts.popitem()[1])


@pytest.mark.parametrize("cost", [cost(40) for cost in COSTS.values()], ids=list(COSTS))
@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_what_moving_takes_is_foreseen(cost: Cost, kind: str) -> None:
    """NumPy's arrays at their peak, of all threads; kernels allocate nothing of size."""
    X, Y = (check_samples(samples(n, 40, kind, seed), "X") for seed, n in ((0, 256), (1, 3000)))
    rehearse(cost, X, Y)
    tracemalloc.start()
    try:
        with Workers(2) as workers:
            side = Side(cost, Y, np.full(3000, 1 / 3000), np.zeros(3000), 100.0)
            side.displace(X, lambda _, moves: None, 0, 0.0, workers, _memory.Budget(None))
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 1.05 * move_bytes(cost, Y, 2)


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_a_budget_changes_nothing_where_features_are_frozen(container: Any) -> None:
    """Samples that differ in a frozen feature have infinite costs, and a tiny job takes the first of each side."""
    X, Y = np.eye(6, 4), np.eye(6, 4)[::-1] + 1.0
    weights = np.array([np.inf, 1.0, 1.0, np.inf])
    plain, within = (
        MongeMap(L1(0.3, weights), max_memory=size).fit(container(X), container(Y)) for size in (None, "20GB")
    )
    np.testing.assert_array_equal(plain.displacement(X).toarray(), within.displacement(X).toarray())


def test_the_costs_that_debiasing_needs_are_part_of_the_number() -> None:
    X, Y = np.zeros((3000, 2)) + np.arange(2), np.ones((10, 2))
    with pytest.raises(MemoryBudgetError, match=r"needs 1[45]\d MB more"):
        MongeMap(L1(0.3), debias=True, max_memory="1MB").fit(X, Y)


def test_a_budget_travels_without_the_arrays_of_the_caller() -> None:
    array = np.ones(10)
    there = pickle.loads(pickle.dumps(_memory.Budget("2GB", (weakref.ref(array),), reserve=5.0)))
    assert (there.limit, there.lent, there.reserve) == (2_000_000_000, (), 5.0)


@pytest.mark.parametrize("matrix", [np.eye(300, 1000), np.zeros((300, 1000)), np.ones((70, 1000))])
def test_dense_samples_as_csr_piece_by_piece(matrix: np.ndarray) -> None:
    found, wanted = check_samples(matrix, "X").csr(), sp.csr_array(matrix)
    assert all(np.array_equal(getattr(found, name), getattr(wanted, name)) for name in ("indptr", "indices", "data"))
