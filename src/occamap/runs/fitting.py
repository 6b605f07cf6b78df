"""fit: from a file of cells to a map, its genes and its cells, in one directory."""

from __future__ import annotations

import os
import time
import warnings
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from occamap import _h5ad as cells
from occamap import tl
from occamap._files import put_table
from occamap._kept import keeping
from occamap._optional import optional
from occamap._record import versions
from occamap.errors import InputError, InputWarning, NotConvergedWarning
from occamap.genes import Null, null_maps
from occamap.genes.fold_changes import typical_shift
from occamap.maps import MongeMap
from occamap.reports import NAME as PAGE
from occamap.reports import Run, check_packages, grouped, page
from occamap.run_record import NAME, DataFile, RunRecord
from occamap.runs.directory import file_name, fingerprint, run_directory, writing
from occamap.runs.heard import hearing
from occamap.runs.options import MapOptions, Question, Stage, check_subsamples, no_stage, unless_none
from occamap.scale import connect
from occamap.selection import MongeMapCV
from occamap.tl.calibration import put_calibration
from occamap.tl.cells import labels, replicate_labels
from occamap.tl.error_rates import RATE
from occamap.tl.gene_table import gene_tables
from occamap.tl.stored import critical, read, resolution

KEY = "occamap"
TOP = 50  # genes that count as found in a subsample
FIRST = 3  # genes that are named for a group
HALF = 0.5  # of the control cells
FEWEST = 4  # control cells that have two halves
SOME = 3  # frozen genes that a record names


@dataclass(frozen=True, eq=False)
class FitRun:
    """What a run gave: its record, the table of genes, the directory that holds them, and the table of pathways."""

    record: RunRecord
    table: Any
    directory: Path
    pathways: Any = None


def fit(
    data: str | os.PathLike[str],
    out: str | os.PathLike[str],
    question: Question,
    options: MapOptions | None = None,
    *,
    by: str | None = None,
    replicate: str | None = None,
    subsamples: int = 10,
    top: int = TOP,
    max_memory: str | None = None,
    threads: int | None = None,
    seed: int = 0,
    write_adata: bool = False,
    dask: str | None = None,
    stage: Stage = no_stage,
    command: str = "fit",
) -> FitRun:
    """Learn the map, and write it with its tables and a record into the directory `out`, all of them or none.

    `map.occamap` is the map, `genes.csv` what `tl.gene_table` gives (`genes_by_<column>.csv` for each group of the
    column `by`), `cells.csv` and `targets.csv` have a row a control and a target cell, `choice.csv` a row a candidate
    where held-out cells choose, `pathways.csv` (and `pathways_by_<column>.csv`) what `tl.pathway_table` gives, where
    there are gene sets, `cells.h5ad` (if asked for) is what `tl.monge_map` writes, `report.html` is the page
    that `oc.report` makes, and `run.json` the record. `dask` is the address of a cluster that is to do the work.
    Halves of the cells, and splits where held-out cells choose, are kept as they are done: after an interruption the
    same call goes on from there.
    """
    started, begun = datetime.now(UTC), time.perf_counter()
    filled = (options or MapOptions()).filled()
    check_subsamples(subsamples)
    check_packages()
    files = _names(by, filled.chosen, write_adata, filled.gene_sets is not None)
    path = cells.check_file(data, "data")
    backed = max_memory is not None and not write_adata
    with (
        hearing() as told,
        run_directory(out, files.values(), path) as directory,
        connect(dask) as client,
        ExitStack() as held,
    ):
        with stage("reading the cells"):
            adata = cells.read(path, backed=backed)
        with cells.using(adata, path):
            if by is not None:
                labels(adata, by, "by")
            if replicate is not None:
                replicate_labels(adata, replicate, question.groupby)
            found = DataFile.of(path, adata.shape)
            asked = {"question": asdict(question), "map": asdict(filled), "by": by, "subsamples": subsamples}
            asked |= {"replicate": replicate, "on_cluster": dask is not None}
            pieces = held.enter_context(keeping(directory, fingerprint(found, command, asked, max_memory, seed)))
            shared = {"max_memory": max_memory, "n_jobs": threads, "random_state": seed, "client": client}
            model = _learn(adata, question, filled, shared | _replicate(filled, replicate), stage)
            again = {"by": by, "subsamples": subsamples, "n_jobs": threads, "random_state": seed, "client": client}
            again |= {"max_memory": max_memory, "replicate": replicate}
            table, groups = _tables(adata, again | {"top": top}, stage)
            null = _null(adata, subsamples, {"n_jobs": threads, "max_memory": max_memory}, seed, stage)
            pathways = _pathways(adata, filled, by, replicate)
            rows, targets = _cells(adata, by), _targets(adata, by)
            record = RunRecord(
                command=command,
                data=found,
                parameters=_parameters(question, filled, model)
                | {"by": by, "subsamples": subsamples, "top": top, "threads": threads, "write_adata": write_adata}
                | {"dask": dask, "replicate": replicate},
                result=_result(adata, model, table, rows, null, by) | _sets_used(adata) | _by_group(adata, groups, by)
                | {"pieces_from_earlier_runs": pieces.found},
                warnings=tuple(told),
                versions=versions(),
                seed=seed,
                seconds=round(time.perf_counter() - begun, 3),
                started=started.isoformat(timespec="seconds"),
                files=files,
            )
            tables = {"genes": table, "cells": rows, "targets": targets}
            if groups is not None and grouped(rows, record):
                tables["genes_by"] = groups
            if filled.chosen:
                tables["choice"] = candidates(model.selection_)
            with stage("drawing the page"):
                drawn = page(Run(record, tables, model, read(adata, KEY).moves()))
            with stage("writing"), writing(directory, files.values()) as parts:
                of = {part: parts[name] for part, name in files.items()}
                model.save(of["map"])
                put_table(table, of["genes"], index=True)
                if groups is not None:
                    put_table(groups, of["genes_by"], index=True)
                for part in ("cells", "targets", "choice"):
                    if part in tables:
                        put_table(tables[part], of[part], index=False)
                for part, one in pathways.items():
                    put_table(one, of[part], index=True)
                if write_adata:
                    cells.put(adata, of["adata"])
                of["report"].write_bytes(drawn)
                record = record.signed(of)
                record.write(of["record"])
    return FitRun(record, table, directory, pathways.get("pathways"))


