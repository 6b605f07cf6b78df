"""Pictures of maps in AnnData: what is drawn is what was computed, and names are drawn as they are."""

from __future__ import annotations

import functools
import importlib
import io
import sys

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

mpl.use("agg")

from matplotlib import pyplot
from matplotlib.collections import LineCollection
from matplotlib.quiver import Quiver

import occamap as oc
from occamap.errors import InputError, MissingPackageError
from occamap.pl.look import evenly, literal, spread

HOSTILE = ["$x^2$", "<b>", "a_b", "N" * 60, "_first", r"$\frac{", "a\nb", "%s{}", "$", ""]


@pytest.fixture(autouse=True)
def _closed():
    yield
    pyplot.close("all")


@functools.cache
def _fitted():
    adata = oc.datasets.simulate_perturbation(90, 70, 60, effect=1.5, n_moved=8, density=0.3).to_anndata()
    asked = {"groupby": "condition", "control": "control", "target": "treated"}
    oc.tl.monge_map(adata, **asked, pool=None, match=None, n_jobs=1)
    X = adata.X.toarray().astype(np.float64)
    centred = X - X.mean(axis=0)
    adata.varm["PCs"] = np.linalg.svd(centred, full_matrices=False)[2][:6].T
    adata.obsm["X_pca"] = centred @ adata.varm["PCs"]
    adata.obsm["X_umap"] = np.random.default_rng(0).normal(size=(adata.n_obs, 2))
    return adata


def cells():
    return _fitted().copy()


def hostile():
    adata = cells()
    names = adata.var_names.to_numpy().astype(object)
    names[np.argsort(-adata.var["occamap_mean"].abs().to_numpy())[: len(HOSTILE)]] = HOSTILE
    adata.var_names = names
    adata.obs["cell_type"] = adata.obs["cell_type"].cat.rename_categories(["$t^1$", "_kind", "M" * 60])
    return adata


@functools.cache
def search():
    data = oc.datasets.simulate_perturbation(60, 50, 40, effect=1.5, n_moved=5, density=0.3)
    return oc.MongeMapCV(gammas=[0.3, 1.0], epsilon=0.1, cv=2, n_jobs=1).fit(data.control, data.treated)


def tidy():
    rows = [
        (method, gamma, density + 0.01 * split, divergence + split)
        for split in range(2)
        for method, gamma, density, divergence in [
            ("l1", 1.0, 0.1, 4.0),
            ("l1", 0.1, 0.2, 3.0),
            ("sql2", 0.0, 0.9, 2.5),
            ("identity", np.nan, 0.0, 9.0),
            ("mean_shift", np.nan, 1.0, 6.0),
            ("treated", np.nan, np.nan, 1.0),
        ]
    ]
    return pd.DataFrame(rows, columns=["method", "gamma", "density", "divergence"])


DRAW = {
    "genes": lambda adata, **given: oc.pl.genes(adata, **given),
    "heatmap": lambda adata, **given: oc.pl.heatmap(adata, groupby="cell_type", **given),
    "arrows": lambda adata, **given: oc.pl.arrows(adata, color="cell_type", **given),
    "arrows, neighbours": lambda adata, **given: oc.pl.arrows(adata, basis="umap", **given),
    "means": lambda adata, **given: oc.pl.means(adata, **given),
    "convergence": lambda adata, **given: oc.pl.convergence(adata, **given),
    "frontier": lambda adata, **given: oc.pl.frontier(tidy(), **given),
    "frontier, search": lambda adata, **given: oc.pl.frontier(search(), **given),
}


def rendered(ax):
    ax.figure.savefig(io.BytesIO(), format="png")
    ax.figure.savefig(io.BytesIO(), format="svg")
    return ax


def shown(texts):
    return [text.get_text() for text in texts]


def plain_settings():
    """matplotlib's, without the backend, which the first picture of a process settles."""
    return {name: value for name, value in mpl.rcParams.items() if name != "backend"}


