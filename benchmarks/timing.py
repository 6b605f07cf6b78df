"""How things are timed: the best of a few runs, shares of the rows of a slow peer, processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

T = TypeVar("T")

CHILD = Path(__file__).with_name("child.py")


class DisagreementError(AssertionError):
    """Two programs that were to be compared do not compute the same thing."""


@dataclass(frozen=True)
class Measured:
    """Seconds of the whole problem and how they were found."""

    seconds: float
    how: str = "whole"
    note: str = ""
    comparable: bool = True


def best(run: Callable[[], T], repeats: int = 5, least: float = 2.0, most: float = 10.0) -> tuple[float, T]:
    """Seconds of the fastest run and the result, after a warm-up.

    There are `repeats` runs, more until they took `least` seconds, and no more once they took `most`.
    """
    result = run()
    fastest, spent, done = float("inf"), 0.0, 0
    while done == 0 or (spent < most and (done < repeats or spent < least)):
        begun = time.perf_counter()
        result = run()
        seconds = time.perf_counter() - begun
        fastest, spent, done = min(fastest, seconds), spent + seconds, done + 1
    return fastest, result


def by_share(
    run: Callable[[int], object], total: int, shares: Sequence[int], rows: str = "rows", note: str = ""
) -> Measured:
    """Seconds of run(total) from the share of the rows with the best rate: what favours the peer most."""
    rates = {share: best(partial(run, share))[0] / share for share in shares}
    share = min(rates, key=rates.__getitem__)
    how = "whole" if share == total else f"extrapolated from {share:,} of {total:,} {rows}"
    return Measured(rates[share] * total, how, note)


def agree(what: str, ours: ArrayLike, theirs: ArrayLike, tolerance: float = 1e-5, scale: float | None = None) -> float:
    """The largest difference relative to each entry of `ours`, or to `scale`; raises above the tolerance."""
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    if ours.shape != theirs.shape:
        raise DisagreementError(f"{what}: the shapes are {ours.shape} and {theirs.shape}")
    worst = float(np.max(np.abs(ours - theirs) / (np.abs(ours) if scale is None else scale)))
    if not worst <= tolerance:
        raise DisagreementError(f"{what}: the results differ by {worst:.2g}, relative; at most {tolerance:g} is right")
    return worst


def in_process(*arguments: str) -> dict[str, float]:
    """What child.py says of a run in a fresh process, and that process's whole "wall" seconds."""
    begun = time.perf_counter()
    done = subprocess.run([sys.executable, str(CHILD), *arguments], capture_output=True, text=True, check=False)
    wall = time.perf_counter() - begun
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "the process was killed")
    said: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return {**said, "wall": wall}
