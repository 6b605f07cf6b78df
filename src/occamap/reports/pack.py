"""Numbers for a page: arrays and one JSON header in one block of bytes, compressed, as text that HTML can hold.

The block is: the length of the header (uint32, little-endian), the header (UTF-8), and the arrays, each at a multiple
of 8 bytes from the end of the header, padded with zeros. `assets/data.js` is the other end.
"""

from __future__ import annotations

import base64
import gzip
import json
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from occamap._kernels.columns import column_sums

KINDS = {
    "u1": "Uint8Array",
    "i1": "Int8Array",
    "u2": "Uint16Array",
    "u4": "Uint32Array",
    "f4": "Float32Array",
    "f8": "Float64Array",
}
ALIGNED = 8


def pack(meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> str:
    """The block in base64; the same input gives the same text."""
    places: dict[str, Any] = {}
    parts: list[bytes] = []
    size = 0
    for name, array in arrays.items():
        plain = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
        places[name] = {"kind": KINDS[plain.dtype.str[1:]], "at": size, "length": int(plain.size)}
        parts.append(_padded(plain.tobytes()))
        size += len(parts[-1])
    head = json.dumps({**meta, "arrays": places}, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    text = head.encode("utf-8", errors="backslashreplace")
    text += b" " * (-(len(text) + 4) % ALIGNED)
    block = struct.pack("<I", len(text)) + text + b"".join(parts)
    return base64.b64encode(gzip.compress(block, compresslevel=6, mtime=0)).decode("ascii")


def _padded(content: bytes) -> bytes:
    return content + b"\0" * (-len(content) % ALIGNED)


def entries(moves: Any, most: int) -> dict[str, NDArray[Any]]:
    """The displacements of the columns that move most, as far as there is room for `most` entries, column by column.

    Returns `kept` (the columns, by their sum of squares), `starts` (where the entries of each begin, and the end),
    `steps` (from a row to the next in a column; the first from −1), `values` (−127 to 127) and `units` (of the values
    of a column: its largest move is 127 of them).
    """
    columns = moves.tocsc()
    columns.sort_indices()
    counts = np.diff(columns.indptr)
    squares = column_sums(moves)[1]
    order = np.argsort(-squares, kind="stable")
    order = order[counts[order] > 0]
    kept = order[np.cumsum(counts[order]) <= most]
    chosen = columns[:, kept]
    rows, data = chosen.indices.astype(np.int64), chosen.data.astype(np.float64)
    starts, sizes = chosen.indptr[:-1], np.diff(chosen.indptr)
    steps = np.diff(rows, prepend=-1)
    steps[starts] = rows[starts] + 1
    units = np.maximum.reduceat(np.abs(data), starts) / 127 if kept.size else np.empty(0)
    values = np.rint(data / np.repeat(units, sizes))
    values = np.where(values == 0, np.sign(data), values)  # what moves is not to vanish
    return {
        "kept": kept.astype(np.uint32),
        "starts": chosen.indptr.astype(np.uint32),
        "steps": steps.astype(np.uint16),
        "values": values.astype(np.int8),
        "units": units.astype(np.float32),
    }
