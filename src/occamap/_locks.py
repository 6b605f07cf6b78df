"""Who is writing: locks on files, which the system takes back when their process ends, however it ends.

Where the system or the file system knows no such locks, nothing is held and nobody is refused.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from occamap.errors import BusyError, InputError

if sys.platform != "win32":
    import fcntl

NAME = ".occamap-lock"
ATTEMPTS = 1000
LONGEST = 1000  # bytes that are read of what a lock says
_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def is_free(handle: int, *, wait: bool = False) -> bool:
    """Lock an open file, and say whether that could be done: until it is closed, nobody else can."""
    if sys.platform == "win32":
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL):
            raise
    return True


def can_lock() -> bool:
    """Whether this system has locks that end with their process."""
    return sys.platform != "win32"


@contextmanager
def holding(directory: Path) -> Iterator[None]:
    """A directory to oneself, or a `BusyError` that says who has it."""
    path = directory / NAME
    handle = _lock(path, directory)
    try:
        about = {"pid": os.getpid(), "host": socket.gethostname(), "since": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"}
        with suppress(OSError):  # a disk that is full: held without a name
            os.truncate(handle, 0)
            os.pwrite(handle, json.dumps(about).encode(), 0)
        yield
    finally:
        with suppress(OSError):
            path.unlink()
        os.close(handle)


def _lock(path: Path, directory: Path) -> int:
    for _ in range(ATTEMPTS):
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise InputError(f"out must have room for a file {str(path)!r}; what is there is none: remove it")
        handle = os.open(path, _FLAGS, 0o666)
        try:
            if not is_free(handle):
                raise BusyError(
                    f"{str(directory)!r} is in use: {_holder(handle)} writes there; wait for it to end, or take "
                    "another directory"
                )
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), os.lstat(path)):
                    return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # whoever had it took the file away in between: another one counts now
    raise BusyError(f"{str(directory)!r} is in use: others take and leave it all the time; take another directory")


def _holder(handle: int) -> str:
    """Who says to have the lock; what stands in the file may be anything."""
    try:
        said = json.loads(os.pread(handle, LONGEST, 0))
        pid, host, since = said["pid"], said["host"], said["since"]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return "another process"
    sound = isinstance(pid, int) and all(isinstance(text, str) and text.isprintable() for text in (host, since))
    return f"process {pid} on {host}, since {since}," if sound else "another process"
