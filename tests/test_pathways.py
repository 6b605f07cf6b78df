"""Pathways: gene sets as users and hostile files have them, what a map does to them, and a planted one among decoys."""

from __future__ import annotations

import gzip
import json
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from typer.testing import CliRunner

import occamap as oc
from occamap.cli.app import app
from occamap.errors import InputError, InputWarning

anndata = pytest.importorskip("anndata")
pd = pytest.importorskip("pandas")

from occamap.tl import gmt  # noqa: E402
from occamap.tl.gene_sets import gene_sets_of  # noqa: E402
from occamap.tl.gmt import read_gmt  # noqa: E402
from occamap.tl.stored import read  # noqa: E402

PAIR = {"groupby": "condition", "control": "control", "target": "treated"}
PLAIN = {**PAIR, "pool": None, "match": None}
HOSTILE = "a/b <script>=1+1‮"


def cells(d: int = 60):
    adata = oc.datasets.simulate_perturbation(50, 40, d, effect=1.5, density=0.4, n_moved=8).to_anndata()
    adata.var_names = [f"G{t:02}" for t in range(d)]
    adata.obs["kind"] = np.where(np.arange(adata.n_obs) % 2, "odd", "even")
    return adata


def disjoint(adata, size: int = 6) -> dict[str, list[str]]:
    names = adata.var_names.tolist()
    return {f"set {k}": names[k * size : (k + 1) * size] for k in range(adata.n_vars // size)}


@pytest.fixture
def adata():
    return cells()


@pytest.fixture(scope="module")
def mapped():
    """Cells with a map over disjoint sets, one of which has a hostile name; the last genes are in none."""
    adata = cells()
    sets = disjoint(adata)
    sets[HOSTILE] = sets.pop("set 1")
    del sets["set 9"]
    oc.tl.monge_map(adata, **PAIR, gene_sets=sets, frozen=["G00"])
    return adata, sets


def everything(adata) -> np.ndarray:
    return np.ones(adata.n_vars, dtype=bool)


def as_dict(found, adata) -> dict[str, set[str]]:
    names = adata.var_names.to_numpy()
    return {name: set(names[member]) for name, member in zip(found.names, found.members, strict=True)}


# -- reading gene sets -----------------------------------------------------------------------------------------


def test_every_container_gives_the_same_sets(adata, tmp_path):
    sets = disjoint(adata)
    rows = [(name, gene) for name, genes in sets.items() for gene in genes]
    frame = pd.DataFrame(rows, columns=["source", "target"])
    matrix = np.zeros((adata.n_vars, len(sets)))
    for k, genes in enumerate(sets.values()):
        matrix[adata.var_names.isin(genes), k] = 0.5
    text = "".join(f"{name}\tdescribed\t" + "\t".join(genes) + "\n" for name, genes in sets.items())
    (tmp_path / "a.gmt").write_text(text)
    (tmp_path / "b.gmt.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "c").write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\t\t\r\n\r\n").encode())
    adata.uns |= {"dict": {name: np.array(genes) for name, genes in sets.items()}, "frame": frame}
    adata.uns |= {"omnipath": frame.set_axis(["geneset", "genesymbol"], axis=1), "array_names": list(sets)}
    adata.uns["sparse"] = np.array(list(sets))
    adata.varm["marks"] = pd.DataFrame(matrix > 0, adata.var_names, list(sets))
    adata.varm["array"], adata.varm["sparse"] = matrix, sp.csr_matrix(matrix)
    given = [sets, frame, "dict", "frame", "omnipath", "marks", "array", "sparse"]
    given += [tmp_path / "a.gmt", str(tmp_path / "b.gmt.gz"), str(tmp_path / "c")]
    for one in given:
        found = gene_sets_of(adata, one, everything(adata))
        assert as_dict(found, adata) == {name: set(genes) for name, genes in sets.items()}, one
        assert found.n_absent == 0
    adata.write_h5ad(tmp_path / "a.h5ad")
    again = anndata.read_h5ad(tmp_path / "a.h5ad")
    for one in ("dict", "frame", "marks", "array", "sparse"):
        assert as_dict(gene_sets_of(again, one, everything(adata)), adata) == as_dict(found, adata)


def test_what_is_dropped_is_counted(adata):
    names = adata.var_names.tolist()
    sets = {"kept": [*names[:3], names[0], "X1", "X2"], "one left": [names[4], "X1"], "none left": ["X3"], "empty": []}
    found = gene_sets_of(adata, sets, everything(adata))
    assert found.names == ("kept",)
    assert found.given == (5,)
    assert found.record().items() >= {"n_sets_given": 4, "n_sets_dropped": 3, "n_genes_absent": 3}.items()
    used = everything(adata)
    used[0] = False
    assert gene_sets_of(adata, sets, used).members[0].tolist() == [0, 1]  # places among the used ones


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        ({"a": ["ENSG1", "ENSG2"]}, r"such as 'ENSG1', 'ENSG2', none or too few.*such as 'G00'.*Ensembl"),
        ({}, "holds none"),
        ({"a": "G00"}, "lists of gene names; 'a' is 'G00'"),
        ({"a": ["G00", 3]}, "'a' holds 3"),
        ({"a": None}, "'a' is None"),
        ({3: ["G00", "G01"]}, "texts as names"),
        ({"": ["G00", "G01"]}, "texts as names"),
        (5, "; got int$"),
        (["G00"], "; got list$"),
        ("nowhere", r"GMT file, or a key of adata.uns or adata.varm \("),
        ("nowhere.gmt", "no file 'nowhere.gmt'"),
        (Path("nowhere"), "no file 'nowhere'"),
        ("a\0.gmt", "no file"),
        ("number", "is int"),
        ("frame", "has 'x', 'y'"),
        ("holes", "rows that do not"),
        ("nan", "finite"),
        ("twice", "'s' twice"),
    ],
)
def test_what_is_refused(adata, sets, words):
    adata.uns |= {"number": 3, "frame": pd.DataFrame({"x": ["a"], "y": ["b"]}), "sets": {"a": ["G00"]}}
    adata.uns["holes"] = pd.DataFrame({"source": ["a", None], "target": ["G00", "G01"]})
    adata.varm["nan"] = np.full((adata.n_vars, 1), np.nan)
    adata.varm["twice"] = np.ones((adata.n_vars, 2))
    adata.uns["twice_names"] = ["s", "s"]
    with pytest.raises(InputError, match=words):
        gene_sets_of(adata, sets, everything(adata))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a\tb\tG00\tG01\nno tabs here\n", "line 2 of .* has no tab: 'no tabs here'"),
        (b"a\tb\tG00\n\n\tb\tG00\n", "line 3 of .* begins with a tab"),
        (b"a\tb\tG00\nc\tb\tG00\na\tb\tG01", "'a' in lines 1 and 3"),
        (b"a\tb\tG00\xff\n", "UTF-8 text; line 1"),
        (b"a\x00b\tb\tG00\n", "printable characters; line 1"),
        (b"a\tb\tG00\rc\tb\tG01", "printable characters; line 1"),
        (b"\n \n", "has none"),
        (b"", "has none"),
        (gzip.compress(b"a\tb\tG00\tG01\n")[:-12], "cannot be read"),
        (b"\x1f\x8b" + bytes(100), "cannot be read"),
    ],
)
def test_files_that_are_not_sound(tmp_path, content, words):
    (tmp_path / "x.gmt").write_bytes(content)
    with pytest.raises(InputError, match=words):
        list(read_gmt(tmp_path / "x.gmt"))


