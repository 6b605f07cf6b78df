"""Wheel and sdist: built as a release is, complete, and of use in an environment that has nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
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
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("this is no clone: what belongs to a release is what git knows")
    room = tmp_path_factory.mktemp("release")
    probe = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "hatchling", "-d", str(room)]
    if subprocess.run(probe, capture_output=True).returncode != 0:
        pytest.skip("no package index can be reached, from which builds take hatchling")
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (room / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
            (room / "tree" / name).write_bytes((ROOT / name).read_bytes())
    run(sys.executable, "-m", "build", "--outdir", room / "dist", room / "tree", cwd=room)
    return room / "dist"


def names(archive: Path) -> set[str]:
    if archive.suffix == ".whl":
        return set(zipfile.ZipFile(archive).namelist())
    with tarfile.open(archive) as tar:
        return {name.partition("/")[2] for name in tar.getnames()}


def test_the_files_of_a_release_are_all_there(built: Path) -> None:
    wheel, sdist = built / f"occamap-{__version__}-py3-none-any.whl", built / f"occamap-{__version__}.tar.gz"
    assert sorted(built.iterdir()) == sorted([wheel, sdist])
    code = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src/occamap").rglob("*.py")}
    assets = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src/occamap/reports/assets").rglob("*.*")}
    assert code | assets | {"occamap/py.typed"} <= names(wheel)
    assert "occamap/reports/assets/vega.js" in names(wheel)
    assert not {name for name in names(wheel) if not name.startswith(("occamap/", f"occamap-{__version__}.dist-info/"))}
    others = {"README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "hatch_build.py", "tests/conftest.py"}
    assert others | {f"src/{name}" for name in code} <= names(sdist)


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
