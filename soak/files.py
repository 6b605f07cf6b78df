"""Damaged and forged files, ten thousand and more: a typed error or a sound result, and never anything else.

Files are read in processes of their own, under a limit of memory and a hook that sees what they do (files_child.py).
A process that dies, hangs, takes memory out of proportion to the file, runs code or writes elsewhere is a fault, and
so is an error of another kind than occamap's own. HDF5 is not ours: where a damaged .h5ad file ends the process within
it, that is counted as such.
"""

from __future__ import annotations

import json
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from soak import files_seeds
from soak.tally import Tally

FULL = {
    "model file": 8000, "run record": 1500, "run directory": 700, "evaluation": 150, "gene sets": 1200, "h5ad": 500,
    "zarr": 500,
}  # fmt: skip
BATCH = 1000  # files a process
PROCESSES = 2
PATIENCE = 20.0  # seconds a file may take, and START a process to get ready
START = 900.0  # where kernels are not compiled yet, that takes minutes
FIXED, TIMES = 64e6, 30  # bytes that a file may take in memory: so many, and so many times its size
WIDTH = {"width forged": 256e6}  # a map of a million features takes as much, whoever made it
WITHIN = {False: "the process ended within HDF5", True: f"no end after {PATIENCE:g} s within HDF5"}


@dataclass
class Batch:
    """Files that one process after the other reads."""

    target: str
    first: int
    last: int
    seed: int
    whole: Path
    found: list[tuple[str, dict[str, Any]]] = field(default_factory=list)  # kind and what the process said of it

    def run(self) -> Batch:
        """Read them all; a file that a process dies of is the last it has read, and the next begins behind it."""
        while self.first < self.last:
            with tempfile.TemporaryDirectory(prefix="soak-files-") as work:
                self.first = self._go_on(Path(work))
        return self

    def _go_on(self, work: Path) -> int:
        given = self.target, self.whole, work, self.seed, self.first, self.last
        command = [sys.executable, "-m", "soak.files_child", *map(str, given)]
        place = Path(__file__).parent.parent
        with (work / "told").open("w+") as told:
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=told, text=True, cwd=place) as process:
                begun, hung = self._hear(process), process.poll() is None
                process.send_signal(signal.SIGABRT)  # Python then tells where it is
                code = _waited(process)
            told.seek(0)
            last = told.read()[-20_000:]
        if begun is None and code == 0:
            return self.last
        if begun is None:
            raise RuntimeError(f"a process that was to read damaged files did not get ready: {last}")
        what = f"{'no end' if hung else f'the process ended with {code}'}: {last[-600:]}"
        inside = self.target == "h5ad" and code < 0 and "most recent call first" in last and _innermost(last) == "h5py"
        self.found.append((begun["kind"], {"ending": WITHIN[hung] if inside else f"fault: {what}", **begun}))
        return int(begun["number"]) + 1

    def _hear(self, process: subprocess.Popen[str]) -> dict[str, Any] | None:
        """Keep what a process says of files, and return the one that it has not come to the end of."""
        begun: dict[str, Any] | None = None
        for line in _lines(process):
            said = json.loads(line)
            if "number" in said:
                begun = said
            elif begun is not None:
                self.found.append((begun["kind"], {**said, "number": begun["number"]}))
                begun = None
        return begun


def _waited(process: subprocess.Popen[str]) -> int:
    try:
        return process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _innermost(told: str) -> str:
    """The package in which a process was, by the stack that it told when it was ended."""
    frames = re.findall(r'most recent call first\):\n  File "([^"]+)"', told)
    last = Path(frames[-1] if frames else "").parts
    return next((part for part in last if part in ("h5py", "anndata", "occamap")), "")


def _lines(process: subprocess.Popen[str]) -> Iterator[str]:
    """What a process prints, until it ends or takes too long."""
    lines: queue.Queue[str] = queue.Queue()

    def listen() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put("")

    threading.Thread(target=listen, daemon=True).start()
    wait = START
    while True:
        try:
            line = lines.get(timeout=wait)
        except queue.Empty:
            return
        if not line:
            process.wait()
            return
        yield line
        wait = PATIENCE


def run(tally: Tally, only: tuple[str, ...] = tuple(FULL)) -> None:
    """Damage and read files of every kind; counted by kind of file and damage."""
    with tempfile.TemporaryDirectory(prefix="soak-whole-") as name:
        whole = Path(name)
        files_seeds.all_of_them(whole)
        batches = [
            Batch(target, first, min(first + BATCH, tally.full(FULL[target])), tally.seed, whole)
            for target in only
            for first in range(0, tally.full(FULL[target]), BATCH)
        ]
        with ThreadPoolExecutor(PROCESSES) as pool:
            for batch in pool.map(Batch.run, batches):
                _count(tally, batch)
    for target in only:
        kinds = [what for what in tally.counts if what.startswith(f"{target}: ")]
        tally.figure(f"{target}: files", tally.total(kinds))


def _count(tally: Tally, batch: Batch) -> None:
    for kind, said in batch.found:
        what, ending = f"{batch.target}: {kind}", said["ending"]
        again = f"number {said['number']}, seed {tally.seed}"
        size, rise = said.get("size", 0), said.get("rise", 0)
        if ending.startswith("fault"):
            tally.fault(what, f"{again}: {ending.removeprefix('fault: ')}")
        elif rise > WIDTH.get(kind, FIXED) + TIMES * size:
            tally.fault(what, f"{again}: {rise / 1e6:.0f} MB of memory for a file of {size:,} bytes ({ending})")
        else:
            tally.count(what, ending)
        for figure, value in (("MB at most", rise / 1e6), ("s at most", said.get("seconds", 0.0))):
            name = f"{batch.target}: {figure}"
            if value > tally.figures.get(name, [0])[0]:
                tally.figure(name, [round(value, 2), f"{kind}, {again}"])