# -- what all of them do -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DRAW)
def test_they_draw_on_the_axes_given_or_on_new_ones_and_leave_settings_and_cells_alone(name):
    adata, settings = cells(), plain_settings()
    keys = [list(part) for part in (adata.obs, adata.var, adata.uns, adata.obsm, adata.layers)]
    _, (ax, other) = pyplot.subplots(1, 2, figsize=(14, 6))
    assert DRAW[name](adata, ax=ax) is ax
    assert ax.has_data()
    assert not other.has_data()
    fresh = rendered(DRAW[name](adata))
    assert fresh is not ax
    assert fresh.get_xlabel()
    assert plain_settings() == settings
    assert [list(part) for part in (adata.obs, adata.var, adata.uns, adata.obsm, adata.layers)] == keys


@pytest.mark.parametrize("name", DRAW)
def test_hostile_names_are_drawn_as_they_are(name):
    rendered(DRAW[name](hostile()))


@pytest.mark.parametrize("name", DRAW)
def test_views_stay_views(name):
    view = cells()[::2]
    rendered(DRAW[name](view))
    assert view.is_view


def test_names_are_literal():
    adata = hostile()
    drawn = [literal(name) for name in HOSTILE]
    assert drawn[:6] == HOSTILE[:6]
    assert literal("a\nb") == r"a\nb"
    assert len(literal("x" * 500)) == 60
    ax = oc.pl.genes(adata, n=len(HOSTILE))
    assert shown(ax.get_yticklabels()) == drawn
    assert not any(text.get_parse_math() for text in ax.get_yticklabels())
    ax = oc.pl.heatmap(adata, n_genes=len(HOSTILE), groupby="cell_type")
    assert sorted(shown(ax.get_xticklabels())) == sorted(drawn)
    assert [text.rpartition(" ")[0] for text in shown(ax.get_yticklabels())][:2] == ["$t^1$", "_kind"]
    assert not any(text.get_parse_math() for text in (*ax.get_xticklabels(), *ax.get_yticklabels()))
    ax = oc.pl.means(adata, markers=HOSTILE)
    assert set(drawn) <= set(shown(ax.texts))
    assert not any(text.get_parse_math() for text in ax.texts if text.get_text() in drawn)
    ax = oc.pl.arrows(adata, color="cell_type")
    texts = ax.get_legend().get_texts()
    assert shown(texts)[2:5] == ["$t^1$", "_kind", "M" * 60]
    assert not any(text.get_parse_math() for text in texts)


def test_a_map_under_another_key_that_moves_nothing():
    adata = cells()
    adata.uns["none"] = adata.uns["occamap"]
    adata.layers["none_displacement"] = 0 * adata.layers["occamap_displacement"]
    adata.var["none_mean"] = 0.0
    assert "no gene moves" in shown(rendered(oc.pl.genes(adata, key="none")).texts)
    assert "no gene moves" in shown(rendered(oc.pl.heatmap(adata, key="none")).texts)
    assert "of the changes: none, one is constant" in rendered(oc.pl.means(adata, key="none")).texts[-1].get_text()
    rendered(oc.pl.arrows(adata, key="none"))


@pytest.mark.parametrize("draw", [oc.pl.genes, oc.pl.heatmap, oc.pl.arrows, oc.pl.means, oc.pl.convergence])
def test_errors_about_the_map(draw):
    with pytest.raises(InputError, match=r"key must be that of a map .*'occamap'"):
        draw(cells(), key="other")
    with pytest.raises(InputError, match=r"must be .*AnnData.*; got list"):
        draw([])


@pytest.mark.parametrize("draw", [oc.pl.genes, oc.pl.heatmap, oc.pl.arrows, oc.pl.means])
def test_cells_of_a_side_must_be_left(draw):
    adata = cells()
    with pytest.raises(InputError, match="control, 'control', must have at least 1 cells; it has 0"):
        draw(adata[adata.obs["condition"] == "treated"])


# -- genes ---------------------------------------------------------------------------------------------------------


