"""What halves of the cells cost, whether their intervals cover, and whether their bounds on false genes hold.

    python -m benchmarks.stability speed      # 3,000 × 3,000 cells × 34,636 genes: some ten minutes
    python -m benchmarks.stability coverage   # some three minutes
    python -m benchmarks.stability false      # some six minutes
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

import occamap as oc
from occamap.genes.bounds import ASSUMPTIONS, expected_false
from occamap.genes.halves import complementary_halves
from occamap.genes.refits import refitted_means, subsampled_means
from occamap.genes.stability import frequency, half_width

Floats = NDArray[np.float64]

POOL = 20_000  # cells of a population
DRAWN = 400  # cells of each group in a draw
HALVES = (4, 6, 10, 20)
DEFAULT = oc.MongeMap(oc.L1(0.3), epsilon=10.0, epsilon_scale="perplexity", relax=1.0)  # as tl.monge_map has it


def main(what: str) -> None:
    {"speed": speed, "coverage": coverage, "false": false}[what]()


def row(*cells: Any) -> None:
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


# -- cost ------------------------------------------------------------------------------------------------------------


def speed(n: int = 3_000, d: int = 34_636, counts: tuple[int, ...] = (10, 20, 50)) -> None:
    """Costs computed again by each half, as before, and shared, in turns: the same halves, the same numbers."""
    cells = oc.datasets.simulate_perturbation(n, n, d, effect=1.5, density=0.045, random_state=0)
    X, Y, groups = cells.control, cells.treated, np.zeros(n, int)
    like = fixed(clone(DEFAULT).fit(X, Y))
    rng = np.random.default_rng(0)
    few = complementary_halves(groups[:200], np.zeros(200, int), 2, rng)
    for share in (False, True):  # kernels are compiled
        refitted_means(like, X[:200], Y[:200], groups[:200], few, share=share)
    row("halves", "each its own: s (CPU s)", "shared: s (CPU s)", "ratio", "of CPU", "largest difference")
    row(*["---"] * 6)
    for count in counts:
        halves, told, found = complementary_halves(groups, np.zeros(n, int), count, rng), {}, {}
        for share in (False, True):
            clock, cpu = time.perf_counter(), time.process_time()
            found[share] = refitted_means(like, X, Y, groups, halves, share=share)
            told[share] = time.perf_counter() - clock, time.process_time() - cpu
        gap = np.abs(found[True] - found[False]).max()
        both = [f"{told[share][0]:.0f} ({told[share][1]:.0f})" for share in (False, True)]
        row(count, *both, *(f"{told[False][k] / told[True][k]:.2f}" for k in (0, 1)), f"{gap:.0e}")


# -- repeated draws from a population ---------------------------------------------------------------------------------


def fixed(fitted: oc.MongeMap) -> oc.MongeMap:
    """The same map with the ε that it found, not fitted: what halves are fitted with."""
    return clone(fitted).set_params(epsilon=fitted.epsilon_, epsilon_scale="absolute")


def drawn(X: Any, Y: Any, n: int, rng: np.random.Generator) -> tuple[Any, Any]:
    return X[np.sort(rng.permutation(X.shape[0])[:n])], Y[np.sort(rng.permutation(Y.shape[0])[:n])]


def mean_moves(fitted: oc.MongeMap, X: Any) -> Floats:
    return np.asarray(fitted.displacement(X).astype(float).mean(axis=0)).ravel()


def draws(X: Any, Y: Any, count: int, halves: int, rng: np.random.Generator) -> Iterator[tuple[Floats, Floats]]:
    """Of each draw the mean displacements, and those of its halves."""
    for _ in range(count):
        x, y = drawn(X, Y, DRAWN, rng)
        fitted = clone(DEFAULT).fit(x, y)
        yield mean_moves(fitted, x), subsampled_means(fixed(fitted), x, y, np.zeros(DRAWN, int), halves, rng)[:, 0]


def coverage(count: int = 100, d: int = 500) -> None:
    """How often intervals cover the mean over draws of this size, and that of maps of eight times as many cells."""
    pool = oc.datasets.simulate_perturbation(POOL, POOL, d, n_moved=30, effect=1.0, density=0.1, random_state=0)
    rng = np.random.default_rng(1)
    found = list(draws(pool.control, pool.treated, count, max(HALVES), rng))
    means = np.array([mean for mean, _ in found])
    large = []
    for _ in range(4):
        x, y = drawn(pool.control, pool.treated, 8 * DRAWN, rng)
        large.append(mean_moves(clone(DEFAULT).fit(x, y), x))
    truths = {"same size": means.mean(axis=0), "eight times as many cells": np.mean(large, axis=0)}
    order = np.argsort(-np.abs(means.mean(axis=0)))
    often = order[(means[:, order] != 0).mean(axis=0) > 0.9]  # a gene that hardly ever moves has no spread
    row("genes", "covered", "interval", *(f"{halves} halves" for halves in HALVES))
    row(*["---"] * (3 + len(HALVES)))
    for name, genes in (("first 50", often[:50]), (f"other {often.size - 50}", often[50:])):
        for of, truth in truths.items():
            for kind, width in (("t", half_width), ("1.96 sd", lambda some: 1.96 * some.std(axis=0, ddof=1))):
                rates = []
                for halves in HALVES:
                    widths = np.array([width(means_of[:halves]) for _, means_of in found])
                    rates.append(f"{(np.abs(means - truth) <= widths)[:, genes].mean():.1%}")
                row(name, of, kind, *rates)


def false(count: int = 60, d: int = 1_000, top: int = 50, halves: int = 20) -> None:
    """Genes that are selected though a half rarely selects them, and though nothing was planted, against the bounds."""
    pool = oc.datasets.simulate_perturbation(POOL, POOL, d, n_moved=40, effect=1.0, density=0.1, random_state=0)
    moved, control = pool.moved.any(axis=0), pool.control
    scenes = {
        "null": (control[: POOL // 2], control[POOL // 2 :], np.zeros(d, bool)),
        "planted": (control, pool.treated, moved),
    }
    row("", "τ", *(f"bound: {one}" for one in ASSUMPTIONS), "low", "unmoved", f"planted, of {int(moved.sum())}")
    row(*["---"] * 8)
    for name, (X, Y, truth) in scenes.items():
        found = draws(X, Y, count, halves, np.random.default_rng(2))
        selected = np.array([frequency(means, top) for _, means in found])
        low = selected.mean(axis=0) <= top / d
        for tau in (0.6, 0.7, 0.8, 0.9, 1.0):
            bounds = [expected_false(np.array([tau]), halves, top, d, one)[0] for one in ASSUMPTIONS]
            chosen = selected >= tau - 1e-9
            numbers = [chosen[:, which].sum(axis=1).mean() for which in (low, ~truth, truth)]
            row(name, tau, *(f"{bound:.2f}" for bound in bounds), *(f"{number:.2f}" for number in numbers))
        print(f"{name}: {int(low.sum())} of {d} genes are low; of the unmoved, {int((low & ~truth).sum())}")


if __name__ == "__main__":
    main(sys.argv[1])
