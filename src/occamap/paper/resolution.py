"""Beyond the paper: which moved entries are true, by the number k of control cells that displacements are pooled over.

An entry is a gene in a control cell. Precision is the share of the entries that move which are true, recall the share
of the true entries that move. The average precision (AP) is that of a score of every entry, moved or not. For maps, the
score is the magnitude of the pooled field, whose prox is the displacement: the mean of ∇f_ε over a neighbourhood.
(`neighbourhoods` has its weights, and one step of `flow` goes along ∇f_ε.) For tests, it is |t| of Welch's test: of all
treated against all control cells, or, for an oracle, within the type of a control cell.

Pooled maps are shown twice: at the γ of the default, which is one fit that is read at every k, and at the γ that
`tl.monge_map(pool=k)` takes, which is larger for a smaller k. The AP is measured at the former; it hardly depends on γ.

On simulated cells, the truth is what was planted. On the interferon cells of Kang et al., maps are learned on half of
the donors, and the truth is what the others say: genes that a Wilcoxon test within the annotated type finds at 5 %
(Benjamini and Hochberg), in types with 30 cells or more in either condition. Cells of other types are not judged.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray
from scipy import stats
from sklearn.metrics import average_precision_score

import occamap as oc
from occamap.paper.canvas import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, panels
from occamap.paper.study import BEYOND, Setting, Study, Verdict

DEPTHS = {"planted, 27 % stored": 0.27, "planted, 8 % stored": 0.08}
DEEP, SHALLOW = DEPTHS
DONORS = "interferon cells, by donors"
PLAIN, FIXED, OWN, DEFAULT = "paper's map", "pooled, γ of the default", "pooled, default γ for k", "default"
GLOBAL, ORACLE = "one t-test for all cells", "t-test within the type"
PAPER = {"gamma": 1.0, "epsilon": 0.1, "epsilon_scale": "mean", "relax": 0.0, "pool": None, "match": None}
MEASURES = "precision", "recall", "AP"
FIRST_SEED = 3000
CONTROL = "control"
TOTAL, FEWEST_CELLS, FEWEST_OF_TYPE, RATE = 1e4, 20, 30, 0.05
ABSENT = (
    "The interferon cells were not at hand: set OCCAMAP_DATA to the directory of kang_ifnb.h5ad (Kang et al. 2018, "
    "GEO GSE96583)."
)
CAVEAT = (
    "The interferon cells were also used to choose neighbourhoods and γ, and the definition of their truth was chosen "
    "among 24: compare methods with one another, and do not rely on the absolute values."
)

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Comparison:
    """Control and target cells, and which entries of control cells are true, for those of which it is known.

    `judged` marks the latter among the control cells; `truth` is judged cells × genes.
    """

    cells: Any
    target: str
    judged: Mask
    truth: Mask


def compute(setting: Setting) -> pd.DataFrame:
    """A row for each data set, replicate, method and k."""
    size, cells = setting.size, _read_interferon()
    first = FIRST_SEED + setting.seed * size["seeds"]
    steps = [(data, number) for data in DEPTHS for number in range(first, first + size["seeds"])]
    if cells is not None:
        steps += [(DONORS, way) for way in range(size["ways"])]
    rows = []
    for data, number in setting.steps(steps):
        if data == DONORS:
            replicate, comparison = f"way {number + 1}", _split_donors(cells, number)
        else:
            replicate, comparison = f"seed {number}", _plant(size, DEPTHS[data], number)
        rows += [{"data": data, "replicate": replicate, **row} for row in _compare(comparison, size["k"])]
    return pd.DataFrame(rows)


def _plant(size: Any, density: float, seed: int) -> Comparison:
    """Four types, and effects on some genes of each, without side effects on others."""
    cells, genes, moved = size["cells"], size["genes"], size["moved"]
    data = oc.datasets.simulate_perturbation(
        cells,
        cells,
        genes,
        n_types=4,
        n_moved=moved,
        n_shared=moved // 3,
        effect=1.15,
        effect_spread=0.45 / 1.15,
        density=density,
        total=TOTAL,
        composition=False,
        random_state=seed,
    )
    return Comparison(data.to_anndata(), "treated", np.ones(cells, dtype=bool), data.moved[data.control_types])


# -- the interferon cells ----------------------------------------------------------------------------------------


def _read_interferon() -> Any:
    """The cells, normalised and logged, with genes that enough cells have; None if they are not at hand."""
    path = Path(os.environ.get("OCCAMAP_DATA") or os.devnull)
    if not (path.is_file() or (path / "kang_ifnb.h5ad").is_file()):
        return None
    cells = oc.datasets.kang_ifnb()
    counts = sp.csr_array(cells.X, dtype=np.float64)
    often = np.asarray((counts > 0).sum(axis=0)).ravel() >= FEWEST_CELLS
    counts = counts[:, np.flatnonzero(often)]
    totals = np.asarray(counts.sum(axis=1)).ravel()
    scaled = sp.csr_array(sp.diags_array(TOTAL / np.where(totals > 0, totals, 1.0)) @ counts)
    cells = cells[:, often].copy()
    cells.X = scaled.log1p().astype(np.float32)
    return cells


def _split_donors(cells: Any, way: int) -> Comparison:
    """Cells of the first four donors and the truth from all others, or the other way round.

    Cells without a known donor are with the latter.
    """
    donors = cells.obs["donor"].astype(str).to_numpy()
    fitted = np.isin(donors, np.unique(donors)[:4]) ^ bool(way)
    by_type = _confirm(cells[~fitted])
    mine = cells[fitted].copy()
    types = _types(mine)[_is_control(mine)]
    judged = np.isin(types, list(by_type))
    return Comparison(mine, "stimulated", judged, np.stack([by_type[kind] for kind in types[judged]]))


def _confirm(cells: Any) -> dict[str, Mask]:
    """The genes that differ between the conditions, by type, for types with enough cells."""
    found, control, types = {}, _is_control(cells), _types(cells)
    for kind in np.unique(types):
        groups = [cells.X[(types == kind) & side].toarray() for side in (control, ~control)]
        if min(map(len, groups)) >= FEWEST_OF_TYPE:
            found[str(kind)] = stats.false_discovery_control(_rank_sum(*groups)) < RATE
    return found


def _rank_sum(control: Floats, target: Floats) -> Floats:
    """Two-sided p-values of Wilcoxon's test by normal approximation, without a correction for ties: the default of
    `scanpy.tl.rank_genes_groups`."""
    n, m = len(target), len(control)
    ranks = stats.rankdata(np.vstack([target, control]), axis=0)[:n].sum(axis=0)
    score = (ranks - n * (n + m + 1) / 2) / np.sqrt(n * m * (n + m + 1) / 12)
    return np.asarray(2 * stats.norm.sf(np.abs(score)))


def _is_control(cells: Any) -> Mask:
    return np.asarray(cells.obs["condition"] == CONTROL)


def _types(cells: Any) -> Any:
    return cells.obs["cell_type"].astype(str).to_numpy()


# -- methods -----------------------------------------------------------------------------------------------------


def _compare(data: Comparison, sizes: list[int]) -> Iterator[dict[str, Any]]:
    """The paper's map, the default of `tl.monge_map`, maps that are pooled over `sizes` of cells, and two tests."""
    cells, control = data.cells, _is_control(data.cells)
    X, Y = sp.csr_array(cells.X[control]), sp.csr_array(cells.X[~control])

    def learn(**options: Any) -> tuple[oc.MongeMap, Any]:
        options |= {"groupby": "condition", "control": CONTROL, "target": data.target, "verbose": False}
        fitted = oc.tl.monge_map(cells, **options)
        return fitted, cells.layers["occamap_displacement"][control]

    def field(fitted: oc.MongeMap) -> Floats:
        parameters = {**fitted.get_params(), "pool": None, "fdr": None}
        step = oc.flow(X, Y, step=1.0, n_steps=1, geometry="euclidean", **parameters)
        return np.asarray((X - step[1]).toarray())

    def precision_of(score: Floats) -> float:
        return float(average_precision_score(data.truth.ravel(), score.ravel()))

    def measure(moves: Any) -> dict[str, float]:
        moved = moves.toarray()[data.judged] != 0
        right = int((moved & data.truth).sum())
        shares = {"precision": right / max(1, int(moved.sum())), "recall": right / max(1, int(data.truth.sum()))}
        return {"moving": float(moved.mean()), **shares}

    fitted, moves = learn(**PAPER)
    ap = precision_of(np.abs(field(fitted))[data.judged])
    yield {"method": PLAIN, "k": 1, **measure(moves), "AP": ap}

    default, moves = learn()
    single = field(default)
    report = default.describe_neighbourhoods()
    k = 1.0 if report is None else report.effective
    ap = precision_of(np.abs(default.neighbourhoods() @ single)[data.judged])
    yield {"method": DEFAULT, "k": round(k, 1), **measure(moves), "AP": ap}

    for k in sizes:
        default.set_params(pool=k)
        ap = precision_of(np.abs(default.neighbourhoods() @ single)[data.judged])
        yield {"method": FIXED, "k": k, **measure(default.displacement(X)), "AP": ap}
        yield {"method": OWN, "k": k, **measure(learn(pool=k)[1])}

    types = _types(cells)
    everyone = np.zeros(control.sum(), dtype=int), np.zeros((~control).sum(), dtype=int)
    for method, groups in ((GLOBAL, everyone), (ORACLE, (types[control], types[~control]))):
        yield {"method": method, "AP": precision_of(_t_scores(X.toarray(), Y.toarray(), *groups)[data.judged])}


