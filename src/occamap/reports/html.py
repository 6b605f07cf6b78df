"""One self-contained page: the templates and scripts in `assets`, filled with words, charts and data.

Names are data: the template engine escapes them in HTML, the data block is base64, scripts write them as text, and the
page's own policy lets no script run but these, whose hashes it lists, and no request leave it.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from occamap._optional import optional, require
from occamap.errors import OccamapError
from occamap.run_record import RunRecord

ASSETS = Path(__file__).parent / "assets"
SCRIPTS = "data.js", "table.js", "charts.js", "rows.js", "explore.js", "scores.js", "page.js"
CHARTS = {"map.html": ("cells", "groups", "heatmap", "means", "choice"), "evaluation.html": ("scores",)}


def check_packages() -> None:
    """Raise before any work where a page cannot be made."""
    require(("jinja2", "pandas"), "a report", "cells")
    _vega()


def fill(template: str, record: RunRecord, data: str, **words: Any) -> bytes:
    """The page, from a template, the record, the packed data and what else the template asks for."""
    jinja = optional("jinja2", "a report")
    environment = jinja.Environment(
        loader=jinja.FileSystemLoader(ASSETS), autoescape=True, undefined=jinja.StrictUndefined, trim_blocks=True
    )
    markup = optional("markupsafe", "a report").Markup
    scripts = [_vega(), _own()]
    text = environment.get_template(template).render(
        policy=_policy(scripts),
        style=markup(_read("page.css")),
        charts=markup(_charts(template)),
        scripts=[markup(script) for script in scripts],
        data=markup(data),  # base64
        version=record.versions.get("occamap", "(version unknown)"),
        record=record,
        **words,
    )
    return str(text).encode("utf-8", errors="backslashreplace")  # half a surrogate has no place in UTF-8


@cache
def _read(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _vega() -> str:
    try:
        return _read("vega.js")
    except FileNotFoundError as error:
        raise OccamapError(
            "the script that draws the charts of a report is not there: it is made when the package is built, so "
            "install occamap again (pip install -e . from a checkout)"
        ) from error


def _own() -> str:
    """The page's own scripts, in a scope of their own."""
    return '(() => {\n"use strict";\n' + "\n".join(map(_read, SCRIPTS)) + "})();"


def _charts(template: str) -> str:
    """The specifications of the charts; they hold no `<`."""
    return json.dumps({name: json.loads(_read(f"charts/{name}.json")) for name in CHARTS[template]})


def _policy(scripts: list[str]) -> str:
    """What the browser may do with the page: run these scripts, and nothing else; ask nobody."""
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{one}'" for one in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
