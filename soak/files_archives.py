"""Archives that lie: about names, sizes, places and methods, around members whose checksums fit."""

from __future__ import annotations

from typing import Any

import numpy as np

from soak.files_damage import NAMES, Rng
from soak.files_zip import Member, archive, zip64

MORE_NAMES = "f.npy/../../outside.npy", "../../outside.npy", "/tmp/outside.npy", "C:\\outside.npy", "f.npy\0.npy"



def _named(made: list[Member], rng: Rng) -> bytes:
    """Members of dangerous names, more of them, or in place of one."""
    names = [*NAMES, *MORE_NAMES]
    name = names[rng.integers(len(names))].encode(errors="surrogatepass")
    extra = Member(name, b"some", mode=int(rng.choice([0o100600, 0o120777, 0o040755])))
    return archive([*made, extra] if rng.random() < 0.5 else [extra, *made[1:]])


def _links(made: list[Member], rng: Rng) -> bytes:
    """A member that says it is a link, a directory or a device."""
    at, mode = rng.integers(len(made)), int(rng.choice([0o120777, 0o040755, 0o020666, 0o010666]))
    made[at] = Member(made[at].name + (b"/" if rng.random() < 0.3 else b""), made[at].content, mode=mode)
    return archive(made)


def _packed(made: list[Member], rng: Rng) -> bytes:
    """Compressed members, among them some that unpack to a thousand times their size."""
    at = rng.integers(len(made))
    content = made[at].content if rng.random() < 0.8 else made[at].content[:80] + bytes(50_000_000)
    bomb = Member(made[at].name, content).deflated()
    hidden = {"method": 0} if rng.random() < 0.3 else {}
    made[at] = Member(bomb.name, bomb.content, bomb.method, packed=bomb.bytes, central=hidden)
    return archive(made, comment=bytes(int(rng.choice([0, 60_000]))))


def _lied(made: list[Member], rng: Rng) -> bytes:
    """Sizes, checksums and places that are not so: in the directory, in the member, or in both."""
    at = rng.integers(len(made))
    one, fact = made[at], ["size", "packed", "crc", "offset", "name", "method", "flags"][rng.integers(7)]
    numbers = [0, 1, len(one.content) - 1, len(one.content) + 1, 50_000, 2**31 - 1, 2**31, 2**32 - 1]
    told: dict[str, Any] = {fact: one.name[::-1] if fact == "name" else int(numbers[rng.integers(len(numbers))])}
    told |= {"packed": told["size"]} if fact == "size" and rng.random() < 0.5 else {}
    where = rng.integers(3)
    sides = {"local": told if where != 1 else {}, "central": told if where != 0 else {}}
    made[at] = Member(one.name, one.content, **sides)
    return archive(made, comment=bytes(int(rng.choice([0, 60_000]))))


def _wide(made: list[Member], rng: Rng) -> bytes:
    """Sizes in the extra field for large files."""
    at = rng.integers(len(made))
    one = made[at]
    true = len(one.content)
    sizes = [true, 0, true + 1, 50_000, 2**40, 2**63, 2**64 - 1]
    extra = zip64(sizes[rng.integers(7)], sizes[rng.integers(7)], [None, 0, 2**50, 2**64 - 1][rng.integers(4)])
    told = {"size": 2**32 - 1, "packed": 2**32 - 1, **({"offset": 2**32 - 1} if rng.random() < 0.3 else {})}
    made[at] = Member(one.name, one.content, extra=extra[: rng.integers(len(extra) + 1)] or extra, central=told)
    return archive(made, comment=bytes(int(rng.choice([0, 60_000]))))


def _flags(made: list[Member], rng: Rng) -> bytes:
    """Encrypted, patched, of unknown methods and versions."""
    at = rng.integers(len(made))
    flags, method = int(rng.choice([1, 8, 0x20, 0x40, 0x800, 0xFFFF])), int(rng.choice([0, 8, 12, 14, 93, 99]))
    made[at] = Member(made[at].name, made[at].content, method, flags)
    return archive(made)


def _overlapping(made: list[Member], rng: Rng) -> bytes:
    """Members at the same place as others."""
    sizes = np.cumsum([0, *(30 + len(one.name) + len(one.content) for one in made)])
    for at in rng.integers(len(made), size=3):
        place = int(rng.choice(sizes) + rng.integers(-2, 3))
        made[at] = Member(made[at].name, made[at].content, central={"offset": place})
    return archive(made)


def _many(made: list[Member], rng: Rng) -> bytes:
    """Thousands of members, or the same ones again."""
    number = int(rng.choice([1, 100, 1000, 20_000], p=[0.4, 0.3, 0.25, 0.05]))
    more = [Member(f"{k}.npy".encode(), b"") for k in range(number)]
    return archive([*made, *more] if rng.random() < 0.8 else made * 3)


def _directory(made: list[Member], rng: Rng) -> bytes:
    """A directory of the archive that is elsewhere, or of another size."""
    fact = ["count", "size", "offset"][rng.integers(3)]
    return archive(made, {fact: int(rng.choice([0, 1, 65535, 2**31, 2**32 - 1, 3000]))})


ARCHIVES = {
    "names that lead elsewhere": _named,
    "links and directories as members": _links,
    "compressed members, bombs": _packed,
    "sizes and places lied about": _lied,
    "sizes of large files lied about": _wide,
    "encrypted and unknown members": _flags,
    "overlapping members": _overlapping,
    "thousands of members": _many,
    "the directory lied about": _directory,
}
