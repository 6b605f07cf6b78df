"""Bad input meets an InputError that names the argument and what it got; odd but sound input is handled."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from occamap import L1, STVS, KOverlap, MongeMap, SqL2, bregman_centroid, flow
from occamap.errors import FeatureMismatchError, InputError

X = np.random.default_rng(0).poisson(1.0, size=(12, 4)).astype(float)
Y = np.random.default_rng(1).poisson(1.5, size=(9, 4)).astype(float)
FRAME = pd.DataFrame(X, columns=list("abcd"))
INF, NAN = np.inf, np.nan


def put(value: Any, into: np.ndarray = X) -> np.ndarray:
    changed = into.astype(np.result_type(into, type(value)) if not isinstance(value, str) else object)
    changed[2, 1] = value
    return changed


def csr(index: int) -> sp.csr_array:
    matrix = sp.csr_array(X)
    matrix.indices[-1] = index
    return matrix


def fit(x: Any = X, y: Any = Y, a: Any = None, b: Any = None, **parameters: Any) -> MongeMap:
    return MongeMap(**parameters).fit(x, y, a, b)


@cache
def fitted() -> MongeMap:
    return fit(FRAME)


def weights(value: Any, n: int = 12) -> np.ndarray:
    return np.array([value, *[1] * (n - 1)])


SAMPLES = {
    "NaN": (put(NAN), "finite; got NaN"),
    "infinity": (put(INF), "finite; got infinity"),
    "minus infinity": (put(-INF), "finite; got infinity"),
    "too large to square": (put(1e200), "1e.?140.*got 1e.?200"),
    "NaN in CSR": (sp.csr_array(put(NAN)), "finite; got NaN"),
    "infinity in CSC": (sp.csc_array(put(INF)), "finite; got infinity"),
    "no samples": (X[:0], r"at least one sample; got shape \(0, 4\)"),
    "no features": (X[:, :0], r"at least one feature; got shape \(12, 0\)"),
    "no samples in CSR": (sp.csr_array((0, 4)), r"at least one sample; got shape \(0, 4\)"),
    "object array": (put("x"), "real numbers; got Python objects"),
    "object array of numbers": (X.astype(object), "real numbers; got Python objects"),
    "complex array": (X + 1j, "real numbers; got complex"),
    "complex CSR": (sp.csr_array(X + 1j), "real numbers; got complex"),
    "strings": (X.astype(str), "real numbers; got dtype <U"),
    "dates": (X.astype("datetime64[s]"), "real numbers; got dtype datetime64"),
    "ragged lists": ([[1.0, 2.0], [3.0]], "rows of different lengths"),
    "one dimension": (X[0], r"two dimensions.*got shape \(4,\).*reshape"),
    "three dimensions": (X[None], r"two dimensions.*got shape \(1, 12, 4\)"),
    "sparse in one dimension": (sp.coo_array(X[0]), r"two dimensions.*got shape \(4,\)"),
    "nothing": (None, r"two dimensions.*got shape \(\)"),
    "a frame with text": (FRAME.assign(b="x"), "numeric columns.*'b'"),
    "a frame with a category": (FRAME.assign(b=pd.Categorical(["x"] * 12)), "numeric columns.*'b'"),
    "a frame with a missing number": (FRAME.assign(b=pd.array([None, *[1] * 11], dtype="Int64")), "NaN|NA|missing|'b'"),
    "index out of range in CSR": (csr(4), "valid sparse matrix.*ind(ices|ex)"),
    "negative index in CSR": (csr(-1), "valid sparse matrix.*ind(ices|ex)"),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_bad_samples_are_named(name: str) -> None:
    bad, message = SAMPLES[name]
    for argument, call in {
        "X": lambda: fit(bad),
        "Y": lambda: fit(X, bad),
        "X ": lambda: fitted().transform(bad),
        "Y ": lambda: fitted().inverse_transform(bad),
        "Z": lambda: fitted().potential(bad),
    }.items():
        with pytest.raises(InputError, match=f"^{argument.strip()} must .*{message}"):
            call()


CALLS = {
    "fewer features in Y": (lambda: fit(X, Y[:, :3]), "Y must have the 4 features of X; got 3"),
    "more features to transform": (lambda: fitted().transform(np.ones((2, 5))), "X must have the 4 features.*got 5"),
    "fewer features to move back": (lambda: fitted().inverse_transform(Y[:, :3]), "Y must have the 4 feat.*got 3"),
    "names that differ in Y": (lambda: fit(FRAME, pd.DataFrame(Y, columns=list("abce"))), "Y must.*absent: 'd'"),
    "other names": (lambda: fitted().transform(FRAME.rename(columns={"b": "z"})), "X must.*1 absent: 'b'"),
    "permuted names": (lambda: fitted().transform(FRAME[list("abdc")]), "X must.*order; column 2 is 'd', there 'c'"),
    "negative weights": (lambda: fit(a=weights(-0.5)), "a must be finite and not negative; got -0.5"),
    "NaN weights": (lambda: fit(a=weights(NAN)), "a must be finite and not negative; got nan"),
    "infinite weights": (lambda: fit(b=weights(INF, 9)), "b must be finite and not negative; got inf"),
    "weights that sum to 0": (lambda: fit(b=np.zeros(9)), "b must have a positive, finite sum; got 0"),
    "too few weights": (lambda: fit(a=[1, 2]), r"a must be one weight a sample, shape \(12,\); got shape \(2,\)"),
    "weights in a column": (lambda: fit(a=np.ones((12, 1))), r"a must.*got shape \(12, 1\)"),
    "weights of text": (lambda: fit(b=["x"] * 9), "b must hold real numbers; got"),
    "complex weights": (lambda: fit(a=weights(1j)), "a must hold real numbers; got complex"),
    "k > d": (lambda: fit(cost=KOverlap(1.0, k=5)), "k must be at most the number of features, 4; got 5"),
    "k = 0": (lambda: KOverlap(1.0, k=0), "k must be an integer ≥ 1; got 0"),
    "k = 1.5": (lambda: KOverlap(1.0, k=1.5), "k must be an integer ≥ 1; got 1.5"),  # type: ignore[arg-type]
    "squared = 1": (lambda: KOverlap(1.0, k=2, squared=1), "squared must be True or False; got 1"),  # type: ignore[arg-type]
    "γ < 0": (lambda: L1(-1.0), "gamma must be a finite number ≥ 0 and ≤ 1e.100; got -1.0"),
    "γ NaN": (lambda: STVS(NAN), "gamma must be a finite number ≥ 0 and ≤ 1e.100; got nan"),
    "γ infinite": (lambda: KOverlap(INF, k=1), "gamma must be a finite number ≥ 0 and ≤ 1e.100; got inf"),
    "γ a string": (lambda: L1("1"), "gamma must be a finite number ≥ 0 and ≤ 1e.100; got '1'"),  # type: ignore[arg-type]
    "γ so large that costs overflow": (lambda: L1(10**400), "gamma must be a finite number ≥ 0 and ≤ 1e.100"),
    "negative feature weights": (lambda: L1(1.0, [1, -2]), "weights must be one number ≥ 0.*got -2"),
    "NaN feature weights": (lambda: L1(1.0, [1, NAN]), "weights must be one number ≥ 0.*got nan"),
    "feature weights of another length": (lambda: fit(cost=L1(1.0, [1, 2])), "weights must.* 4 features; got 2"),
    "complex feature weights": (lambda: L1(1.0, np.array([1, 1j])), "weights must hold real numbers; got complex"),
    "a cost by name": (lambda: fit(cost="l1"), r"cost must be a cost.*got 'l1'"),
    "a cost's class": (lambda: fit(cost=L1), r"cost must be a cost.*got <class"),
    "ε = 0": (lambda: fit(epsilon=0), "epsilon must be a finite number > 0; got 0"),
    "ε < 0": (lambda: fit(epsilon=-0.1), "epsilon must be a finite number > 0; got -0.1"),
    "ε NaN": (lambda: fit(epsilon=NAN), "epsilon must be a finite number > 0; got nan"),
    "ε None": (lambda: fit(epsilon=None), "epsilon must be a finite number > 0; got None"),
    "ε that vanishes": (
        lambda: fit(epsilon=1e-300, x=1e-30 * X, y=1e-30 * Y),
        "epsilon must lead to an ε.*gives 0",
    ),
    "perplexity < 1": (lambda: fit(epsilon=0.5, epsilon_scale="perplexity"), "epsilon must be at least 1.*got 0.5"),
    "perplexity NaN": (
        lambda: fit(epsilon=NAN, epsilon_scale="perplexity"),
        "epsilon must be a finite number > 0; got nan",
    ),
    "unknown epsilon_scale": (lambda: fit(epsilon_scale="mode"), "epsilon_scale must be one of 'mean'.*got 'mode'"),
    "unknown ties": (lambda: fit(ties="left"), "ties must be one of 'zero', 'occam'; got 'left'"),
    "unknown side": (lambda: fitted().potential(X, "left"), "side must be one of 'source', 'target'; got 'left'"),
    "unknown geometry": (lambda: flow(X, Y, L1(1.0), geometry="flat"), "geometry must be one of.*got 'flat'"),
    "relax < 0": (lambda: fit(relax=-0.1), "relax must be a finite number ≥ 0 and ≤ 1; got -0.1"),
    "relax > 1": (lambda: fit(relax=1.1), "relax must be a finite number ≥ 0 and ≤ 1; got 1.1"),
    "relax set later": (lambda: fit().set_params(relax=2).displacement(X), "relax must.*got 2"),
    "tol = 0": (lambda: fit(tol=0), "tol must be a finite number > 0; got 0"),
    "max_iter = 0": (lambda: fit(max_iter=0), "max_iter must be an integer ≥ 1; got 0"),
    "reach = 0": (lambda: fit(reach=0), "reach must be a finite number > 0; got 0"),
    "no jobs": (lambda: fit(n_jobs=0), "n_jobs must be.*other than 0; got 0"),
    "half a job": (lambda: fit(n_jobs=0.5), "n_jobs must be.*got 0.5"),
    "step = 0": (lambda: flow(X, Y, L1(1.0), step=0), "step must be a finite number > 0 and ≤ 1; got 0"),
    "no steps": (lambda: flow(X, Y, L1(1.0), n_steps=0), "n_steps must be an integer ≥ 1; got 0"),
    "a flow without a cost": (lambda: flow(X, Y, "l1"), "cost must be a cost.*got 'l1'"),  # type: ignore[arg-type]
    "a centroid without a cost": (lambda: bregman_centroid(X, None, "l1"), "cost must.*got 'l1'"),  # type: ignore[arg-type]
    "a centroid of NaN": (lambda: bregman_centroid(put(NAN), None, SqL2()), "Z must be finite; got NaN"),
    "a centroid with weights of 0": (lambda: bregman_centroid(X, np.zeros(12), SqL2()), "p must have a positive"),
    **{
        f"max_memory {size!r}": (lambda size=size: fit(max_memory=size), "max_memory must be a number of bytes.*; got ")
        for size in ("lots", "", "-3GB", 0, -1, NAN, INF, True, [1])
    },
}


@pytest.mark.parametrize("name", CALLS)
def test_bad_arguments_are_named(name: str) -> None:
    call, message = CALLS[name]
    with pytest.raises(InputError, match=message):
        call()  # type: ignore[no-untyped-call]
    if "feature" in name or "names" in name:
        with pytest.raises(FeatureMismatchError if "weights" not in name else InputError):
            call()  # type: ignore[no-untyped-call]


def test_csc_with_an_index_out_of_range_is_an_error_and_not_a_crash() -> None:
    """In a process of its own, since SciPy converts such a matrix by writing where it should not."""
    code = """
