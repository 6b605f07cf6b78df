"""Cells that stay in the file, .h5ad or Zarr, until they are asked for: the same numbers, and little memory."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import warnings
import zipfile
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

import occamap as oc
from occamap import _backed
from occamap._validate import check_samples
from occamap.cli.app import app
from occamap.errors import InputError
from occamap.run_record import RunRecord, sha256

anndata = pytest.importorskip("anndata")
h5py = pytest.importorskip("h5py")
pd = pytest.importorskip("pandas")
zarr = pytest.importorskip("zarr")

from occamap import _h5ad as cells  # noqa: E402
from occamap.tl.cells import numbers  # noqa: E402

FORMATS = ["h5ad", "zarr"]
KINDS = {"csr": sp.csr_matrix, "csc": sp.csc_matrix, "dense": lambda matrix: matrix.toarray()}
PAIR = ["--groupby", "condition", "--control", "control", "--target", "treated"]
LITTLE = ["--max-memory", "9GB"]


def put(adata, path: Path, version: int = 2) -> Path:
    """Write it in the format that the name says, Zarr in this version of it."""
    known = hasattr(anndata.settings, "zarr_write_format")  # from anndata 0.12 on
    with warnings.catch_warnings(), anndata.settings.override(zarr_write_format=version) if known else nullcontext():
        warnings.filterwarnings("ignore", message=".*(zarr v2|autosharding|Consolidated metadata).*")
        if path.suffix == ".h5ad":
            adata.write_h5ad(path)
        elif path.suffix == ".zarr":
            adata.write_zarr(path)
        else:
            inside = put(adata, path.with_suffix(".zarr"))
            with zipfile.ZipFile(path, "w") as file:
                for name in sorted(inside.rglob("*")):
                    file.write(name, name.relative_to(inside))
    return path


def random_cells(kind: str, n: int = 60, d: int = 37):
    """Four matrices; a row and a column are empty."""
    made = {}
    for seed, name in enumerate(("X", "more", "counts", "bad")):
        matrix = sp.random(n, d, density=0.3, format="csr", dtype=np.float32, random_state=seed).tolil()
        matrix[7], matrix[:, 3] = 0, 0
        made[name] = sp.csr_matrix(matrix)
    made["counts"].data = np.ceil(made["counts"].data * 9)
    made["nearly"] = sp.lil_matrix(made["counts"])
    made["nearly"][56, 36], made["bad"] = 0.5, sp.lil_matrix(made["bad"])
    made["bad"][11, 36] = np.nan
    made = {name: KINDS[kind](sp.csr_matrix(matrix)) for name, matrix in made.items()}
    made["integers"] = made["counts"].astype(np.int64)
    adata = anndata.AnnData(made.pop("X"), layers=made)
    adata.obs["group"] = pd.Categorical(["a", "b", "c"] * (n // 3))
    adata.uns["entry"] = {"x": 1.0}
    return adata


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Random cells and their file, by form and kind; nobody writes to them."""
    folder = tmp_path_factory.mktemp("written")
    made = {kind: random_cells(kind) for kind in KINDS}
    return {
        (form, kind): (made[kind], put(made[kind], folder / f"{kind}.{form}")) for form in FORMATS for kind in KINDS
    }


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """The same cells in all formats."""
    folder = tmp_path_factory.mktemp("cells")
    made = oc.datasets.simulate_perturbation(40, 30, 120, effect=1.5, n_types=2, n_moved=10).to_anndata()
    made.layers["other"] = made.X.copy()
    return {form: put(made, folder / f"cells.{form}") for form in ("h5ad", "zarr", "zip")}


def as_dense(matrix):
    return matrix.toarray() if sp.issparse(matrix) else matrix


@pytest.fixture
def tiles(monkeypatch):
    """Of a few rows, so that there are several."""
    monkeypatch.setattr(_backed, "TILE", 200)
    monkeypatch.setattr(_backed, "GAP", 20)


