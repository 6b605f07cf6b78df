"""What the synthetic figures share: costs, the fit of a whole path, and a table of errors by seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import occamap as oc
from occamap.paper.canvas import KOVERLAP, L1, NORM, SQL2, STVS
from occamap.paper.study import Setting

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

MOVED = 2  # s, the coordinates that move
NOTHING = "nothing moved"


class Pair(NamedTuple):
    """Samples of source and target, where the source should go, and which coordinates move there."""

    source: Floats
    target: Floats
    truth: Floats
    support: Flags


Push = Callable[[Floats], tuple[Floats, Flags]]


def draw_pair(push: Push, n: int, d: int, seed: Sequence[int]) -> Pair:
    """Uniform on the cube; the target is what `push` makes of a sample of its own."""
    rng = np.random.default_rng(seed)
    source, other = rng.uniform(size=(2, n, d))
    return Pair(source, push(other)[0], *push(source))


def penalties() -> dict[str, oc.Cost]:
    """The penalties, k-overlap with k = s: squared, as the paper computes it, and not, as the paper writes it."""
    return {
        L1: oc.L1(1.0),
        STVS: oc.STVS(1.0),
        KOVERLAP: oc.KOverlap(1.0, k=MOVED),
        NORM: oc.KOverlap(1.0, k=MOVED, squared=False),
    }


def along_path(pair: Pair, name: str, cost: oc.Cost, gammas: Floats, epsilon: float = 0.1) -> pd.DataFrame:
    """Errors of the maps at γ = 0, which is ½ℓ2², and at each γ."""
    path = oc.gamma_path(pair.source, pair.target, cost, [0.0, *gammas], epsilon=epsilon, density_samples=0)
    rows = []
    for gamma, fitted in zip(path.gammas, path.maps, strict=True):
        move = fitted.displacement(pair.source).toarray()
        rows.append(
            {
                "cost": name if gamma > 0 else SQL2,
                "gamma": gamma,
                "nmse": oc.metrics.nmse(pair.truth, pair.source + move),
                "support_error": oc.metrics.support_error(move, pair.support),
                "density": oc.metrics.density(move),
                "fewest_moved": int((move != 0).sum(axis=1).min()),
                "converged": bool(fitted.converged_),
            }
        )
    return pd.DataFrame(rows)


def all_costs(pair: Pair, gammas: Floats, epsilon: float = 0.1) -> pd.DataFrame:
    """`along_path` of each penalty, ½ℓ2² and nothing moved once."""
    parts = [along_path(pair, name, cost, gammas, epsilon) for name, cost in penalties().items()]
    rest = {"cost": NOTHING, "gamma": np.inf, "nmse": oc.metrics.nmse(pair.truth, pair.source)}
    rest |= {"support_error": 0.0, "density": 0.0, "fewest_moved": 0, "converged": True}
    both = pd.concat([*parts, pd.DataFrame([rest])], ignore_index=True)
    return both[(both["cost"] != SQL2) | ~both.duplicated("cost")]


def over_seeds(setting: Setting, push: Push, n: int) -> pd.DataFrame:
    """`all_costs` of n samples for each d and seed of the setting."""
    size, parts = setting.size, []
    gammas = np.geomspace(*size["gammas"])
    for d, seed in setting.steps([(d, seed) for d in size["d"] for seed in range(size["seeds"])]):
        pair = draw_pair(push, n, d, [setting.seed, d, seed])
        parts.append(all_costs(pair, gammas).assign(d=d, seed=seed))
    return pd.concat(parts, ignore_index=True)


def by_seed(table: pd.DataFrame, cost: str, value: str) -> pd.DataFrame:
    """Seeds down, γ across."""
    return table[table["cost"] == cost].pivot_table(index="seed", columns="gamma", values=value)