def test_a_bomb_is_not_unpacked(tmp_path, monkeypatch):
    """32 MB of one line, or of lines, in a few kB: reading stops at the bound."""
    (tmp_path / "line.gmt").write_bytes(gzip.compress(b"a\tb\t" + b"G" * 2**25))
    lines = b"".join(b"%d\tb\t%s\n" % (k, b"G" * 2**15) for k in range(999))
    (tmp_path / "lines.gmt").write_bytes(gzip.compress(lines))
    tracemalloc.start()
    with pytest.raises(InputError, match="bytes a line; line 1"):
        list(read_gmt(tmp_path / "line.gmt"))
    assert tracemalloc.get_traced_memory()[1] < 4 * gmt.LONGEST
    tracemalloc.stop()
    monkeypatch.setattr(gmt, "LARGEST", 2**20)
    with pytest.raises(InputError, match="unpacked"):
        list(read_gmt(tmp_path / "lines.gmt"))
    monkeypatch.setattr(gmt, "MOST", 3)
    with pytest.raises(InputError, match="at most 3 sets"):
        list(read_gmt(tmp_path / "lines.gmt"))


@given(content=st.binary(max_size=200) | st.text("ab\t\r\n\0é", max_size=60).map(str.encode))
def test_any_bytes_are_read_or_refused(content, tmp_path_factory):
    path = tmp_path_factory.mktemp("gmt") / "x.gmt"
    path.write_bytes(content)
    try:
        found = list(read_gmt(path))
    except InputError:
        return
    assert all(name and all(genes) for name, genes in found)
    assert len({name for name, _ in found}) == len(found) > 0


