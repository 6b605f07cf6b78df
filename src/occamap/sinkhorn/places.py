"""Where a cost matrix is kept: in memory, on disk or nowhere, by what there is room for and what a pass would take."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from occamap._kernels.jit import LANES
from occamap._memory import Budget, available, format_size
from occamap._validate import Samples
from occamap._workers import Workers
from occamap.costs.base import Cost, Tick
from occamap.costs.lanes import pairs_bytes
from occamap.sinkhorn.operator import CostBlocks, DiskCost, RecomputedCost, StoredCost, fill, working_bytes

SHARE = 0.8  # of the memory that the machine has left: no more is taken without being asked
SPARE = 8e6  # bytes of a budget that costs are not kept in: code is loaded later, too, and freed memory kept
PASSES = 30  # that a solve is taken to need, in the comparison
QUICK = 1.0  # seconds in all passes: less is not worth a look at the disk
PROBE = 2**22  # bytes written and read to find out how fast the disk is
IN_MEMORY = {"tmpfs", "ramfs"}  # file systems that are no disk

Note = Callable[[str], None] | None


@dataclass(frozen=True)
class Choice:
    """What the cost matrix is to be held in, and why."""

    place: str
    dtype: np.dtype[Any]
    why: str
    directory: str = ""


def cost_blocks(
    cost: Cost,
    X: Samples,
    Y: Samples,
    budget: Budget,
    workers: Workers,
    tick: Tick = None,
    *,
    single: bool = False,
    note: Note = None,
) -> CostBlocks:
    """The matrix, where the budget has room for it; in float32, if `single` allows that and float64 does not fit.

    note(sentence) is told what was compared, where the whole matrix in float64 is not simply kept in memory.
    """
    n, m = X.shape[0], Y.shape[0]
    scratch = scratch_bytes(cost, Y, workers.count)
    budget.require(scratch, f"fitting {n} × {m} samples")
    room = min(budget.left() - SPARE, SHARE * available()) - scratch
    choice = choose(cost, X, Y, room, workers.count, single)
    if note is not None and choice.why:
        note(choice.why)
    source = RecomputedCost(cost, X, Y, choice.dtype)
    if choice.place == "recomputed":
        return source
    if choice.place == "memory":
        return fill(source, StoredCost(np.empty((n, m), choice.dtype)), workers, tick)
    try:
        return fill(source, DiskCost((n, m), choice.dtype, choice.directory), workers, tick)
    except OSError as error:
        if note is not None:
            note(f"{choice.directory} cannot be written to ({error.strerror}): costs are computed again in each pass")
        return source


def scratch_bytes(cost: Cost, Y: Samples, threads: int) -> int:
    """What a solve takes at the least, beside the samples: where no matrix is kept."""
    return working_bytes(Y.shape[0], threads) + pairs_bytes(Y) + cost._more_bytes(Y)


def choose(cost: Cost, X: Samples, Y: Samples, room: float, threads: int, single: bool) -> Choice:
    """In memory if it fits, in float64 or else in float32; if not, whichever of disk and computing again is faster."""
    n, m = X.shape[0], Y.shape[0]
    double, smaller = np.dtype(np.float64), np.dtype(np.float32 if single else np.float64)
    size = 8 * n * m
    if size <= room:
        return Choice("memory", double, "")
    told = f"costs of {n:,} × {m:,} pairs take {format_size(size)} in float64"
    if single:
        told += f", {format_size(size // 2)} in float32"
    told += f"; there is room for {format_size(max(0, room))}"
    size = smaller.itemsize * n * m
    if size <= room:
        return Choice("memory", smaller, f"{told}: in memory, {smaller}")
    compute = pair_seconds(cost, X, Y) * n * m / threads
    again = f"computing them takes about {_duration(compute)} a pass"
    if PASSES * compute < QUICK:
        return Choice("recomputed", smaller, f"{told}; {again}: computed again, {smaller}")
    directory = disk()
    if directory is None:
        why = f"{told}; temporary files would be in memory or cannot be written, TMPDIR could name a disk; {again}: "
        why += f"computed again, {smaller}"
        return Choice("recomputed", smaller, why)
    try:
        free, rates = shutil.disk_usage(directory).free, disk_rates(directory)
    except OSError as error:
        why = f"{told}; {directory} cannot be written to ({error.strerror}), {again}: computed again, {smaller}"
        return Choice("recomputed", smaller, why)
    if 1.1 * size > free:
        why = f"{told}; {directory} has {format_size(free)} left, {again}: computed again, {smaller}"
        return Choice("recomputed", smaller, why)
    write, read = (size / rate for rate in rates)
    compared = f"{told}; {again}, reading them from disk {_duration(read)} and writing them once {_duration(write)}"
    if compute + write + PASSES * read < PASSES * compute:
        return Choice("disk", smaller, f"{compared}: on disk, {smaller}", directory)
    return Choice("recomputed", smaller, f"{compared}: computed again, {smaller}")


def pair_seconds(cost: Cost, X: Samples, Y: Samples) -> float:
    """What a pair takes on one thread, tried on a few of them."""
    x, y = X.rows(0, min(X.shape[0], LANES)), Y.rows(0, min(Y.shape[0], 1024))
    source = RecomputedCost(cost, x, y)
    source.raw((0, x.shape[0]))  # loads the kernel
    begun = time.perf_counter()
    source.raw((0, x.shape[0]))
    return (time.perf_counter() - begun) / (x.shape[0] * y.shape[0])


def disk() -> str | None:
    """A directory for temporary files that is on a disk: TMPDIR if it is set, or where the system has one."""
    if not hasattr(os, "pwrite"):
        return None
    try:
        first = tempfile.gettempdir()
    except OSError:  # none can be written to
        return None
    for directory in [first] if os.environ.get("TMPDIR") else [first, "/var/tmp"]:
        if os.access(directory, os.W_OK) and _file_system(directory) not in IN_MEMORY:
            return directory
    return None


def disk_rates(directory: str) -> tuple[float, float]:
    """Bytes a second that can be written to, and read from, this directory."""
    data = np.random.default_rng(0).bytes(PROBE)
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        begun = time.perf_counter()
        file.write(data)
        os.fsync(file.fileno())
        write = PROBE / (time.perf_counter() - begun)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # else it comes from memory
        begun = time.perf_counter()
        file.seek(0)
        while file.read(2**20):
            pass
        return write, PROBE / (time.perf_counter() - begun)


def _file_system(directory: str) -> str:
    """Its type, such as "ext4"; empty where the system does not say."""
    found, deepest = "", -1
    try:
        lines = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return ""
    where = os.path.realpath(directory)
    for line in lines:
        mount, kind = line.split()[1:3]
        if (where == mount or where.startswith(mount.rstrip("/") + "/")) and len(mount) > deepest:
            found, deepest = kind, len(mount)
    return found


def _duration(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < 100 else f"{seconds / 60:.0f} min"
