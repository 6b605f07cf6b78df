"""Model files as a fuzzer sees them: names and contents in frames, of which an archive with checksums is built."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import numpy as np

from soak.files_damage import BYTES, Rng, edited_json
from soak.files_model import FORGED, META, dumped, signed, unpacked
from soak.files_zip import Member, archive

Frames = list[tuple[bytes, bytes]]


def framed(path: Path) -> bytes:
    """A whole model file in frames."""
    meta, members = unpacked(path)
    text = json.dumps(meta).encode()
    return joined([(META.encode(), text), *((name.encode(), one) for name, one in members.items())])


def joined(frames: Frames) -> bytes:
    """Each with the lengths of its name and its content before it."""
    return b"".join(
        len(name).to_bytes(1, "little") + len(one).to_bytes(4, "little") + name + one for name, one in frames
    )


def parted(content: bytes) -> Frames:
    """The frames in any bytes; lengths that lie end with what is there."""
    frames, at = [], 0
    while at + 5 < len(content) and len(frames) < 100:
        start = at + 5
        middle = start + content[at]
        end = middle + int.from_bytes(content[at + 1 : start], "little")
        frames.append((content[start:middle], content[middle:end]))
        at = end
    return frames


def built(content: bytes) -> bytes:
    """The archive of these frames, its checksums those of its members; bytes that are an archive stay."""
    if content.startswith(b"PK"):
        return content
    frames = parted(content)
    members = {name.decode(errors="replace"): one for name, one in frames if name != META.encode()}
    made = [Member(name, one) for name, one in frames if name != META.encode()]
    for name, one in frames:
        if name == META.encode():
            with suppress(ValueError, RecursionError):  # what is no JSON stays as it is
                one = signed(json.loads(one), members, np.random.default_rng(0))
            made.append(Member(name, one))
    return archive(made)


def mutated(content: bytes, rng: Rng) -> bytes | None:
    """Frames with one of the changes that forge a file; None where nothing can be made of them."""
    frames = parted(content)
    try:
        meta = json.loads(dict(frames)[META.encode()])
        members = {name.decode(): one for name, one in frames if name != META.encode()}
        choice = rng.random()
        if choice < 0.4:
            forge = list(FORGED.values())[rng.integers(len(FORGED))]
            meta, members = forge(meta, members, rng)
            text = dumped(meta, rng)
        elif choice < 0.7:
            text = edited_json(json.dumps(meta).encode(), rng)
        else:
            name, harm = list(members)[rng.integers(len(members))], list(BYTES.values())[rng.integers(len(BYTES))]
            members, text = {**members, name: harm(members[name], rng)}, json.dumps(meta).encode()
    except Exception:  # they are damaged already, in whatever way
        return None
    return joined([(META.encode(), text), *((name.encode()[:255], one) for name, one in members.items())])
