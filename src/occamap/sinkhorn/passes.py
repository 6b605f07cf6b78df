"""What the solver asks of a cost matrix: passes over a tile of its rows, here or on the worker that holds the tile.

Each takes the tile, threads, the tile's share of vectors over the rows, and what all tiles share; it returns vectors.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from occamap._kernels import softmin
from occamap._workers import Workers
from occamap.sinkhorn.operator import Floats, Tile


def sweep(
    tile: Tile,
    workers: Workers,
    a: Floats,
    f: Floats,
    g: Floats,
    log_b: Floats,
    epsilon: float,
    damping: float,
    shift: float,
) -> tuple[Floats, Floats, float]:
    """f from g, near the f given; the mass of the plan of both in each column, times e^−shift; the next shift."""
    f, column, top = f.copy(), np.zeros(g.size), -np.inf

    def block(span: tuple[int, int]) -> tuple[Floats, float]:
        rows, (C, offset) = slice(*span), tile.raw(span)
        mass, scratch = np.zeros(g.size), np.empty(g.size)
        most = softmin.sweep(C, offset, g, log_b, a[rows], epsilon, damping, shift, f[rows], mass, scratch)
        return mass, most

    for mass, most in workers.map(block, tile.spans()):
        column += mass
        top = max(top, most)
    return f, column, top


def column_softmins(
    tile: Tile, workers: Workers, f: Floats, log_a: Floats, epsilon: float, columns: NDArray[np.int64]
) -> tuple[Floats, Floats]:
    """Σ_i a_i exp((f_i − C_ij)/ε) = total·e^top for these columns."""
    top, total = np.full(columns.size, -np.inf), np.zeros(columns.size)
    for span in tile.spans():
        rows, (C, offset) = slice(*span), tile.raw(span)
        softmin.column_softmin(C, f[rows] - offset, log_a[rows], epsilon, columns, top, total)
    return top, total


def effective_targets(
    tile: Tile, workers: Workers, a: Floats, f: Floats, g: Floats, log_b: Floats, epsilon: float
) -> float:
    """Σ_i a_i exp(entropy of the Gibbs weights of x_i), whose potentials f are known."""

    def block(span: tuple[int, int]) -> float:
        rows, (C, offset) = slice(*span), tile.raw(span)
        out = np.empty(C.shape[0])
        softmin.perplexities(C, g, log_b, epsilon, f[rows] - offset, out)
        return float(a[rows] @ out)

    return float(sum(workers.map(block, tile.spans())))


def means(tile: Tile, workers: Workers, a: Floats, b: Floats) -> tuple[Floats, Floats, float]:
    """The mean of each row under b, the share of these rows in the mean of each column under a, the largest entry."""

    def block(span: tuple[int, int]) -> tuple[Floats, Floats, float]:
        rows, (C, offset) = slice(*span), tile.raw(span)
        out, column = np.empty(C.shape[0]), np.zeros(C.shape[1])
        largest = softmin.means(C, offset, a[rows], b, out, column)
        return out, column, largest

    by_row, by_column, largest = zip(*workers.map(block, tile.spans()), strict=True)
    return np.concatenate(by_row), np.sum(by_column, axis=0), max(largest)


def variance(tile: Tile, workers: Workers, a: Floats, b: Floats, mean: float) -> float:
    """Σ_ij a_i b_j (C_ij/mean − 1)²: squares of costs themselves may be beyond the range of float64."""
    return _total(tile, workers, a, b, lambda C: ((C - mean) / mean) ** 2)


def mass_below(tile: Tile, workers: Workers, a: Floats, b: Floats, cost: float) -> float:
    """Σ a_i b_j over the pairs that cost so much or less."""
    return _total(tile, workers, a, b, lambda C: (cost >= C).astype(np.float64))


def _total(tile: Tile, workers: Workers, a: Floats, b: Floats, of: Callable[[Floats], Floats]) -> float:
    def block(span: tuple[int, int]) -> float:
        return float(np.einsum("i,ij,j->", a[slice(*span)], of(tile.block(span)), b))

    return float(sum(workers.map(block, tile.spans())))
