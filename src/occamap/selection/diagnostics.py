"""What a choice means, in one table: the chosen map beside doing nothing, the mean shift and the targets themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from occamap._optional import optional

LEAST = 0.2  # of the way from no move to the floor
WEAK = (
    "The chosen map comes hardly closer to held-out targets than not moving at all: do not rely on which features it "
    "moves; allow more of them to move, or give other gammas and epsilon."
)
NOTHING = "Source and target differ by no more than parts of the target do: there is nothing to learn."


@dataclass(frozen=True)
class Line:
    """One row: a mean over the splits, its standard error, and what moves."""

    what: str
    divergence: float
    error: float
    density: float | None = None
    effective_targets: float | None = None
    n_targets: int | None = None


@dataclass(frozen=True)
class Diagnostics:
    """The chosen map and what to compare it with. Prints as a table; `to_frame()` gives it to pandas.

    `alike` says whether the splits are drawn at random: parts of the target are then alike, and what one scores against
    another is a floor. Splits that are given may hold out groups, such as donors, which differ.
    """

    identity: Line
    mean_shift: Line
    chosen: Line
    most_faithful: Line
    floor: Line
    alike: bool = True

    @property
    def lines(self) -> tuple[Line, ...]:
        lines = self.identity, self.mean_shift, self.chosen, self.most_faithful, self.floor
        return tuple(line for line in lines if line is not self.most_faithful or line.what != self.chosen.what)

    @property
    def explained(self) -> float:
        """The share of the way from the identity to the floor that the chosen map covers."""
        whole = self.identity.divergence - self.floor.divergence
        return (self.identity.divergence - self.chosen.divergence) / whole if whole > 0 else float("nan")

    def to_frame(self) -> Any:
        """The table as a pandas data frame."""
        pandas = optional("pandas", "to_frame")
        return pandas.DataFrame([vars(line) for line in self.lines]).set_index("what")

    @property
    def differs(self) -> bool:
        """Whether source and target differ by more than parts of the target do, if these are alike."""
        return not self.alike or self.identity.divergence > self.floor.divergence

    @property
    def weak(self) -> bool:
        """Whether the chosen map is little better than not moving, or worse."""
        return self.differs and self.explained < LEAST

    @property
    def poor(self) -> bool:
        """Whether held-out targets give no reason to rely on the chosen map."""
        return not self.differs or self.weak or self.chosen.divergence > self.mean_shift.divergence

    def notes(self) -> list[str]:
        """What to make of it, in sentences."""
        chosen, floor, margin = self.chosen.divergence, self.floor.divergence, self.chosen.error
        margin = 0.0 if margin != margin else margin
        if not self.differs:
            return [NOTHING]
        if not self.alike and min(chosen + margin, self.identity.divergence) <= floor:
            told = [
                "Targets of the train parts are as far from the held-out ones as the moved samples, or farther. If the "
                "splits hold out groups, such as donors, targets differ between them, and there is no floor."
            ]
        elif chosen < floor - margin:
            told = [
                "The chosen map scores below the floor: it sends samples to averages of targets, which vary less than "
                "samples do. Of two maps there, the one with the lower score is not the better for it."
            ]
        elif chosen <= floor + margin:
            told = ["The chosen map is at the floor: held-out targets cannot tell it from other targets."]
        else:
            told = [f"The chosen map covers {self.explained:.0%} of the way from no move to the floor."]
        if self.weak:
            told.append(WEAK)
        if chosen > self.mean_shift.divergence:
            told.append("It is less faithful than the mean shift: smaller gammas or epsilon may do better.")
        if self.alike and self.mean_shift.divergence <= floor + self.floor.error:
            told.append("The mean shift reaches the floor, too: the score cannot tell whether a map does more.")
        targets, of = self.chosen.effective_targets or 0.0, self.chosen.n_targets or 1
        if targets > 0.5 * of:
            told.append("A sample is matched with most targets at once: the map is little more than the mean shift.")
        return told

    def __str__(self) -> str:
        width = max(len(line.what) for line in self.lines)
        head = f"{'':{width}}  {'divergence':>16}  {'density':>8}  {'effective targets':>17}"
        return "\n".join([head, *(_row(line, width) for line in self.lines), *self.notes()])


def _row(line: Line, width: int) -> str:
    error = "" if line.error != line.error else f" ± {line.error:.2g}"
    density = "" if line.density is None else f"{line.density:.2%}"
    targets = "" if line.effective_targets is None else f"{line.effective_targets:.1f} of {line.n_targets:,}"
    return f"{line.what:{width}}  {f'{line.divergence:.4g}{error}':>16}  {density:>8}  {targets:>17}"
