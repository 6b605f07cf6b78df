"""The command line: what it prints, where, and with which exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

COMMAND = [sys.executable, "-m", "occamap"]


def run(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=300, **options)


def test_help_lists_commands_figures_and_examples():
    assert {"demo", "reproduce"} <= set(run("--help").stdout.split())
    told = run("reproduce", "--help")
    assert told.returncode == 0
    for word in ("maps", "synthetic", "truth", "--full", "--out", "--json", "Examples", "occamap reproduce maps"):
        assert word in told.stdout
    assert "occamap demo --genes" in run("demo", "--help").stdout


def test_version():
    from occamap import __version__

    assert run("--version").stdout.strip() == f"occamap {__version__}"


def test_help_loads_neither_numba_nor_matplotlib():
    heavy = "('numba', 'matplotlib', 'pandas', 'sklearn')"
    code = f"import sys, occamap.cli; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_reproduce_writes_files_and_prints_verdicts(tmp_path):
    done = run("reproduce", "prox", "prox", "--out", "figures", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr == ""  # not a terminal: no bar
    assert done.stdout.count("✓ holds") == 4
    assert "The STVS regulariser is not convex." in done.stdout
    files = [*(f"prox.{suffix}" for suffix in ("csv", "json", "png", "svg")), "verdicts.md"]
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == files


def test_json_is_for_machines(tmp_path):
    done = run("reproduce", "prox", "flows", "--json", "--out", str(tmp_path), "--seed", "2")
    records = json.loads(done.stdout)
    assert [record["figure"] for record in records] == ["prox", "flows"]
    assert records[0]["random_state"] == 2
    assert all(isinstance(verdict["holds"], bool) for record in records for verdict in record["verdicts"])
    assert all(os.path.exists(path) for record in records for path in record["files"])


def test_several_figures_end_with_a_summary(tmp_path):
    (tmp_path / "maps.json").write_text("[]")  # somebody else's
    (tmp_path / "truth.json").write_bytes(b"\xff{")
    done = run("reproduce", "prox", "flows", "--out", str(tmp_path))
    assert "prox        4 of 4 claims hold" in done.stdout
    assert "flows       2 of 3 claims hold (not: where the origin is)" in done.stdout
    page = (tmp_path / "verdicts.md").read_text()
    assert page.index("![The STVS regulariser and its proximal operator](prox.png)") < page.index("](flows.png)")
    assert page.count("| holds |") == 6
    assert page.count("| **does not** |") == 1
    assert "| \\|prox\\| is larger by" in page  # a bar in a cell is escaped
    assert "`occamap reproduce flows`" in page


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("reproduce",), "Missing argument"),
        (("reproduce", "figure1"), "is not one of"),
        (("reproduce", "prox", "--seed", "-1"), "--seed"),
        (("reproduce", "prox", "--out", "/dev/null/x"), "out must be a directory"),
        (("conjure",), "No such command"),
        (("demo", "--cells", "3"), "--cells"),
        (("demo", "--genes", "5"), "n_moved must fit"),
        (("demo", "--gamma", "nan"), "gamma"),
    ],
)
def test_wrong_usage_is_said_without_a_traceback(arguments, told):
    done = run(*arguments)
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_debug_shows_the_traceback_wherever_it_stands():
    done = run("reproduce", "prox", "--out", "/dev/null/x", "--debug")
    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_a_missing_package_is_named(tmp_path):
    (tmp_path / "matplotlib.py").write_text("raise ImportError('not here')")
    done = run("reproduce", "prox", "--out", str(tmp_path / "out"), env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert done.returncode == 1
    assert "pip install matplotlib" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_interrupt_leaves_whole_files_and_says_so(tmp_path):
    process = subprocess.Popen(
        [*COMMAND, "reproduce", "prox", "synthetic", "--out", str(tmp_path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while not (tmp_path / "prox.json").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in stderr
    assert "Traceback" not in stderr
    files = [*(f"prox.{suffix}" for suffix in ("csv", "json", "png", "svg")), "verdicts.md"]
    assert sorted(path.name for path in tmp_path.iterdir()) == files


def test_a_closed_pipe_is_no_error_to_speak_of(tmp_path):
    command = f"{sys.executable} -m occamap reproduce prox flows --out {tmp_path} | true"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120)
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_demo_runs():
    done = run("demo", "--genes", "300", "--cells", "60")
    assert done.returncode == 0
    assert "are planted" in done.stdout
