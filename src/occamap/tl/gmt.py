"""Gene sets in a GMT file: a line a set, its name, a description and its genes with tabs between them."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from occamap.errors import InputError, one_line

LARGEST = 2**28  # bytes, unpacked: ten times all of MSigDB
LONGEST = 2**20  # bytes of a line: a hundred thousand genes
MOST = 200_000  # sets
LINES = 1_000_000  # empty ones among them
GZIP = b"\x1f\x8b"
BOM = b"\xef\xbb\xbf"


def read_gmt(path: str | os.PathLike[str]) -> Iterator[tuple[str, list[str]]]:
    """Name and genes of each set, a line at a time; plain or gzipped, whatever the file is called.

    A file may be hostile: what is unpacked is bounded, and errors name the line.
    """
    file = Path(path)
    if "\0" in str(path) or not file.is_file():
        raise InputError(f"gene_sets must name a GMT file; there is no file {str(path)!r}")
    lines: dict[str, int] = {}
    try:
        with file.open("rb") as raw:
            packed = raw.read(2) == GZIP
            raw.seek(0)
            for number, line in _lines(gzip.GzipFile(fileobj=raw) if packed else raw, str(path)):
                name, genes = _set_of(line, number, str(path))
                if name in lines:
                    both = f"lines {lines[name]} and {number}"
                    raise InputError(f"gene_sets must have names of their own; {str(path)!r} has {name!r} in {both}")
                if len(lines) == MOST:
                    raise InputError(f"gene_sets must be at most {MOST:,} sets; {str(path)!r} has more")
                lines[name] = number
                yield name, genes
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"gene_sets cannot be read from {str(path)!r}: {one_line(error)}") from error
    if not lines:
        raise InputError(f"gene_sets must be at least one set; {str(path)!r} has none")


def _lines(stream: IO[bytes] | Any, path: str) -> Iterator[tuple[int, bytes]]:
    """The lines that are not empty, with their numbers."""
    total, number = 0, 0
    while line := stream.readline(LONGEST + 1):
        total, number = total + len(line), number + 1
        if len(line) > LONGEST:
            raise InputError(f"gene_sets must have at most {LONGEST:,} bytes a line; line {number} of {path!r} is more")
        if number > LINES:
            raise InputError(f"gene_sets must have at most {LINES:,} lines; {path!r} has more")
        if total > LARGEST:
            raise InputError(f"gene_sets must be at most {LARGEST:,} bytes, unpacked; {path!r} is more")
        line = (line.removeprefix(BOM) if number == 1 else line).rstrip(b"\r\n")
        if line.strip():
            yield number, line


def _set_of(line: bytes, number: int, path: str) -> tuple[str, list[str]]:
    """The name and the genes in a line."""
    where = f"line {number} of {path!r}"
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"gene_sets must be UTF-8 text; {where} is not ({one_line(error)})") from error
    fields = [field.strip() for field in text.split("\t")]
    if len(fields) < 2:
        raise InputError(
            f"gene_sets must be a GMT file: name, description and genes with tabs between them; {where} has no tab: "
            f"{text[:40]!r}"
        )
    if not fields[0]:
        raise InputError(f"gene_sets must have names; {where} begins with a tab")
    strange = next((field for field in (fields[0], *fields[2:]) if field and not field.isprintable()), None)
    if strange is not None:
        raise InputError(f"gene_sets must have names of printable characters; {where} has {strange[:40]!r}")
    return fields[0], [field for field in fields[2:] if field]
