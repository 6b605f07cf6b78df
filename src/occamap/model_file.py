"""One file for a fitted map: a ZIP archive of `.npy` arrays and a `meta.json`, never pickled, never compressed.

Members are stored as they are, so that a file is as large as what it holds and cannot unpack to more. Each has
its SHA-256 in the manifest of `meta.json`; the format is described in docs/model-file.md. `numpy.load` opens it.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import platform
import re
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from occamap._files import replacing
from occamap._record import read_json
from occamap._version import __version__
from occamap.errors import InputError, MemoryBudgetError, ModelFileError, one_line

FORMAT = "occamap-map"
VERSION = 2
READABLE = (1, 2)  # 1: of occamap 0.1, without neighbourhoods and coordinates of a match
META = "meta.json"
_LARGEST_META = 2**26
_LARGEST_DIRECTORY = 2**17  # bytes of the archive's own directory: a file has some ten members
_MAGIC = b"\x93NUMPY\x01\x00"
_HEADER = re.compile(
    rb"\{'descr': '(<[fi][48])', 'fortran_order': False, 'shape': \((?:(\d{1,18}),(?: (\d{1,18}))?)?\),? ?\} *\n"
)

Arrays = dict[str, NDArray[Any]]
Meta = dict[str, Any]
T = TypeVar("T")


def write(path: str | os.PathLike[str], meta: Meta, arrays: Arrays) -> None:
    """Write the file; it appears whole or not at all."""
    target = Path(path)
    if target.is_dir():
        raise InputError(f"path must name a file; {str(target)!r} is a directory")
    if not target.parent.is_dir():
        raise InputError(f"path must be in a directory that exists; {str(target.parent)!r} does not")
    header = {
        "format": FORMAT,
        "version": VERSION,
        "versions": {"occamap": __version__, "numpy": np.__version__, "python": platform.python_version()},
    }
    with replacing(target) as stream:
        _write(stream, {**header, **meta}, arrays)


def read(path: str | os.PathLike[str], build: Callable[[Meta, Arrays], T]) -> T:
    """What `build` makes of the file's meta data and arrays, which may be hostile until it has checked them.

    Raises `ModelFileError` for a file that is truncated, altered, of a later version, or something else.
    """
    name = str(path)
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe would be waited for, a device never ends
            raise ModelFileError(f"{name!r} is not a model file: it is {_kind(path)}")
        with _Bounded(path) as stream, zipfile.ZipFile(stream) as archive:
            stream.most = stream.size
            meta, arrays = _read(archive, stream.size, name)
        try:
            return build(meta, arrays)
        except (ModelFileError, MemoryBudgetError) as error:
            raise type(error)(f"{name!r} cannot be used: {error}") from error
    except (ModelFileError, MemoryBudgetError):
        raise
    except MemoryError as error:
        what = "it is too large, or it is damaged and claims to be"
        raise MemoryBudgetError(f"{name!r} does not fit in the memory that is left: {what}") from error
    except zipfile.BadZipFile as error:
        what = "is damaged" if "CRC" in str(error) else "is not a model file, or it is truncated"
        raise ModelFileError(f"{name!r} {what}: {_told(error)}") from error
    except OSError as error:
        if error.filename is not None:  # not there, not readable: not the file's fault
            raise
        raise ModelFileError(f"{name!r} is damaged: {_told(error)}") from error
    except Exception as error:  # whatever a hostile file makes the parsers raise
        raise ModelFileError(f"{name!r} is damaged: {type(error).__name__}: {_told(error)}") from error


class _Bounded(io.FileIO):
    """A file that gives no more than is there, and at most `most` bytes at a time, whatever it says of its sizes."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(os.fspath(path))
        self.size, self.most = os.fstat(self.fileno()).st_size, _LARGEST_DIRECTORY

    def read(self, size: int | None = -1, /) -> bytes:
        left = max(0, self.size - self.tell())
        wanted = left if size is None or size < 0 else min(size, left)
        if wanted > self.most:
            raise zipfile.BadZipFile(f"its directory has more than {self.most:,} bytes")
        return super().read(wanted) or b""


