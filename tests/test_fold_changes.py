"""Log2 fold changes of gene tables: against NumPy, Seurat's and scanpy's formulas, and the planted response."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import occamap as oc
from occamap.errors import InputError, InputWarning
from occamap.genes.fold_changes import log2_fold_changes, typical_shift, why_not_logs

anndata = pytest.importorskip("anndata")
scanpy = pytest.importorskip("scanpy")

ASKED = {"groupby": "condition", "control": "control", "target": "treated", "verbose": False}


def draw_counts(n, seed, genes=60):
    return sp.csr_array(np.random.default_rng(seed).poisson(0.8, (n, genes)).astype(np.float64))


def normalised(counts, total=1e4):
    return counts.toarray() * (total / counts.sum(axis=1))[:, None]


def uniform(n):
    return np.full((1, n), 1 / n)


@pytest.fixture(scope="module")
def planted():
    return oc.datasets.simulate_perturbation(
        240, 150, 300, n_moved=20, effect=1.2, density=0.4, total=1e4, composition=False, random_state=3
    )


@pytest.fixture(scope="module")
def mapped(planted):
    adata = planted.to_anndata()
    oc.tl.monge_map(adata, within="cell_type", **ASKED)
    return adata


def change_of(adata, **given):
    """The fold changes by gene, in the order of adata."""
    return oc.tl.gene_table(adata, **given)["log2_fold_change"][adata.var_names].to_numpy()


# -- oracles -----------------------------------------------------------------------------------------------------


def test_the_table_has_the_ratio_of_weighted_means_in_each_group(mapped):
    table = oc.tl.gene_table(mapped, by="cell_type")
    is_control = (mapped.obs["condition"] == "control").to_numpy()
    counts = np.expm1(mapped.X.toarray().astype(np.float64))
    match = mapped.obsp["occamap_match"].toarray().astype(np.float64)
    for kind in ("type 0", "type 1", "type 2"):
        rows = np.flatnonzero(is_control & (mapped.obs["cell_type"] == kind).to_numpy())
        v = np.mean([match[row] / match[row].sum() for row in rows], axis=0)
        before, after = counts[rows].mean(axis=0), v @ counts
        n = (rows.size + 1 / (v**2).sum()) / 2
        offset = 1e-4 * (before.sum() + after.sum()) / 2 / n
        expected = np.log2((after + offset) / (before + offset))
        found = table.loc[kind, "log2_fold_change"][mapped.var_names]
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_groups_of_one_size_have_the_fold_change_of_seurat():
    """Version 5 takes log2((rowSums(expm1(x)) + 1) / ncol(x)) of either group, of cells scaled to 10,000."""
    X, Y = (normalised(draw_counts(50, seed)) for seed in (0, 1))
    found = log2_fold_changes(sp.csr_array(np.log1p(X)), sp.csr_array(np.log1p(Y)), uniform(50), uniform(50), np.e)
    seurat = np.log2((Y.sum(axis=0) + 1) / 50) - np.log2((X.sum(axis=0) + 1) / 50)
    np.testing.assert_allclose(found[0], seurat, rtol=1e-10, atol=1e-12)


def test_scanpy_agrees_where_cells_of_a_condition_are_alike():
    """It takes expm1 of the mean of logs, which is the mean of counts only if all cells have the same."""
    rng = np.random.default_rng(0)
    means = np.log1p(rng.uniform(20, 400, (2, 40)))
    adata = anndata.AnnData(np.repeat(means, 30, axis=0))
    adata.obs["condition"] = pd.Categorical(np.repeat(["control", "treated"], 30))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scanpy.tl.rank_genes_groups(adata, "condition", groups=["treated"], reference="control", method="t-test")
    theirs = scanpy.get.rank_genes_groups_df(adata, "treated").set_index("names")["logfoldchanges"][adata.var_names]
    control, treated = sp.csr_array(adata.X[:30]), sp.csr_array(adata.X[30:])
    ours = log2_fold_changes(control, treated, uniform(30), uniform(30), np.e)[0]
    np.testing.assert_allclose(ours, theirs, atol=5e-3)


def test_it_estimates_the_planted_response(planted, mapped):
    table = oc.tl.gene_table(mapped, by="cell_type")
    found = table["log2_fold_change"].unstack("gene")[mapped.var_names].to_numpy()
    ratio = found[planted.moved] / (planted.response[planted.moved] / np.log(2))
    assert 0.9 < np.median(ratio) < 1.1
    assert abs(np.median(found[~planted.moved])) < 0.05


# -- laws --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("total", [1.0, 500.0, 1e6])
def test_the_total_that_cells_are_scaled_to_makes_no_difference(total):
    X, Y = draw_counts(40, 0), draw_counts(25, 1)
    first, other = (
        log2_fold_changes(*(sp.csr_array(np.log1p(normalised(side, to))) for side in (X, Y)), uniform(40), uniform(25),
                          np.e) for to in (1e4, total)
    )  # fmt: skip
    np.testing.assert_allclose(other, first, rtol=1e-9, atol=1e-9)


def test_unseen_genes_have_0_and_genes_of_one_side_are_finite():
    X, Y = np.log1p(normalised(draw_counts(40, 0))), np.log1p(normalised(draw_counts(7, 1)))
    X[:, :2], Y[:, 1:3] = 0, 0
    found = log2_fold_changes(sp.csr_array(X), sp.csr_array(Y), uniform(40), uniform(7), np.e)[0]
    assert found[1] == 0
    assert 5 < found[0] < 20
    assert -20 < found[2] < -5
    back = log2_fold_changes(sp.csr_array(Y), sp.csr_array(X), uniform(7), uniform(40), np.e)[0]
    np.testing.assert_allclose(back, -found, rtol=1e-12)
    nothing = sp.csr_array((7, 3))
    np.testing.assert_array_equal(log2_fold_changes(nothing, nothing, uniform(7), uniform(7), np.e), 0)


@pytest.mark.parametrize("base", [2, 10.0])
def test_the_base_that_scanpy_noted_is_respected(mapped, base, tmp_path):
    adata = mapped.copy()
    adata.X = sp.csr_matrix(mapped.X / np.log(base))
    adata.uns["log1p"] = {"base": base}
    adata.write_h5ad(tmp_path / "cells.h5ad")
    natural = change_of(mapped)
    np.testing.assert_allclose(change_of(anndata.read_h5ad(tmp_path / "cells.h5ad")), natural, rtol=1e-4, atol=1e-4)
    adata.uns["log1p"] = {"base": None}
    assert np.abs(change_of(adata) - natural).max() > 0.1


@pytest.mark.parametrize("noted", [{}, {"base": None}, 3])
def test_logs_are_natural_where_nothing_else_is_noted(mapped, noted):
    adata = mapped.copy()
    adata.uns["log1p"] = noted
    np.testing.assert_array_equal(change_of(adata), change_of(mapped))


@pytest.mark.parametrize("base", [1, -2.0, np.nan, "two"])
def test_a_base_that_no_log_has_is_refused(mapped, base):
    adata = mapped.copy()
    adata.uns["log1p"] = {"base": base}
    with pytest.raises(InputError, match=r"adata.uns\['log1p'\]\['base'\] must be a number above 1"):
        oc.tl.gene_table(adata)


def test_counts_that_are_logged_here_have_natural_logs():
    X = np.random.default_rng(0).poisson(1.0, (60, 40)).astype(np.float32)
    X[30:, :5] *= 3
    obs = pd.DataFrame({"condition": np.repeat(["control", "treated"], 30)}, index=[f"cell {k}" for k in range(60)])
    raw = anndata.AnnData(X, obs, uns={"log1p": {"base": 2}})
    oc.tl.monge_map(raw, counts="normalize", **ASKED)
    logged = anndata.AnnData(X.copy(), obs)
    scanpy.pp.normalize_total(logged, target_sum=1e4)
    scanpy.pp.log1p(logged)
    oc.tl.monge_map(logged, **ASKED)
    np.testing.assert_allclose(change_of(raw), change_of(logged), rtol=1e-4, atol=1e-5)


# -- values that are not logs ------------------------------------------------------------------------------------


def scaled(adata):
    adata.X = adata.X.toarray()
    adata.X = (adata.X - adata.X.mean(axis=0)) / (adata.X.std(axis=0) + 1)


def whole(adata):
    adata.X = sp.csr_matrix(np.ceil(adata.X.toarray()))


def unlogged(adata):
    adata.X = sp.csr_matrix(np.expm1(adata.X.toarray()))


@pytest.mark.parametrize(
    ("change", "reason"), [(scaled, "negative values"), (whole, "whole numbers only"), (unlogged, "too large for logs")]
)
def test_other_units_have_no_fold_change_and_one_warning(planted, change, reason):
    adata = planted.to_anndata()
    change(adata)
    oc.tl.monge_map(adata, counts="keep", within="cell_type", **ASKED)
    with pytest.warns(InputWarning, match=f"log2_fold_change is NaN, .* {reason}") as caught:
        table = oc.tl.gene_table(adata, by="cell_type")
    assert len([one for one in caught if "log2_fold_change" in str(one.message)]) == 1
    assert caught[0].filename == __file__
    assert table["log2_fold_change"].isna().all()
    assert table["difference"].notna().all()


def test_empty_cells_are_no_reason():
    assert why_not_logs(sp.csr_array((3, 2)), sp.csr_array((2, 2)), np.e) is None


# -- the shift of typical genes ----------------------------------------------------------------------------------


def shift_of(composition, effect=2.0):
    """The shift over all cells of one type, and the largest growth of its total."""
    data = oc.datasets.simulate_perturbation(
        300, 300, 800, n_types=1, n_moved=60, effect=effect, density=0.3, total=1e4, composition=composition
    )
    found = log2_fold_changes(data.control, data.treated, uniform(300), uniform(300), np.e)[0]
    return typical_shift(found, ((data.control > 0).mean(axis=0) + (data.treated > 0).mean(axis=0)) / 2), found, data


def test_the_shift_is_that_of_genes_without_a_response():
    shift, found, data = shift_of(composition=True)
    often = ((data.control > 0).mean(axis=0) >= 0.3) & ~data.moved[0]
    assert shift.is_clear
    assert shift.median < -0.3
    assert abs(shift.median - np.median(found[often])) < 0.1


@pytest.mark.parametrize("given", [{"composition": False}, {"composition": True, "effect": 0.0}], ids=str)
def test_nothing_is_shifted_without_composition(given):
    shift = shift_of(**given)[0]
    assert not shift.is_clear
    assert abs(shift.median) < 0.05


def test_a_shift_is_clear_if_it_is_large_and_beyond_its_error():
    changes, often = np.linspace(-1, 1, 400), np.ones(400)
    assert typical_shift(changes, often).median == pytest.approx(0, abs=1e-12)
    assert not typical_shift(changes + 0.09, often).is_clear
    assert not typical_shift(changes + 0.15, often).is_clear  # 4 standard errors
    assert typical_shift(changes + 0.3, often).is_clear
    assert typical_shift(np.full(400, -0.11), often).is_clear
    rare = np.where(np.arange(400) < 300, 0.05, 0.5)
    assert typical_shift(np.where(rare < 0.1, 5.0, 0.0), rare).median == 0
    assert typical_shift(changes, np.where(np.arange(400) < 301, 0.05, 0.5)) is None
    assert typical_shift(np.full(400, np.nan), often) is None


@pytest.mark.parametrize("composition", [True, False])
def test_fit_and_its_report_ask_for_care_about_a_shift(tmp_path, composition):
    from typer.testing import CliRunner

    from occamap.cli.app import app

    data = oc.datasets.simulate_perturbation(
        150, 150, 400, n_types=1, n_moved=40, effect=2.0, density=0.4, total=1e4, composition=composition
    )
    data.to_anndata().write_h5ad(tmp_path / "cells.h5ad")
    words = ["fit", str(tmp_path / "cells.h5ad"), "--groupby", "condition", "--control", "control", "--target"]
    done = CliRunner().invoke(app, [*words, "treated", "--subsamples", "0", "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    for text in (done.stdout, (tmp_path / "run" / "report.html").read_text()):
        assert ("The typical gene falls by" in text) == composition
    assert "log2_fold_change" in (tmp_path / "run" / "genes.csv").read_text().splitlines()[0].split(",")
