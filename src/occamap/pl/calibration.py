"""pl.calibration: scores of null maps beside those of a normal distribution."""

from __future__ import annotations

from typing import Any

import numpy as np

from occamap import _draw
from occamap.errors import InputError
from occamap.pl.look import legend
from occamap.tl.stored import read


def calibration(adata: Any, *, key: str = "occamap", ax: Any = None) -> Any:
    """Plot observed against expected scores of null maps, one line per map.

    On the diagonal, q-values hold. Above it, they are too small; below it, they are conservative. The orange line is
    the score that an entry needed to move in the map itself.

    Parameters
    ----------
    adata, key
        The AnnData, after `tl.calibration`, and the `key_added` of the map.
    ax
        Axes to draw on; new ones if None.

    Examples
    --------
    >>> import occamap as oc
    >>> adata = oc.datasets.simulate_perturbation(200, 150, 300, effect=1.5).to_anndata()
    >>> m = oc.tl.monge_map(adata, groupby="condition", control="control", target="treated")
    >>> table = oc.tl.calibration(adata, n_maps=2)
    >>> oc.pl.calibration(adata).get_ylabel()
    'observed score in null maps'
    """
    entry = read(adata, key).entry
    if "calibration" not in entry:
        raise InputError(f"adata.uns[{key!r}] has no calibration: run occamap.tl.calibration first")
    expected = np.atleast_1d(np.asarray(entry["calibration"]["expected"], dtype=np.float64))
    observed = np.atleast_2d(np.asarray(entry["calibration"]["observed"], dtype=np.float64))
    ax = _draw.axes(ax, "occamap.pl", (4.5, 4.5))
    ends = [expected.min(), expected.max()]
    perfect = ax.plot(ends, ends, color=_draw.GREY, linestyle="--", linewidth=1)[0]
    lines = [ax.plot(expected, scores, color=_draw.BLUE, linewidth=1.2)[0] for scores in observed]
    names = {"as expected": perfect, "null maps": lines[0]}
    critical = entry.get("critical")
    if critical is not None and critical <= max(ends[1], np.nanmax(observed, initial=0.0)):
        names["threshold of the map"] = ax.axhline(float(critical), color=_draw.ORANGE, linewidth=1)
    ax.set(xlabel="expected score (z)", ylabel="observed score in null maps")
    ax.set_aspect("equal")
    legend(ax, list(names.values()), list(names), loc="upper left")
    return ax