def _names(by: str | None, chosen: bool, write_adata: bool, sets: bool) -> dict[str, str]:
    """The files by their part in the run; the record is the last to get its name."""
    files = {"map": "map.occamap", "genes": "genes.csv"}
    if by is not None:
        files["genes_by"] = file_name("genes_by_", by, ".csv")
    if sets:
        files["pathways"] = "pathways.csv"
    if sets and by is not None:
        files["pathways_by"] = file_name("pathways_by_", by, ".csv")
    files |= {"cells": "cells.csv", "targets": "targets.csv"}
    if chosen:
        files["choice"] = "choice.csv"
    if write_adata:
        files["adata"] = "cells.h5ad"
    return {**files, "report": PAGE, "record": NAME}


def _learn(adata: Any, question: Question, options: MapOptions, shared: dict[str, Any], stage: Stage) -> MongeMap:
    asked: dict[str, Any] = {**asdict(question), **shared, **options.asked}
    asked |= {"relax": options.relax, **options.resolution}
    asked["epsilon"] = options.epsilon
    if options.epsilon_scale is not None:
        asked["epsilon_scale"] = options.epsilon_scale
    if options.chosen:  # it shows by itself how far it is
        return tl.monge_map(adata, **asked, max_density=options.max_density, key_added=KEY)
    with stage("learning the map"):
        return tl.monge_map(adata, **asked, verbose=False, key_added=KEY)


def _replicate(options: MapOptions, replicate: str | None) -> dict[str, Any]:
    """The column of replicates, for maps that test what moves; other maps have no use for it."""
    return {} if replicate is None or unless_none(options.fdr) is None else {"replicate": replicate}


def _tables(adata: Any, asked: dict[str, Any], stage: Stage) -> tuple[Any, Any]:
    """The genes, and those of each group if asked for, with one warning for all subsamples."""
    count = asked["subsamples"]
    heard = hearing(show=False, kinds=(NotConvergedWarning,))
    with heard as told, stage("genes: halves of the cells" if count else "genes") as tick:
        tables = gene_tables(adata, key=KEY, wilcoxon=False, tick=tick, **asked)
    if told:
        message = f"In {len(told)} of {count} subsamples the solver did not converge; in the first: {told[0]}"
        warnings.warn(message, NotConvergedWarning, stacklevel=2)
    return tables


def _pathways(adata: Any, options: MapOptions, by: str | None, replicate: str | None) -> dict[str, Any]:
    """The pathways, and those of each group if asked for, by the part of their files, where there are gene sets."""
    if options.gene_sets is None:
        return {}
    parts = {"pathways": None} | ({} if by is None else {"pathways_by": by})
    with hearing(show=False, kinds=(InputWarning,)):  # of few replicates, as the table of genes has warned
        return {part: tl.pathway_table(adata, key=KEY, by=by, replicate=replicate) for part, by in parts.items()}