# -- numbers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layer", [None, "more"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMATS)
def test_the_file_gives_what_memory_gives(form, kind, layer, written, monkeypatch):
    adata, path = written[form, kind]
    found = cells.read(path, backed=True)
    genes = np.arange(37) % 3 != 1
    with cells.using(found, path):
        matrix = found.X if layer is None else found.layers[layer]
        assert _backed.is_backed(matrix)
        assert found.obs["group"].tolist() == adata.obs["group"].tolist()
        assert found.uns["entry"] == {"x": 1.0}
        wanted = [0, 1, 2], [5, 6, 7, 8, 30, 58, 59], list(range(60)), [59, 3, 3, 20, 0], [7]
        for size, rows, mask in product((200, _backed.TILE), wanted, (None, genes)):
            with monkeypatch.context() as patch:
                patch.setattr(_backed, "TILE", size)
                patch.setattr(_backed, "GAP", 20)
                here = numbers(adata, np.array(rows), layer, "refuse", mask)
                there = numbers(found, np.array(rows), layer, "refuse", mask)
                assert sp.issparse(there) == (kind != "dense")
                assert there.dtype == np.float32
                np.testing.assert_array_equal(as_dense(there), as_dense(here))
    if form == "h5ad":  # which is closed now
        with pytest.raises(InputError, match="X cannot be read from its file, which is closed"):
            oc.MongeMap().fit(matrix, np.ones((2, 37)))


@pytest.mark.skipif(not hasattr(anndata.settings, "zarr_write_format"), reason="anndata writes one version alone")
def test_both_versions_of_zarr_are_read(written, tmp_path):
    adata, rows = written["zarr", "csr"][0], np.arange(0, 60, 7)
    path = put(adata, tmp_path / "x.zarr", 3)
    assert (path / "zarr.json").exists()
    for backed in (False, True):
        found = cells.read(path, backed=backed)
        with cells.using(found, path):
            assert _backed.is_backed(found.X) == backed
            assert abs(numbers(found, rows, None, "refuse") - adata.X[rows]).max() == 0
    drop(chunk(path, "X/data"))
    with pytest.raises(InputError, match="1 of the 1 chunks of X/data are absent"):
        cells.read(path)


@pytest.mark.parametrize("layer", ["counts", "integers"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMATS)
def test_counts_in_a_file_are_known_by_all_their_genes(form, kind, layer, written, tiles):
    adata, path = written[form, kind]
    found, rows, genes = cells.read(path, backed=True), np.arange(0, 60, 4), np.arange(37) < 9
    counts = as_dense(adata.layers[layer])[rows].astype(float)
    with cells.using(found, path):
        here, there = (numbers(one, rows, layer, "normalize", genes) for one in (adata, found))
        np.testing.assert_array_equal(as_dense(there), as_dense(here))
        expected = np.log1p(1e4 * counts / counts.sum(axis=1, keepdims=True))[:, genes]
        np.testing.assert_allclose(as_dense(there), expected, rtol=1e-6)
        with pytest.raises(InputError, match="raw counts"):
            numbers(found, rows, layer, "refuse", genes)
        np.testing.assert_array_equal(as_dense(numbers(found, rows, layer, "keep")), counts)
        nearly = numbers(
            found, rows, "nearly", "normalize", genes
        )  # a gene that is left out has a half: in the last row
        np.testing.assert_array_equal(as_dense(nearly), counts[:, genes])
    np.testing.assert_array_equal(as_dense(adata.layers[layer])[rows], counts)  # nothing was normalised in its place


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMATS)
def test_numbers_that_are_none_are_refused_as_in_memory(form, kind, written, tiles):
    adata, path = written[form, kind]
    found = cells.read(path, backed=True)
    with cells.using(found, path):
        for one in (adata, found):
            with pytest.raises(InputError, match=r"adata.layers\['bad'\] must be finite; got NaN \(1 such entry\)"):
                numbers(one, np.array([2, 11]), "bad", "refuse", np.arange(37) < 9)
            assert numbers(one, np.array([2, 12]), "bad", "refuse").shape == (2, 37)


