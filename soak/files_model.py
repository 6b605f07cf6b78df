"""Model files that are damaged, and forged ones whose checksums fit what was made of them."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from soak.files_archives import ARCHIVES
from soak.files_damage import BYTES, NUMBERS, Rng, dumped, edited, flipped
from soak.files_zip import Member, archive

Members = dict[str, bytes]
META = "meta.json"
SHAPES: tuple[Any, ...] = (
    *((21,), (19,), (0,), (2**31,), (2**60,), (2**64 // 8 + 20,), (-20,), (-5, -4), (20, 1), (1, 20), (), (5, 4)),
    *((True,) * 20, (2**32, 2**32), (2**63, 2), (0, 2**62), (1,) * 40, (20.0,), "20", None, [20], (10**400,)),
)
DTYPES = (
    *("|O", ">f8", "<c8", "<c16", "|V8", "<U2", "<M8[s]", "<f2"),
    *("<f4", "<i8", "<i4", "<u8", "|b1", "<f16", "|S8", "x"),
)
HEADERS = (
    "", "{", "{}", "()", "1", "-" * 9000 + "1", "(" * 9000, "[" * 200 + "]" * 200, "__import__('os').mkdir('canary')",
    "{'descr': [('a', '<f8'), ('b', '|O')], 'fortran_order': False, 'shape': (20,), }",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (20L,), }", "{'descr': '<f8', 'shape': (20,), }",
    "{'descr': ('<f8', (2**40,)), 'fortran_order': False, 'shape': (20,), }", "'" + "9" * 8000 + "'",
)  # fmt: skip


class Canary:
    """What runs when it is unpickled: a directory of this name appears where the process is."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("canary",)


def unpacked(path: Path) -> tuple[dict[str, Any], Members]:
    """The meta data and the members of a whole file."""
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    return json.loads(members.pop(META)), members


def signed(meta: Any, members: Members, rng: Rng) -> bytes:
    """meta.json with the checksums of these members."""
    if isinstance(meta, dict) and isinstance(meta.get("manifest"), dict):
        meta = {**meta, "manifest": {name: hashlib.sha256(one).hexdigest() for name, one in members.items()}}
    return dumped(meta, rng)


def listed(meta: Any, members: Members, rng: Rng) -> list[Member]:
    """The members of a forged file, in the order of a true one."""
    made = [Member(name.encode(errors="surrogatepass"), content) for name, content in members.items()]
    return [*made, Member(META.encode(), signed(meta, members, rng))]


def npy(array: Any) -> bytes:
    """An array as .npy, pickled if it holds objects."""
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def lie(shape: Any, dtype: Any, data: bytes, fortran: Any = False) -> bytes:
    """A .npy file whose header promises what it likes."""
    return raw_npy(repr({"descr": dtype, "fortran_order": fortran, "shape": shape}), data)


def raw_npy(header: str, data: bytes, version: bytes = b"\1\0", length: int | None = None) -> bytes:
    text = header.encode(errors="surrogatepass") + b"\n"
    size = (len(text) if length is None else length) % 2**16
    return b"\x93NUMPY" + version + size.to_bytes(2, "little") + text + data


def array(content: bytes) -> np.ndarray:
    return np.load(io.BytesIO(content), allow_pickle=False)


# -- forgeries of what the archive holds: meta data and members, signed afterwards ---------------------------------


def _meta(meta: Any, members: Members, rng: Rng) -> tuple[Any, Members]:
    for _ in range(rng.integers(1, 4)):
        meta = edited(meta, rng)
    return meta, members


def _one_key(*keys: str) -> Callable[[Any, Members, Rng], tuple[Any, Members]]:
    """An edit of one part of the meta data, which an edit at random seldom finds."""

    def forge(meta: Any, members: Members, rng: Rng) -> tuple[Any, Members]:
        key = keys[rng.integers(len(keys))]
        return {**meta, key: edited(meta[key], rng)}, members

    return forge


