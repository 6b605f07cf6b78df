"""The table of genes: a row a gene, or a row a group and gene."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray

from occamap._kernels.columns import column_sums
from occamap.genes.rank_sum import rank_sum
from occamap.genes.stability import half_width, selection

Floats = NDArray[np.float64]

FEWEST = 2  # cells on each side of a test


def gene_table(
    moves: sp.csr_array,
    control: sp.csr_array,
    target: sp.csr_array,
    genes: NDArray[Any],
    *,
    means: Floats | None = None,
    top: int = 50,
    assume: str = "unimodal",
    wilcoxon: bool = True,
) -> pd.DataFrame:
    """One group of cells: `moves` of the `control` cells, beside the cells of the `target`.

    `means` are the mean displacements in subsamples (subsamples × genes), as `subsampled_means` gives them. The columns
    are those that `occamap.tl.gene_table` documents; genes that move most on average come first.
    """
    n, d = moves.shape
    rises, falls = (np.bincount(moves.indices[side], minlength=d) / n for side in (moves.data > 0, moves.data < 0))
    mean, square = (sums / n for sums in column_sums(moves))
    columns: dict[str, Any] = {
        "share": rises + falls,
        "mean": mean,
        "sd": np.sqrt(np.maximum(square - mean**2, 0)),
        "up": rises,
        "down": falls,
        "direction": np.select([mean > 0, mean < 0], ["up", "down"], "none"),
        "observed": _mean(target) - _mean(control),
    }
    if means is not None:
        width, (often, false) = half_width(means), selection(means, top, assume)
        columns |= {"low": mean - width, "high": mean + width, "frequency": often, "expected_false": false}
    if wilcoxon:
        enough = min(control.shape[0], target.shape[0]) >= FEWEST
        test = rank_sum(target, control) if enough else [np.full(d, np.nan)] * 3
        columns |= dict(zip(("wilcoxon_score", "wilcoxon_p", "wilcoxon_p_adjusted"), test, strict=True))
    table = pd.DataFrame(columns, index=pd.Index(genes, name="gene"))
    return table.iloc[np.argsort(-np.abs(mean), kind="stable")]


def _mean(cells: sp.csr_array) -> Floats:
    """Of each gene; NaN where there are no cells."""
    if not cells.shape[0]:
        return np.full(cells.shape[1], np.nan)
    return column_sums(cells)[0] / cells.shape[0]
