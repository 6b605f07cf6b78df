"""Beyond the paper: the error against h-optimal maps that are known, by the cost of the fit, ε and n."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullLocator
from numpy.typing import NDArray

import occamap as oc
from occamap.paper.canvas import COLOURS, GREY, KOVERLAP, L1, SQL2, STVS, line, panels
from occamap.paper.study import BEYOND, Setting, Study, Verdict

TRUTHS: dict[str, oc.Cost] = {L1: oc.L1(2.0), STVS: oc.STVS(2.0), KOVERLAP: oc.KOverlap(2.0, k=2)}
PULL = 5.0
FIXED, TARGETS = 0.1, 10.0
EPSILONS = (0.003, 0.01, 0.03, 0.1, 0.3)
OWN, RELAXED, NOTHING = "own cost", "own cost, relax = 1", "nothing moved"
BOTH = {OWN: 0.0, RELAXED: 1.0}
RULED = {f"{fit}, {TARGETS:g} effective targets": relax for fit, relax in BOTH.items()}
FRESH = 500

Floats = NDArray[np.float64]
Case = tuple[str, int]  # a truth, and d


def compute(setting: Setting) -> pd.DataFrame:
    """A row for each truth, d, n, seed, cost of the fit and ε: the error on samples that the fit has not seen."""
    sizes, rows = setting.size["n"], []
    grid = [(name, d, seed) for name in TRUTHS for d in setting.size["d"] for seed in range(setting.size["seeds"])]
    for name, d, seed in setting.steps(grid):
        cost, drawn = TRUTHS[name], setting.seed_of(d, seed)
        truth = oc.datasets.ground_truth(cost, d, FRESH + sizes[-1], sizes[-1], pull=PULL, random_state=drawn)
        unseen = truth.source[:FRESH], truth.image[:FRESH]
        at = {"truth": name, "d": d, "seed": seed}
        rows.append({**at, "n": 0, "fit": NOTHING, "epsilon": np.nan, "nmse": oc.metrics.nmse(*unseen)})
        for n in sizes:
            x, y = truth.source[FRESH : FRESH + n], truth.target[:n]
            for epsilon, (with_cost, fits) in itertools.product(EPSILONS, ((cost, BOTH), (oc.SqL2(), {SQL2: 0.0}))):
                fitted = oc.MongeMap(with_cost, epsilon=epsilon).fit(x, y)
                rows += [{**at, "n": n, "epsilon": epsilon, **errors} for errors in _errors(fitted, fits, *unseen)]
            fitted = oc.MongeMap(cost, epsilon=TARGETS, epsilon_scale="perplexity").fit(x, y)
            epsilon = fitted.epsilon_ / cost.pairwise(x, y).mean()
            rows += [{**at, "n": n, "epsilon": epsilon, **errors} for errors in _errors(fitted, RULED, *unseen)]
    return pd.DataFrame(rows)


def _errors(fitted: oc.MongeMap, fits: dict[str, float], fresh: Floats, goal: Floats) -> Iterator[dict[str, object]]:
    """Those of a fit at each `relax` in `fits`, which has them by name."""
    for fit, relax in fits.items():
        move = fitted.set_params(relax=relax).displacement(fresh).toarray()
        yield {
            "fit": fit,
            "nmse": oc.metrics.nmse(goal, fresh + move),
            "support_error": oc.metrics.support_error(move, goal != fresh),
        }


def _best(table: pd.DataFrame, value: str = "nmse") -> pd.Series:
    """`value` at the ε with the lowest error, over the seeds; by truth, d, fit and n."""
    means = table.groupby(["truth", "d", "fit", "n", "epsilon"])[["nmse", "support_error"]].mean()
    chosen = means["nmse"].groupby(level=["truth", "d", "fit", "n"]).idxmin()
    found = means.loc[chosen, value]
    return found.droplevel("epsilon")


def _fixed(table: pd.DataFrame) -> pd.Series:
    """The error at the customary ε."""
    part = table[table["epsilon"] == FIXED]
    return part.groupby(["truth", "d", "fit", "n"])["nmse"].mean()


def _ruled(table: pd.DataFrame, value: str = "nmse") -> pd.Series:
    """`value` where ε gives a sample ten effective targets, as `_best` has it."""
    part = table[table["fit"].isin(RULED)].replace({"fit": dict(zip(RULED, BOTH, strict=True))})
    return part.groupby(["truth", "d", "fit", "n"])[value].mean()


def judge(table: pd.DataFrame) -> list[Verdict]:
    best, fixed, ruled, wrong = _best(table), _fixed(table), _ruled(table), _best(table, "support_error")
    dimensions = sorted(table["d"].unique())
    sizes = sorted(table.loc[table["n"] > 0, "n"].unique())
    few, many = sizes[0], sizes[-1]
    rest = table[table["fit"] == NOTHING].groupby(["truth", "d"])["nmse"].mean()
    cases = [(name, d) for name in TRUTHS for d in dimensions]
    plain, squared = ([case for case in cases if (case[0] == KOVERLAP) is k] for k in (False, True))

    def ratios(above: pd.Series, below: pd.Series, fits: tuple[str, str], n: tuple[int, int]) -> dict[Case, float]:
        return {(t, d): float(above[t, d, fits[0], n[0]] / below[t, d, fits[1], n[1]]) for t, d in cases}

    def told(values: dict[Case, float], of: list[Case]) -> str:
        parts = (f"{', '.join(f'{t} {values[t, d]:.2f}' for t, at in of if at == d)} (d = {d})" for d in dimensions)
        return ", ".join(parts)

    gain = ratios(best, best, (SQL2, OWN), (many, many))
    relaxed = ratios(best, best, (SQL2, RELAXED), (many, many))
    falls = ratios(best, best, (OWN, OWN), (few, many))
    choice = ratios(fixed, best, (OWN, OWN), (many, many))
    missed = ratios(ruled, best, (OWN, OWN), (many, many))
    rule = {n: ratios(ruled, fixed, (OWN, OWN), (n, n)) for n in (few, many)}
    rule_relaxed = ratios(ruled, fixed, (RELAXED, RELAXED), (many, many))
    aside = ratios(wrong, wrong, (OWN, SQL2), (many, many))
    left = {(t, d): float(best[t, d, OWN, many] / rest[t, d]) for t, d in cases}
    steady = all(bool((np.diff([best[t, d, OWN, n] for n in sizes]) < 0).all()) for t, d in cases)
    return [
        Verdict(
            "own cost wins",
            "ℓ1 and STVS fits are nearer to the truth of their cost than ½ℓ2², each at the ε best in hindsight.",
            f"error of ½ℓ2² / error, n = {many}: {told(gain, plain)}",
            min(gain[case] for case in plain) > 1,
        ),
        Verdict(
            "right features",
            "Less of the move of ℓ1 and STVS fits is on features that should stay.",
            f"support error / support error of ½ℓ2², n = {many}: {told(aside, plain)}",
            max(aside[case] for case in plain) < 1,
        ),
        Verdict(
            "better than nothing",
            "ℓ1 and STVS fits are nearer to the truth than not moving at all.",
            f"error / error of nothing moved, n = {many}: {told(left, plain)}",
            max(left[case] for case in plain) < 1,
        ),
        Verdict(
            "k-overlap, squared",
            "All three (nearer than ½ℓ2², less on wrong features, nearer than no move) hold for squared k-overlap.",
            f"error of ½ℓ2² / error {told(gain, squared)}; support error / support error of ½ℓ2² "
            f"{told(aside, squared)}; error / error of nothing moved {told(left, squared)}",
            all(gain[case] > 1 and aside[case] < 1 and left[case] < 1 for case in squared),
        ),
        Verdict(
            "relaxed",
            "With relax = 1 (the same support, moved to the mean of the targets) all fits are nearer than ½ℓ2².",
            f"error of ½ℓ2² / error, n = {many}: {told(relaxed, cases)}",
            min(relaxed.values()) > 1,
        ),
        Verdict(
            "error falls with n",
            "The error falls as n grows.",
            f"error at n = {few} / error at n = {many}: {told(falls, cases)}, and it "
            + ("falls at every step between" if steady else "does not fall at every step between"),
            steady,
        ),
        Verdict(
            "ε matters",
            f"ε = {FIXED:g} × mean cost is not the best ε for any cost, once there are samples enough (n = {many}).",
            f"error at it / error at the best ε: {told(choice, cases)}",
            min(choice.values()) > 1.01,
        ),
        Verdict(
            "effective targets",
            f"From samples enough (n = {many}), fits at the ε of {TARGETS:g} effective targets, the default of "
            f"tl.monge_map, are nearer to the truth than at {FIXED:g} × mean cost.",
            f"error at it / error at {FIXED:g} × mean: {told(rule[many], cases)}; both with relax = 1, as in "
            f"tl.monge_map: {told(rule_relaxed, cases)}; from n = {few}: {told(rule[few], cases)}; "
            f"error at it / error at the best ε: {told(missed, cases)}",
            max(rule[many].values()) < 1,
        ),
    ]


def draw(table: pd.DataFrame) -> Figure:
    best, fixed, ruled = _best(table), _fixed(table), _ruled(table)
    dimensions = sorted(table["d"].unique())
    figure, rows = panels(len(dimensions), 3, (11.5, 0.8 + 3.4 * len(dimensions)), sharex=True, sharey="row")
    sizes = sorted(table.loc[table["n"] > 0, "n"].unique())
    rest = table[table["fit"] == NOTHING].groupby(["truth", "d"])["nmse"].mean()
    for d, axes in zip(dimensions, rows, strict=True):
        for ax, name in zip(axes, TRUTHS, strict=True):
            ax.set(xscale="log", yscale="log")
            for fit, cost, style in ((OWN, name, "-"), (RELAXED, name, "--"), (SQL2, SQL2, "-")):
                line(ax, sizes, [best[name, d, fit, n] for n in sizes], cost, style=style)
            customary = [fixed[name, d, OWN, n] for n in sizes]
            ax.plot(sizes, customary, ":", color=COLOURS[name])
            ax.plot(sizes, [ruled[name, d, OWN, n] for n in sizes], ":x", color=COLOURS[name], markersize=5)
            ax.axhline(rest[name, d], color=GREY, linestyle="-.", linewidth=1)
            ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            ax.yaxis.set_major_formatter(FormatStrFormatter("%g"))
            ax.yaxis.set_minor_locator(NullLocator())
            ax.set_title(f"truth for {name}, γ = 2{', k = 2' if name == KOVERLAP else ''}, d = {d}")
        axes[0].set_ylabel("NMSE of unseen samples, Σ‖error‖² / nd")
    look = {"color": GREY, "linewidth": 1.3}
    handles = [
        Line2D([], [], marker="o", label=f"{OWN}, best ε", **look),
        Line2D([], [], marker="o", markerfacecolor="white", linestyle="--", label=f"{RELAXED}, best ε", **look),
        Line2D([], [], linestyle=":", label=f"{OWN}, ε = {FIXED:g} × mean cost", **look),
        Line2D([], [], linestyle=":", marker="x", label=f"{OWN}, {TARGETS:g} effective targets", **look),
        Line2D([], [], color=COLOURS[SQL2], marker="s", markersize=4, label=f"{SQL2}, best ε"),
        Line2D([], [], linestyle="-.", label=NOTHING, **look),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    for ax in rows[-1]:
        ax.set(xlabel="n", xticks=sizes)
        ax.set_xticklabels([str(n) for n in sizes])
        ax.minorticks_off()
    return figure


SAME = {"epsilons": EPSILONS, "targets": TARGETS, "unseen": FRESH, "pull": PULL, "gamma": 2.0, "k": 2}
STUDY = Study(
    "The error against h-optimal maps that are known",
    BEYOND,
    {"n": [100, 300, 1000], "d": [10], "seeds": 2, **SAME},
    {"n": [100, 300, 1000, 2000], "d": [10, 30], "seeds": 3, **SAME},
    compute,
    judge,
    draw,
)
