"""How well `learn_subspace` finds planted directions: `python -m benchmarks.subspaces` prints the tables of its page.

Angles are the largest principal ones, in radians, medians over seeds.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import subspace_angles

import occamap as oc
from occamap._workers import Workers
from occamap.maps.problem import check_problem
from occamap.maps.progress import Progress
from occamap.sinkhorn import EpsilonRule
from occamap.subspaces import _Transport

Floats = NDArray[np.float64]

SEEDS = 3


def planted(
    n: int, d: int, k: int, size: float, seed: int, partners: bool = False, pull: bool = False
) -> tuple[Floats, Floats, Floats]:
    """Standard normal samples; along k random directions the target moved outward by `size`, or to 1/10 (`pull`).

    With `partners` the target is the image of the source itself, shuffled, else of another sample.
    """
    draw = np.random.default_rng(seed)
    A = np.linalg.qr(draw.normal(size=(d, k)))[0].T
    X, other = draw.normal(size=(2, n, d))
    other = X if partners else other
    inside = other @ A.T
    return X, draw.permutation(other + (-0.9 * inside if pull else size * np.sign(inside)) @ A), A


def angle(A: Any, B: Any) -> float:
    return float(np.max(subspace_angles(np.asarray(A).T, np.asarray(B).T)))


def learned(X: Floats, Y: Floats, A: Floats, gamma: float, **given: Any) -> float:
    """The angle to A that is left; γ = 0 is the leading directions of the coupling under ½‖·‖²."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", oc.errors.NotConvergedWarning)
        if gamma == 0:
            with Workers() as workers, Progress(False) as progress:
                problem = check_problem(X, Y, None, None, [], None)
                transport = _Transport(problem, 1.0, EpsilonRule(0.1), True, (1e-4, 2000), workers, progress)
                transport.solve(None)
                return angle(transport.leading(A.shape[0], np.random.default_rng(0)), A)
        return angle(oc.learn_subspace(X, Y, A.shape[0], gamma, verbose=False, **given).basis, A)


def alternated(X: Floats, Y: Floats, k: int, gamma: float, first: Floats, tol: float = 1e-3) -> tuple[Floats, int]:
    """Plain alternation: coupling, then its leading directions, until they turn no more; and how many couplings."""
    with Workers() as workers, Progress(False) as progress:
        problem = check_problem(X, Y, None, None, [], None)
        transport = _Transport(problem, gamma, EpsilonRule(0.1), True, (1e-4, 2000), workers, progress)
        A, before = first, None
        while len(transport.iterations) < 100 and (before is None or angle(A, before) > tol):
            transport.solve(A)
            before, A = A, transport.leading(k, np.random.default_rng(0))
    return A, len(transport.iterations)


def table(title: str, name: str, rows: list[Any], columns: list[Any], cell: Callable[..., str]) -> None:
    print(f"\n{title}\n\n| {name} | " + " | ".join(map(str, columns)) + " |")
    print("|---" * (len(columns) + 1) + "|")
    for row in rows:
        print(f"| {row} | " + " | ".join(cell(row, column) for column in columns) + " |", flush=True)


def median(make: Callable[[int], float]) -> str:
    return f"{np.median([make(seed) for seed in range(SEEDS)]):.4f}"


def main() -> None:
    begun = time.perf_counter()
    gammas = [0, 1, 10, 100]
    table(
        "Independent samples, d = 10, k = 2, moves of 16 deviations: by n and γ", "n", [125, 250, 500, 1000], gammas,
        lambda n, gamma: median(lambda s: learned(*planted(n, 10, 2, 16.0, s), gamma)),
    )  # fmt: skip
    table(
        "Independent samples, n = 500, d = 10, k = 2: by the size of the moves", "size", [0.5, 1, 2, 4, 8], gammas,
        lambda size, gamma: median(lambda s: learned(*planted(500, 10, 2, size, s), gamma)),
    )  # fmt: skip
    table(
        "Independent samples, n = 500, k = 2, moves of 16 deviations: by d and γ", "d", [10, 25, 50], gammas,
        lambda d, gamma: median(lambda s: learned(*planted(500, d, 2, 16.0, s), gamma)),
    )  # fmt: skip
    table(
        "Partners (the target is the image of the source), n = 500, d = 10, k = 2, a contraction to 1/10, γ = 10: by ε",
        "debias", [True, False], [0.01, 0.03, 0.1],
        lambda debias, epsilon: median(
            lambda s: learned(*planted(500, 10, 2, 0, s, True, True), 10, epsilon=epsilon, debias=debias)
        ),
    )  # fmt: skip
    table(
        "From a random start, n = 500, d = 10, k = 2, moves of 4 deviations: couplings (angle)", "γ", [1, 10, 100],
        ["gradient", "alternation"], lambda gamma, method: compared(gamma, method),
    )  # fmt: skip
    print(f"\n{time.perf_counter() - begun:.0f} s")


def compared(gamma: float, method: str) -> str:
    couplings, angles = [], []
    for seed in range(SEEDS):
        X, Y, A = planted(500, 10, 2, 4.0, seed)
        first = np.linalg.qr(np.random.default_rng(seed + 50).normal(size=(10, 2)))[0].T
        if method == "alternation":
            basis, count = alternated(X, Y, 2, gamma, first)
        else:
            found = oc.learn_subspace(X, Y, 2, gamma, start=first, verbose=False)
            basis, count = found.basis, len(found.sinkhorn_iterations)
        couplings.append(count)
        angles.append(angle(basis, A))
    return f"{np.median(couplings):.0f} ({np.median(angles):.4f})"


if __name__ == "__main__":
    main()
