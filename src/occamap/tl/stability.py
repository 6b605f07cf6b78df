"""tl.stable_genes: the genes that halves of the cells agree on, with a bound on the false ones among them."""

from __future__ import annotations

from typing import Any

import pandas as pd

from occamap._validate import check_number
from occamap.errors import InputError


def stable_genes(table: Any, expected_false: float = 1.0) -> pd.DataFrame:
    """The genes of a table that are selected so often that few of them are false.

    Parameters
    ----------
    table
        Of `tl.gene_table` with subsamples.
    expected_false
        The expected number of false selections to allow. A selection is false if a half of the cells selects the gene
        no more often than a random draw would; the gene may still have an effect.

    Returns
    -------
    The rows that some half selects and whose `expected_false` is at most that, in the order of the table. The frequency
    that this takes depends on the numbers of genes and subsamples, hardly on the data. In a table by groups the bound
    is for each group by itself: over g groups, g times as many false ones are to be expected.

    Examples
    --------
    >>> import occamap as oc
    >>> adata = oc.datasets.simulate_perturbation(200, 150, 300, effect=1.5).to_anndata()
    >>> m = oc.tl.monge_map(adata, groupby="condition", control="control", target="treated")
    >>> stable = oc.tl.stable_genes(oc.tl.gene_table(adata, subsamples=20, top=5), expected_false=0.5)
    >>> bool((stable["expected_false"] <= 0.5).all()), 0 < len(stable) <= 5
    (True, True)
    """
    check_number(expected_false, "expected_false", 0, open_low=True)
    if not isinstance(table, pd.DataFrame) or "expected_false" not in table.columns:
        got = "one without it" if isinstance(table, pd.DataFrame) else type(table).__name__
        raise InputError(f"table must have expected_false, as tl.gene_table(adata, subsamples=20) gives it; got {got}")
    return table[(table["expected_false"] <= expected_false) & (table["frequency"] > 0)]
