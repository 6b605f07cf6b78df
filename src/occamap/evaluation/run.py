"""evaluate: the protocol, condition by condition, its splits side by side; what is done is kept."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import pandas as pd

from occamap import _h5ad
from occamap._memory import Budget
from occamap._workers import Workers, count_jobs
from occamap.errors import InputWarning
from occamap.evaluation.bar import Bar
from occamap.evaluation.conditions import notes_on_splits
from occamap.evaluation.on_cluster import run_on_cluster
from occamap.evaluation.protocol import check_protocol, digest, rows_a_split
from occamap.evaluation.shared import Preparation, Shared
from occamap.evaluation.split import score_split
from occamap.evaluation.store import Store
from occamap.maps.progress import Progress
from occamap.run_record import DataFile
from occamap.scale import given_client
from occamap.scale.task import one_blas_thread


def evaluate(
    adata: Any,
    *,
    groupby: str,
    control: Any,
    targets: Sequence[Any] | str | None = None,
    within: str | None = None,
    layer: str | None = None,
    counts: str = "refuse",
    costs: Sequence[str] = ("sql2", "sql2_pca", "l1", "stvs"),
    gammas: Sequence[float] | None = None,
    k: int | None = None,
    epsilon: float | Sequence[float] = 0.1,
    epsilon_scale: str = "mean",
    ties: str = "zero",
    relax: float = 0.0,
    pool: int | str | None = None,
    splits: int | None = None,
    test_size: float | None = None,
    replicate: str | None = None,
    hvg: int | None = None,
    components: int = 50,
    markers: int = 50,
    close_ups: Sequence[str] = (),
    tol: float = 1e-4,
    max_iter: int = 2000,
    out: Any = None,
    max_memory: int | str | None = None,
    n_jobs: int | None = None,
    random_state: int = 0,
    verbose: bool | None = None,
    tick: Callable[[int, int], None] | None = None,
    client: Any = None,
) -> pd.DataFrame:
    """Fit maps on some of the cells, move held-out control cells, and compare them with held-out target cells.

    Parameters
    ----------
    adata, layer, counts
        Cells × genes, as for `tl.monge_map`; or the path of an .h5ad file or a Zarr store.
    groupby, control, targets
        A column of `adata.obs`, the control group, and the target groups in it (all others if None).
    within
        A column of `adata.obs`, such as the cell line: each target is evaluated in each of its groups.
    costs
        Of "sql2" (½ℓ2² in gene space), "sql2_pca" (½ℓ2² between the principal components of the train cells, mapped
        back to genes), "l1", "stvs" and "koverlap". The baselines are always there: "identity" (nothing moves),
        "mean_shift" (all cells move by the difference of the train means) and "treated" (some target cells of the train
        fold instead of a prediction, as many as are held out: about what a perfect map would score).
    gammas, k
        Strengths, for the costs that have one (0.01, 0.03, 0.1, 0.3, 1 and 3 if None); the k of "koverlap".
    epsilon, epsilon_scale, ties, relax, pool, tol, max_iter
        As for `MongeMap`, the paper's choice by default; one or several ε. `pool` is None, "auto" or a number of
        neighbours, which are looked for among the train cells.
    splits, test_size
        How many random splits (10 if None), and the share of both groups that is held out (0.2 if None). Both must be
        None with `replicate`.
    replicate
        A column of `adata.obs` with the donors. Each split then leaves one of them out: maps are learned on the control
        and target cells of all others, and judged on those of the donor left out. Scores then hold for other donors,
        not only for other cells of the same ones. At least 3 donors must have both control and target cells. Donors
        with cells of one group only, or with fewer than 10 in either, are used for learning only. Cells without an
        entry are left out.
    hvg
        Use so many genes that vary most over the cells of a condition (by scanpy); all genes if None.
    components
        Distances are measured between so many principal components of the train cells of a split, without those that
        stand for "treated"; "sql2_pca" learns on them.
    markers
        How many genes count as markers: those with the largest Welch's t of target against control cells.
    close_ups
        Conditions ("MCF7: Hesperadin", or "Hesperadin" without `within`) whose divergence is also computed over all
        genes, which is slow.
    out
        A directory for `evaluation.parquet`, `evaluation.csv`, `report.html` and `run.json`. What is computed is kept
        there at once: called again after an interruption, the evaluation goes on, and ends with the same table.
    max_memory, n_jobs, random_state, verbose
        As for `MongeMapCV`. Numbers depend on the seed and the names of the groups, not on other conditions. With
        `replicate`, the seed decides only which cells stand for "treated".
    tick
        Called with the number of rows of the table that are done and that of all.
    client
        A `dask.distributed.Client`, whose workers then share the work: conditions, splits, costs and γ, one thread a
        task. The table is the same, whatever workers there are and if some are lost; `max_memory` is for this process
        alone.

    Returns
    -------
    A data frame with one row per condition (`within`, `target`), `split`, `method`, `gamma` and `epsilon`, and

    - `replicate`: the donor that the split leaves out; empty for random splits
    - `status`, `message`, `epsilon_used`, `effective_targets`, and the numbers of cells `n_…`
    - `density`: the share of entries that move by more than 1e-8
    - `divergence`, `mmd`, `energy`: to the held-out target cells, on the components, by `metrics.sinkhorn_divergence`,
      `metrics.mmd` and `metrics.energy_distance`; `divergence_genes`: the first of these over all genes
    - on the markers, of the means of held-out target cells and of moved cells (`_means`), and of the changes of both
      from the held-out control cells (`_changes`): `pearson_r2`, `r2_score`, `pearson_r`; NaN where it is not defined
    - `rbo`, `rbo_min`, `rbo_residual`: of the markers, in their order, and of the genes by their mean displacement
    - those with `_all` take the markers from all cells, as the paper does, those with `_train` from the train cells

    Examples
    --------
    >>> import occamap as oc
    >>> adata = oc.datasets.simulate_perturbation(80, 60, 200, effect=1.5).to_anndata()
    >>> found = oc.evaluate(adata, groupby="condition", control="control", costs=["sql2", "l1"], gammas=[1.0], splits=2)
    >>> bool(found.groupby("method")["density"].mean()["l1"] < found.groupby("method")["density"].mean()["sql2"])
    True
    """
    path = adata if isinstance(adata, str | os.PathLike) else getattr(adata, "filename", None)
    with ExitStack() as files:
        if isinstance(adata, str | os.PathLike):
            file, adata = adata, _h5ad.read(adata, "adata", backed=max_memory is not None)
            files.enter_context(_h5ad.using(adata, file, "adata"))
        protocol, conditions, left_out = check_protocol(
            adata,
            groupby=groupby,
            control=control,
            targets=targets,
            within=within,
            layer=layer,
            counts=counts,
            costs=costs,
            gammas=gammas,
            k=k,
            epsilon=epsilon,
            epsilon_scale=epsilon_scale,
            ties=ties,
            relax=relax,
            pool=pool,
            splits=splits,
            test_size=test_size,
            replicate=replicate,
            hvg=hvg,
            components=components,
            markers=markers,
            close_ups=close_ups,
            tol=tol,
            max_iter=max_iter,
            random_state=random_state,
        )
        count_jobs(n_jobs)
        Budget(max_memory)
        if client is not None:
            given_client(client)
        columns = [column for column in (groupby, within, replicate) if column is not None]
        content = digest(adata, layer, columns)
        data = DataFile(str(path or ""), content, adata.shape)
        warned, noted = notes_on_splits(adata, protocol, conditions)
        warned = [*left_out, *warned]
        for text in warned:
            warnings.warn(text, InputWarning, stacklevel=2)
        store = files.enter_context(Store(out, protocol, data, conditions, warned, noted))
        with Progress(verbose) as progress:
            for text in noted:
                progress.tell(text)
            count = sum(len(condition.splits) for condition in conditions)
            bar = Bar(count * rows_a_split(protocol), progress, tick)
            if client is None:
                _run_here(Preparation(adata, protocol, max_memory, n_jobs), store, bar)
            else:
                run_on_cluster(adata, store, client, max_memory, bar)
        return store.finish()


def _run_here(prepare: Preparation, store: Store, bar: Bar) -> None:
    """Condition by condition, on threads of this process."""
    protocol = store.protocol
    for condition in store.conditions:
        count = len(condition.splits)
        todo = [number for number in range(count) if not store.has(condition.key, number)]
        bar.skip((count - len(todo)) * rows_a_split(protocol))
        if todo:
            _run(prepare(condition, lambda: bar.step(0)), todo, prepare.n_jobs, store, bar)


def _run(shared: Shared, todo: list[int], n_jobs: int | None, store: Store, bar: Bar) -> None:
    """Some splits of a condition, as many at a time as there are threads and memory for."""
    threads = count_jobs(n_jobs)
    at_once = min(threads, len(todo), shared.plan.at_once() or threads)

    def one(number: int) -> None:
        with Workers(max(1, threads // at_once)) as workers:
            store.put(shared.condition.key, number, score_split(shared, number, workers, bar.step))

    with Workers(at_once) as workers, one_blas_thread():
        try:
            for _ in workers.map(one, todo):
                pass
        except BaseException:
            bar.stop()
            raise
