"""What reads files, each with the ways to damage them and what a file that is accepted must still hold."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import occamap as oc
from soak import files_model
from soak.files_damage import Rng

UNHARMED, OTHER = "read, unharmed", "read, other but sound"
STRANGE = "no plain file"
GROWING = "grows"  # the thread that writes to a file while it is read

class UnsoundError(Exception):
    """A file was accepted, and gives what must not be."""

@dataclass(frozen=True)
class Target:
    """A reader: kinds of damage; `make` writes a damaged file or directory, `read` tells how it ends, or raises."""

    kinds: tuple[str, ...]
    make: Callable[[str, Rng, Path, Path], Path]  # kind, rng, whole files, an empty directory → the damaged file
    read: Callable[[Path, Path], str]  # the damaged file, a directory that may be written to
    warm: Callable[[Path, Path], None]  # whole files, a directory: read once before anything is watched

def strange(rng: Rng, where: Path, whole: Path) -> Path:
    """Something of the right name that is no plain file, or does not stay as it is."""
    path, kind = where / whole.name, rng.integers(7)
    if kind == 0:
        path.mkdir()
    elif kind == 1:
        os.mkfifo(path)
    elif kind == 2:
        path.symlink_to("/dev/zero")
    elif kind == 3:
        path.symlink_to(path)
    elif kind == 4:
        path.write_bytes(b"")
    elif kind == 5:
        return where / ("a\0b" if rng.random() < 0.5 else "absent")
    else:
        path.write_bytes(whole.read_bytes())
        threading.Thread(target=_grow, args=(path,), name=GROWING, daemon=True).start()
    return path

def _grow(path: Path) -> None:
    for _ in range(20):
        try:
            with path.open("r+b") as stream:  # which does not make it again once it is gone
                stream.seek(0, os.SEEK_END)
                stream.write(b"more" * 100)
        except OSError:  # it is over
            return
        time.sleep(1e-4)

def pick(rng: Rng, where: Path, pattern: str = "*") -> Path:
    """One of the whole files."""
    found = sorted(where.glob(pattern))
    return found[rng.integers(len(found))]

# -- model files ---------------------------------------------------------------------------------------------------

_KNOWN: set[bytes] = set()
ROWS = np.random.default_rng(3).poisson(1.0, size=(4, 5)) * 0.5

def moved(model: oc.MongeMap) -> bytes:
    """What a map makes of some rows, all of it finite."""
    d = model.n_features_in_
    rows = np.zeros((4, d)) if d <= 10_000 else None
    if rows is not None:
        rows[:, : min(d, 5)] = ROWS[:, : min(d, 5)]
    some = sp.csr_array(([1.0, 2.0], ([0, 1], [0, d - 1])), shape=(2, d)) if rows is None else sp.csr_array(rows)
    results = [model.displacement(some).data, model.transform(some).data, model.inverse_transform(some).data]
    results += [model.potential(some), model.weights(some)]
    if rows is not None:
        results += [model.transform(rows), model.potential(rows, "target"), model.f_, model.g_]
    for k, result in enumerate(results):
        if not np.isfinite(result).all():
            raise UnsoundError(f"result {k} is not finite")
    told = f"{model!r}{model.report_}{model.report_.to_dict()}{model.converged_}{model.n_iter_}"
    return b"".join(np.asarray(result).tobytes() for result in results) + told.encode(errors="backslashreplace")

def _make_model(kind: str, rng: Rng, whole: Path, where: Path) -> Path:
    path = pick(rng, whole / "models", "named*" if kind == "names edited" else "*")
    if kind == STRANGE:
        return strange(rng, where, path)
    (where / "m.occamap").write_bytes(files_model.forged(kind, path, rng))
    return where / "m.occamap"

def _read_model(path: Path, out: Path) -> str:
    model = oc.load(path)
    return UNHARMED if moved(model) in _KNOWN else OTHER

def _warm_model(whole: Path, out: Path) -> None:
    for path in sorted((whole / "models").iterdir()):
        model = oc.load(path)
        _KNOWN.add(moved(model))
        for dtype in (np.float32, np.float64):  # kernels for rows of either precision
            model.transform(ROWS.astype(dtype))

MODEL = Target((*files_model.KINDS, STRANGE), _make_model, _read_model, _warm_model)

def targets() -> dict[str, Target]:
    """All of them by name."""
    from soak import files_cells, files_runs

    return {"model file": MODEL, **files_runs.TARGETS, **files_cells.TARGETS}

def write_one(where: Path, name: str, content: bytes) -> Path:
    (where / name).write_bytes(content)
    return where / name

Any_ = Any