def _t_scores(X: Floats, Y: Floats, x_groups: Any, y_groups: Any) -> Floats:
    """|t| of Welch's test of each gene within the group of each row of X; 0 where a group has one cell or none."""
    scores = np.zeros(X.shape)
    for name in np.unique(x_groups):
        a, b = X[x_groups == name], Y[y_groups == name]
        if min(len(a), len(b)) > 1:
            error = np.sqrt(a.var(axis=0, ddof=1) / len(a) + b.var(axis=0, ddof=1) / len(b))
            scores[x_groups == name] = np.abs(b.mean(axis=0) - a.mean(axis=0)) / np.maximum(error, 1e-9)
    return scores


# -- verdicts and picture ----------------------------------------------------------------------------------------


def judge(table: pd.DataFrame) -> list[Verdict]:
    means = table.groupby(["data", "method"])[["moving", *MEASURES]].mean()
    by_replicate = table[table["method"].isin([DEFAULT, GLOBAL])].pivot(
        index=["data", "replicate"], columns="method", values="AP"
    )
    at_hand = [data for data in (*DEPTHS, DONORS) if data in set(table["data"])]
    ratio = {data: means["AP"][data, DEFAULT] / means["AP"][data, ORACLE] for data in at_hand}
    lead = by_replicate[DEFAULT] - by_replicate[GLOBAL]

    def describe(data: str, method: str) -> str:
        row = means.loc[(data, method)]
        return f"precision {row['precision']:.3f}, recall {row['recall']:.3f}; {row['moving']:.1%} of the entries move"

    def default_reaches(data: str, precision: float, recall: float) -> Verdict:
        stored, row = f"{DEPTHS[data] * 100:g} %", means.loc[(data, DEFAULT)]
        return Verdict(
            f"default, {stored}",
            f"At {stored} stored entries, the default of tl.monge_map has a precision of at least {precision:g} and a "
            f"recall of at least {recall:g}.",
            describe(data, DEFAULT),
            bool(row["precision"] >= precision and row["recall"] >= recall),
        )

    def mostly_noise(data: str) -> Verdict:
        stored = f"{DEPTHS[data] * 100:g} %"
        return Verdict(
            f"paper's map, {stored}",
            f"At {stored} stored entries, less than a tenth of the entries that the paper's map moves (each cell by "
            "itself, ℓ1, γ = 1, ε = 0.1 × mean cost) were planted.",
            describe(data, PLAIN),
            bool(means["precision"][data, PLAIN] < 0.1),
        )

    verdicts = [
        mostly_noise(DEEP),
        mostly_noise(SHALLOW),
        default_reaches(DEEP, 0.9, 0.6),
        default_reaches(SHALLOW, 0.9, 0.3),
        Verdict(
            "near the oracle",
            "At 27 % stored entries, the AP of the default is at least 0.9 × that of a t-test within the true types.",
            "AP of the default / AP of the t-test within types: "
            + ", ".join(f"{value:.3f} ({data})" for data, value in ratio.items()),
            bool(ratio[DEEP] >= 0.9),
        ),
        Verdict(
            "better than one test",
            "The AP of the default is above that of one t-test for all cells, in every replicate of every data set.",
            "; ".join(
                f"{means['AP'][data, DEFAULT]:.3f} against {means['AP'][data, GLOBAL]:.3f}, and ahead by "
                f"{lead[data].min():.3f} or more ({data})"
                for data in at_hand
            ),
            bool((lead > 0).all()),
        ),
    ]
    if DONORS in at_hand:
        row = means.loc[(DONORS, DEFAULT)]
        verdicts += [
            Verdict(
                "interferon: AP",
                "On the interferon cells, the AP of the default is at least 0.75.",
                f"AP {row['AP']:.3f}; one t-test for all cells {means['AP'][DONORS, GLOBAL]:.3f}, within the annotated "
                f"types {means['AP'][DONORS, ORACLE]:.3f}, the paper's map {means['AP'][DONORS, PLAIN]:.3f}",
                bool(row["AP"] >= 0.75),
            ),
            Verdict(
                "interferon: confirmed",
                "On the interferon cells, the default moves at most 2 % of the entries, and other donors confirm at "
                "least 85 % of these.",
                f"{describe(DONORS, DEFAULT)}; the paper's map: {describe(DONORS, PLAIN)}",
                bool(row["precision"] >= 0.85 and row["moving"] <= 0.02),
            ),
        ]
    return verdicts