# -- the map ---------------------------------------------------------------------------------------------------


def test_the_cost_is_the_group_lasso_over_the_sets(adata):
    """The front end adds nothing: the same displacements as MongeMap with the same cost."""
    sets = disjoint(adata)
    m = oc.tl.monge_map(adata, **PAIR, gene_sets=sets, gamma=0.2, l1_ratio=0.25)
    place = {name: [adata.var_names.get_loc(gene) for gene in genes] for name, genes in sets.items()}
    cost = oc.GroupLasso(0.2, place, l1_ratio=0.25)
    assert m.cost == cost
    control, treated = (adata[adata.obs["condition"] == group].X for group in ("control", "treated"))
    alone = oc.MongeMap(cost, 10.0, "perplexity", relax=1.0, pool="auto", match=30).fit(control, treated)
    found = adata.layers["occamap_displacement"].toarray()[: control.shape[0]]
    np.testing.assert_allclose(found, alone.displacement(control).toarray(), atol=1e-6)


def test_frozen_genes_leave_their_sets(mapped):
    adata, _ = mapped
    cost = read(adata, "occamap").unfitted().cost
    assert cost.groups["set 0"].tolist() == [1, 2, 3, 4, 5]
    assert cost.groups["frozen"].tolist() == [0]
    np.testing.assert_allclose(cost.weights[:-1], [np.sqrt(len(group)) for group in cost.groups.values()][:-1])
    assert np.isinf(cost.weights[-1])
    assert not adata.layers["occamap_displacement"].toarray()[:, 0].any()
    assert "frozen" not in oc.tl.pathway_table(adata).index
    assert oc.tl.pathway_table(adata).loc["set 0", "n_genes"] == 5


def test_a_group_of_frozen_genes_finds_a_name(adata):
    sets = {"frozen": ["G01", "G02", "G03"]}
    oc.tl.monge_map(adata, **PAIR, gene_sets=sets, frozen="G03")
    assert set(read(adata, "occamap").cost().groups) == {"frozen", "frozen_"}


def test_all_of_it_survives_a_file(mapped, tmp_path):
    """Names with a slash included; genes may be dropped, and stand in another order."""
    adata, sets = mapped
    adata.write_h5ad(tmp_path / "a.h5ad")
    again = anndata.read_h5ad(tmp_path / "a.h5ad")
    assert read(again, "occamap").unfitted().cost == read(adata, "occamap").unfitted().cost
    pd.testing.assert_frame_equal(oc.tl.pathway_table(again), oc.tl.pathway_table(adata))
    kept = again.uns["occamap"]["gene_sets"]
    assert set(kept["names"]) == set(sets)
    assert (kept["n_sets_given"], kept["n_sets_dropped"], kept["n_genes_absent"]) == (9, 0, 0)
    assert list(again.uns["occamap"]["params"]["frozen"]) == ["G00"]
    assert oc.tl.gene_table(again, subsamples=2).shape[0] == adata.n_vars
    fewer = again[:, np.r_[3, 2, 30:40]].copy()
    groups = read(fewer, "occamap").unfitted().cost.groups
    assert groups["set 0"].tolist() == [0, 1]
    assert list(groups) == ["set 0", "set 5", "set 6"]


def test_a_later_map_leaves_no_sets(adata):
    oc.tl.monge_map(adata, **PAIR, gene_sets=disjoint(adata))
    oc.tl.monge_map(adata, **PAIR)
    assert "occamap_gene_sets" not in adata.varm
    assert "gene_sets" not in adata.uns["occamap"]
    with pytest.raises(InputError, match="learned without"):
        oc.tl.pathway_table(adata)


