"""Evaluations and paths on a Dask cluster of real processes: the same numbers, whatever becomes of its workers."""

from __future__ import annotations

import gc
import inspect
import operator
import pickle
import signal
import subprocess
import sys
import threading
import time
from dataclasses import fields

import numpy as np
import pandas as pd
import pytest
from threadpoolctl import threadpool_info, threadpool_limits
from typer.testing import CliRunner

import occamap as oc
from occamap._kept import going_on
from occamap._workers import Workers
from occamap.cli.app import WHOLE, app
from occamap.errors import ClusterError, InputError, MemoryBudgetError
from occamap.run_record import RunRecord
from occamap.scale import arrivals, connect, results, task, tasks
from tests.cluster import Cluster

anndata = pytest.importorskip("anndata")
pytest.importorskip("pyarrow")
distributed = pytest.importorskip("distributed", reason="needs dask.distributed: pip install 'dask[distributed]'")

from occamap.evaluation.protocol import Protocol, check_protocol  # noqa: E402
from occamap.evaluation.shared import Preparation  # noqa: E402
from occamap.evaluation.split import Held  # noqa: E402

PROTOCOL = [field.name for field in fields(Protocol)]
ASKED = {"groupby": "drug", "control": "none", "costs": ["sql2", "sql2_pca", "l1"], "gammas": [0.1, 0.3, 1.0]}
ASKED |= {"splits": 3, "components": 5, "markers": 10, "close_ups": ["x"], "verbose": False}
ASKED_OF_PROTOCOL = {name: value for name, value in ASKED.items() if name in PROTOCOL}
ROWS = 2 * 3 * 8
WORDS = ["--groupby", "drug", "--control", "none"]


@pytest.fixture(scope="module")
def cells():
    """One control, two drugs."""
    data = [oc.datasets.simulate_perturbation(60, 40, 120, n_moved=10, effect=1.5, random_state=k) for k in (0, 1)]
    groups = {"none": data[0].control, "x": data[0].treated, "y": data[1].treated}
    parts = []
    for drug, matrix in groups.items():
        obs = pd.DataFrame({"drug": drug}, index=[f"{drug}{i}" for i in range(matrix.shape[0])])
        parts.append(anndata.AnnData(matrix, obs=obs))
        parts[-1].var_names = data[0].genes
    return anndata.concat(parts)


@pytest.fixture(scope="module")
def file(cells, tmp_path_factory):
    path = tmp_path_factory.mktemp("cells") / "cells.h5ad"
    cells.write_h5ad(path)
    return path


@pytest.fixture(scope="module")
def table(cells):
    """The table as one process makes it."""
    return oc.evaluate(cells, **ASKED)


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("cluster"), workers=2) as cluster:
        yield cluster


@pytest.fixture
def cluster(started):
    """Two workers, of which an earlier test may have killed some, and nothing to do."""
    started.restore(2)
    assert started.tasks() == {}
    return started


@pytest.fixture
def client(cluster):
    with cluster.client() as connected:
        yield connected


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(arrivals, "TIMEOUT", 1.5)


def same(one, other):
    pd.testing.assert_frame_equal(one, other, check_exact=True)


def after(rows, act):
    """A tick that does something once, when so many rows are done."""
    left = [act]

    def tick(done, total):
        assert total == ROWS
        if done >= rows and left:
            left.pop()()

    return tick


def until(true, seconds=20):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


class EnoughError(Exception):
    pass


def enough():
    raise EnoughError


# -- the same table --------------------------------------------------------------------------------------------------


def test_the_table_does_not_depend_on_the_workers(cells, table, cluster, client, monkeypatch):
    seen = []
    same(table, oc.evaluate(cells, **ASKED, client=client, tick=lambda done, total: seen.append(done)))
    assert seen == sorted(seen)
    assert seen[0] == 0
    assert seen[-1] == ROWS
    assert len(set(seen)) > 12  # it is told as rows come in
    until(lambda: cluster.tasks() == {})  # nothing stays behind
    monkeypatch.setattr(cluster, "threads", 2)
    cluster.restore(0)
    cluster.add()  # one worker, whose two threads share a BLAS
    same(table, oc.evaluate(cells, **ASKED, client=client))


