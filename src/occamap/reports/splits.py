"""How an evaluation split its cells, in words: at random, or by leaving out one replicate at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from occamap.reports.trust import CARE, FINE, Item
from occamap.reports.words import listed
from occamap.run_record import RunRecord

FEW = 5  # splits
BELOW = (
    "below, since a map sends cells to averages, which vary less than cells do. Of two maps there, the one with the "
    "lower divergence is not the better for it: look at the energy distance, too."
)
REST = "what is left is the distance to a perfect map."
BELOW_OTHERS = (
    "closer. A map starts from control cells of the replicate itself and predicts averages, which vary less than "
    "cells. The energy distance penalises missing variation more."
)
REST_OTHERS = "no closer to the left-out replicate than target cells of other replicates."
MOST_NAMES, MOST_CONDITIONS = 20, 5  # that a sentence lists


@dataclass(frozen=True)
class RandomSplits:
    """Random splits of the cells of each condition."""

    count: int
    test_size: float

    @property
    def several(self) -> bool:
        """Whether scores can vary over splits."""
        return self.count > 1

    def over(self, conditions: int) -> str:
        """What scores are means over, for the headline."""
        return f"{counted(conditions, 'condition')} × {counted(self.count, 'split')} into train and test cells"

    def note(self) -> str:
        """What scores are means over, for the chart."""
        return f"Means over {counted(self.count, 'random split')}."

    def methods(self) -> str:
        """Which cells maps were learned and scored on."""
        return (
            f"were learned on {1 - self.test_size:.0%} of the cells and scored on the others, in "
            f"{counted(self.count, 'random split')}"
        )

    def item(self, variation: str) -> Item:
        """How many splits there are, and how much scores vary over them."""
        few = self.count < FEW
        told = f"Each number is a mean over {counted(self.count, 'random split')}{variation}"
        return Item(CARE if few else FINE, "Splits", f"{told}{': use more splits to see small differences' * few}.")

    def floor(self, treated: float, best: float) -> Item:
        """The divergence of other target cells beside that of the closest sparse map."""
        told = f"Other target cells are at {treated:.3g} from those held out; the closest sparse map is at {best:.3g}: "
        return Item(FINE, "Floor", told + (BELOW if best < treated else REST))


@dataclass(frozen=True)
class ReplicateSplits:
    """Splits that leave out one replicate each; `left_out` are their names for each condition."""

    column: str
    conditions: list[str]
    left_out: list[list[str]]

    @property
    def several(self) -> bool:
        """Whether scores can vary over splits."""
        return True

    def over(self, conditions: int) -> str:
        """What scores are means over, for the headline."""
        return f"{counted(conditions, 'condition')}, with {self._count()} ({self.column}) left out one at a time"

    def note(self) -> str:
        """What scores are means over, for the chart."""
        return f"Means over {self._count()} ({self.column}), left out one at a time."

    def methods(self) -> str:
        """Which cells maps were learned and scored on."""
        return (
            f"were learned on the cells of all replicates ({self.column}) but one and scored on the cells of that one; "
            f"{self._count()} were left out one at a time ({self._names()})"
        )

    def item(self, variation: str) -> Item:
        """Which replicates are left out, and how much scores vary over them."""
        few = min(map(len, self.left_out)) < FEW
        told = (
            f"Replicates ({self.column}) were left out one at a time, so scores are for replicates that the map has "
            f"not seen: {self._names()}. Each number is a mean over {self._count()}{variation}."
        )
        return Item(CARE if few else FINE, "Splits", f"{told}{' They are too few to tell small differences.' * few}")

    def floor(self, treated: float, best: float) -> Item:
        """The divergence of target cells of other replicates beside that of the closest sparse map."""
        told = (
            f"Target cells of other replicates are at {treated:.3g} from those held out; the closest sparse map is at "
            f"{best:.3g}: "
        )
        return Item(FINE, "Other replicates", told + (BELOW_OTHERS if best < treated else REST_OTHERS))

    def _count(self) -> str:
        low, high = min(map(len, self.left_out)), max(map(len, self.left_out))
        return counted(high, "replicate") if low == high else f"{low:,} to {high:,} replicates"

    def _names(self) -> str:
        """The replicates that were left out, by condition if conditions differ."""
        if all(names == self.left_out[0] for names in self.left_out):
            return _listed(self.left_out[0])
        parts = [f"{label}: {_listed(names)}" for label, names in zip(self.conditions, self.left_out, strict=True)]
        more = len(parts) - MOST_CONDITIONS
        return "; ".join(parts[:MOST_CONDITIONS]) + (f"; and {counted(more, 'more condition')}" if more > 0 else "")


def splits_of(record: RunRecord) -> RandomSplits | ReplicateSplits:
    """The splits of an evaluation; runs of earlier versions have no replicates."""
    asked, result = record.parameters, record.result
    column = asked.get("replicate")
    if column is None:
        return RandomSplits(asked["splits"], asked["test_size"])
    left_out = [[str(name) for name in names] for names in result["replicates"]]
    return ReplicateSplits(str(column), [str(label) for label in result["conditions"]], left_out)


def counted(number: int, noun: str) -> str:
    """A number and its noun.

    >>> counted(1, "split"), counted(2, "split")
    ('1 split', '2 splits')
    """
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _listed(names: list[Any]) -> str:
    more = len(names) - MOST_NAMES
    return listed([*names[:MOST_NAMES], f"{more:,} more"] if more > 0 else names)
