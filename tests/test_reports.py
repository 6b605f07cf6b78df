"""Reports: from a saved run to one page, without fitting, whatever things are called."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import re
import shlex
import shutil
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import HOSTILE, TYPES
from hypothesis import given
from hypothesis import strategies as st

import occamap as oc
from occamap.errors import InputError, MissingPackageError, ModelFileError, OccamapError, RunFileError

pd = pytest.importorskip("pandas")
pytest.importorskip("jinja2")

from occamap.reports import choice, scores, trust, view, words  # noqa: E402
from occamap.reports.again import command, search  # noqa: E402
from occamap.reports.html import ASSETS, CHARTS  # noqa: E402
from occamap.reports.pack import entries, pack  # noqa: E402
from occamap.reports.saved import read  # noqa: E402
from occamap.run_record import RunRecord  # noqa: E402

KINDS = "fit", "auto", "path", "evaluation"


def unpacked(text: str) -> tuple[dict, dict]:
    """What assets/data.js makes of the block."""
    block = gzip.decompress(base64.b64decode(text))
    (size,) = struct.unpack("<I", block[:4])
    header = json.loads(block[4 : 4 + size])
    kinds = {"Uint8Array": "u1", "Int8Array": "i1", "Uint16Array": "u2", "Uint32Array": "u4", "Float32Array": "f4"}
    kinds["Float64Array"] = "f8"
    arrays = {
        name: np.frombuffer(block, "<" + kinds[entry["kind"]], entry["length"], 4 + size + entry["at"])
        for name, entry in header["arrays"].items()
    }
    assert all((4 + size + entry["at"]) % 8 == 0 for entry in header["arrays"].values())  # typed arrays need it
    return header, arrays


def block_of(page: str) -> tuple[dict, dict]:
    return unpacked(re.search(r'<script type="text/plain" id="data">([^<]*)</script>', page).group(1))


def dense(arrays: dict, shape: tuple[int, int]) -> np.ndarray:
    """The displacements, as assets/data.js reads them; columns are those of `kept`."""
    found = np.zeros(shape)
    for slot, column in enumerate(arrays["kept"]):
        part = slice(arrays["starts"][slot], arrays["starts"][slot + 1])
        rows = np.cumsum(arrays["steps"][part].astype(int)) - 1
        found[rows, column] = arrays["values"][part] * arrays["units"][slot]
    return found


# -- the page ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_made_again_is_the_one_that_the_run_wrote(saved_runs, kind, tmp_path):
    written = saved_runs[kind] / "report.html"
    made = oc.report(saved_runs[kind], tmp_path / "page.html")
    assert made == tmp_path / "page.html"
    assert made.read_bytes() == written.read_bytes()
    assert RunRecord.read(saved_runs[kind]).files["report"] == "report.html"


def test_a_page_is_made_without_fitting(saved_runs, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise AssertionError("fitted again")

    monkeypatch.setattr("occamap.maps.monge_map.MongeMap.fit", fail)
    monkeypatch.setattr("occamap.sinkhorn.Solver.__call__", fail)
    for kind in KINDS:
        oc.report(saved_runs[kind], tmp_path / f"{kind}.html")


@pytest.mark.parametrize("kind", KINDS)
def test_names_are_escaped_and_no_other_script_may_run(saved_runs, kind):
    page = (saved_runs[kind] / "report.html").read_text(encoding="utf-8")
    own, vega = page.split("<script>")[2:], page.split("<script>")[1]
    assert len(own) == 1
    scripts = [part.split("</script>")[0] for part in (vega, *own)]
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', page).group(1))
    for script in scripts:
        assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in policy
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    words_of = page.replace(vega, "").replace(own[0], "")
    for name in (*HOSTILE[:2], TYPES[0], TYPES[2], "<i>type<i>", "cells <1>.h5ad"):
        assert name not in words_of
    assert not re.search(r"https?://", re.sub(r'"\$schema": "[^"]*"', "", words_of))


def test_the_page_of_a_fit_says_what_was_found(saved_runs):
    page = html.unescape((saved_runs["fit"] / "report.html").read_text(encoding="utf-8"))
    table = pd.read_csv(saved_runs["fit"] / "genes.csv", keep_default_na=False, float_precision="round_trip")
    null = RunRecord.read(saved_runs["fit"]).result["null"]
    table["q"] = table["q"].replace("", "nan").astype(float)  # empty for genes without counts
    found = (table["q"] <= 0.1).sum()
    rate = "10 % false-discovery rate, cells treated as independent"
    assert f"From control to treated, {found} of 150 genes respond ({rate})." in page
    assert "Cells are not replicates" in page
    assert f"where nothing has changed, {null['density']:.1%} of the entries move" in page
    assert f"{table['gene'][0]} ({table['mean'][0]:+.2f})" in page
    header, arrays = block_of(page)
    assert header["genes"] == table["gene"].tolist()
    for name in ("share", "mean", "observed", "difference", "difference_low", "difference_high", "frequency", "q"):
        numbers = table[name].replace("", np.nan).astype(float)  # empty for genes without counts
        np.testing.assert_array_equal(arrays[name], numbers.to_numpy(arrays[name].dtype))
    assert arrays["q"].dtype == np.float64  # they are small
    cells = pd.read_csv(saved_runs["fit"] / "cells.csv", keep_default_na=False)
    assert header["cells"] == cells["cell"].tolist()
    assert [header["groups"][code] for code in arrays["group"]] == cells["group"].tolist()


def test_displacements_in_the_page_are_those_of_the_map(saved_runs):
    header, arrays = block_of((saved_runs["fit"] / "report.html").read_text(encoding="utf-8"))
    model = oc.load(saved_runs["fit"] / "map.occamap")
    whole = model.displacement(model._source.csr()).toarray()
    order = [list(model.feature_names_in_).index(name) for name in header["genes"]]
    found = dense(arrays, whole.shape)
    np.testing.assert_array_equal(found != 0, whole[:, order] != 0)
    assert (np.abs(found - whole[:, order]).max(axis=0) <= np.abs(whole[:, order]).max(axis=0) / 126).all()
    plane = arrays["before"].reshape(len(whole), -1)
    both = np.vstack([model._source.csr().toarray(), model._target.csr().toarray()])
    centred = both - both.mean(axis=0)
    left, values, right = np.linalg.svd(centred, full_matrices=False)
    expected = (left * values)[: len(whole), : plane.shape[1]]
    np.testing.assert_allclose(np.abs(plane), np.abs(expected), atol=1e-3)
    moved = arrays["after"].reshape(plane.shape) - plane
    np.testing.assert_allclose(np.abs(moved), np.abs(whole @ right[: plane.shape[1]].T), atol=1e-3)


def test_the_choice_and_what_other_choices_would_give(saved_runs):
    for kind in ("path", "auto"):
        page = html.unescape((saved_runs[kind] / "report.html").read_text(encoding="utf-8"))
        record = RunRecord.read(saved_runs[kind])
        header, _ = block_of(page)
        points = header["choice"]["points"]
        assert [point["kind"] for point in points].count("chosen") == 1
        assert {line["what"] for line in header["choice"]["lines"]} >= {"nothing moves"}
        assert f"γ = {record.result['gamma']:.4g} was chosen on held-out cells" in page
        assert "(by the rule: perplexity 10) was given." in page
        assert all(note in page for note in record.result["choice"]["notes"])
    table = pd.read_csv(saved_runs["path"] / "path.csv")
    for chosen, said in ((0, {"Sparser"}), (1, {"Sparser", "Denser"}), (2, {"Denser"})):
        told = {"index": chosen, "frontier": [], "comparison": [], "notes": [], "poor": False}
        sentences = choice.choice(table, told).sentences
        assert {sentence.split(":")[0] for sentence in sentences} == said  # no baselines are told of
        for sentence in sentences:
            other = table.iloc[chosen + (1 if sentence.startswith("Sparser") else -1)]
            assert f"γ = {other['gamma']:.3g} " in sentence
            assert f"divergence of {other['mean_divergence']:.4g} " in sentence


def test_a_fit_with_given_values_offers_the_command_that_checks_them(saved_runs, tmp_path):
    page = html.unescape((saved_runs["fit"] / "report.html").read_text(encoding="utf-8"))
    assert "No cells were held out" in page
    told = re.search(r'<pre id="path-command"[^>]*>(.*?)</pre>', page, re.S).group(1)
    shutil.copy(saved_runs["fit"].parent / "cells <1>.h5ad", tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", *shlex.split(told), "--splits", "2", "--gammas", "2"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "path" / "report.html").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_in_the_page_gives_the_same_again(saved_runs, kind, tmp_path):
    page = html.unescape((saved_runs[kind] / "report.html").read_text(encoding="utf-8"))
    told = re.search(r'<pre id="command"[^>]*>(.*?)</pre>', page, re.S).group(1)
    shutil.copy(saved_runs["fit"].parent / "cells <1>.h5ad", tmp_path)
    done = subprocess.run([sys.executable, "-m", *shlex.split(told)], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    again = tmp_path / "again"
    for name in ("genes.csv", "cells.csv", "path.csv", "evaluation.csv"):
        assert (again / name).exists() == (saved_runs[kind] / name).exists()
        if (again / name).exists():
            one, other = (pd.read_csv(folder / name) for folder in (again, saved_runs[kind]))
            steady = [column for column in one if "seconds" not in column]
            pd.testing.assert_frame_equal(one[steady], other[steady])


def test_a_map_of_the_usual_distance_is_offered_a_sparse_path(saved_runs):
    from occamap.reports import build

    run, _ = read(saved_runs["fit"])
    record = RunRecord(**{**vars(run.record), "parameters": {**run.record.parameters, "cost": "sql2", "gamma": None}})
    assert "--cost=l1" in search(record)
    assert "has no γ" in build._why(build.Run(record, {}), None)


@pytest.fixture(scope="module")
def of_sets(tmp_path_factory):
    """A run with gene sets and frozen genes, whose GMT file lies in a folder of its own, and the folder of both."""
    pytest.importorskip("anndata", reason="runs read .h5ad files: install the extra `cells`")
    from occamap.runs.fitting import fit
    from occamap.runs.options import MapOptions, Question

    folder = tmp_path_factory.mktemp("sets")
    adata = oc.datasets.simulate_perturbation(60, 50, 80, effect=2.0, density=0.4, random_state=2).to_anndata()
    adata.write_h5ad(folder / "cells.h5ad")
    names = list(adata.var_names)
    sets = {"<b>A</b>": names[:10], "B": names[10:20], "C": names[20:40]}
    file = folder / "folder of mine" / "some sets.gmt"
    file.parent.mkdir()
    file.write_text("".join("\t".join([name, "", *genes]) + "\n" for name, genes in sets.items()), encoding="utf-8")
    options = MapOptions(gamma=1.5, gene_sets=str(file), l1_ratio=0.1, frozen=(names[3], f"{names[70][:-1]}*"))
    fit(folder / "cells.h5ad", folder / "run", Question("condition", "control", "treated"), options, subsamples=0)
    return folder


def test_a_run_with_gene_sets_is_told_of_and_made_again(of_sets, tmp_path):
    text = (of_sets / "run" / "report.html").read_text(encoding="utf-8")
    page, record = html.unescape(text), RunRecord.read(of_sets / "run")
    assert "folder of mine" not in text
    assert "The cost is ½‖z‖² plus a group lasso over gene sets, γ = 1.5" in page
    assert f"3 gene sets were used (some sets.gmt; l1_ratio = 0.1). {record.result['n_frozen']} genes were kept" in page
    for place in (of_sets / "cells.h5ad", of_sets / "folder of mine" / "some sets.gmt"):
        shutil.copy(place, tmp_path)
    for which, out, files in (
        ("command", "again", ["genes.csv", "cells.csv", "pathways.csv"]),
        ("path-command", "chosen", ["choice.csv", "pathways.csv"]),
    ):
        told = re.search(rf'<pre id="{which}"[^>]*>(.*?)</pre>', page, re.S).group(1)
        done = subprocess.run([sys.executable, "-m", *shlex.split(told)], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        for name in files:
            assert (tmp_path / out / name).exists()
            if out == "again":
                assert (tmp_path / out / name).read_bytes() == (of_sets / "run" / name).read_bytes()
    chosen = RunRecord.read(tmp_path / "chosen")
    assert chosen.parameters["frozen"] == record.parameters["frozen"]
    assert oc.report(of_sets / "run", tmp_path / "twin.html").read_text(encoding="utf-8") == text


@pytest.mark.parametrize(("weights", "said"), [("dispersion", "standard deviation"), ("cares", "the column cares of")])
def test_weights_are_repeated_and_told_of(of_sets, weights, said):
    run, _ = read(of_sets / "run")
    single = {"gene_sets": None, "l1_ratio": None, "frozen": None, "cost": "l1", "weights": weights}
    result = {name: value for name, value in run.record.result.items() if name not in ("gene_sets", "n_frozen")}
    record = replace(run.record, parameters={**run.record.parameters, **single}, result=result)
    assert f"--weights={weights}" in shlex.split(command(record))
    assert f"--weights={weights}" in shlex.split(search(record))
    assert "--gamma=auto" in shlex.split(search(record))
    assert said in words.methods(record, view.view(run))
    assert "gene sets" not in words.methods(record, view.view(run))


def test_names_with_a_carriage_return_survive_the_tables(tmp_path):
    from occamap._files import put_table
    from occamap.reports.saved import _table

    record = RunRecord("fit", oc_data(), {}, {}, (), {}, 0, 1.0, "2026-01-01", {"cells": "cells.csv"})
    for odd in ("a\rb", 'q"\r', "\r\n", "plain"):
        table = pd.DataFrame({"cell": ["one", odd, "NA"], "n_genes": [1, 2, 3]})
        put_table(table, tmp_path / "cells.csv", index=False)
        pd.testing.assert_frame_equal(_table(tmp_path, record, "cells"), table)


def test_a_table_is_not_unpacked(tmp_path):
    """A small file that is compressed can hold a very large table."""
    from occamap.reports.saved import _table

    (tmp_path / "cells.csv.gz").write_bytes(gzip.compress(b"cell,group\n" + b"a,b\n" * 1000))
    record = RunRecord("fit", oc_data(), {}, {}, (), {}, 0, 1.0, "2026-01-01", {"cells": "cells.csv.gz"})
    with pytest.raises(RunFileError):
        _table(tmp_path, record, "cells")


def test_conditions_with_like_names_are_kept_apart(saved_runs):
    run, _ = read(saved_runs["evaluation"])
    table = run.tables["csv"]
    first, second = list(dict.fromkeys(table["within"]))[:2]
    table["target"] = np.where(table["within"] == first, "b: c", "c")
    table["within"] = np.where(table["within"] == first, "a", np.where(table["within"] == second, "a: b", "z"))
    from occamap.reports import page

    header, _ = block_of(page(run).decode())
    assert header["conditions"][1:3] == ["a: b: c", "a: b: c"]


def test_awkward_values_in_a_command(saved_runs):
    record = RunRecord.read(saved_runs["fit"])
    asked = {**record.parameters, "control": "--help", "target": "it's; rm -rf ~", "cost": "sql2", "write_adata": True}
    odd = RunRecord(**{**vars(record), "parameters": asked})
    found = shlex.split(command(odd))
    assert "--control=--help" in found
    assert "--target=it's; rm -rf ~" in found
    assert "--write-adata" in found
    assert not [word for word in found if word.startswith(("--gamma", "--relax", "--layer"))]


# -- the block of numbers ------------------------------------------------------------------------------------------


@given(st.data())
def test_entries_are_kept_to_a_byte_and_never_vanish(data):
    n, d = data.draw(st.integers(1, 20)), data.draw(st.integers(1, 12))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    scale = 10.0 ** rng.integers(-6, 6, size=d)
    moves = sp.csr_array(rng.normal(size=(n, d)) * scale * (rng.random((n, d)) < data.draw(st.floats(0, 1))))
    most = data.draw(st.integers(0, n * d))
    found = entries(moves, most)
    assert found["values"].size <= most
    whole, kept = moves.toarray(), found["kept"].astype(int)
    squares = (whole**2).sum(axis=0)
    assert (np.diff(squares[kept]) <= 1e-12 * squares.max(initial=0)).all()  # those that move most come first
    rest = np.setdiff1d(np.flatnonzero(squares), kept)
    if rest.size:
        first = rest[np.argmax(squares[rest])]
        assert found["values"].size + np.count_nonzero(whole[:, first]) > most
    _, arrays = unpacked(pack({}, found))
    again = dense(arrays, (n, d))
    np.testing.assert_array_equal(again[:, kept] != 0, whole[:, kept] != 0)
    np.testing.assert_array_equal(np.sign(again[:, kept]), np.sign(whole[:, kept]))
    error = np.abs(again - whole)[:, kept]
    assert (error <= np.abs(whole[:, kept]).max(axis=0, initial=0) / 127 * 1.001).all()


def test_a_block_holds_any_text():
    header, arrays = unpacked(pack({"names": [*HOSTILE, "\udcff"]}, {"one": np.arange(3, dtype=np.uint8)}))
    assert header["names"][: len(HOSTILE)] == HOSTILE
    assert arrays["one"].tolist() == [0, 1, 2]


def test_shares_by_group(saved_runs):
    run, _ = read(saved_runs["fit"])
    seen = view.view(run)
    moves = run.model.displacement(run.model._source.csr()).toarray() != 0
    place = {str(name): column for column, name in enumerate(run.model.feature_names_in_)}
    order = [place[name] for name in seen.genes.index]
    groups = run.tables["cells"]["group"].to_numpy()
    expected = np.array([moves[groups == name][:, order].mean(axis=0) for name in seen.groups[0]])
    np.testing.assert_allclose(words.group_shares(seen), expected)


def test_what_was_tested_in_each_group_is_in_the_page(saved_runs, tmp_path, monkeypatch):
    run, folder = read(saved_runs["fit"])
    seen = view.view(run)
    table = pd.read_csv(folder / run.record.files["genes_by"], index_col=[0, 1], keep_default_na=False, na_values="")
    for name in ("difference", "log2_fold_change", "q"):
        held = seen.arrays[f"group_{name}"].reshape(len(seen.groups[0]), len(seen.genes))
        for k, group in enumerate(seen.groups[0]):
            expected = table[name].loc[group].loc[seen.genes.index]
            np.testing.assert_allclose(held[k], expected, rtol=1e-6)
    monkeypatch.setattr(sys.modules["occamap.reports.saved"], "GROUPED", 10)
    assert "group_q" not in view.view(read(saved_runs["fit"])[0]).arrays


def test_a_page_needs_no_table_of_groups(saved_runs, tmp_path):
    folder = copied(saved_runs, "fit", tmp_path)
    by = folder / RunRecord.read(folder).files["genes_by"]
    by.unlink()
    oc.report(folder, tmp_path / "page.html")
    shutil.copy(folder / "genes.csv", by)
    with pytest.raises(RunFileError, match="is not the file that the run wrote"):
        oc.report(folder)


def test_mass_that_stays_within_groups(saved_runs):
    run, _ = read(saved_runs["fit"])
    weights = run.model.weights(run.model._source.csr())
    mine, theirs = (run.tables[part]["group"].to_numpy() for part in ("cells", "targets"))
    same = (weights * (mine[:, None] == theirs[None, :])).sum(axis=1)
    parts = run.record.result["matched_within"]
    assert parts == pytest.approx({name: same[mine == name].mean() for name in set(mine)}, abs=0.01)
    page = html.unescape((saved_runs["fit"] / "report.html").read_text(encoding="utf-8"))
    assert f"{same.mean():.0%} of the match weights of control cells go to target cells of the same" in page


def test_cells_are_drawn_where_there_are_too_many(saved_runs, monkeypatch):
    monkeypatch.setattr(view, "CELLS", 30)
    monkeypatch.setattr(view, "TARGETS", 20)
    monkeypatch.setattr(view, "ENTRIES", 100)
    from occamap.reports import page

    run, _ = read(saved_runs["fit"])
    made = page(run).decode()
    header, arrays = block_of(made)
    assert len(header["cells"]) == arrays["group"].size == 30
    assert len(header["targets"]) == 20
    assert arrays["values"].size <= 100
    assert 0 < header["held"] < 1
    assert "30 of 80 control cells are shown" in made
    assert len(header["genes"]) == 150


# -- words ---------------------------------------------------------------------------------------------------------


def items(run, made=None, **changed) -> dict[str, trust.Item]:
    record = RunRecord(**{**vars(run.record), **changed})
    return {item.what: item for item in trust.trust(record, view.view(run), made)}


def test_the_box_says_what_is_wrong(saved_runs):
    run, _ = read(saved_runs["fit"])
    fine = items(run)
    assert fine["Solver"].level == trust.FINE
    assert fine["Matching"].level == trust.FINE
    result = {**run.record.result, "status": "max_iter", "message": "Not converged: more iterations"}
    assert items(run, result=result)["Solver"] == trust.Item(trust.CARE, "Solver", "Not converged: more iterations")
    for targets in (1.1, 60.0):
        assert items(run, result={**run.record.result, "effective_targets": targets})["Matching"].level == trust.CARE
    assert items(run, warnings=("<b>odd</b>",))["Warning"].told == "<b>odd</b>"
    for poor, level in ((False, trust.FINE), (True, trust.CARE)):
        made = choice.Choice([], [], [], ["One.", "Two."], poor)
        assert items(run, made)["Held-out cells"] == trust.Item(level, "Held-out cells", "One. Two.")


def test_a_choice_is_poor_where_its_notes_say_so():
    from occamap.selection.diagnostics import NOTHING, WEAK, Diagnostics, Line

    def told(identity, shift, chosen, floor):
        lines = [Line(what, value, 0.1) for what, value in zip("abcd", (identity, shift, chosen, floor), strict=True)]
        return Diagnostics(lines[0], lines[1], lines[2], lines[2], lines[3])

    assert not told(10.0, 6.0, 2.0, 1.0).poor
    assert told(10.0, 9.9, 9.5, 1.0).poor
    assert WEAK in told(10.0, 9.9, 9.5, 1.0).notes()
    assert told(10.0, 2.0, 3.0, 1.0).poor
    assert any("less faithful" in note for note in told(10.0, 2.0, 3.0, 1.0).notes())
    assert told(1.0, 1.0, 0.5, 2.0).poor
    assert told(1.0, 1.0, 0.5, 2.0).notes() == [NOTHING]


def test_groups_that_change_in_size_are_named(saved_runs):
    run, _ = read(saved_runs["fit"])
    targets = run.tables["targets"]
    targets["group"] = np.resize(run.tables["cells"]["group"].to_numpy(), len(targets))
    assert items(run)["Group sizes"].level == trust.FINE
    targets["group"] = run.tables["cells"]["group"].iloc[0]
    found = items(run)["Group sizes"]
    assert found.level == trust.CARE
    assert "of target cells" in found.told
    record = replace(run.record, parameters={**run.record.parameters, "within": run.record.parameters["by"]})
    found = items(replace(run, record=record))["Group sizes"]
    assert found.level == trust.FINE
    assert "matched only within each" in found.told


def test_headline_counts_genes_that_move_in_no_neighbourhood(saved_runs):
    run, _ = read(saved_runs["fit"])
    seen = view.view(run)
    still = replace(seen, genes=seen.genes.assign(mean=0.0))
    told = words.headline(RunRecord(**{**vars(run.record), "result": {**run.record.result, "n_genes_found": 1}}), still)
    assert "1 of " in told
    assert told.endswith("but no gene moves in any single neighbourhood.")
    none = RunRecord(**{**vars(run.record), "result": {**run.record.result, "n_genes_found": 0}})
    assert words.headline(none, still).endswith(", no gene moves.")


def test_a_map_that_moves_nothing_has_a_page():
    X = sp.csr_array(np.ones((4, 3), dtype=np.float32))
    model = oc.MongeMap(oc.L1(1.0), epsilon=1.0).fit(X, X)
    from occamap.reports import Run, page

    base = {"groupby": "g", "control": "a", "target": "b", "layer": None, "counts": "refuse", "cost": "l1"}
    result = {
        "status": "converged", "message": "Converged.", "epsilon": 1.0, "epsilon_rule": "absolute", "gamma": 1.0,
        "effective_targets": 4.0, "density": 0.0, "n_cells": 4, "n_targets": 4, "n_genes": 3,
    }  # fmt: skip
    record = RunRecord("fit", oc_data(), base, result, (), {"occamap": "0"}, 0, 1.0, "2026-01-01", {})
    made = html.unescape(page(Run(record, {}, model)).decode())
    assert "From a to b, no gene moves." in made
    assert "one of them is constant" in made


@pytest.mark.parametrize(
    "cells",
    [
        np.ones((20, 30)),
        np.outer(np.arange(20) < 10, np.ones(30)),
        np.outer(np.arange(20) / 20, np.ones(30)),
        np.arange(600).reshape(20, 30) * 1e-40,
        np.eye(20, 30),
        np.arange(20)[:, None] * 1.0,
    ],
    ids=["alike", "two points", "one direction", "tiny", "apart", "one gene"],
)
def test_components_of_cells_that_hardly_differ_are_the_same_twice(cells):
    X, Y = sp.csr_array(cells[:10]), sp.csr_array(cells[10:])
    moves = sp.csr_array(np.random.default_rng(0).normal(size=X.shape))
    (one, share), (other, _) = (view._plane(X, Y, moves) for _ in range(2))
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])
        assert np.isfinite(one[name]).all()
    rank = np.linalg.matrix_rank(cells - cells.mean(axis=0))
    plane = one["before"].reshape(10, -1)
    assert (np.abs(plane).max(axis=0) > 0).sum() <= rank
    assert len(share) in (0, plane.shape[1])


def oc_data():
    from occamap.run_record import DataFile

    return DataFile("cells.h5ad", "0" * 64, (8, 3))


def test_the_headline_of_an_evaluation(saved_runs):
    table = pd.read_csv(saved_runs["evaluation"] / "evaluation.csv")
    page = html.unescape((saved_runs["evaluation"] / "report.html").read_text(encoding="utf-8"))
    means = table[table["method"] == "l1"].groupby("gamma")[["divergence", "density"]].mean()
    best = means.loc[means["divergence"].idxmin()]
    conditions = table.groupby(["within", "target"]).ngroups
    assert f"Over {conditions} conditions × 2 splits" in page
    assert f"divergence {best['divergence']:.3g}, while {best['density']:.1%} of the entries move" in page
    header, arrays = block_of(page)
    shape = len(header["conditions"]), len(header["metrics"]), len(header["methods"])
    found = arrays["scores"].reshape(shape)
    place = [row["label"] == "ℓ1" and row["gamma"] == 1.0 for row in header["methods"]].index(True)
    np.testing.assert_allclose(found[0, 0, place], means.loc[1.0, "divergence"], rtol=1e-6)
    assert header["conditions"][0] == scores.ALL
    first = table[(table["method"] == "l1") & (table["gamma"] == 1.0)]
    one = first[first["within"] == header["conditions"][1].rpartition(": ")[0]]["divergence"].mean()
    np.testing.assert_allclose(found[1, 0, place], one, rtol=1e-6)


# -- charts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted({name for names in CHARTS.values() for name in names}))
def test_charts_obey_the_schema(name):
    altair = pytest.importorskip("altair", reason="Altair has the schema of Vega-Lite: install the extra `test`")
    spec = json.loads((ASSETS / "charts" / f"{name}.json").read_text(encoding="utf-8"))
    assert "<" not in json.dumps(spec)  # it stands in the page as it is
    kind = altair.LayerChart if "layer" in spec else altair.Chart
    kind.from_dict(spec, validate=True)
    spec["nonsense"] = {"mark": "none"}
    with pytest.raises(Exception, match="nonsense"):
        kind.from_dict(spec, validate=True)


def test_the_script_of_the_charts_is_there_and_cannot_end_its_element():
    script = (ASSETS / "vega.js").read_text(encoding="utf-8")
    assert script.startswith("/*! Vega ")
    assert "</script" not in script.lower()
    assert "<!--" not in script


# -- wrong input and damage ----------------------------------------------------------------------------------------


def copied(saved_runs, kind: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved_runs[kind], tmp_path / kind))


@pytest.mark.parametrize("run", ["", "no/such/place", 3, None, "a\0b", Path(__file__)])
def test_what_is_no_run(run):
    with pytest.raises((InputError, RunFileError)):
        oc.report(run)


@pytest.mark.parametrize(("kind", "name"), [("fit", "map.occamap"), ("fit", "genes.csv"), ("fit", "cells.csv"),
                                            ("path", "path.csv"), ("evaluation", "evaluation.csv")])  # fmt: skip
def test_a_file_that_is_missing_cut_or_of_another_run(saved_runs, tmp_path, kind, name):
    folder = copied(saved_runs, kind, tmp_path)
    page = (folder / "report.html").read_bytes()
    content = (folder / name).read_bytes()
    other = b"8" if content[-2:-1] == b"7" else b"7"
    (folder / name).write_bytes(content[:-2] + other + content[-1:])  # still a table, with another number
    with pytest.raises(RunFileError, match="is not the file that the run wrote"):
        oc.report(folder)
    record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    assert set(record["digests"]) == set(record["files"]) - {"record"}
    del record["digests"]  # what reading them finds by itself
    (folder / "run.json").write_text(json.dumps(record), encoding="utf-8")
    for damaged in (content[: len(content) // 2], b"", b"\xff\xfe\0", b'"unclosed\n1,2', b"a," * 10**6):
        (folder / name).write_bytes(damaged)
        with pytest.raises((RunFileError, ModelFileError)):
            oc.report(folder)
    (folder / name).unlink()
    with pytest.raises(RunFileError, match=r"is not there; run it again"):
        oc.report(folder)
    assert (folder / "report.html").read_bytes() == page


def _keys(entry: dict, at: tuple = ()) -> list[tuple]:
    found = []
    for key, value in entry.items():
        found.append((*at, key))
        if isinstance(value, dict) and value:
            found += _keys(value, (*at, key))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_with_an_entry_changed_gives_a_page_or_a_typed_error(saved_runs, tmp_path, kind):
    folder = copied(saved_runs, kind, tmp_path)
    record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    record["digests"] = {}
    failed = 0
    for at in _keys(record if kind in ("fit", "evaluation") else {"result": record["result"]}):
        for value in (None, "text", []):
            changed = json.loads(json.dumps(record))
            inner = changed
            for key in at[:-1]:
                inner = inner[key]
            inner[at[-1]] = value
            (folder / "run.json").write_text(json.dumps(changed), encoding="utf-8")
            try:
                oc.report(folder)
            except (RunFileError, InputError):
                failed += 1
    assert failed > 10


def test_the_page_does_not_replace_a_file_of_the_run(saved_runs, tmp_path):
    folder = copied(saved_runs, "fit", tmp_path)
    for name in ("map.occamap", "genes.csv", "run.json"):
        with pytest.raises(InputError, match="a new file, or a page to replace"):
            oc.report(folder, folder / name)
    cells = folder / "cells.h5ad"
    cells.write_bytes(b"\x89HDF")
    with pytest.raises(InputError, match="a new file, or a page to replace"):
        oc.report(folder, cells)
    assert cells.read_bytes() == b"\x89HDF"
    with pytest.raises(InputError, match="directory that exists"):
        oc.report(folder, tmp_path / "no" / "page.html")
    with pytest.raises(InputError, match="must name a file"):
        oc.report(folder, tmp_path)
    assert not list(folder.glob(".*part"))


def test_without_jinja_the_message_says_what_to_install(saved_runs, tmp_path, monkeypatch):
    import importlib.util

    known = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "jinja2" else known(name))
    with pytest.raises(MissingPackageError, match=r"jinja2.*occamap\[cells\]"):
        oc.report(saved_runs["fit"], tmp_path / "page.html")


def test_without_the_script_the_message_says_how_to_get_it(saved_runs, tmp_path, monkeypatch):
    from occamap.reports import html as pages

    pages._read.cache_clear()
    monkeypatch.setattr(pages, "ASSETS", tmp_path)
    with pytest.raises(OccamapError, match="install occamap again"):
        oc.report(saved_runs["fit"], tmp_path / "page.html")
    pages._read.cache_clear()


# -- the command ---------------------------------------------------------------------------------------------------


def run_cli(*words: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "occamap", "report", *words], capture_output=True, text=True)


def test_the_command_writes_the_page_and_says_where(saved_runs, tmp_path):
    out = tmp_path / "lab meeting.html"
    done = run_cli(str(saved_runs["fit"]), "-o", str(out), "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["file"] == str(out)
    assert told["bytes"] == out.stat().st_size
    assert out.read_bytes() == (saved_runs["fit"] / "report.html").read_bytes()


def test_the_command_on_what_is_no_run(tmp_path):
    done = run_cli(str(tmp_path))
    assert done.returncode == 2
    assert "RUN must be the directory of a run" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
