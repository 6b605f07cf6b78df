"""Gene sets, .h5ad files and Zarr stores that are damaged."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import shutil
import types
from functools import cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import scipy.sparse as sp

from occamap import _h5ad
from occamap.tl.cells import numbers
from occamap.tl.gene_sets import gene_sets_of
from soak import files_seeds
from soak.files_archives import ARCHIVES
from soak.files_damage import BYTES, NAMES, Rng, dumped, edited
from soak.files_model import Canary
from soak.files_targets import OTHER, STRANGE, UNHARMED, Target, UnsoundError, pick, strange, write_one
from soak.files_zip import Member, archive

# -- gene sets -----------------------------------------------------------------------------------------------------

GENES = types.SimpleNamespace(var_names=np.array([f"g{k}" for k in range(10)]), varm={}, uns={})
LINES: tuple[bytes, ...] = (
    b"", b"\n" * 100, b"no tab", b"\tno name\tg1", b"a\tb\n" * 2, b"a\tb\tg1\tg\x1b[2J", b"a\tb\tg1\0\tg2", b"\xff\t",
    "\ufeffa\tb\tg1\tg2\n".encode(), b"a\tb\tg1\tg2\r\nb\t\tg1\tg3\r\n", b"a\tb\t" + b"\t" * 10**6, b"=1+1\t\tg1\tg2",
    b"a\tb\t" + b"x\t" * 400_000, b"a\tb\t" + b"x" * 2**21,
)  # fmt: skip


@cache
def _bomb(kind: int) -> bytes:
    """A few kilobytes that unpack to a third of a gigabyte."""
    piece = [bytes(2**20), b"\n" * 2**20, b"\t" * 2**20, b"a\tb\tg1\tg2\n" * 100_000, b"x" * (2**20 - 1) + b"\n"][kind]
    packed = gzip.compress(piece, mtime=0)
    return packed * (350 * 2**20 // len(piece))


def _many_sets(rng: Rng) -> bytes:
    number = int(rng.choice([1000, 250_000]))
    return "".join(f"s{k}\t\tg{k % 10}\tg{(k + 1) % 10}\tx{k}\n" for k in range(number)).encode()


def _make_sets(kind: str, rng: Rng, whole: Path, where: Path) -> Path:
    path = pick(rng, whole / "sets")
    if kind == STRANGE:
        return strange(rng, where, path)
    if kind in BYTES:
        content = BYTES[kind](path.read_bytes(), rng)
    elif kind == "damaged, then packed":
        harm = list(BYTES.values())[rng.integers(len(BYTES))]
        content = gzip.compress(harm(files_seeds.GMT.encode(), rng), mtime=0)
    elif kind == "a bomb" and rng.random() < 0.15:
        content = _bomb(int(rng.integers(5)))
    elif kind == "thousands of sets" and rng.random() < 0.15:
        content = _many_sets(rng)
    elif kind == "names":
        name = NAMES[rng.integers(len(NAMES))].encode(errors="surrogatepass")
        content = files_seeds.GMT.encode().replace(b"g1" if rng.random() < 0.5 else b"SET_A", name)
    else:
        content = LINES[rng.integers(len(LINES))]
        content = gzip.compress(content, mtime=0) if rng.random() < 0.3 else content
    return write_one(where, "sets.gmt", content)


def _read_sets(path: Path, out: Path) -> str:
    found = gene_sets_of(GENES, path, np.ones(10, bool))
    if any(member.min() < 0 or member.max() > 9 for member in found.members):
        raise UnsoundError("a gene that is not there")
    return UNHARMED if found.names == ("SET_A", "SET_B", "SET_C") and found.n_absent == 0 else OTHER


def _warm_sets(whole: Path, out: Path) -> None:
    for path in (whole / "sets").iterdir():
        _read_sets(path, out)


# -- .h5ad ---------------------------------------------------------------------------------------------------------

DATASETS = "X/data", "X/indices", "X/indptr", "layers/more/indptr", "layers/more/indices", "obs/_index", "var/_index"
LIMITS = -1, 0, 40, 41, 50, 51, 2**31 - 1, -(2**31)


def _make_h5ad(kind: str, rng: Rng, whole: Path, where: Path) -> Path:
    path = where / f"{'backed' if rng.random() < 0.5 else 'whole'}.h5ad"
    shutil.copy(pick(rng, whole / "cells", "*.h5ad"), path)
    if kind == STRANGE:
        path.unlink()
        made = strange(rng, where, pick(rng, whole / "cells", "csr.h5ad"))
        return made.rename(path) if "\0" not in str(made) and os.path.lexists(made) else made
    elif kind in BYTES:
        path.write_bytes(BYTES[kind](path.read_bytes(), rng))
    else:
        with h5py.File(path, "r+") as file:
            _edit(file, kind, rng)
    return path


def _edit(file: Any, kind: str, rng: Rng) -> None:
    names = [name for name in DATASETS if name in file]
    name = names[rng.integers(len(names))]
    if kind == "entries forged" and file[name].dtype.kind in "if":
        found = file[name][:]
        some = LIMITS if found.dtype.kind == "i" else (np.nan, np.inf, -1.0, 1e38, 1e300)
        with np.errstate(over="ignore"):
            found[rng.integers(found.size, size=rng.integers(1, 4))] = some[rng.integers(len(some))]
        file[name][:] = found
    elif kind == "sizes promised":
        shape = [(2**45,), (2**28,), (2**30, 2**30), (0,), ()][rng.integers(5)]
        dtype = ["f8", "i4", "u1"][rng.integers(3)]
        del file[name]
        chunks = tuple(min(side, 1000) for side in shape) if shape and min(shape) > 0 else None
        file.create_dataset(name, shape=shape, dtype=dtype, chunks=chunks)
    elif kind == "types changed":
        del file[name]
        values: list[Any] = ["text", b"bytes", 1, np.zeros((3, 3)), np.array(["a"] * 51, "S5"), np.zeros(50, "c8")]
        file[name] = values[rng.integers(len(values))]
    elif kind == "attributes edited":
        held = [part for part in ("X", "obs", "var", "layers/more", "obs/condition", "/") if len(file[part].attrs)]
        attributes = file[held[rng.integers(len(held))]].attrs
        key = list(attributes)[rng.integers(len(attributes))]
        values = [0, -1, "x", "", [2**40, 2**40], [-1, -1], [50, 41], [50], "csc_matrix", "array", "awkward-array"]
        attributes[key] = values[rng.integers(len(values))]
    elif kind == "links":
        del file[name]
        links = [h5py.SoftLink("/X"), h5py.SoftLink(f"/{name}"), h5py.ExternalLink("/etc/passwd", "/x")]
        file[name] = links[rng.integers(3)]
    else:
        part = ["X", "obs", "var", "layers", "obs/condition", "obs/condition/codes", name][rng.integers(7)]
        del file[part]


def _read_cells(path: Path, out: Path) -> str:
    adata = _h5ad.read(path, backed=path.name.startswith("backed"))
    with _h5ad.using(adata, path):
        for layer in (None, "more"):
            if layer is None or layer in adata.layers:
                made = numbers(adata, np.arange(adata.n_obs), layer, "normalize")
                if not np.isfinite(made.data if sp.issparse(made) else made).all() or made.shape[0] != adata.n_obs:
                    raise UnsoundError("numbers that are not finite, or not as many as there are cells")
        str(adata.obs.iloc[:3]), str(adata.var.iloc[:3])
    return "read"


def _warm_cells(whole: Path, out: Path) -> None:
    for pattern in ("*.h5ad", "*.zarr"):
        for path in (whole / "cells").glob(pattern):
            for backed in (False, True):
                adata = _h5ad.read(path, backed=backed)
                with _h5ad.using(adata, path):
                    numbers(adata, np.arange(adata.n_obs), None, "normalize")


# -- Zarr ----------------------------------------------------------------------------------------------------------


def _make_zarr(kind: str, rng: Rng, whole: Path, where: Path) -> Path:
    source = pick(rng, whole / "cells", "*.zarr")
    store = Path(shutil.copytree(source, where / f"{'backed' if rng.random() < 0.5 else 'whole'}.zarr"))
    files = sorted(path for path in store.rglob("*") if path.is_file())
    victim = files[rng.integers(len(files))]
    described = [path for path in files if path.name in (".zarray", ".zattrs", ".zmetadata", ".zgroup")]
    chunks = [path for path in files if path not in described]
    if kind == STRANGE:
        victim.unlink()
        strange(rng, victim.parent, source / victim.relative_to(store))
    elif kind == "a file absent":
        victim.unlink()
    elif kind == "a chunk damaged":
        victim = chunks[rng.integers(len(chunks))]
        victim.write_bytes(list(BYTES.values())[rng.integers(len(BYTES))](victim.read_bytes(), rng))
    elif kind == "a description edited":
        victim = described[rng.integers(len(described))] if rng.random() < 0.3 else store / ".zmetadata"
        victim.write_bytes(dumped(edited(json.loads(victim.read_bytes()), rng), rng))
    elif kind in ("sizes promised", "a pickle as a codec"):
        arrays = [path for path in described if path.name == ".zarray"]
        _describe(store, arrays[rng.integers(len(arrays))], kind, rng)
    else:
        path = where / f"{store.stem}.zip"
        path.write_bytes(_zipped(store, files, kind, rng))
        shutil.rmtree(store)
        return path
    return store


def _describe(store: Path, at: Path, kind: str, rng: Rng) -> None:
    """Another description of an array, in the store's list of them, too."""
    told = json.loads(at.read_bytes())
    if kind == "sizes promised":
        key = ["shape", "chunks"][rng.integers(2)]
        sides = [0, 1, 2**20, 2**31, 2**45, 2**63, -1]
        told[key] = [int(sides[rng.integers(len(sides))]) for _ in told[key]]
    else:
        codec = {"id": "pickle"}
        told |= [{"compressor": codec}, {"filters": [codec], "compressor": None}, {"filters": [codec]}][rng.integers(3)]
        for path in at.parent.iterdir():
            if not path.name.startswith("."):
                path.write_bytes(pickle.dumps(Canary()))
    at.write_text(json.dumps(told))
    listed = json.loads((store / ".zmetadata").read_bytes())
    listed["metadata"][at.relative_to(store).as_posix()] = told
    if rng.random() < 0.8:
        (store / ".zmetadata").write_text(json.dumps(listed))


def _zipped(store: Path, files: list[Path], kind: str, rng: Rng) -> bytes:
    made = [Member(path.relative_to(store).as_posix().encode(), path.read_bytes()) for path in files]
    if kind == "a damaged archive":
        return list(BYTES.values())[rng.integers(len(BYTES))](archive(made), rng)
    return list(ARCHIVES.values())[rng.integers(len(ARCHIVES))](made, rng)


TARGETS = {
    "gene sets": Target(
        (*BYTES, "damaged, then packed", "a bomb", "thousands of sets", "names", "strange lines", STRANGE),
        _make_sets,
        _read_sets,
        _warm_sets,
    ),
    "h5ad": Target(
        (*BYTES, "entries forged", "sizes promised", "types changed", "attributes edited", "links", "a part absent",
         STRANGE),
        _make_h5ad,
        _read_cells,
        _warm_cells,
    ),
    "zarr": Target(
        ("a chunk damaged", "a file absent", "a description edited", "sizes promised", "a pickle as a codec",
         "a forged archive", "a damaged archive", STRANGE),
        _make_zarr,
        _read_cells,
        _warm_cells,
    ),
}  # fmt: skip
