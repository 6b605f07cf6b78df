"""What was chosen on held-out cells, and what a sparser or a denser choice would give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from occamap.errors import RunFileError

COLUMNS = "gamma", "mean_density", "mean_divergence", "se_divergence", "epsilon_rule", "relax", "converged"
Row = dict[str, Any]


@dataclass(frozen=True)
class Choice:
    """Points and lines of the chart, and sentences beneath it."""

    points: list[Row]
    lines: list[Row]
    sentences: list[str]
    notes: list[str]
    poor: bool


def choice(table: pd.DataFrame, told: dict[str, Any]) -> Choice:
    """From the candidates, a row each, and what the record says of the choice among them."""
    absent = [name for name in COLUMNS if name not in table.columns]
    if absent:
        raise RunFileError(f"the table of candidates has no column {absent[0]!r}: run it again")
    chosen, frontier = int(told["index"]), {int(row) for row in told["frontier"]}
    if not 0 <= chosen < len(table):
        raise RunFileError("the table of candidates does not belong to the record: run it again")
    rows = table.to_dict("records")
    points = [
        {
            "density": float(row["mean_density"]),
            "divergence": float(row["mean_divergence"]),
            "low": _or_none(row["mean_divergence"] - row["se_divergence"]),
            "high": _or_none(row["mean_divergence"] + row["se_divergence"]),
            "gamma": float(row["gamma"]),
            "epsilon": str(row["epsilon_rule"]),
            "relax": float(row["relax"]),
            "kind": "chosen" if k == chosen else "candidate" if row["converged"] else "not converged",
            "frontier": k in frontier,
        }
        for k, row in enumerate(rows)
        if np.isfinite(row["mean_divergence"]) and np.isfinite(row["mean_density"])
    ]
    # what the chosen and the most faithful map score is among the points
    lines = [
        {"what": str(line["what"]), "divergence": float(line["divergence"])}
        for line in told["comparison"]
        if line.get("effective_targets") is None and line["divergence"] is not None
    ]
    beside = [f"{line['what']} {line['divergence']:.4g}" for line in lines]
    sentences = _others(rows, chosen)
    if beside:
        sentences.append(f"For comparison, the divergence of: {'; '.join(beside)}.")
    return Choice(points, lines, sentences, [str(note) for note in told["notes"]], bool(told["poor"]))


def _others(rows: list[Row], chosen: int) -> list[str]:
    """The next sparser and the next denser candidate that converged, with all else the same."""
    here = rows[chosen]
    like = [
        row
        for row in rows
        if row["converged"]
        and all(row[name] == here[name] for name in ("epsilon_rule", "relax", "cost", "ties") if name in row)
    ]
    sparser = [row for row in like if row["mean_density"] < here["mean_density"]]
    denser = [row for row in like if row["mean_density"] > here["mean_density"]]
    told = []
    if sparser:
        told.append(f"Sparser: {_beside(max(sparser, key=lambda row: row['mean_density']), here)}")
    if denser:
        told.append(f"Denser: {_beside(min(denser, key=lambda row: row['mean_density']), here)}")
    return told


def _beside(other: Row, here: Row) -> str:
    difference = other["mean_divergence"] - here["mean_divergence"]
    way = "more" if difference > 0 else "less"
    error = here["se_divergence"]
    size = f", {abs(difference) / error:.1f} standard errors" if np.isfinite(error) and error > 0 else ""
    return (
        f"γ = {other['gamma']:.3g} would move {_percent(other['mean_density'])} of the entries instead of "
        f"{_percent(here['mean_density'])}, at a divergence of {other['mean_divergence']:.4g} to held-out cells "
        f"({abs(difference):.2g} {way}{size})."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _or_none(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
