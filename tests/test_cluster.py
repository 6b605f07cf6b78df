"""Fits on a Dask cluster of real processes: the same result to the bit, whatever becomes of a worker."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from occamap import L1, STVS, MongeMap
from occamap.errors import ClusterError, InputError, MissingPackageError, NotConvergedWarning
from occamap.maps.progress import Progress
from occamap.scale import tiles
from occamap.sinkhorn import operator as operators
from occamap.sinkhorn.operator import tile_spans
from tests.cluster import Cluster

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

N, M, D = 1500, 500, 60


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), workers=2) as started:
        yield started


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Any]:
    while len(cluster.alive()) < 2:  # an earlier test killed one
        cluster.add()
    with cluster.client() as connected:
        yield connected


@pytest.fixture(autouse=True)
def several_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tiles; the workers do not care."""
    monkeypatch.setattr(operators, "TILE", 2**17)
    assert len(list(tile_spans((N, M)))) == 3


def sample(n: int, seed: int, wrap: Any = np.asarray) -> Any:
    rng = np.random.default_rng(seed)
    return wrap(np.where(rng.random((n, D)) < 0.3, rng.gamma(2.0, size=(n, D)), 0.0).astype(np.float32))


def same(one: MongeMap, other: MongeMap) -> None:
    np.testing.assert_array_equal(one.f_, other.f_)
    np.testing.assert_array_equal(one.g_, other.g_)
    assert one.report_.errors == other.report_.errors
    assert one.report_.effective_targets == other.report_.effective_targets


# -- the operator contract -------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize(
    "options",
    [
        {"cost": L1(0.3)},
        {"cost": STVS(0.5), "reach": 5.0},
        {"cost": L1(0.3, np.r_[np.inf, np.ones(D - 1)]), "epsilon": 20.0, "epsilon_scale": "perplexity"},
        {"epsilon": 0.1, "epsilon_scale": "median"},
        {"epsilon": 0.3, "epsilon_scale": "std", "tol": 1e-8},
    ],
    ids=["l1", "unbalanced", "frozen", "median", "std"],
)
def test_the_cluster_gives_the_same_bits(client: Any, wrap: Any, options: Any) -> None:
    X, Y = sample(N, 0, wrap), sample(M, 1, wrap)
    a = np.random.default_rng(2).random(N)
    a[5] = 0.0
    b = np.r_[0.0, np.ones(M - 1)]
    here, there = MongeMap(**options).fit(X, Y, a, b), MongeMap(**options).fit(X, Y, a, b, client=client)
    same(here, there)
    assert there.report_.operator == "on the workers, float64"
    assert "2 workers have room for" in there.report_.choice
    assert abs(here.inverse_transform(Y[:5]) - there.inverse_transform(Y[:5])).max() == 0


