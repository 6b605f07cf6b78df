"""What all tests share: the Hypothesis profile, the peers that serve as oracles, and where real data lie."""

from __future__ import annotations

import os
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
def data_directory() -> Path:
    """The directory of the real data that the environment variable OCCAMAP_DATA names."""
    named = os.environ.get("OCCAMAP_DATA")
    if not named:
        pytest.skip("needs real cells: set OCCAMAP_DATA to the directory that holds kang_ifnb.h5ad")
    directory = Path(named)
    if not directory.is_dir():
        pytest.skip(f"needs real cells: OCCAMAP_DATA names {named!r}, which is not a directory")
    return directory