def test_bars_are_the_table():
    adata = cells()
    table = oc.tl.gene_table(adata, subsamples=3, n_jobs=1, wilcoxon=False)
    ax = oc.pl.genes(table, n=7)
    np.testing.assert_allclose([bar.get_width() for bar in ax.patches], table["mean"][:7])
    assert shown(ax.get_yticklabels()) == table.index[:7].tolist()
    assert ax.get_ylim() == (6.5, -0.5)  # the first on top
    np.testing.assert_allclose([bar.get_y() + bar.get_height() / 2 for bar in ax.patches], range(7), atol=1e-12)
    (intervals,) = [part for part in ax.collections if isinstance(part, LineCollection)]
    ends = np.array([segment[:, 0] for segment in intervals.get_segments()])
    np.testing.assert_allclose(ends, table[["low", "high"]][:7])
    assert shown(ax.texts)[:7] == [f"{share:.0%}" for share in table["share"][:7]]
    colours = {bar.get_facecolor() for bar in ax.patches}
    assert len(colours) == table["direction"][:7].nunique()
    plain = oc.pl.genes(adata, n=7)
    np.testing.assert_allclose([bar.get_width() for bar in plain.patches], table["mean"][:7])
    assert not any(isinstance(part, LineCollection) for part in plain.collections)
    assert plain.get_title() == "control → treated"


def test_bars_do_not_depend_on_the_order_of_the_table_and_skip_what_is_not_known():
    table = oc.tl.gene_table(cells(), wilcoxon=False)
    table["low"], table["high"] = np.nan, np.nan
    first = table.index[0]
    table.loc[first, "mean"] = np.nan
    table.loc[table.index[1], "share"] = np.nan
    ax = rendered(oc.pl.genes(table[::-1], n=3))
    assert shown(ax.get_yticklabels()) == table.index[1:4].tolist()
    assert shown(ax.texts)[0] == ""
    assert len(oc.pl.genes(table, n=10_000).patches) == (table["mean"].fillna(0) != 0).sum()


@pytest.mark.filterwarnings("ignore:Control cells of some groups")
def test_a_group_of_a_split_table():
    adata = cells()
    table = oc.tl.gene_table(adata, by="cell_type", wilcoxon=False)
    ax = oc.pl.genes(table, group="type 1", n=4)
    np.testing.assert_allclose([bar.get_width() for bar in ax.patches], table.loc["type 1"]["mean"][:4])
    assert ax.get_title() == "cell_type: type 1"
    for group in (None, "type 9"):
        with pytest.raises(InputError, match=r"group must be one of .*'type 0', 'type 1', 'type 2'.*; got"):
            oc.pl.genes(table, group=group)
    with pytest.raises(InputError, match="group must be None unless the table is split"):
        oc.pl.genes(adata, group="type 1")
    with pytest.raises(InputError, match=r"columns of tl.gene_table; 'mean'"):
        oc.pl.genes(table.drop(columns="mean"), group="type 1")
    with pytest.raises(InputError, match="n must be an integer ≥ 1"):
        oc.pl.genes(adata, n=0)


# -- heatmap -------------------------------------------------------------------------------------------------------


def test_the_heatmap_holds_the_displacements_by_group_distance_and_mean():
    adata = cells()
    ax = oc.pl.heatmap(adata, n_genes=9, groupby="cell_type")
    mean = adata.var["occamap_mean"]
    most = mean[mean.abs().sort_values(ascending=False, kind="stable").index[:9]].sort_values(ascending=False)
    assert shown(ax.get_xticklabels()) == most.index.tolist()
    control = adata.obs[adata.obs["condition"] == "control"]
    order = control.sort_values(["cell_type", "occamap_distance"], ascending=[True, False]).index
    wanted = adata[order, most.index].layers["occamap_displacement"].toarray()
    np.testing.assert_array_equal(ax.images[0].get_array(), wanted)
    low, high = ax.images[0].get_clim()
    assert low == -high < 0
    sizes = control["cell_type"].value_counts().sort_index()
    assert shown(ax.get_yticklabels()) == [f"{name} ({size})" for name, size in sizes.items()]
    lines = [line.get_ydata()[0] for line in ax.lines]
    np.testing.assert_allclose(lines, sizes.cumsum()[:-1] - 0.5)
    assert ax.get_ylabel() == "90 control cells, by cell_type"


