"""Where a run writes to: checked before the work, and filled all at once or not at all."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from occamap._files import check_directory, check_outside, replacing_paths, same_file
from occamap._locks import holding
from occamap._memory import foreseeing
from occamap._record import versions
from occamap.errors import InputError, OccamapError
from occamap.run_record import PARTS, STATE, DataFile, RunRecord, sha256

CODE = 25e6  # bytes of what is loaded to make tables and pages once a map is fitted
LONGEST = 80  # bytes of a column's name in a file's


@contextmanager
def output_directory(out: str | os.PathLike[str], names: Iterable[str], kept: Path | None = None) -> Iterator[Path]:
    """The directory, there and writable, with room for files of these names; `kept` must not be one of them.

    It is made if need be, and taken away again if it is still empty when an error ends the work.
    """
    listed, made = list(names), _absent(out)
    try:
        directory = check_directory(out, listed)
        if (directory / PARTS / STATE).exists():
            raise InputError(f"out must not hold an evaluation, as {str(out)!r} does: take another directory")
        if kept is not None:
            check_outside(directory, kept)
            if any(same_file(directory / name, kept) for name in listed):
                raise InputError(f"out must not be where the data are: {str(kept)!r} would be overwritten")
        yield directory
    except BaseException:
        for folder in made:
            _remove_empty(folder)
        raise


@contextmanager
def run_directory(out: str | os.PathLike[str], names: Iterable[str], kept: Path) -> Iterator[Path]:
    """As `output_directory`, and this process's own until the work ends."""
    with output_directory(out, names, kept) as directory, holding(directory), foreseeing(CODE):
        yield directory


@contextmanager
def writing(directory: Path, names: Iterable[str]) -> Iterator[dict[str, Path]]:
    """A path to write to for each name; the files get these names when all are written, and none if one fails.

    What an earlier run has written there under other names is then removed: nothing would tell whose it is.
    """
    listed, earlier = list(names), _earlier(directory)
    try:
        with replacing_paths([directory / name for name in listed]) as parts:
            yield dict(zip(listed, parts, strict=True))
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(directory)) from error
    for path, digest in earlier.items():
        with suppress(OSError):
            if path.name not in listed and sha256(path) == digest:
                path.unlink()


def _earlier(directory: Path) -> dict[Path, str]:
    """The files that the record of an earlier run in the directory describes, with their digests."""
    try:
        record = RunRecord.read(directory)
        return {directory / record.files[part]: digest for part, digest in record.digests.items()}
    except (OSError, OccamapError, KeyError):
        return {}


def fingerprint(
    data: DataFile, command: str, asked: dict[str, Any], max_memory: str | None, seed: int
) -> dict[str, Any]:
    """All that the numbers of a run depend on, to the last bit."""
    sets = asked["map"].get("gene_sets")
    content = sha256(sets) if sets is not None and os.path.isfile(sets) else None
    about = {"command": command, "data": data.sha256, "gene_sets": content, "versions": versions()}
    return {**about, **asked, "max_memory": max_memory, "seed": seed}


def file_name(prefix: str, text: str, suffix: str) -> str:
    """A name that any file system takes, from any text.

    >>> file_name("genes_by_", "cell/type: naïve", ".csv")
    'genes_by_cell_type_naïve.csv'
    """
    plain = re.sub(r"[^\w\-.+]+", "_", text).strip("._")
    short = plain.encode("utf-8", "ignore")[:LONGEST].decode("utf-8", "ignore")
    return f"{prefix}{short or 'column'}{suffix}"


def _absent(out: str | os.PathLike[str]) -> list[Path]:
    """The folders that are yet to be made, the innermost first."""
    try:
        return [folder for folder in (Path(out), *Path(out).parents) if not folder.exists()]
    except (OSError, ValueError, TypeError):
        return []


def _remove_empty(folder: Path) -> None:
    with suppress(OSError, ValueError):
        folder.rmdir()
