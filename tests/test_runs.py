"""Runs: the record, the directory, and files of cells, whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from occamap._files import check_target, replacing_path, replacing_paths
from occamap.errors import InputError, NotConvergedWarning, OccamapError, RunFileError
from occamap.run_record import _LARGEST, DataFile, RunRecord
from occamap.runs.directory import file_name, output_directory, writing
from occamap.runs.heard import hearing

anndata = pytest.importorskip("anndata")
h5py = pytest.importorskip("h5py")

from occamap import _h5ad as cells  # noqa: E402
from occamap._backed import is_backed  # noqa: E402


def record(**changed) -> RunRecord:
    entries = {
        "command": "fit",
        "data": DataFile("/some/where \udcff.h5ad", "0" * 64, (3, 4)),
        "parameters": {"gamma": np.float64(1.0), "layer": None, "grid": (1, 2)},
        "result": {"epsilon": float("inf"), "density": np.float32(0.5), "message": "γ"},
        "warnings": ("one",),
        "versions": {"occamap": "0"},
        "seed": 0,
        "seconds": 1.5,
        "started": "2026-01-01T00:00:00+00:00",
        "files": {"map": "map.occamap"},
    }
    return RunRecord(**{**entries, **changed})


# -- record ------------------------------------------------------------------------------------------------------


def test_a_record_reads_as_it_was_written(tmp_path):
    record().write(tmp_path / "run.json")
    found = RunRecord.read(tmp_path)
    assert found == RunRecord.read(tmp_path / "run.json")
    assert found.data == record().data
    assert found.parameters == {"gamma": 1.0, "layer": None, "grid": [1, 2]}
    assert found.result == {"epsilon": None, "density": 0.5, "message": "γ"}
    assert found.to_dict() == record().to_dict()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("command", 3),
        ("data", {"path": "x", "sha256": "0" * 63, "shape": [1, 2]}),
        ("data", {"path": "x", "sha256": "0" * 64, "shape": [1, -2]}),
        ("data", {"path": "x", "sha256": "0" * 64, "shape": [1, 2, 3]}),
        ("data", []),
        ("parameters", None),
        ("result", "fine"),
        ("warnings", "one"),
        ("warnings", [1]),
        ("versions", {"occamap": 1}),
        ("seed", -1),
        ("seed", True),
        ("seconds", "1"),
        ("seconds", -1),
        ("seconds", 10**400),
        ("started", 0),
        ("files", {"map": "../map.occamap"}),
        ("files", {"map": "/etc/passwd"}),
        ("files", {"map": ".."}),
        ("files", {"map": "a\\b"}),
        ("files", ["map.occamap"]),
        ("format", "occamap-map"),
        ("version", 2),
    ],
)
def test_a_record_that_was_altered_is_refused(name, value, tmp_path):
    (tmp_path / "run.json").write_text(json.dumps({**record().to_dict(), name: value}))
    with pytest.raises(RunFileError, match="not a run record"):
        RunRecord.read(tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"format": "occamap-run"}', b"1" * 5000]
)
def test_something_else_is_no_record(content, tmp_path):
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(RunFileError, match="not a run record"):
        RunRecord.read(tmp_path / "run.json")


def test_each_part_of_a_record_is_needed(tmp_path):
    for name in set(record().to_dict()) - {"digests"}:  # which records had none of at first
        entries = record().to_dict()
        del entries[name]
        (tmp_path / "run.json").write_text(json.dumps(entries))
        with pytest.raises(RunFileError):
            RunRecord.read(tmp_path)
    (tmp_path / "run.json").write_bytes(b" " * (_LARGEST + 1))
    with pytest.raises(RunFileError, match="bytes"):
        RunRecord.read(tmp_path)
    (tmp_path / "run.json").unlink()
    with pytest.raises(FileNotFoundError):
        RunRecord.read(tmp_path)


@given(
    st.recursive(
        st.none() | st.floats() | st.text() | st.integers(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_any_result_can_be_recorded(value):
    told = json.dumps(record(result={"x": value}).to_dict(), allow_nan=False)
    assert json.loads(told)["format"] == "occamap-run"


def test_the_data_are_known_by_their_content(tmp_path):
    (tmp_path / "x").write_bytes(b"abc")
    found = DataFile.of(tmp_path / "x", (1, 2))
    assert found.sha256 == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


# -- directory ---------------------------------------------------------------------------------------------------


@given(st.text())
def test_any_text_makes_a_file_name(text):
    name = file_name("genes_by_", text, ".csv")
    assert name == os.path.basename(name)
    assert name.isprintable()
    assert len(os.fsencode(name)) < 120


def test_a_directory_that_was_made_goes_when_the_work_fails(tmp_path):
    (tmp_path / "there").mkdir()

    def work(out, name):
        with output_directory(out, ["x"]) as directory:
            (directory / name).touch() if name else directory.stat()
            raise RuntimeError

    for out, name in ((tmp_path / "a" / "b", ""), (tmp_path / "there", ""), (tmp_path / "c", "kept")):
        with pytest.raises(RuntimeError):
            work(out, name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c", "there"]
    assert (tmp_path / "c" / "kept").exists()


@pytest.mark.parametrize("out", ["", "/dev/null/x", "a\0b", 3, None])
def test_where_nothing_can_be_written(out):
    with pytest.raises(InputError, match="out must"), output_directory(out, ["x"]):
        pass
    with pytest.raises(InputError, match="out must"):
        check_target(out)


def test_files_appear_together_or_not_at_all(tmp_path):
    (tmp_path / "a").write_text("old")

    def fail(part):
        part.write_text("new")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space") as caught, writing(tmp_path, ["a", "b"]) as parts:
        fail(parts["a"])
    assert caught.value.filename == str(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "old"
    with writing(tmp_path, ["a", "b"]) as parts:
        for name, part in parts.items():
            part.write_text(name)
    assert [(tmp_path / name).read_text() for name in "ab"] == ["a", "b"]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_file_has_the_permissions_of_any_other(tmp_path):
    (tmp_path / "plain").touch()
    with replacing_path(tmp_path / "x") as part:
        part.write_text("x")
    assert (tmp_path / "x").stat().st_mode == (tmp_path / "plain").stat().st_mode
    with pytest.raises(FileNotFoundError), replacing_paths([tmp_path / "y", tmp_path / "no" / "z"]):
        pass
    assert not list(tmp_path.glob(".*"))


# -- warnings ----------------------------------------------------------------------------------------------------


def test_own_warnings_are_heard_and_shown():
    with warnings.catch_warnings(record=True) as shown, hearing() as outer:
        warnings.simplefilter("always")
        for _ in range(2):
            warnings.warn("not\n  yet", NotConvergedWarning, stacklevel=1)
        with hearing(show=False) as inner:
            warnings.warn("hidden", NotConvergedWarning, stacklevel=1)
            warnings.warn("another's", UserWarning, stacklevel=1)
    assert outer == ["not yet", "not yet"]
    assert inner == ["hidden"]
    assert [str(entry.message) for entry in shown] == ["not\n  yet", "not\n  yet", "another's"]


# -- cells -------------------------------------------------------------------------------------------------------


def some_cells(n: int = 50):
    adata = anndata.AnnData(sp.random(n, 200, density=0.3, format="csr", dtype=np.float32, random_state=0))
    adata.layers["more"] = adata.X.copy()
    adata.obs["group"] = ["a", "b"] * (n // 2)
    adata.uns["entry"] = {"x": 1.0, "text": "ε"}
    return adata


def test_cells_are_read_as_they_were_written(tmp_path):
    adata = some_cells()
    cells.write(adata, tmp_path / "x.h5ad")
    for backed in (False, True):
        found = cells.read(tmp_path / "x.h5ad", backed=backed)
        with cells.using(found, tmp_path / "x.h5ad"):
            assert (is_backed(found.X), is_backed(found.layers["more"])) == (backed, backed)
            assert abs(found.X[:] - adata.X).max() == 0
            assert abs(found.layers["more"][:] - adata.X).max() == 0
            assert found.obs["group"].tolist() == adata.obs["group"].tolist()
            assert found.uns["entry"] == {"x": 1.0, "text": "ε"}
    assert [path.name for path in tmp_path.iterdir()] == ["x.h5ad"]


@pytest.mark.parametrize("empty", [False, True])
def test_anndata_reads_the_same_from_its_own_writer(empty, tmp_path):
    adata = some_cells()
    if empty:
        adata.X = None
    cells.write(adata, tmp_path / "x.h5ad")
    adata.write_h5ad(tmp_path / "y.h5ad")
    with h5py.File(tmp_path / "x.h5ad") as one, h5py.File(tmp_path / "y.h5ad") as other:
        assert dict(one.attrs) == dict(other.attrs)
        assert set(one) == set(other)


def test_numbers_that_are_damaged_are_told_of_when_they_are_read(tmp_path):
    some_cells().write_h5ad(tmp_path / "x.h5ad", compression="gzip")
    with h5py.File(tmp_path / "x.h5ad") as file:
        where = file["X/data"].id.get_chunk_info(0)
    content = bytearray((tmp_path / "x.h5ad").read_bytes())
    content[where.byte_offset : where.byte_offset + where.size] = bytes(where.size)
    (tmp_path / "x.h5ad").write_bytes(content)
    with pytest.raises(InputError, match="damaged or truncated"):
        cells.read(tmp_path / "x.h5ad")
    adata = cells.read(tmp_path / "x.h5ad", backed=True)
    with pytest.raises(InputError, match="damaged or truncated"), cells.using(adata, tmp_path / "x.h5ad"):
        adata.X[:]


def test_other_hdf5_files_are_no_cells(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["a"] = 1
    with pytest.raises(InputError, match="is HDF5, but has no obs"):
        cells.read(tmp_path / "x.h5")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["obs"], file["var"] = 1, 2
    with pytest.raises(InputError, match="damaged or truncated"):
        cells.read(tmp_path / "x.h5")


def test_what_hdf5_cannot_hold_is_an_error_and_no_file(tmp_path):
    adata = some_cells()
    adata.uns["thing"] = object()
    with pytest.raises(OccamapError, match="cannot be written"):
        cells.write(adata, tmp_path / "x.h5ad")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="no such limits there")
def test_a_full_disk_is_an_error_and_no_file(tmp_path):
    """A limit to the size of files stands for it: HDF5 by itself ends the process."""
    code = f"""
