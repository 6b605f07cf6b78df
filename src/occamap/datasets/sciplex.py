"""Simulated cells in the numbers of sci-Plex, as the paper uses it: 3 cell lines × 5 drugs."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from occamap._optional import optional
from occamap._validate import check_count, check_number, check_reals
from occamap.datasets.simulate import (
    EFFECT_SPREAD,
    LIBRARY_SPREAD,
    Floats,
    Ints,
    _depth,
    _draw_counts,
    _draw_rates,
    _draw_response,
    _log_normalise,
)
from occamap.datasets.table import table
from occamap.errors import InputError

DRUGS = ("Dacinostat", "Givinostat", "Belinostat", "Hesperadin", "Quisinostat")
SIZES = {  # control cells, and cells for each drug: the paper's table
    "A549": (3274, (558, 703, 669, 436, 475)),
    "K562": (3346, (388, 589, 656, 624, 339)),
    "MCF7": (6346, (1562, 1805, 1684, 882, 1520)),
}
MOVED = 30  # of so many genes, one moves in a cell type


def sciplex_like(
    *,
    scale: float = 1.0,
    n_genes: int = 34636,
    effect: tuple[float, float] = (1.0, 2.0),
    density: float = 0.03,
    n_types: int = 2,
    random_state: int | np.random.Generator = 0,
) -> Any:
    """Simulate the control and treated cells of 15 experiments, each with a response that is known, as one AnnData.

    Parameters
    ----------
    scale
        What the paper's numbers of cells (26,000 in all) are multiplied by; at least `n_types` are left in each group.
    n_genes, n_types
        Numbers of genes, of which a thirtieth moves in each type, and of cell types in a line.
    effect
        Mean absolute log fold change of a moved gene under the first and under the last drug; the drugs between are
        evenly spaced. (0.15, 0.35) is hard to see; at (1, 2) the moved genes are a good part of a cell, and the others
        give way.
    density
        Expected share of stored entries in each line.
    random_state
        Seed, or the generator to draw from. The same seed gives the same bytes.

    Returns
    -------
    anndata.AnnData
        `X` is float32 CSR: counts scaled to a total common to all cells of the line (the median library), then
        ``log1p``. `obs` has the categories "cell_line", "drug" ("control" or a name) and "cell_type" (such as
        "A549 0"). `varm["response"]` is a data frame, genes × "line drug type" (such as "A549 Dacinostat 0"): the
        planted natural-log fold change of the rate, 0 where unmoved.

    Notes
    -----
    Cells are drawn as in `simulate_perturbation`. A line has rates of its own, and controls that its five drugs share;
    each drug moves genes of its own in each line, half of them alike in all types, the others in one type.

    Examples
    --------
    >>> cells = sciplex_like(scale=0.01, n_genes=300)
    >>> cells[(cells.obs["cell_line"] == "K562") & (cells.obs["drug"] == "Givinostat")].shape
    (6, 300)
    >>> int((cells.varm["response"]["K562 Givinostat 0"] != 0).sum())
    10
    """
    check_number(scale, "scale", 0, 100, open_low=True)
    check_count(n_genes, "n_genes")
    check_count(n_types, "n_types")
    if check_number(density, "density", 0, 1, open_low=True) == 1:
        raise InputError("density must be below 1, or no depth is enough; got 1")
    effects = _check_effect(effect)
    n_moved = max(1, n_genes // MOVED)
    n_own = n_moved // 2
    if n_types * n_own > n_genes - (n_moved - n_own):
        most = (n_genes - (n_moved - n_own)) // n_own
        raise InputError(f"n_types must be at most {most}, or there are too few genes; got {n_types}")
    if not isinstance(random_state, np.random.Generator):
        check_count(random_state, "random_state", 0)
    optional("anndata", "sciplex_like")  # before all the work

    rng = np.random.default_rng(random_state)
    groups, types, responses, labels = [], [], [], []
    for line, (controls, treated) in enumerate(SIZES.values()):
        sizes = [max(n_types, round(scale * n)) for n in (controls, *treated)]
        cells, kinds, response = _draw_line(sizes, n_genes, n_types, (n_moved - n_own, n_own), effects, density, rng)
        groups += cells
        types.append(kinds + line * n_types)
        responses.append(response)
        labels += [(line, drug, n) for drug, n in enumerate(sizes)]
    lines, drugs, repeats = np.array(labels).T
    obs = {
        "cell_line": (np.repeat(lines, repeats), list(SIZES)),
        "drug": (np.repeat(drugs, repeats), ["control", *DRUGS]),
        "cell_type": (np.concatenate(types), [f"{line} {kind}" for line in SIZES for kind in range(n_types)]),
    }
    columns = [f"{line} {drug} {kind}" for line in SIZES for drug in DRUGS for kind in range(n_types)]
    return table(groups, obs, np.concatenate(responses).T.astype(np.float32), columns)


def _draw_line(
    sizes: list[int],
    n_genes: int,
    n_types: int,
    n_moved: tuple[int, int],
    effects: Floats,
    density: float,
    rng: np.random.Generator,
) -> tuple[list[sparse.csr_array], Ints, Floats]:
    """Cells of each group, the controls first; the types of all; the responses, (drug, type) × genes.

    `n_moved` is how many genes move in every type, and how many in each type alone.
    """
    rates = _draw_rates(n_types, n_genes, rng)
    responses = [_draw_response(rates, *n_moved, (float(effect), EFFECT_SPREAD), rng) for effect in effects]
    rates_of = [rates, *(rates * np.exp(response) for response in responses)]
    types = [rng.permutation(np.arange(n) % n_types) for n in sizes]
    library = rng.lognormal(sigma=LIBRARY_SPREAD, size=sum(sizes))
    library *= _depth(density, library, [(n / sum(sizes), group) for n, group in zip(sizes, rates_of, strict=True)])
    parts = [library[start:stop] for start, stop in pairwise([0, *np.cumsum(sizes).tolist()])]
    drawn = [_draw_counts(*group, rng) for group in zip(parts, rates_of, types, strict=True)]
    return _log_normalise(drawn), np.concatenate(types), np.concatenate(responses)


def _check_effect(effect: Any) -> Floats:
    ends = check_reals(effect, "effect")
    if ends.shape != (2,) or not (0 <= ends[0] <= ends[1] <= 10):
        raise InputError(f"effect must be two numbers, 0 ≤ first drug ≤ last drug ≤ 10; got {effect!r}")
    return np.linspace(ends[0], ends[1], len(DRUGS))
