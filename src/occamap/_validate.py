"""The only gate: raw input → Samples. Every message names the argument, the rule and what it got."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from occamap._backed import is_backed
from occamap._containers import check_compressed, is_anndata, is_frame, rewrap, unwrap
from occamap.errors import FeatureMismatchError, InputError

LARGEST = 1e140  # its square, summed over all features, is still finite
PIECE = 2**16  # entries that are worked on at a time, where all would need as much memory again
SMALLEST = 1e-140  # the square of a difference in its last digit but one is not yet 0

DERIVED = ("columns", "_reduced")  # of Samples, each computed once


@dataclass(frozen=True)
class Samples:
    """Rows that passed the gate: C-contiguous dense, or CSR with sorted, unique indices; finite floats."""

    shape: tuple[int, int]
    data: NDArray[Any]  # (n, d) dense, or the stored entries
    indices: NDArray[np.int32] | None = None
    indptr: NDArray[np.int64] | None = None
    names: NDArray[Any] | None = None
    template: Any = None  # the raw input: results go back in its container
    strata: NDArray[np.int64] | None = None  # the group of each row, for maps that match within groups

    @property
    def is_sparse(self) -> bool:
        return self.indptr is not None

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.data.dtype

    def largest(self) -> float:
        """The largest magnitude."""
        return _largest(self.data)

    def astype(self, dtype: Any) -> Samples:
        return self if self.dtype == dtype else replace(self, data=self.data.astype(dtype))

    def csr(self) -> sp.csr_array:
        if self.indptr is not None and self.indices is not None:
            return as_csr(self.data, self.indices, self.indptr, self.shape)
        if self.data.size <= PIECE:
            return sp.csr_array(self.data)
        indptr = np.concatenate([[0], np.cumsum(np.count_nonzero(self.data, axis=1))])
        data, indices = np.empty(indptr[-1], self.dtype), np.empty(indptr[-1], np.int32)
        for rows, part in self.pieces():  # at once, SciPy would take several times as much memory
            stored, held = slice(indptr[rows.start], indptr[rows.stop]), part.data != 0
            data[stored], indices[stored] = part.data[held], np.nonzero(held)[1]
        return as_csr(data, indices, indptr, self.shape)

    def stored(self) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[Any]]:
        """indptr, indices and data of the rows as CSR."""
        if self.indptr is not None and self.indices is not None:
            return self.indptr, self.indices, self.data
        csr = self.csr()
        return csr.indptr.astype(np.int64, copy=False), csr.indices.astype(np.int32, copy=False), csr.data

    def dense(self) -> NDArray[Any]:
        return self.csr().toarray() if self.is_sparse else self.data

    def rows(self, start: int, stop: int) -> Samples:
        """Rows start:stop, without a copy."""
        strata = None if self.strata is None else self.strata[start:stop]
        part = replace(self, shape=(stop - start, self.shape[1]), strata=strata, template=None)
        if self.indptr is None or self.indices is None:
            return replace(part, data=self.data[start:stop])
        low, high = self.indptr[start], self.indptr[stop]
        indptr = self.indptr[start : stop + 1] - low
        return replace(part, data=self.data[low:high], indices=self.indices[low:high], indptr=indptr)

    def pieces(self) -> Iterator[tuple[slice, Samples]]:
        """All rows, some at a time: what is computed of all entries then takes little memory beside them."""
        step = max(1, PIECE * self.shape[0] // max(1, self.data.size))
        for start in range(0, self.shape[0], step):
            stop = min(start + step, self.shape[0])
            yield slice(start, stop), self.rows(start, stop)

    def take(self, rows: NDArray[np.int64]) -> Samples:
        """These rows, in this order, in arrays of their own."""
        strata = None if self.strata is None else self.strata[rows]
        part = replace(self, shape=(rows.size, self.shape[1]), strata=strata, template=None)
        if self.indptr is None or self.indices is None:
            return replace(part, data=self.data[rows])
        starts, counts = self.indptr[rows], np.diff(self.indptr)[rows]
        indptr = np.concatenate([[0], np.cumsum(counts)])
        entries = np.arange(indptr[-1]) + np.repeat(starts - indptr[:-1], counts)
        return replace(part, data=self.data[entries], indices=self.indices[entries], indptr=indptr)

    @cached_property
    def columns(self) -> tuple[NDArray[np.int64], NDArray[np.int32] | None, NDArray[Any]]:
        """Where each column begins, the rows it stores (None: all of them) and its entries."""
        n, d = self.shape
        if not self.is_sparse:
            return np.arange(d + 1, dtype=np.int64) * n, None, np.ascontiguousarray(self.data.T).ravel()
        csc = self.csr().tocsc()
        return csc.indptr.astype(np.int64), csc.indices.astype(np.int32, copy=False), csc.data

    def equals(self, other: Samples) -> bool:
        """Whether the other has the same rows, in the same order and layout."""
        if self.shape != other.shape or self.is_sparse != other.is_sparse:
            return False
        parts = ((self.indptr, other.indptr), (self.indices, other.indices), (self.data, other.data))
        return all(a is b or np.array_equal(a, b) for a, b in parts)  # type: ignore[arg-type]

    def release(self) -> None:
        """Free what was derived and kept; it is made again when it is needed."""
        for name in DERIVED:
            self.__dict__.pop(name, None)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in DERIVED}

    def __sizeof__(self) -> int:
        """Bytes of the arrays, so that a cluster knows what it would cost to move them."""
        arrays = (self.data, self.indices, self.indptr)
        return sum(int(array.nbytes) for array in arrays if array is not None)

    def borrowed(self) -> dict[str, NDArray[Any]]:
        """The arrays, by attribute, that the caller of the gate could still write to."""
        raw = self.template.X if is_anndata(self.template) else self.template
        if is_backed(raw):  # what was read from a file is nobody else's
            return {}
        mine = {"data": self.data, "indices": self.indices, "indptr": self.indptr}
        theirs = [raw] if is_frame(raw) else [raw, *(getattr(raw, name, None) for name in mine)]
        held = {name: array for name, array in mine.items() if array is not None and _is_writable(array)}
        return {
            name: array
            for name, array in held.items()
            if not array.flags.owndata or any(array is part for part in theirs)
        }

    def owned(self) -> Samples:
        """The same samples, in arrays that nobody else writes to."""
        copies: dict[str, Any] = {name: array.copy() for name, array in self.borrowed().items()}
        return replace(self, template=None, **copies)

    def without(self, features: NDArray[np.bool_]) -> Samples:
        """The same samples with these features at 0; asked again, the same object."""
        if not features.any():
            return self
        key = features.tobytes()
        if key not in self._reduced:
            self._reduced.clear()
            self._reduced[key] = self._zeroed(features)
        return self._reduced[key]

    @cached_property
    def _reduced(self) -> dict[bytes, Samples]:
        return {}

    def _zeroed(self, features: NDArray[np.bool_]) -> Samples:
        if self.indices is None or self.indptr is None:
            return replace(self, data=np.where(features, self.dtype.type(0), self.data), template=None)
        keep = ~features[self.indices]
        counts = np.concatenate([[0], np.cumsum(keep)])
        return replace(
            self, data=self.data[keep], indices=self.indices[keep], indptr=counts[self.indptr], template=None
        )


def as_csr(
    data: NDArray[Any], indices: NDArray[np.int32], indptr: NDArray[np.int64], shape: tuple[int, int]
) -> sp.csr_array:
    """These arrays as a matrix, without a copy: if the row pointers are wide, SciPy would widen all column numbers."""
    narrow = indptr.astype(np.int32) if indptr[-1] < 2**31 else indptr
    return sp.csr_array((data, indices, narrow), shape=shape)


def check_samples(raw: Any, name: str) -> Samples:
    """Dense arrays, SciPy sparse matrices, data frames and AnnData → Samples."""
    values, names = unwrap(raw, name)
    if sp.issparse(values):
        return replace(_check_sparse(values, name, raw), names=names)
    if isinstance(values, np.ma.MaskedArray):
        if np.ma.is_masked(values):
            raise InputError(f"{name} must not have masked entries; got {int(values.mask.sum())}: fill them first")
        values = values.data
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InputError(f"{name} must be a rectangular array of numbers; got rows of different lengths") from error
    if array.ndim != 2:
        hint = "; for one sample use reshape(1, -1)" if array.ndim == 1 else ""
        raise InputError(f"{name} must have two dimensions (samples × features); got shape {array.shape}{hint}")
    _check_shape(array.shape, name)
    array = np.ascontiguousarray(_to_float(array, name))
    _check_finite(array, name)
    return Samples(array.shape, array, names=names, template=raw)


def _is_writable(array: Any) -> bool:
    """Whether someone can write to this memory, be it through an array of which this one is a read-only view."""
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return True
        array = array.base
    return False


def _check_sparse(matrix: Any, name: str, raw: Any) -> Samples:
    if matrix.ndim != 2:
        raise InputError(f"{name} must have two dimensions (samples × features); got shape {matrix.shape}")
    _check_shape(matrix.shape, name)
    _to_float(matrix.data[:0] if hasattr(matrix, "data") and matrix.format != "lil" else np.empty(0), name)
    try:
        if matrix.format == "coo":
            matrix = type(matrix)((matrix.data, (matrix.row, matrix.col)), shape=matrix.shape)  # checks itself
        elif hasattr(matrix, "check_format"):
            check_compressed(matrix)  # before any conversion: it would follow wrong indices
        csr = matrix.tocsr()
    except ValueError as error:
        raise InputError(f"{name} must be a valid sparse matrix; SciPy says: {error}") from error
    if not _is_canonical(csr):
        csr = csr.copy()
        csr.has_canonical_format = csr.has_sorted_indices = False  # SciPy may remember what was true before
        csr.sum_duplicates()
    data = _to_float(csr.data, name)
    _check_finite(data, name)
    indices = csr.indices.astype(np.int32, copy=False)
    indptr = csr.indptr.astype(np.int64, copy=False)
    return Samples(csr.shape, data, indices, indptr, template=raw)


def _is_canonical(csr: Any) -> bool:
    """Whether the columns of every row rise; SciPy's own flag does not see a change in place."""
    rises = csr.indices[1:] > csr.indices[:-1]
    ends = csr.indptr[1:-1]
    rises[ends[(ends > 0) & (ends < csr.indices.size)] - 1] = True
    return bool(rises.all())


