"""path: the map at several γ, scored on held-out cells, and the choice among them, in one directory."""

from __future__ import annotations

import os
import time
import warnings
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from occamap import _h5ad as cells
from occamap._kept import keeping
from occamap._optional import optional, require
from occamap._record import versions
from occamap.errors import SelectionWarning
from occamap.reports import NAME as PAGE
from occamap.reports import Run, check_packages, page
from occamap.run_record import NAME, DataFile, RunRecord
from occamap.runs.directory import fingerprint, run_directory, writing
from occamap.runs.fitting import candidates, chosen_by, outcome
from occamap.runs.heard import hearing
from occamap.runs.options import MapOptions, Question, Stage, no_stage
from occamap.scale import connect
from occamap.selection import MongeMapCV
from occamap.selection.diagnostics import WEAK
from occamap.tl.cells import check_adata, genes_of, pair_of, samples

FILES = {"path": "path.csv", "picture": "path.png", "map": "map.occamap", "report": PAGE, "record": NAME}


@dataclass(frozen=True, eq=False)
class PathRun:
    """What a run gave: its record, a row a γ, which of them was chosen, and the directory that holds them."""

    record: RunRecord
    table: Any
    chosen: int
    directory: Path


def path(
    data: str | os.PathLike[str],
    out: str | os.PathLike[str],
    question: Question,
    options: MapOptions | None = None,
    gammas: list[float] | int | None = None,
    *,
    splits: int = 5,
    max_density: float | None = None,
    max_memory: str | None = None,
    threads: int | None = None,
    seed: int = 0,
    dask: str | None = None,
    stage: Stage = no_stage,
) -> PathRun:
    """Score the map at each γ on held-out cells, choose, and write what came of it into `out`, all of it or none.

    `path.csv` has a row a γ, `path.png` shows divergence against density, `map.occamap` is the chosen map (the sparsest
    within one standard error of the most faithful; with `max_density` the most faithful at or below it), `report.html`
    the page that `oc.report` makes, and `run.json` the record. `options` say all but γ, which must be None.
    `dask` is the address of a cluster that is to do the work.
    """
    require(("anndata", "pandas", "matplotlib"), "occamap path", "cells")
    check_packages()
    started, begun = datetime.now(UTC), time.perf_counter()
    filled = (options or MapOptions()).filled()
    search = MongeMapCV(
        filled.penalty,
        gammas=gammas,
        epsilon=filled.epsilon,
        epsilon_scale=filled.epsilon_scale or "",
        relax=filled.relax,
        pool=filled.resolution["pool"],
        cv=splits,
        rule="one_se" if max_density is None else "density",
        max_density=max_density,
        max_memory=max_memory,
        n_jobs=threads,
        random_state=seed,
    )
    search._check_parameters()
    found = cells.check_file(data, "data")
    with (
        hearing() as told,
        run_directory(out, FILES.values(), found) as directory,
        connect(dask) as client,
        ExitStack() as held,
    ):
        with stage("reading the cells"):
            adata = cells.read(found, backed=max_memory is not None)
            with cells.using(adata, found):
                source, target = _samples(adata, question)
            file = DataFile.of(found, adata.shape)
            del adata
        asked = {**asdict(question), **asdict(filled), "gammas": gammas, "splits": splits, "max_density": max_density}
        del asked["gamma"]
        whole = {"map": asked, "on_cluster": dask is not None}
        pieces = held.enter_context(keeping(directory, fingerprint(file, "path", whole, max_memory, seed)))
        search.fit(source, target, client=client)  # it shows by itself how far it is
        if search.diagnostics_.weak:
            warnings.warn(WEAK, SelectionWarning, stacklevel=2)
        table = candidates(search)
        record = RunRecord(
            command="path",
            data=file,
            parameters=asked | _settings(search) | {"dask": dask},
            result={
                **outcome(search.best_map_),
                "density": float(table["mean_density"].iloc[search.best_index_]),
                "n_cells": source.n_obs,
                "n_targets": target.n_obs,
                "n_genes": source.n_vars,
                "gammas": table["gamma"].tolist(),
                "chosen": int(search.best_index_),
                "diagnostics": str(search.diagnostics_),
                "choice": chosen_by(search),
                "pieces_from_earlier_runs": pieces.found,
            },
            warnings=tuple(told),
            versions=versions(),
            seed=seed,
            seconds=round(time.perf_counter() - begun, 3),
            started=started.isoformat(timespec="seconds"),
            files=dict(FILES),
        )
        with stage("drawing the page"):
            drawn = page(Run(record, {"path": table}, search.best_map_))
        with stage("writing"), writing(directory, FILES.values()) as parts:
            of = {part: parts[name] for part, name in FILES.items()}
            table.to_csv(of["path"], index=False)
            _draw(search, of["picture"])
            search.save(of["map"])
            of["report"].write_bytes(drawn)
            record = record.signed(of)
            record.write(of["record"])
    return PathRun(record, table, int(search.best_index_), directory)


def _samples(adata: Any, question: Question) -> tuple[Any, Any]:
    check_adata(adata)
    pair = pair_of(adata, question.groupby, question.control, question.target)
    return samples(adata, pair, question.layer, question.counts, genes_of(adata, question.use_genes))


def _settings(search: MongeMapCV) -> dict[str, Any]:
    """The settings of the search that are not among the options."""
    names = "ties", "rule", "projection", "reach", "tol", "max_iter", "max_memory", "n_jobs"
    found = {name: getattr(search, name) for name in names}
    found["threads"] = found.pop("n_jobs")
    return found


def _draw(search: MongeMapCV, path: Path) -> None:
    """The picture, in matplotlib's own style, whatever the user's is."""
    matplotlib = optional("matplotlib", "occamap path")
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        figure = optional("matplotlib.figure", "occamap path").Figure(figsize=(8.5, 4.5), layout="constrained")
        search.plot(figure.subplots())
        with path.open("wb") as stream:
            figure.savefig(stream, format="png", dpi=150)
