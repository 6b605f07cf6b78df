"""The same input gives the same bytes: a share of the soak, and the guards it rests on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ONE_KERNEL = """
import hashlib, numpy as np
from occamap._kernels import softmin
rng = np.random.default_rng(0)
C, g, f, out = rng.random((1000, 600)), rng.random(600), 0.1 * rng.random(1000), np.empty(1000)
softmin.perplexities(C, g, np.full(600, -np.log(600)), 0.1, f, out)
print(sum(softmin.perplexities.stats.cache_hits.values()), hashlib.sha256(out.tobytes()).hexdigest())
"""


def test_a_kernel_gives_the_same_bits_compiled_now_and_from_the_cache(tmp_path: Path) -> None:
    """A kernel that calls others must not call another copy of them in the process that compiled it."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", ONE_KERNEL]
    told = [subprocess.run(command, env=environment, capture_output=True, text=True, check=True) for _ in range(2)]
    (fresh, first), (cached, second) = (done.stdout.split() for done in told)
    assert (fresh, cached) == ("0", "1")
    assert first == second
