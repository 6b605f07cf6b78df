"""The commands on files of cells: what they write and print, and what they say of bad input."""

from __future__ import annotations

import errno
import json
import os
import shlex
import subprocess
import sys
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

import occamap as oc
from occamap.cli.app import app
from occamap.errors import NotConvergedWarning
from occamap.run_record import RunRecord
from occamap.runs.options import COSTS, OVER_SETS

anndata = pytest.importorskip("anndata")
pd = pytest.importorskip("pandas")

from occamap.runs import fitting  # noqa: E402

PAIR = ["--groupby", "condition", "--control", "control", "--target", "treated"]
QUICK = [*PAIR, "--subsamples", "0"]
FILES = {"map.occamap", "genes.csv", "cells.csv", "targets.csv", "report.html", "run.json"}


def run(*arguments: object, code: int = 0):
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == code, done.output
    assert "Traceback" not in done.stderr
    return done


def refused(*arguments: object, code: int = 2) -> str:
    """What is said of wrong usage; nothing else is printed."""
    done = run(*arguments, code=code)
    assert done.stdout == ""
    return done.stderr


def made(n_control: int = 40, n_treated: int = 30):
    cells = oc.datasets.simulate_perturbation(n_control, n_treated, 120, effect=1.5, n_types=2, n_moved=10)
    return cells.to_anndata()


@pytest.fixture(scope="module")
def cells():
    return made()


@pytest.fixture(scope="module")
def data(cells, tmp_path_factory):
    path = tmp_path_factory.mktemp("cells") / "cells.h5ad"
    cells.write_h5ad(path)
    return path


@pytest.fixture(scope="module")
def fitted(data, tmp_path_factory):
    """A run, and what it printed."""
    out = tmp_path_factory.mktemp("runs") / "a" / "run"
    return out, run("fit", data, *PAIR, "--subsamples", 3, "--out", out).stdout


def names(directory) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_what_an_earlier_run_left_under_other_names_goes_and_what_was_edited_stays(data, tmp_path):
    run("fit", data, *QUICK, "--by", "cell_type", "--out", tmp_path / "run")
    run("fit", data, *QUICK, "--gamma", "1", "--out", tmp_path / "run")
    assert names(tmp_path / "run") == FILES
    run("fit", data, *QUICK, "--by", "cell_type", "--out", tmp_path / "run")
    (tmp_path / "run" / "genes_by_cell_type.csv").write_text("mine")
    (tmp_path / "run" / "notes.txt").write_text("mine")
    run("fit", data, *QUICK, "--out", tmp_path / "run")
    assert names(tmp_path / "run") == FILES | {"genes_by_cell_type.csv", "notes.txt"}


# -- fit -------------------------------------------------------------------------------------------------------


def test_fit_writes_what_tl_gives(cells, fitted):
    out, told = fitted
    assert names(out) == FILES
    adata = cells.copy()
    model = oc.tl.monge_map(adata, groupby="condition", control="control", target="treated")
    table = oc.tl.gene_table(adata, subsamples=3)
    written = pd.read_csv(out / "genes.csv", index_col="gene")
    pd.testing.assert_frame_equal(written, table)
    rows = pd.read_csv(out / "cells.csv")
    assert list(rows.columns) == ["cell", "n_genes", "distance", "response"]
    assert rows["cell"].tolist() == adata.obs_names[:40].tolist()
    assert pd.read_csv(out / "targets.csv")["cell"].tolist() == adata.obs_names[40:].tolist()
    assert rows["n_genes"].tolist() == adata.obs["occamap_n_genes"][:40].astype(int).tolist()
    assert (oc.load(out / "map.occamap").displacement(adata[:40]) != model.displacement(adata[:40])).nnz == 0
    assert "of 120 genes move in at least half of the 40 control cells" in told
    assert "effective targets of 30" in told
    assert "No entry (cell × gene) stands out from noise at a false-discovery rate of 10 %" in told
    assert "In 3 maps between random halves of the control cells" in told
    assert table.index[9] in told
    assert table.index[10] not in told


def test_many_target_cells_for_each_control_cell(tmp_path):
    oc.datasets.simulate_perturbation(80, 1500, 500).to_anndata().write_h5ad(tmp_path / "cells.h5ad")
    told = run("fit", tmp_path / "cells.h5ad", *PAIR, "--subsamples", 2, "--out", tmp_path / "run").stdout
    record = RunRecord.read(tmp_path / "run")
    rule = "perplexity 10, raised to 37.5 effective targets, since there are 18.8 targets for each source sample"
    assert rule in " ".join(told.split())
    assert record.result["epsilon_rule"] == rule
    assert record.result["status"] == "converged"
    assert record.result["effective_targets"] == pytest.approx(37.5, rel=0.01)
    assert record.warnings == ()


