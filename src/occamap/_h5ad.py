"""Cells from and to .h5ad files: any failure is one sentence, and a file that is written is whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from occamap._files import replacing_path
from occamap._optional import optional
from occamap._sink import Sink
from occamap.errors import InputError, OccamapError


def check_file(path: str | os.PathLike[str], name: str, what: str = "an .h5ad file") -> Path:
    """The path of a file that can be opened."""
    rule = f"{name} must be {what}"
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise InputError(f"{rule}; got {path!r}")
    found = Path(path)
    try:
        if found.is_dir():
            raise InputError(f"{rule}; {str(path)!r} is a directory")
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
    """While an AnnData from this file is in use: a backed one is closed in the end, and what it meets is told."""
    try:
        yield
    except OccamapError:
        raise
    except (OSError, TypeError, ValueError, KeyError, AttributeError, RuntimeError) as error:
        ours = isinstance(error, OSError) and error.filename is not None
        if adata.isbacked and not ours:  # HDF5's, from numbers that are read as they are needed
            raise InputError(_damaged(path, name, error)) from error
        raise
    finally:
        if adata.isbacked:
            adata.file.close()


def read(path: str | os.PathLike[str], name: str = "data", *, backed: bool = False) -> Any:
    """The AnnData in the file, or an `InputError` that says what is wrong with it.

    `backed` leaves the numbers in the file until they are asked for.
    """
    found = check_file(path, name)
    anndata, h5py = (optional(module, "reading .h5ad files") for module in ("anndata", "h5py"))
    if not h5py.is_hdf5(found):
        raise InputError(f"{name} must be an .h5ad file; {str(path)!r} is none (it is no HDF5 file)")
    try:
        with h5py.File(found, "r") as file:
            absent = [part for part in ("obs", "var") if part not in file]
            backed = backed and "X" in file  # else there is nothing to leave there
        if absent:
            raise InputError(f"{name} must be an .h5ad file; {str(path)!r} is HDF5, but has no {absent[0]}")
        return anndata.read_h5ad(found, backed="r" if backed else None)
    except (OccamapError, MemoryError):
        raise
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
                raise OccamapError(f"the cells cannot be written as .h5ad: {_line(error)}") from error
        finally:
            sink.stop()  # objects of HDF5 that are left, in a traceback, write once more when they are collected
        if sink.error is not None:
            raise sink.error


def _damaged(path: str | os.PathLike[str], name: str, error: Exception) -> str:
    return f"{name} must be a whole .h5ad file; {str(path)!r} is damaged or truncated: {_line(error)}"


def _line(error: Exception) -> str:
    """What it says, in one line."""
    return (" ".join(str(error).split()) or type(error).__name__)[:300]
