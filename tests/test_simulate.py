"""The simulator: its truth is planted where it says, its data have the shape asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse, stats

from occamap.datasets import Perturbation, simulate_perturbation
from occamap.datasets.simulate import SHAPE, _draw_counts


def realised_density(data: Perturbation) -> float:
    return (data.control.nnz + data.treated.nnz) / (np.prod(data.control.shape) + np.prod(data.treated.shape))


def normalised_counts(matrix: sparse.csr_array) -> np.ndarray:
    return np.expm1(matrix.toarray().astype(np.float64))


@pytest.fixture(scope="module")
def data() -> Perturbation:
    return simulate_perturbation(2400, 2100, 1500, n_moved=21, density=0.15, random_state=3)


def test_shapes_names_and_dtypes() -> None:
    data = simulate_perturbation(50, 31, 120, n_types=4, n_moved=5)
    assert data.control.shape == (50, 120)
    assert data.treated.shape == (31, 120)
    assert data.control.dtype == data.treated.dtype == np.float32
    assert data.response.shape == data.moved.shape == (4, 120)
    assert data.response.dtype == np.float64
    assert data.moved.dtype == bool
    assert data.genes[[0, -1]].tolist() == ["G00001", "G00120"]
    assert data.genes.dtype.kind == "U"
    for types, n_cells in ((data.control_types, 50), (data.treated_types, 31)):
        assert types.shape == (n_cells,)
        assert np.ptp(np.bincount(types, minlength=4)) <= 1


@pytest.mark.parametrize("block", [1, 1000, 1 << 20])
def test_sparse_output_is_canonical_at_every_block_height(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("occamap.datasets.simulate.BLOCK", block)
    data = simulate_perturbation(70, 40, 150, n_moved=6, density=0.2)
    for matrix in (data.control, data.treated):
        assert isinstance(matrix, sparse.csr_array)
        assert matrix.indices.dtype == matrix.indptr.dtype == np.int32
        rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        entries = rows * matrix.shape[1] + matrix.indices
        assert (np.diff(entries) > 0).all()
        assert (matrix.data > 0).all()
        matrix.check_format(full_check=True)
    assert realised_density(data) == pytest.approx(0.2, rel=0.1)


def test_cells_have_one_total(data: Perturbation) -> None:
    totals = np.concatenate([normalised_counts(m).sum(axis=1) for m in (data.control, data.treated)])
    np.testing.assert_allclose(totals, totals[0], rtol=1e-4)


@pytest.mark.parametrize(
    ("shape", "density"),
    [((400, 300, 2000), 0.05), ((200, 200, 500), 0.5), ((300, 30, 3000), 0.01), ((600, 120, 15_000), 0.045)],
)
def test_density_is_the_one_asked_for(shape: tuple[int, int, int], density: float) -> None:
    data = simulate_perturbation(*shape, density=density, random_state=5)
    assert realised_density(data) == pytest.approx(density, rel=0.1)


def test_some_genes_are_in_most_cells_and_most_are_rare() -> None:
    data = simulate_perturbation(300, 300, 5000, density=0.05)
    detected = np.bincount(data.control.indices, minlength=5000) / 300
    assert (detected > 0.5).sum() >= 20
    assert np.median(detected) < 0.02


def test_counts_are_negative_binomial() -> None:
    rates = np.array([[0.01, 0.3, 2.0, 40.0], [5.0, 1.0, 0.1, 0.0]])
    types = np.repeat([0, 1], 20_000)
    counts = _draw_counts(np.full(types.size, 1.5), rates, types, np.random.default_rng(0)).toarray()
    for kind, rate in np.ndindex(rates.shape):
        found, mean = counts[types == kind, rate], 1.5 * rates[kind, rate]
        law = stats.nbinom(SHAPE, SHAPE / (SHAPE + mean))
        edges = np.unique(law.ppf([0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.97, 1 - 1e-12]))
        expected = np.diff(law.cdf(edges), prepend=0.0) * found.size
        observed = np.histogram(found, bins=np.concatenate([[-2.0], edges]) + 0.5)[0]
        enough = expected > 5
        score = ((observed - expected)[enough] ** 2 / expected[enough]).sum()
        assert score < stats.chi2(max(1, enough.sum() - 1)).isf(1e-5)


def test_same_seed_same_bytes() -> None:
    def fingerprint(random_state: int | np.random.Generator) -> list[bytes]:
        data = simulate_perturbation(60, 50, 200, n_moved=6, random_state=random_state)
        sparse_parts = [a for m in (data.control, data.treated) for a in (m.data, m.indices, m.indptr)]
        return [a.tobytes() for a in (*sparse_parts, data.control_types, data.treated_types, data.response)]

    assert fingerprint(7) == fingerprint(7) == fingerprint(np.random.default_rng(7))
    assert fingerprint(7)[0] != fingerprint(8)[0]
    generator = np.random.default_rng(7)
    assert fingerprint(generator) != fingerprint(generator)


def test_a_core_moves_in_every_type_and_the_rest_in_one(data: Perturbation) -> None:
    assert (data.moved.sum(axis=1) == 21).all()
    n_types_moved = data.moved.sum(axis=0)
    assert np.bincount(n_types_moved)[1:].tolist() == [3 * 10, 0, 11]
    core = data.response[:, n_types_moved == 3]
    assert (core == core[0]).all()
    size = np.abs(data.response[data.moved])
    assert 0.75 <= size.min() <= size.max() <= 1.25
    assert abs(np.sign(data.response[data.moved]).sum()) <= 6


def test_cell_types_differ_in_markers(data: Perturbation) -> None:
    cells = data.control.toarray()
    test = stats.ttest_ind(cells[data.control_types == 0], cells[data.control_types == 1], equal_var=False)
    share = np.mean(np.abs(test.statistic) > 5)
    assert 0.01 < share < 0.2


def test_planted_genes_move_as_planted_and_the_others_do_not(data: Perturbation) -> None:
    control, treated = normalised_counts(data.control), normalised_counts(data.treated)
    for kind, (response, moved) in enumerate(zip(data.response, data.moved, strict=True)):
        before, after = control[data.control_types == kind], treated[data.treated_types == kind]
        fold = np.log(after.mean(axis=0)[moved] / before.mean(axis=0)[moved])
        np.testing.assert_allclose(fold, response[moved], atol=0.6)
        assert np.corrcoef(fold, response[moved])[0, 1] > 0.95

        kept = ~moved & ((before > 0).mean(axis=0) > 0.05)
        score = stats.ttest_ind(after, before, equal_var=False).statistic
        assert (np.sign(score[moved]) == np.sign(response[moved])).all()
        assert np.abs(score[moved]).min() > 4
        assert np.abs(score[kept]).max() < 6
        assert np.mean(np.abs(score[kept]) > 3) < 0.1


@pytest.mark.parametrize("nothing", [{"effect": 0.0}, {"n_moved": 0}])
def test_a_null_perturbation_moves_nothing(nothing: dict[str, Any]) -> None:
    data = simulate_perturbation(20, 20, 100, **({"n_moved": 10} | nothing))
    assert not data.moved.any()


def test_smallest_and_emptiest_cases() -> None:
    assert simulate_perturbation(1, 1, 1, n_types=1, n_moved=1).control.shape == (1, 1)
    empty = simulate_perturbation(5, 5, 100, n_moved=3, density=1e-9)
    assert empty.control.nnz == empty.treated.nnz == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_control": 2}, r"n_control must be an integer >= 3 \(a cell for each of n_types\), got 2\."),
        ({"n_treated": 10.0}, r"n_treated must be an integer >= 3 .*, got 10\.0\."),
        ({"n_genes": 0}, r"n_genes must be an integer >= 1, got 0\."),
        ({"n_types": True}, r"n_types must be an integer >= 1, got True\."),
        ({"n_moved": -1}, r"n_moved must be an integer >= 0, got -1\."),
        ({"n_genes": 50, "n_moved": 30}, r"n_moved must fit into n_genes=50, got 30, which takes 60 genes"),
        ({"effect": -0.5}, r"effect must be a number in \[0, 10\], got -0\.5\."),
        ({"effect": "big"}, r"effect must be a number in \[0, 10\], got 'big'\."),
        ({"density": 0.0}, r"density must be a number in \(0, 1\), got 0\.0\."),
        ({"density": float("nan")}, r"density must be a number in \(0, 1\), got nan\."),
        ({"random_state": None}, r"random_state must be an integer >= 0 or a numpy Generator, got None\."),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        simulate_perturbation(**arguments)