def test_held_out_cells_choose_gamma(adata):
    sets = disjoint(adata)
    some = oc.tl.monge_map(adata, **PAIR, gene_sets=sets, gammas=[0.1, 0.4], max_density=0.9)
    assert some.cost.gamma in (0.1, 0.4)
    assert isinstance(some.cost, oc.GroupLasso)
    free = oc.tl.monge_map(adata, **PAIR, gene_sets=sets, cost=oc.GroupLasso, max_density=0.9)
    assert set(free.cost.groups) == set(sets)
    assert free.selection_.results_["gamma"].size == 10


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"cost": oc.L1(0.3)}, "cost must be GroupLasso, or not be given"),
        ({"cost": oc.STVS}, "got STVS"),
        ({"weights": "dispersion"}, "weights must not be given with gene_sets"),
        ({"l1_ratio": 2.0}, "l1_ratio"),
        ({"l1_ratio": "x"}, "l1_ratio"),
        ({"frozen": ["G0*", "G1*", "G2*", "G3*", "G4*", "G5*"]}, "not frozen"),
        ({"gene_sets": None, "cost": oc.GroupLasso}, "gene_sets must be given"),
    ],
)
def test_what_does_not_go_together(adata, asked, words):
    with pytest.raises(InputError, match=words):
        oc.tl.monge_map(adata, **PAIR, **{"gene_sets": disjoint(adata), **asked})
    assert "occamap" not in adata.uns


# -- the table -------------------------------------------------------------------------------------------------


def by_hand(moves: np.ndarray, members: list[int]) -> dict[str, float]:
    mine = moves[:, members].astype(np.float64)
    moving = (mine != 0).any(axis=1)
    return {
        "n_genes": len(members),
        "share": moving.mean(),
        "mean_genes": (mine[moving] != 0).mean() if moving.any() else 0.0,
        "shift": np.sqrt((mine.mean(axis=0) ** 2).mean()),
        "norm": np.linalg.norm(mine, axis=1).mean(),
        "mean": mine.mean(),
        "up": (mine.sum(axis=1) > 0).mean(),
        "down": (mine.sum(axis=1) < 0).mean(),
        "energy": (mine**2).sum() / (moves.astype(np.float64) ** 2).sum(),
    }


@pytest.mark.parametrize("block", [1, 2**22])
def test_the_table_by_hand(adata, monkeypatch, block):
    """Overlapping sets, on a map of ℓ1; whatever the number of cells that are looked at at a time."""
    oc.tl.monge_map(adata, **PLAIN, cost=oc.L1(1.0))
    monkeypatch.setattr(sys.modules["occamap.tl.pathway_table"], "BLOCK", block)
    rng = np.random.default_rng(0)
    members = {f"s{k}": sorted(rng.choice(adata.n_vars, 7, replace=False)) for k in range(12)}
    table = oc.tl.pathway_table(adata, gene_sets={name: adata.var_names[list(m)] for name, m in members.items()})
    moves = adata.layers["occamap_displacement"].toarray()[:50]
    for name, indices in members.items():
        for column, value in by_hand(moves, indices).items():
            assert table.loc[name, column] == pytest.approx(value, rel=1e-5, abs=1e-9), (name, column)
        most = max(indices, key=lambda t: abs(moves[:, t].mean()))
        assert table.loc[name, "top_genes"].split(", ")[0] == adata.var_names[most]
    assert table["shift"].is_monotonic_decreasing
    assert (np.sign(table["mean"]) == table["direction"].map({"up": 1, "down": -1, "none": 0})).all()


def test_groups_of_cells_and_single_cells(mapped):
    adata, sets = mapped
    whole, parts = oc.tl.pathway_table(adata), oc.tl.pathway_table(adata, by="kind")
    shares = adata.obs["kind"][adata.obs["condition"] == "control"].value_counts(normalize=True)
    for column in ("share", "norm", "mean"):
        joined = sum(shares[kind] * parts.loc[kind, column] for kind in shares.index)
        pd.testing.assert_series_equal(joined[whole.index], whole[column], rtol=1e-5, check_names=False)
    cells = oc.tl.pathway_table(adata, per_cell=True)
    assert cells.shape == (50, len(sets))
    np.testing.assert_allclose(cells.mean()[whole.index], whole["norm"], rtol=1e-5)
    np.testing.assert_array_equal((cells > 0).mean()[whole.index], whole["share"])
    for asked in ({"by": "kind", "per_cell": True}, {"by": "absent"}, {"top": -1}, {"key": "absent"}):
        with pytest.raises(InputError):
            oc.tl.pathway_table(adata, **asked)