import resource, sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
from pathlib import Path
from test_runs import cells, some_cells
adata = some_cells(400)
adata.uns |= {{f"entry {{k}}": {{"text": "x" * k}} for k in range(30)}}
for limit in (0, 1000, 20_000, 50_000, 100_000, 200_000, 400_000):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        cells.write(adata, Path("x.h5ad"))
    except OSError as error:
        print(error.errno, error.strerror, error.filename)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout == f"{errno.EFBIG} File too large x.h5ad\n" * 7
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="no such signals there")
def test_an_interrupt_while_cells_are_written_leaves_no_file(tmp_path, monkeypatch):
    import anndata.io as io

    real = io.write_elem

    def interrupted(*args):
        assert threading.current_thread() is not threading.main_thread()
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        time.sleep(0.2)
        real(*args)

    monkeypatch.setattr(io, "write_elem", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background may ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            cells.write(some_cells(), tmp_path / "x.h5ad")
    finally:
        signal.signal(signal.SIGINT, before)
    assert list(tmp_path.iterdir()) == []


def test_a_sink_whose_file_is_closed_does_not_fail(tmp_path):
    """What HDF5 still has to write when an error has closed the file, and its objects are collected."""
    from occamap._sink import Sink

    with (tmp_path / "x").open("w+b", buffering=0) as raw:
        sink = Sink(raw)
        sink.write(b"abc")
    assert sink.write(b"def") == 3
    assert sink.truncate(5) == 5
    sink.seek(0)
    assert sink.read(4) == b"\0\0\0d"  # what the disk had is gone, what it did not take is there
    assert (tmp_path / "x").read_bytes() == b"abc"
