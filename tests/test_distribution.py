"""Wheel and sdist: built as a release is, complete, and of use in an environment that has nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from occamap import __version__

ROOT = Path(__file__).parents[1]


def run(*command: str | Path, cwd: Path) -> str:
    """What a command prints; its complaints, if it fails."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "NUMBA", "VIRTUAL"))}
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=clean, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that `python -m build` leaves: an sdist of what git knows, and a wheel made of the sdist."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("this is no clone, or there is no git: what belongs to a release is what git knows")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip(f"git does not list the files of a release: {listed.stderr.strip()}")
    room = tmp_path_factory.mktemp("release")
    needs = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    probe = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", *needs, "-d", str(room / "needs")]
    if subprocess.run(probe, capture_output=True).returncode != 0:
        pytest.skip(f"no package index can be reached, from which builds take {' and '.join(needs)}")
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (room / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
            (room / "tree" / name).write_bytes((ROOT / name).read_bytes())
    run(sys.executable, "-m", "build", "--outdir", room / "dist", room / "tree", cwd=room)
    return room / "dist"


def names(wheel: Path) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


def test_the_files_of_a_release_are_all_there(built: Path) -> None:
    wheel, sdist = built / f"occamap-{__version__}-py3-none-any.whl", built / f"occamap-{__version__}.tar.gz"
    assert sorted(built.iterdir()) == sorted([wheel, sdist])
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    known = {name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()}
    code = {name.removeprefix("src/") for name in known if name.startswith("src/")}
    own = {name for name in names(wheel) if not name.startswith(f"occamap-{__version__}.dist-info/")}
    assert own == code | {"occamap/reports/assets/vega.js"}
    with tarfile.open(sdist) as tar:
        files = {name.partition("/")[2] for name in tar.getnames() if tar.getmember(name).isfile()}
    assert files - {"PKG-INFO", ".gitignore", "src/occamap/reports/assets/vega.js"} == known - {".gitignore"}


def test_the_wheel_works_in_an_environment_of_its_own(built: Path, tmp_path: Path) -> None:
    """A new environment, the wheel and what it asks for: a demonstration with a report, and no other package."""
    venv.create(tmp_path / "venv", with_pip=True)
    python, wheel = tmp_path / "venv/bin/python", next(built.glob("*.whl"))
    run(python, "-m", "pip", "--disable-pip-version-check", "install", "-q", f"{wheel}[cells]", cwd=tmp_path)
    home = Path(run(python, "-c", "import occamap; print(occamap.__file__)", cwd=tmp_path).strip())
    assert home.is_relative_to(tmp_path / "venv")
    command = tmp_path / "venv/bin/occamap"
    assert __version__ in run(command, "--version", cwd=tmp_path)
    run(command, "demo", "--genes", "500", "--cells", "60", "--out", "demo", cwd=tmp_path)
    assert {"cells.h5ad", "genes.csv", "map.occamap", "report.html", "run.json"} <= set(os.listdir(tmp_path / "demo"))
    assert (tmp_path / "demo/report.html").stat().st_size > 500_000  # the script that draws is in it
    first = (tmp_path / "demo/genes.csv").read_text().splitlines()[0]
    assert first.startswith("gene,share")
