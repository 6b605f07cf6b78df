"""Where results stand in an AnnData, written and read back: nothing else knows the keys."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from occamap._kernels.columns import column_sums
from occamap._record import versions, without_none
from occamap.costs import KINDS, Cost
from occamap.errors import InputError
from occamap.maps import MongeMap
from occamap.tl.cells import Mask, Rows, are_whole, check_adata, labels, log_base, numbers, replicate_labels, some
from occamap.tl.gene_sets import members_matrix
from occamap.tl.resolution import match_of, pool_of, replicate_of, within_of

SETTINGS = "epsilon", "epsilon_scale", "ties", "relax", "reach", "tol", "max_iter", "max_memory", "fdr"


@dataclass(frozen=True)
class Design:
    """Which cells were compared, and what was read of them."""

    groupby: str
    control: str
    target: str
    layer: str | None = None
    counts: str = "refuse"
    within: str | None = None
    replicate: str | None = None


DESIGN = tuple(field.name for field in fields(Design))


@dataclass(frozen=True, eq=False)
class Stored:
    """A map in an AnnData: what was asked, and what moves."""

    adata: Any
    key: str
    design: Design
    entry: dict[str, Any]

    @property
    def genes(self) -> Mask:
        """The genes that were used."""
        return np.asarray(self.adata.var[f"{self.key}_mean"].notna())

    @property
    def names(self) -> NDArray[Any]:
        return np.asarray(self.adata.var_names)[self.genes]

    def rows(self, side: str) -> Rows:
        """The cells of the "control" or of the "target" that were matched."""
        return self._pair[("control", "target").index(side)]

    @cached_property
    def _pair(self) -> tuple[Rows, Rows]:
        groups = labels(self.adata, self.design.groupby)
        control, target = (np.flatnonzero(groups == name) for name in (self.design.control, self.design.target))
        if self.design.replicate is not None:
            known = np.array([entry is not None for entry in replicate_labels(self.adata, self.design.replicate)])
            control, target = control[known[control]], target[known[target]]
        if self.design.within is None:
            return control, target
        control = control[np.asarray(self.adata.obs[f"{self.key}_distance"].notna())[control]]
        found = labels(self.adata, self.design.within, "within")
        return control, target[np.isin(found[target].astype(str), found[control].astype(str))]

    def cells(self, side: str) -> Any:
        """Their numbers, as CSR."""
        rows, genes = self.rows(side), self.genes
        if not rows.size:
            return sp.csr_array((0, int(genes.sum())), dtype=np.float32)
        matrix = numbers(self.adata, rows, self.design.layer, self.design.counts, genes)
        return sp.csr_array(matrix)

    def log_base(self) -> float:
        """The base of logs among the numbers: the one that scanpy noted, or e, also for counts that are logged here."""
        logged_here = self.design.counts == "normalize" and self._holds_counts()
        return float(np.e) if logged_here else log_base(self.adata)

    def _holds_counts(self) -> bool:
        """Whether the first cells have whole numbers only."""
        some_rows = self.rows("control")[:50]
        return are_whole(numbers(self.adata, some_rows, self.design.layer, "keep"))

    def moves(self) -> sp.csr_array:
        """The displacements of the control cells, in the genes that were used."""
        return sp.csr_array(
            sp.csr_array(self.adata.layers[f"{self.key}_displacement"])[self.rows("control")][:, self.genes]
        )

    def match(self) -> sp.csr_array | None:
        """The weights of the target cells that each control cell is matched with; None if they were not kept."""
        key = f"{self.key}_match"
        if key not in self.adata.obsp:
            return None
        weights = sp.csr_array(self.adata.obsp[key])[self.rows("control")][:, self.rows("target")]
        return sp.csr_array(weights).astype(np.float64)

    def mass_within(self, groups: NDArray[np.int64], others: NDArray[np.int64], count: int) -> NDArray[np.float64]:
        """The share of the mass of each group of control cells that is matched with target cells of the same group.

        `groups` and `others` are codes of the control and the target cells. NaN where the match was not kept.
        """
        weights = self.match()
        if weights is None:
            return np.full(count, np.nan)
        rows = np.repeat(np.arange(weights.shape[0]), np.diff(weights.indptr))
        same = np.bincount(rows, weights.data * (groups[rows] == others[weights.indices]), minlength=groups.size)
        every = np.bincount(rows, weights.data, minlength=groups.size)
        share = np.divide(same, every, out=np.zeros(groups.size), where=every > 0)
        sizes = np.bincount(groups, minlength=count)
        return np.asarray(np.bincount(groups, share, minlength=count) / np.maximum(sizes, 1))

    def groups(self) -> tuple[list[str], list[NDArray[np.int64]], NDArray[np.float64] | None] | None:
        """Names, genes (by their place among the used ones) and weights of the groups that the cost is over, if any.

        Genes that are no longer in adata have left them; groups without genes are gone.
        """
        key = f"{self.key}_gene_sets"
        if key not in self.adata.varm:
            return None
        with _sound(self.key):
            entry = self.entry["params"]["cost"]
            by_column = sp.csc_array(sp.csr_array(self.adata.varm[key])[self.genes])
            members = np.split(by_column.indices.astype(np.int64), by_column.indptr[1:-1])
            held = np.diff(by_column.indptr) > 0
            names = [str(name) for name in np.asarray(entry["groups"])[held]]
            weights = np.asarray(entry["weights"], dtype=np.float64)[held] if "weights" in entry else None
            return names, [member for member, some_left in zip(members, held, strict=True) if some_left], weights

    def cost(self) -> Cost:
        """The cost of the map, over the genes that are still there."""
        entry, groups = dict(self.entry["params"]["cost"]), self.groups()
        if f"{self.key}_weight" in self.adata.var:
            entry["weights"] = np.asarray(self.adata.var[f"{self.key}_weight"], dtype=np.float64)[self.genes]
        if groups is not None:
            names, members, weights = groups
            entry |= {"groups": dict(zip(names, members, strict=True)), "weights": weights}
        return cost_from(entry)

    def unfitted(self) -> MongeMap:
        """The map that was fitted, without what it learned; ε is the one that it had."""
        with _sound(self.key):
            params, cost = self.entry["params"], self.cost()
            rest = {name: _scalar(params[name]) for name in SETTINGS if name in params}
            rows = self.rows("control"), self.rows("target")
            rest["pool"] = pool_of(self.adata, _scalar(params.get("pool")), rows[0])
            rest["match"] = match_of(self.adata, _scalar(params.get("match")), rows)
            rest["within"] = within_of(self.adata, self.design.within, rows)
            tested = self.design.replicate if rest.get("fdr") is not None else None
            rest["replicate"] = replicate_of(self.adata, tested, rows)
            return MongeMap(cost, **{**rest, "epsilon": float(self.entry["epsilon"]), "epsilon_scale": "absolute"})


def write(
    adata: Any,
    key: str,
    design: Design,
    rows: Rows,
    genes: Mask,
    moves: sp.csr_array,
    fitted: MongeMap,
    asked: dict[str, Any] | None = None,
    targets: Rows | None = None,
    q: sp.csr_array | None = None,
) -> None:
    """Displacements and q-values to layers, genes to var, cells to obs, the match to obsp, parameters, status to uns.

    `asked` are parameters to note beside those of the map.
    """
    n, d = adata.shape
    with warnings.catch_warnings():  # a view becomes an AnnData of its own, as with scanpy's functions
        warnings.filterwarnings("ignore", category=UserWarning, message=".*view.*")
        adata.layers[f"{key}_displacement"] = _spread(moves, rows, np.flatnonzero(genes), (n, d))
        if q is not None:
            adata.layers[f"{key}_q"] = _spread(q, rows, np.flatnonzero(genes), (n, d))
        elif f"{key}_q" in adata.layers:
            del adata.layers[f"{key}_q"]
        share, mean = (np.full(d, np.nan) for _ in range(2))
        share[genes] = np.bincount(moves.indices, minlength=moves.shape[1]) / moves.shape[0]
        mean[genes] = column_sums(moves)[0] / moves.shape[0]
        adata.var[f"{key}_share"], adata.var[f"{key}_mean"] = share, mean
        moving, distance = (np.full(n, np.nan) for _ in range(2))
        moving[rows] = np.diff(moves.indptr)
        distance[rows] = np.sqrt(moves.astype(np.float64).power(2).sum(axis=1))
        adata.obs[f"{key}_n_genes"], adata.obs[f"{key}_distance"] = moving, distance
        response = np.full(n, np.nan)
        response[rows] = along_mean(moves)
        adata.obs[f"{key}_response"] = response
        if targets is not None:
            adata.obsp[f"{key}_match"] = _spread(fitted._largest_weights(), rows, targets, (n, n))
        adata.uns[key] = describe({**vars(design), **(asked or {})}, fitted)
        _put_cost(adata, key, genes, fitted._forward.cost)


def along_mean(moves: sp.csr_array) -> NDArray[np.float64]:
    """How far each row moves in the direction of the mean of all rows."""
    mean = column_sums(moves)[0]
    size = float(np.linalg.norm(mean))
    return np.asarray(moves.astype(np.float64) @ (mean / size)) if size > 0 else np.zeros(moves.shape[0])


def _put_cost(adata: Any, key: str, genes: Mask, cost: Cost) -> None:
    """What the cost knows of each gene goes to var and varm, where it follows the genes; else nothing is left there."""
    weight, sets = f"{key}_weight", f"{key}_gene_sets"
    groups, weights = getattr(cost, "groups", None), getattr(cost, "weights", None)
    if weight in adata.var:
        del adata.var[weight]
    if sets in adata.varm:
        del adata.varm[sets]
    if groups is not None:
        members = members_matrix(groups.values(), int(genes.sum()))
        adata.varm[sets] = _spread(members, np.flatnonzero(genes), np.arange(len(groups)), (genes.size, len(groups)))
    elif weights is not None:
        whole = np.full(genes.size, np.nan)
        whole[genes] = weights
        adata.var[weight] = whole
        del adata.uns[key]["params"]["cost"]["weights"]


def describe(asked: dict[str, Any], fitted: MongeMap) -> dict[str, Any]:
    """What was asked, the parameters of the map, status and versions, in values that HDF5 can hold."""
    report = fitted.report_
    settings = {name: getattr(fitted, name) for name in SETTINGS}
    return without_none(
        {
            "params": {**resolution(fitted), **asked, **settings, "cost": describe_cost(fitted._forward.cost)},
            **({} if fitted.fdr is None else {"critical": critical(fitted), "n_tested": fitted.threshold_.n_tested}),
            "status": str(report.status),
            "message": report.message,
            "epsilon": report.epsilon,
            "effective_targets": report.effective_targets,
            "n_targets": report.n_targets,
            "n_iter": report.n_iter,
            "errors": np.array(report.errors),
            "seconds": report.seconds,
            "versions": versions(),
        }
    )


def critical(fitted: MongeMap) -> float | None:
    """The score (z) that a move needs; None if nothing moves."""
    found = fitted.threshold_.critical
    return found if np.isfinite(found) else None


def resolution(fitted: MongeMap) -> dict[str, Any]:
    """How a map is pooled and matched, in words or numbers."""
    pool, match = fitted.pool, fitted.match
    if sp.issparse(pool) or np.ndim(pool) > 0:
        pool = "matrix" if sp.issparse(pool) or np.ndim(pool) == 2 else "labels"
    if match is not None and not isinstance(match, int | np.integer):
        match = "coordinates" if isinstance(match, tuple | list) else type(match).__name__
    return {"pool": pool, "match": match}


def describe_cost(cost: Cost) -> dict[str, Any]:
    """The name of a cost and its parameters; of groups, their names alone, as HDF5 can hold them."""
    entry = {"name": type(cost).__name__, **{f.name: getattr(cost, f.name) for f in fields(cost)}}  # type: ignore[arg-type]
    if isinstance(entry.get("groups"), Mapping):
        entry["groups"] = np.array([str(name) for name in entry["groups"]], dtype=object)
    return entry


def cost_from(entry: dict[str, Any]) -> Cost:
    """The cost that `describe_cost` described."""
    given = {name: _scalar(value) for name, value in entry.items() if name != "name"}
    return KINDS[str(entry["name"])](**given)


def read(adata: Any, key: str) -> Stored:
    """The map that `monge_map` wrote under this key."""
    check_adata(adata)
    parts = {"uns": key, "layers": f"{key}_displacement", "var": f"{key}_mean"}
    absent = [f"adata.{part}[{name!r}]" for part, name in parts.items() if name not in getattr(adata, part)]
    if absent:
        known = [name for name, entry in adata.uns.items() if isinstance(entry, dict) and "effective_targets" in entry]
        there = f"; there are maps under {some(known)}" if known else ": run occamap.tl.monge_map first"
        raise InputError(f"key must be that of a map in adata, but {absent[0]} is absent{there}")
    entry = adata.uns[key]
    with _sound(key):
        params = {name: entry["params"][name] for name in DESIGN if name in entry["params"]}
        return Stored(adata, key, Design(**params), entry)


@contextmanager
def _sound(key: str) -> Iterator[None]:
    """Say in a sentence where what stands in uns is not what was written there."""
    try:
        yield
    except InputError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(
            f"adata.uns[{key!r}] is not what occamap.tl.monge_map wrote: run it again ({type(error).__name__}: {error})"
        ) from error


def _spread(moves: sp.csr_array, rows: Rows, columns: NDArray[np.int64], shape: tuple[int, int]) -> sp.csr_matrix:
    """These rows and columns of an otherwise empty matrix."""
    counts = np.zeros(shape[0], dtype=np.int64)
    counts[rows] = np.diff(moves.indptr)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    return sp.csr_matrix((moves.data, columns[moves.indices].astype(np.int32), indptr), shape=shape)


def _scalar(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
