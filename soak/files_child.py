"""Reads damaged files under watch: a limit of memory, and a hook that sees what is opened, written, run and imported.

`python -m soak.files_child TARGET WHOLE WORK SEED FIRST LAST` prints a line of JSON before and after each file. The
process is to be killed by whoever started it where a file takes too long.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import shutil
import sys
import threading
import time
import warnings
import zlib
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from occamap.errors import OccamapError
from soak.files_targets import GROWING, Target, targets

ROOM = 2**30  # bytes of address space beyond what the process has when all is warm
FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = ("os.truncate", "os.chmod", "os.chown", "os.utime")  # of what a link leads to
NAMED = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink")  # of the name itself
RUNS = "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "pickle.find_class", "os.putenv"
ASKS_NOBODY = "socket.gethostname"  # of locks, to say who holds them
TRUSTED = "numba", "jinja2", "importlib", "zipimport"  # compile what is their own, or keep it


class Watch:
    """What a file made the process do that a reader has no business with."""

    def __init__(self, allowed: Path) -> None:
        self.allowed, self.armed = str(allowed), False
        self.seen: list[str] = []
        sys.addaudithook(self._hear)

    def _hear(self, event: str, given: tuple[Any, ...]) -> None:
        if not self.armed or threading.current_thread().name == GROWING:
            return
        if event == "open":
            path, _, flags = given
            if isinstance(flags, int) and flags & FLAGS and not self._inside(path) and not self._trusted():
                self.seen.append(f"opened for writing: {path!r}")
        elif event in CHANGES or event in NAMED:
            paths = [path for path in given if isinstance(path, str | bytes)]
            inside = all(self._inside(path, follow=event in CHANGES) for path in paths)
            if not inside and not self._trusted():
                self.seen.append(f"{event}{given!r}")
        elif event in RUNS or (event.startswith("socket.") and event != ASKS_NOBODY):
            if not self._trusted():
                self.seen.append(f"{event}{str(given)[:200]}")
        elif (event == "exec" and not self._trusted()) or (event == "import" and "canary" in str(given[0])):
            self.seen.append(f"{event} {str(given)[:200]}")

    def _inside(self, path: Any, follow: bool = True) -> bool:
        if isinstance(path, int):
            return True  # a file that is open already was seen when it was opened
        folder, name = os.path.split(os.fsdecode(path))
        found = os.path.realpath(path) if follow else os.path.join(os.path.realpath(folder), name)
        return os.path.join(os.fsdecode(found), "").startswith(os.path.join(self.allowed, ""))

    def _trusted(self) -> bool:
        frame = sys._getframe(2)
        while frame is not None:
            name = str(frame.f_globals.get("__name__")).partition(".")[0]
            if name in TRUSTED or "importlib" in frame.f_code.co_filename:
                return True
            frame = frame.f_back  # type: ignore[assignment]
        return False


def status(name: str) -> int:
    """Bytes, as Linux shows them."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def ended(target: Target, path: Path, out: Path) -> str:
    """How reading a file ended; what must not be begins with "fault"."""
    try:
        return target.read(path, out)
    except OccamapError as error:
        told = str(error)
        if not told or len(told) > 1500 or any(mark in told for mark in "\n\r\x1b\0"):
            return f"fault: {type(error).__name__} is not one plain sentence: {told[:1000]!r}"
        return f"refused: {type(error).__name__}"
    except OSError as error:
        known = error.filename is not None and error.strerror
        return f"refused: {type(error).__name__}" if known else f"fault: {error!r}"
    except Exception as error:
        return f"fault: {type(error).__name__}: {str(error)[:300]}"


def one(target: Target, kind: str, rng: Any, whole: Path, work: Path, watch: Watch) -> dict[str, Any]:
    """Make one damaged file, read it under watch, and say how that went."""
    where = work / "in"
    where.mkdir()
    path = target.make(kind, rng, whole, where)
    size = sum(file.stat().st_size for file in (path, *where.rglob("*")) if file.is_file())
    Path("/proc/self/clear_refs").write_text("5")
    before, begun, watch.seen = status("VmRSS"), time.perf_counter(), []
    watch.armed = True
    ending = ended(target, path, work / "out")
    watch.armed = False
    seconds, rise = time.perf_counter() - begun, status("VmHWM") - before
    if watch.seen:
        ending = f"fault: {'; '.join(watch.seen)[:500]}"
    if sorted(os.listdir(".")):
        ending = f"fault: there is {os.listdir('.')} where nothing was"
    shutil.rmtree(where)
    shutil.rmtree(work / "out")
    (work / "out").mkdir()
    return {"ending": ending, "seconds": seconds, "rise": max(0, rise), "size": size}


def main() -> None:
    name, whole, work, seed, first, last = sys.argv[1:]
    say: TextIO = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    faulthandler.enable()
    warnings.simplefilter("ignore")
    target, folder = targets()[name], Path(work).resolve()
    for part in ("out", "empty"):
        (folder / part).mkdir()
    os.chdir(folder / "empty")
    target.warm(Path(whole), folder / "out")
    watch = Watch(folder / "out")
    resource.setrlimit(resource.RLIMIT_AS, (status("VmSize") + ROOM,) * 2)
    for number in range(int(first), int(last)):
        kind = target.kinds[number % len(target.kinds)]
        print(json.dumps({"number": number, "kind": kind}), file=say)
        rng = np.random.default_rng([int(seed), zlib.crc32(name.encode()), number])
        print(json.dumps(one(target, kind, rng, Path(whole), folder, watch)), file=say)


if __name__ == "__main__":
    main()
