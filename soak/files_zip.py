"""ZIP archives written by hand, so that they can lie: about sizes, places, names and methods."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field, replace
from typing import Any

STORED, DEFLATED = 0, 8


@dataclass(frozen=True)
class Member:
    """One file of an archive; what is not given follows from its content."""

    name: bytes
    content: bytes
    method: int = STORED
    flags: int = 0
    mode: int = 0o100600
    extra: bytes = b""
    packed: bytes | None = None
    local: dict[str, Any] = field(default_factory=dict)  # crc, packed, size, name, method, flags: as the member says
    central: dict[str, Any] = field(default_factory=dict)  # the same, and offset: as the directory says

    def deflated(self) -> Member:
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        return replace(self, method=DEFLATED, packed=packer.compress(self.content) + packer.flush())

    @property
    def bytes(self) -> bytes:
        return self.content if self.packed is None else self.packed

    def facts(self, told: dict[str, Any]) -> dict[str, Any]:
        known = {
            "name": self.name,
            "method": self.method,
            "flags": self.flags,
            "crc": zlib.crc32(self.content),
            "packed": len(self.bytes),
            "size": len(self.content),
        }
        return {**known, **told}


def archive(members: list[Member], end: dict[str, Any] | None = None, comment: bytes = b"") -> bytes:
    """The archive; `end` may say something else of the directory: count, size, offset."""
    body, directory = bytearray(), bytearray()
    for member in members:
        at, here, there = len(body), member.facts(member.local), member.facts(member.central)
        body += _local(here, member.extra) + member.bytes
        directory += _central({"offset": at, **there}, member.extra, member.mode)
    told = {"count": len(members), "size": len(directory), "offset": len(body), **(end or {})}
    count, size, offset = _w(told["count"]), _i(told["size"]), _i(told["offset"])
    sizes = struct.pack("<HHIIH", count, count, size, offset, len(comment))
    return bytes(body + directory) + b"PK\5\6" + bytes(4) + sizes + comment


def zip64(size: int, packed: int, offset: int | None = None) -> bytes:
    """The extra field that has the true sizes where the header has 0xffffffff."""
    numbers = [number % 2**64 for number in (size, packed, offset) if number is not None]
    return struct.pack(f"<HH{len(numbers)}Q", 1, 8 * len(numbers), *numbers)


def _local(facts: dict[str, Any], extra: bytes) -> bytes:
    return b"PK\3\4" + _shared(facts, extra) + facts["name"] + extra


def _central(facts: dict[str, Any], extra: bytes, mode: int) -> bytes:
    rest = struct.pack("<HHHII", 0, 0, 0, _i(mode << 16), _i(facts["offset"]))
    return b"PK\1\2" + struct.pack("<H", (3 << 8) + 20) + _shared(facts, extra) + rest + facts["name"] + extra


def _shared(facts: dict[str, Any], extra: bytes) -> bytes:
    numbers = [_i(facts[name]) for name in ("crc", "packed", "size")]
    return struct.pack(
        "<HHHHHIIIHH", 20, _w(facts["flags"]), _w(facts["method"]), 0, 33, *numbers, len(facts["name"]), len(extra)
    )


def _w(number: int) -> int:
    return number & 0xFFFF


def _i(number: int) -> int:
    return number & 0xFFFFFFFF
