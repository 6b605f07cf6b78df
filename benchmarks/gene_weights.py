"""python -m benchmarks.gene_weights: which ℓ1 weights of the genes help a map to find the genes that respond.

Each choice of weights has the γ at which as many entries move as with equal weights at γ = 0.3.
Genes are ranked by |mean displacement|, and by the share of cells they move in; a ranking is scored by its average
precision. Responding genes are those that were planted (simulated cells, `SEEDS` draws), or the hallmark set of the
interferon-α response (Kang et al. 2018, from kang_ifnb.h5ad in the directory that OCCAMAP_DATA names; left out without
it). Prints the table that docs/pathways.md shows.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score

import occamap as oc
from benchmarks.interferon import cells
from occamap.tl.weights import dispersion_weights

Floats = NDArray[np.float64]
GAMMA, TARGETS, SEEDS, STEPS, LEAST = 0.3, 10.0, 3, 10, 0.1
SIZES = {"simulated, effect 0.5": (0.5, 0.05), "simulated, effect 1": (1.0, 0.05), "simulated, dense": (0.5, 0.3)}
RESPONSE = """ADAR B2M BATF2 BST2 C1S CASP1 CASP8 CCRL2 CD47 CD74 CMPK2 CNP CSF1 CXCL10 CXCL11 DDX60 DHX58 EIF2AK2 ELF1
EPSTI1 GBP2 GBP4 GMPR HERC6 HLA-C IFI27 IFI30 IFI35 IFI44 IFI44L IFIH1 IFIT2 IFIT3 IFITM1 IFITM2 IFITM3 IL15 IL4R IL7
IRF1 IRF2 IRF7 IRF9 ISG15 ISG20 LAMP3 LAP3 LGALS3BP LPAR6 LY6E MOV10 MVB12A MX1 NCOA7 NMI NUB1 OAS1 OASL OGFR PARP12
PARP14 PARP9 PLSCR1 PNPT1 PROCR PSMA3 PSMB8 PSMB9 PSME1 PSME2 RIPK2 RNF31 RSAD2 RTP4 SAMD9 SAMD9L SELL SLC25A28 SP110
STAT2 TAP1 TDRD7 TENT5A FAM46A TMEM140 TRAFD1 TRIM14 TRIM21 TRIM25 TRIM26 TRIM5 TXNIP UBA7 UBE2L6 USP18 WARS WARS1"""


def sd(X: Any) -> Floats:
    """Of each column of a sparse matrix."""
    mean = np.asarray(X.mean(axis=0), dtype=np.float64).ravel()
    square = np.asarray(X.astype(np.float64).power(2).mean(axis=0)).ravel()
    return np.sqrt(np.maximum(square - mean**2, 0.0))


def normalised_dispersion(X: Any) -> Floats:
    """As scanpy's highly_variable_genes has it: the z-score of log(variance / mean) among genes of a like mean."""
    import anndata
    import scanpy as sc

    adata = anndata.AnnData(sp.csr_matrix(X))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sc.pp.highly_variable_genes(adata, flavor="seurat")
    return np.nan_to_num(adata.var["dispersions_norm"].to_numpy(dtype=np.float64))


CHOICES: dict[str, Callable[[Any, Any], Floats]] = {
    "none": lambda X, Y: np.ones(X.shape[1]),
    "sd of the control cells (`dispersion`)": lambda X, Y: dispersion_weights(X),
    "sd within both groups": lambda X, Y: np.sqrt((sd(X) ** 2 + sd(Y) ** 2) / 2),
    "√sd of the control cells": lambda X, Y: np.sqrt(sd(X)),
    "1 / sd of the control cells": lambda X, Y: 1 / np.maximum(sd(X), LEAST * sd(X).mean()),
    "normalised dispersion pays less": lambda X, Y: np.exp(-np.clip(normalised_dispersion(X), -2, 2) / 2),
    "normalised dispersion pays more": lambda X, Y: np.exp(np.clip(normalised_dispersion(X), -2, 2) / 2),
}


def normalised(weights: Floats, spread: Floats) -> Floats:
    """None below a tenth of the mean; then moves by one standard deviation in every gene cost what they do with 1."""
    weights = np.maximum(weights, LEAST * weights.mean())
    spread = np.maximum(spread, LEAST * spread.mean())
    return np.asarray(weights * (spread.sum() / (spread * weights).sum()))


def moves(X: Any, Y: Any, weights: Floats, gamma: float) -> sp.csr_array:
    fitted = oc.MongeMap(oc.L1(gamma, weights), TARGETS, "perplexity", relax=1.0).fit(X, Y)
    return fitted.displacement(X)


def at_density(X: Any, Y: Any, weights: Floats, density: float) -> tuple[float, sp.csr_array]:
    """γ, by bisection of its logarithm, and the moves there."""
    low, high = GAMMA / 64, GAMMA * 64
    for _ in range(STEPS):
        gamma = float(np.sqrt(low * high))
        found = moves(X, Y, weights, gamma)
        low, high = (gamma, high) if found.nnz > density * np.prod(found.shape) else (low, gamma)
    return gamma, found


def problems() -> Iterator[tuple[str, Any, Any, NDArray[np.bool_]]]:
    """Name, control, target, and which genes respond."""
    for name, (effect, density) in SIZES.items():
        for seed in range(SEEDS):
            data = oc.datasets.simulate_perturbation(
                600, 600, 2000, n_moved=40, effect=effect, density=density, random_state=seed
            )
            yield name, data.control, data.treated, data.moved.any(axis=0)
    if os.environ.get("OCCAMAP_DATA"):
        control, treated, names = cells(Path(os.environ["OCCAMAP_DATA"]))
        yield "interferon cells", control, treated, np.isin(names, RESPONSE.split())


def score(found: sp.csr_array, responds: NDArray[np.bool_]) -> tuple[float, float]:
    """Average precision of |mean displacement|, and of the share of cells."""
    mean = np.abs(np.asarray(found.mean(axis=0))).ravel()
    share = np.bincount(found.indices, minlength=found.shape[1])
    return average_precision_score(responds, mean), average_precision_score(responds, share)


def main() -> None:
    results: dict[str, dict[str, list[tuple[float, ...]]]] = {}
    for name, X, Y, responds in problems():
        first = moves(X, Y, np.ones(X.shape[1]), GAMMA)
        density = first.nnz / np.prod(first.shape)
        for choice, rule in CHOICES.items():
            weights = normalised(rule(X, Y), sd(X))
            gamma, found = (GAMMA, first) if choice == "none" else at_density(X, Y, weights, density)
            results.setdefault(choice, {}).setdefault(name, []).append((*score(found, responds), gamma))
            print(f"# {name}: {choice}: γ {gamma:.3g}, {score(found, responds)}, density {density:.3f}", flush=True)
    heads = list(next(iter(results.values())))
    print("| weights | " + " | ".join(heads) + " |\n" + "|---" * (len(heads) + 1) + "|")
    for choice, found_there in results.items():
        means = [np.mean(found_there[head], axis=0) for head in heads]
        print(f"| {choice} | " + " | ".join(f"{m[0]:.2f}, {m[1]:.2f} (γ = {m[2]:.2g})" for m in means) + " |")


if __name__ == "__main__":
    main()