def test_the_record_of_a_run_says_it_all(data, fitted):
    record = RunRecord.read(fitted[0])
    assert record.command == "fit"
    assert record.data.path == str(data)
    assert record.data.shape == (70, 120)
    assert set(record.files.values()) == FILES
    asked = {"cost": "l1", "gamma": None, "epsilon": 10.0, "epsilon_scale": "perplexity", "subsamples": 3, "k": None}
    asked |= {"pool": "auto", "match": "auto"}
    assert record.parameters.items() >= {**asked, "counts": "refuse", "tol": 1e-4, "max_iter": 2000}.items()
    assert record.result["status"] == "converged"
    assert record.result["n_cells"] == 40
    assert 9 < record.result["effective_targets"] < 11
    assert record.result["gamma"] is None
    assert record.parameters["fdr"] == 0.1
    assert oc.load(fitted[0] / "map.occamap").fdr == 0.1
    assert record.result["diagnostics"] is None
    assert record.warnings == ()
    assert {"occamap", "numpy", "anndata"} <= set(record.versions)


def test_by_has_a_table_for_each_group_and_any_name(cells, tmp_path):
    adata, column = cells.copy(), "kind: [red]ü*"
    adata.obs[column] = adata.obs["cell_type"]
    adata.write_h5ad(tmp_path / "x.h5ad")
    run("fit", tmp_path / "x.h5ad", *QUICK, "--by", column, "--out", tmp_path / "run")
    table = pd.read_csv(tmp_path / "run" / "genes_by_kind_red_ü.csv")
    assert list(table.columns[:2]) == [column, "gene"]
    assert set(table[column]) == {"type 0", "type 1"}
    assert set(pd.read_csv(tmp_path / "run" / "cells.csv")["group"]) == {"type 0", "type 1"}
    assert RunRecord.read(tmp_path / "run").files["genes_by"] == "genes_by_kind_red_ü.csv"


def test_held_out_cells_choose(data, tmp_path):
    chosen = run("fit", data, *QUICK, "--gamma", "auto", "--max-density", 0.5, "--out", tmp_path / "run")
    assert "chosen" in chosen.stdout
    assert len(pd.read_csv(tmp_path / "run" / "choice.csv")) == 10
    record = RunRecord.read(tmp_path / "run")
    assert record.parameters["gamma"] == "auto"
    assert record.result["gamma"] > 0
    assert "floor" in record.result["diagnostics"]


@pytest.mark.parametrize(
    "asked",
    [
        ("--cost", "sql2"),
        ("--cost", "stvs", "--gamma", "0.5"),
        ("--cost", "koverlap", "--k", "3"),
        ("--epsilon", "0.1", "--epsilon-scale", "mean", "--relax", "0", "--threads", "1", "--seed", "3"),
        ("--use-genes", "expressed"),
    ],
)
def test_options_of_the_map(cells, asked, tmp_path):
    adata = cells.copy()
    adata.var["expressed"] = np.asarray(adata.X.sum(axis=0)).ravel() > 0
    adata.write_h5ad(tmp_path / "x.h5ad")
    record = json.loads(run("fit", tmp_path / "x.h5ad", *QUICK, *asked, "--json", "--out", tmp_path / "run").stdout)
    given = dict(zip(asked[::2], asked[1::2], strict=True))
    for option, value in given.items():
        name = option[2:].replace("-", "_")
        assert str(record.get(name, record["parameters"].get(name))).removesuffix(".0") == value


def test_json_is_all_there_is_on_stdout(data, tmp_path):
    done = run("fit", data, *QUICK, "--json", "--out", tmp_path / "run")
    told = json.loads(done.stdout)
    assert done.stdout.isascii()
    assert done.stderr == ""
    assert told["directory"] == str(tmp_path / "run")
    assert len(told["first_genes"]) == 10
    assert told["result"]["status"] == "converged"


def test_write_adata_holds_all_results(data, tmp_path):
    run("fit", data, *QUICK, "--write-adata", "--out", tmp_path)
    adata = anndata.read_h5ad(tmp_path / "cells.h5ad")
    table = oc.tl.gene_table(adata)
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "genes.csv", index_col="gene"), table)


