"""Options that several commands have, with the same words."""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import Annotated

import typer

CELLS, MAP, TABLE, WORK, OUTPUT = "Which cells", "Which map", "Which tables", "How to work", "What to write"


class CostName(StrEnum):
    """The penalties whose strength can be varied."""

    l1 = "l1"
    stvs = "stvs"
    koverlap = "koverlap"


class FitCostName(StrEnum):
    """The penalties, none at all (sql2), and the one that gene sets have."""

    sql2 = "sql2"
    l1 = "l1"
    stvs = "stvs"
    koverlap = "koverlap"
    grouplasso = "grouplasso"


class Counts(StrEnum):
    """What to do about raw counts."""

    refuse = "refuse"
    normalize = "normalize"
    keep = "keep"


class EpsilonScale(StrEnum):
    """What ε is a multiple of."""

    mean = "mean"
    median = "median"
    std = "std"
    max = "max"
    absolute = "absolute"
    perplexity = "perplexity"


Data = Annotated[
    str, typer.Argument(metavar="DATA", help="Cells × genes, normalised and logged: an .h5ad file or a Zarr store.")
]
Groupby = Annotated[
    str, typer.Option("--groupby", metavar="COLUMN", help="Column of obs with the groups.", rich_help_panel=CELLS)
]
Control = Annotated[str, typer.Option("--control", metavar="NAME", help="The group to move.", rich_help_panel=CELLS)]
Target = Annotated[
    str, typer.Option("--target", metavar="NAME", help="The group to move it to.", rich_help_panel=CELLS)
]
Layer = Annotated[
    str | None, typer.Option("--layer", metavar="NAME", help="Layer to use instead of X.", rich_help_panel=CELLS)
]
UseGenes = Annotated[
    str | None,
    typer.Option(
        "--use-genes",
        metavar="COLUMN",
        help="Column of var that marks the genes to use, such as highly_variable; all if not given.",
        rich_help_panel=CELLS,
    ),
]
CountsChoice = Annotated[
    Counts,
    typer.Option(
        "--counts",
        help="Raw counts: refuse them, normalize them here (to 10,000 a cell, then log1p), or keep whole numbers.",
        rich_help_panel=CELLS,
    ),
]
Cost = Annotated[CostName, typer.Option("--cost", help="The penalty on what moves.", rich_help_panel=MAP)]
FitCost = Annotated[
    FitCostName | None,
    typer.Option(
        "--cost",
        help="The penalty on what moves; with --gene-sets it is grouplasso.",
        show_default="l1",
        rich_help_panel=MAP,
    ),
]
K = Annotated[
    int | None,
    typer.Option("--k", min=1, help="For koverlap: minimum number of genes that move.", rich_help_panel=MAP),
]
GeneSets = Annotated[
    str | None,
    typer.Option(
        "--gene-sets",
        metavar="FILE.gmt",
        help="Pathways, whose genes move together: a GMT file (or .gmt.gz), or a key of uns or varm.",
        rich_help_panel=MAP,
    ),
]
L1Ratio = Annotated[
    float | None,
    typer.Option(
        "--l1-ratio",
        metavar="R",
        min=0.0,
        max=1.0,
        help="With --gene-sets: 0 moves the genes of a set together, 1 moves each by itself.",
        show_default="0",
        rich_help_panel=MAP,
    ),
]
Frozen = Annotated[
    list[str] | None,
    typer.Option(
        "--frozen",
        metavar="PATTERN",
        help="Genes that neither move nor count in the match: a name, a pattern such as 'MT-*', or a column of var; "
        "may be repeated.",
        show_default=False,
        rich_help_panel=MAP,
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(
        "--weights",
        metavar="dispersion|COLUMN",
        help="Penalty weight of each gene: its standard deviation over the control cells, or a column of var.",
        rich_help_panel=MAP,
    ),
]
Scale = Annotated[
    EpsilonScale | None,
    typer.Option(
        "--epsilon-scale",
        help="What ε is a multiple of: a statistic of the costs, 1 (absolute), or effective targets (perplexity).",
        show_default="perplexity",
        rich_help_panel=MAP,
    ),
]
Relax = Annotated[
    float | None,
    typer.Option(
        "--relax",
        min=0.0,
        max=1.0,
        help="How much of the penalty's shrinkage to undo.",
        show_default="1",
        rich_help_panel=MAP,
    ),
]
POOL_HELP = (
    "Resolution of the displacements: a neighbourhood of similar cells, whose size is chosen (auto), a number of "
    "cells, a "
)
Pool = Annotated[
    str,
    typer.Option(
        "--pool",
        metavar="auto|K|COLUMN|KEY|none",
        help=POOL_HELP + "column of obs, a graph in obsp, or each cell by itself (none).",
        rich_help_panel=MAP,
    ),
]
PathPool = Annotated[
    str,
    typer.Option(
        "--pool",
        metavar="auto|K|none",
        help=POOL_HELP.removesuffix(", a ") + ", or each cell by itself (none).",
        rich_help_panel=MAP,
    ),
]
Match = Annotated[
    str,
    typer.Option(
        "--match",
        metavar="auto|N|KEY|none",
        help="Where cells are matched: on N principal components, on coordinates in obsm, or in all genes (none). auto "
        "is 30 components, or all genes with --gamma auto or --epsilon auto.",
        rich_help_panel=MAP,
    ),
]
MaxMemory = Annotated[
    str | None,
    typer.Option(
        "--max-memory",
        metavar="SIZE",
        help="Memory limit of the process, not counting the cells that are compared, such as 2GB.",
        rich_help_panel=WORK,
    ),
]
Threads = Annotated[
    int | None,
    typer.Option("--threads", min=1, help="Number of threads; all cores by default.", rich_help_panel=WORK),
]
Dask = Annotated[
    str | None,
    typer.Option(
        "--dask",
        metavar="ADDRESS",
        help="Address of a running Dask scheduler, such as tcp://10.0.0.1:8786; its workers do the work.",
        rich_help_panel=WORK,
    ),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Random seed.", rich_help_panel=WORK)]
OutDirectory = Annotated[
    str,
    typer.Option("--out", "-o", metavar="DIR", help="Where the files go; made if need be.", rich_help_panel=OUTPUT),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the record as JSON, for machines.", rich_help_panel=OUTPUT)]


def value(choice: Enum | None) -> str | None:
    """What was chosen, as text."""
    return None if choice is None else str(choice.value)
