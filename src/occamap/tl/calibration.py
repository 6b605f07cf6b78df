"""tl.calibration: whether displacements are as rare as they should be where nothing has changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from occamap._validate import check_count
from occamap.errors import InputError
from occamap.genes import Null, null_maps
from occamap.tl.stored import read

FEWEST = 8  # control cells that can be halved and tested


def calibration(
    adata: Any,
    *,
    key: str = "occamap",
    n_maps: int = 3,
    n_jobs: int | None = None,
    max_memory: int | str | None = None,
    random_state: int = 0,
) -> pd.DataFrame:
    """Compare the scores of null maps with a normal distribution.

    A null map goes from one random half of the control cells to the other, where nothing differs. Both halves have the
    same donors, so this does not check differences between donors. The score of an entry (control cell × gene) is the
    z-score with the same p-value as its t statistic. If observed scores are larger than
    expected ones, q-values are too small. The map needs `fdr`.

    Parameters
    ----------
    adata, key
        The AnnData, and the `key_added` of the map.
    n_maps
        The number of null maps; each uses a different split.
    n_jobs, max_memory
        As for `MongeMap`.
    random_state
        Seed of the splits.

    Returns
    -------
    A data frame with one row per null map and score, and columns

    - `map`: the number of the null map, from 0
    - `expected`: a score of a normal distribution
    - `observed`: the score that is exceeded as often in this null map; NaN if too few entries exceed it

    The same is written to `adata.uns["occamap"]["calibration"]`, from where `pl.calibration` draws it.

    Examples
    --------
    >>> import occamap as oc
    >>> adata = oc.datasets.simulate_perturbation(200, 150, 300, effect=1.5).to_anndata()
    >>> m = oc.tl.monge_map(adata, groupby="condition", control="control", target="treated")
    >>> oc.tl.calibration(adata, n_maps=2).columns.tolist()
    ['map', 'expected', 'observed']
    """
    stored = read(adata, key)
    check_count(n_maps, "n_maps")
    check_count(random_state, "random_state", 0)
    like = stored.unfitted().set_params(n_jobs=n_jobs, max_memory=max_memory)
    if like.fdr is None:
        raise InputError("key must be that of a map with q-values: run occamap.tl.monge_map with fdr=0.1")
    control = stored.cells("control")
    if control.shape[0] < FEWEST:
        raise InputError(f"adata must have {FEWEST} control cells or more to be halved; got {control.shape[0]}")
    found = null_maps(like, control, np.random.default_rng(random_state), n_maps)
    expected, observed = put_calibration(adata, key, found)
    return pd.DataFrame({
        "map": np.repeat(np.arange(n_maps), expected.size),
        "expected": np.tile(expected, n_maps),
        "observed": observed.ravel(),
    })  # fmt: skip


def put_calibration(adata: Any, key: str, found: Null) -> tuple[Any, Any]:
    """Write expected scores, and the observed ones of each map, to where `pl.calibration` finds them."""
    expected, observed = np.array(found.expected), np.array(found.observed)
    observed[observed == 0] = np.nan
    adata.uns[key]["calibration"] = {"expected": expected, "observed": observed}
    return expected, observed
