"""What the package rests on: bounds for every dependency, a lock with hashes, and no network while it works."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
CHILD = Path(__file__).with_name("network_child.py")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
LOCKS = {  # file: what it is made of
    "lock.txt": [*PROJECT["project"]["dependencies"], *EXTRAS["cells"], *EXTRAS["dask"]],
    "lock-test.txt": [*PROJECT["project"]["dependencies"], *EXTRAS["cells"], *EXTRAS["test"]],
    "lock-build.txt": PROJECT["build-system"]["requires"],
}
COMMANDS = {"fit", "path", "evaluate", "report", "transform", "demo", "reproduce"}


def named() -> Iterator[Requirement]:
    """Everything that pyproject.toml asks for, but the package's own extras."""
    asked = PROJECT["build-system"]["requires"] + PROJECT["project"]["dependencies"] + list(chain(*EXTRAS.values()))
    yield from (found for found in map(Requirement, asked) if found.name != PROJECT["project"]["name"])


def locked(file: str) -> dict[str, list[tuple[str, int]]]:
    """Versions and how many hashes each has, by name."""
    found: dict[str, list[tuple[str, int]]] = {}
    text = (ROOT / "requirements" / file).read_text()
    for name, version, rest in re.findall(r"^([\w.-]+)(?:\[[\w,-]+\])?==(\S+)((?:.*\\\n)*.*)$", text, re.MULTILINE):
        found.setdefault(canonicalize_name(name), []).append((version, len(re.findall(r"sha256:[0-9a-f]{64}\b", rest))))
    return found


def test_every_dependency_has_a_lower_bound_and_a_cap_has_a_reason() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    for found in named():
        kinds = {part.operator for part in found.specifier}
        assert ">=" in kinds, f"{found} has no lower bound"
        assert kinds <= {">=", "<"}, f"{found} is bounded in another way"
        if "<" in kinds:
            line = next(line for line in text.splitlines() if f'"{found.name}' in line and "<" in line)
            assert "#" in line, f"nothing says why {found} is capped"


@pytest.mark.parametrize("file", sorted(LOCKS))
def test_the_lock_holds_all_that_is_asked_for_and_each_with_a_hash(file: str) -> None:
    versions = locked(file)
    assert min(hashes for entries in versions.values() for _, hashes in entries) >= 1
    for found in map(Requirement, LOCKS[file]):
        if found.name == PROJECT["project"]["name"]:
            continue
        entries = versions.get(canonicalize_name(found.name), [])
        assert entries, f"{file} has no {found.name}: make it again (docs/security.md says how)"
        assert all(found.specifier.contains(version) for version, _ in entries), f"{file} has another {found.name}"


@pytest.mark.parametrize("file", sorted(LOCKS))
def test_the_lock_names_no_place_to_load_from(file: str) -> None:
    text = (ROOT / "requirements" / file).read_text()
    assert "://" not in text
    assert not re.search(r"^\s*(-|--(?!hash))", text.replace("    --hash", ""), re.MULTILINE)
    lines = [line for line in text.splitlines() if line and not line.lstrip().startswith(("#", "--hash=sha256:"))]
    assert len(lines) == sum(map(len, locked(file).values()))


def test_no_command_and_no_call_asks_a_network_or_starts_a_program(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(CHILD)], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    seen: dict[str, dict[str, int]] = json.loads(done.stdout)
    assert set(seen) - {"import"} == {"API", *(f"occamap {name}" for name in COMMANDS)}
    assert set(seen.pop("import", {})) <= {"subprocess.Popen ('uname', ['uname', '-p'])"}  # Python's own `platform`
    assert not any(seen.values()), seen


@pytest.mark.parametrize(
    ("line", "event"),
    [
        ("import socket; socket.socket().connect_ex(('127.0.0.1', 9))", "socket.connect"),
        ("import socket; socket.getaddrinfo('localhost', 80)", "socket.getaddrinfo"),
        ("import subprocess; subprocess.run(['true'])", "subprocess.Popen"),
    ],
)
def test_the_witness_sees_what_it_is_to_see(line: str, event: str, tmp_path: Path) -> None:
    """In the same script, with the line in the place of the work."""
    work = f"import sys; sys.path.insert(0, {str(CHILD.parent)!r}); import network_child as child"
    code = f"{work}; sys.addaudithook(child.witness); {line}; print(child.seen)"
    done: Any = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert event in done.stdout, done.stderr