def test_the_heatmap_samples_each_group_and_says_so():
    adata = cells()
    kinds = np.array(["rare" if k < 2 else "common" for k in range(adata.n_obs)], dtype=object)
    kinds[5] = np.nan
    adata.obs["kind"] = kinds
    ax = oc.pl.heatmap(adata, n_genes=5, groupby="kind", max_cells=20)
    assert ax.images[0].get_array().shape == (20, 5)
    assert ax.get_ylabel() == "20 of 90 control cells (sampled), by kind"
    assert shown(ax.get_yticklabels()) == ["common (87)", "rare (2)", "(no entry) (1)"]
    again = oc.pl.heatmap(adata, n_genes=5, groupby="kind", max_cells=20)
    np.testing.assert_array_equal(ax.images[0].get_array(), again.images[0].get_array())
    assert rendered(oc.pl.heatmap(adata, groupby="kind", max_cells=1)).images[0].get_array().shape[0] == 1
    assert oc.pl.heatmap(adata, max_cells=30).get_ylabel() == "30 of 90 control cells (sampled)"
    with pytest.raises(InputError, match=r"groupby must be a column of adata.obs .*'cell_type'.*; got 'cell_typ'"):
        oc.pl.heatmap(adata, groupby="cell_typ")


# -- arrows --------------------------------------------------------------------------------------------------------


def quiver(ax):
    (found,) = [part for part in ax.collections if isinstance(part, Quiver)]
    return found


def test_arrows_in_principal_components_are_the_displacement_times_them():
    adata = cells()
    control = np.flatnonzero(adata.obs["condition"] == "control")
    for basis in ("pca", "X_pca"):
        drawn = quiver(oc.pl.arrows(adata, basis=basis))
        wanted = adata.layers["occamap_displacement"][control] @ adata.varm["PCs"][:, :2]
        np.testing.assert_allclose(np.column_stack([drawn.U, drawn.V]), wanted)
        np.testing.assert_allclose(np.column_stack([drawn.X, drawn.Y]), adata.obsm["X_pca"][control, :2])
    ax = oc.pl.arrows(adata, max_arrows=20)
    few, kept = quiver(ax), control[evenly(90, 20)]
    np.testing.assert_allclose(np.column_stack([few.X, few.Y]), adata.obsm["X_pca"][kept, :2])
    assert shown(ax.get_legend().get_texts()) == ["control (90)", "treated (70)", "predicted (of 20 of 90)"]
    assert ax.get_xlabel() == "PC1"
    assert ax.dataLim.contains(*np.array([few.X + few.U, few.Y + few.V])[:, 0])


@pytest.mark.parametrize("stored", [True, False])
def test_arrows_in_other_embeddings_end_at_the_mean_of_the_nearest_target_cells(stored):
    adata = cells()
    if stored:
        space, loadings = adata.obsm["X_pca"], adata.varm["PCs"]
    else:
        from sklearn.decomposition import PCA

        del adata.varm["PCs"]
        pca = PCA(50, svd_solver="full").fit(adata.X.toarray().astype(np.float64))
        space, loadings = pca.transform(adata.X.toarray()), pca.components_.T
    control, target = (np.flatnonzero(adata.obs["condition"] == name) for name in ("control", "treated"))
    predicted = space[control] + adata.layers["occamap_displacement"][control] @ loadings
    near = np.argsort(((predicted[:, None] - space[target]) ** 2).sum(axis=2), axis=1)[:, :4]
    drawn = quiver(oc.pl.arrows(adata, basis="umap", n_neighbors=4))
    ends = np.column_stack([drawn.X + drawn.U, drawn.Y + drawn.V])
    np.testing.assert_allclose(ends, adata.obsm["X_umap"][target][near].mean(axis=1))


