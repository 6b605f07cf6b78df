"""On real cells: sparse and more faithful than the dense map, when ε and γ are chosen on held-out cells."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.decomposition import PCA
from sklearn.model_selection import ShuffleSplit

from occamap import L1, MongeMap, MongeMapCV, SqL2
from occamap.metrics import sinkhorn_divergence

KNOWN = {"ISG15", "IFI6", "IFIT1", "IFIT3", "ISG20", "MX1", "LY6E", "IFIT2", "RSAD2", "OAS1", "IFI44L", "IRF7"}
GRID: dict[str, Any] = {"gammas": [0.1, 0.3, 1.0, 3.0], "epsilon": [0.003, 0.01, 0.03], "relax": [0.0, 1.0]}


@pytest.fixture(scope="module")
def cells(data_directory: Path) -> tuple[sp.csr_array, sp.csr_array, np.ndarray]:
    pytest.importorskip("anndata", reason="reading cells needs anndata")
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from benchmarks.interferon import cells as read

    return read(data_directory)


def test_choice_on_train_cells_holds_on_test_cells(cells: Any) -> None:
    """With 10 % of the entries allowed to move it beats the dense map of the paper's ε, and with 15 % it is at
    what treated train cells score. Components vary more in the cells that they were learned on, though: of the way to
    what treated cells score that were kept from the projection, the map covers most, not all."""
    control, treated, _ = cells
    rows = np.array([split_scores(control, treated, seed) for seed in range(5)])
    ten, fifteen, dense, seen, unseen, identity = rows.mean(axis=0)
    assert ten < dense, rows
    assert fifteen <= seen, rows
    assert (identity - fifteen) / (identity - unseen) > 0.85, rows


def split_scores(control: sp.csr_array, treated: sp.csr_array, seed: int) -> list[float]:
    """Divergences on the test cells of one split: density ≤ 10 %, density ≤ 15 %, ½ℓ2² at ε = 0.1 × mean; and of train
    targets that the projection was, and was not, learned on, and of the cells as they are."""
    (a, b), (c, d) = (
        next(ShuffleSplit(1, test_size=0.2, random_state=seed).split(group)) for group in (control, treated)
    )
    x, y, new, held = control[a], treated[c], control[b], treated[d]
    drawn = np.random.default_rng(0).choice(y.shape[0], new.shape[0], replace=False)  # for the floor
    rest = np.setdiff1d(np.arange(y.shape[0]), drawn)
    pca = PCA(50, svd_solver="arpack", random_state=0).fit(sp.csr_matrix(sp.vstack([x, y[rest]])))

    def score(moved: Any) -> float:
        return sinkhorn_divergence(pca.transform(sp.csr_matrix(moved)), pca.transform(sp.csr_matrix(held)))

    search, scores = MongeMapCV(L1, **GRID, cv=3).fit(x, y), []
    for most in (0.10, 0.15):
        moves = search.select("density", most).displacement(new)
        assert moves.nnz / np.prod(moves.shape) <= 1.1 * most  # it was at most that on the folds
        scores.append(score(new + moves))
    dense = score(MongeMap(SqL2()).fit(x, y).transform(new))
    return [*scores, dense, score(y[rest[: new.shape[0]]]), score(y[drawn]), score(new)]


def test_the_genes_that_move_are_those_of_interferon(cells: Any) -> None:
    control, treated, genes = cells
    moves = MongeMap(L1(1.0), epsilon=0.01, relax=1.0).fit(control, treated).displacement(control)
    top = genes[np.argsort(-np.asarray(moves.mean(axis=0)).ravel())[:25]]
    assert len(KNOWN & set(top)) >= 8, sorted(top)
