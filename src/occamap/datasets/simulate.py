"""A perturbed cell population with the shape of sci-Plex and a response that is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, sparse

from occamap.datasets.table import names, table

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

RATE_SPREAD = 2.0  # sd of the log rate over genes: a few genes in most cells, most genes rare
RATE_CAP = 3.5  # in units of the spread, so that no gene takes most of a library
LIBRARY_SPREAD = 0.5  # sd of the log library size over cells
SHAPE = 2.0  # of the negative binomial: variance = mean + mean² / SHAPE
MARKER_SHARE = 0.05  # share of genes whose rate is particular to a cell type
EFFECT_SPREAD = 0.25  # by which the effect on a gene differs from the mean, at most and relative to it
BLOCK = 1 << 20  # entries of a dense block of rates


@dataclass(frozen=True, eq=False, repr=False)
class Perturbation:
    """Control and treated cells, and the response that was planted between them.

    Attributes
    ----------
    control, treated
        Cells × genes, float32 canonical CSR: counts scaled to a total common to all cells of both groups
        (the median library), then ``log1p``. The groups share no cell.
    genes
        Gene names.
    control_types, treated_types
        Cell type of each cell, an integer in ``range(n_types)``.
    response
        Types × genes: planted natural-log fold change of the expression rate, 0 where unmoved.

    Examples
    --------
    >>> import occamap as oc
    >>> oc.datasets.simulate_perturbation(30, 20, 100, n_moved=5)
    Perturbation(30 control and 20 treated cells of 3 types, 9 of 100 genes moved)
    """

    control: sparse.csr_array
    treated: sparse.csr_array
    genes: NDArray[np.str_]
    control_types: Ints
    treated_types: Ints
    response: Floats

    def __repr__(self) -> str:
        (n, d), m, types = self.control.shape, self.treated.shape[0], self.response.shape[0]
        moved = int(self.moved.any(axis=0).sum())
        return f"Perturbation({n} control and {m} treated cells of {types} types, {moved} of {d} genes moved)"

    @property
    def moved(self) -> NDArray[np.bool_]:
        """Types × genes: whether the gene moves in the cells of that type."""
        return np.asarray(self.response != 0)

    def to_anndata(self) -> Any:
        """All cells in one AnnData, the controls first.

        `obs` has "condition" ("control" or "treated") and "cell_type" ("type 0", …), both categories, and
        `varm["response"]` is a data frame of genes × cell types.

        >>> simulate_perturbation(30, 20, 100, n_moved=5).to_anndata().obs["condition"].value_counts().tolist()
        [30, 20]
        """
        treated = np.repeat([0, 1], [self.control.shape[0], self.treated.shape[0]])
        types = np.concatenate([self.control_types, self.treated_types])
        kinds = [f"type {kind}" for kind in range(self.response.shape[0])]
        labels = {"condition": (treated, ["control", "treated"]), "cell_type": (types, kinds)}
        return table([self.control, self.treated], labels, self.response.T, kinds)


def simulate_perturbation(
    n_control: int = 400,
    n_treated: int = 300,
    n_genes: int = 2000,
    *,
    n_types: int = 3,
    n_moved: int = 30,
    n_shared: int | None = None,
    effect: float = 1.0,
    effect_spread: float = EFFECT_SPREAD,
    density: float = 0.05,
    total: float | None = None,
    composition: bool = True,
    random_state: int | np.random.Generator = 0,
) -> Perturbation:
    """Simulate control and treated cells between which a known set of genes moves.

    Parameters
    ----------
    n_control, n_treated
        Numbers of cells, at least one for each cell type; the types get equal shares.
    n_genes, n_types
        Numbers of genes and of cell types.
    n_moved, n_shared
        Number of genes that move in each type, and how many of them are a core that moves alike in every type
        (half of them, rounded up, if None); the others move in that type only.
    effect, effect_spread
        Mean absolute log fold change of a moved gene, and the largest relative deviation from it; half of the
        genes go up, half down. At 0 nothing moves.
    density
        Expected share of stored entries over the cells of both groups; it sets the library size.
    total
        What the counts of a cell are scaled to; the median over all cells if None.
    composition
        Whether genes that rise make the others fall, as scaling to a common total does with real cells. If False,
        treated cells are scaled by what their total would be without the response: nothing else moves.
    random_state
        Seed, or the generator to draw from. The same seed gives the same bytes.

    Notes
    -----
    The count of gene g in cell i of type t is negative binomial with shape 2 and mean ``library_i * rate_tg``
    (times ``exp(response_tg)`` if the cell is treated), independent given libraries and rates. Rates are
    log-normal (σ = 2, cut at 3.5 σ), changed by up to ``exp(±2)`` in 5 % of the genes of each type; libraries
    are log-normal (σ = 0.5). Moved genes come from the top tenth of rates without the top 0.5 %, where one
    gene would change the total of a cell (from lower down only if a tenth is not enough). Scaling to a common
    total is compositional, as in real data: if the moved genes raise the total by 5 %, the others lose 5 %.

    Examples
    --------
    >>> data = simulate_perturbation(200, 100, 500, n_moved=10, random_state=1)
    >>> data.control.shape, data.treated.shape
    ((200, 500), (100, 500))
    >>> data.moved.sum(axis=1)
    array([10, 10, 10])
    >>> int(data.moved.all(axis=0).sum())  # the core
    5
    """
    _check_integer("n_types", n_types, 1)
    _check_integer("n_control", n_control, n_types, " (a cell for each of n_types)")
    _check_integer("n_treated", n_treated, n_types, " (a cell for each of n_types)")
    _check_integer("n_genes", n_genes, 1)
    _check_integer("n_moved", n_moved, 0)
    n_core = (n_moved + 1) // 2 if n_shared is None else n_shared
    _check_integer("n_shared", n_core, 0)
    if n_core > n_moved:
        raise ValueError(f"n_shared must be at most n_moved={n_moved}, got {n_shared}.")
    n_distinct = n_core + n_types * (n_moved - n_core)
    if n_distinct > n_genes:
        raise ValueError(
            f"n_moved must fit into n_genes={n_genes}, got {n_moved}, which takes {n_distinct} "
            f"genes ({n_core} shared and {n_moved - n_core} for each of {n_types} types)."
        )
    if not 0 <= _number(effect) <= 10:
        raise ValueError(f"effect must be a number in [0, 10], got {effect!r}.")
    if not 0 <= _number(effect_spread) <= 1:
        raise ValueError(f"effect_spread must be a number in [0, 1], got {effect_spread!r}.")
    if total is not None and not 0 < _number(total) < np.inf:
        raise ValueError(f"total must be None or a number > 0, got {total!r}.")
    if not 0 < _number(density) < 1:
        raise ValueError(f"density must be a number in (0, 1), got {density!r}.")
    if not isinstance(random_state, np.random.Generator):
        _check_integer("random_state", random_state, 0, " or a numpy Generator")

    rng = np.random.default_rng(random_state)
    rates = _draw_rates(n_types, n_genes, rng)
    response = _draw_response(rates, n_core, n_moved - n_core, (effect, effect_spread), rng)
    treated_rates = rates * np.exp(response)
    control_types = rng.permutation(np.arange(n_control) % n_types)
    treated_types = rng.permutation(np.arange(n_treated) % n_types)
    library = rng.lognormal(sigma=LIBRARY_SPREAD, size=n_control + n_treated)
    share = n_treated / (n_control + n_treated)
    library *= _depth(density, library, [(1 - share, rates), (share, treated_rates)])

    control = _draw_counts(library[:n_control], rates, control_types, rng)
    treated = _draw_counts(library[n_control:], treated_rates, treated_types, rng)
    growth = np.ones(n_types) if composition else treated_rates.mean(axis=1) / rates.mean(axis=1)
    control, treated = _log_normalise((control, treated), (np.ones(n_control), growth[treated_types]), total)
    return Perturbation(control, treated, names("G", n_genes), control_types, treated_types, response)


def _check_integer(name: str, value: object, least: int, note: str = "") -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be an integer >= {least}{note}, got {value!r}.")


def _number(value: object) -> float:
    """The value, or NaN, which no rule lets pass."""
    return float(value) if isinstance(value, int | float | np.integer | np.floating) else np.nan


def _draw_rates(n_types: int, n_genes: int, rng: np.random.Generator) -> Floats:
    """Types × genes rates of mean 1 in each type."""
    log_rates = np.tile(rng.normal(scale=RATE_SPREAD, size=n_genes), (n_types, 1))
    is_marker = rng.random(log_rates.shape) < MARKER_SHARE
    log_rates[is_marker] += rng.uniform(-2, 2, size=int(is_marker.sum()))
    rates: Floats = np.exp(np.minimum(log_rates, RATE_CAP * RATE_SPREAD))
    rates /= rates.mean(axis=1, keepdims=True)
    return rates


def _draw_response(
    rates: Floats, n_core: int, n_own: int, effect: tuple[float, float], rng: np.random.Generator
) -> Floats:
    """Types × genes log fold changes, on the core and on the genes of one type."""
    n_types, n_genes = rates.shape
    n_distinct = n_core + n_types * n_own
    by_rate = np.argsort(-rates.min(axis=0), kind="stable")
    first = min(n_genes // 200, n_genes - n_distinct)
    pool = by_rate[first : first + max(n_distinct, n_genes // 10)]
    chosen = rng.permutation(pool)[:n_distinct]
    mean, spread = effect
    change = mean * rng.uniform(1 - spread, 1 + spread, size=n_distinct)
    change[1::2] *= -1
    response = np.zeros(rates.shape)
    response[:, chosen[:n_core]] = change[:n_core]
    own = np.arange(n_types)[:, None], chosen[n_core:].reshape(n_types, n_own)
    response[own] = change[n_core:].reshape(n_types, n_own)
    return response


def _depth(density: float, library: Floats, groups: list[tuple[float, Floats]]) -> float:
    """The factor on the libraries at which the expected density is the one asked for; (share, rates) of each group."""
    nodes = np.quantile(library, (np.arange(8) + 0.5) / 8)

    def stored(rates: Floats, log_depth: float) -> float:
        scaled = rates * (np.exp(log_depth) / SHAPE)
        return float(np.mean([-np.expm1(-SHAPE * np.log1p(scaled * n)).mean() for n in nodes]))

    def excess(log_depth: float) -> float:
        return sum(share * stored(rates, log_depth) for share, rates in groups) - density

    # An entry is stored at most as often as its mean count, so the root is above the lower end.
    mean_count = nodes.mean() * sum(share * rates.mean() for share, rates in groups)
    low = float(np.log(density / mean_count)) - 0.1
    return float(np.exp(optimize.brentq(excess, low, low + 50.0, xtol=1e-4)))


def _draw_counts(library: Floats, rates: Floats, types: Ints, rng: np.random.Generator) -> sparse.csr_array:
    """Negative binomial counts with mean ``library[i] * rates[types[i]]``.

    A negative binomial is exactly a Poisson number of bursts whose sizes follow the log-series law. The
    bursts of a block of cells are drawn as one Poisson process over its entries, so that random numbers are
    spent on the stored entries only.
    """
    n_genes = rates.shape[1]
    height = max(1, BLOCK // n_genes)
    indices, counts, stored = [], [], []
    for start in range(0, library.size, height):
        rows = slice(start, start + height)
        mean = (library[rows, None] * rates[types[rows]]).ravel()
        bursts = np.cumsum(SHAPE * np.log1p(mean / SHAPE))
        # Sorted, the bursts come in the canonical order of CSR.
        where = np.sort(rng.random(rng.poisson(bursts[-1]))) * bursts[-1]
        entry = np.minimum(np.searchsorted(bursts, where, side="right"), mean.size - 1)
        size = rng.logseries(mean[entry] / (mean[entry] + SHAPE))
        entry, opens = np.unique(entry, return_index=True)
        counts.append(np.add.reduceat(size, opens) if size.size else size)
        indices.append((entry % n_genes).astype(np.int32))
        stored.append(np.bincount(entry // n_genes, minlength=mean.size // n_genes))
    indptr = np.concatenate([[0], np.cumsum(np.concatenate(stored))])
    indptr = indptr.astype(np.int32 if indptr[-1] < 2**31 else np.int64)
    data = np.concatenate(counts).astype(np.float64)
    return sparse.csr_array((data, np.concatenate(indices), indptr), shape=(library.size, n_genes))


def _log_normalise(
    groups: Sequence[sparse.csr_array], growths: Sequence[Floats] | None = None, total: float | None = None
) -> list[sparse.csr_array]:
    """``normalize_total`` and ``log1p`` of scanpy, over the cells of all groups; a cell without counts stays empty.

    The total of a cell is divided by how much it has grown, if that is known.
    """
    growths = growths or [np.ones(counts.shape[0]) for counts in groups]
    totals = np.concatenate([counts.sum(axis=1) for counts in groups])
    target = total or (float(np.median(totals[totals > 0])) if totals.any() else 1.0)
    scaled = []
    for counts, growth in zip(groups, growths, strict=True):
        factor = target / np.maximum(counts.sum(axis=1) / growth, 1.0)
        data = np.log1p(counts.data * np.repeat(factor, np.diff(counts.indptr))).astype(np.float32)
        scaled.append(sparse.csr_array((data, counts.indices, counts.indptr), shape=counts.shape))
    return scaled