def set_scores(adata, genes, rows):
    """The mean of the genes of a set, in each cell."""
    return sp.csr_array(adata.X).toarray()[rows][:, adata.var_names.get_indexer(genes)].astype(float).mean(axis=1)


def test_tests_of_sets_are_t_tests_of_their_means():
    """All control cells match all target cells alike, as there are few of these; then SciPy is an oracle."""
    adata = cells()
    sets = disjoint(adata, 10)
    oc.tl.monge_map(adata, **PLAIN, cost=oc.SqL2(), epsilon=1e6, epsilon_scale="mean")
    table = oc.tl.pathway_table(adata, gene_sets=sets)
    treated = (adata.obs["condition"] == "treated").to_numpy()
    for name, genes in sets.items():
        x, y = (set_scores(adata, genes, side) for side in (~treated, treated))
        welch, student = (stats.ttest_ind(y, x, equal_var=alike) for alike in (False, True))
        error = max(abs((y.mean() - x.mean()) / found.statistic) for found in (welch, student))
        row = table.loc[name]
        assert row["difference"] == pytest.approx(y.mean() - x.mean(), abs=1e-4)
        assert row["p"] == pytest.approx(2 * stats.t.sf(abs(y.mean() - x.mean()) / error, welch.df), rel=2e-2)
        assert row["difference_low"] < row["difference"] < row["difference_high"]
    np.testing.assert_allclose(table["q"], stats.false_discovery_control(table["p"]), rtol=1e-12)


def test_a_set_of_a_gene_and_zeros_is_tested_like_the_gene():
    """Half the difference, the same p-value."""
    adata = cells()
    adata.X = sp.csr_matrix(sp.csr_array(adata.X) * (np.arange(adata.n_vars) != 50))
    oc.tl.monge_map(adata, **PAIR)
    sets = {f"{k}": [f"G{k:02}", "G50"] for k in range(6)}
    table, genes = oc.tl.pathway_table(adata, gene_sets=sets), oc.tl.gene_table(adata)
    for name, (gene, _) in sets.items():
        for column, factor in {"difference": 0.5, "difference_low": 0.5, "difference_high": 0.5, "p": 1}.items():
            assert table.loc[name, column] == pytest.approx(factor * genes.loc[gene, column], rel=1e-6), column


@pytest.mark.parametrize("block", [1, 2**24])
def test_tests_of_sets_are_within_groups_and_across_donors(mapped, monkeypatch, block):
    adata = mapped[0].copy()
    adata.obs["donor"] = [f"donor {k % 4}" for k in range(adata.n_obs)]
    whole = {replicate: oc.tl.pathway_table(adata, replicate=replicate) for replicate in (None, "donor")}
    monkeypatch.setattr("occamap.genes.effects.BLOCK", block)
    for replicate, table in whole.items():
        pd.testing.assert_frame_equal(oc.tl.pathway_table(adata, replicate=replicate), table, rtol=1e-9)
    assert "n_replicates" not in whole[None]
    assert (whole["donor"]["n_replicates"] == 4).all()
    assert np.corrcoef(whole["donor"]["difference"], whole[None]["difference"])[0, 1] > 0.99  # donors weigh alike
    assert (whole["donor"]["p"] > whole[None]["p"]).mean() > 0.8
    parts = oc.tl.pathway_table(adata, by="kind")
    np.testing.assert_allclose(parts["q"], stats.false_discovery_control(parts["p"]), rtol=1e-12)
    odd = adata[(adata.obs["kind"] == "odd") | (adata.obs["condition"] == "treated")].copy()
    alone = oc.tl.pathway_table(odd).sort_index()
    pd.testing.assert_series_equal(alone["p"], parts.loc["odd"].sort_index()["p"], rtol=1e-6)