def note(table: pd.DataFrame) -> str:
    return CAVEAT if DONORS in set(table["data"]) else ABSENT


LOOKS: dict[str, dict[str, Any]] = {
    PLAIN: {"color": BLACK, "marker": "s", "markersize": 9, "linestyle": "", "markerfacecolor": "none"},
    FIXED: {"color": BLUE, "marker": "o", "markersize": 5, "linestyle": "-"},
    OWN: {"color": BLUE, "marker": "o", "markersize": 5, "linestyle": "--", "markerfacecolor": "white"},
    DEFAULT: {"color": ORANGE, "marker": "*", "markersize": 13, "linestyle": "", "markeredgecolor": "white"},
    GLOBAL: {"color": PURPLE, "linestyle": ":", "linewidth": 1.8},
    ORACLE: {"color": GREEN, "linestyle": "-.", "linewidth": 1.8},
}
LABELS = {
    PLAIN: "paper's map (ℓ1, γ = 1, each cell by itself)",
    FIXED: "pooled over k cells, γ of the default",
    OWN: "pooled over k cells, default γ for that k",
    DEFAULT: 'default (pool="auto"), at its effective k',
    GLOBAL: "one t-test for all cells",
    ORACLE: "oracle: t-test within the cell type",
}


def draw(table: pd.DataFrame) -> Figure:
    at_hand = [data for data in (*DEPTHS, DONORS) if data in set(table["data"])]
    figure, rows = panels(len(at_hand), 3, (11.5, 1.2 + 2.9 * len(at_hand)), sharex=True, sharey=True)
    figure.get_layout_engine().set(w_pad=0.06, wspace=0.03, hspace=0.03)
    for data, axes in zip(at_hand, rows, strict=True):
        part = table[table["data"] == data]
        for ax, measure in zip(axes, MEASURES, strict=True):
            _draw_panel(ax, part, measure)
            ax.set_title(data)
            ax.set_ylabel("average precision (AP)" if measure == "AP" else measure)
            ax.tick_params(labelleft=True, labelbottom=True)
    for ax in rows[-1]:
        ax.set_xlabel("k, the number of control cells that are pooled")
    handles = [Line2D([], [], label=LABELS[method], **look) for method, look in LOOKS.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, title=None if DONORS in at_hand else ABSENT)
    return figure


