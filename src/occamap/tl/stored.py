"""Where results stand in an AnnData, written and read back: nothing else knows the keys."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from occamap._kernels.columns import column_sums
from occamap._record import versions, without_none
from occamap.costs import Cost
from occamap.errors import InputError
from occamap.maps import MongeMap
from occamap.maps.saved import COSTS
from occamap.tl.cells import Mask, Rows, check_adata, labels, numbers, some

SETTINGS = "epsilon", "epsilon_scale", "ties", "relax", "reach", "tol", "max_iter", "max_memory"


@dataclass(frozen=True)
class Design:
    """Which cells were compared, and what was read of them."""

    groupby: str
    control: str
    target: str
    layer: str | None = None
    counts: str = "refuse"


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
        """The cells of the "control" or of the "target"."""
        return np.flatnonzero(labels(self.adata, self.design.groupby) == getattr(self.design, side))

    def cells(self, side: str) -> Any:
        """Their numbers, as CSR."""
        rows, genes = self.rows(side), self.genes
        if not rows.size:
            return sp.csr_array((0, int(genes.sum())), dtype=np.float32)
        matrix = numbers(self.adata, rows, self.design.layer, self.design.counts, genes)
        return sp.csr_array(matrix)

    def moves(self) -> sp.csr_array:
        """The displacements of the control cells, in the genes that were used."""
        return sp.csr_array(
            sp.csr_array(self.adata.layers[f"{self.key}_displacement"])[self.rows("control")][:, self.genes]
        )

    def unfitted(self) -> MongeMap:
        """The map that was fitted, without what it learned; ε is the one that it had."""
        with _sound(self.key):
            params = self.entry["params"]
            cost = cost_from(params["cost"])
            rest = {name: params[name] for name in SETTINGS if name in params}
            return MongeMap(cost, **{**rest, "epsilon": float(self.entry["epsilon"]), "epsilon_scale": "absolute"})


def write(adata: Any, key: str, design: Design, rows: Rows, genes: Mask, moves: sp.csr_array, fitted: MongeMap) -> None:
    """Displacements to layers, genes to var, cells to obs, parameters and status to uns."""
    n, d = adata.shape
    with warnings.catch_warnings():  # a view becomes an AnnData of its own, as with scanpy's functions
        warnings.filterwarnings("ignore", category=UserWarning, message=".*view.*")
        adata.layers[f"{key}_displacement"] = _spread(moves, rows, np.flatnonzero(genes), (n, d))
        share, mean = (np.full(d, np.nan) for _ in range(2))
        share[genes] = np.bincount(moves.indices, minlength=moves.shape[1]) / moves.shape[0]
        mean[genes] = column_sums(moves)[0] / moves.shape[0]
        adata.var[f"{key}_share"], adata.var[f"{key}_mean"] = share, mean
        moving, distance = (np.full(n, np.nan) for _ in range(2))
        moving[rows] = np.diff(moves.indptr)
        distance[rows] = np.sqrt(moves.astype(np.float64).power(2).sum(axis=1))
        adata.obs[f"{key}_n_genes"], adata.obs[f"{key}_distance"] = moving, distance
        adata.uns[key] = describe(vars(design), fitted)


def describe(asked: dict[str, Any], fitted: MongeMap) -> dict[str, Any]:
    """What was asked, the parameters of the map, status and versions, in values that HDF5 can hold."""
    report = fitted.report_
    settings = {name: getattr(fitted, name) for name in SETTINGS}
    return without_none(
        {
            "params": {**asked, **settings, "cost": describe_cost(fitted._towards.cost)},
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


def describe_cost(cost: Cost) -> dict[str, Any]:
    """The name of a cost and its parameters."""
    return {"name": type(cost).__name__, **{f.name: getattr(cost, f.name) for f in fields(cost)}}  # type: ignore[arg-type]


def cost_from(entry: dict[str, Any]) -> Cost:
    """The cost that `describe_cost` described."""
    given = {name: _scalar(value) for name, value in entry.items() if name != "name"}
    return COSTS[str(entry["name"])](**given)


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