def test_arrows_and_cells_without_a_place_or_an_entry():
    adata = cells()
    adata.obsm["X_umap"][[0, 100]] = np.nan
    adata.obs["score"] = np.where(np.arange(adata.n_obs) % 3, np.arange(adata.n_obs), np.nan)
    adata.obs["kind"] = pd.Categorical.from_codes(np.arange(adata.n_obs) % 3 - 1, ["x", "y"])
    adata.uns["kind_colors"] = ["#ff0000", "#00ff00"]
    assert len(quiver(rendered(oc.pl.arrows(adata, basis="umap"))).U) == 89
    rendered(oc.pl.arrows(adata, basis="umap", color="score"))
    ax = rendered(oc.pl.arrows(adata, basis="umap", color="kind", max_arrows=0))
    assert shown(ax.get_legend().get_texts()) == ["control (89)", "treated (69)", "x", "y", "(no entry)"]
    assert ax.get_legend().legend_handles[2].get_color() == "#ff0000"
    adata.obs["many"] = [f"c{k}" for k in range(adata.n_obs)]
    rendered(oc.pl.arrows(adata, color="many"))
    rendered(oc.pl.arrows(adata, n_neighbors=1000, basis="umap"))


def test_errors_about_the_embedding():
    adata = cells()
    with pytest.raises(InputError, match=r"'X_pca', 'X_umap'\); got 'tsne'; .*sc.pp.pca\(adata\)"):
        oc.pl.arrows(adata, basis="tsne")
    with pytest.raises(InputError, match=r"color must be a column of adata.obs"):
        oc.pl.arrows(adata, color="no")
    adata.obsm["X_one"] = np.zeros((adata.n_obs, 1))
    with pytest.raises(InputError, match="basis must have at least two dimensions"):
        oc.pl.arrows(adata, basis="one")
    del adata.obsm
    with pytest.raises(InputError, match="there is none"):
        oc.pl.arrows(adata)


# -- means ---------------------------------------------------------------------------------------------------------


def test_dots_are_means_and_the_corner_holds_their_correlations():
    adata = cells()
    control, target = (adata[adata.obs["condition"] == name] for name in ("control", "treated"))
    before, observed = (np.asarray(side.X.astype(np.float64).mean(axis=0)).ravel() for side in (control, target))
    predicted = before + control.layers["occamap_displacement"].toarray().mean(axis=0, dtype=np.float64)
    ax = oc.pl.means(adata, n_labels=3)
    np.testing.assert_allclose(ax.collections[0].get_offsets(), np.column_stack([observed, predicted]))
    named = adata.var_names[np.argsort(-np.abs(observed - before))[:3]]
    assert set(shown(ax.texts)[:3]) == set(named)
    told = ax.texts[-1].get_text()
    assert f"of the means: {oc.metrics.pearson_r2(observed, predicted):.3f}" in told
    assert f"of the changes: {oc.metrics.pearson_r2(observed - before, predicted - before):.3f}" in told
    assert ax.get_xlim() == ax.get_ylim()


def test_markers_must_be_genes_and_may_be_none():
    adata = cells()
    name = adata.var_names[5]
    assert shown(oc.pl.means(adata, markers=name).texts)[0] == name
    assert len(oc.pl.means(adata, n_labels=0).texts) == 1
    with pytest.raises(InputError, match="markers must name genes of the map; 1 of 2 do not: 'nope'"):
        oc.pl.means(adata, markers=[name, "nope"])


def test_means_are_of_the_genes_that_were_used():
    adata = cells()
    used = adata.var_names[10:30].tolist()
    oc.tl.monge_map(adata, groupby="condition", control="control", target="treated", use_genes=used, n_jobs=1)
    assert oc.pl.means(adata).collections[0].get_offsets().shape == (20, 2)
    drawn = quiver(oc.pl.arrows(adata))
    control = (adata.obs["condition"] == "control").to_numpy()
    np.testing.assert_allclose(drawn.U, adata.layers["occamap_displacement"][control] @ adata.varm["PCs"][:, 0])


