"""Frozen and favoured genes: a weight of the penalty for each gene, by name, by pattern, by column or by spread."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray

from occamap._kernels.columns import column_sums
from occamap._validate import check_number, check_reals
from occamap.errors import InputError, InputWarning
from occamap.tl.cells import Mask, near, some

Floats = NDArray[np.float64]

DISPERSION = "dispersion"
LEAST = 0.1  # of the mean: a gene that control cells do not have is not free to move
SHOWN = 3  # names that a message offers
WILD = "*?["  # what makes a text a pattern


def frozen_genes(adata: Any, frozen: Any) -> tuple[Mask, list[str]]:
    """Which genes of adata must not move, and what was asked for.

    `frozen` is one or several of: a gene, a column of `adata.var` with True and False, a shell pattern, case-sensitive.
    A pattern that matches nothing is warned of if something else matches: lists of patterns are kept for many data.
    """
    several = [frozen] if isinstance(frozen, str) else frozen
    if isinstance(several, Mapping | bytes) or not isinstance(several, Iterable):
        raise InputError(f"frozen must be gene names, patterns, or a column of adata.var; got {_short(frozen)}")
    patterns = list(several)
    if not patterns:
        raise InputError("frozen must hold at least one gene name or pattern; got none: leave it out")
    names, found = np.asarray(adata.var_names).astype(str), np.zeros(adata.n_vars, dtype=bool)
    idle: list[str] = []
    for pattern in patterns:
        is_column = isinstance(pattern, str) and pattern in adata.var.columns and pattern not in names
        one = _marked(adata, pattern) if is_column else _matches(names, pattern, "frozen")
        found |= one
        idle += [] if one.any() else [pattern]
    for pattern in idle:
        if not found.any() or not any(sign in pattern for sign in WILD):
            raise InputError(_none(names, pattern, "frozen"))
    for pattern in idle:
        warnings.warn(_none(names, pattern, "frozen"), InputWarning, stacklevel=6)  # at the call of tl.monge_map
    return found, [str(pattern) for pattern in patterns]


def matching(names: NDArray[Any], pattern: Any, argument: str) -> Mask:
    """The genes of this name or, if there is none, those that match the pattern.

    >>> matching(np.array(["MT-ND1", "MTOR"]), "MT-*", "frozen").tolist()
    [True, False]
    """
    found = _matches(names, pattern, argument)
    if not found.any():
        raise InputError(_none(names, pattern, argument))
    return found


def gene_weights(adata: Any, weights: Any, genes: Mask, control: Any) -> tuple[Floats, Any]:
    """The weight of each used gene, and what was asked for in values that HDF5 can hold.

    `weights` is "dispersion", a column of `adata.var`, {name or pattern: weight}, a Series by gene name, or a number
    for each gene of adata. `control` are the cells, in the genes that are used, whose spread "dispersion" takes.
    """
    names = np.asarray(adata.var_names).astype(str)
    if isinstance(weights, str):
        if weights == DISPERSION:
            return dispersion_weights(control), DISPERSION
        if weights not in adata.var.columns:
            there = near(weights, [str(column) for column in adata.var.columns])
            raise InputError(f"weights must be 'dispersion' or a column of adata.var{there}; got {weights!r}")
        return _checked(adata.var[weights], genes, f"adata.var[{weights!r}]"), f"adata.var[{weights!r}]"
    if isinstance(weights, Mapping):
        return _by_pattern(names, weights)[genes], {
            "patterns": np.array([str(pattern) for pattern in weights], dtype=object),
            "weights": np.array(list(weights.values()), dtype=np.float64),
        }
    if isinstance(weights, pd.Series):
        given = weights.set_axis(weights.index.astype(str))
        if not given.index.is_unique:
            raise InputError("weights must have one entry a gene; its index has a gene twice")
        absent = sorted(set(names[genes]) - set(given.index))
        if absent:
            raise InputError(f"weights must have an entry for each used gene; {len(absent):,} lack one: {some(absent)}")
        return _checked(given.loc[names[genes]], np.ones(int(genes.sum()), dtype=bool), "a Series"), "a Series"
    return _checked(weights, genes, "an array"), "an array"


def dispersion_weights(control: Any) -> Floats:
    """In proportion to the standard deviation of a gene over the control cells: a gene pays for a move in units of it.

    None is below a tenth of the mean. They are scaled so that a move by one standard deviation in every gene costs what
    it does with equal weights: then γ means what it meant.
    """
    cells = sp.csr_array(control)
    sums, squares = column_sums(cells)
    mean = sums / cells.shape[0]
    spread = np.sqrt(np.maximum(squares / cells.shape[0] - mean**2, 0.0))
    if not spread.any():
        raise InputError("weights='dispersion' needs genes that vary over the control cells; none does")
    spread = np.maximum(spread, LEAST * spread.mean())
    return np.asarray(spread * (spread.sum() / (spread**2).sum()))


def _by_pattern(names: NDArray[Any], weights: Mapping[Any, Any]) -> Floats:
    """1, but for genes that a pattern matches; of several, the last counts."""
    if not weights:
        raise InputError("weights must hold at least one name or pattern; got none: leave it out")
    made = np.ones(names.size)
    for pattern, weight in weights.items():
        value = np.inf if isinstance(weight, float) and weight == np.inf else check_number(weight, "weights", 0)
        made[matching(names, pattern, "weights")] = value
    return made


def _checked(raw: Any, genes: Mask, where: str) -> Floats:
    """Numbers ≥ 0 of the used genes."""
    values = check_reals(raw, "weights")
    if values.shape != genes.shape:
        raise InputError(f"weights must be a number for each of the {genes.size:,} genes of adata; got {values.shape}")
    values = values[genes]
    if not np.all(values >= 0):
        bad = values[~(values >= 0)]
        raise InputError(f"weights must be ≥ 0 (infinity freezes a gene); {where} has {bad[0]:g} ({bad.size:,} such)")
    return values


def _marked(adata: Any, column: str) -> Mask:
    given = np.asarray(adata.var[column])
    if given.dtype != bool:
        raise InputError(f"frozen must be a column of adata.var with True and False; {column!r} is {given.dtype}")
    if not given.any():
        raise InputError(f"frozen must mark at least one gene; adata.var[{column!r}] marks none")
    return given


def _short(value: Any) -> str:
    return repr(value)[:60]


def _matches(names: NDArray[Any], pattern: Any, argument: str) -> Mask:
    if not isinstance(pattern, str) or not pattern:
        raise InputError(f"{argument} must hold gene names or patterns; got {_short(pattern)}")
    found = names == pattern
    if not found.any():
        found = np.array([fnmatchcase(name, pattern) for name in names])
    return np.asarray(found, dtype=bool)


def _none(names: NDArray[Any], pattern: str, argument: str) -> str:
    return f"{argument} must match genes of adata; {pattern!r} matches none{_alike(names, pattern)}"


def _alike(names: NDArray[Any], pattern: str) -> str:
    """Genes that may have been meant: the same in other letters, or those that begin in a like way."""
    lower, stem = pattern.lower(), pattern.strip("*?").lower()
    found = [name for name in names if fnmatchcase(name.lower(), lower)]
    if found:
        return f": capitals matter, and there are {some(found, SHOWN)}"
    begins = [name[: len(stem)].lower() for name in names]
    close = get_close_matches(stem, sorted(set(begins)), n=SHOWN, cutoff=0.6)
    found = [name for name, begin in zip(names, begins, strict=True) if begin in close]
    return f": there are {some(found, SHOWN)}" if found else f": names are such as {some(names.tolist(), SHOWN)}"
