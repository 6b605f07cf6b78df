"""tl.correct_composition: the median of ratios, per group, written to a layer."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import occamap as oc
from occamap.errors import InputError, InputWarning

anndata = pytest.importorskip("anndata")

CONDITIONS = {"groupby": "condition", "control": "control", "target": "treated"}


def cells(seed=0, n_types=2, kind=sp.csr_matrix, dtype=np.float32, **changes):
    settings = {"n_types": n_types, "n_moved": 60, "effect": 2.0, "density": 0.4, "total": 1e4} | changes
    adata = oc.datasets.simulate_perturbation(200, 200, 500, random_state=seed, **settings).to_anndata()
    adata.X = kind(adata.X.toarray().astype(dtype))
    return adata


def plainly(adata, by, base=np.e):
    """Ratios and corrected values by the definition, dense."""
    counts = base ** np.asarray(adata.X.todense() if sp.issparse(adata.X) else adata.X, dtype=np.float64) - 1
    treated, of_cells, ratios = (adata.obs["condition"] == "treated").to_numpy(), np.ones(adata.n_obs), {}
    for name in sorted(set(adata.obs[by])):
        here = (adata.obs[by] == name).to_numpy()
        often = (counts[here] > 0).mean(axis=0) >= 0.1
        after, before = (counts[here & side].mean(axis=0)[often] for side in (treated, ~treated))
        ratios[name] = np.median(after / before)
        of_cells[here & treated] = ratios[name]
    return ratios, np.log1p(counts / of_cells[:, None]) / np.log(base)


@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csc_matrix, sp.csr_array, np.asarray])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_matches_the_definition(kind, dtype):
    adata = cells(kind=kind, dtype=dtype)
    wanted, corrected = plainly(adata, "cell_type")
    ratios = oc.tl.correct_composition(adata, **CONDITIONS, by="cell_type")
    assert ratios.to_dict() == pytest.approx(wanted, rel=1e-6)
    layer = adata.layers["corrected"]
    assert sp.issparse(layer) == (kind is not np.asarray)
    assert layer.dtype == dtype
    np.testing.assert_allclose(layer.toarray() if sp.issparse(layer) else layer, corrected, rtol=1e-5, atol=1e-7)
    control = (adata.obs["condition"] == "control").to_numpy()
    assert (adata.obs["corrected_ratio"][control] == 1).all()


@given(factor=st.floats(0.3, 3.0), seed=st.integers(0, 3))
def test_a_common_factor_is_found_and_removed(factor, seed):
    rng = np.random.default_rng(seed)
    counts = rng.gamma(2.0, 2.0, size=(60, 150))
    X = np.log1p(np.vstack([counts, factor * counts]))
    obs = pd.DataFrame({"condition": np.repeat(["control", "treated"], 60)}, index=[str(k) for k in range(120)])
    adata = anndata.AnnData(X, obs)
    assert oc.tl.correct_composition(adata, **CONDITIONS).item() == pytest.approx(factor, rel=1e-9)
    np.testing.assert_allclose(adata.layers["corrected"][60:], X[:60], rtol=1e-9)
    again = oc.tl.correct_composition(adata, **CONDITIONS, layer="corrected", key_added="twice")
    assert again.item() == pytest.approx(1, rel=1e-9)


def test_takes_another_base_of_logs():
    adata = cells()
    adata.X = adata.X / np.float32(np.log(2))
    adata.uns["log1p"] = {"base": 2}
    wanted, corrected = plainly(adata, "cell_type", base=2.0)
    assert oc.tl.correct_composition(adata, **CONDITIONS, by="cell_type").to_dict() == pytest.approx(wanted, rel=1e-5)
    np.testing.assert_allclose(adata.layers["corrected"].toarray(), corrected, rtol=1e-4, atol=1e-6)


def test_genes_that_did_not_change_are_no_longer_found():
    adata = cells(n_types=1, n_moved=80)
    false = {}
    for layer in (None, "corrected"):
        if layer:
            oc.tl.correct_composition(adata, **CONDITIONS)
        oc.tl.monge_map(adata, **CONDITIONS, layer=layer)
        found = oc.tl.gene_table(adata)["q"].reindex(adata.var_names).to_numpy() <= 0.1
        truth = (adata.varm["response"] != 0).any(axis=1)
        false[layer] = (found & ~truth).sum() / found.sum()
    assert false[None] > 0.3
    assert false["corrected"] < 0.15


def test_other_cells_and_groups_without_enough_cells_are_left_as_they_are():
    adata = cells()
    kinds = adata.obs["cell_type"].astype(str).to_numpy()
    treated = np.flatnonzero((adata.obs["condition"] == "treated").to_numpy())
    kinds[treated[:10]] = "rare"
    adata.obs["cell_type"] = kinds
    adata.obs.loc[adata.obs_names[treated[20]], "cell_type"] = np.nan
    with pytest.warns(InputWarning, match="fewer than 20 control or target cells.*'rare'"):
        ratios = oc.tl.correct_composition(adata, **CONDITIONS, by="cell_type")
    assert ratios["rare"] == 1
    assert set(ratios.index) == {"rare", "type 0", "type 1"}
    unchanged = [*treated[:10], treated[20]]
    assert (adata.layers["corrected"][unchanged] != adata.X[unchanged]).nnz == 0


def test_a_view_becomes_an_object_of_its_own():
    adata = cells()
    part = adata[:, :400]
    oc.tl.correct_composition(part, **CONDITIONS)
    assert "corrected" in part.layers
    assert "corrected" not in adata.layers


def with_counts(adata):
    adata.X = sp.csr_matrix(np.random.default_rng(0).poisson(2.0, adata.shape).astype(np.float32))


def scaled(adata):
    adata.X = adata.X.toarray() - 1


@pytest.mark.parametrize(("change", "asked", "message"), [
    (with_counts, {}, "it has whole numbers only: use scanpy"),
    (None, {"layer": "corrected"}, "key_added must not be layer"),
    (scaled, {}, "adata must hold log1p of normalised counts; it has negative values"),
    (None, {"by": "celltype"}, "by must be a column of adata.obs"),
    (None, {"layer": "logs"}, "layer must be a layer of adata"),
    (None, {"target": "control"}, "target must be another group than control"),
    (None, {"key_added": "a/b"}, "key_added must be a name"),
])  # fmt: skip
def test_rejects(change, asked, message):
    adata = cells()
    if change is not None:
        change(adata)
    with pytest.raises(InputError, match=message):
        oc.tl.correct_composition(adata, **(CONDITIONS | asked))
    assert not adata.layers


def test_rejects_a_matrix_in_a_file(tmp_path):
    cells().write_h5ad(tmp_path / "cells.h5ad")
    adata = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    with pytest.raises(InputError, match=r"adata must be in memory.*to_memory"):
        oc.tl.correct_composition(adata, **CONDITIONS)
