"""Which cells each split of a condition holds out: a random share of both groups, or one replicate."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from occamap.selection.splits import Split

FEWEST_CELLS = 10  # of a replicate, in either group, to be judged on
FEWEST_REPLICATES = 3  # with cells of both groups

Labels = NDArray[Any]


@dataclass(frozen=True)
class RandomSplits:
    """Splits by the seed and the name of the condition alone; `sizes` are the numbers of control and target cells."""

    sizes: tuple[int, int]
    count: int
    test_size: float
    seed: int
    name: str

    def __len__(self) -> int:
        return self.count

    def split(self, k: int) -> Split:
        """Split k: a random share of both groups to test on."""
        rng = np.random.default_rng([self.seed, k, *self.name.encode()])
        parts = []
        for size in self.sizes:
            order, test = rng.permutation(size), max(2, round(self.test_size * size))
            parts += [np.sort(order[test:]), np.sort(order[:test])]
        return Split(*parts)

    def replicate(self, k: int) -> str:
        """The replicate that split k leaves out: none."""
        return ""

    def largest(self) -> tuple[float, float]:
        """The number of train and of test cells of a split."""
        cells = sum(self.sizes)
        return (1 - self.test_size) * cells, self.test_size * cells


@dataclass(frozen=True, eq=False)
class ReplicateSplits:
    """Each split leaves one replicate out.

    Attributes
    ----------
    names
        The replicates that are left out, in the order of the splits.
    control, target
        For each cell of the group, the split that tests on it; −1 for cells that are always learned from.
    one_sided
        Replicates with cells of one group only.
    small
        Replicates with too few cells to be judged on, and their numbers of control and target cells.
    """

    names: tuple[str, ...]
    control: NDArray[np.int32]
    target: NDArray[np.int32]
    one_sided: tuple[str, ...]
    small: dict[str, tuple[int, int]]

    def __len__(self) -> int:
        return len(self.names)

    def split(self, k: int) -> Split:
        """Split k: the cells of all other replicates to learn from, those of replicate k to test on."""
        return Split(*(np.flatnonzero(part) for of in (self.control, self.target) for part in (of != k, of == k)))

    def replicate(self, k: int) -> str:
        """The replicate that split k leaves out."""
        return self.names[k]

    def largest(self) -> tuple[float, float]:
        """The most train and the most test cells of a split."""
        both = np.concatenate([self.control, self.target])
        test = np.bincount(both[both >= 0], minlength=1)
        return float(both.size - test.min()), float(test.max())


def leave_one_out(control: Labels, target: Labels) -> ReplicateSplits:
    """The splits that leave out each replicate with enough control and target cells, given the labels of the cells."""
    mine, theirs = Counter(control), Counter(target)
    both = {name: (mine[name], theirs[name]) for name in sorted(mine) if theirs[name]}
    names = tuple(name for name, sizes in both.items() if min(sizes) >= FEWEST_CELLS)
    codes = {name: code for code, name in enumerate(names)}
    of_control, of_target = (
        np.array([codes.get(label, -1) for label in labels], dtype=np.int32) for labels in (control, target)
    )
    return ReplicateSplits(
        names=names,
        control=of_control,
        target=of_target,
        one_sided=tuple(name for name in sorted(mine | theirs) if name not in both),
        small={name: sizes for name, sizes in both.items() if name not in codes},
    )
