"""tl.monge_map: from an AnnData with two groups of cells to what moves between them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from occamap._memory import foreseeing
from occamap.costs import L1, Cost, SqL2
from occamap.errors import InputError, MatchWarning, SelectionWarning
from occamap.inference import FEWEST_REPLICATES
from occamap.maps import MongeMap
from occamap.maps.noise import pooled_error
from occamap.selection import MongeMapCV
from occamap.selection.diagnostics import WEAK
from occamap.tl.cells import (
    SMALLEST,
    Rows,
    check_adata,
    check_key,
    genes_of,
    pair_of,
    pair_within,
    samples,
    some,
)
from occamap.tl.error_rates import (
    enough_cells,
    enough_replicates,
    fewest_replicates,
    pair_with_replicates,
    rate_of,
    warn_of_nothing_tested,
    warn_of_small_pools,
)
from occamap.tl.penalty import penalty_of
from occamap.tl.resolution import AUTO, match_of, pool_of, replicate_of, within_of
from occamap.tl.stored import Design, write

EPSILONS = (0.003, 0.01, 0.03, 0.1)  # × the mean cost: what "auto" tries
MOVING = 0.25  # the share of entries that is taken to move, where a number for a budget is named
TARGETS = 10.0  # effective targets of a cell, where nothing else is asked for
MATCH = 30  # principal components that cells are matched on, where nothing else is asked for


def monge_map(
    adata: Any,
    *,
    groupby: str,
    control: Any,
    target: Any,
    layer: str | None = None,
    use_genes: Any = None,
    counts: str = "refuse",
    cost: Cost | type[Cost] | None = None,
    gamma: float | None = None,
    gammas: Any = None,
    gene_sets: Any = None,
    l1_ratio: float | None = None,
    frozen: Any = None,
    weights: Any = None,
    fdr: float | str | None = AUTO,
    epsilon: float | str = TARGETS,
    epsilon_scale: str | None = None,
    ties: str = "zero",
    relax: float = 1.0,
    pool: int | str | None = AUTO,
    match: int | str | None = AUTO,
    within: str | None = None,
    replicate: str | None = None,
    reach: float | None = None,
    tol: float = 1e-4,
    max_iter: int = 2000,
    max_density: float | None = 0.1,
    max_memory: int | str | None = None,
    n_jobs: int | None = None,
    random_state: int = 0,
    verbose: bool | None = None,
    key_added: str = "occamap",
    client: Any = None,
) -> MongeMap:
    """Learn the map from the control to the target cells, and write what moves into `adata`.

    Parameters
    ----------
    adata
        Cells × genes, normalised and logged; in memory, a view (which becomes an object of its own) or backed.
    groupby, control, target
        A column of `adata.obs`, and the two groups in it to compare.
    layer
        Layer to use instead of `adata.X`.
    use_genes
        A column of `adata.var` that marks the genes to use, such as "highly_variable"; a list of names, or a mask. All
        genes if None.
    counts
        What to do about raw counts: "refuse" them, "normalize" them here (to a total of 1e4 a cell, then log1p), or
        "keep" whole numbers as they are.
    cost
        Such as `L1(1.0)`: the penalty and its strength γ; `L1` with the default γ if not given. Or the penalty alone,
        such as `STVS`: then held-out cells choose γ.
    gamma
        Strength of one penalty for all genes, instead of `fdr`; larger values move fewer genes. Without `fdr`, it is
        6.5 standard errors of the difference between a neighbourhood and its targets by default, for the 200th most
        variable gene. With `pool=None` it is 0.3. With `gene_sets` it is 2 standard errors, or 3 with `pool=None`.
    gammas
        "auto", or several γ: then held-out cells choose among them, whatever γ `cost` has.
    gene_sets
        Pathways, whose genes move together: {name: genes}, a data frame with a row a set and gene (columns source or
        geneset, and target or gene), a key of `adata.uns` that holds either, a key of `adata.varm` (genes × sets), or
        the path of a GMT file, plain or gzipped. The penalty is then `GroupLasso`, over the sets that have two or more
        of the used genes. `tl.pathway_table` says which of them move.
    l1_ratio
        With gene_sets: from 0 (the default: the genes of a set move together) to 1 (each for itself).
    frozen
        Genes that neither move nor count in the match: names and shell patterns, case-sensitive, such as
        ["MT-*", "RPL*"], or a column of `adata.var` with True and False. With gene_sets, they leave their sets.
    weights
        What a gene pays for a move, as weights of the `L1` penalty: {name or pattern: weight}, such as {"ISG*": 0.5}
        (others have 1; of several patterns the last counts); a column of `adata.var`; a Series by gene name; a number
        for each gene of adata; or "dispersion", in proportion to the standard deviation over the control cells.
    fdr
        The false-discovery rate of the displacements: of all entries (control cell × gene) that move, at most this
        share is expected to be false. Each entry has a penalty of its own, a multiple of the standard error of its
        difference, and a q-value. "auto" is 0.1. It is None if another parameter sets the penalty (`cost`, `gamma`,
        `gammas`, `gene_sets`, `weights`), if held-out cells choose, or if cells are not pooled or not matched on
        components. None: no error rate. Without `replicate`, cells are treated as independent. An entry describes the
        neighbourhood of a cell: single cells in it may respond differently.
    epsilon, epsilon_scale
        As for `MongeMap`, by default the ε at which a cell has 10 effective targets (`epsilon_scale="perplexity"`), or
        as near to 10 as the numbers of cells allow (`map.report_.epsilon_rule` says so): 37 for 80 control and 1,500
        target cells, 5.5 for 10 target cells. Or "auto", without a scale: then held-out cells choose ε among 0.003,
        0.01, 0.03 and 0.1 × the mean cost.
    ties, relax, reach, tol, max_iter, max_memory, n_jobs
        As for `MongeMap`; here the shrinkage on the genes that the penalty chose is undone (`relax=1`) by default.
    pool
        The resolution of the displacements. "auto": those of a neighbourhood of alike cells, whose size is chosen from
        the data. A number: that many cells. A column of `adata.obs`, such as "cell_type": the cells of the same group.
        A key of `adata.obsp`, such as "connectivities": the weights of that graph. None: each cell by itself, the map
        of the paper, in which most of what moves in a single cell is its own noise.
    match
        Where cells are matched. "auto": on 30 principal components, or in all genes (None) where held-out cells choose.
        A number of components, a key of `adata.obsm` such as "X_scVI", or None: in all genes, under `cost`, as in the
        paper. Displacements are read in all genes in any case.
    within
        A column of `adata.obs`, such as "cell_type": control cells are matched only with target cells of the same
        group, and neighbours ("auto" or a number) are found within it; a column or graph for `pool` is used as it is.
        The shares of the groups may differ between control and target. All groups share ε and `fdr`. If `fdr` is None,
        they also share γ, whose default is set by the smallest group. Groups with fewer than 20 cells on either side
        are left out, with a warning. Without `within`, cells may be matched across groups; `matched_within` in
        `tl.gene_table(by=…)` is the share that is matched within its own group.
    replicate
        A column of `adata.obs` with the donors, animals or batches of the cells, at least 3 in each condition. It
        requires `fdr`. Displacements are tested across replicates, so that `fdr` and the q-values hold for new
        replicates. Replicates in both conditions are paired. Before cells are matched, the mean of each replicate is
        shifted towards the common mean, within each group of `within`. Cells without an entry, or with the entry
        "unassigned" or "doublet", are left out, with a warning. With fewer than 3 replicates, a warning is issued and
        the default `gamma` is used, without q-values.
    max_density
        Where held-out cells choose γ: the share of entries that may move at most. The most faithful of these maps is
        taken; None takes the sparsest within one standard error of the most faithful of all. Where they choose ε alone,
        the most faithful map is taken.
    random_state
        Seed of the splits if held-out cells choose. Nothing else is random.
    verbose
        Show progress; None shows it on a terminal, where it takes more than two seconds.
    key_added
        Prefix of all that is written.
    client
        A `dask.distributed.Client`, whose workers then do the work.

    Returns
    -------
    The fitted map; it knows the genes by name. If held-out cells chose it, `map.selection_` is the `MongeMapCV`.

    Writes
    ------
    - `adata.layers["occamap_displacement"]`: the displacement of each control cell, CSR (other cells are empty)
    - `adata.layers["occamap_q"]`: with `fdr`, the q-value of each entry that moves, CSR: the lowest false-discovery
      rate at which it is found, over all control cells and genes (Benjamini and Hochberg). Entries that do not move are
      not stored: they read as 0, but their q-values are above `fdr`
    - `adata.var["occamap_share"]`, `["occamap_mean"]`: the share of control cells in which a gene moves, and how far on
      average over all of them; NaN for genes that were not used
    - `adata.obs["occamap_n_genes"]`, `["occamap_distance"]`, `["occamap_response"]`: how many genes move in a control
      cell, the length of the displacement, and its length along the mean displacement of all control cells, which does
      not follow the number of detected genes; NaN for other cells
    - `adata.obsp["occamap_match"]`: the weights of the target cells that a control cell is matched with, CSR, without
      those below a thousandth of its largest
    - `adata.uns["occamap"]`: parameters, ε, status, versions
    - `adata.varm["occamap_gene_sets"]`: with gene_sets, genes × sets, 1 for a member; their names, sizes and what was
      dropped are in `adata.uns["occamap"]["gene_sets"]`
    - `adata.var["occamap_weight"]`: with frozen or weights, those that the penalty has

    Examples
    --------
    >>> import occamap as oc
    >>> adata = oc.datasets.simulate_perturbation(200, 150, 300, effect=1.5).to_anndata()
    >>> m = oc.tl.monge_map(adata, groupby="condition", control="control", target="treated")
    >>> adata.layers["occamap_displacement"].shape, adata.uns["occamap"]["status"]
    ((350, 300), 'converged')
    """
    check_adata(adata)
    check_key(key_added)
    pair, genes = pair_of(adata, groupby, control, target), genes_of(adata, use_genes)
    if replicate is not None:
        pair = pair_with_replicates(adata, replicate, groupby, pair)
    if within is not None:
        pair, left_out = pair_within(adata, within, pair)
        _warn_of_left_out(within, left_out)
    tested = replicate
    if replicate is not None:
        counts_of = fewest_replicates(replicate_of(adata, replicate, pair), within_of(adata, within, pair))
        if not enough_replicates(replicate, counts_of, within):
            tested = None
        elif within is not None:
            pair = _with_enough_replicates(adata, replicate, within, counts_of, pair)
    strata = within_of(adata, within, pair)
    source, targets = samples(adata, pair, layer, counts, genes)
    shared = {"reach": reach, "tol": tol, "max_iter": max_iter, "max_memory": max_memory, "n_jobs": n_jobs}
    if gamma is not None and gammas is not None:
        raise InputError(f"gamma must not be given with gammas, among which held-out cells choose; got {gamma!r}")
    given = {"cost": cost, "gamma": gamma, "gene_sets": gene_sets, "l1_ratio": l1_ratio}
    pooled = pool_of(adata, pool, pair[0])
    if isinstance(match, str) and match == AUTO:
        match = None if isinstance(cost, type) or gammas is not None or epsilon == AUTO else MATCH
    others = given | {"gammas": gammas, "weights": weights, "epsilon": "auto" if epsilon == AUTO else None}
    fdr = rate_of(fdr, others, pooled, match)
    if replicate is not None and fdr is None:
        raise InputError("replicate must be given only with fdr, but fdr is None: it was set to None, or another "
                         "parameter rules it out (gamma, gammas, cost, weights, gene_sets, epsilon='auto', pool=None, "
                         "match=None): leave that parameter out, or pass replicate to tl.gene_table only")
    if fdr is not None:
        warn_of_small_pools(pooled)
        if not enough_cells(min(source.n_obs, targets.n_obs)) or tested != replicate:
            fdr = tested = None
    design = Design(str(groupby), str(control), str(target), layer, counts, within, replicate)

    def error(free: Any) -> float:
        return pooled_error(source.X[:, free], targets.n_obs, pooled, strata)

    noise = None if pooled is None else error
    asked = penalty_of(adata, genes, source.X, **given, frozen=frozen, weights=weights, error=noise, fdr=fdr)
    penalty = asked.cost
    if epsilon == AUTO and epsilon_scale is not None:
        raise InputError(f"epsilon_scale must not be given with epsilon='auto'; got {epsilon_scale!r}")
    chosen = asked.free or gammas is not None or epsilon == AUTO
    if chosen and not (pooled is None or isinstance(pooled, int | str)):
        raise InputError(f"pool must be None, 'auto' or a number where held-out cells choose; got {pool!r}")
    scale = epsilon_scale or ("mean" if epsilon == AUTO else "perplexity")
    if match is not None and chosen:
        raise InputError(f"match must be None where held-out cells choose; got {match!r}: give gamma and epsilon")
    if within is not None and (chosen or match is None):
        where, remedy = "if cells are matched in all genes", "match on components, such as 30"
        if chosen:
            where, remedy = "if held-out cells choose γ or ε", "give both"
        raise InputError(f"within must not be given {where}; got {within!r}: {remedy}")
    if not chosen:
        given = {**shared, "verbose": verbose, "pool": pooled, "match": match_of(adata, match, pair)}
        given |= {"within": strata, "fdr": fdr, "replicate": replicate_of(adata, tested, pair)}
        fitted = MongeMap(penalty, epsilon, scale, ties, relax, **given)  # type: ignore[arg-type]
        with foreseeing(_later_bytes(source, targets)):
            fitted.fit(source, targets, client=client)
        if fdr is not None and not fitted.threshold_.n_tested:
            warn_of_nothing_tested(tested)
    else:
        rule = "one_se" if max_density is None else "density"
        if not asked.free and gammas is None:
            gammas, rule = [float(getattr(penalty, "gamma", 0.0))], "best"
        search = MongeMapCV(
            L1 if isinstance(penalty, SqL2) else penalty,  # which is ½ℓ2² at γ = 0
            gammas=None if isinstance(gammas, str) and gammas == AUTO else gammas,
            epsilon=EPSILONS if epsilon == AUTO else epsilon,
            epsilon_scale=scale,
            ties=ties,
            relax=relax,
            rule=rule,
            max_density=max_density if rule == "density" else None,
            random_state=random_state,
            verbose=verbose,
            pool=pooled,
            **shared,  # type: ignore[arg-type]
        )
        with foreseeing(_later_bytes(source, targets)):
            search.fit(source, targets, client=client)
        fitted = search.best_map_
        fitted.selection_ = search
    noted = {**asked.asked, "pool": pool, "match": match}
    moves, q = (fitted.displacement(source, client), None) if fdr is None else fitted._tested(source)
    write(adata, key_added, design, pair[0], genes, moves, fitted, noted, pair[1], q)
    if asked.sets is not None:
        adata.uns[key_added]["gene_sets"] = asked.sets.record()
    if hasattr(fitted, "selection_"):
        adata.uns[key_added]["selection"] = str(fitted.selection_.diagnostics_)
        if fitted.selection_.diagnostics_.weak:
            warnings.warn(WEAK, SelectionWarning, stacklevel=2)
    return fitted


def _with_enough_replicates(
    adata: Any, replicate: str, within: str, counts: dict[str, int], pair: tuple[Rows, Rows]
) -> tuple[Rows, Rows]:
    """The cells of groups that can be tested across replicates; a warning names the others."""
    few = sorted(name for name, count in counts.items() if count < FEWEST_REPLICATES)
    if not few:
        return pair
    listed = some([f"{name} ({counts[name]})" for name in few], 5)
    warnings.warn(
        f"Groups of {within!r} with fewer than {FEWEST_REPLICATES} replicates ({replicate!r}) in a condition are left "
        f"out (their number in brackets): {listed}",
        MatchWarning,
        stacklevel=3,
    )
    mine, theirs = within_of(adata, within, pair)  # type: ignore[misc]
    return pair[0][~np.isin(mine, few)], pair[1][~np.isin(theirs, few)]


def _warn_of_left_out(within: str, left_out: dict[str, tuple[int, int]]) -> None:
    """Warn of cells whose groups are too small to be matched within."""
    if left_out:
        listed = [f"{name!r} ({mine:,} and {theirs:,})" for name, (mine, theirs) in sorted(left_out.items())]
        shown = ", ".join(listed[:5]) + (", …" if len(listed) > 5 else "")
        warnings.warn(
            f"Groups of {within!r} with fewer than {SMALLEST} control or target cells are left out (control and target "
            f"cells): {shown}",
            MatchWarning,
            stacklevel=3,
        )


def _later_bytes(source: Any, target: Any) -> float:
    """What is to be expected after a fit: the moves of all control cells, if a quarter of the entries move, and halves
    of the cells, on which maps are fitted for a table."""
    cells = sum(getattr(side.X, "nnz", side.X.size) * 12.0 for side in (source, target))
    return cells + 1.5 * 12.0 * MOVING * source.n_obs * source.n_vars
