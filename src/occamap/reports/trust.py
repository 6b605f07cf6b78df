"""How far to trust a result: the lines of a box on its page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from occamap.metrics import pearson_r2
from occamap.reports.choice import Choice
from occamap.reports.view import View
from occamap.reports.words import HALF, listed, shift
from occamap.run_record import RunRecord

FINE, CARE = "fine", "care"
FIRST = 20  # genes whose stability is counted
SURE = 0.8  # share of them that counts as stable
UNLIKE = 1.5  # how many times as large a group's share may be on one side
WIDER = 1.15  # of large scores of null maps, beside a normal distribution, from which on q-values are too small
NARROWER = 0.9  # and below which they are larger than need be
SMALL = 0.02  # share of a group below which it is not counted


@dataclass(frozen=True)
class Item:
    """One line of the box that says how far to trust a result."""

    level: str
    what: str
    told: str
    lines: tuple[str, ...] = ()
    """Points of lines to draw, in a square from 0,0 at its upper left to 100,100."""


def trust(record: RunRecord, view: View, made: Choice | None) -> list[Item]:
    """How the solver ended, what a cell is matched with, what held-out cells and subsamples say, and all warnings."""
    result = record.result
    items = [
        Item(FINE if result["status"] == "converged" else CARE, "Solver", str(result["message"])),
        _targets(float(result["effective_targets"]), int(result["n_targets"])),
    ]
    if made is None:
        items.append(
            Item(
                CARE,
                "Held-out cells",
                "No cells were held out, so nothing here says whether the map predicts other cells. The section on the "
                "choice has the command that checks it.",
            )
        )
    else:
        items.append(Item(CARE if made.poor else FINE, "Held-out cells", " ".join(made.notes)))
    items += _replicates(record)
    items += _noise(record)
    items += _stability(record, view)
    items += _matching(record, view)
    items += _composition(record, view)
    items += _normalisation(record)
    items.append(_agreement(view))
    items += [Item(CARE, "Warning", text) for text in record.warnings]
    return items


def in_short(items: list[Item]) -> str:
    """Which of them ask for care."""
    care, count = Counter(item.what for item in items if item.level == CARE), len(items)
    if not care:
        return f"all {count} checks passed."
    names = [what[0].lower() + what[1:] + (f" ({number})" if number > 1 else "") for what, number in care.items()]
    rest = care.total()
    need = "needs" if rest == 1 else "need"
    return f"{count - rest} of {count} checks passed; {rest} {need} attention: {listed(names)}."


def _targets(effective: float, of: int) -> Item:
    told = f"A control cell is matched with {effective:.1f} effective target cells of {of:,}"
    if effective > HALF * of:
        return Item(CARE, "Matching", f"{told}: with most of them, so the map is little more than the mean shift.")
    if effective < 2:
        return Item(CARE, "Matching", f"{told}: it follows the noise of single cells; a larger ε would average more.")
    return Item(FINE, "Matching", f"{told}: enough to average noise, few enough to tell cells apart.")


def _replicates(record: RunRecord) -> list[Item]:
    """Whom the tests hold for."""
    result, column = record.result, record.parameters.get("replicate")
    if "n_genes_found" not in result:
        if column is None:
            return []
        told = f"A test needs at least 3 replicates ({column}) in each condition; there are fewer, so no gene has a "
        told += "q-value."
        return [Item(CARE, "Replicates", told)]
    if "n_replicates" not in result:
        told = (
            "Cells are not replicates: q-values hold for new cells of the same donors, and are far too small for new "
            "donors. If you have 3 or more donors per condition, name their column with --replicate."
        )
        return [Item(CARE, "Replicates", told)]
    told = (
        f"Genes were tested across replicates ({column}; at least {result['n_replicates']} per condition), so q-values "
        "also hold for new replicates."
    )
    counts = {name: found["n_replicates"] for name, found in (result.get("responses") or {}).items()}
    fewest = sorted(name for name, count in counts.items() if count < result["n_replicates"])
    if fewest:
        shown = [f"{name} ({counts[name]})" for name in fewest]
        told += f" Fewer replicates have cells in {listed(shown[:6])}{' and others' if len(shown) > 6 else ''}."
    return [Item(FINE, "Replicates", told)]


def _noise(record: RunRecord) -> list[Item]:
    """What null maps show: what moves where nothing has changed, and whether scores are as rare as they should be."""
    result = record.result
    if "null" not in result:
        return []
    null, beyond = result["null"], int(result["n_genes_beyond_null"])
    if null.get("expected"):
        return [_calibration(null, record.parameters.get("replicate"))]
    told = (
        f"Between two random halves of the control cells ({null['n_cells']:,} and {null['n_targets']:,}), where "
        f"nothing has changed, {null['density']:.1%} of the entries move ({result['density']:.1%} here), and no gene "
        f"by more than {null['largest_mean']:.2g} on average: {beyond:,} genes do here. Rely on these, and on "
        "averages over cells; small moves of single cells are noise."
    )
    return [Item(FINE if beyond else CARE, "Noise", told)]


def _calibration(null: dict[str, Any], replicate: str | None) -> Item:
    """Scores of maps between halves of the control cells, beside those of a normal distribution."""
    told = (
        f"In {null['n_maps']} maps between two random halves of the control cells ({null['n_cells']:,} and "
        f"{null['n_targets']:,}), where nothing has changed, {null['density']:.2%} of the entries move."
    )
    width = null.get("width")
    if width is None:
        return Item(CARE, "Error rate", f"{told} There are too few cells to check the error rate further.")
    lines = tuple(_points(null["expected"], scores) for scores in null["observed"])
    if width > WIDER:
        told += (
            f" The largest scores of all entries are {width - 1:.0%} larger than those of a normal distribution, so "
            "q-values are too small."
        )
        return Item(CARE, "Error rate", told, lines)
    times = f"The largest scores of all entries are {width:.2f} times those of a normal distribution"
    times += " (1 is exact, less is conservative)"
    if replicate is not None:
        told += (
            f" Both halves have cells of the same replicates ({replicate}), so this checks the noise of cells, not the "
            f"differences between replicates. {times}."
        )
    else:
        about = "the error rate is about right" if width > NARROWER else "q-values are conservative"
        told += f" {times}, so {about} for the noise of cells. Differences between donors are not checked."
    return Item(FINE, "Error rate", f"{told} The plot shows observed against expected scores.", lines)


def _points(expected: Sequence[float], observed: Sequence[float | None]) -> str:
    """A line of observed against expected scores up to 5, without those that could not be told."""
    pairs = zip(expected, observed, strict=True)
    return " ".join(f"{20 * x:.1f},{100 - 20 * min(y, 5.0):.1f}" for x, y in pairs if y)


def _stability(record: RunRecord, view: View) -> list[Item]:
    count, top = record.parameters.get("subsamples"), record.parameters.get("top")
    if "frequency" not in view.genes:
        told = "No subsamples were fitted: nothing says how much the table depends on the cells that were drawn."
        return [Item(CARE, "Stability", told)]
    first = view.genes.head(FIRST)
    first = first[first["mean"] != 0]
    if first.empty:
        return []
    always = int((first["frequency"] >= 1).sum())
    told = (
        f"Of the first {len(first)} genes, {always} are among the first {top} in each of {count} fits to a random half "
        "of the cells."
    )
    stable = None
    if "expected_false" in view.genes:
        stable = int((view.genes["expected_false"] <= 1).sum())
        told += (
            f" {stable} genes are among them so often that at most one of these is expected to be a gene that a half "
            f"selects no more often than a random draw of {top} genes would."
        )
        moving = int((view.genes["share"] > 0).sum())
        if stable == 0 and moving < 3 * int(top or 0):
            told += f" {moving:,} genes move, too few for --top {top}: try --top {max(1, moving // 3)}."
    told += " This is about the cells that were drawn, not about donors or batches."
    return [Item(FINE if always >= SURE * len(first) and stable != 0 else CARE, "Stability", told)]


def _matching(record: RunRecord, view: View) -> list[Item]:
    """How much of each group of control cells is matched with target cells of the same group."""
    parts, by = record.result.get("matched_within"), record.parameters.get("by")
    if not parts or view.groups is None or len(parts) < 2:
        return []
    sizes = dict(zip(view.groups[0], view.groups[1], strict=True))
    whole = sum(share * sizes.get(name, 0) for name, share in parts.items()) / sum(sizes.get(name, 0) for name in parts)
    told = f"{whole:.0%} of the match weights of control cells go to target cells of the same {by}"
    low = sorted((share, name) for name, share in parts.items() if share < SURE)
    if low:
        told += f"; lowest for {listed([f'{name} ({share:.0%})' for share, name in low[:4]])}"
        told += ", where part of what moves is a change of group"
    return [Item(FINE if whole >= SURE and min(parts.values()) >= HALF else CARE, "Groups", f"{told}.")]


def _agreement(view: View) -> Item:
    mean, observed = view.genes["mean"].to_numpy(), view.genes["observed"].to_numpy()
    what = "Predicted and observed means"
    if mean.size < 2 or np.ptp(mean) == 0 or not np.isfinite(observed).all() or np.ptp(observed) == 0:
        return Item(CARE, what, "Predicted and observed changes cannot be compared: one of them is constant.")
    told = (
        f"The squared correlation of predicted and observed mean changes is {pearson_r2(observed, mean):.2f} over all "
        "genes, on the cells that the map was learned from: a check of the map, not a proof of it."
    )
    return Item(FINE, what, told)


def _normalisation(record: RunRecord) -> list[Item]:
    """A shift of the typical gene, which scaling to a common total makes."""
    told = shift(record)
    return [] if told is None else [Item(CARE, "Composition of counts", told)]


def _composition(record: RunRecord, view: View) -> list[Item]:
    """Groups that are larger on one side: cells are matched across groups."""
    if view.groups is None or not view.groups[2]:
        return []
    names, sizes, others = view.groups[0], np.array(view.groups[1], float), np.array(view.groups[2], float)
    mine, theirs = sizes / max(sizes.sum(), 1), others / max(others.sum(), 1)
    large = np.flatnonzero(np.maximum(mine, theirs) > SMALL)
    ratio = np.maximum(mine[large], theirs[large]) / np.maximum(np.minimum(mine[large], theirs[large]), 1e-3)
    unlike = large[np.argsort(-ratio, kind="stable")][: int((ratio > UNLIKE).sum())]
    by, what = record.parameters.get("by"), "Group sizes"
    if not large.size:
        return []
    shown = unlike if unlike.size else large[np.argsort(-ratio, kind="stable")][:1]
    parts = [f"{names[k]} ({mine[k]:.0%} of control, {theirs[k]:.0%} of target cells)" for k in shown[:3]]
    more = f" and {shown.size - 3} more" if shown.size > 3 else ""
    if not unlike.size:
        told = f"The groups of {by} have similar shares of control and target cells; most different is {parts[0]}."
        return [Item(FINE, what, told)]
    told = f"The shares of the groups of {by} differ between control and target cells: {listed(parts)}{more}."
    if record.parameters.get("within") == by:
        told += f" Cells are matched only within each {by}, so this does not change what moves."
        return [Item(FINE, what, told)]
    told += " Cells are matched across groups, so part of what moves may be a change of group."
    return [Item(CARE, what, told)]
