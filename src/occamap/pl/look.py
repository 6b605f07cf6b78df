"""What all pictures share: names drawn as they are, room for them, and words for the units."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from occamap.tl.stored import Stored

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

LITERAL: dict[str, Any] = {"parse_math": False, "usetex": False}  # a "$" in a name is a "$"
LONGEST = 60  # characters of a name
WIDTH = 0.66  # of a character, in units of the font size
LARGEST, LEAST = 9.0, 4.0  # font sizes, in points
UP, DOWN = "#D55E00", "#0072B2"  # the ends of the colour map of `heatmap`, told apart by the colour-blind
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#F0E442", "#000000")  # Okabe and Ito's


def literal(name: Any) -> str:
    """A name in one line: what cannot be printed escaped, the middle of a very long one left out."""
    shown = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in str(name))
    return shown if len(shown) <= LONGEST else f"{shown[:40]}…{shown[-(LONGEST - 41) :]}"


def room(names: Iterable[str], size: float = LARGEST, free: int = 8) -> float:
    """Inches that the longest name takes beyond `free` characters."""
    return max(max((len(name) for name in names), default=0) - free, 0) * size * WIDTH / 72


def extent(ax: Any, own: bool = False) -> tuple[float, float]:
    """Width and height of the Axes, in points; those in a figure of our `own` once it is laid out."""
    if own:
        ax.figure.draw_without_rendering()
    box = ax.get_window_extent()
    return box.width / ax.figure.dpi * 72, box.height / ax.figure.dpi * 72


def font(points: float, count: int) -> float:
    """The font size at which so many lines fit side by side, as far as one can still read it."""
    return float(np.clip(points / max(count, 1) / 1.15, LEAST, LARGEST))


def spread(wanted: Floats, gap: float) -> Floats:
    """Rising places in [0, 1], near those wanted and at least `gap` apart, where there is room."""
    if wanted.size < 2:
        return np.clip(wanted, 0, 1)
    steps = min(gap, 1 / (wanted.size - 1)) * np.arange(wanted.size)
    level = np.clip(wanted, 0, 1) - steps
    level = (np.maximum.accumulate(level) + np.minimum.accumulate(level[::-1])[::-1]) / 2
    return np.asarray(np.clip(level, 0, 1 - steps[-1]) + steps)


def legend(ax: Any, handles: Sequence[Any], names: Sequence[str], **place: Any) -> Any:
    """A legend that takes names as they are, those with a "$" or a leading "_", too."""
    made = ax.legend(handles, [str(k) for k in range(len(names))], frameon=False, fontsize="small", **place)
    for text, name in zip(made.get_texts(), names, strict=True):
        text.set(text=literal(name), **LITERAL)
    return made


def units(stored: Stored) -> str:
    """What the numbers of a map are, as far as it is known."""
    design = stored.design
    if design.counts == "normalize":
        return "log-normalised counts"
    return "units of adata.X" if design.layer is None else f"units of layer {design.layer!r}"


def mean_of(cells: sp.csr_array) -> Floats:
    """The mean of each column; SciPy's own sums float32 in float32."""
    return np.asarray(np.bincount(cells.indices, cells.data.astype(np.float64), cells.shape[1]) / cells.shape[0])


def evenly(count: int, most: int) -> Rows:
    """At most so many of `count` places, evenly spaced."""
    kept = min(count, most)
    return np.asarray((np.arange(kept) + 0.5) * count / max(kept, 1), dtype=np.int64)


def blank(ax: Any, told: str) -> Any:
    """Axes on which there is nothing but a sentence."""
    ax.text(0.5, 0.5, told, transform=ax.transAxes, ha="center", va="center", **LITERAL)
    ax.set(xticks=[], yticks=[])
    return ax
