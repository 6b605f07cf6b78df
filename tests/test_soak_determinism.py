"""The same input gives the same bytes: a share of the soak, and the guards it rests on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from soak import determinism
from soak.determinism_maps import digest, work
from soak.tally import Tally

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


def test_a_share_of_the_soak() -> None:
    tally = Tally("determinism", share=0.01)
    determinism.run(tally)
    assert not tally.faults
    assert tally.total() >= 25


def test_sums_in_the_order_in_which_threads_end_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks whose results come in any order add up to other bits: the order is what the digests rest on."""
    from occamap._workers import Workers

    job = {"cases": ["l1/dense/float64"], "n_jobs": 2}
    wanted = work(job)
    in_order = Workers.map
    monkeypatch.setattr(Workers, "map", lambda self, do, blocks: iter(list(in_order(self, do, blocks))[::-1]))
    found = work({**job, "place": "recomputed"})["l1/dense/float64"]
    assert found["potentials"] != wanted["l1/dense/float64"]["potentials"]


def test_a_digest_sees_one_bit() -> None:
    """Of numbers, of their type, and of their order."""
    x = np.linspace(1.0, 2.0, 9)
    others = [np.nextafter(x, 3.0), x[::-1], x.astype(np.float32), x.reshape(3, 3), np.r_[x, 0.0]]
    assert len({digest(y) for y in [x, *others]}) == 6


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("run.json", {"started": "a", "seconds": 1, "parameters": {"threads": 1}, "digests": {}, "seed": 1}, 2),
        ("genes.csv", "gene,mean\nA,1.5\n", "gene,mean\nA,1.6\n"),
    ],
)
def test_only_times_are_left_out_of_the_comparison(name: str, one: object, other: object, tmp_path: Path) -> None:
    path = tmp_path / name
    texts = [one, other] if isinstance(one, str) else [json.dumps(one), json.dumps({**one, "seed": other})]  # type: ignore[dict-item]
    told = []
    for text in texts:
        path.write_text(str(text))
        told.append(determinism.timeless(path))
    assert told[0] != told[1]
    if name == "run.json":
        path.write_text(json.dumps({**one, "started": "b", "seconds": 9, "parameters": {"threads": 2}}))  # type: ignore[dict-item]
        assert determinism.timeless(path) == told[0]
