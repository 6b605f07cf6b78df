"""Scores of maps at equal density, and the paired differences between variants and the plain map."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DENSITIES = {"cells": (0.01, 0.03, 0.1, 0.3), "known": (0.1, 0.3, 0.5)}
SCORES = {  # all of them are the lower the better
    "sinkhorn": "Sinkhorn divergence",
    "energy": "energy distance",
    "mmd": "squared MMD",
    "mean move": "error of the mean move of each kind",
    "truth": "error of the moves",
    "wrong support": "share of the moves on wrong features",
}
LEGEND = """Each map is fitted on one half and moves the other; means over {splits} splits, the lower the better.
Scores are read off the line through the maps of one ε, over the logarithm of the density, at the densities on top; the
ε of each variant (of {epsilons} × the mean cost) is the one that is best in the *other*
splits. An empty place: not all splits come to that density with some γ. In brackets, the difference from the plain map,
split by split, in its standard errors: below −2, the variant is better (with a handful of splits, a guide and not a
test). Divergences of cells are taken on 50 principal components of the train cells. “Error of the mean move” is
Σ_kinds ‖mean move − (mean target − mean source)‖² over the same without moves; “error of the moves” is ‖Δ − Δ_true‖²
over ‖Δ_true‖²: above 1, it is better to stay."""


def tables(frame: pd.DataFrame, machine: dict[str, str]) -> str:
    """All tables, in Markdown."""
    lines = ["# Better maps at equal sparsity", "", *(f"- {key}: {value}" for key, value in machine.items()), ""]
    told = ", ".join(f"{share:g}" for share in sorted(frame["epsilon"].unique()))
    counts = sorted(set(frame.groupby("data")["split"].nunique()))
    lines += [LEGEND.format(splits=" or ".join(map(str, counts)), epsilons=told), "", "## Verdicts", ""]
    lines += ["Places (data set × density) at which a variant is better / worse than the plain map by more than two"]
    lines += ["standard errors / places that both reach:", ""]
    lines += [*verdicts(frame), ""]
    for name, rows in frame.groupby("data", sort=False):
        lines += [f"## {name}, {rows['split'].nunique()} splits", ""]
        for score, title in SCORES.items():
            if score in rows and rows[score].notna().any():
                lines += [f"**{title}**", "", *_table(rows, score), ""]
    return "\n".join(lines)


def verdicts(frame: pd.DataFrame) -> list[str]:
    """A row a variant: better / worse / places that both reach, by score, cells and known maps apart."""
    scores = [score for score in SCORES if score in frame]
    lines = ["| data | variant | relax | " + " | ".join(scores) + " |", "|---" * (3 + len(scores)) + "|"]
    kinds = {"cells": ~frame["data"].str.startswith("known"), "known maps": frame["data"].str.startswith("known")}
    for kind, chosen in kinds.items():
        for variant, relax in _variants(frame[chosen]):
            if variant == "plain":
                continue
            told = []
            for score in scores:
                found = [z for _, rows in frame[chosen].groupby("data") for z in _against(rows, variant, relax, score)]
                known = [z for z in found if np.isfinite(z)]
                better, worse = sum(z < -2 for z in known), sum(z > 2 for z in known)
                told.append(f"{better} / {worse} / {len(known)}" if known else "")
            lines.append(f"| {kind} | {variant} | {relax:g} | " + " | ".join(told) + " |")
    return lines


def _against(rows: pd.DataFrame, variant: str, relax: float, score: str) -> Floats:
    if not rows[score].notna().any() or variant not in set(rows["variant"]):
        return np.zeros(0)
    return _errors_apart(at_density(rows, variant, relax, score) - at_density(rows, "plain", relax, score))


def _table(rows: pd.DataFrame, score: str) -> Iterator[str]:
    densities = _densities(rows)
    yield "| variant | relax | " + " | ".join(f"{density:.0%}" for density in densities) + " |"
    yield "|---" * (2 + len(densities)) + "|"
    for variant, relax in _variants(rows):
        values = at_density(rows, variant, relax, score)
        apart = _errors_apart(values - at_density(rows, "plain", relax, score))
        cells = [_cell(value, z) for value, z in zip(_means(values), apart, strict=True)]
        yield f"| {variant} | {relax:g} | " + " | ".join(cells) + " |"


def _cell(value: float, z: float) -> str:
    if not np.isfinite(value):
        return ""
    return f"{value:.3g}" + (f" ({z:+.1f})" if np.isfinite(z) else "")


def at_density(rows: pd.DataFrame, variant: str, relax: float, score: str) -> Floats:
    """[split, density]: the score, at the ε that is best at this density in the other splits; NaN where not reached."""
    chosen = rows[(rows["variant"] == variant) & (rows["relax"] == relax)]
    densities, shares = np.log(_densities(rows)), sorted(chosen["epsilon"].unique())
    splits = sorted(chosen["split"].unique())
    found = np.full((len(shares), len(splits), densities.size), np.nan)
    for (share, split), maps in chosen.groupby(["epsilon", "split"]):
        maps = maps.sort_values("density")
        known = maps["density"] > 0
        x, y = np.log(maps["density"][known]), maps[score][known]
        if known.any():
            line = np.interp(densities, x, y, left=np.nan, right=np.nan)
            found[shares.index(share), splits.index(split)] = line
    out = np.full(found.shape[1:], np.nan)
    for split in range(len(splits)):
        others = np.delete(found, split, axis=1).mean(axis=1)  # NaN unless all of them reach the density
        others = found.mean(axis=1) if len(splits) < 2 else others
        for place in range(densities.size):
            if np.isfinite(others[:, place]).any():
                out[split, place] = found[np.nanargmin(others[:, place]), split, place]
    return out


def _means(values: Floats) -> Floats:
    """Over splits; NaN unless all of them have a value."""
    return np.asarray(values.mean(axis=0))


def _errors_apart(differences: Floats) -> Floats:
    """The mean difference in its standard errors."""
    if differences.shape[0] < 2:
        return np.full(differences.shape[1:], np.nan)
    error = differences.std(axis=0, ddof=1) / np.sqrt(differences.shape[0])
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(differences.mean(axis=0) / error)


def _densities(rows: pd.DataFrame) -> tuple[float, ...]:
    return DENSITIES["known" if rows["data"].iloc[0].startswith("known") else "cells"]


def _variants(rows: pd.DataFrame) -> list[tuple[str, float]]:
    return list(dict.fromkeys(zip(rows["variant"], rows["relax"], strict=True)))