# -- convergence and frontier --------------------------------------------------------------------------------------


def test_convergence_is_the_report():
    adata = cells()
    fitted = oc.tl.monge_map(adata, groupby="condition", control="control", target="treated", n_jobs=1)
    for given in (fitted, adata):
        ax = oc.pl.convergence(given)
        curve, line = ax.lines
        np.testing.assert_array_equal(curve.get_ydata(), fitted.report_.errors)
        np.testing.assert_array_equal(curve.get_xdata(), np.arange(1, fitted.n_iter_ + 1))
        assert line.get_ydata()[0] == fitted.tol
        assert ax.get_yscale() == "log"
        assert ax.get_title().startswith(f"converged: {fitted.n_iter_} iteration")
    adata.uns["occamap"] |= {"errors": np.array([0.0, np.nan]), "status": "max_iter"}
    assert rendered(oc.pl.convergence(adata)).get_title().startswith("max iter: 2 iterations")
    rendered(oc.pl.convergence(search()))


def test_the_frontier_of_a_table_is_its_means():
    ax = rendered(oc.pl.frontier(tidy()))
    line, point, *across = ax.lines
    np.testing.assert_allclose(line.get_xydata(), [[0.205, 3.5], [0.105, 4.5]])
    np.testing.assert_allclose(point.get_xydata(), [[0.905, 3.0]])
    assert [other.get_ydata()[0] for other in across] == [9.5, 6.5, 1.5]
    assert shown(ax.texts) == ["γ = 0.1", "γ = 1"]
    assert shown(ax.get_legend().get_texts())[:3] == ["ℓ1", "½ℓ2²", "nothing moves"]
    assert ax.get_xscale() == "log"


def test_frontiers_of_tables_with_less_in_them():
    table = tidy()
    points = rendered(oc.pl.frontier(table[["density", "divergence"]].iloc[:3]))
    np.testing.assert_allclose(points.lines[0].get_xydata(), [[0.1, 4.0], [0.2, 3.0], [0.9, 2.5]])
    assert points.get_legend() is None
    costs = table.rename(columns={"method": "cost"}).assign(cost="$_odd", density=0.0)
    costs.loc[0, "divergence"] = np.nan
    ax = rendered(oc.pl.frontier(costs))
    assert shown(ax.get_legend().get_texts()) == ["$_odd"]
    assert ax.get_xscale() == "symlog"
    rendered(oc.pl.frontier(table[table["method"] == "identity"]))
    rendered(oc.pl.frontier(table[:0]))
    with pytest.raises(InputError, match="must have columns 'density' and 'divergence'; it has 'method'"):
        oc.pl.frontier(table[["method"]])


def test_frontiers_of_searches_and_of_their_maps():
    found = search()
    chosen = found.best_map_
    with pytest.raises(InputError, match=r"source must be a fitted MongeMapCV, .* got MongeMap$"):
        oc.pl.frontier(chosen)
    chosen.selection_ = found
    try:
        np.testing.assert_allclose(
            oc.pl.frontier(chosen).collections[-1].get_offsets()[0],
            [found.results_["mean_density"][found.best_index_], found.results_["mean_divergence"][found.best_index_]],
        )
    finally:
        del chosen.selection_


def test_without_matplotlib_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingPackageError, match=r"occamap.pl needs matplotlib, .*pip install 'occamap\[cells\]'"):
        importlib.reload(oc.pl)


def test_spread_keeps_order_gap_and_bounds():
    rng = np.random.default_rng(0)
    for count in (0, 1, 2, 7, 40):
        wanted = np.sort(rng.uniform(-0.2, 1.2, count))
        placed = spread(wanted, 0.05)
        assert placed.shape == wanted.shape
        assert ((placed >= -1e-12) & (placed <= 1 + 1e-12)).all()
        assert (np.diff(placed) >= min(0.05, 1 / max(count - 1, 1)) - 1e-9).all()
    np.testing.assert_allclose(spread(np.array([0.2, 0.5, 0.9]), 0.1), [0.2, 0.5, 0.9])
