"""What an evaluation has computed, kept at once: a file a split while it runs, one table and a record at the end."""

from __future__ import annotations

import hashlib
import json
import time
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from occamap._files import check_directory, replacing, replacing_path
from occamap._record import plain, versions
from occamap.errors import InputError
from occamap.evaluation.protocol import Protocol
from occamap.evaluation.scores import Row
from occamap.run_record import NAME, DataFile, RunRecord

TABLE, CSV, PARTS, STATE = "evaluation.parquet", "evaluation.csv", "parts", "protocol.json"
FILES = {"table": TABLE, "csv": CSV, "record": NAME}


class Store:
    """Rows by condition and split, in memory or, if `out` is given, in a directory.

    A directory belongs to one protocol on one set of data; to any other it is closed. `parts/` has a file a split, each
    whole or not there, and `parts/protocol.json` says whose they are.
    """

    def __init__(self, out: Any, protocol: Protocol, data: DataFile, labels: list[str]) -> None:
        self.protocol, self.data, self.labels = protocol, data, labels
        self.key = protocol.fingerprint(data.sha256)
        self.directory = None if out is None else check_directory(out, [TABLE, CSV, NAME])
        self._rows: dict[tuple[str, int], list[Row]] = {}
        self._started, self._begun = datetime.now(UTC), time.monotonic()
        if self.directory is not None:
            self._open(self.directory)
        self.resumed = len(self._rows)

    def has(self, label: str, split: int) -> bool:
        """Whether the rows of a split are there."""
        return (label, split) in self._rows

    def put(self, label: str, split: int, rows: list[Row]) -> None:
        """Keep the rows of a split."""
        text = json.dumps({"key": self.key, "label": label, "split": split, "rows": plain(rows)})
        if self.directory is not None:
            with replacing(self.directory / PARTS / _name(label, split)) as stream:
                stream.write(text.encode())
        self._rows[label, split] = json.loads(text)["rows"]  # what a later run would read

    def finish(self) -> pd.DataFrame:
        """The table of all rows, in the order of the conditions; table and record are written."""
        rows = [
            row for label in self.labels for split in range(self.protocol.splits) for row in self._rows[label, split]
        ]
        table = pd.DataFrame(rows)
        if self.directory is not None:
            with ExitStack() as together:
                parquet, csv = (together.enter_context(replacing(self.directory / name)) for name in (TABLE, CSV))
                table.to_parquet(parquet, index=False)
                csv.write(table.to_csv(index=False).encode(errors="backslashreplace"))
            with replacing_path(self.directory / NAME) as part:  # last: it says that the table is there
                self._record(table).write(part)
        return table

    def _open(self, directory: Path) -> None:
        parts = directory / PARTS
        if (directory / NAME).exists() and not (parts / STATE).exists():
            raise InputError(f"out must be empty or hold this evaluation; {str(directory)!r} holds another run")
        parts.mkdir(exist_ok=True)
        asked = plain(asdict(self.protocol))
        if (parts / STATE).exists():
            known = _read(parts / STATE)
            if known.get("key") != self.key:
                theirs = known.get("parameters", {})
                other = [name for name in asked if asked[name] != theirs.get(name)]
                raise InputError(
                    f"out must be empty or hold this evaluation; {str(directory)!r} holds one of other "
                    f"{', '.join(other) or 'data'}: take another directory"
                )
        else:
            with replacing(parts / STATE) as stream:
                stream.write(json.dumps({"key": self.key, "parameters": asked}, indent=2).encode())
        for label in self.labels:
            for split in range(self.protocol.splits):
                known = _read(parts / _name(label, split))
                if known.get("key") == self.key and known.get("label") == label and known.get("split") == split:
                    self._rows[label, split] = known["rows"]

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
                "conditions": self.labels,
                "splits_from_earlier_runs": self.resumed,
            },
            warnings=(),
            versions=versions(),
            seed=self.protocol.random_state,
            seconds=round(time.monotonic() - self._begun, 3),
            started=self._started.isoformat(timespec="seconds"),
            files=FILES,
        )


def _name(label: str, split: int) -> str:
    """A file name for a condition, whatever its groups are called."""
    return f"{hashlib.sha256(label.encode(errors='backslashreplace')).hexdigest()[:16]}-{split:03d}.json"


def _read(path: Path) -> dict[str, Any]:
    """A file of an earlier run; one that cannot be read counts as not there."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