def test_it_goes_on_where_another_kind_of_run_was_stopped(cells, table, client, tmp_path):
    for name, first, second in (("a", client, None), ("b", None, client)):
        out = tmp_path / name
        with pytest.raises(EnoughError):
            oc.evaluate(cells, **ASKED, out=out, client=first, tick=after(20, enough))
        assert 0 < len(list(out.glob("parts/*-*.json"))) < 6
        same(table, oc.evaluate(cells, **ASKED, out=out, client=second))
        assert RunRecord.read(out).result["splits_from_earlier_runs"] > 0
    files = [{path.name: path.read_bytes() for path in (tmp_path / name / "parts").iterdir()} for name in "ab"]
    assert files[0] == files[1]


def test_what_is_wrong_with_the_cells_is_said_as_without_a_cluster(cells, client):
    with pytest.raises(MemoryBudgetError, match="sending the cells of x needs"):
        oc.evaluate(cells, **ASKED, client=client, max_memory="1MB")
    equal = cells.copy()
    equal.X = np.ones(cells.shape, np.float32)
    with pytest.raises(InputError, match="must differ"):
        oc.evaluate(equal, **{**ASKED, "counts": "keep"}, client=client)
    with pytest.raises(InputError, match=r"client must be a dask\.distributed\.Client\(address\); got str"):
        oc.evaluate(cells, **ASKED, client="tcp://somewhere")


# -- the command line ------------------------------------------------------------------------------------------------


