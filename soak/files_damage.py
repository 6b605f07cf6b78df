"""Damage to bytes and to JSON, of any file: cuts, flips, and values of every wrong kind."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

Rng = np.random.Generator
Harm = Callable[[bytes, Rng], bytes]

DEEP, TWICE = "@deep@", "@twice@"  # stand for text that json.dumps does not write
NAMES = "../outside", "/tmp/outside", "..\\outside", "a\0b", "\x1b[2Jx", "\ud800", "", ".", "..", "x" * 5000, "=1+1"
NUMBERS = 0, -1, 1, 2, 2**31 - 1, 2**31, 2**53, 2**63 - 1, -(2**63), 2**64, 10**400, -0.0, 5e-324, 1e-200, 1e200, 1e308
OTHERS = None, True, False, float("nan"), float("inf"), -float("inf"), [], {}, [[]], [None], {"": 0}, [1] * 5000, DEEP


def truncated(content: bytes, rng: Rng) -> bytes:
    """A part of it, from the beginning."""
    return content[: rng.integers(len(content))] if content else b""


def flipped(content: bytes, rng: Rng) -> bytes:
    """One to eight bits turned."""
    found = np.frombuffer(content or b"\0", np.uint8).copy()
    found[rng.integers(found.size, size=rng.integers(1, 9))] ^= np.uint8(1 << rng.integers(8))
    return found.tobytes()


def overwritten(content: bytes, rng: Rng) -> bytes:
    """A stretch of zeros, of ones, of noise, or of another place of the same file."""
    first, last = np.sort(rng.integers(len(content) + 1, size=2)).tolist()
    last = min(last, first + 4096)
    other = int(rng.integers(len(content) + 1))
    fill = [bytes(last - first), b"\xff" * (last - first), rng.bytes(last - first), content[other:][: last - first]]
    return content[:first] + fill[rng.integers(4)] + content[last:]


def shifted(content: bytes, rng: Rng) -> bytes:
    """A stretch taken out, or put in once more."""
    first, last = np.sort(rng.integers(len(content) + 1, size=2)).tolist()
    last = min(last, first + 300)
    if rng.random() < 0.5:
        return content[:first] + content[last:]
    return content[:last] + content[first:last] * int(rng.integers(1, 20)) + content[last:]


def wrapped(content: bytes, rng: Rng) -> bytes:
    """With something before or behind it."""
    more = [rng.bytes(100), bytes(70_000), content, b"PK\x05\x06" + bytes(18), b"\x80\x04."][rng.integers(5)]
    return more + content if rng.random() < 0.5 else content + more


BYTES: dict[str, Harm] = {
    "truncated": truncated,
    "bits flipped": flipped,
    "a stretch overwritten": overwritten,
    "bytes taken out or put in": shifted,
    "more before or behind": wrapped,
}


def wrong_value(rng: Rng, like: Any = None) -> Any:
    """A value that may not belong there: of another type, or out of all bounds."""
    kind = rng.integers(5)
    if kind == 0 and isinstance(like, int | float) and not isinstance(like, bool):
        return [like + 1, -like, like * 1e6, str(like), [like]][rng.integers(5)]
    if kind <= 1:
        return NUMBERS[rng.integers(len(NUMBERS))]
    if kind == 2:
        return NAMES[rng.integers(len(NAMES))]
    return OTHERS[rng.integers(len(OTHERS))]


def edited(tree: Any, rng: Rng) -> Any:
    """The same tree of dictionaries and lists, with one entry changed, taken out, put in, or there twice."""
    if not isinstance(tree, dict | list) or not tree or rng.random() < 0.02:
        return wrong_value(rng, tree)
    if isinstance(tree, list):
        at, made = int(rng.integers(len(tree))), list(tree)
        made[at : at + 1] = [[edited(tree[at], rng)], [], [tree[at]] * 2, [wrong_value(rng)] * 3][rng.integers(4)]
        return made
    key = list(tree)[rng.integers(len(tree))]
    choice = rng.random()
    if choice < 0.08:
        return {name: value for name, value in tree.items() if name != key}
    if choice < 0.14:
        return {**tree, str(wrong_value(rng)): wrong_value(rng)}
    if choice < 0.18:
        return {**tree, key + TWICE: wrong_value(rng, tree[key])}
    return {**tree, key: edited(tree[key], rng)}


def dumped(tree: Any, rng: Rng) -> bytes:
    """JSON, with brackets without end and keys that come twice where they stand for such."""
    depth = int(rng.choice([50, 900, 100_000]))
    text = json.dumps(tree).replace(f'"{DEEP}"', "[" * depth + "]" * depth).replace(TWICE, "")
    return text.encode()


def edited_json(content: bytes, rng: Rng) -> bytes:
    """A JSON text with one to three edits."""
    tree = json.loads(content)
    for _ in range(rng.integers(1, 4)):
        tree = edited(tree, rng)
    return dumped(tree, rng)
