"""Benchmarks in parts: each part is measured by itself, kept as JSON, and shown as tables of means."""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.machine import facts, installed

RESULTS = Path(__file__).with_name("results")
REAL = "interferon"  # the part that needs real cells
Row = dict[str, Any]
Tables = dict[str, list[Row]]  # by their titles


@dataclass(frozen=True)
class Benchmark:
    """A module `benchmarks.<name>` whose results go to results/<name>.json and results/<name>.md.

    `about` is the docstring of the module, of which the page has all but the first two paragraphs, and `text` makes a
    cell of a table from a mean, its standard error and the name of the column.
    """

    name: str
    title: str
    about: str
    parts: dict[str, Callable[[], Tables]]
    text: Callable[[float, float, str], str]

    @property
    def data(self) -> Path:
        return RESULTS / f"{self.name}.json"

    def kept(self) -> dict[str, Any]:
        """What was measured before."""
        return json.loads(self.data.read_text()) if self.data.exists() else {}

    def main(self, names: list[str]) -> None:
        """Measure these parts, or all, and write the page."""
        unknown = [name for name in names if name not in self.parts]
        if unknown:
            sys.exit(f"there is no part {unknown[0]!r}: take some of {', '.join(self.parts)}")
        for name in names or self.parts:
            if name == REAL and "OCCAMAP_DATA" not in os.environ:
                print(f"{name}: skipped, OCCAMAP_DATA names no directory with kang_ifnb.h5ad")
                continue
            begun, machine = time.perf_counter(), {**facts(), "scanpy": installed("scanpy")}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tables = self.parts[name]()
            kept = {**self.kept(), name: {"tables": tables, "machine": machine}}  # others may run meanwhile
            self.data.write_text(json.dumps(kept, indent=1))
            print(f"{name}: {time.perf_counter() - begun:.0f} s", flush=True)
            for title, rows in tables.items():
                print(f"{title}\n{self.table(rows)}", flush=True)
        self.write_page()

    def write_page(self) -> None:
        """The tables of all parts that were measured."""
        page, kept = [f"# {self.title}", "", "\n\n".join(self.about.split("\n\n")[2:])], self.kept()
        for name in self.parts:
            for title, rows in kept.get(name, {"tables": {}})["tables"].items():
                page += [f"## {title}", "", self.table(rows), "", f"`python -m benchmarks.{self.name} {name}`", ""]
        (RESULTS / f"{self.name}.md").write_text("\n".join(page))

    def table(self, rows: list[Row]) -> str:
        """Means over seeds or splits, with the standard error of those that differ."""
        frame = pd.DataFrame(rows).drop(columns=["seed", "split"], errors="ignore")
        keys = [name for name in frame.columns if isinstance(rows[0][name], str)]
        numbers = [name for name in frame.columns if name not in keys]
        groups = frame.groupby(keys, sort=False)[numbers]
        mean, error = groups.mean(), groups.sem()
        lines = ["| " + " | ".join([*keys, *numbers]) + " |", "|---" * (len(keys) + len(numbers)) + "|"]
        for index in mean.index:
            named = index if isinstance(index, tuple) else (index,)
            cells = [self.text(mean.loc[index, name], error.loc[index, name], name) for name in numbers]
            lines.append("| " + " | ".join([*map(str, named), *cells]) + " |")
        return "\n".join(lines)
