"""What occamap warned of during a run."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from occamap.errors import InputWarning, MatchWarning, NotConvergedWarning, SelectionWarning

OWN = InputWarning, MatchWarning, NotConvergedWarning, SelectionWarning


@contextmanager
def hearing(show: bool = True, kinds: tuple[type[Warning], ...] = OWN) -> Iterator[list[str]]:
    """The texts of warnings of these kinds, every one of them; they are shown as before, or not at all."""
    texts: list[str] = []
    with warnings.catch_warnings():
        before = warnings.showwarning

        def hear(message: Any, category: type[Warning], *where: Any, **rest: Any) -> None:
            own = issubclass(category, kinds)
            if own:
                texts.append(" ".join(str(message).split()))
            if show or not own:
                before(message, category, *where, **rest)

        warnings.showwarning = hear
        for kind in kinds:
            warnings.simplefilter("always", kind)
        yield texts
