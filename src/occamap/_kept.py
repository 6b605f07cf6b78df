"""Pieces of a run that is under way: the same run, started again after an interruption, takes them from its directory.

What computes them asks `kept()` for those that are there. A piece is a line of JSON and, where there are many numbers,
their bytes; it belongs to a run by the digest of all that the run was asked, and of its data.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from occamap._files import clear_parts, read_plain, replacing
from occamap._record import plain
from occamap.errors import InputError

NAME = ".occamap-kept"
LARGEST = 2**24  # bytes of what a piece says beside its numbers

Floats = NDArray[np.float64]
Piece = tuple[dict[str, Any], Floats | None]


class Kept:
    """The pieces of one run, in a folder that is there while there are any."""

    def __init__(self, folder: Path, asked: dict[str, Any]) -> None:
        self.folder = folder
        self.key = hashlib.sha256(json.dumps(plain(asked), sort_keys=True).encode()).hexdigest()
        self.found = 0
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise InputError(f"out must have room for a folder {folder.name!r}; what is there is none: remove it")
        self._clear(others=True)

    def get(self, name: str, numbers: int = 0) -> Piece | None:
        """A piece with at most so many numbers, or None where there is none; one that is damaged counts as none."""
        try:
            head, _, content = read_plain(self._path(name), LARGEST + 8 * numbers).partition(b"\n")
            said = json.loads(head)
            about, shape = said["about"], said["shape"]
            if said["sha256"] != self._digest(name, about, shape, content) or not isinstance(about, dict):
                return None
            found = None if shape is None else np.frombuffer(content, dtype="<f8").reshape(shape).astype(np.float64)
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return None
        self.found += 1
        return about, found

    def put(self, name: str, about: dict[str, Any], numbers: Floats | None = None) -> None:
        """Keep a piece; `about` is ready for JSON."""
        shape = None if numbers is None else list(numbers.shape)
        content = b"" if numbers is None else np.ascontiguousarray(numbers, dtype="<f8").tobytes()
        about = json.loads(json.dumps(about))  # as it will be read
        said = {"sha256": self._digest(name, about, shape, content), "shape": shape, "about": about}
        self.folder.mkdir(exist_ok=True)
        with replacing(self._path(name)) as stream:
            stream.write(json.dumps(said).encode() + b"\n" + content)

    def names(self) -> list[str]:
        """Of the pieces that are there."""
        return sorted(name for name in self._listed() if name.startswith(self.key[:16]))

    def clear(self) -> None:
        """Take all pieces away: the run is done."""
        self._clear(others=False)

    def _clear(self, others: bool) -> None:
        clear_parts(self.folder)
        for name in self._listed():
            path, mine = self.folder / name, others and name.startswith(self.key[:16])
            if name.endswith(".piece") and path.is_dir() and not path.is_symlink():
                raise InputError(f"out must have room for a file {str(path)!r}, which is a directory: remove it")
            if name.endswith(".piece") and not (mine and path.is_file() and not path.is_symlink()):
                path.unlink(missing_ok=True)
        with suppress(OSError):  # there is none, or something in it that is not ours
            self.folder.rmdir()

    def _listed(self) -> list[str]:
        with suppress(OSError):
            return os.listdir(self.folder)
        return []

    def _path(self, name: str) -> Path:
        return self.folder / f"{self.key[:16]}-{name}.piece"

    def _digest(self, name: str, about: Any, shape: Any, content: bytes) -> str:
        head = json.dumps([self.key, name, about, shape], sort_keys=True).encode()
        return hashlib.sha256(head + b"\n" + content).hexdigest()


_current: ContextVar[Kept | None] = ContextVar("kept", default=None)


def kept() -> Kept | None:
    """The pieces of the run that this is part of, if it is one that keeps them."""
    return _current.get()


@contextmanager
def keeping(directory: Path, asked: dict[str, Any]) -> Iterator[Kept]:
    """Within, pieces are kept in the directory; when all went well they are taken away, else the error says so."""
    pieces = Kept(directory / NAME, asked)
    token = _current.set(pieces)
    try:
        yield pieces
        pieces.clear()
    except BaseException as error:
        if pieces.names():
            error.add_note(going_on(directory))
        raise
    finally:
        _current.reset(token)


def going_on(directory: Path) -> str:
    """What an error says of a run that can go on."""
    return f"what is done is kept in {str(directory)!r}, and the same command goes on from there"
