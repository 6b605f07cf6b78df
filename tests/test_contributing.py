"""What CONTRIBUTING.md tells newcomers to do is done, in a copy of the package: one file, one line in the tests."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CONTRACT = "tests/test_costs_contract.py"
TABLE = "COSTS: dict[str, Cost] = {\n"


def guide() -> tuple[str, str, str]:
    """The file of the new cost, its line in the tests, and the command, as the guide has them."""
    section = (ROOT / "CONTRIBUTING.md").read_text().split("## Add a cost\n")[1].split("\n## ")[0]
    file, line = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    command = re.search(r"`\.venv/bin/python (-m pytest [^`]+)`", section)
    assert command is not None
    return file, line, command[1]


def follow(tmp_path: Path, mistake: tuple[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Do as the guide says, with a mistake in the file if one is given, and run its command."""
    file, line, command = guide()
    if mistake is not None:
        assert file.count(mistake[0]) == 1
        file = file.replace(*mistake)
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("vega.js"))
    for name in ("pyproject.toml", CONTRACT, "tests/conftest.py", "tests/cluster.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy2(ROOT / name, tmp_path / name)
    (tmp_path / "src/occamap/costs/berhu.py").write_text(file)
    before, after = (tmp_path / CONTRACT).read_text().split(TABLE)
    (tmp_path / CONTRACT).write_text(before + TABLE + line + after)
    arguments = [part.strip("'") for part in re.findall(r"'[^']*'|\S+", command)]
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "src")}
    asked = [sys.executable, *arguments, "-p", "no:cacheprovider"]
    return subprocess.run(asked, cwd=tmp_path, env=environment, capture_output=True, text=True)


def test_a_cost_takes_one_file_and_one_line(tmp_path: Path) -> None:
    done = follow(tmp_path)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) >= 12  # the laws, and the example of its docstring


MISTAKES = {
    "slope": ("np.maximum(1.0, np.abs(z) / self.delta)", "np.maximum(0.9, np.abs(z) / self.delta)"),
    "prox": ("np.abs(w) - self.gamma, ", "np.abs(w) + self.gamma, "),
    "value": ("(2 * self.delta)", "(3 * self.delta)"),
    "kink": ("np.full(z.shape[1], self.gamma)", "np.full(z.shape[1], 0.9 * self.gamma)"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_it_does_not_get_through(tmp_path: Path, mistake: str) -> None:
    done = follow(tmp_path, MISTAKES[mistake])
    assert done.returncode == 1, done.stdout[-3000:] + done.stderr[-2000:]
    assert re.search(r"FAILED tests/test_costs_contract.py::\w+\[berhu\]", done.stdout)


def test_a_cost_beside_the_others_is_found_and_its_name_may_not_be_taken(tmp_path: Path) -> None:
    """A model file names its cost: two of one name would be mixed up. Files with an underscore are left alone."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("vega.js", "__pycache__"))
    costs = tmp_path / "src/occamap/costs"
    own = "from dataclasses import dataclass\nfrom occamap.costs.l1 import SqL2 as Base\n\n\n@dataclass(frozen=True)\n"

    def kinds() -> subprocess.CompletedProcess[str]:
        asked = [sys.executable, "-c", "from occamap.costs import KINDS; print(*KINDS)"]
        where = os.environ | {"PYTHONPATH": str(tmp_path / "src")}
        return subprocess.run(asked, env=where, capture_output=True, text=True)

    (costs / "mine.py").write_text(own + "class Mine(Base): pass\n")
    (costs / "_hidden.py").write_text("raise RuntimeError\n")
    assert kinds().stdout.split() == ["SqL2", "L1", "STVS", "KOverlap", "GroupLasso", "Subspace", "Mine"]
    (costs / "other.py").write_text(own + "class STVS(Base): pass\n")
    assert "occamap.costs.other has a second cost of the name STVS" in kinds().stderr
