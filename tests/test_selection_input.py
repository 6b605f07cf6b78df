"""What MongeMapCV takes for splits, grids and tools, and what it says to others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.model_selection import KFold, LeaveOneOut, ShuffleSplit, StratifiedKFold

from occamap import L1, KOverlap, MongeMapCV, SqL2
from occamap.errors import InputError
from occamap.selection.splits import check_splits

D = 20
X = np.random.default_rng(1).poisson(0.8, size=(50, D)).astype(float)
Y = np.random.default_rng(2).poisson(1.6, size=(60, D)).astype(float)
SMALL: dict[str, Any] = {"gammas": [0.2, 2.0], "epsilon": [0.02, 0.1], "cv": 3, "projection": None}


def test_splits_of_every_kind() -> None:
    folds = check_splits(5, 23, 31, 0)
    assert sorted(np.concatenate([s.source_test for s in folds])) == list(range(23))
    assert sorted(np.concatenate([s.target_test for s in folds])) == list(range(31))
    repeated = check_splits(ShuffleSplit(4, test_size=0.3, random_state=0), 20, 30, 0)
    assert len(repeated) == 4
    assert repeated[0].target_test.size == 9
    own = check_splits([([0, 1], [2, 3], [4, 5], [6, 7])], 10, 10, 0)
    donor = np.arange(10) % 2
    masks = check_splits([(donor != k, donor == k, donor != k, donor == k) for k in range(2)], 10, 10, 0)
    assert masks[1].target_test.tolist() == [1, 3, 5, 7, 9]
    assert own[0].target_test.tolist() == [6, 7]
    one, other = check_splits(5, 25, 25, 1), check_splits(5, 25, 25, 2)
    assert any((p.source_test != q.source_test).any() for p, q in zip(one, other, strict=True))
    assert any((p.source_test != p.target_test).any() for p in one)  # rows may be paired: the sides are split apart


@pytest.mark.parametrize(
    ("cv", "words"),
    [
        (1, "cv must be an integer ≥ 2"),
        (True, "cv must be a number of folds"),
        ("five", "cv must be a number of folds"),
        ([], "got no split at all"),
        ([1, 2], "split 0 is 1"),
        ([([0, 1], [2, 3])], "split 0 has two parts: X and Y are split apart"),
        ([([0, 1], [2, 3], [4, 5])], "split 0 is not four lists"),
        ([([0.5, 1], [2, 3], [4, 5], [6, 7])], "split 0 is not four lists"),
        ([([0, 1], [1, 2], [4, 5], [6, 7])], "must not test on train samples; split 0 shares rows of X"),
        ([([0, 1], [2, 3], [4, 5], [6, 600])], "rows 0 to 59 of Y"),
        ([([0, -1], [2, 3], [4, 5], [6, 7])], "rows 0 to 49 of X"),
        ([([0, 0], [2, 3], [4, 5], [6, 7])], "each once"),
        ([([0, 1], [2], [4, 5], [6, 7])], "at least 2 test samples of X in each split; split 0 leaves 1"),
        (26, "cv must be at most 25 for the 50 samples of X, so that each fold has 2 to test on; got 26"),
        (ShuffleSplit(2, test_size=99), "cv cannot split 50 samples of X"),
    ],
)
def test_bad_splits(cv: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        MongeMapCV(**{**SMALL, "cv": cv}).fit(X, Y)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"gammas": []}, "gammas must be a list of at least one"),
        ({"gammas": [2.0, 1.0]}, "gammas must rise"),
        ({"gammas": [-1.0]}, "gammas: gamma must be"),
        ({"epsilon": []}, "epsilon must be a list of at least one"),
        ({"epsilon": [0.1, 0.01]}, "epsilon must rise"),
        ({"epsilon": [0.0, 0.1]}, "epsilon must be a finite number > 0"),
        ({"relax": [0.0, 1.5]}, "relax must be a finite number ≥ 0 and ≤ 1"),
        ({"ties": []}, "ties must be one or both"),
        ({"ties": ["zero", "zero"]}, "ties must be one or both"),
        ({"ties": "never"}, "ties must be one of"),
        ({"cost": []}, "cost must be a cost such as L1, or a list of at least one"),
        ({"cost": [L1, SqL2]}, "SqL2 has none"),
        ({"cost": KOverlap}, "KOverlap"),
        ({"rule": "nearest"}, "rule must be one of"),
        ({"rule": "density"}, "max_density must be given with rule='density'"),
        ({"rule": "density", "max_density": 7}, "max_density must be"),
        ({"rule": "best", "max_density": 0.1}, "max_density is for rule='density' only"),
        ({"projection": 0}, "projection must be None"),
        ({"projection": "pca"}, "projection must be None"),
        ({"random_state": -1}, "random_state must be an integer ≥ 0"),
        ({"tol": 0}, "tol must be"),
        ({"n_jobs": 0}, "n_jobs must be"),
        ({"epsilon": 0.5, "epsilon_scale": "perplexity"}, "epsilon must be at least 1"),
    ],
)
def test_bad_grids(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        MongeMapCV(**{**SMALL, **change}).fit(X, Y)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"projection": PCA}, "projection must be None"),
        ({"projection": PCA(100)}, r"projection=PCA\(n_components=100\) could not be learned on the .* train samples"),
        ({"cv": KFold}, "cv cannot split"),
        ({"cv": StratifiedKFold(3)}, "cv cannot split"),
        ({"cv": LeaveOneOut()}, "cv must split X and Y equally often; it gives 50 and 60 splits"),
        ({"cv": ShuffleSplit(1, test_size=0.3, random_state=0)}, "rule='one_se' needs a standard error"),
    ],
)
def test_bad_tools(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        MongeMapCV(**{**SMALL, **change}).fit(X, Y)


def test_constant_samples_are_refused_or_handled() -> None:
    with pytest.raises(InputError, match="projection=5 could not be learned"):
        MongeMapCV(**{**SMALL, "projection": 5}).fit(np.ones((30, 20)), np.ones((30, 20)))
    cv = MongeMapCV(**SMALL).fit(1e10 * X, np.full((40, D), 1e10))
    assert cv.diagnostics_.chosen.divergence == pytest.approx(0, abs=1e-3 * cv.diagnostics_.identity.divergence)


def test_weights_must_leave_mass_in_every_part() -> None:
    a = np.zeros(50)
    a[3] = 1
    with pytest.raises(InputError, match="a must leave mass in the train and in the test part"):
        MongeMapCV(**SMALL).fit(X, Y, a)
