"""Frozen and favoured genes: laws of what they do to a map, what is kept of them, and what is said of bad ones."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import occamap as oc
from occamap.cli.app import app
from occamap.errors import InputError, InputWarning

anndata = pytest.importorskip("anndata")
pd = pytest.importorskip("pandas")

from occamap.tl.stored import read  # noqa: E402
from occamap.tl.weights import dispersion_weights, frozen_genes, matching  # noqa: E402

PAIR = {"groupby": "condition", "control": "control", "target": "treated"}
PLAIN = {**PAIR, "pool": None, "match": None}
KEYS = "occamap_displacement"


def cells():
    adata = oc.datasets.simulate_perturbation(60, 50, 80, effect=1.5, density=0.3, n_moved=8).to_anndata()
    names = adata.var_names.to_numpy().astype(object)
    names[:6] = ["MT-ND1", "MT-CO1", "mt-x", "RPL3", "RPL[1]", "MTOR"]
    adata.var_names = names.astype(str)
    adata.var["ribosomal"] = adata.var_names.str.startswith("RPL")
    return adata


@pytest.fixture
def adata():
    return cells()


def moves(adata, **asked) -> np.ndarray:
    oc.tl.monge_map(adata, **{**PLAIN, **asked})
    return adata.layers[KEYS].toarray()


def test_frozen_genes_neither_move_nor_count(adata):
    """The map is that of the data without them."""
    still = adata.var_names.str.startswith("MT-")
    found = moves(adata, frozen=["MT-*"])
    assert not found[:, still].any()
    rest = adata[:, ~still].copy()
    np.testing.assert_allclose(found[:, ~still], moves(rest), atol=1e-5)
    assert np.isinf(adata.var["occamap_weight"][still]).all()
    assert (adata.var["occamap_weight"][~still] == 1).all()


def test_frozen_genes_do_not_count_in_pooled_maps(adata):
    """Not in the match, the neighbourhoods or the default γ: the map is the same, whatever their values."""
    still = adata.var_names.str.match("MT-|RPL")
    before = oc.tl.monge_map(adata, **PAIR, frozen=["MT-*", "RPL*"])
    found = adata.layers[KEYS].toarray()
    adata.X = adata.X.multiply(np.where(still, 20, 1)).tocsr().astype(np.float32)
    after = oc.tl.monge_map(adata, **PAIR, frozen=["MT-*", "RPL*"])
    assert found.any()
    assert not found[:, still].any()
    assert after.cost.gamma == before.cost.gamma
    np.testing.assert_array_equal(adata.layers[KEYS].toarray(), found)


@pytest.mark.parametrize(
    ("frozen", "names"),
    [
        ("MT-*", {"MT-ND1", "MT-CO1"}),
        ("ribosomal", {"RPL3", "RPL[1]"}),
        (["ribosomal", "MTOR"], {"RPL3", "RPL[1]", "MTOR"}),
        (["RPL[1]"], {"RPL[1]"}),  # a name before it is a pattern
        (["RPL[!1]"], {"RPL3"}),
        (("?T-*", "RPL3"), {"MT-ND1", "MT-CO1", "RPL3"}),
    ],
)
def test_names_patterns_and_columns(adata, frozen, names):
    assert set(adata.var_names[frozen_genes(adata, frozen)[0]]) == names


def test_weights_are_those_of_the_cost(adata):
    """Every way to give them makes the map of L1 with these weights."""
    weights = np.random.default_rng(0).uniform(0.5, 2, adata.n_vars)
    expected = moves(adata, cost=oc.L1(0.3, weights))
    adata.var["w"] = weights
    shuffled = pd.Series(weights, adata.var_names).sample(frac=1, random_state=0)
    for given in (weights, "w", shuffled, dict(zip(adata.var_names, weights, strict=True))):
        np.testing.assert_array_equal(moves(adata, weights=given), expected)
        np.testing.assert_array_equal(adata.var["occamap_weight"], weights)
    np.testing.assert_array_equal(moves(adata, cost=oc.L1(0.3), weights="w"), expected)
    np.testing.assert_array_equal(moves(adata, gamma=0.3, weights=weights), expected)


def test_patterns_favour_and_freeze(adata):
    moves(adata, weights={"*": 2.0, "RPL*": 0.5, "RPL3": np.inf}, frozen="MTOR")
    found = adata.var["occamap_weight"]
    assert found["RPL[1]"] == 0.5
    assert np.isinf(found[["RPL3", "MTOR"]]).all()
    assert (found.drop(["RPL[1]", "RPL3", "MTOR"]) == 2).all()


def test_a_favoured_gene_moves_more_often(adata):
    """As γ w_t falls, gene t moves in more cells."""
    gene = adata.var["ribosomal"].to_numpy().nonzero()[0][0]
    shares = [np.count_nonzero(moves(adata, weights={"RPL3": w})[:, gene]) for w in (4.0, 1.0, 0.0)]
    assert shares[0] < shares[1] < shares[2]


def test_dispersion_is_the_spread_of_the_control_cells(adata):
    control = adata[adata.obs["condition"] == "control"].X.toarray().astype(np.float64)
    found = dispersion_weights(control)
    sd = control.std(axis=0)
    high = sd > 0.1 * sd.mean()
    np.testing.assert_allclose(found[high] / found[high][0], sd[high] / sd[high][0], rtol=1e-5)
    np.testing.assert_allclose((found * np.maximum(sd, 0.1 * sd.mean())).sum(), np.maximum(sd, 0.1 * sd.mean()).sum())
    moves(adata, weights="dispersion")
    np.testing.assert_allclose(adata.var["occamap_weight"], found, rtol=1e-5)
    assert adata.uns["occamap"]["params"]["weights"] == "dispersion"


def test_only_used_genes_have_weights(adata):
    use = np.arange(adata.n_vars) % 2 == 0
    adata.var["w"] = np.where(use, 1.0, np.nan)
    moves(adata, use_genes=use, weights="w", frozen="MT-*")
    np.testing.assert_array_equal(np.isnan(adata.var["occamap_weight"]), ~use)


def test_the_same_cost_after_reading(adata, tmp_path):
    """Also where genes have been dropped since, or stand in another order."""
    moves(adata, weights={"RPL*": 0.5}, frozen=["MT-*"])
    adata.write_h5ad(tmp_path / "a.h5ad")
    again = anndata.read_h5ad(tmp_path / "a.h5ad")
    assert read(again, "occamap").unfitted().cost == read(adata, "occamap").unfitted().cost
    assert list(again.uns["occamap"]["params"]["frozen"]) == ["MT-*"]
    assert again.uns["occamap"]["params"]["n_frozen"] == 2
    fewer = again[:, ::-1][:, :40].copy()
    np.testing.assert_array_equal(read(fewer, "occamap").unfitted().cost.weights, fewer.var["occamap_weight"])
    assert "low" in oc.tl.gene_table(again, subsamples=2)


def test_a_later_map_leaves_nothing_of_the_earlier(adata):
    moves(adata, frozen=["MT-*"])
    moves(adata)
    assert "occamap_weight" not in adata.var
    assert read(adata, "occamap").unfitted().cost == oc.L1(0.3)


def test_held_out_cells_choose_with_weights(adata):
    m = oc.tl.monge_map(adata, **PAIR, frozen="MT-*", gammas=[0.1, 0.5], max_density=0.5)
    assert np.isinf(m.cost.weights).sum() == 2
    assert m.cost.gamma in (0.1, 0.5)
    free = oc.tl.monge_map(adata, **PAIR, cost=oc.L1, frozen="MT-*", max_density=0.5)
    assert np.isinf(free.cost.weights).sum() == 2


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"frozen": ["MT_*"]}, r"'MT_\*' matches none: there are 'MT-"),
        ({"frozen": ["rpl*"]}, r"matches none: capitals matter, and there are 'RPL3', 'RPL\[1\]'"),
        ({"frozen": ["MT-*", "RPL4"]}, "'RPL4' matches none"),  # a name is not a pattern
        ({"frozen": ["MT-*", "RSP*", "RPL4"]}, "'RPL4' matches none"),
        ({"frozen": ["RSP*", "?-MT"]}, r"'RSP\*' matches none"),
        ({"weights": {"MT-*": 2, "RSP*": 2}}, r"'RSP\*' matches none"),
        ({"frozen": ["MT-*", 3]}, "must hold gene names or patterns; got 3"),
        ({"frozen": []}, "at least one"),
        ({"frozen": 3}, "must be gene names"),
        ({"frozen": ["*"]}, "all 80 are frozen"),
        ({"frozen": "level"}, "True and False"),
        ({"weights": "wieght"}, r"column of adata.var \('weight'"),
        ({"weights": "weight"}, r"has -1 \(1 such\)"),
        ({"weights": np.ones(3)}, "each of the 80 genes"),
        ({"weights": {"RPL*": -1}}, "≥ 0"),
        ({"weights": {"RPL*": np.nan}}, "finite"),
        ({"weights": {}}, "at least one"),
        ({"weights": pd.Series([1.0], ["MTOR"])}, "79 lack one"),
        ({"weights": pd.Series([1.0, 1.0], ["MTOR", "MTOR"])}, "twice"),
        ({"weights": "text"}, "real numbers"),
        ({"frozen": "MT-*", "cost": oc.STVS(1.0)}, "only with the cost L1"),
        ({"weights": "dispersion", "cost": oc.SqL2()}, "only with the cost L1"),
        ({"frozen": "MT-*", "cost": oc.L1(1.0, np.ones(80))}, "weights of its own"),
        ({"gamma": 0.3, "cost": oc.L1(1.0)}, "gamma must not be given with cost"),
        ({"gamma": 0.3, "gammas": [0.1, 0.2]}, "with gammas"),
        ({"gamma": -1.0}, "gamma must be"),
        ({"l1_ratio": 0.5}, "only with gene_sets"),
    ],
)
def test_what_is_refused(adata, asked, words):
    adata.var["level"] = np.arange(adata.n_vars)
    adata.var["weight"] = np.where(np.arange(adata.n_vars) == 7, -1.0, 1.0)
    adata.var["text"] = "a"
    with pytest.raises(InputError, match=words):
        oc.tl.monge_map(adata, **PAIR, **asked)
    assert "occamap" not in adata.uns


def test_a_pattern_among_genes_that_are_not_used_is_no_mistake(adata):
    moves(adata, use_genes=~adata.var_names.str.startswith("MT-"), frozen="MT-*")
    assert adata.uns["occamap"]["params"]["n_frozen"] == 0


@pytest.mark.parametrize(
    ("frozen", "words"),
    [
        (["MT-*", "RSP*"], r"'RSP\*' matches none: "),
        (["rpl*", "ribosomal"], r"'rpl\*' matches none: capitals matter, and there are 'RPL3'"),
        (["MTOR", "ERCC-?"], r"'ERCC-\?' matches none: "),
    ],
)
def test_a_pattern_without_genes_beside_others_is_said(adata, frozen, words):
    """The map is that of the others, and the warning points here."""
    with pytest.warns(InputWarning, match=words) as heard:
        found = moves(adata, frozen=frozen)
    assert [Path(one.filename) for one in heard] == [Path(__file__)]
    rest = [pattern for pattern in frozen if pattern in ("MT-*", "ribosomal", "MTOR")]
    np.testing.assert_array_equal(found, moves(adata, frozen=rest))


def test_matching_is_case_sensitive():
    assert matching(np.array(["MT-ND1", "mt-nd1"]), "MT-*", "frozen").tolist() == [True, False]


def test_the_command_line(adata, tmp_path):
    adata.write_h5ad(tmp_path / "cells.h5ad")
    words = ["fit", tmp_path / "cells.h5ad", "--groupby", "condition", "--control", "control", "--target", "treated"]
    words += ["--subsamples", 0, "--frozen", "MT-*", "--frozen", "ribosomal", "--weights", "dispersion"]
    told = CliRunner().invoke(app, [str(word) for word in [*words, "--out", tmp_path / "run"]])
    assert told.exit_code == 0, told.output
    record = json.loads((tmp_path / "run/run.json").read_text())
    assert record["parameters"]["frozen"] == ["MT-*", "ribosomal"]
    assert record["parameters"]["weights"] == "dispersion"
    assert record["result"]["n_frozen"] == 4
    weights = oc.load(tmp_path / "run/map.occamap").cost.weights
    assert np.isinf(weights).sum() == 4
    table = pd.read_csv(tmp_path / "run/genes.csv", index_col="gene")
    assert (table.loc[["MT-ND1", "RPL3"], "share"] == 0).all()
    for extra, said in (
        (["--cost", "stvs"], "frozen must be given only for the cost l1"),
        (["--l1-ratio", "0.5"], "--l1-ratio must be given only with gene sets"),
        (["--cost", "grouplasso"], "--gene-sets must be given for the cost grouplasso"),
        (["--frozen", "nothing"], "matches none"),
    ):
        wrong = CliRunner().invoke(app, [str(word) for word in [*words, *extra, "--out", tmp_path / "other"]])
        assert wrong.exit_code == 2
        assert said in " ".join(wrong.stderr.split())
    more = [*words, "--frozen", "nothing*", "--out", tmp_path / "warned"]
    warned = CliRunner().invoke(app, [str(word) for word in more])
    assert warned.exit_code == 0, warned.output
    assert "'nothing*' matches none" in " ".join(warned.stderr.split())
    assert "4 genes are frozen, such as MT-ND1, MT-CO1, RPL3." in " ".join(warned.stdout.split())
    record = json.loads((tmp_path / "warned/run.json").read_text())
    assert ["'nothing*' matches none" in text for text in record["warnings"]] == [True]
