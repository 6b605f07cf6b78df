"""A share of the soak of damaged files, and one test for each guard that it rests on."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import occamap as oc
from occamap import L1, GroupLasso, MongeMap, load, model_file
from occamap.errors import InputError, MemoryBudgetError, ModelFileError, RunFileError
from occamap.maps import saved
from occamap.run_record import NAME, RunRecord
from soak import files, files_seeds, fuzz
from soak.files_model import array, listed, npy, raw_npy, unpacked
from soak.files_zip import Member, archive
from soak.tally import Tally

anndata = pytest.importorskip("anndata")
h5py = pytest.importorskip("h5py")
zarr = pytest.importorskip("zarr")

from occamap import _h5ad  # noqa: E402
from occamap.tl.cells import numbers  # noqa: E402
from occamap.tl.gmt import read_gmt  # noqa: E402

RNG = np.random.default_rng(0)
X, Y = files_seeds.X, files_seeds.Y
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is measured as Linux shows it")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_share_of_the_damaged_files():
    tally, some = Tally("files", share=0.02), ("model file", "run record", "zarr")
    files.run(tally, some)
    assert not tally.faults
    assert tally.total() == 160 + 30 + 10
    assert {what.partition(":")[0] for what in tally.counts} == set(some)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_share_of_the_fuzzing():
    tally = Tally("fuzz", share=0.01)
    fuzz.run(tally, ("model file",))
    assert not tally.faults
    assert set(tally.counts) == {"model file"}


def test_without_atheris_fuzzing_says_that_it_is_skipped(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    tally = Tally("fuzz", share=0.01)
    fuzz.run(tally)
    assert all(dict(endings) == {fuzz.ABSENT: 1} for endings in tally.counts.values())


WATCHED = """
import json, os, pickle, sys
from pathlib import Path
import numpy as np
from soak.files_child import Watch, one
from soak.files_model import Canary
from soak.files_targets import Target

def make(kind, rng, whole, where):
    (where / "x").write_bytes(pickle.dumps(Canary()))
    return where / "x"

def writes(path, out):
    (out.parent / "elsewhere").write_text("x")
    return "read"

reads = {
    "unpickles": lambda path, out: str(pickle.loads(path.read_bytes())),
    "writes": writes,
    "fails": lambda path, out: [][0],
    "takes": lambda path, out: f"read {len(b'x' * 300_000_000)}",
    "is sound": lambda path, out: "read",
}
work = Path(sys.argv[1])
(work / "out").mkdir(), (work / "empty").mkdir()
os.chdir(work / "empty")
watch, said = Watch(work / "out"), {}
for name, read in reads.items():
    said[name] = one(Target(("x",), make, read, None), "x", None, work, work, watch)
    for left in (work / "empty").iterdir():
        left.rmdir()
