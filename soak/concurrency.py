"""Processes and threads that meet: in a directory, in a map, in numba's cache, and after a fork."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import occamap as oc
from occamap._locks import NAME
from soak.commands import JOBS, Job, environment, finish, incomplete, start, write_cells
from soak.tally import Tally

MEETINGS, CROWDS, SHARED, FORKS, CACHES = 40, 8, 2_000, 40, 4
CROWD = 5
COSTS = (
    oc.SqL2(),
    oc.L1(0.5),
    oc.STVS(0.5),
    oc.KOverlap(0.5, k=3),
    oc.GroupLasso(0.5, groups=[range(10), range(10, 30)]),
    oc.Subspace(0.5, basis=np.eye(2, 30)),
)
READINGS: tuple[Callable[[oc.MongeMap, Any], Any], ...] = (
    lambda found, X: found.transform(X),
    lambda found, X: found.displacement(X).toarray(),
    lambda found, X: found.inverse_transform(X),
    lambda found, X: found.weights(X),
    lambda found, X: found.potential(X, "target"),
)
CHILD = """
import sys, numpy as np, occamap as oc
rng = np.random.default_rng(0)
X, Y = rng.normal(size=(40, 30)), rng.normal(size=(50, 30)) + 1
sys.stdout.buffer.write(oc.MongeMap(oc.L1(0.5), n_jobs=2).fit(X, Y).transform(X).tobytes())
"""


def maps() -> tuple[list[oc.MongeMap], np.ndarray]:
    """Fitted maps, some with work that is done when it is first asked for, and new samples."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(40, 30)), rng.normal(size=(50, 30)) + 1
    kinds: tuple[dict[str, Any], ...] = ({}, {"debias": True}, {"pool": 5, "match": 4})
    found = [oc.MongeMap(cost, n_jobs=2, **kind).fit(X, Y) for cost in COSTS for kind in kinds]
    return found, rng.normal(size=(25, 30))


def _is_held(out: Path) -> bool:
    """Whether someone has the directory: who it is stands in the lock."""
    return (out / NAME).exists() and (out / NAME).stat().st_size > 0


def two_on_one(tally: Tally, job: Job, data: Path, like: Path) -> None:
    """The second process is told who has the directory, and the first does not notice."""
    what = f"two processes, one directory: {job.name}"
    out = like.parent / f"met-{random.getrandbits(40):x}"
    first = start(job.command(data, out))
    deadline = time.monotonic() + 60
    while not _is_held(out) and first.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    os.kill(first.pid, signal.SIGSTOP)  # it has the directory, and all the time
    second = finish(job.command(data, out))
    os.kill(first.pid, signal.SIGCONT)
    told, code = first.communicate(timeout=300)[1], first.returncode
    wrong = incomplete(out, job, like) if not code else [f"the first: {told[-300:]}"]
    who = re.search(r"is in use: process (\d+) on \S+, since .+ UTC, writes there; wait for it to end", second.stderr)
    if second.returncode != 1 or who is None or int(who[1]) != first.pid or len(second.stderr.splitlines()) != 1:
        wrong.append(f"the second: exit {second.returncode}, {second.stderr[-300:]}")
    if wrong:
        tally.fault(what, "; ".join(wrong))
    else:
        tally.count(what, "the second is told who has it")
    shutil.rmtree(out, ignore_errors=True)


def crowd(tally: Tally, job: Job, data: Path, like: Path) -> None:
    """Some at once: each either did all of it or was told, and what is there is whole."""
    what = f"{CROWD} processes at once, one directory: {job.name}"
    out = like.parent / f"crowd-{random.getrandbits(40):x}"
    started = [start(job.command(data, out)) for _ in range(CROWD)]
    ends = [(process.communicate(timeout=600)[1], process.returncode) for process in started]
    wrong = incomplete(out, job, like)
    wrong += [f"exit {code}: {told[-300:]}" for told, code in ends if code and "is in use" not in told]
    done = sum(code == 0 for _, code in ends)
    if not done:
        wrong.append("none has done it")
    if wrong:
        tally.fault(what, "; ".join(wrong))
    else:
        tally.count(what, "whole")
    shutil.rmtree(out, ignore_errors=True)


