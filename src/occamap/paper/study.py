"""What a figure is: numbers, claims about them, and a picture of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

T = TypeVar("T")


@dataclass(frozen=True)
class Verdict:
    """A claim, what was measured, and whether the one bears the other out.

    `about` names the claim in one word or two, for tables and tests. `stated` is False for claims of our own.
    """

    about: str
    claim: str
    measured: str
    holds: bool
    stated: bool = True


@dataclass(frozen=True)
class Setting:
    """How much to compute, from which seed, and whom to tell how far it is: `tick(done, total)`."""

    quick: bool
    seed: int
    tick: Callable[[int, int], None]

    def steps(self, items: Sequence[T]) -> Iterator[T]:
        """The items, told of as they are used."""
        for done, item in enumerate(items):
            self.tick(done, len(items))
            yield item
        self.tick(len(items), len(items))


@dataclass(frozen=True)
class Study:
    """One figure. The picture and the verdicts come from the table of numbers alone."""

    title: str
    source: str
    compute: Callable[[Setting], pd.DataFrame]
    judge: Callable[[pd.DataFrame], list[Verdict]]
    draw: Callable[[pd.DataFrame], Figure]