@pytest.mark.parametrize("form", ["dense", "csc", "layer", "backed", "csc backed", "dense backed", "csc layer backed"])
def test_cells_in_any_form_give_the_same(cells, fitted, form, tmp_path):
    adata, options = cells.copy(), []
    if "dense" in form:
        adata.X = adata.X.toarray()
    if "csc" in form:
        adata.X = sp.csc_matrix(adata.X)
    if "layer" in form:
        adata.layers["logged"], adata.X = adata.X, None
        options = ["--layer", "logged"]
    if "backed" in form:
        options += ["--max-memory", "4GB"]
    adata.write_h5ad(tmp_path / "x.h5ad")
    run("fit", tmp_path / "x.h5ad", *PAIR, "--subsamples", 3, *options, "--out", tmp_path / "run")
    one, other = (pd.read_csv(out / "genes.csv", index_col="gene") for out in (fitted[0], tmp_path / "run"))
    pd.testing.assert_frame_equal(one, other.loc[one.index], rtol=1e-4)


@pytest.mark.parametrize(("control", "target"), [("0", "1"), ("aucun traitement", "ß-naïve [bold]"), ("-x", "--y")])
def test_groups_of_any_name(cells, control, target, tmp_path):
    adata = cells.copy()
    numbers = (adata.obs["condition"] == "treated").astype(int)
    adata.obs["which one"] = numbers if control == "0" else np.where(numbers == 1, target, control)
    adata.write_h5ad(tmp_path / "x.h5ad")
    groups = ["--groupby", "which one", f"--control={control}", f"--target={target}"]
    run("fit", tmp_path / "x.h5ad", *groups, "--subsamples", 0, "--out", tmp_path / "run")
    assert RunRecord.read(tmp_path / "run").parameters["target"] == target


def test_names_of_genes_are_shown_as_they_are(cells, tmp_path):
    adata = cells.copy()
    adata.var_names = [f"[red]{name}[/red]\x1b[2J" for name in adata.var_names]
    adata.write_h5ad(tmp_path / "x.h5ad")
    told = run("fit", tmp_path / "x.h5ad", *QUICK, "--out", tmp_path / "run").stdout
    assert told.count("[red]") == told.count("[/red]\\x1b[2J") == 10
    assert "\x1b" not in told


# -- fit, and what is wrong --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--groupby", "state", "--control", "a", "--target", "b"], "--groupby must be a column of adata.obs"),
        (
            ["--groupby", "condition", "--control", "treat", "--target", "control"],
            "('treated', 'control'); got 'treat'",
        ),
        (["--groupby", "condition", "--control", "control", "--target", "control"], "--target must be another group"),
        ([*PAIR, "--layer", "logged"], "--layer must be a layer of adata"),
        ([*PAIR, "--use-genes", "variable"], "--use-genes must be a column of adata.var"),
        ([*PAIR, "--by", "kind"], "--by must be a column of adata.obs"),
        ([*PAIR, "--subsamples", "1"], "--subsamples must be 0, or 2 or more"),
        ([*PAIR, "--cost", "l2"], "--cost"),
        ([*PAIR, "--counts", "log"], "--counts"),
        ([*PAIR, "--cost", "sql2", "--gamma", "1"], "--gamma must not be given"),
        ([*PAIR, "--cost", "koverlap"], "--k must be given"),
        ([*PAIR, "--cost", "koverlap", "--k", "300"], "--k must be at most"),
        ([*PAIR, "--k", "3"], "--k must be given only for"),
        ([*PAIR, "--gamma", "strong"], "--gamma must be a number or auto; got 'strong'"),
        ([*PAIR, "--gamma", "nan"], "--gamma must be"),
        ([*PAIR, "--gamma", "-1"], "--gamma must be"),
        ([*PAIR, "--epsilon", "0"], "--epsilon must be"),
        ([*PAIR, "--epsilon", "0.1"], "--epsilon must be at least 1 for --epsilon-scale perplexity"),
        ([*PAIR, "--epsilon", "auto", "--epsilon-scale", "mean"], "--epsilon-scale must not be given"),
        ([*PAIR, "--epsilon-scale", "mean"], "--epsilon must be given with --epsilon-scale mean"),
        ([*PAIR, "--max-density", "0.1"], "--max-density must be given only"),
        ([*PAIR, "--gamma", "auto", "--max-density", "7"], "--max-density must be"),
        ([*PAIR, "--max-memory", "much"], "--max-memory must be"),
        ([*PAIR, "--relax", "2"], "--relax"),
        ([*PAIR, "--threads", "0"], "--threads"),
        ([*PAIR, "--seed", "-1"], "--seed"),
        (["--groupby", "condition", "--control", "control"], "--target"),
    ],
)
def test_wrong_usage_of_fit(data, options, told, tmp_path):
    out = tmp_path / "a" / "run"
    assert told in refused("fit", data, *options, "--out", out)
    assert not out.parent.exists()


