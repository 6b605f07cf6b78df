"""Zarr stores, in a directory or a .zip file: which paths hold one, and whether it is whole."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from occamap._optional import optional

ROOTS = "zarr.json", ".zgroup", ".zmetadata"  # one of them is in the directory of a store
SPARSE = "csr_matrix", "csc_matrix"
LARGEST = 2**26  # bytes of a file that describes others
BOMB, RATIO = 2**24, 200  # bytes of a file in an archive, from which on they may not be so many times those it takes
SPARED = 2**16  # chunks of zeros that may have been left out
DESCRIBED = *ROOTS, ".zarray"  # files that say how chunks are decoded
UNSAFE = "pickle"  # a codec of this name runs what chunks say; recent versions of numcodecs refuse to, others do not


def is_store(path: Path) -> bool:
    """Whether there is a directory, or a .zip file, that a store begins with."""
    return any((path / name).is_file() for name in ROOTS) if path.is_dir() else zipfile.is_zipfile(path)


def open_store(path: Path) -> Any:
    """The group of all that it holds; its `store` is to be closed in the end."""
    zarr, storage = optional("zarr", "reading Zarr stores"), optional("zarr.storage", "reading Zarr stores")
    return zarr.open_group(str(path) if path.is_dir() else storage.ZipStore(str(path), mode="r"), mode="r")


def check_safe(path: Path) -> None:
    """Raise a `ValueError` where reading would wait for ever, unpack without bound, or run code."""
    for name, content in _described(path):
        try:
            codecs = set(_codecs(json.loads(content)))
        except (ValueError, RecursionError):
            continue  # Zarr says what is wrong with it
        if any(UNSAFE in codec.lower() for codec in codecs):
            raise ValueError(f"{name} asks for a codec {UNSAFE!r}, which could run code")


def _described(path: Path) -> Iterator[tuple[str, bytes]]:
    """The files of a store that describe its arrays."""
    if not path.is_dir():
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if info.file_size > BOMB and info.file_size > RATIO * info.compress_size:
                    raise ValueError(f"{info.filename!r} unpacks to more than {RATIO} times its size")
                if info.filename.rpartition("/")[2] in DESCRIBED:
                    if info.file_size > LARGEST:
                        raise ValueError(f"{info.filename!r} has more than {LARGEST:,} bytes")
                    yield info.filename, archive.read(info)
        return
    for folder, _, names in os.walk(path):
        for name in names:
            file = Path(folder, name)
            if not file.is_file():
                raise ValueError(f"{str(file.relative_to(path))!r} is no plain file")
            if name in DESCRIBED:
                if file.stat().st_size > LARGEST:
                    raise ValueError(f"{str(file.relative_to(path))!r} has more than {LARGEST:,} bytes")
                yield str(file.relative_to(path)), file.read_bytes()


def arrays(group: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """All arrays in a group and the groups in it, by their places."""
    for name in group:
        part = group[name]
        if hasattr(part, "nchunks"):
            yield f"{place}{name}", part
        else:
            yield from arrays(part, f"{place}{name}/")


def check_chunks(group: Any, path: Path) -> None:
    """Raise a `ValueError` where an array says it has chunks by the million: Zarr would ask for each of them."""
    held = sum(len(names) for _, _, names in os.walk(path)) if path.is_dir() else _held(path)
    for place, array in arrays(group):
        if array.nchunks > held + SPARED:
            raise ValueError(f"{place} says it has {array.nchunks:,} chunks, and there are {held:,} files")


def _held(path: Path) -> int:
    with zipfile.ZipFile(path) as archive:
        return len(archive.infolist())


def _codecs(tree: Any, inside: bool = False) -> Iterator[str]:
    """The names of all codecs, wherever in the description they stand."""
    if isinstance(tree, list):
        for entry in tree:
            yield from _codecs(entry, inside)
    elif isinstance(tree, dict):
        for key, entry in tree.items():
            if inside and key in ("id", "name"):
                yield str(entry)
            yield from _codecs(entry, inside or key in ("filters", "compressor", "codecs"))
    elif inside:
        yield str(tree)


def _needed(group: Any) -> Iterator[tuple[str, Any]]:
    """Arrays of which some chunk must be there: a dense X that is not 0 throughout, labels of several categories."""
    if "X" in group and hasattr(group["X"], "nchunks"):
        yield "X", group["X"]
    for place, array in arrays(group["obs"], "obs/"):
        beside = f"{place.removesuffix('codes')}categories"
        if place.endswith("/codes") and beside in group and group[beside].shape[0] > 1:
            yield place, array


def lacking(group: Any) -> str | None:
    """What sparse matrices lack, in words: Zarr itself takes chunks that are not there for zeros.

    So it may leave out zeros when it writes; but more entries than there are rows are not all in the first column.
    """
    for part in ("obs", "var"):
        place = f"{part}/{group[part].attrs.get('_index', '_index')}"
        names: Any = group.get(place)
        if hasattr(names, "nchunks") and names.nchunks > names.nchunks_initialized:  # no name is an empty text
            return f"{names.nchunks - names.nchunks_initialized} of the {names.nchunks} chunks of {place} are absent"
    for place, array in _needed(group):
        if array.nchunks and not array.nchunks_initialized:
            return f"all {array.nchunks} chunks of {place} are absent"
    layers = group.get("layers", {})
    found = {"X": group["X"]} if "X" in group else {}
    for name, matrix in (found | {f"layers/{layer}": layers[layer] for layer in layers}).items():
        if matrix.attrs.get("encoding-type") not in SPARSE:
            continue
        if int(matrix["indptr"][-1]) != matrix["data"].shape[0]:
            return f"{name}/indptr does not count the entries of {name}/data: chunks of it may be absent"
        for part in ("indices", "data"):
            array = matrix[part]
            absent = array.nchunks - array.nchunks_initialized
            if absent > 0 and array.shape[0] >= matrix["indptr"].shape[0]:
                return f"{absent} of the {array.nchunks} chunks of {name}/{part} are absent"
    return None
