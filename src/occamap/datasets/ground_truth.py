"""Pairs of samples between which the optimal map for an elastic cost is known (after Klein et al., 2024)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from occamap._validate import check_count, check_number, check_samples
from occamap.costs import Cost
from occamap.errors import InputError

Floats = NDArray[np.float64]

STEEPEST_PROX = 2.0  # Lipschitz constant: 1 for a convex penalty, 2 for STVS
TOLERANCE = 1e-12


@dataclass(frozen=True, eq=False)
class GroundTruth:
    """Two samples, and the h-optimal map between the measures they come from.

    Attributes
    ----------
    source, target
        Independent samples: the target is the image of source samples that are not in `source`.
    image
        T(x) of each row of `source`.
    cost, curvature
        The cost h, and the matrix M of the potential g(y) = −½ yᵀMy.
    support
        True where T moves a feature of a row of `source`.
    """

    source: Floats = field(repr=False)
    target: Floats = field(repr=False)
    image: Floats = field(repr=False)
    cost: Cost
    curvature: Floats = field(repr=False)

    @property
    def support(self) -> NDArray[np.bool_]:
        return np.asarray(self.image != self.source)

    def transform(self, X: Any) -> Floats:
        """T(x) of each row, dense, to about 1e-12 of the size of X."""
        samples = check_samples(X, "X")
        if samples.shape[1] != self.curvature.shape[0]:
            raise InputError(f"X must have {self.curvature.shape[0]} features, as the truth; got {samples.shape[1]}")
        dense = samples.csr().toarray() if samples.is_sparse else samples.data
        return _push(np.asarray(dense, dtype=np.float64), self.cost, self.curvature)


def ground_truth(
    cost: Cost,
    n_source: int = 500,
    n_target: int = 500,
    n_features: int = 10,
    *,
    pull: float = 2.0,
    random_state: int = 0,
) -> GroundTruth:
    """Draw two samples whose h-optimal map is known, for any elastic cost h.

    For a concave potential g, the map T(x) = argmin_y h(x − y) − g(y) is h-optimal between any measure and its image:
    f(x) = min_y h(x − y) − g(y) and g are then dual potentials that are tight along T. Here g(y) = −½ yᵀMy, whose
    matrix M has random axes and curvatures evenly spaced up to `pull`, so T draws samples towards the origin, in the
    features in which that pays. With w = ∇f(x), T(x) = x − prox_τ(w), and w is the only point with
    w = M(x − prox_τ(w)), to which damped iterations converge.

    Parameters
    ----------
    cost
        h; `SqL2()` gives a linear map.
    n_source, n_target, n_features
        Sizes; the source measure is the standard normal.
    pull
        The largest curvature of −g, at most 100; from some 10 on, most samples end up close to the origin.
    random_state
        Seed. The same seed gives the same samples and the same M for every cost.

    Returns
    -------
    GroundTruth
        `source`, `target`, the `image` T(x) of the source and its `support`; `transform` applies T to other samples.

    Examples
    --------
    >>> import occamap as oc
    >>> truth = oc.datasets.ground_truth(oc.L1(1.0), 300, 300, 5)
    >>> bool(((truth.image - truth.source) == 0).mean() > 0.4)
    True
    """
    if not isinstance(cost, Cost):
        raise InputError(f"cost must be a cost such as L1(1.0); got {cost!r}")
    n, m, d = (
        check_count(value, name)
        for value, name in ((n_source, "n_source"), (n_target, "n_target"), (n_features, "n_features"))
    )
    cost._check_features(d)
    check_number(pull, "pull", 0, 100, open_low=True)
    rng = np.random.default_rng(check_count(random_state, "random_state", 0))
    axes, triangle = np.linalg.qr(rng.normal(size=(d, d)))
    axes *= np.sign(np.diag(triangle))
    curvature = (axes * np.linspace(pull / d, pull, d)) @ axes.T
    source, other = rng.normal(size=(n, d)), rng.normal(size=(m, d))
    return GroundTruth(source, _push(other, cost, curvature), _push(source, cost, curvature), cost, curvature)


def _push(x: Floats, cost: Cost, curvature: Floats) -> Floats:
    """x − prox_τ(w) with w = M(x − prox_τ(w)).

    w minimises h*(w) + ½wᵀM⁻¹w − wᵀx, and these are steps of gradient descent on it, preconditioned by M: each is
    nearer by a factor of at least 1 − 1 / (1 + L·|M|), L being the Lipschitz constant of the prox.
    """
    steepest = 1 + STEEPEST_PROX * float(np.linalg.eigvalsh(curvature)[-1])
    w = x @ curvature / steepest
    tolerance = max(TOLERANCE, 4 * np.finfo(np.float64).eps * steepest) * float(np.abs(x).max())
    for _ in range(int(np.ceil(60 * steepest))):
        step = ((x - cost.prox(w)) @ curvature - w) / steepest
        w += step
        if np.abs(step).max() * steepest <= tolerance:
            break
    return np.asarray(x - cost.prox(w))
