"""Cells from .h5ad and Zarr, and to .h5ad: any failure is one sentence, and a file that is written is whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import scipy.sparse as sp

from occamap import _zarr
from occamap._backed import is_backed
from occamap._containers import check_compressed
from occamap._files import replacing_path
from occamap._memory import available, format_size
from occamap._optional import optional
from occamap._sink import Sink
from occamap.errors import InputError, MemoryBudgetError, OccamapError, one_line

CELLS = "an .h5ad file or a Zarr store"
SMALL = 2**20  # bytes that nobody needs to ask for


def check_file(path: str | os.PathLike[str], name: str, what: str = CELLS) -> Path:
    """The path of a file that can be opened, or of the directory of a Zarr store where one may be given."""
    rule = f"{name} must be {what}"
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise InputError(f"{rule}; got {path!r}")
    found = Path(path)
    try:
        if found.is_dir():
            if what == CELLS and _zarr.is_store(found):
                return found
            lacks = f" without {' or '.join(_zarr.ROOTS[:2])}" if what == CELLS else ""
            raise InputError(f"{rule}; {str(path)!r} is a directory{lacks}")
        if found.exists() and not found.is_file():
            raise InputError(f"{rule}; {str(path)!r} is no plain file")
        with found.open("rb"):
            pass
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        why = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{rule}; {str(path)!r}: {why}") from error
    return found


@contextmanager
def using(adata: Any, path: str | os.PathLike[str], name: str = "data") -> Iterator[None]:
    """While an AnnData from this file is in use: the file is closed in the end, and what it meets is told."""
    kept = [getattr(matrix, "group", matrix) for matrix in (adata.X, *adata.layers.values()) if is_backed(matrix)]
    files = [part.file if hasattr(part, "file") else part.store for part in kept]
    try:
        yield
    except OccamapError:
        raise
    except (OSError, TypeError, ValueError, KeyError, AttributeError, RuntimeError) as error:
        ours = isinstance(error, OSError) and error.filename is not None
        if files and not ours:  # HDF5's or Zarr's, from numbers that are read as they are needed
            raise InputError(_damaged(path, name, error)) from error
        raise
    finally:
        if adata.isbacked:
            adata.file.close()
        for file in files:
            file.close()


def read(path: str | os.PathLike[str], name: str = "data", *, backed: bool = False) -> Any:
    """The AnnData in the file or store, or an `InputError` that says what is wrong with it.

    `backed` leaves X and the layers there until they are asked for; of the rest, obs, var and uns are read.
    """
    found = check_file(path, name)
    anndata, h5py = (optional(module, "reading files of cells") for module in ("anndata", "h5py"))
    is_hdf5 = found.is_file() and h5py.is_hdf5(found)
    if not is_hdf5 and not _zarr.is_store(found):
        raise InputError(f"{name} must be {CELLS}; {str(path)!r} is none (it is no HDF5 file)")
    try:
        if not is_hdf5:
            _zarr.check_safe(found)
        with ExitStack() as closing:
            group = h5py.File(found, "r") if is_hdf5 else _zarr.open_store(found)
            closing.callback((group if is_hdf5 else group.store).close)
            absent = [part for part in ("obs", "var") if part not in group]
            if absent:
                what = "HDF5" if is_hdf5 else "a Zarr store"
                raise InputError(f"{name} must be {CELLS}; {str(path)!r} is {what}, but has no {absent[0]}")
            _check_room(group, name, path, found, leave=backed)
            if not is_hdf5 and (lacking := _zarr.lacking(group)):
                raise InputError(_damaged(path, name, ValueError(lacking)))
            if backed and _is_recent(group) and (left := _leaving(group)) is not None:
                closing.pop_all()  # `using` closes it
                return left
            backed = backed and "X" in group  # else there is nothing to leave there
            if not is_hdf5:
                return _sound(anndata.read_zarr(str(found) if found.is_dir() else group.store))
        return _sound(anndata.read_h5ad(found, backed="r" if backed else None))
    except OccamapError:
        raise
    except MemoryError as error:
        raise MemoryBudgetError(_too_large(name, path)) from error
    except Exception as error:  # whatever a damaged file makes the readers raise
        raise InputError(_damaged(path, name, error)) from error


def write(adata: Any, path: Path) -> None:
    """Write the file; it appears whole or not at all."""
    try:
        with replacing_path(path) as part:
            put(adata, part)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def put(adata: Any, path: Path) -> None:
    """Write to a file that another name is meant for.

    HDF5 ends the process where it cannot write: so it gets a file that never fails, and what that met is raised when
    HDF5 is done. It works in a thread, where no interrupt can reach it.
    """
    h5py, io = optional("h5py", "writing .h5ad files"), optional("anndata.io", "writing .h5ad files")

    def work(sink: Sink) -> None:
        with h5py.File(sink, "w") as file:
            io.write_elem(file, "/", adata)
            for part in ("X", "raw"):  # as write_h5ad has it: what is not there has no entry
                if getattr(adata, part) is None and part in file:
                    del file[part]

    with path.open("w+b", buffering=0) as raw, ThreadPoolExecutor(1) as thread:
        sink = Sink(raw)
        try:
            thread.submit(work, sink).result()
        except MemoryError:
            raise
        except Exception as error:
            if sink.error is None:
                raise OccamapError(f"the cells cannot be written as .h5ad: {one_line(error)}") from error
        finally:
            sink.stop()  # objects of HDF5 that are left, in a traceback, write once more when they are collected
        if sink.error is not None:
            raise sink.error


def _is_recent(group: Any) -> bool:
    """Whether anndata can read it element by element; files from before 2020 are read by its older ways."""
    return all(group[part].attrs.get("encoding-type") == "dataframe" for part in ("obs", "var"))


def _leaving(group: Any) -> Any:
    """An AnnData whose X and layers stay in the file; None if none of them can."""
    anndata, io = (optional(module, "reading files of cells") for module in ("anndata", "anndata.io"))

    def matrix(element: Any) -> Any:
        kind = element.attrs.get("encoding-type", "array")
        if kind in _zarr.SPARSE:
            return io.sparse_dataset(element)
        return element if kind == "array" else io.read_elem(element)

    X = matrix(group["X"]) if "X" in group else None
    there = group.get("layers", {})
    layers = {layer: matrix(there[layer]) for layer in there}
    if not any(map(is_backed, (X, *layers.values()))):
        return None
    rest = {part: io.read_elem(group[part]) for part in ("obs", "var", "uns") if part in group}
    return anndata.AnnData(X, layers=layers, **rest)


def _check_room(group: Any, name: str, path: str | os.PathLike[str], found: Path, leave: bool) -> None:
    """Raise where the numbers that are to be read would not fit in memory, or are not there, however small the file."""
    sizes: dict[str, int] = {}

    def add(place: str, part: Any) -> None:
        sizes[place] = int(getattr(part, "nbytes", 0))
        if sizes[place] > SMALL and _is_unwritten(part):
            raise ValueError(f"{place} says it holds {sizes[place]:,} bytes, and nothing was written")

    if hasattr(group, "visititems") and not hasattr(group, "store"):
        group.visititems(add)
    else:
        _zarr.check_chunks(group, found)
        for place, part in _zarr.arrays(group):
            add(place, part)
    left_there = ("X", "layers/") if leave else ()
    need = sum(size for place, size in sizes.items() if not place.startswith(left_there))
    if need > SMALL and need > (left := available()):
        why = f" ({format_size(need)}, and {format_size(left)} are left)"
        raise MemoryBudgetError(_too_large(name, path, why))


def _is_unwritten(part: Any) -> bool:
    """Whether a dataset of HDF5 has no bytes in the file, nor in another."""
    return hasattr(part, "external") and not part.is_virtual and not part.external and part.id.get_storage_size() == 0


def _too_large(name: str, path: str | os.PathLike[str], why: str = "") -> str:
    return (
        f"{name} must fit in memory; the numbers that {str(path)!r} says it holds do not{why}: give max_memory, so "
        "that they are read by parts, unless the file is damaged"
    )


def _sound(adata: Any) -> Any:
    """The same cells; a `ValueError` where a sparse matrix leads elsewhere, which SciPy would follow."""
    aligned = [adata.layers, adata.obsm, adata.varm, adata.obsp, adata.varp]
    matrices = [None if adata.isbacked else adata.X, *(matrix for part in aligned for matrix in part.values())]
    for matrix in (*matrices, None if adata.raw is None or adata.isbacked else adata.raw.X):
        if sp.issparse(matrix) and hasattr(matrix, "check_format"):
            check_compressed(matrix)
    return adata


def _damaged(path: str | os.PathLike[str], name: str, error: Exception) -> str:
    what = "Zarr store" if _zarr.is_store(Path(path)) else ".h5ad file"
    return f"{name} must be a whole {what}; {str(path)!r} is damaged or truncated: {one_line(error)}"
