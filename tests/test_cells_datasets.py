"""Cells as AnnData: simulated in the paper's numbers, and read from a file."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse, stats

from occamap.datasets import kang_ifnb, sciplex_like, simulate_perturbation
from occamap.datasets.sciplex import DRUGS, SIZES
from occamap.errors import InputError, MissingPackageError

anndata = pytest.importorskip("anndata", reason="cells come as AnnData: install anndata")


@pytest.fixture(scope="module")
def cells() -> Any:
    return sciplex_like(scale=0.1, n_genes=2000, random_state=1)


def group(cells: Any, line: str, drug: str, kind: int) -> np.ndarray:
    """Log-normalised expression of the cells of one type in one group, dense."""
    rows = (cells.obs["drug"] == drug) & (cells.obs["cell_type"] == f"{line} {kind}")
    return cells.X[rows.to_numpy()].toarray().astype(np.float64)


def parts(cells: Any) -> list[bytes]:
    arrays = (cells.X.data, cells.X.indices, cells.X.indptr, cells.varm["response"].to_numpy())
    return [array.tobytes() for array in arrays] + [str(list(cells.obs[column])).encode() for column in cells.obs]


# -- the numbers of sci-Plex -----------------------------------------------------------------------------------


def test_the_sizes_are_those_of_the_papers_table() -> None:
    cells = sciplex_like(n_genes=40)
    assert cells.shape == (sum(controls + sum(treated) for controls, treated in SIZES.values()), 40)
    found = cells.obs.groupby(["cell_line", "drug"], observed=True).size()
    for line, (controls, treated) in SIZES.items():
        assert [found[line, drug] for drug in ("control", *DRUGS)] == [controls, *treated]
    assert (SIZES["A549"], sum(n for n, _ in SIZES.values())) == ((3274, (558, 703, 669, 436, 475)), 12966)


@pytest.mark.parametrize(("scale", "n_types", "smallest"), [(0.1, 2, 34), (0.001, 2, 2), (0.001, 3, 3), (0.5, 1, 170)])
def test_scale_multiplies_and_leaves_a_cell_for_each_type(scale: float, n_types: int, smallest: int) -> None:
    cells = sciplex_like(scale=scale, n_genes=60, n_types=n_types)
    found = cells.obs.groupby(["cell_line", "drug"], observed=False).size()
    assert found["K562", "Quisinostat"] == found.min() == smallest
    assert found["MCF7", "control"] == round(scale * 6346)
    each = cells.obs.groupby(["cell_line", "drug", "cell_type"], observed=True).size()
    assert each.size == 18 * n_types
    assert all(np.ptp(sizes) <= 1 for _, sizes in each.groupby(level=[0, 1], observed=True))


def test_containers_and_names(cells: Any) -> None:
    assert (type(cells.X), cells.X.dtype) == (sparse.csr_matrix, np.float32)
    assert cells.X.has_canonical_format
    assert (cells.X.data > 0).all()
    assert cells.obs_names.is_unique
    assert cells.var_names[[0, -1]].tolist() == ["G00001", "G02000"]
    assert all(str(dtype) == "category" for dtype in cells.obs.dtypes)
    assert cells.obs["cell_line"].cat.categories.tolist() == list(SIZES)
    assert cells.obs["drug"].cat.categories.tolist() == ["control", *DRUGS]
    assert cells.obs["cell_type"].cat.categories.tolist() == [f"{line} {kind}" for line in SIZES for kind in (0, 1)]
    assert (cells.obs["cell_type"].astype(str).str[:4] == cells.obs["cell_line"].astype(str)).all()
    response = cells.varm["response"]
    assert response.shape == (2000, 30)
    assert response.columns[[0, 1, -1]].tolist() == ["A549 Dacinostat 0", "A549 Dacinostat 1", "MCF7 Quisinostat 1"]
    assert (response.dtypes == np.float32).all()


def test_same_seed_same_bytes() -> None:
    def draw(seed: int | np.random.Generator) -> list[bytes]:
        return parts(sciplex_like(scale=0.01, n_genes=200, random_state=seed))

    assert draw(3) == draw(3) == draw(np.random.default_rng(3))
    assert draw(3)[0] != draw(4)[0]


def test_cells_are_sparse_and_those_of_a_line_have_one_total(cells: Any) -> None:
    for line in SIZES:
        rows = cells.X[(cells.obs["cell_line"] == line).to_numpy()]
        assert 0.02 < rows.nnz / np.prod(rows.shape) < 0.05
        totals = np.expm1(rows.toarray().astype(np.float64)).sum(axis=1)
        np.testing.assert_allclose(totals[totals > 0], totals.max(), rtol=1e-4)
    dense = sciplex_like(scale=0.02, n_genes=500, density=0.2)
    assert dense.X.nnz / np.prod(dense.shape) == pytest.approx(0.2, rel=0.1)


def test_each_experiment_has_a_response_of_its_own_and_drugs_grow_stronger(cells: Any) -> None:
    response = cells.varm["response"]
    assert ((response != 0).sum() == 2000 // 30).all()
    for line in SIZES:
        sizes = []
        for drug in DRUGS:
            one, two = (response[f"{line} {drug} {kind}"].to_numpy() for kind in (0, 1))
            both = (one != 0) & (two != 0)
            assert both.sum() == 33
            assert (one[both] == two[both]).all()
            sizes.append(np.abs(one[one != 0]).mean())
        np.testing.assert_allclose(sizes, [1, 1.25, 1.5, 1.75, 2], rtol=0.06)
    moved = (response != 0).to_numpy()[:, ::2].T.astype(float)
    overlap = (moved @ moved.T)[np.triu_indices(15, 1)]
    assert overlap.max() < 50  # of 66, in a pool of 200: chosen anew each time


@pytest.mark.parametrize("line", list(SIZES))
@pytest.mark.parametrize("drug", [DRUGS[0], DRUGS[4]])
def test_the_planted_response_is_visible(cells: Any, line: str, drug: str) -> None:
    """Cells are few here: signs of all genes that surely differ, and of most others."""
    for kind in (0, 1):
        response = cells.varm["response"][f"{line} {drug} {kind}"].to_numpy()
        before, after = group(cells, line, "control", kind), group(cells, line, drug, kind)
        moved = response != 0
        shift = after.mean(axis=0)[moved] - before.mean(axis=0)[moved]
        t = stats.ttest_ind(after[:, moved], before[:, moved], equal_var=False).statistic
        agree = np.sign(shift) == np.sign(response[moved])
        assert agree.mean() > 0.85
        assert agree[np.abs(t) > 4].all()
        assert np.corrcoef(shift, response[moved])[0, 1] > 0.6


def test_lines_have_rates_of_their_own_and_controls_are_not_moved(cells: Any) -> None:
    means = [group(cells, line, "control", 0).mean(axis=0) for line in SIZES]
    assert np.abs(np.corrcoef(means)[np.triu_indices(3, 1)]).max() < 0.2
    nothing = sciplex_like(scale=0.05, n_genes=300, effect=(0, 0))
    assert not nothing.varm["response"].to_numpy().any()


def test_it_survives_a_file(cells: Any, tmp_path: Path) -> None:
    cells.write_h5ad(tmp_path / "cells.h5ad")
    back = anndata.read_h5ad(tmp_path / "cells.h5ad")
    assert parts(back) == parts(cells)
    assert back.varm["response"].equals(cells.varm["response"])
    assert back.obs.equals(cells.obs)


def test_the_smallest_cases() -> None:
    assert sciplex_like(scale=1e-9, n_genes=1, n_types=1).shape == (18, 1)
    assert sciplex_like(scale=1e-3, n_genes=60, n_types=59).n_vars == 60


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"scale": 0}, "scale must be a finite number > 0 and ≤ 100; got 0"),
        ({"n_genes": 10.0}, "n_genes must be an integer ≥ 1; got 10.0"),
        ({"n_types": 0}, "n_types must be an integer ≥ 1; got 0"),
        ({"n_types": 60, "n_genes": 60}, "n_types must be at most 59, or there are too few genes; got 60"),
        ({"effect": 1.0}, "effect must be two numbers, 0 ≤ first drug ≤ last drug ≤ 10; got 1.0"),
        ({"effect": (2.0, 1.0)}, r"effect must be two numbers.*; got \(2.0, 1.0\)"),
        ({"effect": (0.0, np.nan)}, "effect must be two numbers"),
        ({"density": 0.0}, "density must be a finite number > 0 and ≤ 1; got 0.0"),
        ({"density": 1}, "density must be below 1"),
        ({"random_state": None}, "random_state must be an integer ≥ 0; got None"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        sciplex_like(**arguments)


# -- one perturbation as AnnData -------------------------------------------------------------------------------


def test_a_perturbation_becomes_anndata(tmp_path: Path) -> None:
    data = simulate_perturbation(50, 31, 120, n_types=4, n_moved=5)
    cells = data.to_anndata()
    assert cells.X.dtype == np.float32
    assert (cells.X.toarray() == np.vstack([data.control.toarray(), data.treated.toarray()])).all()
    assert cells.obs["condition"].tolist() == ["control"] * 50 + ["treated"] * 31
    types = [f"type {kind}" for kind in (*data.control_types, *data.treated_types)]
    assert cells.obs["cell_type"].tolist() == types
    assert all(str(dtype) == "category" for dtype in cells.obs.dtypes)
    assert cells.obs_names.is_unique
    assert cells.var_names.tolist() == data.genes.tolist()
    assert (cells.varm["response"].to_numpy() == data.response.T).all()
    assert cells.varm["response"].columns.tolist() == [f"type {kind}" for kind in range(4)]
    cells.write_h5ad(tmp_path / "cells.h5ad")
    assert parts(anndata.read_h5ad(tmp_path / "cells.h5ad")) == parts(cells)


@pytest.mark.parametrize("call", [sciplex_like, simulate_perturbation(4, 4, 9, n_moved=1).to_anndata])
def test_without_anndata_the_remedy_is_named(call: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anndata", None)
    with pytest.raises(MissingPackageError, match="needs anndata, which is not installed: pip install anndata"):
        call()


# -- cells from a file -----------------------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A file that is like the real one."""
    cells = simulate_perturbation(6, 6, 9, n_moved=1).to_anndata()
    cells.obs["donor"] = "101"
    cells.write_h5ad(tmp_path / "kang_ifnb.h5ad")
    return tmp_path