def _sets_used(adata: Any) -> dict[str, Any]:
    """Which gene sets were used, what was dropped of them, and how many genes were frozen, with some of their names."""
    entry = adata.uns[KEY]
    kept = {"gene_sets": entry.get("gene_sets"), "n_frozen": entry["params"].get("n_frozen")}
    if kept["n_frozen"]:
        stored = read(adata, KEY)
        still = stored.cost()._frozen(stored.names.size)
        kept["some_frozen"] = [str(name) for name in stored.names[still][:SOME]]
    return {name: value for name, value in kept.items() if value is not None}


def _by_group(adata: Any, groups: Any, by: str | None) -> dict[str, Any]:
    """By group: the share of mass that is matched within it, clear shifts of its typical gene (log2), its responses."""
    if groups is None or by is None:
        return {}
    stored, found = read(adata, KEY), labels(adata, by, "by")
    rate = RATE if stored.entry["params"].get("fdr") is None else float(stored.entry["params"]["fdr"])
    sides = [(stored.cells(side), found[stored.rows(side)]) for side in ("control", "target")]
    kept, shifts, responses = dict[str, float](), dict[str, float](), dict[str, Any]()
    for name in groups.index.get_level_values(0).dropna().unique():
        table = groups.loc[name]
        if table["q"].notna().any():
            genes = table[table["q"] <= rate].sort_values("difference", key=np.abs, ascending=False, kind="stable")
            responses[str(name)] = {
                "n_genes_found": len(genes),
                "n_genes_up": int((genes["difference"] > 0).sum()),
                "first": [str(gene) for gene in genes.index[:FIRST]],
            }
            if "n_replicates" in table:
                responses[str(name)]["n_replicates"] = int(table["n_replicates"].iloc[0])
        if np.isfinite(table["matched_within"].iloc[0]):
            kept[str(name)] = float(table["matched_within"].iloc[0])
        shift = _shift(table, stored.names, [cells[np.flatnonzero(codes == name)] for cells, codes in sides])
        if shift is not None:
            shifts[str(name)] = shift
    in_some = {
        "n_genes_found_in_groups": int((groups["q"] <= rate).groupby(level=1).any().sum()),
        "n_tests_in_groups": int(groups["q"].notna().sum()),
    }
    return {"matched_within": kept, "shifts": shifts, "responses": responses, **(in_some if responses else {})}


def _shift(table: Any, names: Any, sides: list[Any]) -> float | None:
    """The shift (log2) of the typical gene between the cells of two sides, if it is clear."""
    counts = [np.bincount(part.indices, minlength=part.shape[1]) / max(part.shape[0], 1) for part in sides]
    found = typical_shift(table["log2_fold_change"].reindex(names).to_numpy(), np.mean(counts, axis=0))
    return found.median if found is not None and found.is_clear else None


def _null(adata: Any, subsamples: int, settings: dict[str, Any], seed: int, stage: Stage) -> Null | None:
    """Maps between halves of the control cells, for comparison, where maps are fitted to halves at all."""
    stored = read(adata, KEY)
    control = stored.cells("control")
    if not subsamples or control.shape[0] < FEWEST:
        return None
    like = stored.unfitted().set_params(**settings)
    try:
        with hearing(show=False), stage("null maps: control to control"):
            found = null_maps(like, control, np.random.default_rng([seed, 1]))
    except InputError as error:  # a map is not lost because it cannot be checked
        warnings.warn(f"The error rate cannot be checked by null maps: {error}", InputWarning, stacklevel=2)
        return None
    if found.expected:
        put_calibration(adata, KEY, found)
    return found


def _cells(adata: Any, by: str | None) -> Any:
    """One row per control cell: its name, its group, how many genes move, and how far."""
    rows = read(adata, KEY).rows("control")
    columns: dict[str, Any] = {"cell": np.asarray(adata.obs_names)[rows]}
    if by is not None:
        columns["group"] = labels(adata, by, "by")[rows]
    columns["n_genes"] = np.asarray(adata.obs[f"{KEY}_n_genes"])[rows].astype(np.int64)
    columns["distance"] = np.asarray(adata.obs[f"{KEY}_distance"])[rows]
    columns["response"] = np.asarray(adata.obs[f"{KEY}_response"])[rows]
    return optional("pandas", "fit").DataFrame(columns)


def _targets(adata: Any, by: str | None) -> Any:
    """One row per target cell: its name and its group."""
    rows = read(adata, KEY).rows("target")
    columns: dict[str, Any] = {"cell": np.asarray(adata.obs_names)[rows]}
    if by is not None:
        columns["group"] = labels(adata, by, "by")[rows]
    return optional("pandas", "fit").DataFrame(columns)


