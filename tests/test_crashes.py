"""Nothing half-written, nothing lost: temporary files, locks, and pieces of runs that were ended."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import occamap as oc
from occamap import _h5ad, _kept, _locks
from occamap._files import SUFFIX, check_directory, clear_parts, replacing, replacing_paths
from occamap.cli.app import app
from occamap.errors import BusyError, InputError, NotConvergedWarning
from occamap.genes import subsampled_means
from occamap.runs import fitting, paths
from occamap.runs.options import MapOptions, Question
from soak.commands import FIT, JOBS, environment, incomplete, start, unsound
from soak.crashes import Ground, run_kills
from soak.tally import Tally

QUESTION = Question("condition", "control", "treated")
HOLDER = """
import sys, time
from pathlib import Path
from occamap._locks import holding
with holding(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""
WRITER = """
import sys, time
from pathlib import Path
from occamap._files import replacing
with replacing(Path(sys.argv[1])) as stream:
    stream.write(b"half")
    stream.flush()
    print("writing", flush=True)
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    path = tmp_path_factory.mktemp("cells") / "cells.h5ad"
    oc.datasets.simulate_perturbation(60, 50, 200, effect=1.5).to_anndata().write_h5ad(path)
    return path


def child(program: str, argument: Path) -> subprocess.Popen[str]:
    """A process that has begun what it was started for."""
    process = subprocess.Popen([sys.executable, "-c", program, str(argument)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().strip() in ("held", "writing")
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


# -- files that are being written --------------------------------------------------------------------------------


def test_what_a_killed_process_had_begun_is_cleared_at_the_next_start(tmp_path):
    writer = child(WRITER, tmp_path / "table.csv")
    check_directory(tmp_path)
    assert len(list(tmp_path.glob(f"*{SUFFIX}"))) == 1  # it is being written, and left alone
    end(writer)
    assert [path.name.endswith(SUFFIX) for path in tmp_path.iterdir()] == [True]
    check_directory(tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_next_write_of_the_same_file_clears_it_too(tmp_path):
    end(child(WRITER, tmp_path / "map.occamap"))
    end(child(WRITER, tmp_path / "other"))
    with replacing(tmp_path / "map.occamap") as stream:
        stream.write(b"whole")
    assert (tmp_path / "map.occamap").read_bytes() == b"whole"
    assert [path.name[:7] for path in tmp_path.iterdir() if path.name.endswith(SUFFIX)] == [".other."]


def test_nothing_else_is_cleared(tmp_path):
    kept = [tmp_path / name for name in (".notes.part", "notes.occamap-part", "table.csv")]
    for path in kept:
        path.write_text("mine")
    (tmp_path / f".link{SUFFIX}").symlink_to(kept[0])
    clear_parts(tmp_path)
    assert all(path.read_text() == "mine" for path in kept)


def test_an_error_leaves_the_old_file_and_no_other(tmp_path):
    (tmp_path / "a").write_text("old")

    def work():
        with replacing_paths([tmp_path / "a", tmp_path / "b"]) as [first, second]:
            first.write_text("new")
            second.write_text("new")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a", "old")]


def test_a_final_name_is_never_that_of_half_a_file(tmp_path):
    (tmp_path / "a").write_text("old")
    with replacing(tmp_path / "a") as stream:
        stream.write(b"ne")
        stream.flush()
        assert (tmp_path / "a").read_text() == "old"
        stream.write(b"w")
    assert (tmp_path / "a").read_text() == "new"


# -- directories -------------------------------------------------------------------------------------------------


def test_a_directory_is_held_by_one_and_the_other_is_told_by_whom(tmp_path, cells):
    holder = child(HOLDER, tmp_path)
    told = rf"is in use: process {holder.pid} on \S+, since [\d:\- ]+ UTC, writes there; wait for it to end"
    with pytest.raises(BusyError, match=told), _locks.holding(tmp_path):
        pass
    for run in (
        lambda: fitting.fit(cells, tmp_path, QUESTION, subsamples=0),
        lambda: paths.path(cells, tmp_path, QUESTION, gammas=[0.1, 1.0], splits=2),
        lambda: oc.evaluate(cells, groupby="condition", control="control", splits=1, out=tmp_path),
    ):
        with pytest.raises(BusyError, match=told):
            run()
    assert [path.name for path in tmp_path.iterdir()] == [_locks.NAME]
    end(holder)
    with _locks.holding(tmp_path):  # what a killed process leaves holds nobody up
        assert json.loads((tmp_path / _locks.NAME).read_text())["pid"] == os.getpid()
    assert not list(tmp_path.iterdir())


def test_threads_of_one_process_count_as_two(tmp_path):
    with _locks.holding(tmp_path), pytest.raises(BusyError, match=f"process {os.getpid()}"), _locks.holding(tmp_path):
        pass


@pytest.mark.parametrize("said", [b"", b"[]", b"{", b'{"pid": 1, "host": "\\u001b[2J", "since": "now"}', b"[" * 10**5])
def test_what_stands_in_a_lock_may_be_anything(tmp_path, said):
    holder = child(HOLDER, tmp_path)
    (tmp_path / _locks.NAME).write_bytes(said)
    with pytest.raises(BusyError, match="in use: another process writes there"), _locks.holding(tmp_path):
        pass
    end(holder)


def test_a_lock_that_leads_elsewhere_is_not_followed(tmp_path):
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / _locks.NAME).symlink_to(tmp_path / "precious")
    with pytest.raises(InputError, match="what is there is none: remove it"), _locks.holding(tmp_path / "run"):
        pass
    assert (tmp_path / "precious").read_text() == "kept"


# -- runs that go on ---------------------------------------------------------------------------------------------


class EndedError(Exception):
    """Ends a run at a piece."""


@pytest.fixture
def end_after(monkeypatch):
    """Ends runs when so many pieces are kept."""
    put = _kept.Kept.put

    def after(count):
        def counted(self, *piece):
            put(self, *piece)
            if len(self.names()) >= count:
                raise EndedError

        monkeypatch.setattr(_kept.Kept, "put", counted if count else put)

    return after


def pieces(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / _kept.NAME).glob("*.piece"))


RUNS = {
    "fit": lambda cells, out, **more: fitting.fit(cells, out, QUESTION, subsamples=6, **more),
    "auto": lambda cells, out, **more: fitting.fit(
        cells, out, QUESTION, MapOptions(gamma="auto"), subsamples=2, **more
    ),
    "path": lambda cells, out, **more: paths.path(cells, out, QUESTION, gammas=[0.1, 0.3, 1.0], splits=4, **more),
}
TABLES = {"fit": ["genes.csv", "cells.csv"], "auto": ["genes.csv", "choice.csv"], "path": ["path.csv"]}


@pytest.mark.parametrize("name", RUNS)
def test_an_ended_run_goes_on_and_ends_the_same(name, cells, tmp_path, end_after, monkeypatch):
    RUNS[name](cells, tmp_path / "whole")
    end_after(2)
    with pytest.raises(EndedError) as ended:
        RUNS[name](cells, tmp_path / "cut")
    assert "the same command goes on from there" in ended.value.__notes__[0]
    assert len(pieces(tmp_path / "cut")) >= 2
    assert [path.name for path in (tmp_path / "cut").iterdir()] == [_kept.NAME]
    end_after(0)
    done = RUNS[name](cells, tmp_path / "cut", threads=2)  # threads change nothing
    assert done.record.result["pieces_from_earlier_runs"] >= 2
    for table in TABLES[name]:
        assert (tmp_path / "cut" / table).read_bytes() == (tmp_path / "whole" / table).read_bytes()
    left = sorted(os.listdir(tmp_path / "cut"))
    assert left == sorted(os.listdir(tmp_path / "whole"))
    assert not [file for file in left if file.startswith(".")]


def test_pieces_of_another_question_are_not_taken(cells, tmp_path, end_after):
    end_after(2)
    with pytest.raises(EndedError):
        RUNS["fit"](cells, tmp_path)
    end_after(0)
    done = RUNS["fit"](cells, tmp_path, seed=1)
    assert done.record.result["pieces_from_earlier_runs"] == 0
    assert not (tmp_path / _kept.NAME).exists()


def test_a_damaged_piece_is_computed_again(cells, tmp_path, end_after):
    RUNS["fit"](cells, tmp_path / "whole")
    end_after(3)
    with pytest.raises(EndedError):
        RUNS["fit"](cells, tmp_path / "cut")
    end_after(0)
    folder = tmp_path / "cut" / _kept.NAME
    first, second, _ = pieces(tmp_path / "cut")
    content = bytearray((folder / first).read_bytes())
    content[-9] ^= 1  # a bit of a number
    (folder / first).write_bytes(content)
    (folder / second).write_bytes((folder / second).read_bytes()[:-100])
    done = RUNS["fit"](cells, tmp_path / "cut")
    assert done.record.result["pieces_from_earlier_runs"] == 1
    assert (tmp_path / "cut/genes.csv").read_bytes() == (tmp_path / "whole/genes.csv").read_bytes()


def test_what_a_kept_half_warned_of_is_said_again(tmp_path):
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(20, 5)), rng.normal(size=(20, 5)) + 1
    like = oc.MongeMap(oc.L1(0.1), epsilon=0.01, max_iter=1)

    def work(expected):
        with _kept.keeping(tmp_path, {}) as kept:
            subsampled_means(like, X, Y, np.zeros(20, int), 4, np.random.default_rng(0))
            assert kept.found == expected
            raise EndedError

    for expected in (0, 4):
        with pytest.warns(NotConvergedWarning) as told, pytest.raises(EndedError):
            work(expected)
        assert len(told) == 4


@pytest.mark.parametrize("kind", ["fifo", "huge", "link", "folder"])
def test_what_stands_in_the_place_of_a_piece_may_be_anything(kind, cells, tmp_path, end_after):
    end_after(2)
    with pytest.raises(EndedError):
        RUNS["fit"](cells, tmp_path)
    end_after(0)
    first = tmp_path / _kept.NAME / pieces(tmp_path)[0]
    first.unlink()
    if kind == "fifo":
        os.mkfifo(first)
    elif kind == "huge":
        with first.open("wb") as stream:
            stream.truncate(2**34)  # sparse: it takes no room, and would take 16 GB to read
    elif kind == "link":
        first.symlink_to("/dev/zero")
    else:
        first.mkdir()
        with pytest.raises(InputError, match="which is a directory: remove it"):
            RUNS["fit"](cells, tmp_path)
        first.rmdir()
    done = RUNS["fit"](cells, tmp_path)
    assert done.record.result["pieces_from_earlier_runs"] == 1
    assert not (tmp_path / _kept.NAME).exists()


def test_pieces_that_lead_elsewhere_are_not_followed(cells, tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / _kept.NAME).symlink_to(tmp_path / "precious")
    with pytest.raises(InputError, match=r"room for a folder '.occamap-kept'; what is there is none: remove it"):
        RUNS["fit"](cells, tmp_path / "out")


def test_a_piece_is_what_was_put(tmp_path):
    kept = _kept.Kept(tmp_path / "kept", {"a": 1})
    numbers = np.random.default_rng(0).normal(size=(3, 4))
    kept.put("x", {"b": [1.5, None, float("nan")]}, numbers)
    about, found = kept.get("x", 12)
    assert about["b"][:2] == [1.5, None]
    assert found.tobytes() == numbers.tobytes()
    assert _kept.Kept(tmp_path / "kept", {"a": 1}).get("y") is None
    (tmp_path / "kept" / "note").write_text("mine")
    assert not _kept.Kept(tmp_path / "kept", {"a": 2}).names()  # another run's are taken away
    assert os.listdir(tmp_path / "kept") == ["note"]  # and nothing else


# -- signals and disks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "code", "what"), [("SIGINT", 130, "interrupted"), ("SIGTERM", 143, "terminated")])
def test_an_ended_fit_says_that_it_goes_on(number, code, what, cells, tmp_path):
    out = tmp_path / "out"
    words = [sys.executable, "-m", "occamap", "fit", str(cells), *FIT, "--subsamples", "400", "--out", str(out)]
    process = start(words)
    deadline = time.monotonic() + 120
    while len(pieces(out)) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.Signals[number])
    told = process.communicate(timeout=60)[1]
    assert process.returncode == code
    assert told.strip() == (
        f"occamap: {what}; files that were written are whole; what is done is kept in {str(out)!r}, and the same "
        "command goes on from there"
    )


def test_an_interrupt_while_code_is_loaded_is_one_sentence():
    code = "import sys\nclass Stop:\n    def find_spec(self, name, *_):\n        if name == 'occamap.cli.app':\n"
    code += "            raise KeyboardInterrupt\nsys.meta_path.insert(0, Stop())\n"
    done = subprocess.run([sys.executable, "-c", f"{code}from occamap.cli.main import main\nmain()"],
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert (done.returncode, done.stderr) == (130, "occamap: interrupted before it began: nothing has changed\n")


def test_an_interrupt_that_a_callback_swallows_is_not_printed():
    code = "import sys, weakref\nfrom occamap.cli import app\ntry:\n    app.run(['--version'])\nexcept SystemExit:\n"
    code += "    pass\nclass A: pass\ndef gone(_): raise ERROR\nx = A(); r = weakref.ref(x, gone); del x"
    for error, told in (("KeyboardInterrupt", False), ("ValueError", True)):
        words = [sys.executable, "-c", code.replace("ERROR", error)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert (error in done.stderr) == told


@pytest.mark.parametrize("piece", [".occamap-kept/ab-half-0.piece", "parts/ab-000.json"])
def test_a_run_interrupted_before_it_looks_says_what_an_earlier_one_has_left(piece, cells, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(_h5ad, "check_file", interrupted)
    words = ["fit", str(cells), *FIT, "--out", str(tmp_path / "out")]
    assert "goes on" not in CliRunner().invoke(app, words).stderr
    (tmp_path / "out" / piece).parent.mkdir(parents=True)
    (tmp_path / "out" / piece).write_text("")
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 130
    assert "what an earlier run has done is still in" in done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a limit on the size of files, as Unix has")
def test_a_disk_that_takes_no_more_is_said_in_one_sentence(cells, tmp_path):
    """A file may have 16 KiB: the map does not fit, and none of the files appears."""
    program = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (2**14, 2**14)); import signal;"
    program += "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); from occamap.cli.main import main; main()"
    out = tmp_path / "out"
    words = [sys.executable, "-c", program, "fit", str(cells), *FIT, "--subsamples", "0", "--out", str(out)]
    done = subprocess.run(words, capture_output=True, text=True, env=environment(NUMBA_CACHE_DIR=""), check=False)
    assert done.returncode == 1
    assert done.stderr.strip() == f"occamap: File too large: {out}"
    assert not out.exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 3])
def test_killed_runs_end_with_the_same_tables(number, tmp_path):
    """A share of `python -m soak crashes`."""
    tally = Tally("crashes", share=0.01)
    ground = Ground(tmp_path, [number])
    run_kills(tally, ground, number, random.Random(number), 3, signal.SIGKILL)
    assert not tally.faults
    assert tally.total() == 4


def test_the_soak_sees_what_is_wrong_with_a_directory(tmp_path):
    """What it is trusted to find."""
    job, whole, cut = JOBS[0], tmp_path / "whole", tmp_path / "cut"
    for out in (whole, cut):
        out.mkdir()
        (out / "genes.csv").write_text("gene,mean\na,1\n")
    assert not incomplete(cut, job, whole)
    (cut / f".genes.csv.x{SUFFIX}").write_text("")
    assert incomplete(cut, job, whole) == [f".genes.csv.x{SUFFIX} is left over"]
    (cut / "genes.csv").write_text("gene,mean\na,2\n")
    assert "another table" in unsound(cut, job, whole)[0]
    (cut / "map.occamap").write_bytes(b"PK")
    (cut / "report.html").write_text("<html>")
    (cut / "run.json").write_text("{}")
    assert len(unsound(cut, job, whole)) >= 4
