"""How every kernel is compiled."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numba

Kernel = Callable[..., Any]

LANES = 64
"""Samples handled side by side: with 64 the inner loop fills the vector units and amortises its start."""

FLUSH = 32
"""Terms that are added in the data's precision before the sum moves to float64: with 64 equal terms in float32 its
relative error can exceed 1e-6, with 32 it is 6e-7 at most."""


def kernel(function: Kernel) -> Kernel:
    """Compile without the GIL, cached on disk, for input without NaN; multiply-adds may be fused."""
    return _compile(function, {"contract", "nsz", "nnan"})


def reduction(function: Kernel) -> Kernel:
    """As `kernel`, and sums may be re-ordered so that they vectorise.

    A loop that sums must not store: where it does, the compiler keeps an unordered version beside the vectors, for
    arrays that could overlap, and which of them runs, and so the last bit, depends on where short arrays happen to lie.
    """
    return _compile(function, {"contract", "nsz", "nnan", "reassoc"})


def _compile(function: Kernel, flags: set[str]) -> Kernel:
    if numba.config.DISABLE_JIT:
        raise ImportError("occamap cannot do without numba's compiler: unset NUMBA_DISABLE_JIT")
    # Kernels that kernels call are always inlined: a copy of its own would be optimised by itself, and a process that
    # compiles would call that one, while one that loads a cached caller calls the copy in it, with other last bits.
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": flags, "forceinline": True}
    try:
        compiled: Any = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # nowhere to write a cache (read-only home): slower to start, not wrong
        return numba.njit(**options)(function)
    entries: Any = getattr(compiled._cache, "_cache_file", None)
    if hasattr(entries, "_source_stamp"):
        entries._source_stamp = STAMP
    compiled._cache.load_overload = partial(_load, compiled._cache, compiled._cache.load_overload)
    compiled._cache.save_overload = partial(_save, compiled._cache.save_overload)
    return compiled


def _load(cache: Any, load: Kernel, *arguments: Any) -> Any:
    """What is cached, or nothing where the file is damaged; it is then written anew."""
    try:
        return load(*arguments)
    except Exception:  # a pickle that was cut off or overwritten can raise nearly anything
        with suppress(OSError):
            cache.flush()
        return None


def _save(save: Kernel, *arguments: Any) -> None:
    """Write to the cache, if there is room."""
    with suppress(OSError):
        save(*arguments)


def _stamp() -> tuple[tuple[str, int, int], ...]:
    files = sorted(Path(__file__).parent.glob("*.py"))
    return tuple((file.name, file.stat().st_mtime_ns, file.stat().st_size) for file in files)


STAMP = _stamp()
"""Names, times and sizes of all the files with kernels. numba takes a cached kernel for stale when its own file has
changed, but not when one that it calls has: with this stamp, a change to any of them compiles them all again."""
