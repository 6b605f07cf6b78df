"""oc.report: a saved run as one page."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from occamap._files import check_target, replacing
from occamap.errors import InputError, RunFileError, one_line
from occamap.reports.again import command, search
from occamap.reports.choice import Choice, choice
from occamap.reports.html import check_packages, fill
from occamap.reports.pack import pack
from occamap.reports.saved import Run, read
from occamap.reports.scores import evaluation_page
from occamap.reports.trust import in_short, trust
from occamap.reports.view import View, view
from occamap.reports.words import headline, methods, parameters

NAME, DOCTYPE = "report.html", b"<!doctype html>"
RULES = {
    "best": "the most faithful map",
    "one_se": "the sparsest map within one standard error of the most faithful",
    "density": "the most faithful map at or below the density that was allowed",
}


def report(run: str | os.PathLike[str], out: str | os.PathLike[str] | None = None) -> Path:
    """One self-contained HTML page from a saved run: which genes move, in which cells, how far, and how sure that is.

    It is made from the run's record, map and tables, never by fitting again; it opens from a file, without a network.

    Parameters
    ----------
    run
        The directory that `occamap fit`, `path` or `evaluate` wrote (or `oc.evaluate` with `out`), or its run.json.
    out
        The file to write; `report.html` in the directory of the run if None.

    Returns
    -------
    The path of the page.

    Examples
    --------
    >>> import occamap as oc
    >>> oc.report("run")  # doctest: +SKIP
    PosixPath('run/report.html')
    """
    check_packages()
    saved, directory = read(run)
    target = check_target(directory / NAME if out is None else out)
    _check_page(target)
    content = page(saved)
    with replacing(target) as stream:
        stream.write(content)
    return target


def _check_page(target: Path) -> None:
    """Raise where a file would be replaced that is no page: cells, a map, a record."""
    if target.exists():
        with target.open("rb") as stream:
            if not stream.read(len(DOCTYPE)).lower().startswith(DOCTYPE):
                raise InputError(f"out must be a new file, or a page to replace; {str(target)!r} is something else")


def page(run: Run) -> bytes:
    """The page of a run, whether it was read or is about to be written."""
    try:
        return evaluation_page(run) if run.record.command == "evaluate" else _map_page(run)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        what = f"{type(error).__name__}: {one_line(error)}"
        raise RunFileError(f"the record and the files of the run do not fit together ({what}): run it again") from error


def _map_page(run: Run) -> bytes:
    record = run.record
    seen = view(run)
    made = _choice(run)
    asked = record.parameters
    items = trust(record, seen, made)
    data = {
        **seen.header,
        "kind": "map",
        "control": str(asked["control"]),
        "target": str(asked["target"]),
        "choice": None if made is None else {"points": made.points, "lines": made.lines},
    }
    return fill(
        "map.html",
        record,
        pack(data, seen.arrays),
        title=f"{asked['control']} → {asked['target']}",
        headline=headline(record, seen),
        sections=[
            ("explore", "Genes and cells"),
            ("trust", "Trust"),
            ("single", "Cell by cell"),
            ("agree", "Means"),
            ("chosen", "γ and ε"),
            ("methods", "Methods"),
        ],
        trust=items,
        care=in_short(items),
        shown=_shown(record.result, seen),
        top=asked.get("top") or 50,
        choice=made,
        why=_why(run, made),
        path_command=search(record),
        methods=methods(record, seen),
        command=command(record),
        parameters=parameters(record),
    )


def _choice(run: Run) -> Choice | None:
    table = run.tables.get("path", run.tables.get("choice"))
    told = run.record.result.get("choice")
    return None if table is None or told is None else choice(table, told)


def _why(run: Run, made: Choice | None) -> str:
    asked, result = run.record.parameters, run.record.result
    epsilon = f"ε = {result['epsilon']:.4g} (by the rule: {result['epsilon_rule']})"
    if result.get("fdr") is not None:
        values = {"fdr": f"A false-discovery rate of {100 * result['fdr']:g} %", "epsilon": epsilon}
    elif asked["cost"] == "sql2" or result["gamma"] is None:
        values = {"epsilon": epsilon}
    else:
        values = {"gamma": f"γ = {result['gamma']:.4g}", "epsilon": epsilon}
    searched = {name for name in values if asked.get(name) == "auto"} | ({"gamma"} if "gammas" in asked else set())
    picked = [text for name, text in values.items() if name in searched]
    given = [text for text in values.values() if text not in picked]
    if made is None:
        sparse = "" if asked["cost"] != "sql2" else " The usual squared distance has no γ: all that differs moves."
        return (
            f"{' and '.join(given)} {_was(given)} asked for, or the default: no held-out cells chose.{sparse} What "
            "sparser or denser maps would give, and how close each comes to cells it has not seen, this command shows:"
        )
    rule = RULES.get(str(result["choice"]["rule"]), str(result["choice"]["rule"]))
    most = asked.get("max_density")
    limit = f" ({100 * most:g} %)" if isinstance(most, float) else ""
    rest = f" {' and '.join(given)} {_was(given)} given." if given else ""
    return (
        f"{' and '.join(picked)} {_was(picked)} chosen on held-out cells: {rule}{limit}.{rest} Of {len(made.points)} "
        "candidates that were scored:"
    )


def _was(names: list[str]) -> str:
    return "was" if len(names) == 1 else "were"


def _shown(result: dict[str, Any], seen: View) -> str:
    """What is in the page, where it is not all."""
    whole = int(result["n_cells"])
    cells = f"{seen.shown:,} of {whole:,} control cells are shown, drawn at random. " if seen.shown < whole else ""
    kept, moving = seen.arrays["kept"].size, int((seen.genes["share"] > 0).sum())
    genes = ""
    if kept < moving:
        share = seen.header["held"]
        genes = (
            f"For its size, the page holds the displacements of single cells for {kept:,} of the {moving:,} genes that "
            f"move, {share:.0%} of the sum of their squares; the table has all genes. "
        )
    return f"{cells}{genes}Displacements of single cells are rounded to less than 1 % of a gene's largest."