@pytest.mark.parametrize(("room", "place"), [(7e6, "on the workers, float32"), (1e6, "computed again on the workers")])
def test_workers_with_little_memory_round_or_compute_again(
    client: Any, room: float, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The costs take 6 MB in float64, and 3 MB in float32."""
    X, Y = sample(N, 0, sp.csr_array), sample(M, 1, sp.csr_array)
    exact = MongeMap(L1(0.3)).fit(X, Y)
    monkeypatch.setattr(tiles, "memory_left", lambda _: room)
    found = MongeMap(L1(0.3)).fit(X, Y, client=client)
    assert found.report_.operator.startswith(place)
    assert found.report_.operator.endswith("float32")
    np.testing.assert_allclose(found.f_, exact.f_, rtol=0, atol=1e-6 * np.ptp(exact.f_))
    assert MongeMap(L1(0.3), tol=1e-7).fit(X, Y, client=client).report_.operator.endswith("float64")


def test_only_vectors_move_in_an_iteration(client: Any) -> None:
    """Between workers nothing as large as a tile is sent, but the target, once, to the one that it was not sent to."""


    def received(dask_worker: Any) -> list[int]:
        found = [entry["total"] for entry in dask_worker.transfer_incoming_log]
        dask_worker.transfer_incoming_log.clear()
        return found

    client.run(received)
    MongeMap(L1(0.3), epsilon=0.02, tol=1e-7).fit(sample(N, 0), sample(M, 1), client=client)
    moved = [size for sizes in client.run(received).values() for size in sizes]
    tile, target = 8 * 512 * M, 3 * 4 * M * D
    large = [size for size in moved if size > 0.1 * tile]
    assert len(large) <= 1
    assert max(large, default=0) <= 1.01 * target < 0.2 * tile


# -- Dask arrays -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array, sp.csr_matrix], ids=["dense", "csr_array", "csr_matrix"])
@pytest.mark.parametrize("chunks", [(400, 25), (N, D), (7, D)], ids=["both", "one", "many"])
def test_a_dask_array_is_fitted_where_it_is(client: Any, wrap: Any, chunks: Any) -> None:
    if wrap is not np.asarray and chunks[1] != D:
        chunks = (400, D)
    X, Y = sample(N, 0), sample(M, 1, wrap)
    lazy = da.from_array(X, chunks=chunks)
    if wrap is not np.asarray:
        lazy = lazy.map_blocks(wrap)
    with client.as_current():
        found = MongeMap(L1(0.3)).fit(lazy, Y, client=client)
        same(found, MongeMap(L1(0.3)).fit(wrap(X), Y))
        assert not hasattr(found._given, "data")  # it has not come here
        expected = MongeMap(L1(0.3)).fit(wrap(X), Y).inverse_transform(Y)
        assert abs(found.inverse_transform(Y) - expected).max() == 0  # now it has


def test_a_dask_array_is_moved_chunk_by_chunk(client: Any, tmp_path: Any) -> None:
    X, Y = sample(300, 0), sample(M, 1)
    m = MongeMap(L1(0.3)).fit(X, Y)
    lazy = da.from_array(X, chunks=(128, D))
    with client.as_current():
        for method in ("transform", "displacement", "inverse_transform"):
            moved = getattr(m, method)(lazy)
            assert moved.chunks == lazy.chunks
            assert abs(moved.compute() - getattr(m, method)(X)).max() == 0
        fitted = MongeMap(L1(0.3)).fit(lazy, Y)
        fitted.save(tmp_path / "map.occamap")
    wanted = m.displacement(X)
    there = m.displacement(X, client=client)
    assert (wanted != there).nnz == 0
    assert there.dtype == wanted.dtype


def test_anndata_of_a_dask_array(client: Any) -> None:
    ad = pytest.importorskip("anndata")
    X, Y = (ad.AnnData(sample(n, seed, sp.csr_matrix)) for n, seed in ((300, 0), (200, 1)))
    wanted = MongeMap(L1(0.3)).fit(X, Y)
    lazy = ad.AnnData(da.from_array(X.X.toarray(), chunks=(100, D)).map_blocks(sp.csr_matrix))
    found = MongeMap(L1(0.3)).fit(lazy, Y, client=client)
    same(found, wanted)
    assert found.feature_names_in_.tolist() == X.var_names.tolist()
    moved = found.transform(lazy)
    assert abs(moved.X.compute(scheduler="sync") - wanted.transform(X).X).max() == 0


def test_bad_dask_arrays_are_told_of(client: Any, cluster: Cluster) -> None:
    X, Y = sample(300, 0), sample(M, 1)
    lazy = da.from_array(X, chunks=(100, D))
    bad = X.copy()
    bad[250, 3] = np.nan
    cases = {
        "a chunk of X must be finite": da.from_array(bad, chunks=(100, D)),
        "chunks of known sizes": lazy[lazy[:, 0] > 0],
        "two dimensions": da.ones((3, 3, 3)),
        "must have the 10 features": lazy[:, :10],
        "real numbers": lazy.astype(str),
        "at least one sample": lazy[:0],
        "shapes that it declares": lazy.map_blocks(lambda chunk: chunk[:50], dtype=lazy.dtype, meta=lazy._meta),
        "must be a Dask array": dask.delayed(X),
    }
    for words, array in cases.items():
        with pytest.raises(InputError, match=words):
            MongeMap().fit(array, Y, client=client)
    with pytest.raises(InputError, match=r"connect to it first, with client = dask.distributed.Client\(address\)"):
        MongeMap().fit(lazy, Y)
    with pytest.raises(InputError, match=r"must be a dask.distributed.Client\(address\); got str"):
        MongeMap().fit(X, Y, client="tcp://127.0.0.1:8786")
    assert is_empty(cluster)


# -- what goes wrong -------------------------------------------------------------------------------------------


def is_empty(cluster: Cluster) -> bool:
    """Whether the scheduler soon knows of no task any more."""
    for _ in range(50):
        if cluster.tasks() == {}:
            return True
        time.sleep(0.1)
    return False


def at(iteration: int, do: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do something when the solver tells of this iteration."""
    told = Progress.iteration

    def listen(self: Progress, number: int, error: float) -> None:
        if number == iteration:
            do()
        told(self, number, error)

    monkeypatch.setattr(Progress, "iteration", listen)


@pytest.mark.parametrize("lazy", [False, True], ids=["here", "dask array"])
def test_a_worker_that_is_killed_in_the_middle_changes_nothing(
    cluster: Cluster, client: Any, lazy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, Y = sample(N, 0), sample(M, 1)
    options: Any = {"cost": L1(0.3), "epsilon": 0.02, "tol": 1e-7}
    here = MongeMap(**options).fit(X, Y)
    assert here.n_iter_ > 10
    killed: list[int] = []

    def kill() -> None:
        if not killed:
            cluster.kill(cluster.alive()[0])
            killed.append(1)

    at(5, kill, monkeypatch)
    raw = da.from_array(X, chunks=(400, D)) if lazy else X
    there = MongeMap(**options).fit(raw, Y, client=client)
    assert killed
    assert len(cluster.alive()) == 1
    same(here, there)


def test_a_worker_that_freezes_and_dies_holds_nobody_up(
    cluster: Cluster, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is sent to it meanwhile has to be sent again."""
    X, Y = sample(N, 0), sample(M, 1)
    options: Any = {"cost": L1(0.3), "epsilon": 0.02, "tol": 1e-7}
    victim = cluster.alive()[0]

    def freeze() -> None:
        cluster.workers[victim].send_signal(signal.SIGSTOP)
        threading.Timer(1.5, cluster.kill, [victim]).start()

    here = MongeMap(**options).fit(X, Y)
    at(5, freeze, monkeypatch)
    begun = time.monotonic()
    same(here, MongeMap(**options).fit(X, Y, client=client))
    assert victim not in cluster.alive()
    assert time.monotonic() - begun < 60


def test_a_cluster_without_workers_is_given_up(
    cluster: Cluster, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, Y = sample(N, 0), sample(M, 1)

    def kill() -> None:
        for number in cluster.alive():
            cluster.kill(number)

    for module in ("cluster", "arrivals"):
        monkeypatch.setattr(f"occamap.scale.{module}.TIMEOUT", 3.0, raising=False)
    at(3, kill, monkeypatch)
    with pytest.raises(ClusterError, match="no workers left"):
        MongeMap(L1(0.3), epsilon=0.02, tol=1e-7).fit(X, Y, client=client)


def test_an_interrupt_leaves_nothing_on_the_cluster(
    client: Any, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    at(3, interrupt, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        MongeMap(L1(0.3), epsilon=0.02, tol=1e-7).fit(sample(N, 0), sample(M, 1), client=client)
    assert is_empty(cluster)


def test_the_report_of_a_fit_that_does_not_converge(client: Any) -> None:
    with pytest.warns(NotConvergedWarning, match="max_iter=3"):
        MongeMap(L1(0.3), epsilon=0.01, tol=1e-9, max_iter=3).fit(sample(N, 0), sample(M, 1), client=client)


def test_without_dask_the_message_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['distributed'] = None\n"
        "import importlib.util, occamap as oc, numpy as np\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *rest: None if name == 'distributed' else find(name, *rest)\n"
        "try: oc.MongeMap().fit(np.ones((3, 2)), np.ones((3, 2)), client=object())\n"
        "except oc.errors.MissingPackageError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    wanted = "client= needs distributed, which is not installed: pip install 'occamap[dask]'\n"
    assert done.stdout == wanted, done.stderr
    assert issubclass(MissingPackageError, ImportError)


# -- the command -----------------------------------------------------------------------------------------------


def test_occamap_fit_on_a_cluster_writes_the_same_tables(client: Any, cluster: Cluster, tmp_path: Any) -> None:
    import occamap as oc

    oc.datasets.simulate_perturbation(300, 250, 400, effect=1.5).to_anndata().write_h5ad(tmp_path / "cells.h5ad")
    asked = ["--groupby", "condition", "--control", "control", "--target", "treated", "--subsamples", "2"]
    for name, more in (("here", []), ("there", ["--dask", cluster.address])):
        command = [sys.executable, "-m", "occamap", "fit", str(tmp_path / "cells.h5ad"), *asked, *more]
        done = subprocess.run([*command, "--out", str(tmp_path / name)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    for table in ("genes.csv", "cells.csv", "targets.csv"):
        assert (tmp_path / "here" / table).read_bytes() == (tmp_path / "there" / table).read_bytes()
