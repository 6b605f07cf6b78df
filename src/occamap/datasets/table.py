"""Simulated cells as AnnData, which single-cell tools read and write."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from occamap._optional import optional

Labels = tuple[NDArray[np.int64], list[str]]  # a code for each cell, and what the codes stand for


def table(
    groups: list[sparse.csr_array], labels: dict[str, Labels], response: NDArray[Any], columns: list[str]
) -> Any:
    """AnnData of all groups of cells, one below the other, with categories in `obs` and truth in `varm["response"]`.

    The response is a data frame, genes × columns, since arrays in `varm` have no names. `X` is of the class that
    anndata itself reads sparse matrices into.
    """
    anndata, pandas = (optional(package, "an AnnData of cells") for package in ("anndata", "pandas"))
    X = sparse.csr_matrix(sparse.vstack(groups, format="csr"))
    cells, genes = (names(letter, n).astype(object) for letter, n in zip("CG", X.shape, strict=True))
    obs = {key: pandas.Categorical.from_codes(codes, kinds) for key, (codes, kinds) in labels.items()}
    return anndata.AnnData(
        X,
        obs=pandas.DataFrame(obs, index=cells),
        var=pandas.DataFrame(index=genes),
        varm={"response": pandas.DataFrame(response, index=genes, columns=columns)},
    )


def names(letter: str, n: int) -> NDArray[np.str_]:
    """
    >>> names("G", 3).tolist()
    ['G00001', 'G00002', 'G00003']
    """
    return np.array([f"{letter}{i:05d}" for i in range(1, n + 1)])