def threads_share_a_map(tally: Tally) -> None:
    """Many readings of the same maps at once are those of one after the other, to the bit."""
    found, new = maps()
    pairs = [(k, r) for k in range(len(found)) for r in range(len(READINGS))]
    alone = {(k, r): READINGS[r](found[k], new).tobytes() for k, r in pairs}
    fresh, _ = maps()
    chance = random.Random(tally.seed)
    asked = [chance.choice(pairs) for _ in range(tally.full(SHARED))]
    with ThreadPoolExecutor(8) as pool:
        read = pool.map(lambda pair: READINGS[pair[1]](fresh[pair[0]], new).tobytes(), asked)
        for pair, content in zip(asked, read, strict=True):
            if content == alone[pair]:
                tally.count("readings by 8 threads that share a map", "same bytes")
            else:
                tally.fault("readings by 8 threads that share a map", f"cost {pair[0]}, reading {pair[1]}")


def _read_in_child(given: tuple[oc.MongeMap, Any, int]) -> bytes:
    found, new, reading = given
    fresh = oc.MongeMap(found.cost, n_jobs=2).fit(new, new + 1)  # threads of its own, too
    assert fresh.converged_
    return READINGS[reading](found, new).tobytes()


def forked_and_spawned(tally: Tally, method: str) -> None:
    """Worker processes of a parent that has used threads: maps reach them and give the same bytes."""
    found, new = maps()
    alone = {r: READINGS[r](found[1], new).tobytes() for r in range(len(READINGS))}
    asked = [k % len(READINGS) for k in range(tally.full(FORKS))]
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        waiting = [(r, pool.submit(_read_in_child, (found[1], new, r))) for r in asked]
        for r, future in waiting:
            what = f"readings in workers by {method}"
            try:
                same = future.result(timeout=120) == alone[r]
            except Exception as error:
                tally.fault(what, f"reading {r}: {type(error).__name__}: {error}")
                continue
            if same:
                tally.count(what, "same bytes")
            else:
                tally.fault(what, f"reading {r}: other bytes")


def _children(number: int, words: list[str], **more: str) -> list[tuple[bytes, str, int]]:
    started = [
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(**more))
        for _ in range(number)
    ]
    found = []
    for process in started:
        out, told = process.communicate(timeout=600)
        found.append((out, told.decode()[-300:], process.returncode))
    return found


def kernels(tally: Tally, folder: Path) -> None:
    """Several processes that compile into one empty cache; and one that can write no cache at all."""
    words = [sys.executable, "-c", CHILD]
    right = _children(1, words)[0][0]

    def judge(what: str, found: list[tuple[bytes, str, int]]) -> None:
        for out, told, code in found:
            if code == 0 and out == right:
                tally.count(what, "same bytes")
            else:
                tally.fault(what, f"exit {code}: {told}")

    cache = folder / "cache"
    cache.mkdir()
    number = tally.full(CACHES)
    judge("processes that fill one cache of kernels at once", _children(number, words, NUMBA_CACHE_DIR=str(cache)))
    before = {path: path.stat().st_mtime_ns for path in cache.rglob("*.nb*")}
    judge("processes that start from that cache", _children(2, words, NUMBA_CACHE_DIR=str(cache)))
    after = {path: path.stat().st_mtime_ns for path in cache.rglob("*.nb*")}
    if before == after:
        tally.count("starts that compile nothing", "cache unchanged")
    else:
        tally.fault("starts that compile nothing", f"{len(set(after.items()) - set(before.items()))} entries written")
    if can_be_read_only():
        asked = json.dumps({"words": words})
        read_only = ["unshare", "-rm", sys.executable, "-m", "soak.read_only", asked]
        judge("a home and an installation that are read-only", _children(1, read_only))
    else:
        tally.count("a home and an installation that are read-only", "skipped: this user may not mount")


def can_be_read_only() -> bool:
    """Whether this user may have a view of the file system of their own."""
    try:
        return not subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode
    except OSError:
        return False


def run(tally: Tally) -> None:
    """The whole section."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # what debias warns of, in every thread
        threads_share_a_map(tally)
        for method in multiprocessing.get_all_start_methods():
            forked_and_spawned(tally, method)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kernels(tally, folder)
        data = write_cells(folder)
        whole = []
        for number, job in enumerate(JOBS):
            whole.append(folder / f"whole-{number}")
            finish(job.command(data, whole[-1]))
        for k in range(tally.full(MEETINGS)):
            two_on_one(tally, JOBS[k % len(JOBS)], data, whole[k % len(JOBS)])
        for k in range(tally.full(CROWDS)):
            crowd(tally, JOBS[k % len(JOBS)], data, whole[k % len(JOBS)])
