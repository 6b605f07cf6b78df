"""Source samples in blocks of rows on the workers, from this process or from a Dask array."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from occamap._validate import Samples, check_samples
from occamap.costs.base import Cost
from occamap.errors import InputError
from occamap.scale.cluster import Tasks, results

Span = tuple[int, int]


class RowBlocks(Protocol):
    """Source samples of which a tile can be cut out on a worker."""

    shape: tuple[int, int]

    def work_dtype(self, cost: Cost, Y: Samples) -> Any:
        """The precision that costs are computed in: that of the whole, not of a block."""

    def pieces(self, span: Span) -> tuple[Any, ...]:
        """Samples on workers, and the rows of each that make up these rows."""


class LocalRows:
    """Rows of this process, sent to a worker each time that one needs them."""

    def __init__(self, X: Samples, tasks: Tasks) -> None:
        self.X, self.shape, self.tasks = X, X.shape, tasks
        self._known: dict[Span, int] = {}

    def work_dtype(self, cost: Cost, Y: Samples) -> Any:
        return cost._work_dtype(self.X, Y)

    def pieces(self, span: Span) -> tuple[Any, ...]:
        number = self._known.setdefault(span, len(self._known))
        return self.tasks.send(self.X.rows(*span), number), (0, span[1] - span[0])


class DaskRows:
    """The chunks of a Dask array, checked where they are; they stay there."""

    def __init__(self, array: Any, name: str, tasks: Tasks) -> None:
        self.shape = array.shape
        ends = np.cumsum(array.chunks[0])
        self.spans = [(int(end - size), int(end)) for end, size in zip(ends, array.chunks[0], strict=True)]
        raw = [tasks.compute(chunk) for chunk in array.to_delayed().ravel()]
        shapes = [(stop - start, array.shape[1]) for start, stop in self.spans]
        self.chunks = [tasks(_checked, chunk, name, shape) for chunk, shape in zip(raw, shapes, strict=True)]
        facts = results(tasks.client, [tasks(_facts, chunk) for chunk in self.chunks])
        self.largest = max(largest for largest, _ in facts)
        self.dtype = np.result_type(*(dtype for _, dtype in facts))

    def work_dtype(self, cost: Cost, Y: Samples) -> Any:
        single = np.result_type(self.dtype, Y.dtype) == np.float32
        fits = single and cost._fits_float32(max(self.largest, Y.largest()))
        return np.dtype(np.float32 if fits else np.float64)

    def pieces(self, span: Span) -> tuple[Any, ...]:
        cut: list[Any] = []
        for (start, stop), chunk in zip(self.spans, self.chunks, strict=True):
            low, high = max(start, span[0]), min(stop, span[1])
            if low < high:
                cut += [chunk, (low - start, high - start)]
        return tuple(cut)


def check_array(array: Any, name: str) -> Any:
    """A Dask array with rows of known length, all features of a row in one chunk."""
    if not isinstance(getattr(array, "chunks", None), tuple) or not hasattr(array, "to_delayed"):
        raise InputError(f"{name} must be a Dask array, if it is a Dask collection; got {type(array).__name__}")
    if array.ndim != 2:
        raise InputError(f"{name} must have two dimensions (samples × features); got shape {array.shape}")
    if any(math.isnan(size) for sizes in array.chunks for size in sizes):
        raise InputError(f"{name} must have chunks of known sizes: call {name}.compute_chunk_sizes() first")
    if 0 in array.shape:
        raise InputError(f"{name} must hold at least one sample and one feature; got shape {array.shape}")
    return array if len(array.chunks[1]) == 1 else array.rechunk({1: -1})


def _checked(chunk: Any, name: str, shape: tuple[int, int]) -> Samples:
    """A chunk that passed the gate, on its worker."""
    samples = check_samples(chunk, f"a chunk of {name}") if shape[0] else Samples(shape, np.empty(shape))
    if samples.shape != shape:
        raise InputError(f"{name} must have chunks of the shapes that it declares; one of {shape} is {samples.shape}")
    return replace(samples, template=None)


def _facts(chunk: Samples) -> tuple[float, np.dtype[Any]]:
    return chunk.largest(), chunk.dtype


def stack(pieces: Sequence[Any], dtype: Any, frozen: Any) -> Samples:
    """Rows cut out of chunks (chunk, range, chunk, range, …), below each other."""
    cut = [chunk.rows(*rows) for chunk, rows in zip(pieces[::2], pieces[1::2], strict=True)]
    whole: Samples = cut[0]
    if len(cut) > 1:
        if all(piece.is_sparse for piece in cut):
            whole = check_samples(sp.vstack([piece.csr() for piece in cut], format="csr"), "X")
        else:
            whole = check_samples(np.vstack([piece.dense() for piece in cut]), "X")
    return replace(whole, template=None).without(frozen).astype(dtype)
