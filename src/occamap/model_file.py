"""One file for a fitted map: a ZIP archive of `.npy` arrays and a `meta.json`, never pickled, never compressed.

Members are stored as they are, so that a file is as large as what it holds and cannot unpack to more. Each has
its SHA-256 in the manifest of `meta.json`; the format is described in docs/model-file.md. `numpy.load` opens it.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from occamap._validate import Samples
from occamap._version import __version__
from occamap.costs import L1, STVS, Cost, KOverlap, SqL2
from occamap.errors import InputError, ModelFileError
from occamap.maps import MongeMap
from occamap.sinkhorn import Report, Solution

FORMAT = "occamap-map"
VERSION = 1
COSTS: dict[str, type[Cost]] = {"SqL2": SqL2, "L1": L1, "STVS": STVS, "KOverlap": KOverlap}
META = "meta.json"
DTYPES = ("<f8", "<f4", "<i8", "<i4")
_LARGEST_META = 2**26

Arrays = dict[str, NDArray[Any]]


def save(model: MongeMap, path: str | os.PathLike[str]) -> None:
    """Write a fitted map; the file appears whole or not at all."""
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(model, "g_")
    arrays: Arrays = {"f": model.f_, "g": model.g_, "a": model.a_, "b": model.b_}
    meta: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "versions": {"occamap": __version__, "numpy": np.__version__, "python": platform.python_version()},
        "cost": _describe_cost(model._towards.cost, arrays),
        "parameters": {k: v for k, v in model.get_params(deep=False).items() if k != "cost"},
        "cost_given": model.cost is not None,
        "epsilon": model.epsilon_,
        "report": model.report_.to_dict(),
        "feature_names": [str(name) for name in getattr(model, "feature_names_in_", [])] or None,
        "source": _describe_samples("source", model._source, arrays),
        "target": _describe_samples("target", model._target, arrays),
    }
    target = Path(path)
    if target.is_dir():
        raise InputError(f"path must name a file; {str(target)!r} is a directory")
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            _write(stream, meta, arrays)
            stream.flush()
            os.fsync(stream.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def load(path: str | os.PathLike[str]) -> MongeMap:
    """Read a map written by `MongeMap.save`; it gives the same results to the bit.

    Raises `ModelFileError` for a file that is truncated, altered, of a later version, or something else.
    """
    name = str(path)
    try:
        size = os.path.getsize(path)
        with zipfile.ZipFile(path) as archive:
            meta, arrays = _read(archive, size, name)
        return _build(meta, arrays)
    except ModelFileError:
        raise
    except (OSError, MemoryError):
        raise
    except zipfile.BadZipFile as error:
        raise ModelFileError(f"{name!r} is not a model file, or it is truncated: {error}") from error
    except Exception as error:  # whatever a hostile file makes the parsers raise
        raise ModelFileError(f"{name!r} is damaged: {type(error).__name__}: {error}") from error


def _write(stream: Any, meta: dict[str, Any], arrays: Arrays) -> None:
    manifest = {}
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for key, array in arrays.items():
            member = io.BytesIO()
            little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
            np.lib.format.write_array(member, little, version=(1, 0), allow_pickle=False)
            view = member.getbuffer()
            manifest[f"{key}.npy"] = hashlib.sha256(view).hexdigest()
            archive.writestr(zipfile.ZipInfo(f"{key}.npy"), bytes(view))
        text = json.dumps({**meta, "manifest": manifest}, allow_nan=False, indent=1)
        archive.writestr(zipfile.ZipInfo(META), text)


def _read(archive: zipfile.ZipFile, size: int, name: str) -> tuple[dict[str, Any], Arrays]:
    members = {info.filename: info for info in archive.infolist()}
    if META not in members or len(members) != len(archive.infolist()):
        raise ModelFileError(f"{name!r} is not a model file: it has no single {META}")
    stored = all(info.compress_type == zipfile.ZIP_STORED for info in members.values())
    if not stored or sum(info.file_size for info in members.values()) > size:
        raise ModelFileError(f"{name!r} is damaged: its members are not stored plainly within the file")
    if members[META].file_size > _LARGEST_META:
        raise ModelFileError(f"{name!r} is damaged: {META} has {members[META].file_size} bytes")
    meta = json.loads(archive.read(META))
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise ModelFileError(f"{name!r} is not a model file: its format is not {FORMAT!r}")
    if meta.get("version") != VERSION:
        wrote = meta.get("versions", {}).get("occamap", "unknown")
        raise ModelFileError(
            f"{name!r} has format version {meta.get('version')!r}, written by occamap {wrote}; this occamap "
            f"{__version__} reads version {VERSION}: upgrade occamap, or save the map again with this one"
        )
    manifest = meta["manifest"]
    if set(manifest) != set(members) - {META}:
        raise ModelFileError(f"{name!r} is damaged: its members are not those of its manifest")
    arrays = {}
    for member, digest in manifest.items():
        content = archive.read(member)
        if hashlib.sha256(content).hexdigest() != digest:
            raise ModelFileError(f"{name!r} was altered: {member} does not match its checksum")
        arrays[member.removesuffix(".npy")] = _array(content, member)
    return meta, arrays


def _array(content: bytes, member: str) -> NDArray[Any]:
    """An array from the bytes of a .npy file, its header checked against what is there before memory is taken."""
    stream = io.BytesIO(content)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ModelFileError(f"{member} has an unknown array format")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    data = memoryview(content)[stream.tell() :]
    if fortran or dtype.str not in DTYPES or dtype.itemsize * int(np.prod(shape, dtype=object)) != len(data):
        raise ModelFileError(f"{member} does not hold the array that its header promises")
    array: NDArray[Any] = np.frombuffer(data, dtype=dtype).reshape(shape)
    return array.astype(dtype.newbyteorder("="), copy=not dtype.isnative)


def _describe_cost(cost: Cost, arrays: Arrays) -> dict[str, Any]:
    name = type(cost).__name__
    if COSTS.get(name) is not type(cost):
        raise InputError(f"cost must be one of {', '.join(COSTS)} to be saved; got {cost!r}")
    entries = {key: getattr(cost, key) for key in cost.__dataclass_fields__}  # type: ignore[attr-defined]
    for key, value in list(entries.items()):
        if isinstance(value, np.ndarray):
            arrays[f"cost_{key}"] = value
            entries[key] = {"array": f"cost_{key}"}
    return {"name": name, "parameters": entries}


def _describe_samples(side: str, samples: Samples, arrays: Arrays) -> dict[str, Any]:
    arrays[f"{side}_data"] = samples.data
    if samples.indices is not None and samples.indptr is not None:
        arrays[f"{side}_indices"], arrays[f"{side}_indptr"] = samples.indices, samples.indptr
    return {"shape": list(samples.shape), "sparse": samples.is_sparse}


def _build(meta: dict[str, Any], arrays: Arrays) -> MongeMap:
    parameters = meta["cost"]["parameters"]
    for key, value in parameters.items():
        if isinstance(value, dict):
            parameters[key] = arrays[value["array"]]
    cost = COSTS[meta["cost"]["name"]](**parameters)
    model = MongeMap(cost if meta["cost_given"] else None, **meta["parameters"])
    model._check_parameters()
    names = np.array(meta["feature_names"], dtype=object) if meta["feature_names"] else None
    source, target = (_samples(meta[side], side, arrays, names) for side in ("source", "target"))
    f, g, a, b = (arrays[key] for key in "fgab")
    epsilon = float(meta["epsilon"])
    shapes = {source.shape[1] == target.shape[1], f.shape == a.shape == source.shape[:1], g.shape == b.shape == target.shape[:1]}
    sound = shapes == {True} and epsilon > 0 and all(np.isfinite(v).all() for v in (f, g, a, b))
    if not sound or (names is not None and names.size != source.shape[1]) or min(a.min(), b.min()) < 0:
        raise ModelFileError("its parts do not fit together")
    cost._check_features(source.shape[1])
    report = Report.from_dict(meta["report"])
    solution = Solution(f, g, epsilon, report.status, report.errors, report.effective_targets)
    model._keep(cost, source, target, a, b, solution)
    model.report_ = report
    model._set_outcome()
    return model


def _samples(entry: dict[str, Any], side: str, arrays: Arrays, names: Any) -> Samples:
    """Samples as saved, through the same gate as any input."""
    from scipy.sparse import csr_array

    from occamap._validate import check_samples

    data, shape = arrays[f"{side}_data"], tuple(entry["shape"])
    if entry["sparse"]:
        raw = csr_array((data, arrays[f"{side}_indices"], arrays[f"{side}_indptr"]), shape=shape)
        samples = check_samples(raw, side)
    else:
        samples = check_samples(data, side)
    if samples.shape != shape or samples.dtype != data.dtype:
        raise ModelFileError(f"the {side} samples do not have the shape that is written beside them")
    return Samples(samples.shape, samples.data, samples.indices, samples.indptr, names)
