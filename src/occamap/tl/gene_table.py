"""tl.gene_table: the genes that move, in how many cells, how far, and how surely."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from occamap._validate import check_choice, check_count
from occamap.errors import InputError, InputWarning, MatchWarning
from occamap.genes import ASSUMPTIONS, subsampled_means
from occamap.genes import gene_table as tabulate
from occamap.genes.effects import add_effects, effects
from occamap.genes.fold_changes import why_not_logs
from occamap.inference import FEWEST_REPLICATES
from occamap.tl.cells import check_enough
from occamap.tl.group_tests import (
    group_codes,
    replicate_column,
    replicates_of,
    warn_of_few_replicates,
    warn_of_unequal_replicates,
    warn_of_untested_groups,
)
from occamap.tl.resolution import AUTO
from occamap.tl.stored import read

MIXED = 0.5  # of the mass of a group: with less of it within the group, its rows describe other cells


def gene_table(
    adata: Any,
    *,
    key: str = "occamap",
    by: str | None = None,
    replicate: str | None = AUTO,
    subsamples: int = 0,
    top: int = 50,
    wilcoxon: bool = False,
    n_jobs: int | None = None,
    random_state: int = 0,
    tick: Callable[[int, int], None] | None = None,
    client: Any = None,
    max_memory: int | str | None = None,
    assume: str = "unimodal",
) -> pd.DataFrame:
    """The genes of a map that `tl.monge_map` wrote, sorted by how far they move on average.

    Parameters
    ----------
    adata, key
        The AnnData, and the `key_added` of the map.
    by
        A column of `adata.obs`, such as the cell type: one table for each group that has control cells, below each
        other. `observed` then uses the target cells of the same group.
    replicate
        A column of `adata.obs` with the donors, animals or batches of the cells; "auto" is that of the map, if it has
        one. Tests and intervals are then across replicates, and hold for new ones. Each condition needs at least 3.
        Replicates in both conditions are paired. Cells without an entry are left out of the tests. None: cells are
        treated as independent. Tests then hold for new cells of the same donors, and q-values are far too small for
        new donors.
    subsamples
        Number of random halves of the cells (20, say) on which the map is fitted again, for intervals and frequencies.
        Halves come in pairs that share no cell, so take an even number.
    top
        How many genes are selected in a subsample: those that move most on average. If about as many move at all,
        frequencies say nothing, and no gene is stable: take a third of the genes that move, or fewer.
    wilcoxon
        Whether to add Wilcoxon's test of target against control cells, without any map. It takes cells for replicates,
        so its p-values are far too small if cells come from few donors.
    n_jobs, random_state
        Threads, and the seed of the subsamples.
    tick
        Called with the number of subsamples that are done and that of all.
    client
        A `dask.distributed.Client`, whose workers then fit the subsamples.
    max_memory
        As for `MongeMap`, for the maps of subsamples.
    assume
        What `expected_false` assumes of genes that a half rarely selects: "none"; "unimodal" (the share of pairs that
        select them twice has one mode); or "r-concave", the strongest assumption, with the smallest bound.

    Returns
    -------
    A data frame with one row per gene (or per group and gene), and columns

    - `share`: the share of the control cells in which it moves; `up`, `down`: in which it rises, falls
    - `mean`, `sd`: of the displacement, over all control cells; `direction`: the sign of the mean, in words
    - `observed`: the mean of the target cells minus that of the control cells, without any map
    - `difference`: the weighted mean of the matched target cells minus that of the control cells, in the units of the
      data; `difference_low`, `difference_high`: its 95 % interval
    - `log2_fold_change`: log2 of the mean normalised count of the matched target cells over that of the control cells.
      One count in 10,000, in one cell of the group, is added to each side, so that genes seen on one side only have a
      finite value. Values are taken for natural logs of 1 + counts, or for logs to the base that `scanpy.pp.log1p`
      noted in `adata.uns["log1p"]`; NaN, with a warning, if they are visibly not logs: scaled values or raw counts
    - `p`, `q`: of a two-sided test that `difference` is 0, and the lowest false-discovery rate at which the gene is
      found (Benjamini and Hochberg), over all genes or, with `by`, over all genes of all groups; NaN where there is
      nothing to test: genes without counts, groups with one cell, fewer than 3 replicates
    - `n_replicates`, with `replicate`: the number of replicates in the condition with fewer
    - `matched_within`, with `by`: the share of a group's match weights that goes to target cells of the same group; a
      `MatchWarning` names groups in which it is below one half
    - `low`, `high`: a 95 % interval for the mean, from the subsamples: Student's t, one degree of freedom per pair
    - `frequency`: the share of subsamples in which the gene is among the `top` that move most
    - `expected_false`: an upper bound on the expected number of genes, of this frequency or higher, that a half selects
      no more often than a random draw of `top` genes would (`tl.stable_genes` keeps the genes below a number that you
      give). It is about this whole set of genes, not about the one gene, and is not a q-value: a gene that is rarely
      selected may still have an effect. At frequencies of ½ and below it is too loose to be useful
    - `wilcoxon_score`, `wilcoxon_p`, `wilcoxon_p_adjusted`: of target against control cells, as
      `scanpy.tl.rank_genes_groups(method="wilcoxon", tie_correct=True)` gives them; NaN where a group has too few cells

    Examples
    --------
    >>> import occamap as oc
    >>> adata = oc.datasets.simulate_perturbation(200, 150, 300, effect=1.5).to_anndata()
    >>> m = oc.tl.monge_map(adata, groupby="condition", control="control", target="treated")
    >>> table = oc.tl.gene_table(adata)
    >>> bool(table["mean"].abs().is_monotonic_decreasing), table.index.name
    (True, 'gene')
    """
    whole, groups = gene_tables(
        adata,
        key=key,
        by=by,
        replicate=replicate,
        subsamples=subsamples,
        top=top,
        wilcoxon=wilcoxon,
        n_jobs=n_jobs,
        random_state=random_state,
        tick=tick,
        client=client,
        max_memory=max_memory,
        assume=assume,
    )
    return whole if groups is None else groups


def gene_tables(
    adata: Any,
    *,
    key: str,
    by: str | None,
    subsamples: int,
    top: int,
    wilcoxon: bool,
    n_jobs: int | None,
    random_state: int,
    tick: Callable[[int, int], None] | None,
    client: Any = None,
    max_memory: int | str | None = None,
    assume: str = "unimodal",
    replicate: str | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    """The table over all control cells and, if asked for, that of each group, from the same subsamples."""
    stored = read(adata, key)
    replicate = replicate_column(stored, replicate)
    check_count(subsamples, "subsamples", 0)
    if subsamples == 1:
        raise InputError("subsamples must be 0, or 2 or more, since one has no spread; got 1")
    check_count(top, "top")
    check_choice(assume, "assume", ASSUMPTIONS)
    check_count(random_state, "random_state", 0)
    moves, control, target = stored.moves(), stored.cells("control"), stored.cells("target")
    needed = {stored.design.control: control} | ({stored.design.target: target} if subsamples else {})
    for name, cells in needed.items():
        check_enough(cells.shape[0], f"the group {name!r}, which the map was learned on,", 1)
    names: list[str | None] = [""]
    groups, others = np.zeros(moves.shape[0], int), np.zeros(target.shape[0], int)
    if by is not None:
        names, groups, others = group_codes(stored, by)
    replicates = replicates_of(stored, replicate)
    means = None
    if subsamples:
        like = stored.unfitted().set_params(n_jobs=n_jobs, max_memory=max_memory)
        rng = np.random.default_rng(random_state)
        means = subsampled_means(like, control, target, groups, subsamples, rng, tick, client)

    def table(mine: Any, theirs: Any, averages: Any) -> pd.DataFrame:
        parts = moves[mine], control[mine], target[theirs]
        return tabulate(*parts, stored.names, means=averages, top=top, assume=assume, wilcoxon=wilcoxon)

    shares = np.bincount(groups, minlength=len(names)) / groups.size
    everyone = None if means is None else np.einsum("sgt,g->st", means, shares)
    whole, match = table(slice(None), slice(None), everyone), stored.match()
    noted = stored.log_base()
    reason = why_not_logs(control, target, noted)
    base = noted if reason is None else None
    if reason is not None:
        _warn_of_other_units(reason)
    overall = effects(control, target, match, np.zeros(moves.shape[0], int), 1, replicates, base)
    add_effects([whole], overall, stored.names, after="observed")
    if replicate is not None and overall.n_replicates is not None:
        warn_of_few_replicates(replicate, int(overall.n_replicates[0]))
    if by is None:
        if replicate is not None:
            warn_of_unequal_replicates(replicate, None, overall, [""])
        return whole, None
    if by in {"gene", *whole.columns}:
        raise InputError(f"by must not have the name of a column of the table; got {by!r}: rename it")
    kept, found = stored.mass_within(groups, others, len(names)), dict[str, pd.DataFrame]()
    known = np.array([name is not None for name in names] + [False])  # cells in no group have the code −1
    for code, group in enumerate(names):
        if group is not None:
            rows = table(groups == code, others == code, None if means is None else means[:, code])
            rows.insert(rows.columns.get_loc("observed") + 1, "matched_within", kept[code])
            found[group] = rows
    tested = effects(control, target, match, np.where(known[groups], groups, -1), len(found), replicates, base)
    enough = overall.n_replicates is not None and overall.n_replicates[0] >= FEWEST_REPLICATES
    if replicate is not None and tested.n_replicates is not None and enough:
        warn_of_untested_groups(replicate, by, dict(zip(found, tested.n_replicates.tolist(), strict=True)))
    if replicate is not None:
        warn_of_unequal_replicates(replicate, by, tested, [str(name) for name in found])
    add_effects(list(found.values()), tested, stored.names, after="matched_within")
    _warn_of_mixing(by, {str(name): float(kept[code]) for code, name in enumerate(names) if name is not None})
    return whole, pd.concat(found, names=[by])


def _warn_of_other_units(reason: str) -> None:
    """Warn that fold changes cannot be computed."""
    warnings.warn(
        f"log2_fold_change is NaN, because the values are not log1p of normalised counts (they have {reason}): use "
        "scanpy.pp.normalize_total and scanpy.pp.log1p before learning the map, or read difference instead",
        InputWarning,
        stacklevel=4,
    )


def _warn_of_mixing(by: str, kept: dict[str, float]) -> None:
    """Warn of groups whose cells are mostly matched with cells of other groups."""
    mixed = sorted((share, name) for name, share in kept.items() if share < MIXED)
    if mixed:
        listed = ", ".join(f"{name!r} ({share:.0%})" for share, name in mixed[:5]) + (", …" if len(mixed) > 5 else "")
        warnings.warn(
            f"Control cells of some groups of {by!r} are mostly matched with target cells of other groups (share of "
            f"the match weights within the group: {listed}), so their rows describe other cells: match within groups "
            f"(within={by!r}), or do not read these rows",
            MatchWarning,
            stacklevel=4,
        )
