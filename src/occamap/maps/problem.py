"""The checked input of a fit: two samples with masses, in arrays of their own."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from occamap._memory import Budget, Lent
from occamap._validate import Samples, check_range, check_same_features, check_samples, check_weights
from occamap.costs import Cost
from occamap.maps.room import rehearse

Floats = NDArray[np.float64]
Need = Callable[[Samples, Samples], float] | None


@dataclass(frozen=True)
class Problem:
    """Samples with masses a (source) and b (target), each summing to one, and the names of their features, if any."""

    source: Samples
    target: Samples
    a: Floats
    b: Floats
    names: NDArray[Any] | None = None
    lent: Lent = ()
    """The caller's arrays, of which the samples are copies."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "lent": ()}

    def restricted(self, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> Problem:
        """These rows of the source and of the target, their masses scaled to one again."""
        a, b = self.a[rows], self.b[columns]
        return Problem(self.source.take(rows), self.target.take(columns), a / a.sum(), b / b.sum(), self.names)


def check_problem(
    X: Any,
    Y: Any,
    a: ArrayLike | None,
    b: ArrayLike | None,
    costs: Sequence[Cost],
    max_memory: int | str | None,
    need: Need = None,
    what: str = "a copy of the samples",
) -> Problem:
    """What a caller gives, checked against each other and the costs, and copied unless nobody can write to it.

    Within a budget, `what` the call is to do is refused here and at once unless there is room for all of it: the copy,
    the code, and the bytes that `need` tells of the samples.
    """
    source, target = check_samples(X, "X"), check_samples(Y, "Y")
    check_same_features(target, "Y", source.shape[1], source.names, "X")
    largest = max(source.largest(), target.largest())
    check_range(largest)
    for cost in costs:
        cost._check_features(source.shape[1])
        cost._check_scale(largest)
    masses = check_weights(a, source.shape[0], "a"), check_weights(b, target.shape[0], "b")
    borrowed = [*source.borrowed().values(), *target.borrowed().values()]
    lent = tuple({id(array): weakref.ref(array) for array in borrowed}.values())
    budget, size = Budget(max_memory, lent), float(sum(array.nbytes for array in borrowed))
    if budget.limit is not None and need is not None:
        for cost in {type(cost): cost for cost in costs}.values():
            rehearse(cost, source, target)
            if cost._frozen(source.shape[1]).any():  # the samples once more, without these features
                size += source.__sizeof__() + target.__sizeof__()
        size += need(source, target)
    budget.require(size, what)
    names = source.names if source.names is not None else target.names
    source, target = (replace(samples.owned(), names=names) for samples in (source, target))
    return Problem(source, target, *masses, names, lent)
