"""What a figure is: numbers, claims about them, and a picture of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

T = TypeVar("T")
Size = Mapping[str, Any]


@dataclass(frozen=True)
class Verdict:
    """A claim, what was measured, and whether the one bears the other out.

    `about` names the claim in a word or two, for tables and tests; `in_paper` is False for those of our own.
    """

    about: str
    claim: str
    measured: str
    holds: bool
    in_paper: bool = True


@dataclass(frozen=True)
class Setting:
    """How much to compute, from which seed, and whom to tell how far it is: `tick(done, total)`."""

    size: Size
    seed: int
    tick: Callable[[int, int], None]

    def seed_of(self, *parts: int) -> int:
        """A seed of 32 bits for one part of the work."""
        return int(np.random.SeedSequence([self.seed, *parts]).generate_state(1)[0])

    def steps(self, items: Sequence[T]) -> Iterator[T]:
        """The items, told of as they are used."""
        for done, item in enumerate(items):
            self.tick(done, len(items))
            yield item
        self.tick(len(items), len(items))


def no_note(table: pd.DataFrame) -> str:
    """That of a figure whose verdicts speak for themselves."""
    return ""


@dataclass(frozen=True)
class Study:
    """One figure. The picture, the verdicts and the note come from the table of numbers alone.

    `quick` and `full` are the two sizes of it, and all that one has to know of them to compute it again. `note` is
    what one has to know to read the verdicts, if anything, such as that a part is missing for want of data.
    """

    title: str
    source: str
    quick: Size
    full: Size
    compute: Callable[[Setting], pd.DataFrame]
    judge: Callable[[pd.DataFrame], list[Verdict]]
    draw: Callable[[pd.DataFrame], Figure]
    note: Callable[[pd.DataFrame], str] = no_note


BEYOND = "beyond the paper"
