"""run.json: what was asked of which data, with what, and what came of it.

A directory that a run wrote is complete in itself: `RunRecord.read` gives the record, whose `files` say by their part
in the run ("map", "genes", "cells", …) which others are there. The format:

- `format`, `version`: "occamap-run" and 1
- `command`: "fit", "path", "evaluate"; `started`: the time in UTC, ISO 8601; `seconds`: until files were written
- `data`: the `path`, `sha256` and `shape` (cells, genes) of the file that was read (what the digest of a directory is,
  such as a Zarr store, the function `sha256` says); for "evaluate", `path` is empty where the cells came from memory,
  and `sha256` is that of the numbers, the names of the genes and the groups
- `parameters`: all of them by name, defaults included; null for those that do not apply
- `result`: by name: `status`, `message`, `epsilon`, `gamma`, `effective_targets`, `density` (the share of entries that
  move), `n_cells` and `n_targets` (of the control and the target), `n_genes` (that were used),
  `diagnostics` (a text, where held-out cells chose, else null), `choice` (where they did: which candidate, by which
  rule, and what it is compared with), `null` (a map between halves of the control cells: how much moves there, and how
  far at most on average), and what else a command knows
- `warnings`: what occamap warned of; `versions`: of all that computed; `seed`; `files`: name by part; `digests`: the
  sha256 of these files, by part, so that files of different runs are not mixed up

Numbers that are not finite are null.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from occamap._record import plain, read_json
from occamap._version import __version__
from occamap.errors import RunFileError, one_line

FORMAT = "occamap-run"
VERSION = 1
NAME = "run.json"
PARTS, STATE = "parts", "protocol.json"  # a directory with PARTS/STATE belongs to an evaluation, done or under way
_LARGEST = 2**24  # bytes

Json = dict[str, Any]


@dataclass(frozen=True)
class DataFile:
    """What was read, a file or a Zarr store: where, its content, and how many cells and genes it holds."""

    path: str
    sha256: str
    shape: tuple[int, int]

    @classmethod
    def of(cls, path: str | os.PathLike[str], shape: tuple[int, int]) -> DataFile:
        """The file at this path."""
        return cls(os.path.abspath(path), sha256(path), (int(shape[0]), int(shape[1])))


def sha256(path: str | os.PathLike[str]) -> str:
    """Of a file's content; of a directory, such as a Zarr store, that of the names and digests of all files in it.

    A line a file, in the order of their names as bytes: its digest in hex, two spaces, and its name relative to the
    directory, with / between folders. In the directory, this says the same:
    `find . -type f -printf '%P\\n' | LC_ALL=C sort | xargs -d '\\n' sha256sum | sha256sum`.
    """
    if os.path.isdir(path):
        files = [Path(folder, name) for folder, _, names in os.walk(path) for name in names]
        listed = {os.fsencode(file.relative_to(path).as_posix()): file for file in files}
        lines = [sha256(listed[name]).encode() + b"  " + name + b"\n" for name in sorted(listed)]
        return hashlib.sha256(b"".join(lines)).hexdigest()
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@dataclass(frozen=True)
class RunRecord:
    """What a run was, as run.json holds it; see the module's text for the fields."""

    command: str
    data: DataFile
    parameters: Json
    result: Json
    warnings: tuple[str, ...]
    versions: dict[str, str]
    seed: int
    seconds: float
    started: str
    files: dict[str, str]
    digests: dict[str, str] = field(default_factory=dict)

    def signed(self, paths: dict[str, Path]) -> RunRecord:
        """With the digests of files that are written, by their part in the run; the record itself has none."""
        return replace(self, digests={part: sha256(path) for part, path in paths.items() if part != "record"})

    def to_dict(self) -> Json:
        """Plain values, ready for JSON."""
        return {"format": FORMAT, "version": VERSION, **_finite(plain(asdict(self)))}

    def write(self, path: Path) -> None:
        """Write run.json."""
        text = json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)
        path.write_bytes((text + "\n").encode(errors="backslashreplace"))  # half a surrogate is \udc.. in JSON, too

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> RunRecord:
        """The record in a run's directory, or at the path of a run.json; checked, since it may be hostile.

        Raises `RunFileError` for a file that is truncated, altered, of a later version, or something else.
        """
        found = Path(path) / NAME if Path(path).is_dir() else Path(path)
        try:
            return _build(read_json(_content(found)))
        except RunFileError as error:
            raise RunFileError(f"{str(found)!r} is not a run record that can be read: {error}") from error
        except ValueError as error:  # no path, no UTF-8, no JSON
            raise RunFileError(f"{str(found)!r} is not a run record, or it is truncated: {one_line(error)}") from error


def _content(path: Path) -> bytes:
    if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited for, a device never ends
        raise RunFileError("it is no plain file")
    with path.open("rb") as stream:
        content = stream.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise RunFileError(f"it has more than {_LARGEST:,} bytes")
    return content


def _build(entries: Any) -> RunRecord:
    """The record that these entries describe, every one of them checked."""
    if not isinstance(entries, dict) or entries.get("format") != FORMAT:
        raise RunFileError(f"its format is not {FORMAT!r}")
    if entries.get("version") != VERSION:
        raise RunFileError(
            f"it has format version {repr(entries.get('version'))[:40]}, and this occamap {__version__} reads version "
            f"{VERSION}"
        )
    names = [entry.name for entry in fields(RunRecord)]
    entries = {"digests": {}, **entries}
    absent = [name for name in names if name not in entries]
    if absent:
        raise RunFileError(f"it has no {absent[0]!r}")
    for name, sound in _SOUND.items():
        if not sound(entries[name]):
            raise RunFileError(f"its {name!r} is not what belongs there")
    data = entries["data"]
    found = DataFile(data["path"], data["sha256"], (data["shape"][0], data["shape"][1]))
    return RunRecord(
        **{name: entries[name] for name in names if name not in ("data", "warnings")},
        data=found,
        warnings=tuple(entries["warnings"]),
    )


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _is_duration(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12


def _is_data(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and _is_text(value.get("path"))
        and _is_text(value.get("sha256"))
        and len(value["sha256"]) == 64
        and isinstance(value.get("shape"), list)
        and len(value["shape"]) == 2
        and all(map(_is_count, value["shape"]))
    )


def _are_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_text, value.values()))


def _are_files(value: Any) -> bool:
    """Names of files beside the record: none leads elsewhere."""
    return _are_texts(value) and all(
        name not in ("", ".", "..") and not any(mark in name for mark in "/\\\0") for name in value.values()
    )


_SOUND: dict[str, Callable[[Any], bool]] = {
    "command": _is_text,
    "data": _is_data,
    "parameters": lambda value: isinstance(value, dict),
    "result": lambda value: isinstance(value, dict),
    "warnings": lambda value: isinstance(value, list) and all(map(_is_text, value)),
    "versions": _are_texts,
    "seed": _is_count,
    "seconds": _is_duration,
    "started": _is_text,
    "files": _are_files,
    "digests": _are_texts,
}


def _finite(value: Any) -> Any:
    """None for numbers that JSON cannot hold, all the way down."""
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
