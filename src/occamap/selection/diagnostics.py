"""What a choice means, in one table: the chosen map beside doing nothing, the mean shift and the targets themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from occamap._optional import optional


@dataclass(frozen=True)
class Line:
    """One row: a mean over the splits, its standard error, and what moves."""

    what: str
    divergence: float
    error: float
    density: float | None = None
    effective_targets: float | None = None


@dataclass(frozen=True)
class Diagnostics:
    """The chosen map and what to compare it with. Prints as a table; `to_frame()` gives it to pandas."""

    identity: Line
    mean_shift: Line
    chosen: Line
    most_faithful: Line
    floor: Line

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

    def __str__(self) -> str:
        width = max(len(line.what) for line in self.lines)
        head = f"{'':{width}}  {'divergence':>16}  {'density':>8}  {'effective targets':>17}"
        rows = [head, *(_row(line, width) for line in self.lines), self._sentence()]
        return "\n".join(rows)

    def _sentence(self) -> str:
        margin = self.chosen.error if self.chosen.error == self.chosen.error else 0.0
        if self.floor.divergence >= self.identity.divergence:
            return "Source and target differ by no more than parts of the target do: there is nothing to learn."
        if self.chosen.divergence > self.mean_shift.divergence:
            return "The chosen map is less faithful than the mean shift: smaller gammas or epsilon may do better."
        if self.chosen.divergence < self.floor.divergence - margin:
            return (
                "The chosen map scores below the floor: it sends samples to averages of targets, which vary less than "
                "samples do. A lower score is then no better a map: ask for a sparser one, by rule='density'."
            )
        if self.chosen.divergence <= self.floor.divergence + margin:
            return "The chosen map is at the floor: held-out targets cannot tell it from other targets."
        return f"The chosen map covers {self.explained:.0%} of the way from the identity to the floor."


def _row(line: Line, width: int) -> str:
    error = "" if line.error != line.error else f" ± {line.error:.2g}"
    density = "" if line.density is None else f"{line.density:.2%}"
    targets = "" if line.effective_targets is None else f"{line.effective_targets:.1f}"
    return f"{line.what:{width}}  {f'{line.divergence:.4g}{error}':>16}  {density:>8}  {targets:>17}"
