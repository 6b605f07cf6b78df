"""Files that appear whole or not at all."""

from __future__ import annotations

import csv
import errno
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from occamap._locks import can_lock, is_free
from occamap.errors import InputError

SUFFIX = ".occamap-part"  # of files that are being written; locked, unless the process that did has ended


def check_directory(out: Any, names: Iterable[str] = ()) -> Path:
    """The directory `out`, made if need be, writable, with room for files of these names; or an `InputError`."""
    if not isinstance(out, str | os.PathLike) or not os.fspath(out):
        raise InputError(f"out must name a directory; got {out!r}")
    directory = Path(out)
    check_writable(directory, out, "a directory that can be written to")
    clear_parts(directory)
    for name in names:
        if (directory / name).is_dir():
            raise InputError(f"out must have room for a file {name!r}, which is a directory in {str(out)!r}")
        if not (directory / name).is_symlink():  # which is replaced, and not followed
            check_plain(directory / name)
    return directory


def check_target(out: str | os.PathLike[str], *kept: str | os.PathLike[str]) -> Path:
    """The path of one file that can be written, and that is none of those to be kept."""
    if not isinstance(out, str | os.PathLike) or not os.fspath(out):
        raise InputError(f"out must name a file; got {out!r}")
    target = Path(out)
    if "\0" in str(out) or target.is_dir():
        raise InputError(f"out must name a file; {str(out)!r} is none")
    for path in kept:
        if same_file(target, Path(path)):
            raise InputError(f"out must be another file than {str(path)!r}, which would be overwritten")
        check_outside(target.parent, path)
    if not target.parent.is_dir():
        raise InputError(f"out must be in a directory that exists; {str(target.parent)!r} does not")
    check_writable(target.parent, out)
    check_plain(target)
    return target


def check_plain(path: Path) -> None:
    """Raise where something is in the way that is no plain file: a device, a pipe, a link."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise InputError(f"out must be where plain files can be written; {str(path)!r} is a link or a device")


def check_writable(directory: Path, out: Any, what: str = "where files can be written") -> None:
    """Make the directory if need be, and raise unless files can be written there; `out` is what was asked for."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"out must be {what}; {str(out)!r}: {why}") from error


def same_file(one: Path, other: Path) -> bool:
    """Whether both are there, and one and the same."""
    try:
        return one.samefile(other)
    except (OSError, ValueError):
        return False


def check_outside(directory: Path, kept: str | os.PathLike[str]) -> None:
    """Raise where a directory to write to is `kept`, or within it: data may be one, such as a Zarr store."""
    folders = directory, *directory.absolute().parents
    if Path(kept).is_dir() and any(same_file(folder, Path(kept)) for folder in folders):
        raise InputError(f"out must not be where the data are: {str(kept)!r} is a directory that holds nothing else")


def read_plain(path: Path, most: int) -> bytes:
    """A plain file of at most so many bytes, or an `OSError`: a pipe would be waited for, a device never ends."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(handle, "rb") as stream:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode) or about.st_size > most:
            raise OSError(errno.EINVAL, "no plain file of the size that it should have", str(path))
        return stream.read(most)


@contextmanager
def replacing(target: Path) -> Iterator[IO[bytes]]:
    """A stream to write to, whose content takes the name `target` when all of it is on the disk."""
    if target.name.endswith(SUFFIX):  # a name from `replacing_paths`, which is not a final one
        with target.open("wb") as stream:
            yield stream
        return
    with replacing_paths([target]) as [part], part.open("wb") as stream:
        yield stream


@contextmanager
def replacing_paths(targets: Sequence[Path]) -> Iterator[list[Path]]:
    """Paths to write to; the files take the names `targets`, one after the other, when all of them are on the disk."""
    parts: list[Path] = []
    handles: list[int] = []
    try:
        for target in targets:
            handle, part = _part(target)
            handles.append(handle)
            parts.append(part)
        yield parts
        for part in parts:
            _sync(part)
            _open_up(part)
        for part, target in zip(parts, targets, strict=True):
            os.replace(part, target)
        for folder in {target.parent for target in targets}:
            _sync_folder(folder)
    except BaseException:
        for part in parts:
            part.unlink(missing_ok=True)
        raise
    finally:
        for handle in handles:
            os.close(handle)


def clear_parts(directory: Path, of: str = "") -> None:
    """Remove what processes that were killed had begun to write, for all targets or the one of this name."""
    if not can_lock():  # then nothing tells them from those that are being written
        return
    beginning = _beginning(of) if of else "."
    with suppress(OSError), os.scandir(directory) as entries:
        found = [entry.path for entry in entries if entry.name.endswith(SUFFIX) and entry.name.startswith(beginning)]
        for path in found:
            with suppress(OSError):
                _clear(path)


def _clear(path: str) -> None:
    handle = os.open(path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    try:
        if is_free(handle):
            os.unlink(path)
    finally:
        os.close(handle)


@contextmanager
def replacing_path(target: Path) -> Iterator[Path]:
    """As `replacing`, for writers that want a path."""
    with replacing_paths([target]) as [part]:
        yield part


def put_table(table: Any, path: Path, index: bool) -> None:
    """A data frame as CSV; names with a carriage return, which the writer takes for plain text, are quoted."""
    text = table.to_csv(index=index)
    if "\r" in text:
        text = table.to_csv(index=index, quoting=csv.QUOTE_NONNUMERIC)
    path.write_bytes(text.encode(errors="backslashreplace"))


def _part(target: Path) -> tuple[int, Path]:
    """A new file beside the target, locked as long as the handle is open."""
    clear_parts(target.parent, target.name)
    while True:
        handle, name = tempfile.mkstemp(prefix=_beginning(target.name), suffix=SUFFIX, dir=target.parent)
        try:
            is_free(handle, wait=True)
            if os.fstat(handle).st_nlink:
                return handle, Path(name)
        except BaseException:
            os.close(handle)
            Path(name).unlink(missing_ok=True)
            raise
        os.close(handle)  # another process cleared it away before it was locked


def _beginning(name: str) -> str:
    """Of the names of files that are being written for a target: short enough for any file system."""
    return f".{name[:50]}."


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync_folder(path: Path) -> None:
    """So that new names outlast a power cut, where the system can do that."""
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _open_up(path: str | Path) -> None:
    """The permissions of any new file, instead of those of a temporary one."""
    umask = os.umask(0)
    os.umask(umask)
    os.chmod(path, 0o666 & ~umask)