@pytest.mark.parametrize("chunks", [(7, 5), (1, 37), (60, 37), (100, 100), None])
def test_any_chunks_of_a_dense_matrix(chunks, tiles, tmp_path):
    values, rows = np.random.default_rng(0).normal(size=(60, 37)), np.array([0, 6, 7, 29, 30, 31, 59])
    with h5py.File(tmp_path / "x.h5", "w") as file:
        there = [file.create_dataset("x", data=values, chunks=chunks if chunks and chunks <= (60, 37) else None)]
        shaped = {"shape": values.shape, "dtype": values.dtype, **({} if chunks is None else {"chunks": chunks})}
        there.append(zarr.open_array(str(tmp_path / "x.zarr"), mode="w", **shaped))
        there[1][:] = values
        for matrix in there:
            np.testing.assert_array_equal(_backed.read(matrix, "X", rows), values[rows])
            np.testing.assert_array_equal(_backed.read(matrix, "X"), values)


def test_rows_far_apart_are_not_read_in_one_go(tmp_path):
    """Nor is what lies between them."""
    asked = []

    class Told:
        def __init__(self, array):
            self.array, self.dtype, self.shape, self.chunks = array, array.dtype, array.shape, (16,)

        def __getitem__(self, key):
            asked.append(self.array[key].size)
            return self.array[key]

    class Matrix:
        format, shape = "csr", (3000, 1000)

        def __init__(self, matrix):
            self.matrix = matrix
            self.group = {name: Told(getattr(matrix, name)) for name in ("indptr", "indices", "data")}

    matrix = sp.random(3000, 1000, density=0.5, format="csr", random_state=0)
    rows = np.array([3, 4, 300, 2999])  # the first three in what would be one tile
    made = _backed.read(Matrix(matrix), "X", rows)
    assert abs(made - matrix[rows]).max() == 0
    assert len(asked) == 1 + 2 * 3
    assert sum(asked[1:]) == 2 * made.nnz
    asked.clear()
    assert abs(_backed.read(Matrix(matrix), "X") - matrix).max() == 0
    assert max(asked) * 12 < _backed.TILE + 12 * 600
    assert sum(asked) == 3001 + 2 * matrix.nnz


# -- maps --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMATS)
def test_maps_take_matrices_in_files(form, kind, written):
    adata, path = written[form, kind]
    found = cells.read(path, backed=True)
    with cells.using(found, path):
        X, Y = found.X, found.layers["more"]
        here = oc.MongeMap(oc.L1(0.1)).fit(adata.X, adata.layers["more"])
        there = oc.MongeMap(oc.L1(0.1)).fit(X, Y)
        np.testing.assert_array_equal(here.g_, there.g_)
        moved = there.transform(X)
        assert sp.issparse(moved) == (kind != "dense")
        np.testing.assert_array_equal(as_dense(moved), as_dense(here.transform(adata.X)))
        named = oc.MongeMap(oc.L1(0.1)).fit(found, adata)
        assert list(named.feature_names_in_) == list(adata.var_names)
        predicted = named.transform(found)
        assert isinstance(predicted, anndata.AnnData)
        np.testing.assert_array_equal(
            predicted.X if kind == "dense" else predicted.X.toarray(), as_dense(named.transform(adata).X)
        )


def test_what_was_read_is_not_copied_again(written):
    adata, path = written["h5ad", "csr"]
    found = cells.read(path, backed=True)
    with cells.using(found, path):
        for raw in (found.X, found):
            checked = check_samples(raw, "X")
            assert checked.owned().data is checked.data
    checked = check_samples(adata.X, "X")
    assert checked.owned().data is not checked.data


# -- memory ------------------------------------------------------------------------------------------------------

PEAK = """
import ctypes, json, sys
import numpy as np
import anndata, anndata.io, h5py, zarr
from occamap import _h5ad as cells
from occamap.tl.cells import numbers

def status(name):
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith(name))

def read(path, layer, part):
    adata = cells.read(path, backed=True)
    rows = np.sort(np.random.default_rng(0).choice(adata.n_obs, adata.n_obs // part, replace=False))
    with cells.using(adata, path):
        return float(numbers(adata, rows, layer, "keep").sum())

files = [(path, None if layer == "X" else layer) for path, layer in zip(sys.argv[1::2], sys.argv[2::2])]
for file in files:
    read(*file, 1000)  # what imports and first calls take
sums, peaks = [], []
for file in files:
    ctypes.CDLL(None).malloc_trim(0)  # what was freed goes back
    before = status("VmRSS")
    sums.append(read(*file, 10))
    peaks.append(status("VmHWM") - before)
print(json.dumps([sums, peaks]))
"""


