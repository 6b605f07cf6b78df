"""Error rates in the front end: tl.monge_map(fdr=, replicate=), tl.calibration, pl.calibration and `occamap fit`."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

import occamap as oc
from occamap.cli.app import app
from occamap.errors import InputError, InputWarning, MatchWarning
from occamap.reports.again import command
from occamap.run_record import RunRecord

anndata = pytest.importorskip("anndata", reason="the front end reads AnnData: install the extra `cells`")
ASKED = {"groupby": "condition", "control": "control", "target": "treated"}
RUN = CliRunner()
SETS = {"first": ["G00001", "G00002", "G00003"], "others": ["G00004", "G00005", "G00006"]}


def cells(n_control=150, n_treated=140, donors=4, effect=1.5, seed=0, shared=True):
    """Simulated cells of some donors, each in both conditions or, if not shared, in one."""
    data = oc.datasets.simulate_perturbation(
        n_control, n_treated, 120, effect=effect, n_moved=8, density=0.3, random_state=seed
    )
    adata = data.to_anndata()
    place = adata.obs.groupby("condition", observed=True).cumcount().to_numpy() % donors
    names = [f"d{k}" if shared else f"{c} d{k}" for k, c in zip(place, adata.obs["condition"], strict=True)]
    adata.obs["donor"] = pd.Categorical(names)
    return adata


@pytest.fixture(scope="module")
def adata():
    return cells()


@pytest.fixture(scope="module")
def mapped(adata):
    made = adata.copy()
    return made, oc.tl.monge_map(made, **ASKED, replicate="donor")


@pytest.fixture(scope="module")
def file(adata, tmp_path_factory):
    path = tmp_path_factory.mktemp("cells") / "cells.h5ad"
    adata.write_h5ad(path)
    return path


# --- what is written ---------------------------------------------------------------------------------------------


def test_q_values_have_the_pattern_of_the_displacements(mapped):
    adata, fitted = mapped
    moves, q = adata.layers["occamap_displacement"], adata.layers["occamap_q"]
    assert moves.nnz > 100
    np.testing.assert_array_equal(moves.indptr, q.indptr)
    np.testing.assert_array_equal(moves.indices, q.indices)
    assert 0 < q.data.min() <= q.data.max() <= 0.1
    entry = adata.uns["occamap"]
    assert entry["params"]["replicate"] == "donor"
    assert entry["critical"] == pytest.approx(fitted.threshold_.critical)


def test_the_map_is_that_of_the_matrices(mapped):
    adata, fitted = mapped
    control = (adata.obs["condition"] == "control").to_numpy()
    names = adata.obs["donor"].astype(str).to_numpy()
    plain = oc.MongeMap(epsilon=10, epsilon_scale="perplexity", relax=1.0, pool="auto", match=30, fdr=0.1,
                        replicate=(names[control], names[~control]))  # fmt: skip
    plain.fit(adata.X[control], adata.X[~control])
    assert (plain.q_values(adata.X[control]) != fitted.q_values(adata.X[control])).nnz == 0


def test_cells_without_a_donor_are_left_out(adata):
    some = adata.copy()
    names = some.obs["donor"].astype(object)
    names.iloc[[0, 1, -1]] = None
    some.obs["donor"] = names
    known = names.notna().to_numpy()
    with pytest.warns(InputWarning, match=r"3 cells|cells without"):
        oc.tl.monge_map(some, **ASKED, replicate="donor")
    fewer = adata[known].copy()
    oc.tl.monge_map(fewer, **ASKED, replicate="donor")
    assert (some[known].layers["occamap_q"] != fewer.layers["occamap_q"]).nnz == 0
    assert some[~known].layers["occamap_displacement"].nnz == 0


def test_categories_without_cells_and_numbers_are_donors_as_any(adata, mapped):
    other = adata.copy()
    other.obs["donor"] = other.obs["donor"].cat.add_categories(["nobody", "d9"])
    number = adata.copy()
    number.obs["donor"] = adata.obs["donor"].astype(str).str[1:].astype(int)
    for some in (other, number):
        oc.tl.monge_map(some, **ASKED, replicate="donor")
        assert (some.layers["occamap_q"] != mapped[0].layers["occamap_q"]).nnz == 0


def test_the_table_uses_the_donors_of_the_map(mapped):
    adata, _ = mapped
    table, named = oc.tl.gene_table(adata), oc.tl.gene_table(adata, replicate="donor")
    pd.testing.assert_frame_equal(table, named)
    assert (table["n_replicates"] == 4).all()
    alone = oc.tl.gene_table(adata, replicate=None)
    assert "n_replicates" not in alone.columns
    assert alone["p"].median() < table["p"].median()


def test_two_runs_give_the_same_bits(adata, mapped):
    again = adata.copy()
    oc.tl.monge_map(again, **ASKED, replicate="donor", n_jobs=1)
    for layer in ("occamap_displacement", "occamap_q"):
        assert (again.layers[layer] != mapped[0].layers[layer]).nnz == 0


def test_another_rate_or_none(adata):
    found = {}
    for fdr in (0.01, 0.2, None):
        some = adata.copy()
        oc.tl.monge_map(some, **ASKED, fdr=fdr)
        found[fdr] = some
    assert found[0.01].layers["occamap_displacement"].nnz < found[0.2].layers["occamap_displacement"].nnz
    assert "occamap_q" not in found[None].layers
    assert found[None].uns["occamap"]["params"].get("fdr") is None


# --- bad input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("donors", [1, 2])
def test_too_few_donors_give_no_q_values(donors):
    some = cells(donors=donors)
    with pytest.warns(InputWarning, match=f"at least 3 values in each condition.*has {donors} in one of them"):
        oc.tl.monge_map(some, **ASKED, replicate="donor")
    assert "occamap_q" not in some.layers
    assert some.uns["occamap"]["params"]["cost"]["gamma"] > 0
    with pytest.warns(InputWarning, match=f"at least 3 values in each condition for a test.*has {donors}"):
        table = oc.tl.gene_table(some)
    assert table[["p", "q", "difference_low"]].isna().all().all()
    assert oc.tl.gene_table(some, replicate=None)["q"].notna().any()


@pytest.mark.parametrize(("given", "message"), [
    ({"fdr": 0}, "fdr must be"),
    ({"fdr": 1.0}, "fdr must be"),
    ({"fdr": -0.1}, "fdr must be"),
    ({"fdr": float("nan")}, "fdr must be"),
    ({"fdr": "x"}, "fdr must be 'auto', None or a number between 0 and 1, such as 0.1; got 'x'"),
    ({"fdr": True}, "fdr must be"),
    ({"fdr": 0.1, "gamma": 1.0}, "fdr"),
    ({"fdr": 0.1, "pool": None}, "pool must not be None with fdr"),
    ({"fdr": 0.1, "match": None}, "match must not be None with fdr"),
    ({"fdr": 0.1, "gammas": [0.1, 1.0]}, "fdr must not be given with gammas"),
    ({"fdr": None, "replicate": "donor"}, "replicate must be given only with fdr, but fdr is None"),
    ({"gamma": 1.0, "replicate": "donor"}, "replicate must be given only with fdr, but fdr is None"),
    ({"replicate": "condition"}, "which is groupby"),
    ({"replicate": "nobody"}, "'nobody'"),
])  # fmt: skip
def test_rejects_in_a_sentence(adata, given, message):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        with pytest.raises(InputError, match=message):
            oc.tl.monge_map(adata.copy(), **ASKED, **given)


@pytest.mark.parametrize(("pool", "says"), [
    (10, "pool=10: use pool='auto'"),
    ("tiny", "groups 't0', 't1'.*: use larger groups"),
    ("graph", "in effect: use pool"),
])  # fmt: skip
def test_small_neighbourhoods_are_warned_about(adata, pool, says):
    some = adata.copy()
    some.obs["tiny"] = [f"t{k // 20}" for k in range(some.n_obs)]
    some.obsp["graph"] = sp.csr_matrix(np.eye(some.n_obs) + np.eye(some.n_obs, k=1))
    with pytest.warns(InputWarning, match=f"fewer than 30 cells.*{says}"):
        oc.tl.monge_map(some, **ASKED, pool=pool)


def test_neighbourhoods_that_are_large_enough_are_no_reason_to_warn(adata):
    some = adata.copy()
    some.obs["half"] = ["a", "b"] * (some.n_obs // 2)
    for pool in (30, "half", "auto"):
        oc.tl.monge_map(some, **ASKED, pool=pool)


def test_groups_with_too_few_donors_are_left_out(adata):
    some = adata.copy()
    names = some.obs["donor"].astype(str)
    first = some.obs["cell_type"] == some.obs["cell_type"].iloc[0]
    some.obs["donor"] = np.where(first, "d" + (names.str[1:].astype(int) % 2).astype(str), names)
    with pytest.warns(oc.errors.MatchWarning, match=r"fewer than 3 replicates \('donor'\) in a condition are left out"):
        oc.tl.monge_map(some, **ASKED, within="cell_type", replicate="donor")
    assert some.obs["occamap_distance"][first].isna().all()
    assert some.obs["occamap_distance"][~first & (some.obs["condition"] == "control")].notna().all()
    oc.tl.gene_table(some, by="cell_type")
    oc.tl.monge_map(some, **ASKED, within="cell_type")
    with pytest.warns(InputWarning, match=r"fewer than 3 replicates \('donor'\) in a condition are not tested"):
        table = oc.tl.gene_table(some, by="cell_type", replicate="donor")
    untested = table["p"].isna().groupby("cell_type").all()
    assert untested.sum() == 1


def test_no_group_with_enough_donors_gives_no_q_values(adata):
    some = adata.copy()
    some.obs["donor"] = some.obs["cell_type"].astype(str)
    with pytest.warns(InputWarning, match="in each condition of a group of 'cell_type'; no group has more than 1"):
        oc.tl.monge_map(some, **ASKED, within="cell_type", replicate="donor")
    assert "occamap_q" not in some.layers


def test_donors_in_one_condition_are_named(adata):
    some = adata.copy()
    names = some.obs["donor"].astype(str).to_numpy()
    names[-3:] = "another"
    some.obs["donor"] = names
    with pytest.warns(InputWarning, match=r"unpaired replicates: 'another \(3 cells\)'"):
        oc.tl.monge_map(some, **ASKED, replicate="donor")
    assert "occamap_q" in some.layers


@pytest.mark.parametrize("nobody", ["unassigned", "Doublet ", "", "nan", None])
def test_cells_of_no_donor_are_left_out(adata, nobody):
    some = adata.copy()
    names = some.obs["donor"].astype(object).to_numpy()
    names[[2, -3, -1]] = nobody
    some.obs["donor"] = names
    kept = some[np.delete(np.arange(some.n_obs), [2, some.n_obs - 3, some.n_obs - 1])].copy()
    with pytest.warns(InputWarning, match="3 cells without a replicate"):
        oc.tl.monge_map(some, **ASKED, replicate="donor")
    oc.tl.monge_map(kept, **ASKED, replicate="donor")
    pd.testing.assert_frame_equal(oc.tl.gene_table(some), oc.tl.gene_table(kept), rtol=1e-6)


@pytest.mark.parametrize("left", [1, 4])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_donor_with_few_cells_is_in_every_half(adata, left, seed):
    mine = np.flatnonzero((adata.obs["condition"] == "control") & (adata.obs["donor"] == "d2"))
    rest = adata[np.setdiff1d(np.flatnonzero(adata.obs["donor"] != "d3"), mine[left:])].copy()
    oc.tl.monge_map(rest, **ASKED, replicate="donor")
    assert oc.tl.calibration(rest, n_maps=2, random_state=seed)["map"].nunique() == 2
    table = oc.tl.gene_table(rest, subsamples=2, random_state=seed)
    assert table["frequency"].notna().all()


def test_nothing_that_could_be_tested_is_said(adata):
    some = adata.copy()
    with pytest.warns(InputWarning, match=r"No entry could be tested.*3 replicates \(donor\).*such as pool='auto'"):
        oc.tl.monge_map(some, **ASKED, replicate="donor", pool="donor")
    assert some.layers["occamap_displacement"].nnz == 0


def test_columns_that_the_table_has_are_no_groups(mapped):
    some = mapped[0].copy()
    for name in ("gene", "q", "pathway"):
        some.obs[name] = some.obs["cell_type"]
    for name in ("gene", "q"):
        with pytest.raises(InputError, match=f"by must not have the name of a column of the table; got '{name}'"):
            oc.tl.gene_table(some, by=name)
    with pytest.raises(InputError, match="got 'pathway'"):
        oc.tl.pathway_table(some, by="pathway", gene_sets={"one": some.var_names[:9]})
    some.obs["auto"] = some.obs["donor"]
    with pytest.raises(InputError, match=r"column called 'auto'.*rename it"):
        oc.tl.monge_map(some, **ASKED, replicate="auto")


@pytest.mark.parametrize("rate", ["0", "1", "nan", "-1", "x"])
def test_the_command_rejects_rates_in_its_own_words(file, tmp_path, rate):
    words = ["fit", str(file), "--groupby", "condition", "--control", "control", "--target", "treated"]
    done = RUN.invoke(app, [*words, f"--fdr={rate}", "--out", str(tmp_path / "run")])
    assert done.exit_code == 2
    assert "--fdr must be none or a number between 0 and 1" in " ".join(done.stderr.split())


def test_the_command_counts_what_responds_in_each_group(file, tmp_path):
    words = ["fit", str(file), "--groupby", "condition", "--control", "control", "--target", "treated"]
    words += ["--by", "cell_type", "--replicate", "donor", "--subsamples", "2", "--top", "7"]
    words += ["--out", str(tmp_path / "run")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        done = RUN.invoke(app, words)
    assert done.exit_code == 0, done.output
    table = pd.read_csv(tmp_path / "run" / "genes_by_cell_type.csv")
    found = table[table["q"] <= 0.1].groupby("cell_type").size()
    responses = RunRecord.read(tmp_path / "run").result["responses"]
    assert {name: part["n_genes_found"] for name, part in responses.items() if part["n_genes_found"]} == found.to_dict()
    replicates = table.groupby("cell_type")["n_replicates"].first()
    up = table[(table["q"] <= 0.1) & (table["difference"] > 0)].groupby("cell_type").size()
    for name, count in found.items():
        line = f"{count:6,}  {name} ({up[name]} up; {replicates[name]} replicates): {responses[name]['first'][0]}"
        assert line in done.stdout
    genes = table.loc[table["q"] <= 0.1, "gene"].nunique()
    assert f"By cell_type: {genes:,} genes respond in at least one group; {found.sum():,} responses" in done.stdout
    assert f"corrected for all {table['q'].notna().sum():,} tests" in done.stdout
    page = (tmp_path / "run" / "report.html").read_text()
    assert f"over all {table['q'].notna().sum():,} pairs of gene and group" in page
    assert f"{found.max():,} genes respond in {found.sort_index().idxmax()}" in page
    assert "in top 7 of" in done.stdout
    whole = pd.read_csv(tmp_path / "run" / "genes.csv")
    assert (whole["frequency"] > 0).sum() <= 14
    record = RunRecord.read(tmp_path / "run")
    assert record.parameters["top"] == 7
    assert "--top=7" in command(record)


def test_the_command_says_that_one_penalty_does_not_use_replicates(file, tmp_path):
    words = ["fit", str(file), "--groupby", "condition", "--control", "control", "--target", "treated"]
    words += ["--replicate", "donor", "--gamma", "1", "--subsamples", "0", "--out", str(tmp_path / "run")]
    done = RUN.invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "The map has no error rate and does not use the replicates" in done.stdout


def test_conditions_are_no_replicates(adata, mapped):
    for call in (
        lambda: oc.tl.monge_map(adata.copy(), **ASKED, replicate="condition"),
        lambda: oc.tl.gene_table(mapped[0], replicate="condition"),
        lambda: oc.evaluate(adata, groupby="condition", control="control", replicate="condition", verbose=False),
    ):
        with pytest.raises(InputError, match="donors, animals or batches; got 'condition', which is groupby"):
            call()


def test_donors_of_either_condition_are_no_reason_to_warn():
    oc.tl.monge_map(cells(shared=False), **ASKED, replicate="donor")


def test_a_measurement_is_no_column_of_donors(adata):
    some = adata.copy()
    some.obs["depth"] = np.random.default_rng(0).normal(size=some.n_obs)
    with pytest.raises(InputError, match=r"column of donors, animals or batches.*290 values for 290 cells"):
        oc.tl.monge_map(some, **ASKED, replicate="depth")


def test_tables_check_another_column_of_replicates_as_maps_do(mapped):
    some = mapped[0].copy()
    some.obs["depth"] = np.random.default_rng(0).normal(size=some.n_obs)
    names = some.obs["donor"].astype(str).to_numpy(copy=True)
    names[[2, -1]] = "unassigned"
    some.obs["person"] = names
    for table in (oc.tl.gene_table, lambda *args, **asked: oc.tl.pathway_table(*args, gene_sets=SETS, **asked)):
        with pytest.raises(InputError, match="column of donors, animals or batches"):
            table(some, replicate="depth")
        with pytest.warns(InputWarning, match="2 cells without a replicate"):
            table(some, replicate="person")


def test_one_donor_with_nearly_all_cells_is_said(mapped):
    some = mapped[0].copy()
    place = some.obs.groupby(["condition", "cell_type"], observed=True).cumcount().to_numpy()
    some.obs["person"] = np.where(place < 1, "a", np.where(place < 2, "b", "c"))
    for table in (oc.tl.gene_table, lambda *args, **asked: oc.tl.pathway_table(*args, gene_sets=SETS, **asked)):
        with pytest.warns(InputWarning, match="One replicate of .* has nearly all cells"):
            found = table(some, replicate="person")
        assert (found["n_replicates"] == 3).all()
    with pytest.warns((InputWarning, MatchWarning)) as told:
        oc.tl.gene_table(some, by="cell_type", replicate="person")
    assert any("nearly all cells in groups of 'cell_type': 'type 0'" in str(warning.message) for warning in told)


def test_rejects_negative_seeds(mapped):
    for run in (oc.tl.calibration, lambda *args, **asked: oc.tl.gene_table(*args, subsamples=2, **asked)):
        with pytest.raises(InputError, match="random_state must be an integer ≥ 0; got -1"):
            run(mapped[0], random_state=-1)


def test_genes_that_are_constant_do_not_move(adata):
    some = adata.copy()
    dense = some.X.toarray()
    dense[:, 0], dense[:, 1] = 0.0, 1.5
    some.X = sp.csr_matrix(dense)
    oc.tl.monge_map(some, **ASKED, replicate="donor")
    assert some.layers["occamap_q"][:, :2].nnz == 0
    table = oc.tl.gene_table(some).loc[some.var_names[:2], ["p", "q"]]
    assert table.iloc[0].isna().all()  # never detected: no test
    assert table.iloc[1].isna().all() or (table.iloc[1] == 1).all()


# --- calibration -------------------------------------------------------------------------------------------------


def test_calibration_is_near_the_diagonal_where_nothing_differs():
    some = cells(400, 100, effect=1.0)
    oc.tl.monge_map(some, **ASKED)
    table = oc.tl.calibration(some, n_maps=4, random_state=1)
    assert table.columns.tolist() == ["map", "expected", "observed"]
    assert table["map"].nunique() == 4
    known = table.dropna()
    assert len(known) >= 12
    np.testing.assert_allclose(known["observed"] / known["expected"], 1.0, atol=0.3)
    assert abs((known["observed"] / known["expected"]).mean() - 1) < 0.12


def test_calibration_depends_on_the_seed_alone(mapped):
    adata, _ = mapped
    one, same, other = (oc.tl.calibration(adata, n_maps=2, random_state=seed) for seed in (3, 3, 4))
    pd.testing.assert_frame_equal(one, same)
    assert not one.equals(other)


def test_calibration_is_drawn(mapped):
    adata, fitted = mapped
    table = oc.tl.calibration(adata, n_maps=2)
    ax = oc.pl.calibration(adata)
    drawn = [line for line in ax.get_lines() if len(line.get_xdata()) == table["expected"].nunique()]
    assert len(drawn) == 2
    np.testing.assert_array_equal(drawn[0].get_ydata(), table.loc[table["map"] == 0, "observed"])
    horizontals = [line.get_ydata()[0] for line in ax.get_lines() if len(set(line.get_ydata())) == 1]
    assert horizontals == [pytest.approx(fitted.threshold_.critical)]
    ax.figure.clear()


def test_calibration_needs_a_rate_and_cells(adata):
    some = adata.copy()
    oc.tl.monge_map(some, **ASKED)
    with pytest.raises(InputError, match=r"run occamap\.tl\.calibration first"):
        oc.pl.calibration(some)
    with pytest.raises(InputError, match="n_maps"):
        oc.tl.calibration(some, n_maps=0)
    oc.tl.monge_map(some, **ASKED, fdr=None)
    with pytest.raises(InputError, match=r"fdr=0\.1"):
        oc.tl.calibration(some)


@pytest.mark.parametrize("within", [None, "cell_type"])
def test_null_maps_keep_groups_and_donors(adata, within):
    some = adata.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        oc.tl.monge_map(some, **ASKED, replicate="donor", within=within)
        table = oc.tl.calibration(some, n_maps=1)
    assert table["observed"].notna().any()


# --- the command line --------------------------------------------------------------------------------------------


def fit(file, out, *more):
    asked = ["--groupby", "condition", "--control", "control", "--target", "treated", "--out", str(out)]
    return RUN.invoke(app, ["fit", str(file), *asked, "--subsamples", "0", *more])


@pytest.mark.parametrize(("more", "says"), [
    ([], "Cells are not replicates"),
    (["--replicate", "donor"], "tested across replicates (donor; at least 4 per condition)"),
    (["--fdr", "0.005"], "a false-discovery rate of 0.5 %"),
    (["--fdr", "none"], None),
])  # fmt: skip
def test_fit_says_how_sure_it_is(file, tmp_path, more, says):
    done = fit(file, tmp_path / "run", *more)
    assert done.exit_code == 0, done.output
    words = " ".join(done.output.split())
    assert says is None or says in words
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["result"]["fdr"] == {"--fdr": None if "none" in more else 0.005}.get((more or [""])[0], 0.1)
    table = pd.read_csv(tmp_path / "run" / "genes.csv", index_col=0)
    assert ((table["q"] <= record["result"]["false_discovery_rate"]).sum()) == record["result"]["n_genes_found"]
    page = (tmp_path / "run" / "report.html").read_text()
    assert ("also hold for new replicates" in page) == ("--replicate" in more)


@pytest.mark.parametrize(("more", "says"), [
    (["--fdr", "1.5"], "--fdr must be"),
    (["--fdr", "x"], "--fdr must be none or a number between 0 and 1, such as 0.1; got 'x'"),
    (["--replicate", "nobody"], "--replicate"),
    (["--fdr", "0.1", "--gamma", "1"], "--gamma must not be given with --fdr"),
    (["--fdr", "0.1", "--cost", "stvs"], "--cost must not be given with --fdr"),
])  # fmt: skip
def test_fit_refuses_in_a_sentence(file, tmp_path, more, says):
    done = fit(file, tmp_path / "run", *more)
    assert done.exit_code == 2
    assert says in " ".join(done.output.split())
    assert not (tmp_path / "run" / "genes.csv").exists()


@pytest.mark.parametrize("donors", [1, 2])
def test_fit_with_too_few_donors_has_no_q_values(tmp_path, donors):
    path = tmp_path / "few.h5ad"
    cells(donors=donors).write_h5ad(path)
    done = fit(path, tmp_path / "run", "--replicate", "donor")
    assert done.exit_code == 0, done.output
    words = " ".join(done.output.split())
    assert "--replicate must have at least 3 values in each condition" in words
    assert "does not use the replicates; genes have no q-values." in words
    assert pd.read_csv(tmp_path / "run" / "genes.csv")["q"].isna().all()
    assert "A test needs at least 3 replicates" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize("n", [4, 12, 30])
def test_a_handful_of_cells_ends_in_no_error(n):
    some = cells(n, n, donors=2)
    oc.tl.monge_map(some, **ASKED)
    assert np.isfinite(some.layers["occamap_displacement"].data).all()
    assert some.layers["occamap_q"].nnz == some.layers["occamap_displacement"].nnz


def test_two_cells_are_too_few_to_test():
    some = cells(20, 20, donors=2)[[0, 1, *range(20, 40)]].copy()
    for replicate in (None, "donor"):
        with pytest.warns(InputWarning, match="at least 3 control and 3 target cells; got 2|at least 3 values"):
            oc.tl.monge_map(some, **ASKED, replicate=replicate)
        assert "occamap_q" not in some.layers
