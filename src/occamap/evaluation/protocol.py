"""What is to be evaluated, checked before any work, and what of it decides the numbers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from occamap._backed import is_backed, read
from occamap._containers import in_memory
from occamap._validate import Samples, check_choice, check_count, check_number, check_samples
from occamap.costs import L1, STVS, Cost, KOverlap, SqL2
from occamap.errors import InputError
from occamap.evaluation.conditions import Condition, find_conditions, several
from occamap.selection.plan import check_pools
from occamap.sinkhorn import EpsilonRule
from occamap.tl.cells import check_adata, labels, matrix_of, some

SQL2, SQL2_PCA, L1_, STVS_, KOVERLAP = "sql2", "sql2_pca", "l1", "stvs", "koverlap"
COSTS = SQL2, SQL2_PCA, L1_, STVS_, KOVERLAP
BASELINES = "identity", "mean_shift", "treated"
GAMMAS = 0.01, 0.03, 0.1, 0.3, 1.0, 3.0
OPEN = "splits", "targets"  # more of these may be asked for later
SPLITS, TEST_SIZE = 10, 0.2  # of random splits, if not given
MOST = 10_000  # splits
ROWS = 1_024  # of a matrix in a file, read at a time


@dataclass(frozen=True)
class Protocol:
    """Every parameter that decides the numbers."""

    groupby: str
    control: str
    targets: tuple[str, ...]
    within: str | None
    layer: str | None
    counts: str
    costs: tuple[str, ...]
    gammas: tuple[float, ...]
    k: int | None
    epsilon: tuple[float, ...]
    epsilon_scale: str
    ties: str
    relax: float
    pool: int | str | None
    splits: int | None
    test_size: float | None
    replicate: str | None
    hvg: int | None
    components: int
    markers: int
    close_ups: tuple[str, ...]
    tol: float
    max_iter: int
    random_state: int

    def penalties(self) -> list[tuple[str, Cost, tuple[float, ...]]]:
        """Name, cost and γ of each family of maps in gene space; ½ℓ2² is ℓ1 at γ = 0."""
        found: list[tuple[str, Cost, tuple[float, ...]]] = []
        plain = (0.0,) if SQL2 in self.costs else ()
        if plain or L1_ in self.costs:
            found.append((L1_, L1(1.0), plain + (self.gammas if L1_ in self.costs else ())))
        if STVS_ in self.costs:
            found.append((STVS_, STVS(1.0), self.gammas))
        if KOVERLAP in self.costs and self.k is not None:
            found.append((KOVERLAP, KOverlap(1.0, self.k), self.gammas))
        return found

    def all_costs(self) -> list[Cost]:
        """A cost of each kind that an evaluation computes: of maps, and ½ℓ2² for what they are compared by."""
        return [SqL2(), *(cost for _, cost, _ in self.penalties())]

    def fingerprint(self, data: str) -> str:
        """Of what decides a row, on these data: not of how many splits and which targets there are."""
        decisive = {name: value for name, value in asdict(self).items() if name not in OPEN}
        text = json.dumps([decisive, data], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def rows_a_split(protocol: Protocol) -> int:
    """How many rows the table has for each split of a condition."""
    maps = sum(len(gammas) for _, _, gammas in protocol.penalties()) + (SQL2_PCA in protocol.costs)
    return maps * len(protocol.epsilon) + len(BASELINES)


def check_protocol(
    adata: Any,
    *,
    targets: Any,
    costs: Sequence[str],
    gammas: Sequence[float] | None,
    epsilon: Any,
    close_ups: Sequence[str],
    **rest: Any,
) -> tuple[Protocol, list[Condition], list[str]]:
    """The protocol, its conditions and what is left out of them, or an error that names the argument."""
    check_adata(adata)
    names = several(costs, "costs")
    for name in names:
        check_choice(name, "costs", COSTS)
    if not names or len(set(names)) < len(names):
        raise InputError(f"costs must be one or several of {', '.join(COSTS)}, each once; got {costs!r}")
    if (KOVERLAP in names) != (rest["k"] is not None):
        raise InputError(f"k must be given with the cost {KOVERLAP!r}, and with no other; got {rest['k']!r}")
    strong = any(name not in (SQL2, SQL2_PCA) for name in names)
    if gammas is not None and not strong:
        raise InputError(f"gammas must be given only with costs that have one, not with {' and '.join(names)} alone")
    grid = () if not strong else GAMMAS if gammas is None else several(gammas, "gammas")
    strengths = tuple(check_number(gamma, "gammas", 0, open_low=True) for gamma in grid)
    if list(strengths) != sorted(set(strengths)) or (strong and not strengths):
        raise InputError(f"gammas must be rising numbers > 0; got {list(grid)!r}")
    epsilons = several(epsilon, "epsilon")
    for value in epsilons:
        EpsilonRule(value, rest["epsilon_scale"])
    if not epsilons or len(set(epsilons)) < len(epsilons):
        raise InputError(f"epsilon must be one or several different numbers; got {epsilon!r}")
    check_choice(rest["ties"], "ties", ("zero", "occam"))
    rest["relax"] = check_number(rest["relax"], "relax", 0, 1)
    pools = check_pools(rest["pool"])
    if len(pools) != 1:
        raise InputError(f"pool must be None, 'auto' or one number of neighbours; got {rest['pool']!r}")
    rest["pool"] = pools[0]
    rest |= _check_splits(rest["replicate"], rest["splits"], rest["test_size"])
    rest["tol"] = check_number(rest["tol"], "tol", 0, open_low=True)
    for name, low in {"components": 1, "markers": 2, "max_iter": 1, "random_state": 0}.items():
        rest[name] = check_count(rest[name], name, low)
    if rest["k"] is not None:
        rest["k"] = check_count(rest["k"], "k")
    if rest["hvg"] is not None:
        rest["hvg"] = check_count(rest["hvg"], "hvg", 2)
        if rest["hvg"] > adata.n_vars:
            raise InputError(f"hvg must be at most the number of genes, {adata.n_vars:,}; got {rest['hvg']}")
    found, left_out = find_conditions(adata, targets, rest)
    shown = tuple(str(label) for label in several(close_ups, "close_ups"))
    unknown = [label for label in shown if label not in {condition.label for condition in found}]
    if unknown:
        there = some([condition.label for condition in found], 20)
        raise InputError(f"close_ups must be conditions ({there}); got {unknown[0]!r}")
    wanted = tuple(dict.fromkeys(condition.target for condition in found))
    plain = {**rest, "groupby": str(rest["groupby"]), "control": str(rest["control"])}
    plain["replicate"] = None if rest["replicate"] is None else str(rest["replicate"])
    protocol = Protocol(
        targets=wanted,
        costs=names,
        gammas=strengths,
        epsilon=tuple(float(value) for value in epsilons),
        close_ups=shown,
        **plain,
    )
    return protocol, found, left_out


def _check_splits(replicate: Any, splits: Any, test_size: Any) -> dict[str, Any]:
    """The number of random splits and the share to test on; None for both where replicates are left out."""
    given = {"splits": splits, "test_size": test_size}
    if replicate is not None:
        for name, value in given.items():
            if value is not None:
                raise InputError(
                    f"{name} must not be given with replicate={str(replicate)!r}, which leaves out each replicate "
                    f"once; got {value!r}"
                )
        return given
    count = check_count(SPLITS if splits is None else splits, "splits", 1)
    if count > MOST:
        raise InputError(f"splits must be at most {MOST:,}; got {count:,}")
    return {
        "splits": count,
        "test_size": check_number(TEST_SIZE if test_size is None else test_size, "test_size", 0.05, 0.5),
    }


def digest(adata: Any, layer: str | None, columns: Sequence[str]) -> str:
    """Of the numbers, the names of the genes, and these columns of obs; a matrix in a file is read a part at a time."""
    parts = [hashlib.sha256() for _ in range(3)]
    for rows in _row_blocks(matrix_of(adata, layer)):
        indptr, *entries = rows.stored()
        for part, array in zip(parts, (np.diff(indptr), *entries), strict=True):
            part.update(np.ascontiguousarray(array).data)
    found = hashlib.sha256(b"".join(part.digest() for part in parts))
    for names in (adata.var_names, *(labels(adata, column) for column in columns)):
        found.update(json.dumps([None if name is None else str(name) for name in names]).encode())
    return found.hexdigest()


def _row_blocks(matrix: Any) -> Iterator[Samples]:
    """The rows, from top to bottom, as many at a time as are stored; those in a file by themselves."""
    if not is_backed(matrix) or getattr(matrix, "format", "csr") != "csr":  # CSC cannot be read by rows
        yield check_samples(in_memory(matrix, "adata"), "adata")
        return
    for start in range(0, matrix.shape[0], ROWS):
        rows = np.arange(start, min(start + ROWS, matrix.shape[0]))
        yield check_samples(read(matrix, "adata", rows), "adata")
