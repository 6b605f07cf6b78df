"""Model files: the same map to the bit, whole or not at all, and no harm from a file that someone altered."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import zipfile
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from occamap import L1, STVS, GroupLasso, KOverlap, MongeMap, SqL2, Subspace, load, model_file
from occamap.errors import FeatureMismatchError, InputError, ModelFileError

COSTS = [SqL2(), L1(0.4), L1(0.4, [np.inf, 0, 1, 2, 1]), STVS(0.4), KOverlap(0.5, k=2), KOverlap(0.5, 2, squared=False)]
COSTS += [GroupLasso(0.7, {"a": [0, 2], "b": [1, 3, 4]}, l1_ratio=0.3), Subspace(0.5, np.eye(5)[:2])]
OVERLAPPING = GroupLasso(0.7, [[0, 1], [1, 2]], weights=[1, 2])
X, Y, Z = (np.random.default_rng(n).poisson(1.0, size=(n, 5)) * 0.5 for n in (30, 20, 10))


def results(m: MongeMap, wrap: Any = np.asarray) -> list[bytes]:
    moves, there, back = m.displacement(wrap(Z)), m.transform(wrap(Z)), m.inverse_transform(wrap(Z))
    arrays = [m.f_, m.g_, m.a_, m.b_, m.potential(wrap(Z)), m.plan(), moves.data, moves.indices, moves.indptr]
    arrays += [dense.toarray() if sp.issparse(dense) else np.asarray(dense) for dense in (there, back)]
    return [array.dtype.str.encode() + array.tobytes() for array in arrays]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    MongeMap(STVS(0.4), n_jobs=1).fit(sp.csr_array(X), sp.csr_array(Y)).save(tmp_path / "m.occamap")
    return tmp_path / "m.occamap"


def unpack(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    return json.loads(members.pop("meta.json")), members


def pack(path: Path, meta: Any, members: dict[str, bytes], sign: bool = True, **options: Any) -> Path:
    """A file beside `path` that is right but for what the test changed: the checksums are made to fit."""
    if isinstance(meta, dict) and sign:
        meta["manifest"] = {name: hashlib.sha256(content).hexdigest() for name, content in members.items()}
    with zipfile.ZipFile(path.with_name("forged"), "w", **options) as archive:
        for name, content in {**members, "meta.json": meta if isinstance(meta, bytes) else json.dumps(meta)}.items():
            archive.writestr(name, content)
        archive.comment = bytes(50_000)  # room for members that claim to be larger than they are
    return path.with_name("forged")


def refused(path: Path) -> bool:
    try:
        load(path)
    except ModelFileError:
        return True
    return False


def npy(array: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


@pytest.mark.filterwarnings("ignore::occamap.errors.NotConvergedWarning")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("cost", [*COSTS, OVERLAPPING])
def test_a_loaded_map_is_the_same_to_the_bit(cost: Any, wrap: Any, dtype: Any, tmp_path: Path) -> None:
    ties = "zero" if cost is OVERLAPPING else "occam"
    m = MongeMap(cost, epsilon=0.2, ties=ties, relax=0.5, reach=2, max_iter=500 if dtype == np.float64 else 2)
    m.fit(wrap(X.astype(dtype)), wrap(Y.astype(dtype)), np.arange(30), None)
    m.save(tmp_path / "m")
    twin = load(tmp_path / "m")
    assert results(twin, np.asarray) + results(twin, sp.csr_array) == results(m, np.asarray) + results(m, sp.csr_array)
    assert (twin.get_params(), twin.report_) == (m.get_params(), m.report_)
    assert (twin.epsilon_, twin.n_iter_, twin.n_features_in_) == (m.epsilon_, m.n_iter_, 5)
    assert twin.converged_ == m.converged_ == (dtype == np.float64)
    twin.save(str(tmp_path / "again"))
    assert (tmp_path / "again").read_bytes() == (tmp_path / "m").read_bytes()
    with np.load(tmp_path / "m", allow_pickle=False) as archive:
        np.testing.assert_array_equal(archive["g"], m.g_)


@pytest.mark.parametrize("names", [list("abcde"), range(5), ["α", "x y", "", "..", "None"]])
def test_feature_names_are_kept(names: Any, tmp_path: Path) -> None:
    frame, m = pd.DataFrame(Z, columns=names), MongeMap().fit(pd.DataFrame(X, columns=names), Y)
    m.save(tmp_path / "m")
    twin = load(tmp_path / "m")
    assert twin.feature_names_in_.tolist() == list(names)
    pd.testing.assert_frame_equal(twin.transform(frame), m.transform(frame))
    with pytest.raises(FeatureMismatchError):
        twin.transform(frame[frame.columns[::-1]])


def test_numpy_scalars_are_parameters_like_any_number(tmp_path: Path) -> None:
    cost = KOverlap(np.float32(0.5), np.int64(2), squared=np.True_)  # type: ignore[arg-type]
    m = MongeMap(cost, epsilon=np.float32(0.2), max_iter=np.int64(500), reach=np.float32(0.3), relax=np.float16(0.3))
    m.fit(X, Y).save(tmp_path / "m")
    plain = MongeMap(KOverlap(0.5, 2), float(m.epsilon), max_iter=500, reach=float(m.reach), relax=float(m.relax))
    assert results(load(tmp_path / "m")) == results(m) == results(plain.fit(X, Y))


@pytest.mark.parametrize("what", ["os.replace", "os.fsync", "occamap.model_file._write", "json.dumps"])
@pytest.mark.parametrize("failure", [OSError(28, "No space left"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_the_old_file(what: str, failure: Any, path: Path, monkeypatch: Any) -> None:
    before, other = path.read_bytes(), MongeMap(SqL2()).fit(X, Y)

    def fail(*arguments: Any, **options: Any) -> None:
        if "_write" in what:
            arguments[0].write(b"half of it")
        raise failure

    monkeypatch.setattr(what, fail)
    with pytest.raises(type(failure)):
        other.save(path)
    assert (path.read_bytes(), os.listdir(path.parent)) == (before, [path.name])


def test_saving_where_it_cannot_be_saved(tmp_path: Path) -> None:
    m = MongeMap().fit(X, Y)
    with pytest.raises(InputError, match="absent' does not"):
        m.save(tmp_path / "absent" / "m")
    with pytest.raises(InputError, match="is a directory"):
        m.save(tmp_path)
    with pytest.raises(InputError, match="cost must be one of"):
        MongeMap(type("Mine", (SqL2,), {})()).fit(X, Y).save(tmp_path / "m")
    assert os.listdir(tmp_path) == []


def test_a_truncated_file_is_an_error_at_every_length(path: Path) -> None:
    whole = path.read_bytes()
    for length in {*np.linspace(0, len(whole) - 1, 150).astype(int).tolist(), *range(len(whole) - 30, len(whole))}:
        path.write_bytes(whole[:length])
        assert refused(path)


def test_a_flipped_byte_is_found_or_harmless(path: Path) -> None:
    whole, rng, wanted, found = path.read_bytes(), np.random.default_rng(0), results(load(path)), []
    directory = whole.index(b"PK\x01\x02")
    for place in [*rng.integers(0, directory, 300), *range(directory, len(whole), 2)]:
        flipped = bytearray(whole)
        flipped[place] ^= 1 << rng.integers(8)
        path.write_bytes(flipped)
        found.append(refused(path))
        assert found[-1] or results(load(path)) == wanted, place
    assert np.mean(found) > 0.7


EDITS: dict[str, list[Any]] = {
    "format": ["other", None],
    "version": [model_file.VERSION + 1, 0, "1", None, [1]],
    "epsilon": [0, -1, np.nan, np.inf, "x", None, 10**400],
    "cost name": ["os.system", "Cost", "MongeMap", None, {}],
    "cost parameters gamma": [-1, np.nan, "1", None, {"array": "x"}, {"array": "f"}, {}, [1]],
    **{f"parameters {k}": ["x"] for k in ("evil", "ties", "reach", "max_iter", "n_jobs", "max_memory")},
    "feature_names": [["a"], 5, {"a": 1}],
    "source shape": [[30, 6], [29, 5], [30], [-30, -5], None, [30, 5, 1], [2**70, 5]],
    "target": [None, {"shape": [20, 5], "sparse": False}],
    "report": [None, {}, {"status": "fine"}],
}


@pytest.mark.parametrize("keys", EDITS)
def test_edited_meta_data_are_refused(keys: str, path: Path) -> None:
    for value in EDITS[keys]:
        meta, members = unpack(path)
        *parents, last = keys.split()
        reduce(dict.__getitem__, parents, meta)[last] = value
        assert refused(pack(path, meta, members)), value


def test_a_later_version_asks_for_an_upgrade(path: Path) -> None:
    meta, members = unpack(path)
    later = pack(path, {**meta, "version": 3, "versions": {"occamap": "9.9"}}, members)
    with pytest.raises(ModelFileError, match=r"forged.*version 3, written by occamap 9\.9.*upgrade"):
        load(later)


def test_a_width_that_no_memory_holds_is_refused(path: Path) -> None:
    meta, members = unpack(path)
    meta["source"]["shape"][1] = meta["target"]["shape"][1] = 2**50
    assert refused(pack(path, meta, members))


class Bomb:
    def __reduce__(self) -> Any:
        return Path.touch, (Path("code was run"),)


def lie(shape: Any, dtype: str = "<f8", fortran: bool = False, size: int = 160) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": dtype, "fortran_order": fortran, "shape": shape})
    return stream.getvalue() + bytes(size)


def test_arrays_that_are_not_what_they_seem_are_refused(path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(path.parent)
    bomb, stored, ones = np.array([Bomb()] * 30), int(np.sum(X != 0)), np.ones(30)
    bad: dict[str, list[bytes]] = {
        "f": [npy(bomb), pickle.dumps(bomb), b"", b"\x93NUMPY\x01\x00", npy(np.nan * ones), npy(ones[:, None])],
        "g": [lie(shape) for shape in ((21,), (19,), (2**60,), (-20,), (-5, -4), (20, 1), (), (True,) * 20)],
        "b": [lie((20,), dtype) for dtype in ("|O", ">f8", "<c8", "|V8", "<U2")] + [lie((20,), fortran=True)],
        "a": [npy(np.linspace(-1, 1, 30)), npy(np.zeros(0))],
        "source_data": [npy(np.zeros(3)), npy(np.full(stored, np.nan)), npy(np.zeros((30, 5)))],
        "source_indices": [npy(np.full(stored, index, np.int32)) for index in (5, -1, 2**30)],
        "source_indptr": [npy(np.arange(31)[::-1]), npy(np.full(31, 2**40)), npy(np.zeros(3, int))],
    }
    for name, contents in bad.items():
        for number, content in enumerate(contents):
            meta, members = unpack(path)
            assert refused(pack(path, meta, {**members, f"{name}.npy": content})), (name, number)
    assert not Path("code was run").exists()
    pickle.loads(pickle.dumps(bomb))
    assert Path("code was run").exists()


def test_archives_that_are_not_what_they_seem_are_refused(path: Path) -> None:
    (meta, members), wanted = unpack(path), results(load(path))
    for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        assert refused(pack(path, meta, members, compression=method))
    without = {name: content for name, content in members.items() if name != "g.npy"}
    for other in (without, {**members, "extra.npy": npy(np.zeros(1))}, {**members, "f.npy": members["a.npy"]}):
        assert refused(pack(path, meta, other, sign=False))
    assert refused(pack(path, dict(meta), without))
    for name in ("../evil.npy", str(path.parent / "evil.npy"), "..\\evil.npy", "f.npy/../../evil.npy"):
        forged = pack(path, meta, {**members, name: npy(np.zeros(1))})
        assert refused(forged) or results(load(forged)) == wanted
    assert sorted(os.listdir(path.parent)) == ["forged", path.name]
    assert not (path.parent.parent / "evil.npy").exists()


def test_files_of_another_kind_are_refused(path: Path) -> None:
    members, other = unpack(path)[1], path.with_name("other")
    for text in (b"", b"[]", b"null", b"{", b"\xff\xfe", b"[" * 100_000, b'{"format": "occamap-map"}', b"9" * 5000):
        assert refused(pack(path, text, members))
    for content in (b"", b"PK\x05\x06" + bytes(18), b"text\n" * 100, pickle.dumps({"a": 1}), npy(np.zeros(5))):
        other.write_bytes(content)
        assert refused(other)
    with pytest.raises(FileNotFoundError):
        load(path.with_name("absent"))
    with pytest.raises((ModelFileError, IsADirectoryError)):
        load(path.parent)


def test_a_map_of_large_samples_is_read_back(tmp_path):
    """Its ε is above 2⁶³."""
    X, Y = 1e12 * np.random.default_rng(0).normal(size=(2, 20, 3))
    m = MongeMap(SqL2()).fit(X, Y)
    assert m.epsilon_ > 2**63
    m.save(tmp_path / "map.occamap")
    np.testing.assert_array_equal(load(tmp_path / "map.occamap").transform(X), m.transform(X))


def test_save_refuses_a_map_that_load_would_refuse(tmp_path):
    X, Y = [[0.0], [1e-10], [2e-10], [1e9]], [[0.0], [1e-10]]
    m = MongeMap(SqL2(), epsilon=1.2, epsilon_scale="perplexity", tol=1e-2).fit(X, Y)
    with pytest.raises(InputError, match="too small for its potentials"):
        m.save(tmp_path / "map.occamap")