def _shape(meta: Any, members: Members, rng: Rng) -> tuple[Any, Members]:
    """Samples that claim to be wider, on both sides: sparse ones hold no number that would tell."""
    wide = int(rng.choice([4, 6, 1000, 10**5, 10**6, 2**24, 2**31 - 1, 2**31, 2**40, 2**62]))
    shapes = {side: {**meta[side], "shape": [meta[side]["shape"][0], wide]} for side in ("source", "target")}
    return {**meta, **shapes}, members


def _numbers(meta: Any, members: Members, rng: Rng) -> tuple[Any, Members]:
    """Some entries of an array that are out of bounds, not finite, or swapped."""
    name = list(members)[rng.integers(len(members))]
    made = array(members[name]).copy()
    flat = made.reshape(-1)
    at = rng.integers(max(flat.size, 1), size=rng.integers(1, 4))
    if not flat.size:
        return meta, members
    kind = rng.integers(4)
    if kind == 0:
        flat[at] = flat[at[::-1]]
    elif kind == 1:
        rng.shuffle(flat)
    elif made.dtype.kind == "i":
        limits = np.iinfo(made.dtype)
        some = [-1, 0, 1, 4, 5, 6, flat.size, flat.size + 1, limits.max, limits.min, 2**31 - 1, -(2**31)]
        flat[at] = some[rng.integers(len(some))]
    else:
        some_floats = [np.nan, np.inf, -np.inf, *(float(min(n, 10**300)) for n in NUMBERS), 1e139, 1e141, -1e-3, 1e30]
        with np.errstate(over="ignore"):
            flat[at] = some_floats[rng.integers(len(some_floats))]
    return meta, {**members, name: npy(made)}


def _whole_array(meta: Any, members: Members, rng: Rng) -> tuple[Any, Members]:
    """An array multiplied, of another length, shape or type, or another one in its place."""
    name, other = (list(members)[rng.integers(len(members))] for _ in range(2))
    found = array(members[name])
    with np.errstate(all="ignore"):
        factor = float(rng.choice([0.0, -1.0, 1e-300, 1e30, 1e150, 1e300]))
        choices: list[Any] = [
            lambda: (found * factor).astype(found.dtype),
            lambda: found[:-1],
            lambda: np.concatenate([found, found]),
            lambda: found[None],
            lambda: np.zeros((*found.shape, 0), found.dtype),
            lambda: found.astype(rng.choice(["<f4", "<f8", "<i4", "<i8", "<u4", "<f2", ">f8"])),
            lambda: array(members[other]),
            lambda: np.full_like(found, rng.choice([0, 1, -1, 2**31 - 1])),
            lambda: np.asfortranarray(np.outer(found.ravel(), [1, 1])).astype(found.dtype),
            lambda: found[:0],
        ]
        return meta, {**members, name: npy(choices[rng.integers(len(choices))]())}


def _rows(meta: Any, members: Members, rng: Rng) -> tuple[Any, Members]:
    """Row pointers or column numbers that lead elsewhere."""
    name = f"{('source', 'target')[rng.integers(2)]}_{('indptr', 'indices')[rng.integers(2)]}.npy"
    if name not in members:
        return _numbers(meta, members, rng)
    made = array(members[name]).copy()
    places = rng.integers(made.size, size=3)
    limits = np.iinfo(made.dtype)
    values = [-1, 5, made.size, limits.max, limits.min, 2**31 - 1, limits.max - 7, limits.min + 8]
    made[places[: rng.integers(1, 4)]] = values[rng.integers(len(values))]
    if rng.random() < 0.3:
        made = np.sort(made)[:: rng.choice([1, -1])]
    if name.endswith("indptr.npy") and rng.random() < 0.2:
        made[[0, -1]] = 0  # no entries, it says
    return meta, {**members, name: npy(np.ascontiguousarray(made))}


