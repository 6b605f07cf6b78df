"""Bregman centroids, and descents of the transport cost in the Euclidean and in the Bregman geometry."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from occamap._validate import Samples, check_choice, check_count, check_number, check_samples, check_weights, restore
from occamap.costs import Cost
from occamap.errors import InputError
from occamap.maps import MongeMap
from occamap.sinkhorn import Report

Floats = NDArray[np.float64]


def bregman_centroid(Z: Any, p: ArrayLike | None, cost: Cost) -> Any:
    """∇h*(Σ_j p_j ∇h(z_j)): the point with the smallest mean divergence D_h(·, z_j).

    Z holds one z_j a row, dense or sparse; p are its weights, scaled to sum to one (uniform if None). A vector
    (d,) comes back for dense rows, one CSR row for sparse ones.

    >>> import numpy as np, occamap as oc
    >>> oc.bregman_centroid(np.array([[2.0, 0.1], [4.0, -0.1]]), None, oc.L1(1.0)).tolist()
    [3.0, 0.0]
    """
    rows = check_samples(Z, "Z")
    if not isinstance(cost, Cost):
        raise InputError(f"cost must be a cost such as L1(1.0); got {cost!r}")
    weights = check_weights(p, rows.shape[0], "p")
    slopes = _slopes(cost, rows.without(cost._frozen(rows.shape[1])))
    return cost.prox(sp.csr_array(weights[None, :]) @ slopes if rows.is_sparse else weights @ slopes)


@dataclass(frozen=True)
class Flow:
    """The states of a descent, the start first; behaves as the sequence of them.

    `trajectory` holds the states in the container of X, `costs` the dual value ⟨a, f⟩ + ⟨b, g⟩ before each step,
    `reports` how each solve ended, `epsilon` the ε of all of them.

    >>> import numpy as np, occamap as oc
    >>> X, Y = np.random.default_rng(0).normal(size=(2, 30, 2)) + [[[0.0, 0.0]], [[3.0, 0.0]]]
    >>> states = oc.flow(X, Y, oc.L1(0.5), n_steps=3)
    >>> len(states), [round(cost, 2) for cost in states.costs]
    (4, [8.39, 5.92, 4.75])
    """

    trajectory: list[Any] = field(repr=False)
    costs: list[float]
    reports: list[Report] = field(repr=False)
    epsilon: float

    def __len__(self) -> int:
        return len(self.trajectory)

    def __getitem__(self, step: int) -> Any:
        return self.trajectory[step]


def flow(
    X: Any,
    Y: Any,
    cost: Cost,
    step: float = 0.25,
    n_steps: int = 6,
    geometry: str = "bregman",
    **map_parameters: Any,
) -> Flow:
    """Move X towards Y down the entropic transport cost, the potentials solved again at every step.

    "euclidean" takes x ← x − λ∇f_ε(x), "bregman" takes x ← ∇h*((1 − λ)∇h(x) + λ∇h(T(x))), λ being `step`; for
    ½‖·‖² they are the same. `map_parameters` go to `MongeMap`; ε is found at the start and then held, so that
    all steps belong to one functional. It need not go down in every step where τ has kinks: look at `costs`.

    >>> import numpy as np, occamap as oc
    >>> path = oc.flow(np.zeros((5, 2)), np.ones((5, 2)), oc.SqL2(), step=0.5, n_steps=2, epsilon_scale="absolute")
    >>> [x[0].round(3).tolist() for x in path]
    [[0.0, 0.0], [0.5, 0.5], [0.75, 0.75]]
    """
    check_number(step, "step", 0, 1, open_low=True)
    check_count(n_steps, "n_steps")
    check_choice(geometry, "geometry", ("bregman", "euclidean"))
    if not isinstance(cost, Cost):
        raise InputError(f"cost must be a cost such as L1(1.0); got {cost!r}")
    model = MongeMap(cost, **map_parameters)
    state = X
    trajectory: list[Any] = [X]
    costs: list[float] = []
    reports: list[Report] = []
    for _ in range(n_steps):
        model.fit(state, Y)
        if not reports:
            model.set_params(epsilon=model.epsilon_, epsilon_scale="absolute", warm_start=True)
        costs.append(float(model.a_ @ model.f_ + model.b_ @ model.g_))
        reports.append(model.report_)
        state = _descend(model, cost, state, step, geometry)
        trajectory.append(state)
    return Flow(trajectory, costs, reports, model.epsilon_)


def _descend(model: MongeMap, cost: Cost, state: Any, step: float, geometry: str) -> Any:
    """One step from `state`, in its container."""
    if geometry == "euclidean":
        return model._along_field(state, -step)
    before, after = check_samples(state, "X"), check_samples(model.transform(state), "X")
    frozen = cost._frozen(before.shape[1])
    mixed = (1 - step) * _slopes(cost, before.without(frozen)) + step * _slopes(cost, after.without(frozen))
    kept = before.without(~frozen)
    return restore(cost.prox(mixed) + (kept.csr() if kept.is_sparse else kept.data), before)


def _slopes(cost: Cost, rows: Samples) -> Any:
    return cost.grad(rows.csr() if rows.is_sparse else rows.data)
