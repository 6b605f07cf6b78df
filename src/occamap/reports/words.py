"""What a page says in words: the headline, and how it was made."""

from __future__ import annotations

from typing import Any

import numpy as np

from occamap.genes.fold_changes import DETECTED
from occamap.reports.again import without_folders
from occamap.reports.view import NOBODY, View
from occamap.run_record import RunRecord

HALF = 0.5
FOREMOST = 50  # genes that the headline may name
FEWEST = 10  # cells of a group that it speaks of
FEW_GROUPS = 3  # whose numbers of responding genes it names
COSTS = {
    "sql2": "½‖z‖² (the usual squared distance)",
    "l1": "½‖z‖² + γ‖z‖₁",
    "stvs": "½‖z‖² plus the soft-thresholding penalty with vanishing shrinkage (STVS)",
    "koverlap": "½‖z‖² plus the squared k-overlap norm",
    "grouplasso": "½‖z‖² plus a group lasso over gene sets",
}
NORMALISED = " Raw counts were scaled to 10,000 a cell, and log1p was taken."
PAPER = (
    "M. Cuturi, M. Klein, P. Ablin: Monge, Bregman and Occam: Interpretable Optimal Transport in High-Dimensions with "
    "Feature-Sparse Maps. ICML 2023."
)


def headline(record: RunRecord, view: View) -> str:
    """Which genes move, in which cells, and how far, in plain sentences."""
    genes, asked, result = view.genes, record.parameters, record.result
    first = [f"{name} ({_signed(mean)})" for name, mean in genes["mean"].head(3).items() if mean]
    over = f"From {asked['control']} to {asked['target']}"
    found = result.get("n_genes_found", 0)
    if not first and not found:
        return f"{over}, no gene moves."
    if "n_genes_found" in result:
        across = "across replicates" if "n_replicates" in result else "cells treated as independent"
        respond = "responds" if found == 1 else "respond"
        told = [
            f"{over}, {found:,} of {len(genes):,} genes {respond} "
            f"({100 * result['false_discovery_rate']:.3g} % false-discovery rate, {across})."
        ]
        if not first:
            return f"{told[0][:-1]}, but no gene moves in any single neighbourhood."
        told += _responses(asked.get("by"), result)
    elif "null" in result:
        told = [
            f"{over}, {result['n_genes_beyond_null']:,} of {len(genes):,} genes move further on average than "
            "any gene does between random halves of the control cells (no false-discovery rate)."
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
    names, by = view.groups[0], record.parameters.get("by")
    share = group_shares(view)[:, : min(FOREMOST, record.result.get("n_genes_found", FOREMOST))]
    large = np.flatnonzero(np.bincount(view.arrays["group"], minlength=len(names)) >= FEWEST)
    large = large[[names[k] != NOBODY for k in large]]
    if large.size < 2:
        return [], []
    moving, genes = share[large] >= HALF, list(view.genes.index)
    common = [genes[k] for k in np.flatnonzero(moving.all(axis=0))[:3]]
    few = np.flatnonzero((moving.sum(axis=0) > 0) & (moving.sum(axis=0) <= min(3, large.size // 2)))
    if not few.size:
        return common, []
    inside = listed([names[k] for k in large[moving[:, few[0]]]])
    return common, [f"{genes[few[0]]} moves in {inside}, but in less than half of the cells of any other {by}."]


def _responses(by: str | None, result: dict[str, Any]) -> list[str]:
    """A sentence on the groups in which most genes respond."""
    parts = result.get("responses") or {}
    ordered = sorted(parts.items(), key=lambda part: (-part[1]["n_genes_found"], part[0]))
    if len(ordered) < 2:
        return []
    words = [" gene responds" if ordered[0][1]["n_genes_found"] == 1 else " genes respond", *[""] * FEW_GROUPS]
    first = zip(ordered[:FEW_GROUPS], words, strict=False)
    shown = [f"{part['n_genes_found']:,}{verb} in {name}" for (name, part), verb in first]
    rest = len(ordered) - FEW_GROUPS
    if rest > 0:
        shown.append(f"at most as many in {rest} {'other' if rest == 1 else 'others'}")
    return [f"By {by}, {listed(shown)}."]


def _signed(value: float) -> str:
    return f"{value:+.2f}" if abs(value) >= 0.1 else f"{value:+.2g}"


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
        chosen = [name for name, key in (("γ", "gamma"), ("ε", "epsilon")) if asked.get(key) == "auto"]
        how = f" {' and '.join(chosen)} {'was' if len(chosen) == 1 else 'were'} chosen on held-out cells."
    sub = asked.get("subsamples")
    halves = _tests(asked, result) if "n_genes_found" in result else ""
    halves += f" Selection frequencies are from {sub} fits to random halves of the cells." if sub else ""
    sparse = asked["cost"] != "sql2"
    relax = " Shrinkage was undone on the genes that move" if sparse and asked.get("relax") else ""
    relax += f" (relax = {asked['relax']:g})." if relax else ""
    zero = sparse and result["density"] < HALF
    prox = " Displacements are exactly zero in most genes of a cell." if zero else ""
    cost = COSTS.get(str(asked["cost"]), asked["cost"]) if result.get("fdr") is None else _rate(result)
    pooled = _resolution(asked, result)
    single = _of_genes(asked, result)
    return (
        f"The optimal transport map from {result['n_cells']:,} cells ({asked['groupby']}: {asked['control']}) to "
        f"{result['n_targets']:,} cells ({asked['target']}) in {len(view.genes):,} genes (from {source}) was learned "
        f"with occamap {record.versions.get('occamap', '')}.{counts} The cost is {cost}{gamma}; entropic "
        f"regularisation ε = {result['epsilon']:.4g} ({result['epsilon_rule']}), "
        f"{result['effective_targets']:.1f} effective targets a cell; status: {result['status']}."
        f"{pooled}{single}{how}{relax}{prox}{halves} Seed {record.seed}. {PAPER}"
    )


def shift(record: RunRecord) -> str | None:
    """The change of the typical gene, of all cells and of each group, and what follows; None if there is none."""
    result, by = record.result, record.parameters.get("by")
    whole, parts = result.get("shift"), result.get("shifts") or {}
    if whole is None and not parts:
        return None
    large = sorted(parts.items(), key=lambda part: -abs(part[1]))
    groups = listed([f"{_percent(change)} in {name}" for name, change in large[:4]]) if large else ""
    if whole is None:
        told = f"The typical gene changes in some groups ({by}): {groups}"
    else:
        way = "falls" if whole < 0 else "rises"
        told = f"The typical gene {way} by {_percent(whole).lstrip('+-')}"
        told += f"; the largest changes by {by} are {groups}" if groups else ""
    others = "rise" if (large[0][1] if whole is None else whole) < 0 else "fall"
    return (
        f"{told} (median over genes in at least {DETECTED:.0%} of the cells). If most genes do not respond, this comes "
        f"from scaling cells to a common total while other genes {others}: small changes in this direction may not be "
        "real, and occamap.tl.correct_composition removes them (page “How sure?” of the documentation)."
    )


def _percent(log2: float) -> str:
    """A log2 fold change in per cent.

    >>> _percent(-1.0), _percent(1.0)
    ('-50%', '+100%')
    """
    return f"{2**log2 - 1:+.0%}"


def _rate(result: dict[str, Any]) -> str:
    """The cost whose penalty follows from a false-discovery rate."""
    rate = f"a false-discovery rate of {result['fdr']:g} over all cells and genes (Benjamini-Hochberg)"
    if result["critical"] is None:
        return f"½‖z‖² plus an ℓ1 penalty that differs by cell and gene; nothing moves at {rate}"
    return (
        "½‖z‖² plus an ℓ1 penalty that differs by cell and gene: a gene moves in a cell if |z| is at least "
        f"{result['critical']:.3g}, the threshold for {rate}"
    )


def _tests(asked: dict[str, Any], result: dict[str, Any]) -> str:
    """How genes were tested."""
    how = "treating cells as independent"
    if "n_replicates" in result:
        how = f"across replicates ({asked['replicate']}; moderated variances)"
    over = f" over the {result['n_genes_tested']:,} genes that can be tested" if "n_genes_tested" in result else ""
    if "n_tests_in_groups" in result:
        over += f" (in tables by {asked['by']}, over all {result['n_tests_in_groups']:,} pairs of gene and group)"
    return (
        f" Differences between control cells and their matched target cells were tested gene by gene {how}; q-values "
        f"are Benjamini-Hochberg-adjusted p-values{over}, and intervals are 95 % confidence intervals."
    )


def _resolution(asked: dict[str, Any], result: dict[str, Any]) -> str:
    """Where cells were matched, and over which cells displacements were pooled; nothing for runs of version 0.1."""
    match, found, within = result.get("match"), result.get("neighbourhoods"), asked.get("within")
    text = ""
    groups = "" if within is None else f", within the groups of {within} only"
    if isinstance(match, int):
        text = f" Cells were matched on {match} principal components{groups}."
    elif match is not None:
        text = f" Cells were matched on the coordinates {asked.get('match')} of obsm{groups}."
    if asked.get("replicate") is not None and result.get("fdr") is not None:
        text += f" Before that, the means of replicates ({asked['replicate']}) were shifted towards the common mean."
    if found is not None:
        text += (
            f" Displacements are those of neighbourhoods of {found['effective']:,.0f} cells in effect (pool: "
            f"{asked.get('pool')})."
        )
    return text


def _of_genes(asked: dict[str, Any], result: dict[str, Any]) -> str:
    """What was said of sets of genes, of single ones, and of moves that are no effect."""
    told = ""
    if "gene_sets" in result:
        used, alone = result["gene_sets"], asked["l1_ratio"]
        count = used["n_sets_given"] - used["n_sets_dropped"]
        told = f" {count:,} gene sets were used ({without_folders(str(asked['gene_sets']))}"
        told += f"; l1_ratio = {alone:g})." if alone else ")."
    if "n_frozen" in result:
        told += f" {result['n_frozen']:,} genes were kept from moving, and left out of the match."
    if asked.get("weights") == "dispersion":
        told += " A gene pays for a move in proportion to its standard deviation over the control cells."
    elif asked.get("weights"):
        told += f" What a gene pays for a move is in the column {asked['weights']} of var."
    if asked.get("debias"):
        told += " Moves that control cells make towards one another, too, were left out."
    return told


def parameters(record: RunRecord) -> list[tuple[str, str]]:
    """All of them, as text; files without their folders, which say nothing to others."""
    asked = dict(record.parameters)
    if asked.get("gene_sets") is not None:
        asked["gene_sets"] = without_folders(str(asked["gene_sets"]))
    return [(name, _text(value)) for name, value in asked.items()]


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
