"""Formulas as MathML, which browsers draw by themselves: pages need no script and no network for them."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.errors import ExtensionError

BARS = (r"\lVert", r"\|"), (r"\rVert", r"\|"), (r"\lvert", "|"), (r"\rvert", "|")  # none that grows on one side alone
SPACES = (
    (r'<mo stretchy="false">&#x0007C;</mo>', '<mo stretchy="false" lspace="0" rspace="0">|</mo>'),
    (r"<mo>([a-z]{3,})</mo>", r"<mi>\1</mi>"),  # a name, which is no operator between two things
    (r"<mi>(exp|log)</mi>(?!<mo)", r'<mi>\1</mi><mspace width="0.17em"/>'),
)


def render(writer: Any, node: nodes.Element, display: str) -> None:
    """Write a formula, inline or in a block of its own; one that is not understood ends the build."""
    source = node.astext()
    for bar, plain in BARS:
        source = source.replace(bar, plain)
    formula = convert(source, display=display)
    for found, better in SPACES:
        formula = re.sub(found, better, formula)
    unknown = re.findall(r">(\\\w+)<", formula)
    if unknown:
        raise ExtensionError(f"docs/mathml.py cannot draw {', '.join(unknown)} in {source!r}: write it in another way")
    writer.body.append(f'<div class="formula">{formula}</div>' if display == "block" else formula)
    raise nodes.SkipNode


def inline(writer: Any, node: nodes.Element) -> None:
    render(writer, node, "inline")


def block(writer: Any, node: nodes.Element) -> None:
    render(writer, node, "block")


def setup(app: Any) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", inline_renderers=(inline, None), block_renderers=(block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
