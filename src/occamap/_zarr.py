"""Zarr stores, in a directory or a .zip file: which paths hold one, and whether it is whole."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

from occamap._optional import optional

ROOTS = "zarr.json", ".zgroup", ".zmetadata"  # one of them is in the directory of a store
SPARSE = "csr_matrix", "csc_matrix"


def is_store(path: Path) -> bool:
    """Whether there is a directory, or a .zip file, that a store begins with."""
    return any((path / name).is_file() for name in ROOTS) if path.is_dir() else zipfile.is_zipfile(path)


def open_store(path: Path) -> Any:
    """The group of all that it holds; its `store` is to be closed in the end."""
    zarr, storage = optional("zarr", "reading Zarr stores"), optional("zarr.storage", "reading Zarr stores")
    return zarr.open_group(str(path) if path.is_dir() else storage.ZipStore(str(path), mode="r"), mode="r")


def lacking(group: Any) -> str | None:
    """What sparse matrices lack, in words: Zarr itself takes chunks that are not there for zeros.

    So it may leave out zeros when it writes; but more entries than there are rows are not all in the first column.
    """
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
