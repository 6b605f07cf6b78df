"""How both samples are split into train and test parts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import KFold

from occamap._validate import check_count
from occamap.errors import InputError

Index = NDArray[np.int64]

RULE = (
    "cv must be a number of folds ≥ 2, a scikit-learn splitter, or a list of splits "
    "(train rows of X, test rows of X, train rows of Y, test rows of Y)"
)
FEWEST = 2  # samples on each side of a test part: a divergence between single samples says nothing of spread


class Split(NamedTuple):
    """Rows of the source and of the target, each in two parts."""

    source_train: Index
    source_test: Index
    target_train: Index
    target_test: Index


def check_splits(cv: Any, n: int, m: int, random_state: int | None) -> list[Split]:
    """The splits of n source and m target samples."""
    if isinstance(cv, int | np.integer) and not isinstance(cv, bool):
        folds = check_count(cv, "cv", 2)
        for size, name in ((n, "X"), (m, "Y")):
            if size < FEWEST * folds:
                raise InputError(
                    f"cv must be at most {size // FEWEST} for the {size} samples of {name}, so that each fold has "
                    f"{FEWEST} to test on; got {folds}"
                )
        seeds = np.random.SeedSequence(random_state).generate_state(2)
        parts = (KFold(folds, shuffle=True, random_state=int(seed)) for seed in seeds)
        return _both(*(list(part.split(np.empty(size))) for part, size in zip(parts, (n, m), strict=True)))
    if hasattr(cv, "split") and hasattr(cv, "get_n_splits"):
        try:
            source, target = list(cv.split(np.empty(n))), list(cv.split(np.empty(m)))
        except (TypeError, ValueError) as error:
            raise InputError(
                f"cv cannot split {n} samples of X and {m} of Y; it says: {error} "
                "(splits by group, such as donors, are given as a list)"
            ) from error
        if len(source) != len(target):
            raise InputError(f"cv must split X and Y equally often; it gives {len(source)} and {len(target)} splits")
        splits = _both(source, target)
    elif isinstance(cv, Iterable) and not isinstance(cv, str | bytes):
        splits = [_check_split(split, k) for k, split in enumerate(cv)]
    else:
        raise InputError(f"{RULE}; got {cv!r}")
    if not splits:
        raise InputError(f"{RULE}; got no split at all")
    for k, split in enumerate(splits):
        _check_rows(split.source_train, split.source_test, n, "X", k)
        _check_rows(split.target_train, split.target_test, m, "Y", k)
    return splits


def _both(source: list[tuple[Any, Any]], target: list[tuple[Any, Any]]) -> list[Split]:
    return [Split(*(np.sort(part) for part in (*x, *y))) for x, y in zip(source, target, strict=True)]


def _check_split(raw: Any, k: int) -> Split:
    try:
        parts = [np.asarray(part) for part in raw]
    except (TypeError, ValueError) as error:
        raise InputError(f"{RULE}; split {k} is {raw!r}") from error
    parts = [np.flatnonzero(part) if part.dtype == bool else part for part in parts]
    if len(parts) == 2:
        raise InputError(f"{RULE}; split {k} has two parts: X and Y are split apart, so four are needed")
    if len(parts) != 4 or any(part.ndim != 1 or part.dtype.kind not in "iu" for part in parts):
        raise InputError(f"{RULE}; split {k} is not four lists of row numbers")
    return Split(*(part.astype(np.int64) for part in parts))


def _check_rows(train: Index, test: Index, size: int, name: str, k: int) -> None:
    for rows, part in ((train, "train"), (test, "test")):
        if rows.size < FEWEST:
            raise InputError(
                f"cv must leave at least {FEWEST} {part} samples of {name} in each split; split {k} leaves {rows.size}"
            )
        if rows.min() < 0 or rows.max() >= size or np.unique(rows).size != rows.size:
            raise InputError(f"cv must name rows 0 to {size - 1} of {name}, each once; split {k} does not ({part})")
    if np.intersect1d(train, test).size:
        raise InputError(f"cv must not test on train samples; split {k} shares rows of {name} between the two")
