"""Simulated counterparts of the paper's experiments: 3 cell lines × 5 drugs, at a low and a high dose."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.stats import ttest_ind_from_stats

import occamap as oc

Floats = NDArray[np.float64]

DRUGS = ("Dacinostat", "Givinostat", "Belinostat", "Hesperadin", "Quisinostat")
SIZES = {  # control cells, and cells for each drug: the paper's table
    "A549": (3274, (558, 703, 669, 436, 475)),
    "K562": (3346, (388, 589, 656, 624, 339)),
    "MCF7": (6346, (1562, 1805, 1684, 882, 1520)),
}
DOSES = {"low": (0.15, 0.35), "high": (1.0, 2.0)}  # mean |log fold change| of a moved gene, from drug to drug
MARKERS = 50  # how many of the surest genes count


class Experiment(NamedTuple):
    """A drug on a cell line."""

    line: str
    drug: str
    dose: str


class Split(NamedTuple):
    """Cells to learn from, and cells to test on."""

    control: sparse.csr_array
    treated: sparse.csr_array
    unseen: sparse.csr_array
    held_out: sparse.csr_array


def simulate(experiment: Experiment, shrink: int, n_genes: int, seed: int) -> oc.datasets.Perturbation:
    """Cells of the experiment, the table's numbers divided by `shrink`."""
    line, drug = list(SIZES).index(experiment.line), DRUGS.index(experiment.drug)
    controls, treated = SIZES[experiment.line]
    low, high = DOSES[experiment.dose]
    return oc.datasets.simulate_perturbation(
        controls // shrink,
        treated[drug] // shrink,
        n_genes,
        n_types=2,
        n_moved=n_genes // 30,
        effect=low + (high - low) * drug / (len(DRUGS) - 1),
        random_state=np.random.default_rng([seed, line, drug, list(DOSES).index(experiment.dose)]),
    )


def split(data: oc.datasets.Perturbation, seed: int) -> Split:
    """A random 80 % of each group to learn from, the rest to test on."""
    rng = np.random.default_rng(seed)
    parts = []
    for cells in (data.control, data.treated):
        order = rng.permutation(cells.shape[0])
        cut = int(0.8 * order.size)
        parts.append((cells[np.sort(order[:cut])], cells[np.sort(order[cut:])]))
    (control, unseen), (treated, held_out) = parts
    return Split(control, treated, unseen, held_out)


def mean(cells: sparse.csr_array) -> Floats:
    """The mean of each gene."""
    return np.asarray(cells.mean(axis=0), dtype=np.float64).ravel()


def welch_t(data: oc.datasets.Perturbation) -> Floats:
    """How surely each gene is higher in the treated cells: Welch's t, by which scanpy ranks markers by default."""
    treated, control = (_moments(cells) for cells in (data.treated, data.control))
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.asarray(ttest_ind_from_stats(*treated, *control, equal_var=False).statistic)
    return np.where(np.isnan(t), -np.inf, t)


def _moments(cells: sparse.csr_array) -> tuple[Floats, Floats, int]:
    """Mean and standard deviation of each gene, and the number of cells."""
    average, n = mean(cells), cells.shape[0]
    variance = np.maximum(mean(cells.multiply(cells)) - average**2, 0) * n / (n - 1)
    return average, np.sqrt(variance), n