def _check_shape(shape: tuple[int, ...], name: str) -> None:
    if shape[0] == 0:
        raise InputError(f"{name} must hold at least one sample; got shape {shape}")
    if shape[1] == 0:
        raise InputError(f"{name} must have at least one feature; got shape {shape}")
    if shape[1] > np.iinfo(np.int32).max:
        raise InputError(f"{name} must have at most {np.iinfo(np.int32).max} features; got shape {shape}")


def _to_float(array: NDArray[Any], name: str) -> NDArray[Any]:
    if array.dtype.kind not in "fiub":
        kind = {"c": "complex numbers", "O": "Python objects"}.get(array.dtype.kind, f"dtype {array.dtype}")
        raise InputError(f"{name} must hold real numbers; got {kind}")
    if array.dtype == np.float16:
        return array.astype(np.float32)
    if array.dtype in (np.float32, np.float64) and array.dtype.isnative:
        return array
    return array.astype(np.float64)


def _largest(values: NDArray[Any]) -> float:
    """The largest magnitude (NaN if any entry is), without a copy."""
    return float(np.maximum(np.max(values, initial=0.0), -np.min(values, initial=0.0)))


def _check_finite(values: NDArray[Any], name: str) -> None:
    largest = _largest(values)
    if not np.isfinite(largest):
        what = "NaN" if np.isnan(largest) else "infinity"
        count = int(np.sum(~np.isfinite(values)))
        raise InputError(f"{name} must be finite; got {what} ({count} such {'entry' if count == 1 else 'entries'})")
    if largest > LARGEST:
        raise InputError(f"{name} must not exceed {LARGEST:g} in magnitude, since it is squared; got {largest:g}")