def edited(kind: str, adata):
    if kind == "twice":
        adata.var_names = ["g", "g", *adata.var_names[2:]]
    elif kind == "nan":
        adata.X.data[3] = np.nan
    elif kind == "few":
        adata = adata[39:].copy()
    elif kind == "counts":
        adata.X = sp.csr_matrix(np.random.default_rng(0).poisson(1.0, adata.shape).astype(np.float32))
    elif kind == "no X":
        adata.X = None
    return adata


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("twice", "must be unique; 1 comes more than once: 'g'"),
        ("nan", "must be finite; got NaN (1 such entry)"),
        ("few", "must have at least 2 cells; it has 1"),
        ("counts", "sc.pp.normalize_total(adata, target_sum=1e4); sc.pp.log1p(adata) (or let it be done here, with"),
        ("no X", "adata.X is None: name a layer"),
    ],
)
@pytest.mark.parametrize("command", ["fit", "path"])
def test_cells_that_cannot_be_used(cells, command, kind, told, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        edited(kind, cells.copy()).write_h5ad(tmp_path / "x.h5ad")
    said = refused(command, tmp_path / "x.h5ad", *PAIR, "--out", tmp_path / "run")
    assert told in " ".join(said.split())
    assert "counts=" not in said
    assert ("--counts normalize" in said) == (kind == "counts")


def test_counts_can_be_normalised(cells, tmp_path):
    edited("counts", cells.copy()).write_h5ad(tmp_path / "x.h5ad")
    run("fit", tmp_path / "x.h5ad", *QUICK, "--counts", "normalize", "--out", tmp_path / "run")
    run("transform", tmp_path / "run" / "map.occamap", tmp_path / "x.h5ad", "--out", tmp_path / "y.h5ad", code=2)
    more = ["--counts", "normalize", "--out", tmp_path / "y.h5ad"]
    run("transform", tmp_path / "run" / "map.occamap", tmp_path / "x.h5ad", *more)


@pytest.mark.parametrize("command", ["fit", "path", "transform"])
def test_a_file_that_is_none(command, data, fitted, tmp_path):
    (tmp_path / "text.h5ad").write_text("not cells")
    (tmp_path / "empty.h5ad").write_bytes(b"")
    content = data.read_bytes()
    (tmp_path / "cut.h5ad").write_bytes(content[: len(content) // 2])
    model = [fitted[0] / "map.occamap"] if command == "transform" else []
    rest = [*([] if model else PAIR), "--out", tmp_path / "run"]
    expected = {
        "absent.h5ad": "No such file or directory",
        ".": "is a directory",
        "text.h5ad": "it is no HDF5 file",
        "empty.h5ad": "it is no HDF5 file",
        "cut.h5ad": "is damaged or truncated",
        "text.h5ad/x": "Not a directory",
    }
    for name, told in expected.items():
        said = refused(command, *model, tmp_path / name, *rest)
        assert said.startswith("occamap: DATA must be a")
        assert told in said
        assert said.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", ["fit", "path"])
@pytest.mark.parametrize("out", ["", "/dev/null/x", "/proc/x", "{data}", "taken"])
def test_where_nothing_can_be_written(command, out, data, tmp_path):
    (tmp_path / "taken" / "run.json").mkdir(parents=True)
    out = str(tmp_path / out) if out == "taken" else out.format(data=data)
    assert "occamap: --out must" in refused(command, data, *PAIR, "--out", out)


def test_the_data_are_never_overwritten(data, fitted, tmp_path):
    copied = tmp_path / "cells.h5ad"
    copied.write_bytes(data.read_bytes())
    assert "would be overwritten" in refused("fit", copied, *QUICK, "--write-adata", "--out", tmp_path)
    os.symlink(copied, tmp_path / "link.h5ad")
    model = fitted[0] / "map.occamap"
    for out in (copied, tmp_path / "link.h5ad", model):
        assert "would be overwritten" in refused("transform", model, copied, "--out", out)
    assert copied.read_bytes() == data.read_bytes()


@pytest.mark.parametrize(
    ("raised", "code", "told"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), 1, "occamap: No space left on device: "),
        (KeyboardInterrupt(), 130, "occamap: interrupted"),
        (RuntimeError("odd"), 1, "please report it (--debug shows where): RuntimeError: odd"),
    ],
)
@pytest.mark.parametrize("before", [False, True])
def test_files_are_written_all_or_none(data, raised, code, told, before, monkeypatch, tmp_path):
    out = tmp_path / "run"
    if before:
        run("fit", data, *QUICK, "--gamma", "2", "--out", out)
    held = {path.name: path.read_bytes() for path in out.iterdir()} if before else {}

    def fail(*_):
        raise raised

    monkeypatch.setattr(RunRecord, "write", fail)
    said = refused("fit", data, *QUICK, "--out", out, code=code)
    assert told in said
    assert out.exists() == before
    assert {path.name: path.read_bytes() for path in out.glob("*")} == held
    if isinstance(raised, OSError):
        assert str(out) in said


# -- warnings ----------------------------------------------------------------------------------------------------


def test_warnings_are_lines_and_recorded(data, monkeypatch, tmp_path):
    real = fitting.gene_tables

    def warned(*args, **options):
        for number in range(options["subsamples"]):
            warnings.warn(f"Not converged: number {number}", NotConvergedWarning, stacklevel=2)
        warnings.warn("third party", FutureWarning, stacklevel=2)
        return real(*args, **options)

    monkeypatch.setattr(fitting, "gene_tables", warned)
    done = run("fit", data, *PAIR, "--subsamples", 2, "--json", "--out", tmp_path / "run")
    text = "In 2 of 2 subsamples the solver did not converge; in the first: Not converged: number 0"
    assert done.stderr == f"occamap: warning: {text}\n"
    assert json.loads(done.stdout)["warnings"] == [text]
    assert RunRecord.read(tmp_path / "run").warnings == (text,)


def test_nothing_to_learn_is_a_warning(data, tmp_path):
    adata = anndata.read_h5ad(data)[:40].copy()
    adata.obs["half"] = np.where(np.arange(40) % 2, "a", "b")
    adata.write_h5ad(tmp_path / "x.h5ad")
    groups = ["--groupby", "half", "--control", "a", "--target", "b"]
    options = ["--gammas", "1,10", "--splits", 2, "--epsilon", 3, "--seed", 1]
    done = run("path", tmp_path / "x.h5ad", *groups, *options, "--out", tmp_path / "run")
    assert done.stderr.startswith("occamap: warning: Source and target differ by no more")
    assert ".py" not in done.stderr
    assert len(RunRecord.read(tmp_path / "run").warnings) == 1


# -- path, transform, demo ---------------------------------------------------------------------------------------


def test_path_shows_what_sparsity_costs(data, tmp_path):
    grid = ["--gammas", "0.1,0.5,2", "--splits", 3, "--out", tmp_path]
    done = run("path", data, *PAIR, *grid)
    assert names(tmp_path) == {"path.csv", "path.png", "map.occamap", "report.html", "run.json"}
    table, record = pd.read_csv(tmp_path / "path.csv"), RunRecord.read(tmp_path)
    assert table["gamma"].tolist() == [0.1, 0.5, 2.0]
    assert (
        record.result["gamma"]
        == table["gamma"][record.result["chosen"]]
        == oc.load(tmp_path / "map.occamap").cost.gamma
    )
    assert done.stdout.count("★") == 1
    assert "floor: other targets" in done.stdout
    assert (tmp_path / "path.png").read_bytes().startswith(b"\x89PNG")
    told = json.loads(run("path", data, *PAIR, *grid, "--max-density", "0.5", "--json").stdout)
    assert told["parameters"]["rule"] == "density"
    assert len(told["path"]) == 3


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--gammas", "1,0.5"], "--gammas must rise"),
        (["--gammas", "some"], "--gammas must be numbers with commas"),
        (["--gammas", "1"], "2 to 1,000; for one γ give 1.0"),
        (["--gammas", "1000000000"], "2 to 1,000; got 1,000,000,000"),
        (["--cost", "sql2"], "'sql2' is not one of"),
        (["--cost", "koverlap"], "--k must be given"),
        (["--epsilon", "auto"], "--epsilon"),
        (["--splits", "1"], "--splits"),
        (["--max-density", "2"], "--max-density must be"),
    ],
)
def test_wrong_usage_of_path(data, options, told, tmp_path):
    assert told in refused("path", data, *PAIR, *options, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_transform_moves_unseen_cells(cells, data, fitted, tmp_path):
    model, out = fitted[0] / "map.occamap", tmp_path / "moved.h5ad"
    done = run("transform", model, data, "--groupby", "condition", "--group", "control", "--out", out)
    assert "40 cells moved" in done.stdout
    moved, expected = anndata.read_h5ad(out), oc.tl.transform(cells[:40], model)
    assert abs(moved.X - expected.X).max() == 0
    assert "occamap_displacement" in moved.layers
    told = json.loads(run("transform", model, data, "--json", "--out", out).stdout)
    assert told["file"] == str(out)
    assert told["n_cells"] == 70
    assert names(tmp_path) == {"moved.h5ad"}


def test_wrong_usage_of_transform(cells, data, fitted, tmp_path):
    model, out = fitted[0] / "map.occamap", ["--out", tmp_path / "y.h5ad"]
    cells[:, 5:].copy().write_h5ad(tmp_path / "x.h5ad")
    assert "120 genes of the map by name; 5 are absent" in refused("transform", model, tmp_path / "x.h5ad", *out)
    assert "--groupby and --group must be given" in refused("transform", model, data, "--groupby", "condition", *out)
    assert "MODEL must be a model file" in refused("transform", tmp_path / "absent", data, *out)
    assert "not a model file" in refused("transform", data, data, *out, code=1)
    assert "in a directory that exists" in refused("transform", model, data, "--out", tmp_path / "a" / "b.h5ad")
    assert "--out must name a file" in refused("transform", model, data, "--out", tmp_path)
    assert "files can be written" in refused("transform", model, data, "--out", "/proc/x.h5ad")
    assert names(tmp_path) == {"x.h5ad"}


def test_demo_writes_what_fit_gives(tmp_path):
    out = tmp_path / "a demo"
    told = run("demo", "--genes", 150, "--cells", 30, "--out", out).stdout
    assert "are planted" in told
    assert names(out) == {*FILES, "cells.h5ad", "genes_by_cell_type.csv"}
    written = (out / "genes.csv").read_bytes()
    command = shlex.split(told.splitlines()[-1])
    assert command[:2] == ["occamap", "fit"]
    run(*command[1:])
    assert (out / "genes.csv").read_bytes() == written
    assert "--out must" in refused("demo", "--genes", 150, "--cells", 30, "--out", "/dev/null/x")


# -- from the outside --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["fit", "transform", "path", "demo"])
def test_help_has_examples(command):
    told = run(command, "--help").stdout
    assert "Examples" in told
    assert f"occamap {command} " in told
    assert "[bold]" not in told


def test_choices_are_those_of_the_package():
    from occamap.cli.options import CostName, Counts, EpsilonScale, FitCostName
    from occamap.sinkhorn.epsilon import SCALES
    from occamap.tl.cells import COUNTS

    assert ["sql2", *map(str, CostName)] == list(COSTS)
    assert [str(name) for name in FitCostName] == [*COSTS, OVER_SETS]
    assert [str(name) for name in Counts] == list(COUNTS)
    assert [str(name) for name in EpsilonScale] == list(SCALES)


def test_a_process_of_its_own(data, tmp_path):
    command = [sys.executable, "-m", "occamap"]
    fit = [*command, "fit", str(data), *QUICK, "--out", str(tmp_path / "run")]
    done = subprocess.run(fit, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    failed = subprocess.run([*fit, "--layer", "x", "--debug"], capture_output=True, text=True, timeout=120)
    assert failed.returncode == 1
    assert "Traceback" in failed.stderr
    code = "import sys, occamap.cli.app; print([n for n in ('anndata', 'h5py', 'scipy', 'numpy') if n in sys.modules])"
    light = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert "anndata" not in light.stdout
    assert "h5py" not in light.stdout


def test_choices_complete():
    words = "occamap fit x.h5ad --cost s"
    environment = {"_OCCAMAP_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "4"}
    code = "from occamap.cli.app import app; app(prog_name='occamap')"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}, timeout=120
    )
    assert done.stdout.split() == ["sql2", "stvs"]


# -- evaluate --------------------------------------------------------------------------------------------------

TRIAL = ["--groupby", "condition", "--control", "control", "--costs", "sql2,l1", "--gammas", "0.1, 1", "--splits", "2"]
TRIAL += ["--components", "5", "--markers", "10"]


def test_evaluate_writes_what_evaluate_gives(cells, data, tmp_path):
    told = run("evaluate", data, *TRIAL, "--out", tmp_path / "e").stdout
    table = oc.evaluate(
        cells,
        groupby="condition",
        control="control",
        costs=["sql2", "l1"],
        gammas=[0.1, 1.0],
        splits=2,
        components=5,
        markers=10,
    )
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "e" / "evaluation.parquet"), table)
    written = pd.read_csv(tmp_path / "e" / "evaluation.csv", float_precision="round_trip")
    assert written["method"].tolist() == table["method"].tolist()
    np.testing.assert_array_equal(written["divergence"], table["divergence"])
    for word in ("sql2", "l1", "identity", "mean_shift", "treated", "1 condition × 2 splits", "evaluation.parquet"):
        assert word in told
    again = json.loads(run("evaluate", data, *TRIAL, "--out", tmp_path / "e", "--json").stdout)
    assert again["result"]["splits_from_earlier_runs"] == 2
    assert again["data"]["path"] == str(data)
    assert [row["method"] for row in again["means"]] == ["sql2", "l1", "l1", "identity", "mean_shift", "treated"]


