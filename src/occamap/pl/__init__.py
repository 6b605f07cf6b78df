"""Pictures of maps in AnnData, in the conventions of scverse: each function gives back the Axes that it drew on."""

from occamap._optional import require as _require

_require(("anndata", "pandas", "matplotlib"), "occamap.pl", "cells")

from occamap.pl.arrows import arrows  # noqa: E402
from occamap.pl.calibration import calibration  # noqa: E402
from occamap.pl.convergence import convergence  # noqa: E402
from occamap.pl.frontier import frontier  # noqa: E402
from occamap.pl.genes import genes  # noqa: E402
from occamap.pl.heatmap import heatmap  # noqa: E402
from occamap.pl.means import means  # noqa: E402

__all__ = ["arrows", "calibration", "convergence", "frontier", "genes", "heatmap", "means"]
