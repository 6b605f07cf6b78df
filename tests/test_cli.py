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
    code = f"import sys, occamap.cli.app; print([name for name in {heavy} if name in sys.modules])"
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
    assert records[0]["seed"] == 2
    assert done.stdout.isascii()
    assert all(isinstance(verdict["holds"], bool) for record in records for verdict in record["verdicts"])
    assert all(os.path.exists(path) for record in records for path in record["files"])


def test_several_figures_end_with_a_summary(tmp_path):
    (tmp_path / "maps.json").write_text("[]")  # somebody else's
    (tmp_path / "truth.json").write_bytes(b"\xff{")
    done = run("reproduce", "prox", "flows", "--out", str(tmp_path))
    assert "prox        4 of 4 claims hold" in done.stdout
    assert "flows       3 of 3 claims hold" in done.stdout
    page = (tmp_path / "verdicts.md").read_text()
    assert page.index("![The STVS regulariser and its proximal operator](prox.png)") < page.index("](flows.png)")
    assert page.count("| holds |") == 7
    assert page.count("*(not in the paper)*") == 1
    assert "`occamap reproduce flows`" in page
    assert "with n = 60, step = 0.25" in page


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("reproduce",), "Missing argument"),
        (("reproduce", "figure1"), "FIGURE must be one of maps, moved"),
        (("reproduce", "prox", "--out", ""), "out must name a directory"),
        (("reproduce", "prox", "--seed", "-1"), "--seed"),
        (("reproduce", "prox", "--out", "/dev/null/x"), "out must be a directory"),
        (("conjure",), "No such command"),
        (("demo", "--cells", "3"), "--cells"),
        (("demo", "--genes", "5"), "--genes"),
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


def stop(process: subprocess.Popen[str], number: int) -> str:
    """Send the signal, and return what the process then says."""
    process.send_signal(number)
    try:
        return process.communicate(timeout=120)[1]
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("compiled", [True, False])
def test_an_interrupt_leaves_whole_files_and_says_so(compiled, tmp_path):
    """Also while kernels are compiled, where a KeyboardInterrupt may be swallowed."""
    out, environment = tmp_path / "out", dict(os.environ)
    if not compiled:
        environment["NUMBA_CACHE_DIR"] = str(tmp_path / "cache")
    command = [*COMMAND, "reproduce", "prox", "synthetic", "--out", str(out)]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
    )
    deadline = time.monotonic() + 120
    while not (out / "verdicts.md").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1.5)
    stderr = stop(process, signal.SIGINT)
    assert process.returncode == 130
    assert "interrupted" in stderr
    assert "Traceback" not in stderr
    files = [*(f"prox.{suffix}" for suffix in ("csv", "json", "png", "svg")), "verdicts.md"]
    assert sorted(path.name for path in out.iterdir()) == files


def test_a_termination_leaves_no_half_written_file(tmp_path):
    process = subprocess.Popen(
        [*COMMAND, "reproduce", "scaling", "--out", str(tmp_path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(4)
    stderr = stop(process, signal.SIGTERM)
    assert process.returncode == 143
    assert "Traceback" not in stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_that_cannot_show_epsilon_is_no_error(encoding, tmp_path):
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    for arguments in (["reproduce", "prox", "--out", str(tmp_path)], ["reproduce", "--help"], ["demo", "--help"]):
        done = subprocess.run([*COMMAND, *arguments], capture_output=True, env=environment, timeout=120)
        assert done.returncode == 0, done.stderr
        assert b"Traceback" not in done.stderr


def test_another_locale_reads_what_it_wrote(tmp_path):
    strange = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "utf-8"}
    done = run("reproduce", "prox", "--json", "--out", str(tmp_path), env={**os.environ, **strange})
    assert done.returncode == 0
    assert "½" not in done.stdout
    assert "prox.png" in (tmp_path / "verdicts.md").read_text(encoding="utf-8")


def test_backends_and_large_seeds_do_not_matter(tmp_path):
    environment = {**os.environ, "MPLBACKEND": "nonsense"}
    done = run("reproduce", "maps", "--seed", str(2**40), "--out", str(tmp_path), env=environment)
    assert done.returncode == 0


def test_a_closed_pipe_is_no_error_to_speak_of(tmp_path):
    command = f"{sys.executable} -m occamap reproduce prox flows --out {tmp_path} | true"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120)
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_demo_runs():
    done = run("demo", "--genes", "300", "--cells", "60")
    assert done.returncode == 0
    assert "are planted" in done.stdout