def test_evaluate_says_what_is_wrong(data, tmp_path):
    out = ["--out", tmp_path / "e"]
    assert "--costs must be one of" in refused("evaluate", data, *TRIAL[:4], "--costs", "l2", *out)
    assert "--gammas must be numbers" in refused("evaluate", data, *TRIAL[:4], "--gammas", "a,b", *out)
    assert "--within must be a column" in refused("evaluate", data, *TRIAL, "--within", "line", *out)
    assert "--close-up must be conditions ('treated')" in refused("evaluate", data, *TRIAL, "--close-up", "x", *out)
    assert "No such file" in refused("evaluate", tmp_path / "none.h5ad", *TRIAL, *out)
    assert not (tmp_path / "e").exists()
    run("evaluate", data, *TRIAL, *out)
    assert "of other --test-size: take another directory" in refused("evaluate", data, *TRIAL, "--test-size", 0.3, *out)


@pytest.mark.parametrize(
    "options", [["--cost", "sql2", "--epsilon", "auto"], ["--cost", "koverlap", "--k", 3, "--gamma", "auto"]]
)
def test_held_out_cells_choose_for_every_cost(data, options, tmp_path):
    run("fit", data, *QUICK, *options, "--out", tmp_path / "run")
    result = RunRecord.read(tmp_path / "run").result
    assert result["gamma"] == 0 if "sql2" in options else result["density"] <= 0.1
    assert "floor" in result["diagnostics"]


