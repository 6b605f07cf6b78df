"""kill -9, SIGINT, SIGTERM, full disks, read-only directories: what is written is whole, and what is done is kept."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from soak.commands import JOBS, Job, environment, finish, incomplete, start, unsound, write_cells
from soak.tally import Tally

KILLS, INTERRUPTS, TERMINATIONS, DISKS = 270, 36, 12, 20
IN_A_ROW = 3  # ends of one run before it may finish
AT_ONCE = 2
READ_ONLY = "read-only"


class Ground:
    """Cells, and what jobs make of them undisturbed; and how long that takes."""

    def __init__(self, folder: Path, jobs: Iterable[int] = range(len(JOBS))) -> None:
        self.folder, self.data = folder, write_cells(folder)
        self.whole: dict[int, Path] = {}
        self.seconds: dict[int, float] = {}
        for number in jobs:
            job, out = JOBS[number], folder / f"whole-{number}"
            finish(job.command(self.data, folder / f"warm-{number}"))
            begun = time.monotonic()
            done = finish(job.command(self.data, out))
            self.seconds[number], self.whole[number] = time.monotonic() - begun, out
            if done.returncode:
                raise RuntimeError(f"{job.name} failed undisturbed: {done.stderr}")


def run_kills(tally: Tally, ground: Ground, number: int, chance: random.Random, times: int, how: int) -> None:
    """End one job so many times by a signal, look at what is there each time, and let it finish."""
    job, like = JOBS[number], ground.whole[number]
    what = f"{signal.Signals(how).name} of {label(job)}"
    out = Path(tempfile.mkdtemp(dir=ground.folder)) / "run"
    for k in range(times):
        ending, told, code = _end(job, ground, number, out, chance, how)
        wrong = unsound(out, job, like)
        if how == signal.SIGINT and code not in (0, 130):
            wrong.append(f"exit {code}: {told[-300:]}")
        if how == signal.SIGINT and code == 130 and not _is_told(told, out, job):
            wrong.append(f"says {told[-300:]!r} with {sorted(path.name for path in out.rglob('*'))} there")
        if wrong:
            tally.fault(what, f"{ending}, {k + 1} in a row: {'; '.join(wrong)}")
        else:
            tally.count(what, ending)
    done = finish(job.command(ground.data, out))
    wrong = incomplete(out, job, like) if not done.returncode else [done.stderr[-300:]]
    ending = f"{label(job)} after {signal.Signals(how).name}"
    if wrong:
        tally.fault(ending, "; ".join(wrong))
    else:
        earlier = json.loads((out / "run.json").read_text())["result"]
        resumed = earlier.get("pieces_from_earlier_runs", 0) + earlier.get("splits_from_earlier_runs", 0)
        tally.count(ending, "went on, same tables" if resumed else "began again, same tables")
    shutil.rmtree(out.parent)


def label(job: Job) -> str:
    return f"{job.name} --gamma auto" if "auto" in job.words else job.name


def _is_told(told: str, out: Path, job: Job) -> bool:
    """Whether an interrupted command says so in one line, and that it goes on exactly where something is kept."""
    pieces = [*out.glob(".occamap-kept/*.piece"), *out.glob("parts/*-*.json")]
    lines = told.strip().splitlines()
    one = len(lines) == 1 and "interrupted" in lines[0]
    if one and "before it began: nothing has changed" in lines[0]:
        return True
    return one and (not pieces or "the same command goes on from there" in lines[0])


def _end(
    job: Job, ground: Ground, number: int, out: Path, chance: random.Random, how: int
) -> tuple[str, str, int]:
    """Start the job and send it the signal: at a random moment, or just as it begins to write something."""
    process = start(job.command(ground.data, out))
    aimed = chance.random() < 0.5
    moment = time.monotonic() + (60 if aimed else chance.uniform(0.3, 1.05 * ground.seconds[number]))
    skip = chance.randrange(6)
    seen: set[str] = set()
    while process.poll() is None and time.monotonic() < moment:
        if aimed:
            seen |= {path.name for path in out.rglob("*.occamap-part")}
            if len(seen) > skip:
                time.sleep(chance.uniform(0, 0.003))
                break
            time.sleep(0.0005)
        else:
            time.sleep(0.005)
    ending = "while it wrote" if aimed else "at a random moment"
    if process.poll() is not None:
        ending = "had ended before"
    else:
        os.kill(process.pid, how)
    told = process.communicate(timeout=120)[1]
    return ending, told, process.returncode


def run_disk(tally: Tally, ground: Ground, number: int, size: str) -> None:
    """A job on a file system of this size ("read-only": one that nothing can be written to), and then with room."""
    job = JOBS[number]
    asked = {"job": number, "data": str(ground.data), "like": str(ground.whole[number]), "size": size}
    words = ["unshare", "-rm", sys.executable, "-m", "soak.disk", json.dumps(asked)]
    done = subprocess.run(words, capture_output=True, text=True, env=environment(), timeout=600, check=False)
    what = f"{'read-only directory' if size == READ_ONLY else 'full disk'}, {label(job)}"
    if done.returncode:
        tally.fault(what, f"{size}: {done.stderr[-500:]}")
        return
    found = json.loads(done.stdout)
    if found["wrong"]:
        tally.fault(what, f"{size}: {'; '.join(found['wrong'])}")
    else:
        tally.count(what, found["ending"])


def can_mount() -> bool:
    """Whether this user may have a file system of their own."""
    words = ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    try:
        return not subprocess.run(words, capture_output=True, check=False).returncode
    except OSError:
        return False


def run_all(tally: Tally, ground: Ground) -> None:
    """All of it, two children at a time."""
    chance = random.Random(tally.seed)
    lock, tasks = threading.Lock(), []
    for how, total in ((signal.SIGKILL, KILLS), (signal.SIGINT, INTERRUPTS), (signal.SIGTERM, TERMINATIONS)):
        rounds = max(1, round(tally.full(total) / IN_A_ROW))
        for k in range(rounds):
            tasks.append((run_kills, k % len(JOBS), random.Random(chance.random()), IN_A_ROW, how))
    disks = tally.full(DISKS)
    if can_mount():
        sizes = [READ_ONLY, *(f"{2 ** chance.uniform(2, 12):.0f}k" for _ in range(disks))]
        tasks += [(run_disk, k % len(JOBS), sizes[k // len(JOBS)]) for k in range(disks)]
    else:
        tally.count("full disk, read-only directory", "skipped: this user may not mount", disks)

    def one(task: tuple) -> None:
        mine = Tally(tally.section, tally.seed, tally.share)
        try:
            task[0](mine, ground, *task[1:])
        except Exception as error:
            mine.fault(task[0].__name__, f"{task[1:]}: {type(error).__name__}: {error}")
        with lock:
            tally.add(mine)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(one, tasks))


def run(tally: Tally) -> None:
    """The whole section."""
    with tempfile.TemporaryDirectory() as folder:
        run_all(tally, Ground(Path(folder)))
