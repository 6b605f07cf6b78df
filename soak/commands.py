"""Runs of the command line on small data, and what must be true of the directories that they leave."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

import occamap as oc
from occamap.run_record import RunRecord, sha256

THREADS = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
ASKED = ["--groupby", "condition", "--control", "control"]
FIT = [*ASKED, "--target", "treated"]
GAMMAS = "0.1,0.3,1,3"


@dataclass(frozen=True)
class Job:
    """A command, and the tables of it that must be the same to the byte whenever it ends."""

    name: str
    words: tuple[str, ...]
    tables: tuple[str, ...]

    def command(self, data: Path, out: Path) -> list[str]:
        """The whole command line."""
        return [sys.executable, "-m", "occamap", self.name, str(data), *self.words, "--out", str(out)]


CELLS = ("genes.csv", "genes_by_cell_type.csv", "cells.csv", "targets.csv")
JOBS = (
    Job("fit", (*FIT, "--by", "cell_type", "--threads", "1"), CELLS),
    Job("fit", (*FIT, "--gamma", "auto", "--by", "cell_type", "--threads", "1"), (*CELLS, "choice.csv")),
    Job("path", (*FIT, "--gammas", GAMMAS, "--threads", "1"), ("path.csv",)),
    Job(
        "evaluate",
        (*ASKED, "--gammas", GAMMAS, "--splits", "4", "--costs", "sql2,l1,stvs", "--threads", "1"),
        ("evaluation.csv", "evaluation.parquet"),
    ),
)


def write_cells(folder: Path) -> Path:
    """Simulated cells for all jobs."""
    path = folder / "cells.h5ad"
    oc.datasets.simulate_perturbation(200, 150, 1500, effect=1.5).to_anndata().write_h5ad(path)
    return path


def environment(**more: str) -> dict[str, str]:
    """Of a child: one thread for BLAS, so that several children do not wait for each other."""
    return {**os.environ, **THREADS, **more}


def finish(words: list[str], **more: str) -> subprocess.CompletedProcess[str]:
    """A command to its end."""
    return subprocess.run(words, capture_output=True, text=True, env=environment(**more), timeout=600, check=False)


def start(words: list[str]) -> subprocess.Popen[str]:
    """A command that is under way."""
    return subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment(), start_new_session=True
    )


def unsound(directory: Path, job: Job, like: Path) -> list[str]:
    """What is wrong with the files that bear final names, whatever happened: each must be whole."""
    found: list[str] = []
    if not directory.is_dir():
        return found
    for path in sorted(path for path in directory.iterdir() if path.is_file() and not path.name.startswith(".")):
        try:
            _check(path, job, like)
        except Exception as error:
            found.append(f"{path.name}: {type(error).__name__}: {error}")
    if (directory / "run.json").exists() and not any(line.startswith("run.json") for line in found):
        record = RunRecord.read(directory)
        for part, digest in record.digests.items():
            path = directory / record.files[part]
            if not path.is_file() or sha256(path) != digest:
                found.append(f"{path.name} is not the one that run.json describes")
    return found


def _check(path: Path, job: Job, like: Path) -> None:
    if path.name in job.tables and path.read_bytes() != (like / path.name).read_bytes():
        raise ValueError("another table than that of an undisturbed run")
    readers: dict[str, Any] = {".csv": pd.read_csv, ".parquet": pd.read_parquet, ".occamap": oc.load}
    if path.suffix in readers:
        readers[path.suffix](path)
    if path.name == "run.json":
        RunRecord.read(path)
    if path.suffix == ".html" and not path.read_bytes().rstrip().endswith(b"</html>"):
        raise ValueError("half a page")


def incomplete(directory: Path, job: Job, like: Path) -> list[str]:
    """What is wrong with a directory whose run has ended well: files that are absent, another's, or left over."""
    found = unsound(directory, job, like)
    names = {path.relative_to(directory).as_posix() for path in directory.rglob("*")}
    expected = {path.relative_to(like).as_posix() for path in like.rglob("*")}
    found += [f"{name} is absent" for name in sorted(expected - names)]
    return found + [f"{name} is left over" for name in sorted(names - expected)]
