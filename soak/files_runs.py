"""Records, directories of runs and parts of evaluations that are damaged."""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import occamap as oc
from occamap.evaluation.store import _sha256
from occamap.run_record import NAME, RunRecord, sha256
from soak import files_model, files_seeds
from soak.files_damage import BYTES, NAMES, NUMBERS, Rng, dumped, edited, edited_json, wrong_value
from soak.files_targets import OTHER, STRANGE, UNHARMED, Target, UnsoundError, pick, strange, write_one

SCRIPT = b"<script"
HOSTILE = "<script>x</script>", "</style><script>", '"><img src=x onerror=x>', "{{ 7 * 7 }}", "=cmd|' /C calc'!A0"


# -- run.json alone ------------------------------------------------------------------------------------------------


def _make_record(kind: str, rng: Rng, whole: Path, where: Path) -> Path:
    path = pick(rng, whole / "runs", f"*/{NAME}")
    content = path.read_bytes()
    if kind == STRANGE:
        return strange(rng, where, path)
    if kind in BYTES:
        content = BYTES[kind](content, rng)
    elif kind == "edited":
        content = edited_json(content, rng)
    elif kind == "an entry replaced":
        tree = json.loads(content)
        key = list(tree)[rng.integers(len(tree))]
        content = dumped({**tree, key: wrong_value(rng, tree[key])}, rng)
    elif kind == "names of files":
        tree = json.loads(content)
        tree["files"][next(iter(tree["files"]))] = NAMES[rng.integers(len(NAMES))]
        content = dumped(tree, rng)
    elif kind == "too large":
        content = content[:-2] + b',"x":"' + b"x" * int(rng.choice([2**23, 2**25])) + b'"}'
    else:
        texts = [b"", b"null", b"[]", b"{}", b"[" * 10**6, b'{"a":' * 10**5, b"9" * 5000, b"\xff\xfe{}", b"\xef{}"]
        content = texts[rng.integers(len(texts))]
    return write_one(where, NAME, content)


@cache
def _records() -> set[str]:
    return set()


def _read_record(path: Path, out: Path) -> str:
    record = RunRecord.read(path)
    record.write(out / NAME)
    again = RunRecord.read(out / NAME)
    if again != record and not _odd(record.to_dict()):
        raise UnsoundError("the record is another one when it is written and read again")
    return UNHARMED if str(record) in _records() else OTHER


def _odd(value: Any) -> bool:
    """Whether a number is not finite (null, when written) or a text half a character."""
    text = json.dumps(value)
    return "null" in text or "NaN" in text or "Infinity" in text or "\\ud" in text


def _warm_record(whole: Path, out: Path) -> None:
    for path in (whole / "runs").glob(f"*/{NAME}"):
        _records().add(str(RunRecord.read(path)))


# -- the directory of a run, for a page ----------------------------------------------------------------------------


def _make_run(kind: str, rng: Rng, whole: Path, where: Path) -> Path:
    source = whole / "runs" / ("evaluated" if rng.random() < 0.3 else "fit")
    run = Path(shutil.copytree(source, where / "run", ignore=shutil.ignore_patterns("*.html", "*.parquet", "parts")))
    record = json.loads((run / NAME).read_text())
    part = [part for part in ("genes", "cells", "targets", "csv") if part in record["files"]]
    table = run / record["files"][part[rng.integers(len(part))]]
    if kind == STRANGE:
        victim = pick(rng, run)
        victim.unlink()
        strange(rng, run, source / victim.name)
    elif kind == "a table damaged":
        table.write_bytes(list(BYTES.values())[rng.integers(len(BYTES))](table.read_bytes(), rng))
    elif kind == "a cell of a table replaced":
        table.write_bytes(_table(table.read_text(), rng))
    elif kind == "the map forged" and (run / "map.occamap").exists():
        forgery = list(files_model.FORGED)[rng.integers(len(files_model.FORGED))]
        if forgery != "names edited" or files_model.unpacked(run / "map.occamap")[0]["feature_names"]:
            (run / "map.occamap").write_bytes(files_model.forged(forgery, run / "map.occamap", rng))
    elif kind == "a file is absent":
        pick(rng, run).unlink()
    elif kind == "another's file":
        table.write_bytes(pick(rng, run).read_bytes())
    elif kind == "lines too short":
        head, many = table.read_bytes().partition(b"\n")[0], int(rng.choice([10, 2_000_000]))
        table.write_bytes(head + b",x" * int(rng.choice([0, 2000])) + b"\n" * many)
    if rng.random() < 0.8 and (run / NAME).is_file() and kind != STRANGE:
        there = {part: run / name for part, name in record["files"].items()}
        record["digests"] = {part: sha256(path) for part, path in there.items() if path.is_file() and part != "record"}
    if kind in ("the record edited", "the result edited"):
        key = "result" if kind == "the result edited" or rng.random() < 0.3 else "parameters"
        record = {**record, key: edited(record[key], rng)}
    if (run / NAME).is_file():
        (run / NAME).write_bytes(dumped(record, rng))
    return run