@pytest.mark.parametrize("kind", ["pipe", "link", "loop"])
def test_transform_writes_plain_files_alone(data, fitted, kind, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere.h5ad")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    os.mkfifo(tmp_path / "pipe")
    out = {"pipe": tmp_path / "pipe", "link": tmp_path / "link", "loop": tmp_path / "loop"}[kind]
    told = refused("transform", fitted[0] / "map.occamap", data, "--out", out)
    assert "is a link or a device" in told or "is none" in told
    assert (tmp_path / "link").is_symlink()


def test_fit_does_not_write_into_an_evaluation(data, tmp_path):
    run("evaluate", data, *TRIAL, "--out", tmp_path / "e")
    assert "must not hold an evaluation" in refused("fit", data, *QUICK, "--out", tmp_path / "e")


# -- resolution ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def placed(cells, tmp_path_factory):
    """A file of cells with a graph and coordinates."""
    adata = cells.copy()
    adata.obsp["graph"] = sp.csr_matrix(np.random.default_rng(0).random((70, 70)))
    adata.obsm["X_pca"] = adata.X.toarray()[:, :5].astype(float)
    path = tmp_path_factory.mktemp("cells") / "placed.h5ad"
    adata.write_h5ad(path)
    return path


RESOLUTIONS = [("auto", "auto"), ("none", "none"), ("none", "auto"), ("40", "5"), ("cell_type", "auto")]
RESOLUTIONS += [("graph", "X_pca")]


@pytest.mark.filterwarnings("ignore:With neighbourhoods of fewer than 30 cells")
@pytest.mark.parametrize(("pool", "match"), RESOLUTIONS)
def test_pool_and_match_are_those_of_tl(placed, pool, match, tmp_path):
    run("fit", placed, *PAIR, "--subsamples", 2, "--pool", pool, "--match", match, "--out", tmp_path / "run")
    record = RunRecord.read(tmp_path / "run")
    values = {"40": 40, "5": 5}
    assert [record.parameters[name] for name in ("pool", "match")] == [values.get(text, text) for text in (pool, match)]
    adata, values = anndata.read_h5ad(placed), values | {"none": None}
    asked = {"pool": values.get(pool, pool), "match": values.get(match, match)}
    model = oc.tl.monge_map(adata, groupby="condition", control="control", target="treated", **asked)
    assert record.parameters["gamma"] is None
    assert record.result["gamma"] == getattr(model.cost, "gamma", None)
    assert (record.result["gamma"], model.fdr) == ((0.3, None) if pool == "none" else (None, 0.1))
    written = pd.read_csv(tmp_path / "run" / "genes.csv", index_col="gene")
    pd.testing.assert_frame_equal(written, oc.tl.gene_table(adata, subsamples=2))
    rows = pd.read_csv(tmp_path / "run" / "cells.csv")
    np.testing.assert_allclose(rows["response"], adata.obs["occamap_response"][:40])
    moves = oc.load(tmp_path / "run" / "map.occamap").displacement(adata[:40])
    assert (moves != model.displacement(adata[:40])).nnz == 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--pool", "celltype"], "('cell_type', 'condition', 'graph'); got 'celltype'"),
        (["--pool", "0"], "--pool must be an integer ≥ 1; got 0"),
        (["--pool", "-3"], "--pool must be"),
        (["--pool", "0.5"], "--pool must be"),
        (["--match", "X_umap"], "('X_pca'); got 'X_umap'"),
        (["--match", "0"], "--match must be an integer ≥ 1; got 0"),
        (["--match", "10", "--gamma", "auto"], "--match must be"),
        (["--pool", "cell_type", "--gamma", "auto"], "--pool must be"),
    ],
)
def test_wrong_resolutions_are_told_in_a_sentence(placed, options, told, tmp_path):
    said = refused("fit", placed, *QUICK, *options, "--out", tmp_path / "run")
    assert told in " ".join(said.split())
    assert said.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("pool", ["10", "auto", "none"])