def test_the_file_its_directory_and_the_environment_lead_to_it(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OCCAMAP_DATA", raising=False)
    other = (small / "kang_ifnb.h5ad").rename(small / "cells.h5ad")
    assert kang_ifnb(other).shape == kang_ifnb(str(other)).shape == (12, 9)
    other.rename(small / "kang_ifnb.h5ad")
    assert kang_ifnb(small).shape == (12, 9)
    monkeypatch.setenv("OCCAMAP_DATA", str(small))
    assert kang_ifnb().shape == (12, 9)
    with pytest.raises(InputError, match="path must be"):
        kang_ifnb(small / "elsewhere")  # what is named is not replaced by something else


def test_errors_say_what_is_wanted_and_where_it_was_looked_for(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = r"kang_ifnb\.h5ad \(Kang et al\. 2018, GEO GSE96583\)"
    monkeypatch.delenv("OCCAMAP_DATA", raising=False)
    with pytest.raises(InputError, match=f"path must be {wanted} or its directory, unless OCCAMAP_DATA names one"):
        kang_ifnb()
    (empty := small / "empty").mkdir()
    with pytest.raises(InputError, match=rf"path must be {wanted}.*; there is no '.*empty.kang_ifnb\.h5ad'"):
        kang_ifnb(empty)
    with pytest.raises(InputError, match=r"path must be .*; got 3"):
        kang_ifnb(3)  # type: ignore[arg-type]
    monkeypatch.setenv("OCCAMAP_DATA", str(empty))
    with pytest.raises(InputError, match=rf"OCCAMAP_DATA must be {wanted}.*; there is no '.*empty.kang_ifnb\.h5ad'"):
        kang_ifnb()


def test_a_file_of_something_else_is_refused(small: Path) -> None:
    (small / "text.h5ad").write_text("not cells")
    with pytest.raises(InputError, match="cannot be read as one"):
        kang_ifnb(small / "text.h5ad")
    cells = anndata.read_h5ad(small / "kang_ifnb.h5ad")
    del cells.obs["donor"]
    cells.write_h5ad(small / "kang_ifnb.h5ad")
    with pytest.raises(InputError, match=r"with condition, cell_type, donor in obs; .* has no donor"):
        kang_ifnb(small)


def test_the_real_cells_are_raw_counts(data_directory: Path) -> None:
    cells = kang_ifnb(data_directory)
    assert cells.shape == (2708, 14053)
    assert set(cells.obs["condition"]) == {"control", "stimulated"}
    assert (cells.X.data == np.round(cells.X.data)).all()