def _parameters(question: Question, options: MapOptions, model: MongeMap) -> dict[str, Any]:
    """All that was asked for, and the settings of the map that have no option."""
    rest = {name: getattr(model, name) for name in ("ties", "reach", "tol", "max_iter", "max_memory")}
    return {**asdict(question), **asdict(options), **rest}


def neighbourhoods(model: MongeMap, groups: Any = None) -> dict[str, Any]:
    """How large the neighbourhoods are, how far they reach and, if groups are known, how pure they are."""
    found = model.describe_neighbourhoods()
    if found is None:
        return {"neighbourhoods": None}
    told: dict[str, Any] = asdict(found)
    if groups is not None:
        W = model.neighbourhoods()
        rows = np.repeat(np.arange(W.shape[0]), np.diff(W.indptr))
        own = np.bincount(rows, W.data * (groups[rows] == groups[W.indices]), minlength=W.shape[0])
        told["within_group"] = float(own.mean())
        names = sorted({str(group) for group in groups if group is not None})
        told["within_each_group"] = {name: float(own[groups == name].mean()) for name in names}
    return {"neighbourhoods": told}


def _result(
    adata: Any, model: MongeMap, table: Any, rows: Any, null: Null | None, by: str | None
) -> dict[str, Any]:
    report, stored = model.report_, read(adata, KEY)
    compared: dict[str, Any] = {}
    if null is not None:
        beyond = int((table["mean"].abs() > null.largest_mean).sum())
        observed = [[score or None for score in scores] for scores in null.observed]
        compared = {"null": asdict(null) | {"observed": observed, "width": null.width}, "n_genes_beyond_null": beyond}
    return {
        **outcome(model),
        "match": resolution(model)["match"],
        **neighbourhoods(model, None if by is None else labels(adata, by, "by")[stored.rows("control")]),
        "density": float(rows["n_genes"].sum() / (len(rows) * len(table))),
        "n_cells": len(rows),
        "n_targets": report.n_targets,
        "n_genes": len(table),
        **_tested(table, RATE if model.fdr is None else model.fdr),
        "shift": _shift(table, stored.names, [stored.cells(side) for side in ("control", "target")]),
        "n_genes_in_half": int((table["share"] >= HALF).sum()),
        "median_genes_per_cell": float(rows["n_genes"].median()),
        "median_distance": float(rows["distance"].median()),
        "diagnostics": adata.uns[KEY].get("selection"),
        **compared,
        **({"choice": chosen_by(model.selection_)} if hasattr(model, "selection_") else {}),
    }


def _tested(table: Any, rate: float) -> dict[str, Any]:
    """How many genes differ at a false-discovery rate, if they were tested at all."""
    if table["q"].isna().all():
        return {}
    found = {
        "false_discovery_rate": rate,
        "n_genes_tested": int(table["q"].notna().sum()),
        "n_genes_found": int((table["q"] <= rate).sum()),
    }
    return found | ({"n_replicates": int(table["n_replicates"].iloc[0])} if "n_replicates" in table else {})


def candidates(search: MongeMapCV) -> Any:
    """A row a candidate, without seconds: the table of the same run is the same."""
    return search.to_frame().drop(columns=["fit_seconds", "map_seconds", "score_seconds"])


def chosen_by(search: MongeMapCV) -> dict[str, Any]:
    """Which candidate held-out cells chose, by which rule, and what it is compared with."""
    told = search.diagnostics_
    return {
        "index": int(search.best_index_),
        "rule": search.rule,
        "frontier": [int(row) for row in search.frontier_],
        "comparison": [vars(line) for line in told.lines],
        "notes": told.notes(),
        "poor": told.poor,
    }


def outcome(model: MongeMap) -> dict[str, Any]:
    """How the solver ended, and with which ε and γ."""
    report = model.report_
    return {
        "status": str(report.status),
        "message": report.message,
        "epsilon": report.epsilon,
        "epsilon_rule": report.epsilon_rule,
        "gamma": getattr(model.cost, "gamma", None) if model.fdr is None else None,
        **_rate(model),
        "effective_targets": report.effective_targets,
        "costs": report.operator,
        "costs_choice": report.choice,
    }


def _rate(model: MongeMap) -> dict[str, Any]:
    """The false-discovery rate of the entries that move, and what it asks of them."""
    if model.fdr is None:
        return {"fdr": None}
    return {"fdr": model.fdr, "critical": critical(model), "n_tested": model.threshold_.n_tested}