def test_path_has_a_pool(data, pool, tmp_path):
    grid = ["--gammas", "0.1,0.5", "--splits", 2, "--pool", pool]
    told = json.loads(run("path", data, *PAIR, *grid, "--out", tmp_path / "path", "--json").stdout)
    assert str(told["parameters"]["pool"]) == pool
    assert oc.load(tmp_path / "path" / "map.occamap").pool == {"10": 10, "none": None}.get(pool, pool)


@pytest.mark.parametrize("pool", ["10", "auto", "none"])
def test_evaluate_has_a_pool(data, pool, tmp_path):
    kept = {"10": 10, "none": None}.get(pool, pool)
    told = json.loads(run("evaluate", data, *TRIAL, "--pool", pool, "--out", tmp_path / "e", "--json").stdout)
    assert told["parameters"]["pool"] in (kept, pool)
    table = oc.evaluate(
        data,
        groupby="condition",
        control="control",
        costs=["sql2", "l1"],
        gammas=[0.1, 1.0],
        splits=2,
        components=5,
        markers=10,
        pool=kept,
    )
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "e" / "evaluation.parquet"), table)


@pytest.mark.parametrize("command", ["path", "evaluate"])
def test_held_out_cells_have_no_column_to_pool_by(data, command, tmp_path):
    asked = PAIR if command == "path" else TRIAL
    said = refused(command, data, *asked, "--pool", "cell_type", "--out", tmp_path / "run")
    assert "--pool must be" in said
    assert "got 'cell_type'" in " ".join(said.split())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("asked", [["--pool", "none", "--match", "none"], ["--pool", "10", "--match", "4"], []])
