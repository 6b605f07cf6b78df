"""The two pictures of docs/architecture.md: `python docs/pictures/architecture.py` writes them.

What may import what is read from the contract in pyproject.toml, which import-linter checks.
"""

from __future__ import annotations

import tomllib
from html import escape
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
INK, PALE, LINE = "#1f2933", "#f7f9fb", "#52606d"
TINTS = {"in": "#e8eef5", "gate": "#fdecd2", "core": "#d9ecf7", "out": "#dcf1e6"}
STYLE = (
    "text{font-family:system-ui,sans-serif;fill:" + INK + "}"
    ".name{font:600 15px ui-monospace,monospace}.say{font-size:13px}.small{font-size:12px;fill:" + LINE + "}"
)


def page(width: int, height: int, title: str, parts: list[str]) -> str:
    named = f'role="img" aria-label="{escape(title)}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {named}>'
    marker = (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0L8 4L0 8z" fill="{LINE}"/></marker></defs>'
    )
    ground = f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>'
    words = f"<title>{escape(title)}</title>\n<style>{STYLE}</style>"
    return "\n".join([head, words, marker, ground, *parts, "</svg>", ""])


def box(x: float, y: float, w: float, h: float, tint: str, name: str, *lines: str) -> str:
    """A room with its name and what it makes, centred."""
    middle, top = x + w / 2, y + h / 2 - 9 * len(lines) + 5
    texts = [f'<text class="name" x="{middle:g}" y="{top:g}" text-anchor="middle">{escape(name)}</text>']
    texts += [
        f'<text class="say" x="{middle:g}" y="{top + 18 * k:g}" text-anchor="middle">{escape(line)}</text>'
        for k, line in enumerate(lines, start=1)
    ]
    return f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="6" fill="{TINTS[tint]}"/>' + "".join(texts)


def line(*points: tuple[float, float], say: str = "", tip: bool = True) -> str:
    """A line, with an arrow head at its end if it has a tip, and a word beside it."""
    path = " L".join(f"{x:g} {y:g}" for x, y in points)
    text = ""
    if say:
        (x0, y0), (x1, y1) = points[0], points[-1]
        text = f'<text class="small" x="{(x0 + x1) / 2 + 8:g}" y="{(y0 + y1) / 2 + 4:g}">{escape(say)}</text>'
    end = ' marker-end="url(#tip)"' if tip else ""
    return f'<path d="M{path}" fill="none" stroke="{LINE}" stroke-width="1.5"{end}/>{text}'


INPUTS = [
    ("arrays, CSR", "data frames"),
    ("AnnData", "cells, genes"),
    (".h5ad, Zarr", "read by parts"),
    ("Dask arrays", "stay on workers"),
]
CORE = [
    ("_validate", "the only gate: finite floats, dense or sorted CSR, feature names", "Samples"),
    ("costs", "h(x − y) of all pairs, in blocks of rows; compiled in _kernels", "tiles of costs"),
    ("sinkhorn", "one loop; tiles in memory, on disk, computed again, or on a cluster (scale)", "potentials, status"),
    ("maps", "−prox(Σ p ∇h), of a sample or the mean over a neighbourhood", "displacements, exactly sparse"),
]
OUTPUTS = [
    ("selection", "every γ; choice", "by held-out samples"),
    ("genes, tl", "tables of genes", "and pathways"),
    ("model_file", "one file,", "no code in it"),
    ("transform", "x + displacement,", "unseen samples, too"),
]
LAST = [
    ("evaluation", "conditions × splits × costs: one table"),
    ("runs, reports, pl", "files with a record; one page; pictures"),
]
COLUMN, MIDDLE = 188, 388


def data_path() -> str:
    """From what a user has to what a user reads."""
    parts = []
    for k, (name, says) in enumerate(INPUTS):
        x = 20 + COLUMN * k
        parts += [box(x, 20, 172, 56, "in", name, says), line((x + 86, 76), (x + 86, 106))]
    y = 108
    for name, says, made in CORE:
        last = name == "maps"
        parts.append(box(20, y, 736, 56, "gate" if name == "_validate" else "core", name, says))
        parts.append(line((MIDDLE, y + 56), (MIDDLE, y + (82 if last else 92)), say=made, tip=not last))
        y += 106 if last else 94
    parts.append(line((106, y - 24), (106 + 3 * COLUMN, y - 24), tip=False))
    for k, (name, *says) in enumerate(OUTPUTS):
        x = 20 + COLUMN * k
        parts += [line((x + 86, y - 24), (x + 86, y - 2)), box(x, y, 172, 76, "out", name, *says)]
    parts.append(line((106 + COLUMN, y + 76), (106 + COLUMN, y + 106)))
    for k, (name, says) in enumerate(LAST):
        parts.append(box(20 + 2 * COLUMN * k, y + 108, 360, 56, "out", name, says))
    parts.append(line((380, y + 136), (395, y + 136)))
    return page(776, y + 184, "The way of the data through occamap", parts)


def rooms() -> str:
    """What may import what, of the contract."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [names.split(" | ") for names in next(c for c in contracts if c["id"] == "one-way")["layers"]]
    rule = "A room may import those on lines below its own, none beside it and none above."
    parts, y = [f'<text class="small" x="20" y="30">{rule}</text>'], 44
    for layer in layers:
        rows = [layer[i : i + 5] for i in range(0, len(layer), 5)]
        height = 34 * len(rows) + 6
        parts.append(f'<rect x="20" y="{y}" width="736" height="{height}" rx="6" fill="{PALE}"/>')
        for r, row in enumerate(rows):
            width = 736 / len(row)
            for k, name in enumerate(row):
                tint = "gate" if name == "_validate" else "in" if name.startswith("_") else "core"
                parts.append(box(24 + width * k, y + 5 + 34 * r, width - 8, 28, tint, name))
        y += height + 6
    return page(776, y + 14, "Which rooms of occamap may import which", parts)


PICTURES = {"data-path.svg": data_path, "rooms.svg": rooms}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (HERE / name).write_text(draw())
