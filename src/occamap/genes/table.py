"""The table of genes: a row a gene, or a row a group and gene."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray

from occamap._kernels.columns import column_sums
from occamap.genes.rank_sum import rank_sum

Floats = NDArray[np.float64]

LEVEL = 1.96  # standard errors on each side of an interval
FEWEST = 2  # cells on each side of a test


def gene_table(
    moves: sp.csr_array,
    control: sp.csr_array,
    target: sp.csr_array,
    genes: NDArray[Any],
    *,
    means: Floats | None = None,
    top: int = 50,
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
        error = means.std(axis=0, ddof=1)
        columns |= {"low": mean - LEVEL * error, "high": mean + LEVEL * error, "frequency": frequency(means, top)}
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


def frequency(means: Floats, top: int) -> Floats:
    """The share of subsamples in which a gene is among the `top` that move most on average (and moves at all)."""
    size = np.abs(means)
    rank = np.argsort(np.argsort(-size, axis=1, kind="stable"), axis=1)
    return np.asarray(((rank < top) & (size > 0)).mean(axis=0))