def test_the_command_in_the_report_repeats_the_resolution(data, asked, tmp_path):
    from occamap.reports.again import command

    run("fit", data, *QUICK, *asked, "--out", tmp_path / "run")
    text = command(RunRecord.read(tmp_path / "run"), str(tmp_path / "again"))
    pool, match = (asked[1], asked[3]) if asked else ("auto", "auto")
    assert f" --pool={pool} " in text
    assert f" --match={match} " in text
    assert text.partition(" --seed")[0] in (tmp_path / "run" / "report.html").read_text()
    words = shlex.split(text)
    run("fit", data, *words[3:])
    assert (tmp_path / "again" / "genes.csv").read_bytes() == (tmp_path / "run" / "genes.csv").read_bytes()


def test_mixing_is_a_line_and_recorded(cells, tmp_path):
    adata = cells.copy()
    adata.obs["batch"] = np.where(np.arange(70) < 5, "control only", "both")
    adata.write_h5ad(tmp_path / "x.h5ad")
    command = [sys.executable, "-m", "occamap", "fit", str(tmp_path / "x.h5ad"), *PAIR, "--subsamples", "2"]
    command += ["--by", "batch", "--out", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("occamap: warning: Control cells of some groups of 'batch'")
    assert "converge" not in done.stderr
    assert done.stderr.count("\n") == 1
    told = RunRecord.read(tmp_path / "run").warnings
    assert [text.startswith("Control cells of some groups") for text in told] == [True]
