"""move: cells that a map has not seen, from file to file."""

from __future__ import annotations

from typing import Any

import numpy as np

from occamap import _h5ad as cells
from occamap import tl
from occamap._files import check_target
from occamap.errors import InputError
from occamap.runs.options import Stage, no_stage

KEY = "occamap"


def move(
    model: str,
    data: str,
    out: str,
    groupby: str | None = None,
    group: str | None = None,
    layer: str | None = None,
    counts: str = "refuse",
    within: str | None = None,
    *,
    stage: Stage = no_stage,
) -> dict[str, Any]:
    """Write what `tl.transform` makes of the cells, and return what there is to tell of it."""
    cells.check_file(model, "model", "a model file")
    path = cells.check_file(data, "data")
    target = check_target(out, path, model)
    if target.suffix == ".zarr":
        raise InputError(f"out must name an .h5ad file, not a Zarr store; got {out!r}: take another ending")
    with stage("reading the cells"):
        adata = cells.read(path)
    with stage("moving the cells"):
        chosen = {"groupby": groupby, "group": group, "within": within}
        made = tl.transform(adata, model, **chosen, layer=layer, counts=counts, key_added=KEY)
    with stage("writing"):
        cells.write(made, target)
    moving = np.diff(made.layers[f"{KEY}_displacement"].indptr)
    return {
        "file": str(target),
        "n_cells": made.n_obs,
        "n_genes": made.n_vars,
        "density": float(moving.mean() / made.n_vars),
        "median_genes_per_cell": float(np.median(moving)),
    }
