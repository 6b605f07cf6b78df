"""The front end for AnnData, in the conventions of scverse: what is computed is written beside the cells."""

from occamap._optional import require as _require

_require(("anndata", "pandas"), "occamap.tl", "cells")

from occamap.tl.calibration import calibration  # noqa: E402
from occamap.tl.composition import correct_composition  # noqa: E402
from occamap.tl.gene_table import gene_table  # noqa: E402
from occamap.tl.monge_map import monge_map  # noqa: E402
from occamap.tl.pathway_table import pathway_table  # noqa: E402
from occamap.tl.stability import stable_genes  # noqa: E402
from occamap.tl.transform import transform  # noqa: E402

__all__ = [
    "calibration",
    "correct_composition",
    "gene_table",
    "monge_map",
    "pathway_table",
    "stable_genes",
    "transform",
]
