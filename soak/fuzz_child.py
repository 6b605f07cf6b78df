"""One reader under libFuzzer: `python -m soak.fuzz_child READER WORK CORPUS -max_total_time=…`; it ends by itself."""

from __future__ import annotations

import gzip
import inspect
import json.decoder
import json.scanner
import os
import sys
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import atheris
import numpy as np

import occamap as oc
from occamap import _record, _validate, model_file, run_record
from occamap.errors import OccamapError
from occamap.maps import saved
from occamap.run_record import RunRecord
from occamap.tl import gene_sets, gmt
from occamap.tl.gene_sets import gene_sets_of
from soak.files_cells import GENES
from soak.files_targets import moved
from soak.fuzz_frames import built, mutated

SEEN = model_file, saved, run_record, _record, _validate, gmt, gene_sets, zipfile, gzip, json.decoder, json.scanner


def watch(module: ModuleType) -> None:
    """Let the fuzzer see which branches of a module's functions and methods are taken."""
    for thing in vars(module).values():
        held = vars(thing).values() if inspect.isclass(thing) and thing.__module__ == module.__name__ else [thing]
        for function in held:
            plain = function.__func__ if isinstance(function, classmethod | staticmethod) else function
            if inspect.isfunction(plain) and plain.__module__ == module.__name__:
                atheris.instrument_func(plain)


def _model(path: Path, content: bytes) -> None:
    path.write_bytes(built(content))
    moved(oc.load(path))


def _record(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    RunRecord.read(path).to_dict()


def _sets(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    gene_sets_of(GENES, path, np.ones(10, bool))


READS: dict[str, Callable[[Path, bytes], None]] = {"model file": _model, "run record": _record, "gene sets": _sets}


def main() -> None:
    reader, work, *rest = sys.argv[1:]
    read, path = READS[reader], Path(work) / "file"
    warnings.simplefilter("ignore")
    for module in SEEN:
        watch(module)

    def one(content: bytes) -> None:
        try:
            read(path, content)
        except OccamapError as error:
            if "\n" in str(error):
                raise RuntimeError("an error of more than one line") from error

    def mutate(content: bytes, most: int, seed: int) -> bytes:
        rng = np.random.default_rng(seed)
        made = mutated(content, rng) if reader == "model file" and rng.random() < 0.7 else None
        return atheris.Mutate(content, most) if made is None or len(made) > most else made

    os.chdir(work)
    atheris.Setup([sys.argv[0], *rest, "-max_len=40000"], one, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