def check_range(largest: float) -> None:
    """Raise where samples are so small, all of them, that squares of their differences are lost."""
    if 0 < largest < SMALLEST:
        raise InputError(
            f"X and Y must not both be smaller than {SMALLEST:g} in magnitude, since differences are squared; the "
            f"largest is {largest:g}: rescale them"
        )


def check_same_features(samples: Samples, name: str, n_features: int, names: NDArray[Any] | None, where: str) -> None:
    """Raise unless `samples` has the features of `where`, in number, name and order."""
    if samples.shape[1] != n_features:
        raise FeatureMismatchError(f"{name} must have the {n_features} features of {where}; got {samples.shape[1]}")
    if names is None or samples.names is None or np.array_equal(names, samples.names):
        return
    present = set(samples.names)
    absent = [str(feature) for feature in names if feature not in present]
    if absent:
        listed = ", ".join(repr(feature) for feature in absent[:3]) + (", …" if len(absent) > 3 else "")
        raise FeatureMismatchError(f"{name} must have the features of {where} by name; {len(absent)} absent: {listed}")
    at = int(np.flatnonzero(names != samples.names)[0])
    raise FeatureMismatchError(
        f"{name} must have the features of {where} in the same order; column {at} is {str(samples.names[at])!r}, "
        f"there {str(names[at])!r}: put the columns in that order first"
    )