def test_sets_are_not_tested_across_too_few_donors(mapped):
    adata = mapped[0].copy()
    adata.obs["donor"] = [f"donor {k % 2}" for k in range(adata.n_obs)]
    with pytest.warns(InputWarning, match="must have at least 3 values in each condition"):
        table = oc.tl.pathway_table(adata, replicate="donor")
    assert table[["difference_low", "difference_high", "p", "q"]].isna().all(axis=None)
    assert table["difference"].notna().all()
    few = (adata.obs["kind"] == "odd") & (adata.obs["condition"] == "control")
    adata.obs["donor"] = np.where(few, "donor 0", [f"donor {k // 2 % 4}" for k in range(adata.n_obs)])
    with pytest.warns(InputWarning, match=r"Groups of 'kind' with fewer than 3 .* not tested.*'odd \(1\)'"):
        parts = oc.tl.pathway_table(adata, by="kind", replicate="donor")
    assert parts["p"].isna().groupby("kind").all().to_dict() == {"even": False, "odd": True}
    with pytest.raises(InputError, match=r"replicate must be a column of adata\.obs"):
        oc.tl.pathway_table(adata, replicate="absent")


def test_nothing_moves(adata):
    """No division by nothing."""
    oc.tl.monge_map(adata, **PAIR, gene_sets={"all": adata.var_names.tolist()}, gamma=1e6)
    row = oc.tl.pathway_table(adata).loc["all"]
    assert row[["share", "mean_genes", "shift", "norm", "mean", "energy"]].eq(0).all()
    assert (row["direction"], row["top_genes"]) == ("none", "")


# -- a planted pathway -----------------------------------------------------------------------------------------


