"""Samples of a Dask array moved where they are, chunk by chunk, when someone asks for the result."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from occamap._containers import is_anndata
from occamap._kernels.jit import LANES
from occamap._optional import optional
from occamap._validate import Samples, check_same_features
from occamap.maps.progress import Progress
from occamap.scale import given_client, results, tasks
from occamap.scale.blocks import check_array

if TYPE_CHECKING:
    from occamap.maps.monge_map import MongeMap

BLOCK = 1024  # rows a task at most: what is lost with a worker, and how often progress is told


def moved_later(model: MongeMap, X: Any, method: str) -> Any:
    """What this method of the map gives for X, as a Dask array, or an AnnData of one."""
    check_is_fitted(model, "g_")
    name = "Y" if method == "inverse_transform" else "X"
    array = check_array(X.X if is_anndata(X) else X, name)
    names = np.asarray(X.var_names, dtype=object) if is_anndata(X) else None
    shape = Samples(array.shape, np.empty((0, 0)), names=names)
    known = getattr(model, "feature_names_in_", None)
    check_same_features(shape, name, model.n_features_in_, known, "the fitted samples")
    carried = model if method == "inverse_transform" else _carried(model)
    meta = array._meta if method != "displacement" else sp.csr_array((0, array.shape[1]), dtype=array.dtype)
    travels = optional("dask", "a Dask array").delayed(carried, pure=True)
    moved = array.map_blocks(_move, travels, method, dtype=array.dtype, meta=meta)
    return type(X)(moved, obs=X.obs.copy(), var=X.var.copy()) if is_anndata(X) else moved


def moved_on_cluster(model: MongeMap, samples: Samples, client: Any) -> sp.csr_array:
    """The displacements of these samples, by the workers of a cluster."""
    client = given_client(client)
    step = max(LANES, min(BLOCK, -(-samples.shape[0] // (2 * len(client.nthreads())))))
    with tasks(client) as submit, Progress(model.verbose) as progress:
        carried = submit.send(_carried(model))
        parts = []
        for start in range(0, samples.shape[0], step):
            rows = samples.rows(start, min(start + step, samples.shape[0]))
            parts.append(submit(_move, submit.send(_raw(rows)), carried, "displacement"))
        done = 0

        def told(_: int, __: Any) -> None:
            nonlocal done
            done += 1
            progress.moves(done / len(parts))

        return sp.csr_array(sp.vstack(results(client, parts, told), format="csr"))


def _raw(rows: Samples) -> Any:
    return rows.csr() if rows.is_sparse else rows.data


def _carried(model: MongeMap) -> MongeMap:
    """The map without its source, which has no part in moving samples and need not travel, unless they are pooled."""
    carried: MongeMap = copy.copy(model)
    carried._backward = None
    if model.pool is None:
        carried._given = None  # type: ignore[assignment]
    else:
        model._find_places()  # here, once
        carried._given, carried._space_held = model._source, model._space_held
    carried.set_params(n_jobs=1, verbose=False, max_memory=None)
    return carried


def _move(chunk: Any, model: MongeMap, method: str) -> Any:
    """One chunk, on the worker that has it."""
    return getattr(model, method)(chunk)
