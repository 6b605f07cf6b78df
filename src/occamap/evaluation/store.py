"""What an evaluation has computed, kept at once: a file a split while it runs, one table and a record at the end."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pandas as pd

from occamap._files import (
    check_directory,
    check_outside,
    clear_parts,
    put_table,
    read_plain,
    replacing,
    replacing_paths,
    same_file,
)
from occamap._kept import going_on
from occamap._locks import holding
from occamap._record import plain, versions
from occamap.errors import InputError
from occamap.evaluation.conditions import Condition
from occamap.evaluation.protocol import OPEN, Protocol
from occamap.evaluation.scores import Row
from occamap.reports import NAME as PAGE
from occamap.reports import Run, check_packages, page
from occamap.reports.saved import TEXTS
from occamap.run_record import NAME, PARTS, STATE, DataFile, RunRecord

TABLE, CSV = "evaluation.parquet", "evaluation.csv"
LARGEST = 2**26  # bytes of a part
NEEDED = {"target", "split", "method", "gamma", "epsilon", "status", "message"}
FILES = {"table": TABLE, "csv": CSV, "report": PAGE, "record": NAME}


class Store:
    """Rows by condition and split, in memory or, if `out` is given, in a directory; to be used with `with`.

    A directory belongs to one protocol on one set of data (more splits and targets may come later); to any other it is
    closed. `parts/` has a file a split, each whole or not there, and `parts/protocol.json` says whose they are.
    """

    def __init__(
        self,
        out: Any,
        protocol: Protocol,
        data: DataFile,
        conditions: list[Condition],
        warned: Sequence[str] = (),
        noted: Sequence[str] = (),
    ) -> None:
        self.protocol, self.data, self.conditions = protocol, data, conditions
        self.warned, self.noted = tuple(warned), tuple(noted)
        self.key = protocol.fingerprint(data.sha256)
        self.directory = None if out is None else check_directory(out, FILES.values())
        self._rows: dict[tuple[str, int], list[Row]] = {}
        self._started, self._begun = datetime.now(UTC), time.monotonic()
        self._held, self._began = ExitStack(), False

    def __enter__(self) -> Store:
        """Take the directory, and what is there from an earlier run."""
        if self.directory is not None:
            check_packages()
            self._held.enter_context(holding(self.directory))
            try:
                self._open(self.directory)
            except BaseException:
                self._held.close()
                raise
        self.resumed = len(self._rows)
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None and self.directory is not None and self._rows:
            error.add_note(going_on(self.directory))
        elif error is not None and self.directory is not None and self._began:
            with suppress(OSError):  # nothing is done: the directory is free for another evaluation
                (self.directory / PARTS / STATE).unlink()
                (self.directory / PARTS).rmdir()
        self._held.close()

    def has(self, condition: str, split: int) -> bool:
        """Whether the rows of a split are there."""
        return (condition, split) in self._rows

    def put(self, condition: str, split: int, rows: list[Row]) -> None:
        """Keep the rows of a split."""
        text = json.dumps(plain(rows))
        about = {"key": self.key, "condition": condition, "split": split, "sha256": _sha256(text)}
        if self.directory is not None:
            with self._telling(), replacing(self.directory / PARTS / _name(condition, split)) as stream:
                stream.write(json.dumps({**about, "rows": text}).encode())
        self._rows[condition, split] = json.loads(text)  # what a later run would read

    def finish(self) -> pd.DataFrame:
        """The table of all rows, in the order of the conditions; table and record are written, all or none."""
        rows = [
            row
            for condition in self.conditions
            for split in range(len(condition.splits))
            for row in self._rows[condition.key, split]
        ]
        table = pd.DataFrame(rows)
        if self.directory is not None:
            record = self._record(table)
            drawn = page(Run(record, {"csv": table}))
            targets = [self.directory / name for name in FILES.values()]
            with self._telling(), replacing_paths(targets) as parts:
                of = dict(zip(FILES, parts, strict=True))
                table.to_parquet(of["table"], index=False)
                put_table(table, of["csv"], index=False)
                of["report"].write_bytes(drawn)
                record.signed(of).write(of["record"])  # the last to get its name: it says that the others are there
        return table

    def _open(self, directory: Path) -> None:
        parts = directory / PARTS
        if self.data.path:
            check_outside(directory, self.data.path)
        if self.data.path and any(same_file(directory / name, Path(self.data.path)) for name in FILES.values()):
            raise InputError(f"out must not be where the data are: {self.data.path!r} would be overwritten")
        if (directory / NAME).exists() and not (parts / STATE).exists():
            raise InputError(f"out must be empty or hold this evaluation; {str(directory)!r} holds another run")
        parts.mkdir(exist_ok=True)
        clear_parts(parts)
        asked = plain(asdict(self.protocol))
        if (parts / STATE).exists():
            known = _read(parts / STATE)
            theirs = known.get("parameters")
            if not isinstance(theirs, dict):
                raise InputError(f"out must be empty or hold this evaluation; {str(parts / STATE)!r} is damaged")
            if known.get("key") != self.key:
                other = [name for name in asked if name not in OPEN and asked[name] != theirs.get(name)]
                raise InputError(
                    f"out must be empty or hold this evaluation; {str(directory)!r} holds one of other "
                    f"{', '.join(other) or 'data'}: take another directory"
                )
        else:
            self._began = True
            with self._telling(), replacing(parts / STATE) as stream:
                stream.write(json.dumps({"key": self.key, "parameters": asked}, indent=2).encode())
        for condition in self.conditions:
            for split in range(len(condition.splits)):
                known = _read(parts / _name(condition.key, split))
                mine = known.get("key") == self.key and known.get("condition") == condition.key
                text = known.get("rows")
                mine = mine and known.get("split") == split and isinstance(text, str)
                if mine and known.get("sha256") == _sha256(str(text)):  # else it is damaged, and computed again
                    self._rows[condition.key, split] = _rows(str(text), parts / _name(condition.key, split))

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """A disk that is full, with the directory that is on it."""
        try:
            yield
        except OSError as error:
            raise OSError(error.errno, error.strerror or str(error), str(self.directory)) from error

    def _record(self, table: pd.DataFrame) -> RunRecord:
        failed = table.loc[(table["message"] != "") & (table["status"] != "converged"), ["status", "message"]]
        return RunRecord(
            command="evaluate",
            data=self.data,
            parameters=asdict(self.protocol),
            result={
                "status": "done",
                "rows": len(table),
                "rows_not_converged": len(failed),
                "message": "" if failed.empty else str(failed["message"].iloc[0]),
                "conditions": [condition.label for condition in self.conditions],
                "replicates": self._replicates(),
                "notes": self.noted,
                "splits_from_earlier_runs": self.resumed,
            },
            warnings=self.warned,
            versions=versions(),
            seed=self.protocol.random_state,
            seconds=round(time.monotonic() - self._begun, 3),
            started=self._started.isoformat(timespec="seconds"),
            files=FILES,
        )

    def _replicates(self) -> list[list[str]] | None:
        """For each condition, the replicates that its splits leave out, in their order; None for random splits."""
        if self.protocol.replicate is None:
            return None
        return [[of.splits.replicate(k) for k in range(len(of.splits))] for of in self.conditions]


def _name(condition: str, split: int) -> str:
    """A file name for a condition, whatever its groups are called."""
    return f"{_sha256(condition)[:16]}-{split:03d}.json"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()


def _rows(text: str, path: Path) -> list[Row]:
    """The rows of a split as `put` keeps them; their digest is no secret, so that they may still be anything."""
    try:
        rows = json.loads(text)
        sound = isinstance(rows, list) and all(row.keys() >= NEEDED and all(map(_fits, row.items())) for row in rows)
    except (ValueError, RecursionError, AttributeError):
        sound = False
    if not sound:
        raise InputError(f"out must be empty or hold this evaluation; {str(path)!r} is damaged: remove it")
    return cast(list[Row], rows)


def _fits(entry: tuple[str, Any]) -> bool:
    """Whether a text is in a column of texts, a number that a float can hold in any other."""
    name, value = entry
    if name in TEXTS or value is None:
        return isinstance(value, str | None)
    return isinstance(value, int | float) and not abs(value) > 1e308


def _read(path: Path) -> dict[str, Any]:
    """A file of an earlier run; one that cannot be read counts as not there."""
    try:
        found = json.loads(read_plain(path, LARGEST))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
