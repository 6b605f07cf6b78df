"""A map of pooled or matched samples once more: as moves and as places, by two threads, and from its file."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

import occamap as oc
from occamap.errors import InputError, OccamapError
from soak.generate import Problem
from soak.generate_pool import Projection
from soak.problems_bounds import EPS, FaultError, ask, close, dense, require

MOST_DIGITS = 1e18  # of a potential next to ε: with more, a map is not saved


def check_again(model: Any, problem: Problem) -> None:
    """T(x) = x + Δ(x), and the same bits in the fit, the neighbourhoods and the moves."""
    reading = problem.reading
    if reading.pool is None and reading.match is None:
        return
    x, moves = dense(problem.X), dense(ask(model.displacement, problem.X)[0])
    there = dense(ask(model.transform, problem.X)[0])
    close(there, x + moves, EPS[problem.X.dtype] * (np.abs(x) + np.abs(moves)) + 1e-44, "x + displacement")
    _check_refit(model, problem)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "map.occamap")
        if isinstance(reading.match, Projection):
            try:
                ask(model.save, path)
            except InputError:
                return
            require(False, "save of a transformer is not refused")
        try:
            ask(model.save, path)
        except InputError:
            potential = max(np.abs(model.f_).max(), np.abs(model.g_).max())
            require(potential > MOST_DIGITS * model.epsilon_, "a map is not saved, though nothing is wrong with it")
            return
        _check_same(model, _load(path), problem, "a file")


def _load(path: Path) -> Any:
    try:
        return ask(oc.load, path)[0]
    except OccamapError as error:
        raise FaultError(f"a file that was saved is not read: {' '.join(str(error).split())[:200]}") from error


def _check_refit(model: Any, problem: Problem) -> None:
    again = clone(model).set_params(n_jobs=2)
    ask(again.fit, problem.X, problem.Y, problem.a, problem.b)
    for name in ("f_", "g_", "epsilon_"):
        require(np.array_equal(getattr(again, name), getattr(model, name)), f"{name} is another with two threads")
    _check_same(model, again, problem, "two threads")


def _check_same(model: Any, other: Any, problem: Problem, where: str) -> None:
    pair, nearest = isinstance(problem.reading.match, tuple), isinstance(problem.reading.pool, int | str | np.integer)
    calls = [("neighbourhoods", ()), ("displacement", (problem.X,)), ("weights", (problem.X,))]
    if not pair:
        calls.append(("displacement", (problem.new,)))
    if problem.reading.pool is None or nearest:
        calls.append(("inverse_transform", (problem.Y,)))
    for name, arguments in calls:
        left, right = (ask(getattr(one, name), *arguments)[0] for one in (model, other))
        same = left.dtype == right.dtype and sp.issparse(left) == sp.issparse(right)
        require(same and np.array_equal(dense(left), dense(right)), f"{name} is another by {where}")
