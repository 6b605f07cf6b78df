"""Memory as a budget: what the process holds, what it may hold, and how many bytes are left for work."""

from __future__ import annotations

import ctypes
import math
import os
import re
import sys
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from occamap.errors import InputError, MemoryBudgetError

Lent = Sequence["weakref.ref[NDArray[Any]]"]

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


def parse_size(size: int | float | str) -> int:
    """Bytes of a size such as "500MB", "2GiB" or a number of bytes.

    >>> parse_size("500MB"), parse_size("2 GiB"), parse_size(10**6)
    (500000000, 2147483648, 1000000)
    """
    rule = f'max_memory must be a number of bytes, a million or more, or a size such as "500MB"; got {size!r}'
    if isinstance(size, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([KMGT]I?)?B?\s*", size.upper())
        if match is None:
            raise InputError(rule)
        size = float(match[1]) * _UNITS[match[2] or ""]
    if isinstance(size, bool) or not hasattr(size, "__float__") or not 10**6 <= size < float("inf"):
        raise InputError(rule)
    return int(size)


def format_size(size: float) -> str:
    """A size for people, rounded up.

    >>> format_size(123_456_789), format_size(25e9)
    ('124 MB', '25 GB')
    """
    return f"{math.ceil(size / 1e9)} GB" if size > 2e10 else f"{math.ceil(size / 1e6)} MB"


def resident() -> int:
    """Bytes of memory that this process holds now."""
    try:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return peak()


def available() -> float:
    """Bytes of memory that this process could still get without swapping; infinite where the system does not say."""
    found = float("inf")
    try:
        with open("/proc/meminfo") as info:
            found = next(int(line.split()[1]) * 1024.0 for line in info if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        pass
    return max(0.0, min(found, _left_in_groups(), _left_by_limits()))


def _left_in_groups(groups: str = "/proc/self/cgroup", root: str = "/sys/fs/cgroup") -> float:
    """What the control groups of this process leave it: that of a batch job, say, and all that it is in."""
    found = float("inf")
    try:
        lines = [line.split(":", 2) for line in Path(groups).read_text().splitlines()]
    except OSError:
        return found
    kinds = {"": ("", "memory.max", "memory.current", "inactive_file ")}
    kinds["memory"] = "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "
    for _, controllers, path in lines:
        if controllers not in kinds:
            continue
        folder, limit, used, idle = kinds[controllers]
        top = Path(root, folder)
        group = top / path.lstrip("/")
        for place in (group, *group.parents):
            if place != top and top not in place.parents:
                break
            with suppress(OSError, ValueError, StopIteration):  # no such group here, or no limit: "max"
                left = float((place / limit).read_text()) - float((place / used).read_text())
                stat = (place / "memory.stat").read_text().splitlines()
                left += next(float(line.split()[1]) for line in stat if line.startswith(idle))  # files, given back
                found = min(found, left)
    return found


def _left_by_limits() -> float:
    """What `ulimit` leaves this process, of addresses and of data."""
    found = float("inf")
    try:
        import resource

        for kind, field in ((resource.RLIMIT_AS, "VmSize:"), (resource.RLIMIT_DATA, "VmData:")):
            limit = resource.getrlimit(kind)[0]
            if limit != resource.RLIM_INFINITY:
                found = min(found, limit - _status(field))
    except (ImportError, OSError, ValueError, StopIteration):
        pass
    return found


def _status(field: str) -> int:
    """Bytes of memory, of a kind that Linux names so."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(field))


def peak() -> int:
    """Bytes of memory that this process held at its largest; 0 where the system does not say."""
    with suppress(OSError, StopIteration):
        return _status("VmHWM:")
    try:
        import resource
    except ImportError:
        return 0
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used * 1024


def trim() -> None:
    """Give back what was freed: C libraries keep some of it, for each thread that there was."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


_LATER: ContextVar[float] = ContextVar("later", default=0.0)


@contextmanager
def foreseeing(size: float) -> Iterator[None]:
    """Within it, refusals name a number with so many bytes more: for what a run does after the call that is refused."""
    token = _LATER.set(_LATER.get() + size)
    try:
        yield
    finally:
        _LATER.reset(token)


class Budget:
    """The bytes that a call may add: `max_memory` bounds the whole process, what it holds already included.

    Only `lent` arrays, those that the caller holds and passed in, do not count, as long as they are there. `reserve` is
    what to leave for work that comes after: less is kept in memory, but nothing is refused for it.
    """

    def __init__(self, max_memory: int | float | str | None, lent: Lent = (), reserve: float = 0.0) -> None:
        self.limit = None if max_memory is None else parse_size(max_memory)
        self.lent, self.reserve = lent, reserve

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "lent": ()}  # in another process nobody holds them

    def keeping(self, reserve: float) -> Budget:
        """The same, with so many bytes left for what comes after."""
        return Budget(self.limit, self.lent, reserve)

    def left(self) -> float:
        """Bytes left for what may be kept; infinite without a limit."""
        return float("inf") if self.limit is None else self.limit - self.held() - self.reserve

    def held(self) -> int:
        """Bytes that count."""
        return resident() - sum(array.nbytes for array in (known() for known in self.lent) if array is not None)

    def require(self, size: float, what: str, enough: float | None = None) -> None:
        """Refuse work that needs `size` bytes more than the process holds, and say what would do.

        `enough` is more than `size` where that is a guess. The C library keeps some of what is freed, of each thread:
        the number that is named has room for that.
        """
        if self.limit is None:
            return
        if size > self.limit - self.held():
            trim()
        if size > self.limit - self.held():
            size = max(size, enough or 0.0)
            need = 1.02 * self.held() + 1.2 * size + _LATER.get()
            beside = " beside what was passed in" if self.lent else ""
            raise MemoryBudgetError(
                f"{what} needs {format_size(size)} more, and this process holds {format_size(self.held())}{beside}; "
                f"with a margin, give max_memory at least {format_size(need)}; it is {format_size(self.limit)}"
            )
