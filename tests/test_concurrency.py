"""Threads and processes that meet: a share of `python -m soak concurrency`."""

from __future__ import annotations

import multiprocessing
import warnings

import numpy as np
import pytest

import occamap as oc
from occamap._kernels import softmin
from soak import concurrency
from soak.commands import JOBS, finish, write_cells
from soak.tally import Tally


@pytest.mark.filterwarnings("ignore:debias=True is deprecated")
def test_threads_share_maps():
    tally = Tally("concurrency", share=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        concurrency.threads_share_a_map(tally)
    assert not tally.faults
    assert tally.total() == 200


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore:This process:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:debias=True is deprecated")
def test_maps_reach_worker_processes(method):
    tally = Tally("concurrency", share=0.1)
    concurrency.forked_and_spawned(tally, method)
    assert not tally.faults
    assert tally.total() == 4


@pytest.mark.slow
def test_processes_fill_one_cache_and_none_can_be_written(tmp_path):
    tally = Tally("concurrency", share=0.5)
    concurrency.kernels(tally, tmp_path)
    assert not tally.faults
    assert tally.total() == 6


@pytest.mark.slow
def test_the_second_process_is_told_who_has_the_directory(tmp_path):
    tally, job, whole = Tally("concurrency"), JOBS[0], tmp_path / "whole"
    data = write_cells(tmp_path)
    assert not finish(job.command(data, whole)).returncode
    concurrency.two_on_one(tally, job, data, whole)
    assert not tally.faults


def at(values: np.ndarray, offset: int) -> np.ndarray:
    """The same values so many numbers after a multiple of 64 bytes."""
    room = np.empty(values.size + 16)
    first = -(room.ctypes.data // 8) % 8 + offset
    room[first : first + values.size] = values.ravel()
    return room[first : first + values.size].reshape(values.shape)


@pytest.mark.parametrize("m", [3, 8, 12, 16, 31, 40])
def test_a_sum_does_not_depend_on_where_arrays_lie(m):
    """Short arrays lie close together: the scratch directly behind the costs, and far away."""
    rng = np.random.default_rng(m)
    C, g, log_b, a = rng.random((5, m)), rng.normal(size=m), np.full(m, -np.log(m)), np.full(5, 0.2)
    found = set()
    for gap in (0, 1, 8, 64):
        room = np.empty(5 * m + gap + m)
        near, scratch = room[: 5 * m].reshape(5, m), room[5 * m + gap :]
        near[:] = C
        f, column = np.zeros(5), np.zeros(m)
        softmin.sweep(near, np.zeros(5), g, log_b, a, 0.3, 1.0, 0.0, f, column, scratch)
        found.add(f.tobytes() + column.tobytes())
    assert len(found) == 1


def test_the_same_call_gives_the_same_bytes_whatever_was_allocated_before():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(12, 4)), rng.normal(size=(13, 4)) + 1
    found, kept = set(), []
    for size in range(1, 40):
        kept.append(np.empty(size))  # shifts what is allocated next
        fitted = oc.MongeMap(oc.L1(0.1), epsilon=0.05, n_jobs=1).fit(at(X, size % 8), at(Y, size % 7))
        found.add(fitted.g_.tobytes() + fitted.transform(X).tobytes())
    assert len(found) == 1
