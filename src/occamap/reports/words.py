"""What a page says in words: the headline, how far to trust it, and how it was made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from occamap.metrics import pearson_r2
from occamap.reports.view import View
from occamap.run_record import RunRecord

FINE, CARE = "fine", "care"
HALF = 0.5
FIRST = 20  # genes whose stability is counted
FOREMOST = 50  # genes that the headline may name
FEWEST = 10  # cells of a group that it speaks of
SURE = 0.8  # share of them that counts as stable
UNLIKE = 1.5  # how many times as large a group's share may be on one side
SMALL = 0.02  # share of a group below which it is not counted
COSTS = {
    "sql2": "½‖z‖² (the usual squared distance)",
    "l1": "½‖z‖² + γ‖z‖₁",
    "stvs": "½‖z‖² plus the soft-thresholding penalty with vanishing shrinkage (STVS)",
    "koverlap": "½‖z‖² plus the squared k-overlap norm",
}
NORMALISED = " Raw counts were scaled to 10,000 a cell, and log1p was taken."
PAPER = (
    "M. Cuturi, M. Klein, P. Ablin: Monge, Bregman and Occam: Interpretable Optimal Transport in High-Dimensions with "
    "Feature-Sparse Maps. ICML 2023."
)


@dataclass(frozen=True)
class Item:
    """One line of the box that says how far to trust a result."""

    level: str
    what: str
    told: str


def headline(record: RunRecord, view: View) -> str:
    """Which genes move, in which cells, and how far, in plain sentences."""
    genes, asked, result = view.genes, record.parameters, record.result
    first = [f"{name} ({mean:+.2f})" for name, mean in genes["mean"].head(3).items() if mean]
    over = f"From {asked['control']} to {asked['target']}"
    if not first:
        return f"{over}, no gene moves."
    if "null" in result:
        told = [
            f"{over}, {result['n_genes_beyond_null']:,} of {len(genes):,} genes move further, on average over "
            f"{result['n_cells']:,} control cells, than any gene does between two random parts of them."
        ]
    else:
        half = int((genes["share"] >= HALF).sum())
        cells = f"{result['n_cells']:,} control cells"
        told = [f"{over}, {half:,} of {len(genes):,} genes move in at least half of {cells}."]
    common, few = _by_group(record, view)
    most = f"{listed(first)} {_move(first)} most"
    if common == list(genes.index[: len(first)]):
        told.append(f"{most}, in every {asked.get('by')}.")
    else:
        told.append(f"{most}.")
        told += [f"{listed(common)} {_move(common)} in every {asked.get('by')}."] if common else []
    told += few
    told.append(f"In a cell, {result['density'] * len(genes):,.0f} genes move on average ({result['density']:.1%}).")
    return " ".join(told)


def _by_group(record: RunRecord, view: View) -> tuple[list[str], list[str]]:
    """Of the first genes, those that move in every group; and a sentence on one that moves in few of them."""
    if view.groups is None:
        return [], []
    names, by, share = view.groups[0], record.parameters.get("by"), group_shares(view)[:, :FOREMOST]
    large = np.flatnonzero(np.bincount(view.arrays["group"], minlength=len(names)) >= FEWEST)
    if large.size < 2:
        return [], []
    moving, genes = share[large] >= HALF, list(view.genes.index)
    common = [genes[k] for k in np.flatnonzero(moving.all(axis=0))[:3]]
    few = np.flatnonzero((moving.sum(axis=0) > 0) & (moving.sum(axis=0) <= min(3, large.size // 2)))
    if not few.size:
        return common, []
    inside = listed([names[k] for k in large[moving[:, few[0]]]])
    return common, [f"{genes[few[0]]} moves in {inside}, but in less than half of the cells of any other {by}."]


def _move(names: list[str]) -> str:
    return "moves" if len(names) == 1 else "move"


def group_shares(view: View) -> Any:
    """Groups × genes: in which share of the cells that are shown a gene moves; NaN for groups without cells."""
    arrays = view.arrays
    groups, genes = len(view.groups[0]) if view.groups else 0, len(view.genes)
    sizes = np.bincount(arrays["group"], minlength=groups).astype(float)
    starts = arrays["starts"].astype(np.int64)
    lengths = np.diff(starts)
    ends = np.cumsum(arrays["steps"].astype(np.int64))
    base = np.repeat(ends[starts[:-1]] - arrays["steps"][starts[:-1]], lengths) if lengths.size else ends
    rows = ends - base - 1
    places = arrays["group"][rows].astype(np.int64) * genes + np.repeat(arrays["kept"].astype(np.int64), lengths)
    counts = np.bincount(places, minlength=groups * genes).reshape(groups, genes)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(sizes[:, None] > 0, counts / sizes[:, None], np.nan)


def trust(record: RunRecord, view: View, notes: list[str] | None) -> list[Item]:
    """How the solver ended, what a cell is matched with, what held-out cells and subsamples say, and all warnings."""
    result = record.result
    items = [
        Item(FINE if result["status"] == "converged" else CARE, "Solver", str(result["message"])),
        _targets(float(result["effective_targets"]), int(result["n_targets"])),
    ]
    if notes is None:
        items.append(
            Item(
                CARE,
                "Held-out cells",
                "No cells were held out: γ and ε were given, so nothing here says whether other cells would move so. "
                "The section on the choice has the command that checks it.",
            )
        )
    else:
        poor = any("do not rely" in note or "nothing to learn" in note or "less faithful" in note for note in notes)
        items.append(Item(CARE if poor else FINE, "Held-out cells", " ".join(notes)))
    items += _noise(record)
    items += _stability(record, view)
    items += _matching(view)
    items += _composition(record, view)
    items.append(_agreement(view))
    items += [Item(CARE, "Warning", text) for text in record.warnings]
    return items


def _targets(effective: float, of: int) -> Item:
    told = f"A control cell is matched with {effective:.1f} effective target cells of {of:,}"
    if effective > HALF * of:
        return Item(CARE, "Matching", f"{told}: with most of them, so the map is little more than the mean shift.")
    if effective < 2:
        return Item(CARE, "Matching", f"{told}: it follows the noise of single cells; a larger ε would average more.")
    return Item(FINE, "Matching", f"{told}: enough to average noise, few enough to tell cells apart.")


def _noise(record: RunRecord) -> list[Item]:
    result = record.result
    if "null" not in result:
        return []
    null, beyond = result["null"], int(result["n_genes_beyond_null"])
    told = (
        f"Between two random parts of the control cells ({null['n_cells']:,} and {null['n_targets']:,}), where nothing "
        f"has changed, {null['density']:.1%} of the entries move ({result['density']:.1%} here), and no gene by more "
        f"than {null['largest_mean']:.2g} on average: {beyond:,} genes do here. Rely on these, and on "
        "averages over cells; small moves of single cells are noise."
    )
    return [Item(FINE if beyond else CARE, "Noise", told)]


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
        "of the cells. This is about the cells that were drawn, not about donors or batches."
    )
    return [Item(FINE if always >= SURE * len(first) else CARE, "Stability", told)]


def _matching(view: View) -> list[Item]:
    """How much of each group of control cells is matched with target cells of the same group."""
    if view.within is None or view.groups is None:
        return []
    names, (whole, parts) = view.groups[0], view.within
    told = f"{whole:.0%} of the control cells' mass is matched with target cells of the same {view.header['by']}"
    low = sorted((share, names[code]) for code, share in parts.items() if share < SURE)
    if low:
        told += f"; least of {listed([f'{name} ({share:.0%})' for share, name in low[:4]])}"
        told += ": what moves there is in part a change of group"
    return [Item(FINE if whole >= SURE else CARE, "Groups", f"{told}.")]


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


def _composition(record: RunRecord, view: View) -> list[Item]:
    """Groups that are larger on one side: cells are matched across groups."""
    if view.groups is None or not view.groups[2]:
        return []
    names, sizes, others = view.groups[0], np.array(view.groups[1], float), np.array(view.groups[2], float)
    mine, theirs = sizes / max(sizes.sum(), 1), others / max(others.sum(), 1)
    large = np.flatnonzero(np.maximum(mine, theirs) > SMALL)
    ratio = np.maximum(mine[large], theirs[large]) / np.maximum(np.minimum(mine[large], theirs[large]), 1e-3)
    unlike = large[np.argsort(-ratio, kind="stable")][: int((ratio > UNLIKE).sum())]
    by, what = record.parameters.get("by"), "Composition"
    if not large.size:
        return []
    shown = unlike if unlike.size else large[np.argsort(-ratio, kind="stable")][:1]
    parts = [f"{names[k]} ({mine[k]:.0%} of control, {theirs[k]:.0%} of target cells)" for k in shown[:3]]
    more = f" and {shown.size - 3} more" if shown.size > 3 else ""
    if not unlike.size:
        return [Item(FINE, what, f"No {by} differs much in size between control and target; most of all {parts[0]}.")]
    told = (
        f"Control and target cells differ in how many are of each {by}: {listed(parts)}{more}. Cells are matched "
        "whatever their group, so part of what moves may be a change of group."
    )
    return [Item(CARE, what, told)]


def methods(record: RunRecord, view: View) -> str:
    """A paragraph for a paper."""
    asked, result = record.parameters, record.result
    source = asked["layer"] or "X"
    counts = NORMALISED if asked["counts"] == "normalize" else ""
    gamma = "" if result["gamma"] is None else f", γ = {result['gamma']:.4g}"
    how = ""
    if record.command == "path":
        how = f" γ was chosen among {len(result['gammas'])} values, on {asked['splits']} splits of the cells."
    elif "choice" in result:
        how = " It was chosen on held-out cells."
    sub = asked.get("subsamples")
    halves = f" Intervals are mean ± 1.96 standard errors over {sub} fits to random halves of the cells." if sub else ""
    sparse = asked["cost"] != "sql2"
    relax = " Shrinkage was undone on the genes that move" if sparse and asked.get("relax") else ""
    relax += f" (relax = {asked['relax']:g})." if relax else ""
    prox = " Displacements are exactly zero in most genes of a cell." if sparse else ""
    cost = COSTS.get(str(asked["cost"]), asked["cost"])
    return (
        f"The optimal transport map from {result['n_cells']:,} cells ({asked['groupby']}: {asked['control']}) to "
        f"{result['n_targets']:,} cells ({asked['target']}) in {len(view.genes):,} genes (from {source}) was learned "
        f"with occamap {record.versions.get('occamap', '')}.{counts} The cost is {cost}{gamma}; entropic "
        f"regularisation ε = {result['epsilon']:.4g} ({result['epsilon_rule']}), "
        f"{result['effective_targets']:.1f} effective targets a cell; status: {result['status']}."
        f"{how}{relax}{prox}{halves} Seed {record.seed}. {PAPER}"
    )


def parameters(record: RunRecord) -> list[tuple[str, str]]:
    """All of them, as text."""
    return [(name, _text(value)) for name, value in record.parameters.items()]


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "–"
    return "–" if value is None else str(value)


def listed(names: list[str]) -> str:
    """Names with commas, and "and" before the last.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