def large(kind: str):
    """100 MB of numbers."""
    n, d = (2500, 10_000) if kind == "dense" else (6250, 20_000)
    if kind == "dense":
        matrix = np.tile(np.arange(d, dtype=np.float32) % 7, (n, 1))
        matrix += np.arange(n, dtype=np.float32)[:, None] % 5
    else:
        lines, across = (n, d) if kind == "csr" else (d, n)
        counts = 12_500_000 // lines
        indices = np.tile(np.arange(counts, dtype=np.int32) * (across // counts), lines)
        data = (np.arange(indices.size) % 11).astype(np.float32)
        shaped = (data, indices, np.arange(lines + 1, dtype=np.int32) * counts)
        matrix = (sp.csr_matrix if kind == "csr" else sp.csc_matrix)(shaped, shape=(n, d))
    return matrix


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is measured as Linux shows it")
def test_a_tenth_of_the_cells_takes_a_tenth_of_the_memory(tmp_path):
    arguments, expected = [], []
    for form, kind, layer in [
        ("h5ad", "csr", "X"),
        ("zarr", "csr", "more"),
        ("zarr", "dense", "X"),
        ("h5ad", "csc", "more"),
    ]:
        matrix = large(kind)
        empty = {"shape": matrix.shape, "layers": {layer: matrix}}
        adata = anndata.AnnData(matrix) if layer == "X" else anndata.AnnData(**empty)
        arguments += [put(adata, tmp_path / f"{kind}.{form}"), layer]
        rows = np.sort(np.random.default_rng(0).choice(adata.n_obs, adata.n_obs // 10, replace=False))
        expected.append(float(matrix[rows].sum()))
    done = subprocess.run([sys.executable, "-c", PEAK, *arguments], capture_output=True, text=True, check=True)
    sums, peaks = json.loads(done.stdout)
    np.testing.assert_allclose(sums, expected, rtol=1e-5)
    assert max(peaks) < 85e6  # 10 MB are wanted, of 100


# -- files that are none, or no longer ------------------------------------------------------------------------------


def drop(path: Path) -> None:
    (shutil.rmtree if path.is_dir() else os.unlink)(path)


def chunk(store: Path, part: str) -> Path:
    """The first chunk of an array, in either version of the format."""
    return next(path for path in sorted((store / part).rglob("*")) if path.is_file() and path.name[0] not in ".z")


def overwrite(path: Path) -> None:
    path.write_bytes(bytes(len(path.read_bytes())))


def without_metadata(store: Path, part: str) -> None:
    """Of this part, and of all parts in one."""
    for path in [*(store / part).glob("*z*"), *store.glob(".zmetadata")]:
        path.unlink()


BROKEN = {
    "a chunk of X is absent": (
        lambda store: drop(chunk(store, "X/indices")),
        "1 of the 1 chunks of X/indices are absent",
    ),
    "a chunk of a layer is absent": (
        lambda store: drop(chunk(store, "layers/more/data")),
        "chunks of layers/more/data are absent",
    ),
    "a chunk is cut": (lambda store: chunk(store, "X/data").write_bytes(chunk(store, "X/data").read_bytes()[:20]), ""),
    "a chunk is overwritten": (lambda store: overwrite(chunk(store, "X/data")), ""),
    "row pointers are overwritten": (lambda store: overwrite(chunk(store, "X/indptr")), ""),
    "no JSON": (lambda store: [path.write_text("{") for path in store.glob(".z*")], "is damaged or truncated"),
    "no obs": (lambda store: without_metadata(store, "obs"), "is a Zarr store, but has no obs"),
    "no X/indptr": (lambda store: without_metadata(store, "X/indptr"), ""),
}


@pytest.mark.parametrize("backed", [False, True])
@pytest.mark.parametrize("broken", BROKEN)
def test_a_store_that_is_damaged_is_told_of(broken, backed, written, tmp_path):
    path = shutil.copytree(written["zarr", "csr"][1], tmp_path / "x.zarr")
    breaking, told = BROKEN[broken]
    breaking(path)
    with pytest.raises(InputError, match=told or "damaged or truncated") as caught:  # noqa: PT012
        found = cells.read(path, backed=backed)
        with cells.using(found, path):
            numbers(found, np.arange(60), None, "refuse")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 700


def test_an_empty_column_may_have_no_chunk(tmp_path):
    """Zarr leaves out chunks of zeros: one entry a row, all in the first column, is such a matrix."""
    matrix = sp.csr_matrix((np.ones(4, np.float32), np.zeros(4, np.int32), np.arange(5)), shape=(4, 9))
    path = put(anndata.AnnData(matrix, layers={"none": sp.csr_matrix((4, 9))}), tmp_path / "x.zarr")
    found = cells.read(path, backed=True)
    with cells.using(found, path):
        np.testing.assert_array_equal(numbers(found, np.arange(4), None, "refuse").toarray(), matrix.toarray())
        assert numbers(found, np.arange(4), "none", "refuse").nnz == 0


@pytest.mark.parametrize("backed", [False, True])
def test_other_directories_are_no_cells(backed, stored, tmp_path):
    with pytest.raises(
        InputError, match=r"an .h5ad file or a Zarr store; .* is a directory without zarr.json or .zgroup"
    ):
        cells.read(tmp_path, backed=backed)
    zarr.open_group(tmp_path / "a.zarr", mode="w").create_group("obs")
    with pytest.raises(InputError, match="is a Zarr store, but has no var"):
        cells.read(tmp_path / "a.zarr", backed=backed)
    zarr.save(str(tmp_path / "b.zarr"), np.ones((2, 2)))
    with pytest.raises(InputError, match=r"must be (a whole|an .h5ad file or a) Zarr store"):
        cells.read(tmp_path / "b.zarr", backed=backed)
    whole = stored["zip"].read_bytes()
    (tmp_path / "c.zip").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="it is no HDF5 file"):
        cells.read(tmp_path / "c.zip", backed=backed)
    with zipfile.ZipFile(tmp_path / "d.zip", "w") as file:
        file.writestr("text", "no cells")
    with pytest.raises(InputError, match="Zarr store"):
        cells.read(tmp_path / "d.zip", backed=backed)


@pytest.mark.parametrize("form", FORMATS)
def test_indices_that_lead_elsewhere_are_found(form, tiles, written, tmp_path):
    for kind in ("csr", "csc"):
        copy = shutil.copytree if form == "zarr" else shutil.copy
        path = copy(written[form, kind][1], tmp_path / f"{kind}.{form}")
        file = h5py.File(path, "r+") if form == "h5ad" else zarr.open_group(path, mode="r+")
        file["X/indices"][40] = 1000
        file["layers/more/indptr"][5] = 10**6
        if form == "h5ad":
            file.close()
        found = cells.read(path, backed=True)
        with cells.using(found, path):
            for layer, told in ((None, "SciPy says"), ("more", "its indptr does not fit")):
                with pytest.raises(InputError, match=f"must be a valid sparse matrix; {told}"):
                    numbers(found, np.arange(60), layer, "refuse")


# -- commands ----------------------------------------------------------------------------------------------------


def run(*arguments: object, code: int = 0):
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == code, done.output
    return done


@pytest.mark.parametrize("options", [[], [*LITTLE, "--layer", "other"]])
def test_fit_and_transform_read_zarr(options, stored, tmp_path):
    for form, path in stored.items():
        run("fit", path, *PAIR, "--subsamples", 2, *options, "--out", tmp_path / form)
        run("transform", tmp_path / form / "map.occamap", path, "--out", tmp_path / f"{form}.h5ad")
    record = RunRecord.read(tmp_path / "zarr")
    assert record.data.path == str(stored["zarr"])
    assert record.data.sha256 == sha256(stored["zarr"])
    assert record.data.shape == (70, 120)
    first, moved = tmp_path / "h5ad", anndata.read_h5ad(tmp_path / "h5ad.h5ad")
    for form in ("zarr", "zip"):
        for name in ("genes.csv", "cells.csv", "targets.csv"):
            assert (tmp_path / form / name).read_bytes() == (first / name).read_bytes()
        other = anndata.read_h5ad(tmp_path / f"{form}.h5ad")
        assert abs(other.X - moved.X).max() == 0
        assert other.obs_names.tolist() == moved.obs_names.tolist()


def test_path_and_evaluate_read_zarr(stored, tmp_path):
    for form in FORMATS:
        run("path", stored[form], *PAIR, "--gammas", "0.1,1", "--splits", 2, *LITTLE, "--out", tmp_path / form / "path")
        asked = [*PAIR[:4], "--splits", 2, "--costs", "l1", "--gammas", "1", "--components", 5]
        run("evaluate", stored[form], *asked, "--out", tmp_path / form / "scores")
    tables = [pd.read_csv(tmp_path / form / "path" / "path.csv") for form in FORMATS]
    pd.testing.assert_frame_equal(*(table.filter(regex="^(?!.*seconds)") for table in tables))
    scores = [(tmp_path / form / "scores" / "evaluation.csv").read_bytes() for form in FORMATS]
    assert scores[0] == scores[1]


def test_nothing_is_written_into_a_store(stored, tmp_path):
    run("fit", stored["h5ad"], *PAIR, "--subsamples", 0, "--out", tmp_path / "run")
    store = shutil.copytree(stored["zarr"], tmp_path / "x.zarr")
    before = sha256(store)
    for out in (store, store / "X" / "run"):
        assert "--out must not be where the data are" in run("fit", store, *PAIR, "--out", out, code=2).stderr
        assert "--out must not be where the data are" in run("path", store, *PAIR, "--out", out, code=2).stderr
        asked = [*PAIR[:4], "--splits", 2, "--costs", "l1", "--gammas", "1", "--components", 5]
        assert "--out must not be where the data are" in run("evaluate", store, *asked, "--out", out, code=2).stderr
    move = ["transform", tmp_path / "run" / "map.occamap", store, "--out"]
    assert "--out must not be where the data are" in run(*move, store / "y.h5ad", code=2).stderr
    said = run(*move, tmp_path / "y.zarr", code=2).stderr
    assert "--out must name an .h5ad file, not a Zarr store" in said
    assert said.count("\n") == 1
    assert not (tmp_path / "y.zarr").exists()
    assert sha256(store) == before


def test_the_digest_of_a_directory_is_that_of_names_and_contents(tmp_path):
    store = tmp_path / "x"
    for name, content in {"b/c": b"1", "b.d": b"2", "a": b"", "b/é": b"3"}.items():
        (store / name).parent.mkdir(parents=True, exist_ok=True)
        (store / name).write_bytes(content)
    first = sha256(store)
    assert sha256(shutil.copytree(store, tmp_path / "y")) == first
    if shutil.which("sha256sum") and sys.platform.startswith("linux"):
        line = r"find . -type f -printf '%P\n' | LC_ALL=C sort | xargs -d '\n' sha256sum | sha256sum"
        told = subprocess.run(line, shell=True, cwd=store, capture_output=True, text=True, check=True).stdout
        assert told.split()[0] == first
        assert line in sha256.__doc__
    (tmp_path / "y" / "b" / "c").write_bytes(b"4")
    assert sha256(tmp_path / "y") != first
    (store / "a").rename(store / "e")
    assert sha256(store) != first


@pytest.mark.parametrize("kind", ["csr", "csc", "dense"])
@pytest.mark.parametrize("name", ["cells.h5ad", "cells.zarr"])
def test_an_evaluation_within_a_budget_reads_the_file_by_parts_and_knows_the_same_data(
    kind: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept of one is resumed by the other: the digest of the numbers does not depend on how they are read."""
    from occamap.evaluation import protocol, run

    adata = oc.datasets.simulate_perturbation(60, 50, 120, effect=1.5).to_anndata()
    adata.X = {"csr": adata.X, "csc": adata.X.tocsc(), "dense": adata.X.toarray()}[kind]
    asked: Any = {"groupby": "condition", "control": "control", "costs": ["l1"], "gammas": [1.0], "splits": 2}
    wanted = oc.evaluate(adata, **asked, out=tmp_path / "out")
    put(adata, tmp_path / name)
    monkeypatch.setattr(protocol, "ROWS", 32)
    found = oc.evaluate(tmp_path / name, **asked, max_memory="4GB")
    pd.testing.assert_frame_equal(found, wanted)
    monkeypatch.setattr(run, "_run", None)  # nothing is left to compute
    pd.testing.assert_frame_equal(oc.evaluate(tmp_path / name, **asked, out=tmp_path / "out", max_memory="4GB"), wanted)
