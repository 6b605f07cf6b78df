"""What can be asked of a run, checked, with the defaults filled in: no option is accepted and ignored."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from occamap.costs import L1, STVS, Cost, KOverlap, SqL2
from occamap.errors import InputError
from occamap.tl.error_rates import RATE

AUTO, NONE = "auto", "none"
COSTS: dict[str, type[Cost]] = {"sql2": SqL2, "l1": L1, "stvs": STVS, "koverlap": KOverlap}
OVER_SETS = "grouplasso"  # the penalty of gene sets, which `tl.monge_map` makes
GAMMA, TARGETS, TARGETS_SCALE, RELAX, MAX_DENSITY = 0.3, 10.0, "perplexity", 1.0, 0.1
BY_NOISE = "l1", OVER_SETS  # costs whose default strength `tl.monge_map` finds from the cells

Tick = Callable[[int, int], None]
Stage = Callable[[str], AbstractContextManager[Tick]]


def _silent(done: int, total: int) -> None:
    pass


def no_stage(what: str) -> AbstractContextManager[Tick]:
    """Nothing is said about how far the work is."""
    return nullcontext(_silent)


@dataclass(frozen=True)
class Question:
    """Which cells to compare, and what to read of them; as for `tl.monge_map`."""

    groupby: str
    control: str
    target: str
    layer: str | None = None
    use_genes: str | None = None
    counts: str = "refuse"
    within: str | None = None


@dataclass(frozen=True)
class MapOptions:
    """The map to learn; None takes the default, where there is one. `gamma` and `epsilon` may be "auto".

    `gene_sets`, `l1_ratio`, `frozen`, `weights`, `pool`, `match` and `fdr` are as for `tl.monge_map`, with "none" for
    None in the last three; with the first, the cost is "grouplasso".
    """

    cost: str | None = None
    gamma: float | str | None = None
    k: int | None = None
    epsilon: float | str | None = None
    epsilon_scale: str | None = None
    relax: float | None = None
    max_density: float | None = None
    gene_sets: str | None = None
    l1_ratio: float | None = None
    frozen: tuple[str, ...] | None = None
    weights: str | None = None
    pool: int | str = AUTO
    match: int | str = AUTO
    fdr: float | str | None = AUTO

    @property
    def chosen(self) -> bool:
        """Whether held-out cells choose."""
        return AUTO in (self.gamma, self.epsilon)

    @property
    def gammas(self) -> str | None:
        """Whether held-out cells choose γ."""
        return AUTO if self.gamma == AUTO else None

    @property
    def penalty(self) -> Cost:
        """The cost; its γ is of no account where held-out cells choose it. It knows nothing of single genes."""
        for name in ("gene_sets", "frozen", "weights"):
            if getattr(self, name) is not None:
                raise InputError(f"{name} must be given only where one map is fitted; got {getattr(self, name)!r}")
        kind = COSTS[str(self.cost)]
        given = {"gamma": GAMMA if self.gamma in (None, AUTO) else self.gamma, "k": self.k}
        if kind is SqL2:
            del given["gamma"]
        return kind(**{name: value for name, value in given.items() if value is not None})

    @property
    def asked(self) -> dict[str, Any]:
        """What is said of the penalty, as arguments of `tl.monge_map`."""
        single = {"frozen": self.frozen, "weights": self.weights, "gammas": self.gammas, "fdr": unless_none(self.fdr)}
        if self.gene_sets is None and (self.gamma is not None or self.cost == "sql2"):
            return {"cost": replace(self, frozen=None, weights=None).penalty, **single}
        gamma = None if self.gamma == AUTO else self.gamma
        sets = {} if self.gene_sets is None else {"gene_sets": self.gene_sets, "l1_ratio": self.l1_ratio}
        return {**sets, "gamma": gamma, **single}

    @property
    def resolution(self) -> dict[str, Any]:
        """How cells are pooled and matched, as arguments of `tl.monge_map`."""
        return {name: unless_none(getattr(self, name)) for name in ("pool", "match")}

    def filled(self) -> MapOptions:
        """With the defaults in place of None, or an `InputError` for what does not go together."""
        cost = self._cost()
        if cost == "sql2" and self.gamma is not None:
            raise InputError(f"gamma must not be given for the cost sql2, which has none; got {self.gamma}")
        if cost == "sql2" and self.relax is not None:
            raise InputError(f"relax must not be given for the cost sql2, which shrinks nothing; got {self.relax}")
        check_k(cost, self.k)
        epsilon, scale = check_epsilon(self.epsilon, self.epsilon_scale)
        if self.max_density is not None and self.gamma != AUTO:
            raise InputError(
                f"max_density must be given only where held-out cells choose γ (gamma auto); got {self.max_density:g}"
            )
        return replace(
            self,
            fdr=self._fdr(cost),
            cost=cost,
            gamma=GAMMA if self.gamma is None and cost not in ("sql2", *BY_NOISE) else self.gamma,
            epsilon=epsilon,
            epsilon_scale=scale,
            relax=RELAX if self.relax is None else self.relax,
            max_density=MAX_DENSITY if self.gamma == AUTO and self.max_density is None else self.max_density,
            l1_ratio=0.0 if self.gene_sets is not None and self.l1_ratio is None else self.l1_ratio,
        )

    def _fdr(self, cost: str) -> float | str | None:
        """The rate that holds: by default 10 %, unless something else sets the penalty."""
        if self.fdr != AUTO:
            if unless_none(self.fdr) is not None and self.gamma is not None:
                raise InputError("gamma must not be given with fdr, which sets the penalty: leave one of them out")
            return self.fdr
        others = self.gamma, self.weights, self.gene_sets
        tested = cost == "l1" and NONE not in (self.pool, self.match) and self.epsilon != AUTO
        return RATE if tested and all(value is None for value in others) else None

    def _cost(self) -> str:
        """The name of the cost, and whether it goes with gene sets, frozen genes and weights as they are asked for."""
        sets = self.gene_sets is not None
        cost = self.cost or (OVER_SETS if sets else "l1")
        if cost not in (*COSTS, OVER_SETS):
            raise InputError(f"cost must be one of {', '.join((*COSTS, OVER_SETS))}; got {cost!r}")
        if sets != (cost == OVER_SETS):
            if sets:
                raise InputError(f"cost must be grouplasso, or not be given, where gene sets are; got {cost!r}")
            raise InputError("gene_sets must be given for the cost grouplasso: it moves the genes of a set together")
        if self.l1_ratio is not None and not sets:
            raise InputError(f"l1_ratio must be given only with gene sets; got {self.l1_ratio:g}")
        if self.frozen is not None and cost not in ("l1", OVER_SETS):
            raise InputError(f"frozen must be given only for the cost l1 or with gene sets; got cost {cost}")
        if self.weights is not None and cost != "l1":
            raise InputError(f"weights must be given only for the cost l1; got cost {cost}")
        return cost


def check_k(cost: str, k: int | None) -> None:
    """Raise unless k is given where it is needed, and only there."""
    if cost == "koverlap" and k is None:
        raise InputError("k must be given for the cost koverlap: how many genes move at the least")
    if cost != "koverlap" and k is not None:
        raise InputError(f"k must be given only for the cost koverlap; got {k} for {cost}")


def check_epsilon(epsilon: float | str | None, scale: str | None) -> tuple[float | str, str | None]:
    """ε and its scale, by default 10 effective targets; no scale where held-out cells choose."""
    if epsilon == AUTO:
        if scale is not None:
            raise InputError(f"epsilon_scale must not be given with epsilon auto; got {scale!r}")
        return AUTO, None
    if epsilon is None and scale not in (None, TARGETS_SCALE):
        raise InputError(
            f"epsilon must be given with epsilon_scale={scale!r}: the default, {TARGETS:g}, is effective targets"
        )
    return TARGETS if epsilon is None else epsilon, scale or TARGETS_SCALE


def check_subsamples(subsamples: int) -> None:
    """Raise before the work, where there is no spread to measure."""
    if subsamples == 1:
        raise InputError("subsamples must be 0, or 2 or more, since one has no spread; got 1")


def parse_number(text: str | None, name: str, auto: bool = True) -> float | str | None:
    """A number, "auto" or None, from what was typed.

    >>> parse_number("0.5", "gamma"), parse_number("auto", "gamma")
    (0.5, 'auto')
    """
    if text is None or (auto and text == AUTO):
        return text
    try:
        return float(text)
    except ValueError as error:
        raise InputError(f"{name} must be a number{' or auto' if auto else ''}; got {text!r}") from error


def parse_rate(text: str) -> float | str:
    """A rate, "auto" or "none", from what was typed.

    >>> parse_rate("0.05"), parse_rate("none")
    (0.05, 'none')
    """
    if text in (AUTO, NONE):
        return text
    try:
        rate = float(text)
    except ValueError:
        rate = float("nan")
    if not 0 < rate < 1:
        raise InputError(f"fdr must be none or a number between 0 and 1, such as 0.1; got {text!r}")
    return rate


def unless_none(value: Any) -> Any:
    """None for "none"; else as it is."""
    return None if value == NONE else value


def parse_count(text: str) -> int | str:
    """A whole number as one; a name, "auto" or "none" as it is.

    >>> parse_count("30"), parse_count("cell_type")
    (30, 'cell_type')
    """
    return int(text) if text.strip().isdecimal() and len(text.strip()) < 20 else text


def parse_pool(text: str) -> int | str | None:
    """The `pool` of maps that are evaluated: a number of cells, "auto", or None for "none".

    >>> parse_pool("30"), parse_pool("none")
    (30, None)
    """
    found: int | str | None = unless_none(parse_count(text))
    return found


def parse_numbers(text: str, name: str) -> list[float]:
    """Several numbers with commas between them.

    >>> parse_numbers("0.1, 0.3,1", "gammas")
    [0.1, 0.3, 1.0]
    """
    try:
        return [float(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise InputError(f"{name} must be numbers with commas between them; got {text!r}") from error


def parse_gammas(text: str | None) -> list[float] | int | None:
    """Several numbers with commas between them, or how many there are to be.

    >>> parse_gammas("0.1, 0.3,1"), parse_gammas("8"), parse_gammas("2.0")
    ([0.1, 0.3, 1.0], 8, [2.0])
    """
    if text is None:
        return None
    if text.strip().isdecimal() and len(text.strip()) < 20:
        return int(text)
    return parse_numbers(text, "gammas")
