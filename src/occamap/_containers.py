"""What numbers come in and go back in: arrays, SciPy matrices, data frames and AnnData, none of these imported.

Matrices in files (datasets of h5py, arrays of Zarr, sparse ones of anndata) are read when they come in, and what is
computed goes back in memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from occamap import _backed
from occamap.errors import InputError

Names = NDArray[Any]


def unwrap(raw: Any, name: str) -> tuple[Any, Names | None]:
    """The numbers in the container, and the names of the features where it has them; a Dask collection is computed."""
    if not is_anndata(raw) and is_dask(raw):
        return unwrap(raw.compute(), name)
    if is_anndata(raw):
        names = np.asarray(raw.var_names, dtype=object)
        check_unique(names, f"var_names of {name}")
        return in_memory(raw.X, name), names
    if is_frame(raw):
        return _frame_values(raw, name), np.asarray(raw.columns, dtype=object)
    return (in_memory(raw, name) if _backed.is_backed(raw) else raw), None


def rewrap(values: NDArray[Any] | sp.csr_array, raw: Any, dtype: Any, sparse: bool) -> Any:
    """`values` (n, d) as `dtype` in the container `raw`; `sparse` says whether they are stored so there."""
    if is_anndata(raw):
        backed = not isinstance(raw.X, np.ndarray) and not sp.issparse(raw.X)
        like = (sp.csr_matrix((1, 1)) if sparse else np.empty(0)) if backed else raw.X
        return type(raw)(rewrap(values, like, dtype, sparse), obs=raw.obs.copy(), var=raw.var.copy())
    if _backed.is_backed(raw):
        return rewrap(values, sp.csr_matrix((1, 1)) if sparse else np.empty(0), dtype, sparse)
    if is_frame(raw) and sparse:
        return type(raw).sparse.from_spmatrix(sp.csr_array(values), index=raw.index, columns=raw.columns)
    if is_frame(raw):
        dense = values.toarray() if sp.issparse(values) else values
        return type(raw)(dense.astype(dtype, copy=False), index=raw.index, columns=raw.columns)
    if sp.issparse(raw):
        wanted: Any = raw.format  # type: ignore[attr-defined]
        matrix = sp.csr_array(values).astype(dtype, copy=False)
        matrix.eliminate_zeros()
        wrapped = matrix if isinstance(raw, sp.sparray) else sp.csr_matrix(matrix)
        return wrapped.asformat(wanted)
    dense = values.toarray() if sp.issparse(values) else values
    return dense.astype(dtype, copy=False)


def is_anndata(raw: Any) -> bool:
    """Whether raw is an AnnData, or close enough to one."""
    parts = "obs", "var_names", "X"
    return not hasattr(raw, "__dask_graph__") and all(hasattr(raw, part) for part in parts)


def is_dask(raw: Any) -> bool:
    """Whether raw is a Dask collection, or an AnnData of one."""
    return hasattr(raw.X if is_anndata(raw) else raw, "__dask_graph__")


def is_frame(raw: Any) -> bool:
    """Whether raw is a pandas data frame, or close enough to one."""
    return all(hasattr(raw, part) for part in ("columns", "index", "to_numpy"))


def in_memory(matrix: Any, name: str) -> Any:
    """A matrix as an array or a SciPy matrix, read from the file where it is backed by one, without a second copy."""
    if matrix is None:
        raise InputError(f"{name} must hold numbers; its X is None: name a layer")
    if isinstance(matrix, np.ndarray) or sp.issparse(matrix):
        return matrix
    if is_dask(matrix):
        return matrix.compute()
    if _backed.is_backed(matrix):
        return _backed.read(matrix, name)
    return matrix.to_memory() if hasattr(matrix, "to_memory") else matrix[:]


def check_compressed(matrix: Any) -> None:
    """Raise a `ValueError` where a matrix of SciPy leads elsewhere; its own check passes all that claim no entry.

    Row pointers that end at 0 may still lead anywhere before that.
    """
    matrix.check_format(full_check=True)
    if np.any(matrix.indptr[1:] < matrix.indptr[:-1]):
        raise ValueError("indptr values must form a non-decreasing sequence")


def check_unique(names: Names, what: str) -> None:
    """Raise where a name comes twice."""
    seen, counts = np.unique(names.astype(str), return_counts=True)
    twice = seen[counts > 1]
    if twice.size:
        listed = ", ".join(repr(str(name)) for name in twice[:3]) + (", …" if twice.size > 3 else "")
        raise InputError(
            f"{what} must be unique; {twice.size} {'comes' if twice.size == 1 else 'come'} more than once: {listed} "
            "(adata.var_names_make_unique() renames them)"
        )


def _is_sparse_frame(frame: Any) -> bool:
    """Whether all columns are sparse, with 0 for what they do not store."""
    return hasattr(frame, "sparse") and all(getattr(dtype, "fill_value", None) == 0 for dtype in frame.dtypes)


def _frame_values(frame: Any, name: str) -> Any:
    if _is_sparse_frame(frame):
        return frame.sparse.to_coo().tocsr()
    values: NDArray[Any] = frame.to_numpy()
    if values.dtype != object:
        return values
    for column, dtype in zip(frame.columns, frame.dtypes, strict=True):  # mixed types, or types that may be missing
        if getattr(dtype, "kind", "O") not in "fiub":
            raise InputError(f"{name} must have numeric columns only; column {column!r} is {dtype}")
    return np.asarray(frame.to_numpy(dtype=np.float64, na_value=np.nan))
