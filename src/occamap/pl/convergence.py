"""pl.convergence: how the solve of a map went."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from occamap import _draw
from occamap._containers import is_anndata
from occamap._optional import optional
from occamap.errors import InputError
from occamap.pl.look import legend
from occamap.tl.stored import read


def convergence(model_or_adata: Any, *, key: str = "occamap", ax: Any = None) -> Any:
    """The marginal error at each iteration, on a logarithmic axis, and the tolerance as a line; the status above.

    Parameters
    ----------
    model_or_adata
        A fitted `MongeMap` or `MongeMapCV` (whose chosen map is drawn), or an AnnData with a map.
    key
        The `key_added` of the map, for an AnnData.
    ax
        Axes to draw on; new ones if None.

    Examples
    --------
    >>> import occamap as oc
    >>> data = oc.datasets.simulate_perturbation(200, 150, 300)
    >>> m = oc.MongeMap(oc.L1(1.0)).fit(data.control, data.treated)
    >>> oc.pl.convergence(m).get_yscale()
    'log'
    """
    status, errors, tol = _solve(model_or_adata, key)
    steps, drawn = np.arange(1, errors.size + 1), np.where(errors > 0, errors, np.nan)  # a logarithm has no zero
    ax = _draw.axes(ax, "occamap.pl")
    if not np.any(drawn[np.isfinite(drawn)] != tol):  # nothing that would make a range
        ax.set_ylim(tol / 10, tol * 10)
    ax.set_yscale("log")
    curve = ax.plot(steps, drawn, color=_draw.BLUE, marker="o" if errors.size <= 50 else "", markersize=3)[0]
    line = ax.axhline(tol, color=_draw.ORANGE, linestyle="--", linewidth=1)
    ax.xaxis.set_major_locator(optional("matplotlib.ticker", "occamap.pl").MaxNLocator(integer=True))
    many = f"{errors.size:,} iteration{'s' * (errors.size != 1)}"
    reached = f", error {errors[-1]:.2g}" if errors.size else ""
    ax.set(xlabel="iteration", ylabel="marginal error", title=f"{status.replace('_', ' ')}: {many}{reached}")
    legend(ax, [curve, line], ["marginal error", f"tolerance, {tol:g}"], loc="best")
    return ax


def _solve(given: Any, key: str) -> tuple[str, Any, float]:
    """Status, the error at each iteration, and the tolerance."""
    if is_anndata(given):
        entry = read(given, key).entry
        return str(entry["status"]), np.atleast_1d(np.asarray(entry["errors"], float)), float(entry["params"]["tol"])
    if not hasattr(given, "get_params"):
        raise InputError(f"model_or_adata must be a fitted map or an AnnData with one; got {type(given).__name__}")
    model = getattr(given, "best_map_", given)
    check_is_fitted(model, "report_")
    return str(model.report_.status), np.array(model.report_.errors, dtype=np.float64), float(model.report_.tol)
