"""The page of an evaluation: which maps come close to cells they have not seen, and how sparse they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from occamap.errors import RunFileError
from occamap.reports.again import command
from occamap.reports.html import fill
from occamap.reports.pack import pack
from occamap.reports.saved import Run
from occamap.reports.splits import counted, splits_of
from occamap.reports.trust import CARE, FINE, Item, in_short
from occamap.reports.words import NORMALISED, PAPER, listed, parameters
from occamap.run_record import RunRecord

KEYS = ["method", "gamma", "epsilon"]
BASELINES = {
    "identity": "nothing moves",
    "mean_shift": "all move by the difference of the means",
    "treated": "other target cells",
}
LABELS = {"l1": "ℓ1", "stvs": "STVS", "sql2": "½ℓ2²", "sql2_pca": "½ℓ2² on components", "koverlap": "k-overlap"}
METRICS = {
    "divergence": ("divergence", "lower", "Sinkhorn divergence to held-out target cells, on principal components"),
    "mmd": ("MMD²", "lower", "Squared maximum mean discrepancy, on principal components"),
    "energy": ("energy distance", "lower", "On principal components"),
    "pearson_r2_means_train": ("r² of means", "higher", "Squared correlation of the means of the markers"),
    "r2_score_changes_train": ("R² of changes", "higher", "Coefficient of determination of the markers' changes"),
    "rbo_train": ("RBO", "higher", "Rank-biased overlap of markers and genes that move"),
    "density": ("density", "", "Share of entries that move"),
}
NEARLY = 0.95  # of the way to the closest map
ALL = "all conditions (mean)"


def evaluation_page(run: Run) -> bytes:
    """From the table of an evaluation and its record."""
    record, table = run.record, run.tables["csv"]
    if len(table) != record.result["rows"]:
        told = str(record.result["rows"])[:20]
        raise RunFileError(f"the table does not belong to the record, which speaks of {told} rows")
    metrics = [name for name in METRICS if name in table.columns]
    numbers = table.assign(**{name: pd.to_numeric(table[name]) for name in [*metrics, "gamma", "epsilon"]})
    labels = _conditions(numbers)
    numbers["condition"] = numbers.groupby(["within", "target"], dropna=False, sort=False).ngroup()
    rows = numbers[KEYS].drop_duplicates().to_dict("records")
    conditions = list(dict(zip(numbers["condition"], labels, strict=True)).values())
    several = len(conditions) > 1
    scores = [_means(numbers, rows, metrics)] if several else []
    scores += [_means(numbers[numbers["condition"] == code], rows, metrics) for code in range(len(conditions))]
    methods = [
        {
            "label": BASELINES.get(str(row["method"]), LABELS.get(str(row["method"]), str(row["method"]))),
            "gamma": _or_none(row["gamma"]),
            "epsilon": _or_none(row["epsilon"]),
            "baseline": row["method"] in BASELINES,
        }
        for row in rows
    ]
    data = {
        "kind": "evaluation",
        "conditions": [ALL, *conditions] if several else conditions,
        "metrics": [
            {"key": name, "label": label, "better": better, "help": told, "kind": "number" if better else "share"}
            for name, (label, better, told) in METRICS.items()
            if name in metrics
        ],
        "density": metrics.index("density"),
        "methods": methods,
        "choice": None,
    }
    whole = pd.DataFrame(rows).assign(**dict(zip(metrics, scores[0], strict=True)))
    asked = record.parameters
    items = _trust(record, whole, numbers)
    return fill(
        "evaluation.html",
        record,
        pack(data, {"scores": np.asarray(scores, dtype=np.float32).ravel()}),
        title=f"{asked['control']} → {listed([str(name) for name in asked['targets']][:4])}"
        + (f" and {len(asked['targets']) - 4} more" if len(asked["targets"]) > 4 else ""),
        headline=_headline(record, whole, len(conditions)),
        sections=[("explore", "Scores"), ("trust", "Trust"), ("all", "All methods"), ("methods", "Methods")],
        trust=items,
        care=in_short(items),
        means=splits_of(record).note(),
        methods=_methods(record),
        command=command(record),
        parameters=parameters(record),
    )


def _conditions(table: pd.DataFrame) -> pd.Series:
    target = table["target"].astype(str)
    if "within" not in table.columns or not table["within"].astype(str).str.len().any():
        return target
    return table["within"].astype(str) + ": " + target


def _means(table: pd.DataFrame, rows: list[dict[Any, Any]], metrics: list[str]) -> np.ndarray[Any, Any]:
    """Metrics × methods: means over the rows of each."""
    means = table.groupby(KEYS, dropna=False, sort=False)[metrics].mean()
    return means.reindex(pd.MultiIndex.from_frame(pd.DataFrame(rows)[KEYS])).to_numpy().T


def _of(table: pd.DataFrame, method: str) -> pd.DataFrame:
    return table[(table["method"] == method) & table["divergence"].notna()]


def _is_sparse(table: pd.DataFrame) -> pd.Series:
    return ~table["method"].isin([*BASELINES, "sql2", "sql2_pca"]) & table["divergence"].notna()


def _best(table: pd.DataFrame) -> Any:
    """The row of the sparse map that comes closest to held-out cells."""
    sparse = table[_is_sparse(table)]
    return None if sparse.empty else sparse.loc[sparse["divergence"].idxmin()]


def _sparser(table: pd.DataFrame, best: Any) -> Any:
    """The sparsest map that covers nearly all of the way from nothing moved to the closest one, if that is another."""
    still = _of(table, "identity")
    if still.empty or not still["divergence"].iloc[0] > best["divergence"]:
        return None
    start = still["divergence"].iloc[0]
    near = table[_is_sparse(table) & (start - table["divergence"] >= NEARLY * (start - best["divergence"]))]
    found = near.loc[near["density"].idxmin()]
    return None if found.name == best.name else found


def _named(row: Any) -> str:
    return f"{LABELS.get(row['method'], row['method'])} with γ = {row['gamma']:.3g} (ε = {row['epsilon']:.3g})"


def _headline(record: RunRecord, table: pd.DataFrame, count: int) -> str:
    over = f"Over {splits_of(record).over(count)}, "
    best = _best(table)
    if best is None:
        return f"{over}{len(table)} methods were scored; none of them sparse."
    told = (
        f"{over}{_named(best)} comes closest to held-out target cells of all sparse maps: divergence "
        f"{best['divergence']:.3g}, while {best['density']:.1%} of the entries move."
    )
    sparser = _sparser(table, best)
    if sparser is not None:
        told += f" {_named(sparser)} is nearly as close, at {sparser['divergence']:.3g}, and moves "
        told += f"{sparser['density']:.1%}."
    usual = _of(table, "sql2")
    if not usual.empty:
        row = usual.loc[usual["divergence"].idxmin()]
        told += f" The usual squared distance comes to {row['divergence']:.3g} and moves {row['density']:.0%}."
    beside = [
        f"{_of(table, name)['divergence'].iloc[0]:.3g} {words}"
        for name, words in (
            ("identity", "if nothing moves"),
            ("mean_shift", "if all move by the difference of the means"),
            ("treated", "for other target cells"),
        )
        if not _of(table, name).empty
    ]
    return f"{told} For comparison: {listed(beside)}." if beside else told


def _trust(record: RunRecord, table: pd.DataFrame, rows: pd.DataFrame) -> list[Item]:
    result, best = record.result, _best(table)
    failed = int(result["rows_not_converged"])
    told = f"All of {result['rows']:,} rows are of solvers that converged."
    if failed:
        told = f"{failed:,} of {result['rows']:,} rows did not converge: {result['message']}"
    items = [Item(CARE if failed else FINE, "Solver", told)]
    items.append(_splits(record, rows, best))
    for name, words in (("identity", "not moving at all"), ("mean_shift", "the mean shift")):
        known = _of(table, name)
        if best is not None and not known.empty:
            items.append(_against(words, best, known.iloc[0]))
    known = _of(table, "treated")
    if best is not None and not known.empty:
        items.append(splits_of(record).floor(known["divergence"].iloc[0], best["divergence"]))
    items += [Item(FINE, "Replicates", str(text)) for text in result.get("notes") or ()]
    items += [Item(CARE, "Warning", text) for text in record.warnings]
    return items


def _splits(record: RunRecord, rows: pd.DataFrame, best: Any) -> Item:
    """How many there are, and how much they differ."""
    splits, variation = splits_of(record), ""
    if best is not None and splits.several:
        mine = rows[(rows["method"] == best["method"]) & (rows["gamma"] == best["gamma"])]
        mine = mine[mine["epsilon"] == best["epsilon"]]
        spread = mine.groupby("condition")["divergence"].std().mean()
        variation = f"; the divergence of {_named(best)} varies over them with a standard deviation of {spread:.2g}"
    return splits.item(variation)


def _against(words: str, best: Any, other: Any) -> Item:
    """The closest sparse map beside a baseline, by every score."""
    worse = []
    for name, (label, better, _) in METRICS.items():
        if better and name in best.index and np.isfinite(best[name]) and np.isfinite(other[name]):
            sign = 1 if better == "lower" else -1
            if sign * best[name] >= sign * other[name]:
                worse.append(f"{label} ({best[name]:.3g}, against {other[name]:.3g})")
    what = f"Against {words}"
    if not worse:
        return Item(FINE, what, f"{_named(best)}, the closest sparse map, is better than {words} by every score.")
    told = f"{_named(best)}, the closest sparse map, is no better than {words} by {listed(worse)}"
    return Item(CARE, what, f"{told}: look at all scores before you rely on it.")


def _methods(record: RunRecord) -> str:
    asked = record.parameters
    genes = f"the {asked['hvg']:,} genes that vary most (by scanpy)" if asked["hvg"] else "all genes"
    within = f" within each {asked['within']}" if asked["within"] else ""
    costs = listed([LABELS.get(name, str(name)) for name in asked["costs"]])
    return (
        f"Maps from {asked['groupby']} {asked['control']} to {counted(len(asked['targets']), 'target group')}{within} "
        f"{splits_of(record).methods()}, with occamap {record.versions.get('occamap', '')}, on {genes}."
        f"{NORMALISED if asked['counts'] == 'normalize' else ''} Costs: {costs}; γ: {_numbers(asked['gammas'])}; ε: "
        f"{_numbers(asked['epsilon'])} ({asked['epsilon_scale']}); relax: {asked['relax']:g}; seed {record.seed}. "
        f"Distances are measured on {asked['components']} principal components of the train cells; markers are the "
        f"{asked['markers']} genes with the largest Welch's t of train cells. {PAPER}"
    )


def _numbers(values: list[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _or_none(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None