print(json.dumps(said))
"""


def test_the_watch_sees_code_that_runs_files_that_appear_and_memory(tmp_path):
    asked = [sys.executable, "-c", WATCHED, str(tmp_path)]
    done = subprocess.run(asked, capture_output=True, text=True, check=True, cwd=Path(files.__file__).parent.parent)
    said = json.loads(done.stdout)
    assert said["unpickles"]["ending"].startswith("fault")
    assert "opened for writing" in said["writes"]["ending"]
    assert said["fails"]["ending"].startswith("fault: IndexError")
    assert said["takes"]["rise"] > 250e6
    assert (said["is sound"]["ending"], said["is sound"]["rise"] < 20e6) == ("read", True)


def test_a_process_that_dies_or_hangs_is_a_fault_and_the_next_goes_on(monkeypatch, tmp_path):
    script = tmp_path / "bin"
    script.write_text(
        "#!/bin/sh\n"
        "echo '{\"number\": '$7', \"kind\": \"k\"}'\n"
        "if [ $7 = 0 ]; then kill -SEGV $$; fi\nif [ $7 = 1 ]; then exec sleep 60; fi\n"
        "echo '{\"ending\": \"read\"}'\n"
    )
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    monkeypatch.setattr(files, "PATIENCE", 0.5)
    batch = files.Batch("model file", 0, 3, 0, tmp_path).run()
    endings = [said["ending"] for _, said in batch.found]
    assert "ended with -11" in endings[0]
    assert "no end" in endings[1]
    assert endings[2] == "read"


# -- model files ---------------------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path):
    MongeMap(L1(0.4), n_jobs=1).fit(sp.csr_array(X), sp.csr_array(Y)).save(tmp_path / "m.occamap")
    return tmp_path / "m.occamap"


def forge(path: Path, meta: Any, members: dict[str, bytes]) -> Path:
    path.write_bytes(archive(listed(meta, members, RNG)))
    return path


EDITS: dict[str, tuple[Any, str]] = {
    "cost_given": (False, "cost"),
    "epsilon": ("0.5", "epsilon"),
    "report n_iter": ("many", "'n_iter' of its report"),
    "report seconds": (10**300, "'seconds' of its report"),
    "report errors": ([None], "'errors' of its report"),
    "report n_targets": (3, "another fit"),
    "parameters n_jobs": (10**6, "threads"),
    "feature_names": ([["a", "b"], ["c", "d"], ["e", "f"], ["g", "h"], ["i", "j"]], "feature names"),
}


@pytest.mark.parametrize("keys", EDITS)
def test_meta_data_are_what_they_are_said_to_be(keys, path):
    value, told = EDITS[keys]
    meta, members = unpacked(path)
    *parents, last = keys.split()
    at = meta
    for parent in parents:
        at = at[parent]
    at[last] = value
    with pytest.raises(ModelFileError, match=told):
        load(forge(path, meta, members))


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [('"tol": 0.0001', '"tol": NaN', "not finite"), ('"tol": 0.0001', '"tol": 1, "tol": 0.0001', "twice")],
)
def test_json_is_read_as_it_is_written(before, after, told, path):
    meta, members = unpacked(path)
    made = listed(meta, members, RNG)
    text = made[-1].content.decode()
    assert text.count(before) == 2  # of the parameters, and of the report
    path.write_bytes(archive([*made[:-1], Member(b"meta.json", text.replace(before, after, 1).encode())]))
    with pytest.raises(ModelFileError, match=told):
        load(path)


ARRAYS: dict[str, tuple[Any, str]] = {
    "f.npy": (lambda found: found.astype(np.float32), "fit together"),
    "a.npy": (lambda found: 2 * found, "add up"),
    "g.npy": (lambda found: np.where(np.arange(found.size) == 3, -1e20, found), "too small"),
    "source_indices.npy": (lambda found: found.astype(np.float64), "whole numbers"),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_are_what_they_are_said_to_be(name, path):
    change, told = ARRAYS[name]
    meta, members = unpacked(path)
    with pytest.raises(ModelFileError, match=told):
        load(forge(path, meta, {**members, name: npy(change(array(members[name])))}))


@pytest.mark.parametrize("side", ["source", "target"])
def test_row_pointers_that_end_at_no_entry_lead_nowhere_else(side, path):
    """SciPy checks the order of row pointers only where the last is not 0."""
    meta, members = unpacked(path)
    indptr = array(members[f"{side}_indptr.npy"]).copy()
    indptr[-1] = 0
    data, indices = (array(members[f"{side}_{part}.npy"]) for part in ("data", "indices"))
    sp.csr_array((data, indices, indptr), shape=(indptr.size - 1, 5)).check_format(full_check=True)
    with pytest.raises(ModelFileError, match="non-decreasing"):
        load(forge(path, meta, {**members, f"{side}_indptr.npy": npy(indptr)}))


def test_the_header_of_an_array_is_not_evaluated(path, monkeypatch):
    monkeypatch.setattr("ast.literal_eval", lambda *_: pytest.fail("evaluated"))
    meta, members = unpacked(path)
    load(forge(path, meta, members))
    for header in ("{'descr': '<f8', 'fortran_order': False, 'shape': (30L,), }", "-" * 9000 + "1", "(30,)"):
        with pytest.raises(ModelFileError, match="the array that it promises"):
            load(forge(path, meta, {**members, "f.npy": raw_npy(header, bytes(240))}))


def test_sizes_of_groups_do_not_wrap_around(tmp_path):
    cost = GroupLasso(0.7, {"a": [0, 2], "b": [1, 3, 4]})
    MongeMap(cost, n_jobs=1).fit(X, Y).save(tmp_path / "m")
    meta, members = unpacked(tmp_path / "m")
    groups = meta["cost"]["parameters"]["groups"]
    groups["names"] = [f"g{k}" for k in range(65)]
    sizes = np.array([2**58] * 64 + [5])
    with pytest.raises(ModelFileError, match="sizes that are written beside them"):
        load(forge(tmp_path / "m", meta, {**members, "cost_groups_sizes.npy": npy(sizes)}))


def test_a_width_that_this_machine_cannot_hold_is_a_typed_error(path, monkeypatch):
    meta, members = unpacked(path)
    for side in ("source", "target"):
        meta[side]["shape"][1] = 2**24
    forge(path, meta, members)
    assert load(path).n_features_in_ == 2**24
    monkeypatch.setattr(saved, "available", lambda: 1e9)
    with pytest.raises(MemoryBudgetError, match=r"m\.occamap' cannot be used: its 16,777,216 features need"):
        load(path)


def test_memory_that_is_not_there_is_a_typed_error(path):
    def build(meta: Any, arrays: Any) -> None:
        raise MemoryError

    with pytest.raises(MemoryBudgetError, match="claims to be"):
        model_file.read(path, build)


def test_the_directory_of_an_archive_is_bounded_before_it_is_read(path):
    meta, members = unpacked(path)
    path.write_bytes(archive([*listed(meta, members, RNG), *(Member(b"%d" % k, b"") for k in range(20_000))]))
    with pytest.raises(ModelFileError, match="its directory has more than"):
        load(path)


def test_members_take_no_more_than_they_say(path):
    meta, members = unpacked(path)
    made = listed(meta, members, RNG)
    made[0] = Member(made[0].name, made[0].content, central={"packed": 2**31 - 1})
    path.write_bytes(archive(made))
    with pytest.raises(ModelFileError, match="not stored plainly"):
        load(path)


def test_no_more_is_asked_of_a_file_than_it_has(path):
    with model_file._Bounded(path) as stream:
        assert len(stream.read(2**40)) == path.stat().st_size
        assert stream.read(2**40) == b""


def test_errors_are_one_plain_sentence(path):
    meta, members = unpacked(path)
    for name in ("\x1b[2J\n" * 100, "x" * 10**5):
        with pytest.raises(ModelFileError) as caught:
            load(forge(path, {**meta, "cost": {**meta["cost"], "name": name}}, members))
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 600
    with pytest.raises(ModelFileError) as caught:
        load(forge(path, {**meta, "version": "9" * 10**5, "versions": {"occamap": "\x1b[2J" * 10**4}}, members))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 600


@contextmanager
def offering(path: Path) -> Iterator[None]:
    """A pipe with something in it, so that a reader without a guard fails, and does not hang."""
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"{}",))
    writer.start()
    try:
        yield
    finally:
        held = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        writer.join()
        os.close(held)


@pytest.mark.parametrize("read", [load, RunRecord.read])
def test_pipes_are_not_waited_for(read, tmp_path):
    with offering(tmp_path / "pipe"), pytest.raises((ModelFileError, RunFileError), match="no plain file"):
        read(tmp_path / "pipe")
    with pytest.raises((ModelFileError, RunFileError)):
        read("a\0b")


# -- runs and gene sets --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    where = tmp_path_factory.mktemp("runs")
    files_seeds.runs(where)
    return where / "fit"


def test_lines_too_short_for_their_head_take_no_memory(run, tmp_path):
    made = Path(shutil.copytree(run, tmp_path / "run"))
    head = (made / "cells.csv").read_bytes().partition(b"\n")[0]
    (made / "cells.csv").write_bytes(head + b",x" * 1000 + b"\n" * 10**5)
    record = json.loads((made / NAME).read_text())
    record["digests"]["cells"] = hashlib.sha256((made / "cells.csv").read_bytes()).hexdigest()
    (made / NAME).write_text(json.dumps(record))
    with pytest.raises(RunFileError, match="shorter than its head"):
        oc.report(made)


def test_what_a_parser_says_of_a_table_is_one_line(run, tmp_path):
    made = Path(shutil.copytree(run, tmp_path / "run"))
    content = (made / "cells.csv").read_bytes() + b"a,b,c,d,e,f,g\n"
    (made / "cells.csv").write_bytes(content)
    record = json.loads((made / NAME).read_text())
    record["digests"]["cells"] = hashlib.sha256(content).hexdigest()
    (made / NAME).write_text(json.dumps(record))
    with pytest.raises(RunFileError, match="not a table that can be read") as caught:
        oc.report(made)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ['{"a": NaN}', '{"a": 1e999}', '{"a": 1, "a": 2}', "[" * 10**5, '{"format": "occamap-run", "version": 1e2}']
)
def test_records_are_strict_json(text, tmp_path):
    (tmp_path / NAME).write_text(text)
    with pytest.raises(RunFileError) as caught:
        RunRecord.read(tmp_path)
    told = {"N": "not finite", "1e9": "not finite", '1, "a': "twice", "[[": "without end", "1e2": "version"}
    assert next(words for mark, words in told.items() if mark in text) in str(caught.value)


def test_numbers_beyond_all_counts_are_no_seed(run, tmp_path):
    record = json.loads((run / NAME).read_text())
    (tmp_path / NAME).write_text(json.dumps({**record, "seed": 10**300}))
    with pytest.raises(RunFileError, match="'seed'"):
        RunRecord.read(tmp_path)


def test_a_line_of_a_packed_file_of_gene_sets_is_bounded(tmp_path):
    (tmp_path / "x.gmt").write_bytes(gzip.compress(b"a\tb\t" + b"x\t" * 10**6))
    with pytest.raises(InputError, match="bytes a line"):
        list(read_gmt(tmp_path / "x.gmt"))


# -- cells ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    where = tmp_path_factory.mktemp("cells")
    files_seeds.stores(where)
    return where


@pytest.fixture
def h5ad(cells, tmp_path):
    return Path(shutil.copy(cells / "csr.h5ad", tmp_path / "x.h5ad"))


@pytest.fixture
def store(cells, tmp_path):
    return Path(shutil.copytree(cells / "csr.zarr", tmp_path / "x.zarr"))


@pytest.mark.parametrize("part", ["X", "layers/more"])
@pytest.mark.parametrize(("place", "value"), [("indptr", -3), ("indices", 1000), ("indices", -1)])
def test_sparse_matrices_that_lead_elsewhere_are_found_when_they_are_read(part, place, value, h5ad):
    with h5py.File(h5ad, "r+") as file:
        file[f"{part}/{place}"][7] = value
    with pytest.raises(InputError, match="damaged or truncated"):
        _h5ad.read(h5ad)


def test_row_pointers_of_cells_that_end_at_no_entry_lead_nowhere_else(h5ad):
    with h5py.File(h5ad, "r+") as file:
        file["X/indptr"][-1] = 0
    with pytest.raises(InputError, match="non-decreasing"):
        _h5ad.read(h5ad)


def test_numbers_that_were_never_written_are_not_read_as_zeros(h5ad):
    with h5py.File(h5ad, "r+") as file:
        del file["layers/more"]
        file.create_dataset("layers/more", shape=(50, 10**6), dtype="f4", chunks=(10, 1000))
        file["var"].attrs["more"] = 1
    with pytest.raises(InputError, match="nothing was written"):
        _h5ad.read(h5ad)


@pytest.mark.parametrize("form", ["h5ad", "zarr"])
def test_cells_that_do_not_fit_in_memory_are_a_typed_error(form, h5ad, store, monkeypatch):
    path = h5ad if form == "h5ad" else store
    monkeypatch.setattr(_h5ad, "SMALL", 0)
    monkeypatch.setattr(_h5ad, "available", lambda: 2_000.0)
    with pytest.raises(MemoryBudgetError, match=r"data must fit in memory.*give max_memory"):
        _h5ad.read(path)
    adata = _h5ad.read(path, backed=True)  # what stays in the file takes none
    with _h5ad.using(adata, path):
        assert numbers(adata, np.arange(50), None, "normalize").shape == (50, 40)


def test_memory_that_ends_while_cells_are_read_is_a_typed_error(h5ad, monkeypatch):
    def fail(*_: Any, **__: Any) -> None:
        raise MemoryError

    adata = _h5ad.read(h5ad, backed=True)
    with _h5ad.using(adata, h5ad):
        monkeypatch.setattr("occamap._backed._by_row", fail)
        with pytest.raises(MemoryBudgetError, match="does not fit in the memory that is left"):
            numbers(adata, np.arange(50), None, "normalize")
    monkeypatch.setattr(anndata, "read_h5ad", fail)
    with pytest.raises(MemoryBudgetError, match="must fit in memory"):
        _h5ad.read(h5ad)


class Canary:
    def __reduce__(self) -> Any:
        return os.mkdir, ("canary",)


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("change", [{"compressor": {"id": "pickle"}}, {"filters": [{"id": "pickle"}]}])
def test_no_chunk_of_a_store_is_unpickled(change, zipped, store, tmp_path, monkeypatch):
    pickles = pytest.importorskip("numcodecs.pickles")
    monkeypatch.setattr(pickles, "ALLOW_UNSAFE_PICKLE_DECODE", True, raising=False)  # as older versions have it
    monkeypatch.chdir(tmp_path)
    at = store / "obs" / "condition" / "categories"
    told = {**json.loads((at / ".zarray").read_text()), "compressor": None, **change}
    (at / ".zarray").write_text(json.dumps(told))
    (at / "0").write_bytes(pickle.dumps(Canary()))
    (store / ".zmetadata").unlink()
    path = _zipped(store, tmp_path) if zipped else store
    with pytest.raises(InputError, match="could run code"):
        _h5ad.read(path)
    assert not Path("canary").exists()


def _zipped(store: Path, where: Path, method: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(where / "x.zip", "w", method) as file:
        for path in sorted(store.rglob("*")):
            if path.is_file():
                file.write(path, path.relative_to(store).as_posix())
    return where / "x.zip"


def test_files_in_a_zipped_store_do_not_unpack_to_thousands_of_times_their_size(store, tmp_path):
    (store / "X" / "data" / "0").write_bytes(bytes(2**25))
    with pytest.raises(InputError, match="unpacks to more than"):
        _h5ad.read(_zipped(store, tmp_path, zipfile.ZIP_DEFLATED))


def test_a_pipe_in_a_store_is_not_waited_for(store):
    (store / "X" / "data" / "0").unlink()
    with offering(store / "X" / "data" / "0"), pytest.raises(InputError, match="is no plain file"):
        _h5ad.read(store)


def test_names_that_are_absent_from_a_store_are_not_read_as_empty_texts(store):
    (store / "obs" / "_index" / "0").unlink()
    with pytest.raises(InputError, match="chunks of obs/_index are absent"):
        _h5ad.read(store)


@pytest.mark.parametrize(("form", "chunk"), [("csr", "obs/condition/codes/0"), ("dense", "X/0.0")])
def test_labels_and_numbers_that_are_absent_altogether_are_not_read_as_zeros(form, chunk, cells, tmp_path):
    store = Path(shutil.copytree(cells / f"{form}.zarr", tmp_path / "x.zarr"))
    (store / chunk).unlink()
    with pytest.raises(InputError, match=r"all 1 chunks of (obs/condition/codes|X) are absent"):
        _h5ad.read(store)


def test_a_store_does_not_promise_chunks_by_the_million(store):
    at = store / "X" / "data" / ".zarray"
    told = json.loads(at.read_text()) | {"shape": [10**7], "chunks": [1]}
    at.write_text(json.dumps(told))
    (store / ".zmetadata").unlink()
    with pytest.raises(InputError, match="10,000,000 chunks"):
        _h5ad.read(store)