def _kind(path: str | os.PathLike[str]) -> str:
    return "a directory" if os.path.isdir(path) else "no plain file"


def _told(error: Exception) -> str:
    """What another's error says, in one line that a terminal can show, whatever of the file is quoted in it."""
    text = one_line(error)
    return text if text.isprintable() else repr(text)[1:-1]


def _write(stream: Any, meta: dict[str, Any], arrays: Arrays) -> None:
    manifest = {}
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for key, array in arrays.items():
            member = io.BytesIO()
            little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
            np.lib.format.write_array(member, little, version=(1, 0), allow_pickle=False)
            view = member.getbuffer()
            manifest[f"{key}.npy"] = hashlib.sha256(view).hexdigest()
            archive.writestr(zipfile.ZipInfo(f"{key}.npy"), bytes(view))
        text = json.dumps({**meta, "manifest": manifest}, allow_nan=False, indent=1)
        archive.writestr(zipfile.ZipInfo(META), text)


def _read(archive: zipfile.ZipFile, size: int, name: str) -> tuple[Meta, Arrays]:
    members = {info.filename: info for info in archive.infolist()}
    if META not in members or len(members) != len(archive.infolist()):
        raise ModelFileError(f"{name!r} is not a model file: it has no single {META}")
    stored = all(
        info.compress_type == zipfile.ZIP_STORED and info.compress_size == info.file_size for info in members.values()
    )
    if not stored or sum(info.file_size for info in members.values()) > size:
        raise ModelFileError(f"{name!r} is damaged: its members are not stored plainly within the file")
    if members[META].file_size > _LARGEST_META:
        raise ModelFileError(f"{name!r} is damaged: {META} has {members[META].file_size} bytes")
    meta = read_json(archive.read(META))
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise ModelFileError(f"{name!r} is not a model file: its format is not {FORMAT!r}")
    if meta.get("version") not in READABLE or isinstance(meta.get("version"), bool):
        versions = meta.get("versions")
        wrote = str(versions.get("occamap", "unknown") if isinstance(versions, dict) else "unknown")[:40]
        raise ModelFileError(
            f"{name!r} has format version {repr(meta.get('version'))[:40]}, written by occamap "
            f"{wrote if wrote.isprintable() else repr(wrote)}; this occamap "
            f"{__version__} reads versions up to {VERSION}: upgrade occamap, or save the map again with this one"
        )
    manifest = meta["manifest"]
    if not isinstance(manifest, dict) or set(manifest) != set(members) - {META}:
        raise ModelFileError(f"{name!r} is damaged: its members are not those of its manifest")
    arrays = {}
    for member, digest in manifest.items():
        content = archive.read(member)
        if hashlib.sha256(content).hexdigest() != digest:
            raise ModelFileError(f"{name!r} was altered: {member[:40]!r} does not match its checksum")
        array = _array(content)
        if array is None:
            raise ModelFileError(f"{name!r} is damaged: {member[:40]!r} does not hold the array that it promises")
        arrays[member.removesuffix(".npy")] = array
    return meta, arrays


def _array(content: bytes) -> NDArray[Any] | None:
    """An array from the bytes of a .npy file, if there is what its header says; nothing in the header is evaluated."""
    start = len(_MAGIC) + 2
    end = start + int.from_bytes(content[len(_MAGIC) : start], "little")
    header = _HEADER.fullmatch(content, start, end)
    if not content.startswith(_MAGIC) or header is None or end > len(content):
        return None
    dtype = np.dtype(header[1].decode())
    shape = tuple(int(length) for length in header.groups()[1:] if length is not None)
    data = memoryview(content)[end:]
    if dtype.itemsize * math.prod(shape) != len(data):
        return None
    array: NDArray[Any] = np.frombuffer(data, dtype=dtype).reshape(shape)
    return array.astype(dtype.newbyteorder("="))  # a copy that may be written to, as the kernels are compiled for