def planted(seed: int, overlapping: bool, n: int = 120, d: int = 900, size: int = 30, shift: float = 0.5):
    """Noise of variance 1 in every gene, and one set of a hundred (or thirty) that moves by half of it, up or down."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(d)
    mine, rest = order[:size], order[size:]
    sets = {f"decoy {k}": rest[k * size : (k + 1) * size] for k in range(rest.size // size)}
    if overlapping:
        sets |= {f"random {k}": rng.choice(rest, size, replace=False) for k in range(50)}
        for k in range(20):
            few, others = rng.choice(mine, size // 4, replace=False), rng.choice(rest, size - size // 4, replace=False)
            sets[f"overlapping {k}"] = np.r_[few, others]
    sets["planted"] = mine
    X = rng.normal(size=(2 * n, d))
    X[n:, mine] += shift * rng.choice([-1, 1], size)
    adata = anndata.AnnData(X.astype(np.float32))
    adata.var_names = [f"G{t}" for t in range(d)]
    adata.obs["condition"] = np.repeat(["control", "treated"], n)
    return adata, {name: [f"G{t}" for t in members] for name, members in sets.items()}


def density(adata, key: str) -> float:
    moves = adata.layers[f"{key}_displacement"]
    return moves.nnz / (adata.n_obs / 2 * adata.n_vars)


def margin(table, column: str) -> float:
    """How many times that of the next set that has none of its genes."""
    others = [name for name in table.index if name != "planted" and not name.startswith("overlapping")]
    return table.loc["planted", column] / table.loc[others, column].max()


def single_genes(adata, sets, wanted: float):
    """The table of the map of ℓ1 at which as many entries move."""
    low, high = 0.01, 100.0
    for _ in range(12):
        gamma = float(np.sqrt(low * high))
        oc.tl.monge_map(adata, **PLAIN, cost=oc.L1(gamma), key_added="single")
        low, high = (gamma, high) if density(adata, "single") > wanted else (low, gamma)
    assert density(adata, "single") == pytest.approx(wanted, rel=0.05)
    return oc.tl.pathway_table(adata, key="single", gene_sets=sets)


def test_a_planted_pathway_among_overlapping_decoys():
    """It is the first; sets that share genes with it come after it."""
    adata, sets = planted(0, True, n=30, d=240, size=20, shift=0.8)
    oc.tl.monge_map(adata, **PLAIN, gene_sets=sets, gamma=6.0, tol=1e-2)
    found = oc.tl.pathway_table(adata)
    assert found.index[0] == "planted"
    assert margin(found, "shift") > 1.5


@pytest.mark.parametrize("seed", [0, 1])
def test_a_planted_pathway_among_decoys(seed):
    """It is the first, by more than with ℓ1 at equal density, where every set moves in almost every cell."""
    adata, sets = planted(seed, overlapping=False)
    oc.tl.monge_map(adata, **PLAIN, gene_sets=sets, gamma=6.0)
    found = oc.tl.pathway_table(adata)
    single = single_genes(adata, sets, density(adata, "occamap"))
    assert found.index[0] == "planted"
    assert margin(found, "shift") > 1.2 * margin(single, "shift")
    assert margin(found, "norm") > 1.5 > 1.3 > margin(single, "norm")
    assert margin(found, "share") > 1.5
    assert single["share"].min() > 0.9


def test_the_command_line(adata, tmp_path):
    sets = disjoint(adata)
    names = {**{name: name for name in sets}, "set 3": "=1+1<b>\x7f".replace("\x7f", "[/b]")}
    lines = ["\t".join([names[name], "", *genes, "NONE1"]) for name, genes in sets.items()]
    (tmp_path / "sets.gmt").write_text("\n".join([*lines, "too few\t\tG00\tNONE2"]))
    adata.write_h5ad(tmp_path / "cells.h5ad")
    words = ["fit", tmp_path / "cells.h5ad", "--groupby", "condition", "--control", "control", "--target", "treated"]
    words += ["--subsamples", 2, "--gene-sets", tmp_path / "sets.gmt", "--l1-ratio", 0.1, "--frozen", "G0[0-2]"]
    words += ["--by", "kind", "--write-adata"]

    def run(*more):
        return CliRunner().invoke(app, [str(word) for word in [*words, *more]])

    told = run("--out", tmp_path / "run")
    assert told.exit_code == 0, told.output
    said = " ".join(told.stdout.split())
    assert "2 genes of the sets are not among those used, and 1 sets have too few left. 10 of 11 gene sets" in said
    assert "=1+1<b>[/b]" in said
    record = json.loads((tmp_path / "run/run.json").read_text())
    asked, result = record["parameters"], record["result"]
    assert (asked["cost"], asked["l1_ratio"], asked["frozen"]) == ("grouplasso", 0.1, ["G0[0-2]"])
    assert asked["gene_sets"].endswith("sets.gmt")
    assert (result["gene_sets"]["n_sets_dropped"], result["n_frozen"]) == (1, 3)
    like = oc.tl.monge_map(adata, **PAIR, gene_sets=str(tmp_path / "sets.gmt"), frozen="G0[0-2]")
    assert (asked["gamma"], result["gamma"]) == (None, pytest.approx(like.cost.gamma))
    alone = json.loads(run("--json", "--pool", "none", "--match", "none", "--out", tmp_path / "alone").stdout)
    assert alone["result"]["gamma"] == 3.0
    assert set(result["gene_sets"]["names"]) == set(names.values())
    table = pd.read_csv(tmp_path / "run/pathways.csv", index_col="pathway", keep_default_na=False)
    kept = anndata.read_h5ad(tmp_path / "run/cells.h5ad")
    expected = oc.tl.pathway_table(kept)
    pd.testing.assert_frame_equal(table, expected, check_dtype=False, check_names=False)
    parts = pd.read_csv(tmp_path / "run/pathways_by_kind.csv", index_col=["kind", "pathway"])
    assert parts.index.get_level_values("kind").unique().tolist() == ["even", "odd"]
    assert oc.load(tmp_path / "run/map.occamap").cost == read(kept, "occamap").cost()
    assert len(json.loads(run("--json", "--gamma", 0.1, "--out", tmp_path / "again").stdout)["first_pathways"]) == 10
    for more, words_said in (
        (["--cost", "l1"], "cost must be grouplasso, or not be given, where gene sets are"),
        (["--weights", "dispersion"], "weights must be given only for the cost l1"),
        (["--gene-sets", tmp_path / "absent.gmt"], "there is no file"),
        (["--k", 3], "k must be given only"),
    ):
        wrong = run(*more, "--out", tmp_path / "other")
        assert wrong.exit_code == 2
        assert words_said in " ".join(wrong.stderr.split())
    assert not (tmp_path / "other").exists() or not list((tmp_path / "other").iterdir())
    assert "--gene-sets hallmark.gmt" in " ".join(CliRunner().invoke(app, ["fit", "--help"]).stdout.split())