def restore(values: NDArray[Any] | sp.csr_array, like: Samples) -> Any:
    """`values` (n, d) in the container, and the float type, that `like` came in."""
    return rewrap(values, like.template, like.dtype, like.is_sparse)


def check_weights(raw: Any, n: int, name: str) -> NDArray[np.float64]:
    """Non-negative weights, one a sample, scaled to sum to one; uniform where none are given."""
    if raw is None:
        return np.full(n, 1.0 / n)
    weights = check_reals(raw, name)
    if weights.shape != (n,):
        raise InputError(f"{name} must be one weight a sample, shape ({n},); got shape {weights.shape}")
    if not np.all(np.isfinite(weights)) or np.any(weights < 0):
        worst = weights[~(np.isfinite(weights) & (weights >= 0))][0]
        raise InputError(f"{name} must be finite and not negative; got {worst:g}")
    with np.errstate(over="ignore"):
        total = float(weights.sum())
    if not 0 < total < math.inf:
        raise InputError(f"{name} must have a positive, finite sum; got {total:g}")
    return weights / total


def check_reals(raw: Any, name: str) -> NDArray[np.float64]:
    """Real numbers as float64, in an array of their own."""
    if np.ma.is_masked(raw):
        raise InputError(f"{name} must not have masked entries; fill them first")
    try:
        array = np.asarray(raw)
    except ValueError as error:
        raise InputError(f"{name} must be a plain array of numbers; got rows of different lengths") from error
    return np.array(_to_float(array, name), dtype=np.float64)


def check_number(
    value: Any, name: str, low: float = -math.inf, high: float = math.inf, *, open_low: bool = False
) -> float:
    """A finite real number within the bounds."""
    sign, bound = (">", low) if open_low else ("≥", low)
    limits = f" {sign} {bound:g}" if low > -math.inf else ""
    limits += (" and" if limits and high < math.inf else "") + (f" ≤ {high:g}" if high < math.inf else "")
    real = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool | np.bool_)
    try:
        number = float(value) if real else math.nan
    except OverflowError:  # an integer beyond all floats
        number = math.inf
    if not math.isfinite(number) or number > high or number < low or (open_low and number == low):
        raise InputError(f"{name} must be a finite number{limits}; got {value!r}")
    return number


def check_rate(value: Any, name: str, others: str = "") -> float:
    """A number between 0 and 1, exclusive; `others` are what else may be given, for the message."""
    real = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool | np.bool_)
    if not real or not 0 < value < 1:
        raise InputError(f"{name} must be {others}a number between 0 and 1, such as 0.1; got {value!r}")
    return float(value)


def check_count(value: Any, name: str, low: int = 1) -> int:
    """An integer of at least `low`."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer) or value < low:
        raise InputError(f"{name} must be an integer ≥ {low}; got {value!r}")
    return int(value)


def check_choice(value: Any, name: str, choices: tuple[str, ...]) -> str:
    """One of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise InputError(f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r}")
    return value