def said(*words):
    """Exit code and stderr of a command."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    return done.exit_code, done.stderr


@pytest.mark.slow
def test_an_interrupt_leaves_nothing_behind(file, cluster, tmp_path):
    words = [sys.executable, "-m", "occamap", "evaluate", file, *WORDS, "--costs", "sql2,l1", "--splits", 60]
    words += ["--components", 5, "--markers", 10]
    cut = subprocess.Popen(
        [str(word) for word in (*words, "--out", tmp_path / "cut", "--dask", cluster.address)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: len(list(tmp_path.glob("cut/parts/*-*.json"))) >= 2 or cut.poll() is not None, 60)
    cut.send_signal(signal.SIGINT)
    out, err = cut.communicate(timeout=30)
    told = f"occamap: interrupted; {WHOLE}; {going_on(tmp_path / 'cut')}\n"
    assert (cut.returncode, out, err) == (130, "", told)
    until(lambda: cluster.tasks() == {})
    kept = len(list(tmp_path.glob("cut/parts/*-*.json")))
    assert 2 <= kept < 120
    assert not list(tmp_path.rglob("*.occamap-part"))
    asked = {**ASKED, "costs": ["sql2", "l1"], "gammas": None, "splits": 4, "close_ups": []}
    again = oc.evaluate(file, **asked, out=tmp_path / "cut")
    assert 0 < RunRecord.read(tmp_path / "cut").result["splits_from_earlier_runs"] <= min(8, kept)
    assert len(again) == 2 * 4 * 10


def test_the_command_evaluates_on_a_cluster(file, cluster, tmp_path):
    words = ["evaluate", file, *WORDS, "--costs", "l1", "--gammas", "0.1,1", "--splits", 2, "--components", 5]
    assert said(*words, "--out", tmp_path / "here") == (0, "")
    assert said(*words, "--out", tmp_path / "there", "--dask", cluster.address) == (0, "")
    files = [(tmp_path / name / "evaluation.csv").read_bytes() for name in ("here", "there")]
    assert files[0] == files[1]


def test_a_path_on_a_cluster_is_the_path(file, cluster, tmp_path):
    cells = anndata.read_h5ad(file)[:, :45].copy()  # no more than there are components: these are rounded by BLAS
    cells.write_h5ad(tmp_path / "few.h5ad")
    words = ["path", tmp_path / "few.h5ad", *WORDS, "--target", "x", "--gammas", "0.1,0.5,2", "--splits", 3]
    for out, more in (("here", ()), ("there", ("--dask", cluster.address))):
        assert said(*words, "--out", tmp_path / out, *more)[0] == 0
    here, there = (pd.read_csv(tmp_path / name / "path.csv") for name in ("here", "there"))
    same(here, there)
    assert RunRecord.read(tmp_path / "here").parameters["dask"] is None
    assert RunRecord.read(tmp_path / "there").parameters["dask"] == cluster.address


# -- workers that are lost -------------------------------------------------------------------------------------------


def test_a_worker_that_is_killed_changes_nothing(cells, table, cluster, client):
    killed = after(5, lambda: cluster.kill(cluster.alive()[0]))
    same(table, oc.evaluate(cells, **ASKED, client=client, tick=killed))


def test_what_only_one_worker_had_is_made_again(cells, table, cluster, client):
    cluster.restore(1)
    [first] = cluster.alive()

    def replace():
        cluster.kill(first)  # with all that there is of the condition
        cluster.add()

    same(table, oc.evaluate(cells, **ASKED, client=client, tick=after(10, replace)))


def test_no_workers_left_is_said_and_what_is_done_is_kept(cells, table, cluster, client, impatient, tmp_path):
    def kill():
        for number in cluster.alive():
            cluster.kill(number)

    with pytest.raises(ClusterError, match=r"^the cluster has no workers left: start some, and try again\nwhat is"):
        oc.evaluate(cells, **ASKED, out=tmp_path, client=client, tick=after(30, kill))
    assert not (tmp_path / "evaluation.csv").exists()
    kept = {path: path.read_bytes() for path in tmp_path.glob("parts/*-*.json")}
    assert kept
    same(table, oc.evaluate(cells, **ASKED, out=tmp_path))
    assert all(path.read_bytes() == before for path, before in kept.items())


def test_a_scheduler_that_is_lost_is_said(impatient, tmp_path, capfd):
    with Cluster(tmp_path, workers=1) as cluster, connect(cluster.address) as client, tasks(client) as submit:
        killing = threading.Timer(1.0, cluster.kill_scheduler)
        killing.start()
        with pytest.raises(ClusterError, match="the cluster does not answer any more: start it again, and try again"):
            results(client, [submit(time.sleep, 60)])
        killing.join()
    assert capfd.readouterr().err == ""


def test_held_out_samples_choose_although_a_worker_is_lost(cluster, client, monkeypatch):
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(60, 10)), rng.normal(size=(70, 10)) + 2
    search = oc.MongeMapCV(gammas=[0.1, 1.0], epsilon=[0.01, 0.1], cv=6, projection=None)
    here = search.fit(X, Y).results_
    bar, left = oc.maps.progress.Progress.bar, [cluster.alive()[0]]

    def killing(progress, done, total, what, begun):
        if done == 1 and left:
            cluster.kill(left.pop())
        bar(progress, done, total, what, begun)

    monkeypatch.setattr("occamap.maps.progress.Progress.bar", killing)
    there = search.fit(X, Y, client=client).results_
    assert not left
    for name in here:
        if "seconds" not in name:
            np.testing.assert_array_equal(here[name], there[name])


# -- recipes ---------------------------------------------------------------------------------------------------------


def test_a_value_that_is_lost_while_others_wait_for_it_is_made_again(cluster, client):
    cluster.restore(1)
    [first] = cluster.alive()
    with tasks(client) as submit:
        sent = submit.send(20)
        doubled = submit(operator.add, sent, sent)
        assert results(client, [doubled], keep=True) == [None]
        waits = submit(time.sleep, 2.0)
        dependent = submit(operator.add, doubled, submit(_second, waits, sent))
        busy = threading.Timer(1.0, lambda: (cluster.kill(first), cluster.add()))
        busy.start()
        assert results(client, [dependent]) == [60]
        busy.join()
        assert sent.tries == 2
    del sent, doubled, waits, dependent
    until(lambda: cluster.tasks() == {})


def _second(_, value):
    return value


_second.__module__ = "__main__"  # workers have no tests: it is sent as it is


def test_values_that_have_come_in_are_forgotten_and_few_are_under_way(cluster, client):
    started = []

    def asked(submit):
        for number in range(10):
            started.append(number)
            yield number, submit(operator.neg, number)

    with tasks(client) as submit:
        for count, (number, value) in enumerate(arrivals.arrivals(client, asked(submit), most=lambda: 3)):
            assert value == -number
            assert len(started) <= count + 3
            assert sum(cluster.tasks().values()) <= 6
    assert started == list(range(10))


def test_arrays_on_workers_are_aligned(client):
    """What comes over a network begins at any byte, and kernels would be compiled for that once more."""
    arrays = [np.ones(1001, np.float32), np.ones(3, np.int8), np.ones((40, 501))]
    with tasks(client) as submit:
        sent = [submit.send({"a": arrays[1], "b": (array, [array])}) for array in arrays]
        assert results(client, [submit(_aligned, one) for one in sent]) == [True] * 3


def _aligned(value):
    whole, [again] = value["b"]
    return bool(whole.flags.aligned and again.flags.aligned and value["a"].flags.aligned)


_aligned.__module__ = "__main__"


def test_alignment_is_restored_in_place():
    raw = np.zeros(8 * 11 + 1, np.uint8)[1:].view(np.float64)
    assert not raw.flags.aligned
    samples = oc._validate.Samples((11, 1), raw[:, None])
    cost = oc.sinkhorn.StoredCost(raw[:, None])
    assert task.aligned(samples) is samples
    assert task.aligned((1, cost))[1] is cost
    assert samples.data.flags.aligned
    assert cost.C.flags.aligned
    sizes = cost.sizes
    assert task.aligned(cost).sizes is sizes


def test_what_travels_says_how_large_it_is_and_takes_nothing_else_along(cells):
    protocol, [condition, _], _ = check_protocol(cells, **_defaults(), **ASKED_OF_PROTOCOL)
    shared = Preparation(cells, protocol, None, 2)(condition, lambda: None)
    with Workers(1) as workers:
        held = Held(shared, 0, workers, lambda _: None)
    for value in (shared, held):
        assert sys.getsizeof(value) == pytest.approx(len(pickle.dumps(value)), rel=0.25)
    assert shared.problem.source.template is None


def _defaults():
    names = {name: entry.default for name, entry in inspect.signature(oc.evaluate).parameters.items()}
    return {name: names[name] for name in PROTOCOL if name not in ASKED_OF_PROTOCOL}


def test_blas_has_one_thread_as_long_as_anyone_asks_for_it():
    def threads():
        """The most of any BLAS: one that a package brings for itself may have been built for one thread."""
        return max(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")

    with threadpool_limits(2, "blas"):
        first, second = task.one_blas_thread(), task.one_blas_thread()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert threads() == 1
        second.__exit__(None, None, None)
        assert threads() == 2


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["nonsense", "http://x:1", "tcp://127.0.0.1:1"])
def test_an_address_that_is_none_is_said(file, address, impatient, tmp_path):
    for words in (["evaluate"], ["path", "--target", "x"]):
        code, told = said(*words, file, *WORDS, "--out", tmp_path / "out", "--dask", address)
        assert code == 2
        rule = "--dask must be the address that `dask scheduler` shows, as tcp://10.0.0.1:8786"
        assert told.startswith(f"occamap: {rule}; got '{address}': ")
        assert told.count("\n") == 1
    assert not (tmp_path / "out" / "run.json").exists()


def test_clients_that_cannot_connect_are_closed(impatient):
    """The garbage collector might close them in the thread of the next client, which would then never start."""
    kept = []
    for address in ("http://x:1", "tcp://127.0.0.1:1"):
        with pytest.raises(InputError) as caught, connect(address):
            pass
        kept.append(caught)  # with its traceback, which holds the client
    found = [one.status for one in gc.get_objects() if isinstance(one, distributed.Client)]
    assert found.count("closed") >= len(kept)
    assert "connecting" not in found


def test_a_scheduler_without_workers_is_said(file, impatient, tmp_path):
    with Cluster(tmp_path, workers=0) as cluster:
        code, told = said("evaluate", file, *WORDS, "--out", tmp_path / "out", "--dask", cluster.address)
    assert code == 2
    assert told == (
        f"occamap: --dask must have workers; the scheduler at {cluster.address} has none: start some with `dask worker "
        f"{cluster.address}`\n"
    )


def test_without_dask_it_is_said_what_to_install(file, tmp_path, monkeypatch):
    told = "occamap: --dask needs dask and distributed, which are not installed: pip install 'occamap[dask]'\n"
    rest = [str(file), *WORDS, "--out", str(tmp_path / "out"), "--dask", "tcp://127.0.0.1:1"]
    hidden = "import sys; sys.modules['dask'] = sys.modules['distributed'] = None; "
    code = hidden + f"sys.argv = ['occamap', 'evaluate', *{rest!r}]; from occamap.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", told)
    for name in ("dask", "distributed"):
        monkeypatch.setitem(sys.modules, name, None)
    assert said("path", "--target", "x", *rest) == (1, told)
    assert not (tmp_path / "out" / "run.json").exists()