def _sizes(meta: Any, members: Members, rng: Rng) -> tuple[Any, Members]:
    """Groups whose sizes wrap around, or are not theirs."""
    if "cost_groups_sizes.npy" not in members:
        return _numbers(meta, members, rng)
    held = array(members["cost_groups.npy"]).size
    many = int(rng.choice([4, 64, 4096]))
    wrapping = [[2**63 - 1, 2**63 - 1, 2 + held], [2**64 // many] * many + [held]]
    made = np.array(wrapping[rng.integers(2)], np.int64) if rng.random() < 0.8 else rng.integers(-2, 5, size=2)
    cost = {**meta["cost"], "parameters": {**meta["cost"]["parameters"]}}
    cost["parameters"]["groups"] = {**cost["parameters"]["groups"], "names": [f"g{k}" for k in range(made.size)]}
    return {**meta, "cost": cost}, {**members, "cost_groups_sizes.npy": npy(made)}


def _header(meta: Any, members: Members, rng: Rng) -> tuple[Any, Members]:
    name = list(members)[rng.integers(len(members))]
    found = array(members[name])
    data, kind = found.tobytes(), rng.integers(5)
    if kind == 0:
        made = lie(SHAPES[rng.integers(len(SHAPES))], found.dtype.str, data)
    elif kind == 1:
        made = lie(found.shape, DTYPES[rng.integers(len(DTYPES))], data)
    elif kind == 2:
        made = raw_npy(HEADERS[rng.integers(len(HEADERS))], data)
    elif kind == 3:
        text = repr({"descr": found.dtype.str, "fortran_order": False, "shape": found.shape})
        version = [b"\1\0", b"\2\0", b"\3\0", b"\0\0", b"\xff\xff"][rng.integers(5)]
        made = raw_npy(text, data, version, [None, 0, 1, 2**16 - 1][rng.integers(4)])
    else:
        made = flipped(members[name][:80], rng) + members[name][80:]
    return meta, {**members, name: made}


def _pickled(meta: Any, members: Members, rng: Rng) -> tuple[Any, Members]:
    """Pickles that would make a directory, as members."""
    name = list(members)[rng.integers(len(members))]
    found = array(members[name])
    bombs = np.full(found.shape, Canary(), dtype=object)
    contents = [
        npy(bombs), pickle.dumps(Canary()), pickle.dumps(bombs, protocol=0),
        lie(found.shape, "|O", pickle.dumps(bombs)), lie(found.shape, found.dtype.str, pickle.dumps(bombs)),
    ]  # fmt: skip
    return meta, {**members, name: contents[rng.integers(len(contents))]}


FORGED = {
    "meta data edited": _meta,
    "parameters edited": _one_key("parameters", "epsilon"),
    "cost edited": _one_key("cost", "cost_given"),
    "report edited": _one_key("report"),
    "names edited": _one_key("feature_names"),
    "shapes edited": _one_key("source", "target"),
    "width forged": _shape,
    "entries of an array forged": _numbers,
    "an array replaced": _whole_array,
    "rows of a sparse array forged": _rows,
    "sizes of groups forged": _sizes,
    "header of an array forged": _header,
    "a pickle as an array": _pickled,
}
KINDS = (*BYTES, *FORGED, *ARCHIVES, "a pickle as the file", "a damaged member, signed")


def forged(kind: str, path: Path, rng: Rng) -> bytes:
    """A damaged or forged file, made of a whole one."""
    if kind in BYTES:
        return BYTES[kind](path.read_bytes(), rng)
    if kind == "a pickle as the file":
        held = path.read_bytes() if rng.random() < 0.5 else None
        return pickle.dumps([Canary(), held], protocol=int(rng.integers(6)))
    meta, members = unpacked(path)
    if kind in FORGED:
        meta, members = FORGED[kind](meta, members, rng)
        return archive(listed(meta, members, rng))
    if kind == "a damaged member, signed":
        name, harm = list(members)[rng.integers(len(members))], list(BYTES.values())[rng.integers(len(BYTES))]
        return archive(listed(meta, {**members, name: harm(members[name], rng)}, rng))
    return ARCHIVES[kind](listed(meta, members, rng), rng)
