"""Texts: links lead somewhere, examples run, what is kept is what comes out, and every public name is described."""

from __future__ import annotations

import ast
import base64
import importlib.util
import inspect
import json
import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
import typer

import occamap as oc
from occamap.cli.app import app

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(
    path
    for folder in (ROOT, ROOT / ".github", DOCS, DOCS / "figures", DOCS / "measured", ROOT / "benchmarks/results")
    for kind in ("*.md", "*.ipynb")
    for path in folder.glob(kind)
)
NOTEBOOKS = sorted(DOCS.glob("*.ipynb"))
named = pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
SUB_MODULES = [name for name in oc.__all__ if inspect.ismodule(getattr(oc, name)) and name != "errors"]
NEEDS_A_FILE = {"datasets.kang_ifnb"}


def script(name: str) -> ModuleType:
    """A script of docs/pictures."""
    spec = importlib.util.spec_from_file_location(name, DOCS / "pictures" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def text_of(page: Path) -> str:
    if page.suffix != ".ipynb":
        return page.read_text()
    cells = json.loads(page.read_text())["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def without_code(text: str) -> str:
    return re.sub(r"^(```+|~~~+).*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """What headings are called in links: by GitHub, and by the site."""
    found: list[str] = []
    for heading in re.findall(r"^#+ +(.*)$", without_code(text_of(page)), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        found.append(re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-"))
    return set(found)


def links(page: Path) -> list[str]:
    """Where it leads to: inline, by reference, and from HTML."""
    text = re.sub(r"`[^`\n]*`", "", without_code(text_of(page)))
    kinds = r"\]\(<?([^)\s>]+)[^)\n]*\)", r"^ {0,3}\[[^\]\n]+\]:\s*<?([^\s>]+)", r"(?:src|href)=\"([^\"]+)\""
    return [target for kind in kinds for target in re.findall(kind, text, re.MULTILINE)]


@named
def test_links_within_the_repository_lead_somewhere(page: Path) -> None:
    for target in links(page):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        other = (page.parent / name).resolve() if name else page
        assert other.is_relative_to(ROOT), f"{target} leaves the repository"
        assert other.exists(), f"{target} leads nowhere"
        if anchor:
            assert anchor in anchors(other), f"{other.name} has no heading #{anchor}; it has {sorted(anchors(other))}"


@named
def test_a_page_names_no_place_on_a_machine(page: Path) -> None:
    assert not re.search(r"(?<![\w.])/(home|root|work|Users)", page.read_text())


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda path: path.name)
def test_code_on_a_page_is_in_cells_that_run(page: Path) -> None:
    """Sphinx runs cells, and nothing else: code in other fences may rot, and so may cells that may fail."""
    text = page.read_text()
    fence = r"^\s*(?:```+|~~~+|:::+)\s*(?:\{code-block\}\s*)?(?:python|py|ipython3?|pycon)\b"
    assert not re.findall(fence, text, re.MULTILINE)
    cells = re.findall(r"^```\{code-cell\}.*?\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    for cell in cells:
        assert not re.search(r"^(!|%%?(?!bash$)\w)|raises-exception|skip-execution", cell, re.MULTILINE), cell


# -- the readme ------------------------------------------------------------------------------------------------


def fences(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)


def test_the_python_of_the_readme_runs(tmp_path: Path) -> None:
    blocks = fences("python")
    assert blocks
    code = "import matplotlib\nmatplotlib.use('agg')\n" + "\n".join(blocks)
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert {"genes.png", "mapped.h5ad"} <= set(os.listdir(tmp_path))


def test_the_shell_of_the_readme_runs(tmp_path: Path) -> None:
    (block,) = (block for block in fences("sh") if "occamap fit" in block)
    where = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    asked = ["bash", "-euo", "pipefail", "-c", block]
    done = subprocess.run(asked, cwd=tmp_path, env=where, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-2000:]
    assert {"demo", "run", "path", "evaluation", "predicted.h5ad", "lab meeting.html"} <= set(os.listdir(tmp_path))


def test_every_command_has_its_help_on_the_page() -> None:
    section = r"^## occamap (\w+)\n\n```\{code-cell\}\n%%bash\noccamap (\w+) --help$"
    told = re.findall(section, (DOCS / "commands.md").read_text(), re.MULTILINE)
    known: Any = typer.main.get_command(app)
    assert [(name, name) for name in known.commands] == told


def commands() -> Iterator[tuple[str, str, list[str]]]:
    """Every command with its options in a shell fence, by page."""
    for page in PAGES:
        for block in re.findall(r"^ *```(?:sh|bash|console)\n(.*?)^ *```$", text_of(page), re.MULTILINE | re.DOTALL):
            for line in re.sub(r"\\\n", " ", block).splitlines():
                if found := re.match(r"\s*\$?\s*(?:OCCAMAP_DATA=\S+ )?occamap (\w+)(.*)", line.split("  #")[0]):
                    yield page.name, found[1], re.findall(r"(?<!\S)(--?[a-z][\w-]*)", found[2])


def test_commands_in_the_texts_have_options_that_exist() -> None:
    known: Any = typer.main.get_command(app)
    options = {
        name: {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        for name, command in known.commands.items()
        if isinstance(command, click.Command) or hasattr(command, "params")
    }
    seen = list(commands())
    assert len(seen) > 10
    for page, name, used in seen:
        assert name in options, f"{page}: there is no occamap {name}"
        assert set(used) <= options[name] | {"--help", "-h"}, f"{page}: occamap {name} {used}"


# -- notebooks of real cells -----------------------------------------------------------------------------------


def printed(cell: dict[str, Any]) -> str:
    """What a cell shows: words, tables, and the sizes of pictures."""
    parts = []
    for output in cell.get("outputs", []):
        data = output.get("data", {"text": output.get("text", "")})
        for kind in sorted(data):
            shown = "".join(data[kind])
            if kind == "image/png":
                width, height = struct.unpack(">II", base64.b64decode(shown)[16:24])
                shown = f"{width} by {height}"
            parts.append(f"{kind}: {shown}")
    return "\n".join(parts)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_keeps_the_outputs_of_one_whole_run(notebook: Path) -> None:
    cells = [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        for output in cell["outputs"]:
            assert output["output_type"] != "error"
            assert output.get("name") != "stderr"
        last = ast.parse("".join(cell["source"])).body[-1]
        assert cell["outputs"] or not isinstance(last, ast.Expr), "".join(cell["source"])


NUMBER = r"(?<![\w.])[-+−]?\d+\.\d+(?:e[-+]?\d+)?(?![\w.])"


def same(kept: str, new: str) -> bool:
    """The same words and whole numbers; decimals may differ by two in the last place, or by 10 % if they have an e."""
    if re.sub(NUMBER, "#", kept).split() != re.sub(NUMBER, "#", new).split():
        return False
    for one, other in zip(re.findall(NUMBER, kept), re.findall(NUMBER, new), strict=True):
        first, second = (float(text.replace("−", "-")) for text in (one, other))
        places = len(one.partition(".")[2].partition("e")[0])
        allowed = 0.1 * abs(first) if "e" in one + other else 2.01 * 10.0**-places
        if abs(first - second) > allowed:
            return False
    return True


def test_kept_outputs_are_compared_word_by_word() -> None:
    assert same("ISG15 4.22, 1,330 cells, p 1e-30, 2.5e-63", "ISG15 4.23, 1,330 cells, p 1e-30, 2.6e-63")
    for other in ("ISG16 4.22", "ISG15 4.25", "ISG15 -4.22", "ISG15 4"):
        assert not same("ISG15 4.22", other)
    assert not same("1,330 cells", "1,331 cells")
    assert not same("0.0001", "0.0101")


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_what_a_notebook_keeps_is_what_comes_out(notebook: Path, tmp_path: Path) -> None:
    if not os.environ.get("OCCAMAP_DATA"):
        pytest.skip("OCCAMAP_DATA names no directory with the interferon cells")
    pytest.importorskip("nbclient", reason="the extra `docs` is not installed")
    asked = (
        "import sys, nbformat; sys.path.insert(0, sys.argv[1]); import kept;"
        "nbformat.write(kept.executed(sys.argv[2], '.'), 'run.ipynb')"
    )
    command = [sys.executable, "-c", asked, str(DOCS / "pictures"), notebook.name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    old, new = (json.loads(path.read_text())["cells"] for path in (notebook, tmp_path / "run.ipynb"))
    for k, (before, after) in enumerate(zip(old, new, strict=True)):
        assert same(printed(before), printed(after)), f"cell {k}: kept\n{printed(before)}\nnow\n{printed(after)}"


# -- pictures and reference ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["data-path.svg", "rooms.svg"])
def test_the_pictures_of_the_architecture_are_those_of_the_contract(name: str) -> None:
    drawn = script("architecture").PICTURES[name]()
    assert (DOCS / "pictures" / name).read_text() == drawn, "draw it again: python docs/pictures/architecture.py"


def public() -> Iterator[tuple[str, Any]]:
    """Every public function and class, as users name it."""
    for module, prefix in [(oc, ""), *((getattr(oc, name), f"{name}.") for name in SUB_MODULES)]:
        for name in module.__all__:
            thing = getattr(module, name)
            if not inspect.ismodule(thing) and name != "__version__":
                yield prefix + name, thing


def test_every_public_name_has_a_page_and_an_example() -> None:
    listed = set(re.findall(r"^   ([\w.]+)$", (DOCS / "api.md").read_text(), re.MULTILINE))
    names = dict(public())
    assert listed == set(names)
    bare = [name for name, thing in names.items() if ">>>" not in (inspect.getdoc(thing) or "")]
    assert set(bare) == NEEDS_A_FILE


def test_rooms_of_the_architecture_are_those_of_the_package() -> None:
    text = (DOCS / "architecture.md").read_text().split("| room |")[1].split("\n\n")[0]
    rows = [row.split("|")[1] for row in text.splitlines()[2:]]
    described = {name.rstrip("/") for row in rows for name in re.findall(r"`([\w/]+)`", row)}
    there = {path.stem for path in (ROOT / "src/occamap").iterdir() if path.name != "__pycache__"}
    assert there - described <= {"__init__", "__main__", "_version", "py"}
    assert described <= there