import numpy as np, scipy.sparse as sp, occamap as oc
for index in (7, -1, 2**30):
    matrix = sp.csc_array((np.ones(3), np.array([0, 1, index]), np.array([0, 1, 2, 3])), shape=(2, 3))
    try:
        oc.MongeMap().fit(matrix, np.eye(3))
    except oc.errors.InputError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("X must be a valid sparse matrix") == 3


def shuffled(matrix: np.ndarray) -> sp.csr_array:
    """The same rows with unsorted indices, and each entry twice at half its value."""
    good = sp.csr_array(np.hstack([matrix[:, ::-1], matrix]) / 2)
    good.indices = np.where(good.indices < 4, 3 - good.indices, good.indices - 4).astype(np.int32)
    return sp.csr_array((good.data, good.indices, good.indptr), shape=matrix.shape)


READ_ONLY = X.copy()
READ_ONLY.setflags(write=False)
ODD = {
    "unsorted and duplicate indices": shuffled(X),
    "stored zeros": sp.csr_array((X.ravel(), np.tile(np.arange(4), 12), np.arange(0, 49, 4)), shape=(12, 4)),
    "integer counts": X.astype(np.int64),
    "small unsigned counts": sp.csr_array(X.astype(np.uint8)),
    "big-endian": X.astype(">f8"),
    "Fortran order": np.asfortranarray(X),
    "every other row": np.repeat(X, 2, axis=0)[::2],
    "read-only": READ_ONLY,
    "lists": X.tolist(),
    "COO": sp.coo_array(X),
    "LIL": sp.lil_array(X),
    "a frame of integers": FRAME.astype("Int64"),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("cost", [L1(0.3), STVS(0.3), KOverlap(0.3, k=2)])
def test_odd_but_sound_samples_give_the_usual_result(name: str, cost: Any) -> None:
    odd = ODD[name]
    before = odd.copy()
    wanted = fit(cost=cost)
    m = fit(odd, cost=cost)
    np.testing.assert_allclose(m.f_, wanted.f_, atol=1e-12)
    np.testing.assert_allclose(m.displacement(odd).toarray(), wanted.displacement(X).toarray(), atol=1e-12)
    if sp.issparse(odd) and odd.format == "csr":
        assert odd.indices.tolist() == before.indices.tolist()
        assert odd.data.tolist() == before.data.tolist()


@pytest.mark.parametrize("rule", ["mean", "median", "std", "max", "absolute"])
@pytest.mark.parametrize("cost", [SqL2(), L1(0.3), STVS(0.3), KOverlap(0.3, k=2)])
def test_one_sample_or_equal_samples_are_enough(cost: Any, rule: str) -> None:
    for x, y in ((X[:1], Y), (X, Y[:1]), (X[:1], Y[:1]), (X[:1], X[:1]), (X[[0] * 5], Y[[0] * 6]), (X[[0] * 5],) * 2):
        m = fit(x, y, cost=cost, epsilon_scale=rule)
        moved = m.transform(x)
        assert m.converged_
        assert np.isfinite([*m.f_, *m.g_, m.epsilon_]).all()
        assert (moved >= np.minimum(x, y.min(axis=0)) - 1e-9).all()
        assert (moved <= np.maximum(x, y.max(axis=0)) + 1e-9).all()


def test_weights_are_scaled_and_a_failed_fit_changes_nothing() -> None:
    a = np.arange(12.0)
    m = fit(a=1e9 * a)
    np.testing.assert_allclose(m.f_, fit(a=a / a.sum()).f_, atol=1e-13)
    wanted = m.transform(X)
    with pytest.raises(InputError):
        m.fit(X, put(NAN, Y))
    np.testing.assert_array_equal(m.transform(X), wanted)


def test_a_map_fitted_on_a_frame_takes_arrays() -> None:
    np.testing.assert_array_equal(fitted().transform(X), fitted().transform(FRAME).to_numpy())