def _draw_panel(ax: Axes, part: pd.DataFrame, measure: str) -> None:
    """The mean over replicates of each method; the bands of pooled maps go from the lowest to the highest."""
    ax.set(xscale="log", ylim=(-0.03, 1.05))
    for method, look in LOOKS.items():
        mine = part[part["method"] == method]
        if mine[measure].isna().all():
            continue
        if method in (GLOBAL, ORACLE):
            ax.axhline(mine[measure].mean(), **look)
            continue
        if method == DEFAULT:
            mine = mine.assign(k=mine["k"].mean())
        curve = mine.groupby("k")[measure].agg(["mean", "min", "max"])
        if method in (FIXED, OWN):
            ax.fill_between(curve.index, curve["min"], curve["max"], color=look["color"], alpha=0.15, linewidth=0)
        ax.plot(curve.index, curve["mean"], zorder=3 + (method == DEFAULT), **look)
    ticks = sorted(int(k) for k in part.loc[part["method"] == FIXED, "k"].unique())
    ax.set_xticks(ticks, [str(k) for k in ticks])
    ax.minorticks_off()
    ax.grid(axis="y", color=GREY, alpha=0.2, linewidth=0.6)


STUDY = Study(
    "Which moved entries are true, by the number of pooled cells",
    BEYOND,
    {"cells": 600, "genes": 3000, "moved": 60, "seeds": 1, "k": [1, 10, 100], "ways": 1},
    {"cells": 800, "genes": 3000, "moved": 60, "seeds": 5, "k": [1, 3, 10, 30, 100, 200], "ways": 2},
    compute,
    judge,
    draw,
    note,
)
