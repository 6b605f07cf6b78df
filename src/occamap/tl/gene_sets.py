"""Gene sets as users have them, as sets of genes that a map uses: dictionaries, GMT files, data frames, matrices."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray

from occamap.errors import InputError
from occamap.tl.cells import Mask, near, some
from occamap.tl.gmt import MOST, read_gmt

Ints = NDArray[np.int64]
Sets = Iterable[tuple[str, Iterable[str]]]

FEWEST = 2  # genes of a set; a set of one is a gene
NAMES = 1_000_000  # distinct genes that a file may name: no genome has so many
SET_COLUMNS = "source", "geneset", "gene_set", "pathway", "term"  # of data frames, the first that is there
GENE_COLUMNS = "target", "gene", "genesymbol", "gene_symbol"
KINDS = (
    "a dictionary of names and genes, a data frame with a row a set and gene, the path of a GMT file, or a key of "
    "adata.uns or adata.varm"
)


@dataclass(frozen=True, eq=False)
class GeneSets:
    """Sets of genes by their place among the used ones; what was dropped on the way is counted.

    `given` are the sizes of the sets before genes that are not used were dropped from them.
    """

    names: tuple[str, ...]
    members: tuple[Ints, ...]
    given: tuple[int, ...]
    origin: str
    n_given: int
    n_absent: int

    def record(self) -> dict[str, Any]:
        """What is to be kept beside a map: HDF5 holds names as an array, whatever characters they have."""
        return {
            "origin": self.origin,
            "names": np.array(self.names, dtype=object),
            "n_genes": np.array([member.size for member in self.members]),
            "n_genes_given": np.array(self.given),
            "n_sets_given": self.n_given,
            "n_sets_dropped": self.n_given - len(self.names),
            "n_genes_absent": self.n_absent,
        }

    def without(self, frozen: Mask) -> GeneSets:
        """The same without these genes; sets that keep fewer than two are dropped."""
        left = [member[~frozen[member]] for member in self.members]
        rows = list(zip(self.names, left, self.given, strict=True))
        return _kept(rows, self.origin, self.n_given, self.n_absent, "too few are left that are not frozen")


def members_matrix(members: Iterable[Ints], d: int) -> sp.csr_array:
    """Genes × sets, 1 for a member."""
    listed = list(members)
    rows = np.concatenate([np.zeros(0, np.int64), *listed])
    columns = np.repeat(np.arange(len(listed)), [member.size for member in listed])
    return sp.csr_array((np.ones(rows.size, np.float32), (rows, columns)), shape=(d, len(listed)))


def gene_sets_of(adata: Any, gene_sets: Any, genes: Mask) -> GeneSets:
    """The sets that are asked for, in the genes that are used.

    Parameters
    ----------
    gene_sets
        {name: genes}; a data frame with a row a set and gene (columns source or geneset, and target or gene); a key of
        `adata.varm` (genes × sets, members are not 0) or of `adata.uns` (either of the first two); or the path of a GMT
        file. A text is first looked for among the keys.
    genes
        Mask of the used ones.
    """
    used = np.asarray(adata.var_names)[genes].astype(str)
    sets, origin = _found(adata, gene_sets)
    place = {name: k for k, name in enumerate(used)}
    rows: list[tuple[str, Ints, int]] = []
    names, absent, examples = set[str](), set[str](), list[str]()
    for name, members in sets:
        if name in names:
            raise InputError(f"gene_sets must have names of their own; {origin} has {name!r} twice")
        names.add(name)
        distinct = set(members)
        examples += sorted(distinct)[: 3 - len(examples)]
        absent |= distinct - place.keys()
        if len(absent) > NAMES:
            raise InputError(f"gene_sets must name at most {NAMES:,} genes that adata does not have; {origin} has more")
        held = sorted(place[gene] for gene in distinct if gene in place)
        rows.append((name, np.array(held, np.int64), len(distinct)))
    why = (
        f"of the genes in {origin}, such as {some(examples)}, none or too few are among those used, such as "
        f"{some(list(used))}: put both in the same naming, symbols or Ensembl identifiers"
        if rows
        else f"{origin} holds none"
    )
    return _kept(rows, origin, len(rows), len(absent), why)


def _kept(rows: list[tuple[str, Ints, int]], origin: str, n_given: int, n_absent: int, why: str) -> GeneSets:
    kept = [row for row in rows if row[1].size >= FEWEST]
    if not kept:
        raise InputError(f"gene_sets must leave a set of {FEWEST} genes or more; {why}")
    names, members, sizes = zip(*kept, strict=True)
    return GeneSets(names, members, sizes, origin, n_given, n_absent)


def _found(adata: Any, given: Any) -> tuple[Sets, str]:
    """Names and members one after the other, and where they are from."""
    if isinstance(given, os.PathLike):
        return read_gmt(given), str(given)
    if isinstance(given, str):
        if given in adata.varm:
            return _from_matrix(adata, given), f"adata.varm[{given!r}]"
        if given in adata.uns:
            where = f"adata.uns[{given!r}]"
            return _from_table(adata.uns[given], where), where
        if given.endswith((".gmt", ".gmt.gz")) or os.path.exists(given):
            return read_gmt(given), given
        there = [*map(str, adata.uns), *map(str, adata.varm)]
        raise InputError(f"gene_sets must be {KINDS}{near(given, there)}; got {given!r}")
    return _from_table(given, "gene_sets"), "gene_sets"


def _from_table(given: Any, where: str) -> Sets:
    """A dictionary or a data frame."""
    if isinstance(given, pd.DataFrame):
        return _from_frame(given, where)
    if isinstance(given, Mapping):
        return _from_mapping(given, where)
    kind = type(given).__name__
    raise InputError(f"gene_sets must be {KINDS}; {'got' if where == 'gene_sets' else f'{where} is'} {kind}")


def _from_mapping(given: Mapping[Any, Any], where: str) -> Iterator[tuple[str, list[str]]]:
    for name, members in given.items():
        if not isinstance(name, str) or not name:
            raise InputError(f"gene_sets must have texts as names; {where} has {name!r}")
        if isinstance(members, str | bytes | Mapping) or not isinstance(members, Iterable):
            raise InputError(f"gene_sets must be lists of gene names; {name!r} is {repr(members)[:60]}")
        listed = list(members)
        wrong = next((gene for gene in listed if not isinstance(gene, str)), None)
        if wrong is not None:
            raise InputError(f"gene_sets must be lists of gene names; {name!r} holds {repr(wrong)[:60]}")
        yield name, listed


def _from_frame(frame: pd.DataFrame, where: str) -> Sets:
    columns = [next((name for name in known if name in frame.columns), None) for known in (SET_COLUMNS, GENE_COLUMNS)]
    if None in columns:
        raise InputError(
            f"gene_sets must have a column of sets ({', '.join(SET_COLUMNS)}) and one of genes "
            f"({', '.join(GENE_COLUMNS)}); {where} has {some([str(name) for name in frame.columns], 12)}"
        )
    both = frame[columns]
    if both.isna().to_numpy().any():
        raise InputError(f"gene_sets must name a set and a gene in every row; {where} has rows that do not")
    both = both.astype(str)
    grouped = both.groupby(columns[0], sort=False, observed=True)[columns[1]]
    return [(str(name), list(members)) for name, members in grouped]


def _from_matrix(adata: Any, key: str) -> Sets:
    """Columns of varm; their names are those of a data frame, or stand in uns under the same key or KEY_names."""
    matrix = adata.varm[key]
    values = matrix.to_numpy() if isinstance(matrix, pd.DataFrame) else matrix
    if getattr(values, "ndim", 0) != 2 or values.shape[1] > MOST or np.dtype(values.dtype).kind not in "biuf":
        raise InputError(f"gene_sets must be genes × sets of numbers; adata.varm[{key!r}] is not")
    by_column = sp.csc_array(values)
    if not np.isfinite(by_column.data).all():
        raise InputError(f"gene_sets must be genes × sets of finite numbers; adata.varm[{key!r}] has others")
    by_column.eliminate_zeros()
    names = _column_names(adata, key, matrix)
    genes, ends = np.asarray(adata.var_names).astype(str), by_column.indptr
    return [(name, genes[by_column.indices[ends[k] : ends[k + 1]]].tolist()) for k, name in enumerate(names)]


def _column_names(adata: Any, key: str, matrix: Any) -> list[str]:
    if isinstance(matrix, pd.DataFrame):
        return [str(name) for name in matrix.columns]
    for place in (f"{key}_names", key):
        given = adata.uns.get(place)
        if isinstance(given, list | tuple | np.ndarray | pd.Index) and len(given) == matrix.shape[1]:
            return [str(name) for name in given]
    return [f"{key} {k}" for k in range(matrix.shape[1])]
