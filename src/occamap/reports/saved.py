"""A run as it was saved, or as it is about to be: what a page is made from."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import scipy.sparse as sp

from occamap.errors import InputError, RunFileError, one_line
from occamap.maps import MongeMap, load
from occamap.run_record import NAME, RunRecord, sha256

LARGEST, HEAD = 2**28, 2**14  # bytes of a table, and of its first line
GROUPED = 400_000  # groups × genes whose tests a page holds
TEXTS = (
    *("cell", "group", "gene", "status", "message", "epsilon_rule", "method", "within", "target", "direction"),
    "replicate",
)
COMMANDS = "fit", "path", "evaluate"


@dataclass(frozen=True, eq=False)
class Run:
    """The record, the map, and the tables of a run by their part in it ("genes", "cells", "targets", "choice", …).

    `moves` are the displacements of the control cells, where they are at hand.
    """

    record: RunRecord
    tables: dict[str, pd.DataFrame]
    model: MongeMap | None = None
    moves: sp.csr_array | None = None


def read(run: Any) -> tuple[Run, Path]:
    """The run in a directory (or beside a run.json), and the directory; its files are data, and may be hostile."""
    if not isinstance(run, str | os.PathLike) or not os.fspath(run) or "\0" in os.fspath(run):
        raise InputError(f"run must be the directory of a run, or its {NAME}; got {run!r}")
    path = Path(run)
    directory = path if path.is_dir() else path.parent
    record_at = directory / NAME if path.is_dir() else path
    if not record_at.is_file():
        raise InputError(f"run must be the directory of a run, with a {NAME} in it; {str(run)!r} has none")
    record = RunRecord.read(record_at)
    if record.command not in COMMANDS:
        known = ", ".join(COMMANDS)
        raise RunFileError(f"{str(record_at)!r} is of a command {record.command[:40]!r}; pages are made of {known}")
    wanted = ["csv"] if record.command == "evaluate" else ["genes", "cells", "targets", "choice", "path"]
    tables = {part: _table(directory, record, part) for part in wanted if part in record.files}
    there = "genes_by" in record.files and (directory / record.files["genes_by"]).is_file()
    if there and grouped(tables.get("cells"), record):
        tables["genes_by"] = _table(directory, record, "genes_by")
    model = None if record.command == "evaluate" else _model(directory, record)
    return Run(record, tables, model), directory


def grouped(cells: pd.DataFrame | None, record: RunRecord) -> bool:
    """Whether a page has room for what was tested in each group of cells."""
    genes = record.result.get("n_genes")
    if cells is None or "group" not in cells or not isinstance(genes, int):
        return False
    names = {name for name in cells["group"] if isinstance(name, str) and name}
    return len(names) * genes <= GROUPED


def _file(directory: Path, record: RunRecord, part: str) -> Path:
    if part not in record.files:
        raise RunFileError(f"{str(directory / NAME)!r} names no file {part!r}, which a page is made from")
    path = directory / record.files[part]
    if not path.is_file():
        raise RunFileError(f"the run is not complete: {str(path)!r} is not there; run it again")
    if part in record.digests and record.digests[part] != sha256(path):
        raise RunFileError(f"{str(path)!r} is not the file that the run wrote: it was changed, or is of another run")
    return path


def _model(directory: Path, record: RunRecord) -> MongeMap:
    return load(_file(directory, record, "map"))


def _table(directory: Path, record: RunRecord, part: str) -> pd.DataFrame:
    """A table as it was written: names stay text, whatever they look like, and no entry is NaN in numbers alone."""
    path = _file(directory, record, part)
    texts = (*TEXTS, record.parameters.get("by")) if part == "genes_by" else TEXTS
    with path.open("rb") as stream:
        content = stream.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise RunFileError(f"{str(path)!r} has more than {LARGEST:,} bytes")
    if len(content.partition(b"\n")[0]) > HEAD:
        raise RunFileError(f"{str(path)!r} is not a table of a run: its head has more than {HEAD:,} bytes")
    try:
        names = pd.read_csv(io.BytesIO(content), nrows=0, compression=None).columns
        lines = content.count(b"\n") + content.count(b"\r")
        if lines * len(names) > len(content):  # fields that are not there would take memory
            raise RunFileError(f"{str(path)!r} is not a table of a run: its lines are shorter than its head")
        table = pd.read_csv(
            io.BytesIO(content),
            dtype={name: str for name in names if name in texts},
            keep_default_na=False,
            compression=None,
            index_col=False,
            skip_blank_lines=False,
            na_values={name: [""] for name in names if name not in texts},
            float_precision="round_trip",
        )
    except (ValueError, UnicodeError, OverflowError) as error:
        raise RunFileError(f"{str(path)!r} is not a table that can be read: {one_line(error)}") from error
    if part == "genes_by" and "gene" in table.columns:
        return table.set_index([table.columns[0], "gene"])
    return table.set_index("gene") if part == "genes" and "gene" in table.columns else table
