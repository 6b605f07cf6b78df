"""How the site is built: `make docs`. Every code cell runs, and every warning is an error."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ziamath
from sphinx.errors import ConfigError

from occamap import __version__

sys.path.insert(0, str(Path(__file__).parent))  # for mathml.py

project = "occamap"
author = "The occamap developers"
release = version = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "mathml",
]
exclude_patterns = ["_build", "pictures"]
nitpicky = True
nitpick_ignore_regex = [("py:.*", r"(?!occamap\.).*")]  # types of others: there is no network to look them up in

# -- pages and their cells --------------------------------------------------------------------------------------------

myst_enable_extensions = ["amsmath", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
nb_execution_mode = "force"
nb_execution_timeout = 600
nb_execution_raise_on_error = True
nb_merge_streams = True
nb_output_stderr = "error"  # a page that warns is not finished
nb_execution_show_tb = True
nb_execution_in_temp = True  # what cells write is thrown away
KEPT = [path.name for path in Path(__file__).parent.glob("*.ipynb")]  # of real cells, with their outputs in the file
nb_execution_excludepatterns = [] if os.environ.get("OCCAMAP_DATA") else KEPT
os.environ.pop("JUPYTER_PATH", None)  # kernels are this environment's
os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"
os.environ["COLUMNS"] = "88"  # of what commands print
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # where occamap is
PROFILE = TemporaryDirectory(prefix="occamap-docs-")  # kernels read nothing of the user's, and say only what fails
os.environ["IPYTHONDIR"] = PROFILE.name
(DEFAULT := Path(PROFILE.name, "profile_default", "startup")).mkdir(parents=True)
(DEFAULT.parent / "ipython_kernel_config.json").write_text('{"IPKernelApp": {"log_level": 40}}')
(DEFAULT / "shell.py").write_text(Path(__file__).with_name("shell.py").read_text())

# -- reference --------------------------------------------------------------------------------------------------------

autosummary_generate = True
templates_path = ["_templates"]
default_role = "literal"  # docstrings have code in `backticks`
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the signature says it, in the words of the source
autodoc_preserve_defaults = True
napoleon_google_docstring = False
napoleon_use_param = False  # parameters that share a description stay together
napoleon_custom_sections = ["Returns", "Writes"]  # which are sentences, not lists of names and types
napoleon_attr_annotations = False  # types are in the signature

# -- look -------------------------------------------------------------------------------------------------------------

html_theme = "sphinx_book_theme"
html_title = "occamap"
html_static_path = ["_static", str(Path(ziamath.__file__).parent / "fonts")]  # for formulas, STIX Two Math
html_css_files = ["occamap.css"]
html_theme_options = {"show_navbar_depth": 1, "navbar_persistent": [], "use_download_button": True}
html_show_sourcelink = False
html_show_copyright = False
html_use_index = False  # the reference is one
html_math_renderer = "mathml"


def lead_to_pages(app: Any, docname: str, source: list[str]) -> None:
    """Links to files beside the docs lead to pages of the site; in the repository, to the files themselves."""
    source[0] = re.sub(r"\]\(\.\./benchmarks/results/(\w+\.md)", r"](measured/\1", source[0])
    source[0] = source[0].replace("](../CONTRIBUTING.md", "](contributing.md")


def take_literally(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are plain text: |z| is a modulus there, f_ an attribute, MT-* a pattern; none is so to docutils."""
    example = False
    for i, line in enumerate(lines):
        example = bool(line.strip()) and (example or line.lstrip().startswith(">>>"))
        if not example and not re.fullmatch(r"\s*[\w, ]+|\s*-+", line):  # names, and lines under headings
            parts = re.split(r"(``.*?``|`[^`]*`)", line)  # code is left alone
            parts[::2] = [re.sub(r"\||\*|(?<=\w)_(?!\w)", r"\\\g<0>", part) for part in parts[::2]]
            lines[i] = "".join(parts)


def leave_out_fields(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Fields of a dataclass are among the parameters already."""
    return True if what == "class" and not callable(obj) and not isinstance(obj, property) else None


def setup(app: Any) -> None:
    data = os.environ.get("OCCAMAP_DATA")
    if data and not Path(data, "kang_ifnb.h5ad").is_file():
        raise ConfigError(f"OCCAMAP_DATA must name the directory of kang_ifnb.h5ad, or be unset; got {data!r}")
    app.connect("source-read", lead_to_pages)
    app.connect("autodoc-process-docstring", take_literally, priority=400)  # before napoleon
    app.connect("autodoc-skip-member", leave_out_fields)