def _table(text: str, rng: Rng) -> bytes:
    """A table with one field, line or head that is something else."""
    lines = text.split("\n")
    at = int(rng.integers(min(len(lines), 40)))
    fields = lines[at].split(",")
    values = [*HOSTILE, *map(str, NUMBERS), *NAMES, "", "nan", "inf", "-inf", '"', '"a\nb"', ",,,", "1e999", "true"]
    fields[rng.integers(len(fields))] = values[rng.integers(len(values))]
    lines[at] = ",".join(fields)
    return "\n".join(lines).encode(errors="surrogatepass")


def _read_run(path: Path, out: Path) -> str:
    page = oc.report(path, out / "page.html").read_bytes()
    if page.count(SCRIPT) not in _scripts():
        raise UnsoundError("there is another script in the page")
    return "read, a page"


@cache
def _scripts() -> set[int]:
    return set()


def _warm_run(whole: Path, out: Path) -> None:
    for name in ("fit", "evaluated"):
        _scripts().add(oc.report(whole / "runs" / name, out / "page.html").read_bytes().count(SCRIPT))
    from soak.files_targets import MODEL

    MODEL.warm(whole, out)


# -- an evaluation that goes on ------------------------------------------------------------------------------------


def _make_evaluation(kind: str, rng: Rng, whole: Path, where: Path) -> Path:
    run = Path(shutil.copytree(whole / "runs" / "evaluated", where.parent / "out" / "run"))  # it is written to
    victim = pick(rng, run / "parts", "*.json")
    content = victim.read_bytes()
    if kind == STRANGE:
        victim.unlink()
        strange(rng, run / "parts", whole / "runs" / "evaluated" / "parts" / victim.name)
    elif kind in BYTES:
        victim.write_bytes(BYTES[kind](content, rng))
    elif kind == "edited":
        victim.write_bytes(edited_json(content, rng))
    elif kind == "rows forged":
        victim = pick(rng, run / "parts", "*-0*.json")
        known = json.loads(victim.read_bytes())
        text = dumped(edited(json.loads(known["rows"]), rng), rng).decode()
        victim.write_bytes(json.dumps({**known, "rows": text, "sha256": _sha256(text)}).encode())
    else:
        victim = pick(rng, run, "*.*")
        victim.write_bytes(list(BYTES.values())[rng.integers(len(BYTES))](victim.read_bytes(), rng))
    return run


@cache
def _evaluated() -> list[Any]:
    return [files_seeds.cells()]


def _evaluate(out: Path) -> Any:
    return oc.evaluate(_evaluated()[0], **files_seeds.ASKED, **files_seeds.EVALUATED, out=out, n_jobs=1, verbose=False)


def _read_evaluation(path: Path, out: Path) -> str:
    table, wanted = _evaluate(path), _evaluated()[1]
    same = table.drop(columns=wanted.filter(like="seconds")).equals(wanted.drop(columns=wanted.filter(like="seconds")))
    return "read, the same table" if same else OTHER


def _warm_evaluation(whole: Path, out: Path) -> None:
    shutil.copytree(whole / "runs" / "evaluated", out / "run")
    _evaluated().append(_evaluate(out / "run"))
    shutil.rmtree(out / "run")
    _evaluate(out / "run")
    shutil.rmtree(out / "run")


TABLES = "a table damaged", "a cell of a table replaced", "another's file", "lines too short", "a file is absent"
TARGETS = {
    "run record": Target(
        (*BYTES, "edited", "an entry replaced", "names of files", "too large", "another text", STRANGE),
        _make_record,
        _read_record,
        _warm_record,
    ),
    "run directory": Target(
        (*TABLES, "the map forged", "the record edited", "the result edited", STRANGE), _make_run, _read_run, _warm_run
    ),
    "evaluation": Target(
        (*BYTES, "edited", "rows forged", "a result damaged", STRANGE),
        _make_evaluation,
        _read_evaluation,
        _warm_evaluation,
    ),
}
