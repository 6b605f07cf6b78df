"""The command that makes a run again."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from occamap.run_record import RunRecord

QUESTION = "groupby control target layer use_genes counts"
MAP = "cost k epsilon epsilon_scale relax pool"
GENES = "gene_sets l1_ratio frozen weights"
ASKED = {  # parameters that are options of the same name
    "fit": f"{QUESTION} {MAP} match within fdr gamma max_density {GENES} by replicate subsamples top max_memory "
    "threads write_adata",
    "path": f"{QUESTION} {MAP} gammas max_density splits max_memory threads",
    "evaluate": "groupby control targets within layer counts hvg costs gammas k epsilon epsilon_scale relax pool "
    "splits test_size replicate components markers close_ups",
}
NAMES = {"close_ups": "close-up"}
REPEATED = "targets", "close_ups", "frozen"
CHOSEN = {"gamma": "auto", "match": "none", "fdr": None}  # γ by held-out cells, who match in all genes
NO_GAMMA, NO_RELAX = {"sql2", "sql2_pca"}, {"sql2"}


def command(record: RunRecord, out: str = "again", instead: str | None = None) -> str:
    """What to type where the data are; `instead` is another command, for the options that it shares.

    Files are named without their folders, which say nothing to others.
    """
    name = instead or record.command
    words = ["occamap", name, _file(record)]
    for parameter in ASKED[name].split():
        value = record.parameters.get(parameter)
        if value is None or _idle(parameter, record.parameters):
            continue
        value = without_folders(str(value)) if parameter == "gene_sets" else value
        words += _option(NAMES.get(parameter, parameter.replace("_", "-")), value, parameter in REPEATED)
    words += [f"--seed={record.seed}", f"--out={out}"]
    return shlex.join(words)


def search(record: RunRecord) -> str:
    """The command that shows what other γ would give: `path`, or, where single genes or sets were spoken of, `fit`."""
    asked = record.parameters
    if any(asked.get(name) is not None for name in GENES.split()):
        return command(replace(record, command="fit", parameters={**asked, **CHOSEN}), "chosen")
    if asked["cost"] == "sql2":  # it has no γ: with the default penalty
        record = replace(record, parameters={**asked, "cost": "l1"})
    return command(record, "path", "path")


def without_folders(path: str) -> str:
    """The name of a file; the key of a table is as it was.

    >>> without_folders("/home/me/hallmark.gmt"), without_folders("hallmark")
    ('hallmark.gmt', 'hallmark')
    """
    return PurePath(path.replace("\\", "/")).name


def _file(record: RunRecord) -> str:
    name = without_folders(record.data.path) or "cells.h5ad"
    return f"./{name}" if name.startswith("-") else name


def _idle(parameter: str, parameters: dict[str, Any]) -> bool:
    """Whether the costs that were asked for have no such parameter, and refuse it."""
    costs = {parameters.get("cost")} if "cost" in parameters else set(parameters.get("costs") or [])
    if parameter in ("gamma", "gammas"):
        return costs <= NO_GAMMA
    return parameter == "relax" and "cost" in parameters and costs <= NO_RELAX


def _option(name: str, value: Any, repeated: bool) -> list[str]:
    if isinstance(value, bool):
        return [f"--{name}"] if value else []
    if isinstance(value, list | tuple):
        texts = [_text(entry) for entry in value]
        return [f"--{name}={text}" for text in texts] if repeated else [f"--{name}={','.join(texts)}"]
    return [f"--{name}={_text(value)}"]


def _text(value: Any) -> str:
    return repr(value) if isinstance(value, float) else str(value)
