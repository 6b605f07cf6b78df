"""`pool` and `match` of a generated problem: in every form that they may have, and now and then with a flaw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Random = np.random.Generator

POOLED, MATCHED, FLAWED = 0.25, 0.15, 0.04
MANY = 0.01  # of the problems: source samples enough for several blocks, and for "auto" to leave some of them out
POOLS = {"number": 40, "auto": 18, "labels": 20, "matrix": 22}
MATCHES = {"number": 45, "pair": 35, "transformer": 20}


@dataclass(frozen=True, eq=False)
class Reading:
    """`pool` and `match`, and what is wrong with them: where anything is, a fit has to be refused."""

    pool: Any = None
    match: Any = None
    flaw: str = ""

    @property
    def label(self) -> str:
        """What is set."""
        return ", pool" * (self.pool is not None) + ", match" * (self.match is not None)


class Projection:
    """A transformer: rows about the mean of those that it was fitted to, times a matrix."""

    def __init__(self, matrix: Floats) -> None:
        self.matrix, self.mean = matrix, np.full(matrix.shape[0], np.nan)

    def fit(self, rows: Any) -> Projection:
        self.mean = dense_rows(rows).mean(axis=0)
        return self

    def transform(self, rows: Any) -> Floats:
        return np.asarray((dense_rows(rows) - self.mean) @ self.matrix)


def dense_rows(rows: Any) -> Floats:
    return (rows.toarray() if sp.issparse(rows) else np.asarray(rows)).astype(np.float64)


def draw_reading(random: Random, X: Floats, Y: Floats, many: bool) -> Reading:
    """`pool`, `match`, both or neither, for these samples."""
    pooled, matched = random.random(2) < (0.8 if many else POOLED, MATCHED)
    if random.random() < FLAWED * (pooled or matched):
        return _flawed(random, X, Y)
    return Reading(_pool(random, X.shape[0]) if pooled else None, _match(random, X, Y) if matched else None)


def draw_kind(random: Random, shares: dict[str, int]) -> str:
    """One of these, each as often as its share."""
    return str(random.choice(list(shares), p=np.array(list(shares.values())) / sum(shares.values())))


# -- pool ------------------------------------------------------------------------------------------------------


def _pool(random: Random, n: int) -> Any:
    kind = draw_kind(random, POOLS)
    if kind == "number":
        share = random.random()
        number = 1 if share < 0.2 else n + 3 if share < 0.3 else random.integers(1, n + 1)
        return int(number) if random.random() < 0.8 else np.int64(number)
    if kind == "auto":
        return "auto"
    return _labels(random, n) if kind == "labels" else _matrix(random, n)


def _labels(random: Random, n: int) -> Any:
    codes = random.integers(random.integers(1, min(n, 6) + 1), size=n)
    form = random.integers(6)
    if form == 0:
        return codes
    if form == 1:
        return codes - 0.5
    if form == 2:
        return codes % 2 == 0
    names = np.array(["T", "B cell", "B", "", "naïve", "0"])[codes]
    return names if form == 3 else names.astype(object) if form == 4 else names.tolist()


def _matrix(random: Random, n: int) -> Any:
    """Row-stochastic: of a few entries or all, a permutation, the same for every sample; in several containers."""
    kind = random.integers(4)
    if kind == 0:
        W = np.eye(n)[random.permutation(n)]
    elif kind == 1:
        W = np.tile(random.dirichlet(np.ones(n)), (n, 1))
    else:
        W = random.exponential(size=(n, n)) if random.random() < 0.6 else 10.0 ** random.uniform(-12, 0, (n, n))
        W = W * ((random.random((n, n)) < (0.3 if kind == 2 else 1.0)) | np.eye(n, dtype=bool))
        W = W / W.sum(axis=1, keepdims=True)
    if random.random() < 0.15:
        W = W * (1 + 5e-7 * random.uniform(-1, 1, (n, 1)))
    container = random.integers(5)
    if container == 0:
        return W
    if container == 1:
        return W.astype(np.float32)
    return (sp.csr_array, sp.csc_array, _twice)[container - 2](W)


def _twice(W: Floats) -> sp.csr_array:
    """CSR that stores every entry in two parts, the columns of a row from the last to the first."""
    rows, columns = np.nonzero(W)
    order = np.argsort(-columns, kind="stable")
    order = order[np.argsort(rows[order], kind="stable")]
    data = np.repeat(W[rows[order], columns[order]], 2) * np.tile([0.25, 0.75], order.size)
    indptr = np.concatenate([[0], 2 * np.cumsum((W != 0).sum(axis=1))])
    return sp.csr_array((data, np.repeat(columns[order], 2), indptr), shape=W.shape)


# -- match -----------------------------------------------------------------------------------------------------


def _match(random: Random, X: Floats, Y: Floats) -> Any:
    kind, d = draw_kind(random, MATCHES), X.shape[1]
    if kind == "number":
        return int(random.integers(1, d + 1)) if random.random() < 0.85 else d + 3
    width = int(random.integers(1, 6))
    if kind == "transformer":
        return Projection(random.normal(size=(d, width)) * (random.random((d, width)) < 0.7))
    return _coordinates(random, X, Y, width)


def _coordinates(random: Random, X: Floats, Y: Floats, width: int) -> tuple[Any, Any]:
    """Of both samples: projections, numbers of their own, or whole ones with ties, of any size."""
    n, rows = X.shape[0], X.shape[0] + Y.shape[0]
    kind = random.random()
    if kind < 0.4:
        both = np.concatenate([X, Y]) @ random.normal(size=(X.shape[1], width))
    elif kind < 0.8:
        both = random.normal(size=(rows, width)) + random.choice([0.0, 100.0])
    else:
        both = random.integers(-1, 3, (rows, width)).astype(float)
    if random.random() < 0.2:
        both = both * 10.0 ** random.uniform(-10, 10)
    dtype = np.float32 if random.random() < 0.2 else np.float64
    wraps = [sp.csr_array if random.random() < 0.1 else np.asarray for _ in range(2)]
    U, V = (wrap(part.astype(dtype)) for wrap, part in zip(wraps, (both[:n], both[n:]), strict=True))
    return U, V


# -- flaws -----------------------------------------------------------------------------------------------------


def _flawed(random: Random, X: Floats, Y: Floats) -> Reading:
    """One that has to be refused."""
    n, m = X.shape[0], Y.shape[0]
    W, U, V = np.full((n, n), 1 / n), np.ones((n, 2)), np.ones((m, 2))
    pools: dict[str, Any] = {
        "pool of 0": 0,
        "pool of 1.5": 1.5,
        "pool of another name": "nearest",
        "labels of too many samples": np.zeros(n + 1, int),
        "a label of None": np.array([None, *["T"] * (n - 1)], dtype=object),
        "a label of NaN": np.where(np.arange(n) == 0, np.nan, 1.0),
        "rows that sum to 2": 2 * W,
        "rows of another number": np.full((n + 1, n + 1), 1 / (n + 1)),
        "a weight below 0": W + np.pad([[-2.0, 2.0]], ((0, n - 1), (0, n - 2))) if n > 1 else -W,
        "a weight of NaN": sp.csr_array(W * np.where(np.eye(n) > 0, np.nan, 1.0)),
    }
    matches: dict[str, Any] = {
        "match of 0": 0,
        "match of 1.5": 1.5,
        "match of another name": "pca",
        "coordinates of too many samples": (np.ones((n + 1, 2)), V),
        "coordinates of three samples": (U, V, V),
        "coordinates of different width": (U, np.ones((m, 3))),
        "a coordinate of NaN": (U, V * np.nan),
        "coordinates of one sample": (U[0], V[0]),
    }
    if random.random() < 0.5:
        flaw = str(random.choice(list(pools)))
        return Reading(pools[flaw], None, flaw)
    flaw = str(random.choice(list(matches)))
    return Reading(None, matches[flaw], flaw)
