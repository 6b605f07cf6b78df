"""Blood cells with and without interferon β (Kang et al. 2018, GEO GSE96583), from a file that you have."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from occamap._optional import optional
from occamap.errors import InputError

FILE = "kang_ifnb.h5ad"
WANTED = f"{FILE} (Kang et al. 2018, GEO GSE96583)"
VARIABLE = "OCCAMAP_DATA"
COLUMNS = ("condition", "cell_type", "donor")


def kang_ifnb(path: str | os.PathLike[str] | None = None) -> Any:
    """Read the cells of Kang et al. from `path`, the file or its directory, else from the directory in OCCAMAP_DATA.

    Nothing is downloaded. The result is the AnnData of the file, with "condition" ("control" or "stimulated"),
    "cell_type" and "donor" in `obs`. `X` holds raw counts, for which two lines of scanpy do what maps ask for::

        scanpy.pp.normalize_total(cells, target_sum=1e4)
        scanpy.pp.log1p(cells)
    """
    file = _locate(path)
    anndata = optional("anndata", "kang_ifnb")
    try:
        cells = anndata.read_h5ad(file)
    except Exception as error:  # of many classes: of h5py, of anndata, of what they call
        raise InputError(f"path must be {WANTED}; {str(file)!r} cannot be read as one: {error}") from error
    absent = [column for column in COLUMNS if column not in cells.obs]
    if absent:
        raise InputError(f"path must be {WANTED}, with {', '.join(COLUMNS)} in obs; {str(file)!r} has no {absent[0]}")
    return cells


def _locate(path: str | os.PathLike[str] | None) -> Path:
    """The file that the argument, or else the environment, points to."""
    named = os.environ.get(VARIABLE) if path is None else path
    if path is None and not named:
        raise InputError(f"path must be {WANTED} or its directory, unless {VARIABLE} names one; neither was given")
    if not isinstance(named, str | os.PathLike):
        raise InputError(f"path must be {WANTED} or its directory; got {named!r}")
    file = Path(named) / FILE if Path(named).is_dir() else Path(named)
    if not file.is_file():
        what = "path" if path is not None else VARIABLE
        raise InputError(f"{what} must be {WANTED} or its directory; there is no {str(file)!r}")
    return file
