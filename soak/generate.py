"""Problems by number: small, and as awkward as floats allow. The same seed and number give the same problem."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

import occamap as oc
from soak.generate_pool import MANY, Reading, draw_kind, draw_reading
from soak.reference import Penalty

Floats = NDArray[np.float64]
Random = np.random.Generator

COSTS = {
    "SqL2": 12,
    "L1": 25,
    "STVS": 14,
    "KOverlap": 14,
    "KOverlap norm": 3,
    "GroupLasso": 16,
    "GroupLasso overlap": 1,  # thousands of times as slow as the others, by its reference above all
    "Subspace": 13,
}
SCALES = {"mean": 72, "median": 5, "std": 5, "max": 5, "absolute": 7, "perplexity": 6}


@dataclass(frozen=True)
class Problem:
    """What a caller would pass, and the penalty as the reference takes it."""

    kind: str
    X: Any
    Y: Any
    a: Floats | None
    b: Floats | None
    cost: Any
    penalty: Penalty
    new: Any
    back: Any
    options: dict[str, Any] = field(default_factory=dict)
    vectors: bool = True
    reading: Reading = field(default_factory=Reading)

    @property
    def parameters(self) -> dict[str, Any]:
        """Those of the map, beside its cost."""
        return {**self.options, "pool": self.reading.pool, "match": self.reading.match}


def problem(seed: int, number: int) -> Problem:
    """Problem `number` of this seed."""
    random, other = np.random.default_rng([seed, number]), np.random.default_rng([seed, number, 1])
    n, m, d = _size(random), _size(random), _size(random)
    kind, many = draw_kind(random, COSTS), bool(other.random() < MANY)
    if many:
        n, m, d = int(other.integers(65, 320)), min(m, 8), min(d, 8)
    if kind == "GroupLasso overlap":
        n, m, d = min(n, 6), min(m, 6), max(3, min(d, 10))
    unit = 10.0 ** random.uniform(-30, 30) if random.random() < 0.3 else 1.0
    dtype = np.float32 if random.random() < 0.4 else np.float64
    X, Y = _samples(random, n, m, d, unit)
    typical = float(np.median(np.abs(Y[Y != 0]))) if Y.any() else 1.0
    cost, penalty = _cost(random, kind, d, typical)
    sparse = random.random() < 0.45
    layout = [_csr if sparse else np.asarray] * 4
    if random.random() < 0.05:
        layout[1] = np.asarray if sparse else _csr
    arrays = [X, Y, _new(random, X, Y), _new(random, Y, X)]
    X, Y, new, back = (lay(random, array, dtype) if lay is _csr else array.astype(dtype)
                       for lay, array in zip(layout, arrays, strict=True))
    weights = _weights(random, n), _weights(random, m)
    options = _options(random, kind, arrays[0], arrays[1])
    reading = Reading() if "debias" in options else draw_reading(other, arrays[0], arrays[1], many)
    return Problem(kind, X, Y, *weights, cost, penalty, new, back, options, number % 4 == 0, reading)


def _size(random: Random) -> int:
    kind = random.random()
    return 1 if kind < 0.08 else int(random.integers(2, 9)) if kind < 0.8 else int(random.integers(9, 31))


def _samples(random: Random, n: int, m: int, d: int, unit: float) -> tuple[Floats, Floats]:
    """Two samples of one kind: counts or reals, with zeros, ties, outliers, and sizes that may differ by 60 digits."""
    rows = n + m
    kind = random.random()
    if kind < 0.35:
        values = random.poisson(random.choice([0.3, 2.0, 30.0]), (rows, d)).astype(float)
    elif kind < 0.7:
        values = random.normal(size=(rows, d)) + random.choice([0.0, 3.0, 100.0])
    elif kind < 0.85:
        values = random.integers(-2, 3, (rows, d)).astype(float)  # ties
    else:
        values = np.exp(random.normal(size=(rows, d)) * 2)
    density = random.choice([0.0, 0.02, 0.1, 0.3, 0.6, 1.0], p=[0.02, 0.08, 0.15, 0.2, 0.15, 0.4])
    values *= random.random((rows, d)) < density
    mixed = random.random()
    if mixed < 0.1:  # all magnitudes, feature by feature or entry by entry
        values *= 10.0 ** random.uniform(-30, 30, (1, d) if random.random() < 0.5 else (rows, d)) / unit
    elif mixed < 0.25:
        values *= 10.0 ** random.uniform(-3, 3, (1, d) if random.random() < 0.5 else (rows, d))
    X, Y = values[:n] * unit, values[n:] * unit
    for rows_of in (X, Y):
        if random.random() < 0.15:
            rows_of[random.integers(len(rows_of))] = 0.0
        if random.random() < 0.15:
            rows_of[random.integers(len(rows_of))] = unit * random.choice([1.0, -2.0])
        if random.random() < 0.15:
            rows_of[random.integers(len(rows_of))] = rows_of[random.integers(len(rows_of))]
    if random.random() < 0.15:
        Y[random.integers(m)] = X[random.integers(n)]
    if random.random() < 0.1:
        Y[:, random.integers(d)] = X[0, random.integers(d)]
    return np.clip(X, -1e30, 1e30), np.clip(Y, -1e30, 1e30)


def _new(random: Random, near: Floats, other: Floats) -> Floats:
    """Samples that were not fitted: near ones, targets, zeros, and some far away."""
    typical = float(np.abs(near).max(initial=0.0)) or 1.0
    picked = [near[random.integers(len(near))] * random.choice([1.0, 1.1, 0.5]), other[random.integers(len(other))]]
    if random.random() < 0.3:
        far = typical * 10.0 ** random.uniform(0, 6) if random.random() < 0.7 else 10.0 ** random.uniform(-30, 30)
        picked.append(far * random.normal(size=near.shape[1]) * (random.random(near.shape[1]) < 0.7))
    if random.random() < 0.2:
        picked.append(np.zeros(near.shape[1]))
    return np.clip(np.stack(picked), -1e30, 1e30)


def _csr(random: Random, values: Floats, dtype: Any) -> Any:
    """CSR, with some zeros stored and, at times, rows whose columns are not in order."""
    stored = (values != 0) | (random.random(values.shape) < random.choice([0.0, 0.1]))
    rows, columns = np.nonzero(stored)
    order = random.permutation(rows.size) if random.random() < 0.1 else np.arange(rows.size)
    order = order[np.argsort(rows[order], kind="stable")]
    indptr = np.concatenate([[0], np.cumsum(stored.sum(axis=1))])
    data = values[rows[order], columns[order]].astype(dtype)
    kind = sp.csr_array if random.random() < 0.8 else sp.csr_matrix
    return kind((data, columns[order].astype(np.int32), indptr.astype(np.int32)), shape=values.shape)


def _weights(random: Random, n: int) -> Floats | None:
    if random.random() < 0.6:
        return None
    weights = random.exponential(size=n) if random.random() < 0.7 else 10.0 ** random.uniform(-12, 0, n)
    weights *= random.random(n) < random.choice([1.0, 0.7])
    if not weights.any():
        weights[random.integers(n)] = 1.0
    return weights / weights.sum() if random.random() < 0.5 else weights


def _cost(random: Random, kind: str, d: int, typical: float) -> tuple[Any, Penalty]:
    share = random.random()
    if kind == "Subspace" or kind == "KOverlap":  # without a unit
        gamma = 0.0 if share < 0.08 else 10.0 ** random.uniform(-4, 6)
    elif share < 0.08:
        gamma = 0.0
    else:
        gamma = 10.0 ** random.uniform(-4, 6) if share < 0.35 else min(1e100, typical * 10.0 ** random.uniform(-3, 2))
    name = kind.split()[0]
    if kind == "SqL2":
        return oc.SqL2(), Penalty(name)
    if kind == "L1":
        weights = None
        if random.random() < 0.4:
            weights = 10.0 ** random.uniform(*(-1, 1) if random.random() < 0.6 else (-12, 12), d)
            weights *= random.random(d) < random.choice([1.0, 0.6])
            weights[random.random(d) < random.choice([0.0, 0.3], p=[0.8, 0.2])] = np.inf
        return oc.L1(gamma, weights), Penalty(name, gamma, weights)
    if kind == "STVS":
        return oc.STVS(gamma), Penalty(name, gamma)
    if name == "KOverlap":
        k, squared = int(random.integers(1, d + 1)), kind == "KOverlap"
        return oc.KOverlap(gamma, k, squared), Penalty(name, gamma, k=k, squared=squared)
    if kind == "Subspace":
        k = int(random.integers(1, d + 1))
        basis = np.linalg.qr(random.normal(size=(d, k)))[0].T if random.random() < 0.7 else np.eye(d)[:k]
        return oc.Subspace(gamma, basis), Penalty(name, gamma, basis=basis)
    return _grouped(random, gamma, d, overlap=kind.endswith("overlap"))


def _grouped(random: Random, gamma: float, d: int, overlap: bool) -> tuple[Any, Penalty]:
    if overlap:
        groups = [sorted(random.choice(d, random.integers(2, d + 1), replace=False).tolist())
                  for _ in range(random.integers(2, 5))]
        groups.append([0, 1])
        groups.append([1, 2])
    else:
        cuts = np.sort(random.integers(0, d + 1, random.integers(1, 5)))
        parts = np.split(random.permutation(d), cuts)
        groups = [sorted(part.tolist()) for part in parts if part.size]
        groups = groups[: random.integers(1, len(groups) + 1)]
    weights = None
    if random.random() < 0.5:
        weights = 10.0 ** random.uniform(-1, 1, len(groups)) * (random.random(len(groups)) < 0.85)
        if random.random() < 0.1:
            weights[random.integers(len(groups))] = np.inf
    ratio = float(random.choice([0.0, 0.3, 1.0], p=[0.6, 0.35, 0.05]))
    listed = None if weights is None else weights.tolist()
    cost = oc.GroupLasso(gamma, groups, weights=listed, l1_ratio=ratio)
    return cost, Penalty("GroupLasso", gamma, groups=groups, group_weights=listed, l1_ratio=ratio)


def _options(random: Random, kind: str, X: Floats, Y: Floats) -> dict[str, Any]:
    scale = draw_kind(random, SCALES)
    epsilon = 10.0 ** random.uniform(-4, 2)
    square = 0.5 * float(((X[:, None] - Y[None]) ** 2).sum(axis=2).mean())
    if scale == "absolute":
        epsilon *= square or 1.0
    if scale == "perplexity":
        epsilon = 1.0 + random.random() * (Y.shape[0] - 1)
    options: dict[str, Any] = {"epsilon": float(epsilon), "epsilon_scale": scale}
    if random.random() < 0.3 and kind != "GroupLasso overlap":
        options["ties"] = "occam"
    if random.random() < 0.25:
        options["relax"] = float(random.choice([0.5, 1.0]))
    if random.random() < 0.15:
        options["reach"] = float((square or 1.0) * 10.0 ** random.uniform(-3, 3))
    elif random.random() < 0.06:
        options["debias"] = True
    options["tol"] = float(random.choice([1e-2, 1e-4, 1e-7], p=[0.2, 0.6, 0.2]))
    options["max_iter"] = int(random.choice([5, 200], p=[0.1, 0.9]))
    return options
