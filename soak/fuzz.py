"""Coverage-guided fuzzing (atheris, libFuzzer) of what reads model files, run records and gene sets, for some minutes.

Each reader is fuzzed in a process of its own (fuzz_child.py), from small whole files. Model files are built anew from
what the fuzzer makes of their parts, with the checksums that belong to these, else none would get past the first check.
"""

from __future__ import annotations

import base64
import importlib.util
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from soak import files_seeds
from soak.fuzz_frames import framed
from soak.tally import Tally

SECONDS = 300  # in all
SHARES = {"model file": 0.5, "run record": 0.25, "gene sets": 0.25}
ABSENT = "skipped: atheris is not installed"
LIMITS = ("-rss_limit_mb=3000", "-timeout=20", "-print_final_stats=1", "-verbosity=1")


def run(tally: Tally, only: tuple[str, ...] = tuple(SHARES)) -> None:
    """Fuzz each reader for its share of the time; a crash, a hang or an error of another kind is a fault."""
    for reader in only:
        if importlib.util.find_spec("atheris") is None:
            tally.count(reader, ABSENT)
            continue
        with tempfile.TemporaryDirectory(prefix="soak-fuzz-") as name:
            _fuzz(tally, reader, max(1, round(SHARES[reader] * tally.full(SECONDS))), Path(name))


def seeds(reader: str, where: Path) -> None:
    """Whole files of a kind, as the fuzzer takes them."""
    made = where / "made"
    made.mkdir()
    if reader == "model file":
        files_seeds.models(made)
        contents = [framed(path) for path in sorted(made.iterdir())]
    elif reader == "run record":
        files_seeds.runs(made)
        contents = [path.read_bytes() for path in sorted(made.glob("*/run.json"))]
    else:
        files_seeds.gene_sets(made)
        contents = [path.read_bytes() for path in sorted(made.iterdir())]
    (where / "corpus").mkdir()
    for number, content in enumerate(contents):
        (where / "corpus" / str(number)).write_bytes(content)


def _fuzz(tally: Tally, reader: str, seconds: int, where: Path) -> None:
    seeds(reader, where)
    (where / "work").mkdir()
    options = [f"-max_total_time={seconds}", f"-seed={tally.seed + 1}", f"-artifact_prefix={where}/", *LIMITS]
    done = subprocess.run(
        [sys.executable, "-m", "soak.fuzz_child", reader, str(where / "work"), str(where / "corpus"), *options],
        capture_output=True,
        text=True,
        errors="replace",
        cwd=Path(__file__).parent.parent,
        timeout=seconds + 300,
    )
    executed = _last(r"stat::number_of_executed_units: (\d+)", done.stderr) or _last(r"^#(\d+)\t", done.stderr)
    if executed:
        tally.count(reader, "executed", executed)
    tally.figure(f"{reader}: seconds", seconds)
    tally.figure(f"{reader}: branches seen at the start", _first(r"INITED cov: (\d+)", done.stderr))
    tally.figure(f"{reader}: branches seen", _last(r" cov: (\d+)", done.stderr))
    tally.figure(f"{reader}: features", _last(r" ft: (\d+)", done.stderr))
    tally.figure(f"{reader}: inputs kept", _last(r" corp: (\d+)", done.stderr))
    if done.returncode or not executed:
        found = [path for path in where.glob("*-*") if path.is_file()]
        inputs = "; ".join(base64.b85encode(path.read_bytes()[:30_000]).decode() for path in found[:1])
        told = f"{done.stdout[-1500:]} {done.stderr[-500:]}"
        tally.fault(reader, f"the fuzzer ended with {done.returncode}: {told} input: {inputs}")


def _all(pattern: str, text: str) -> list[int]:
    return [int(number) for number in re.findall(pattern, text, re.MULTILINE)]


def _first(pattern: str, text: str) -> int:
    return next(iter(_all(pattern, text)), 0)


def _last(pattern: str, text: str) -> int:
    return next(reversed(_all(pattern, text)), 0)
