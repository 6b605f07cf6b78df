"""One file for a fitted map: a ZIP archive of `.npy` arrays and a `meta.json`, never pickled, never compressed.

Members are stored as they are, so that a file is as large as what it holds and cannot unpack to more. Each has
its SHA-256 in the manifest of `meta.json`; the format is described in docs/model-file.md. `numpy.load` opens it.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from occamap._files import replacing
from occamap._version import __version__
from occamap.errors import InputError, ModelFileError

FORMAT = "occamap-map"
VERSION = 1
META = "meta.json"
DTYPES = ("<f8", "<f4", "<i8", "<i4")
_LARGEST_META = 2**26

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
        size = os.path.getsize(path)
        with zipfile.ZipFile(path) as archive:
            return build(*_read(archive, size, name))
    except (ModelFileError, MemoryError):
        raise
    except zipfile.BadZipFile as error:
        what = "is damaged" if "CRC" in str(error) else "is not a model file, or it is truncated"
        raise ModelFileError(f"{name!r} {what}: {error}") from error
    except OSError as error:
        if error.filename is not None:  # not there, not readable: not the file's fault
            raise
        raise ModelFileError(f"{name!r} is damaged: {error}") from error
    except Exception as error:  # whatever a hostile file makes the parsers raise
        raise ModelFileError(f"{name!r} is damaged: {type(error).__name__}: {error}") from error


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
    stored = all(info.compress_type == zipfile.ZIP_STORED for info in members.values())
    if not stored or sum(info.file_size for info in members.values()) > size:
        raise ModelFileError(f"{name!r} is damaged: its members are not stored plainly within the file")
    if members[META].file_size > _LARGEST_META:
        raise ModelFileError(f"{name!r} is damaged: {META} has {members[META].file_size} bytes")
    meta = json.loads(archive.read(META))
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise ModelFileError(f"{name!r} is not a model file: its format is not {FORMAT!r}")
    if meta.get("version") != VERSION:
        wrote = meta.get("versions", {}).get("occamap", "unknown")
        raise ModelFileError(
            f"{name!r} has format version {meta.get('version')!r}, written by occamap {wrote}; this occamap "
            f"{__version__} reads version {VERSION}: upgrade occamap, or save the map again with this one"
        )
    manifest = meta["manifest"]
    if set(manifest) != set(members) - {META}:
        raise ModelFileError(f"{name!r} is damaged: its members are not those of its manifest")
    arrays = {}
    for member, digest in manifest.items():
        content = archive.read(member)
        if hashlib.sha256(content).hexdigest() != digest:
            raise ModelFileError(f"{name!r} was altered: {member} does not match its checksum")
        arrays[member.removesuffix(".npy")] = _array(content, member)
    return meta, arrays


def _array(content: bytes, member: str) -> NDArray[Any]:
    """An array from the bytes of a .npy file, its header checked against what is there before memory is taken."""
    stream = io.BytesIO(content)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ModelFileError(f"{member} has an unknown array format")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    data = memoryview(content)[stream.tell() :]
    if fortran or dtype.str not in DTYPES or dtype.itemsize * int(np.prod(shape, dtype=object)) != len(data):
        raise ModelFileError(f"{member} does not hold the array that its header promises")
    array: NDArray[Any] = np.frombuffer(data, dtype=dtype).reshape(shape)
    return array.astype(dtype.newbyteorder("="))  # a copy that may be written to, as the kernels are compiled for
