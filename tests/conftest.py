"""What all tests share: the Hypothesis profile, the peers that serve as oracles, and where real data lie."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, settings

os.environ["JAX_ENABLE_X64"] = "1"  # read when JAX is first imported, by whichever test does it
os.environ.setdefault("JAX_PLATFORMS", "cpu")

slow = [HealthCheck.too_slow]  # says more about the machine than about the test
settings.register_profile("occamap", deadline=None, derandomize=True, max_examples=50, suppress_health_check=slow)
settings.load_profile("occamap")


@pytest.fixture(scope="session")
def ott() -> ModuleType:
    """OTT-JAX in double precision."""
    jax = pytest.importorskip("jax", reason="OTT-JAX is an oracle here: install the extra `peers`")
    jax.config.update("jax_enable_x64", True)
    module: ModuleType = pytest.importorskip("ott", reason="OTT-JAX is an oracle here: install the extra `peers`")
    assert jax.numpy.ones(1).dtype == "float64"
    return module


@pytest.fixture(scope="session")
def pot() -> ModuleType:
    """POT, the Python Optimal Transport library."""
    module: ModuleType = pytest.importorskip("ot", reason="POT is an oracle here: install the extra `peers`")
    return module


@pytest.fixture(scope="session")
def skglm() -> ModuleType:
    """skglm, whose penalties on groups have a prox of their own."""
    module: ModuleType = pytest.importorskip("skglm", reason="skglm is an oracle here: install the extra `peers`")
    return module


@pytest.fixture(scope="session")
def cvxpy() -> ModuleType:
    """cvxpy, which solves convex problems as they are written down."""
    module: ModuleType = pytest.importorskip("cvxpy", reason="cvxpy is an oracle here: install the extra `peers`")
    return module


@pytest.fixture(scope="session")
def data_directory() -> Path:
    """The directory of the real data that the environment variable OCCAMAP_DATA names."""
    named = os.environ.get("OCCAMAP_DATA")
    if not named:
        pytest.skip("needs real cells: set OCCAMAP_DATA to the directory that holds kang_ifnb.h5ad")
    directory = Path(named)
    if not directory.is_dir():
        pytest.skip(f"needs real cells: OCCAMAP_DATA names {named!r}, which is not a directory")
    return directory


HOSTILE = ["<script>alert(1)</script>", "</script><script>alert(2)</script>"]
HOSTILE += ["a\"b'c&d<e>", "=1+1", "𝛾😀 ‮gene", "NA", "__proto__"]
TYPES = ["<b>T cell</b>", "constructor", "<img src=x onerror=alert(3)>"]


@pytest.fixture(scope="session")
def saved_runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of every kind on a few simulated cells, some of whose genes and groups have hostile names."""
    pytest.importorskip("anndata", reason="runs read .h5ad files: install the extra `cells`")
    import numpy as np

    import occamap as oc
    from occamap.errors import MatchWarning
    from occamap.runs.fitting import fit
    from occamap.runs.options import MapOptions, Question
    from occamap.runs.paths import path

    folder = tmp_path_factory.mktemp("runs")
    adata = oc.datasets.simulate_perturbation(80, 70, 150, effect=2.0, density=0.4, random_state=1).to_anndata()
    names = adata.var_names.to_numpy().astype(object)
    moved = np.argsort(-np.abs(np.asarray(adata.varm["response"])).max(axis=1))  # the first genes of the tables
    names[moved[: len(HOSTILE)]] = HOSTILE
    adata.var_names = names.astype(str)
    kinds = adata.obs["cell_type"].cat
    adata.obs["<i>type<i>"] = kinds.rename_categories(dict(zip(kinds.categories, TYPES, strict=False)))
    file = folder / "cells <1>.h5ad"
    adata.write_h5ad(file)
    question, plain = Question("condition", "control", "treated"), MapOptions(gamma=0.3, pool="none", match="none")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MatchWarning)  # so few cells mix
        fit(file, folder / "fit", question, plain, by="<i>type<i>", subsamples=3)
    fit(file, folder / "auto", question, MapOptions(gamma="auto", max_density=0.4, pool="none"), subsamples=0)
    path(file, folder / "path", question, plain, gammas=[0.1, 0.5, 1.0], splits=2)
    oc.evaluate(
        file,
        groupby="condition",
        control="control",
        within="<i>type<i>",
        costs=["sql2", "l1"],
        gammas=[0.1, 1.0],
        splits=2,
        out=folder / "evaluation",
        verbose=False,
    )
    return {name: folder / name for name in ("fit", "auto", "path", "evaluation")}
