"""Pairs of samples between which the optimal map for an elastic cost is known (after Klein et al., 2024)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from occamap._validate import check_choice, check_count, check_number, check_samples
from occamap.costs import Cost
from occamap.errors import InputError

Floats = NDArray[np.float64]

POTENTIALS = ("quadratic", "logcosh")
SIDES = ("source", "target")
STEEPEST_PROX = 2.0  # Lipschitz constant: 1 for a convex penalty, 2 for STVS, whose h is ½-strongly convex
TOLERANCE = 1e-12


@dataclass(frozen=True, eq=False)
class Concave:
    """g(y) = −Σ_k c_k ψ(u_k·y) along orthonormal axes u_k, with ψ(s) = ½s² or log cosh s; largest at the origin.

    `axes` has the u_k as columns, `curvatures` the c_k ≥ 0. The two kinds agree close to the origin; from some 2 on,
    the slope of log cosh levels off.
    """

    kind: str
    axes: Floats = field(repr=False)
    curvatures: Floats = field(repr=False)

    def __call__(self, y: Floats) -> Floats:
        along = y @ self.axes
        values = 0.5 * along**2 if self.kind == "quadratic" else np.logaddexp(along, -along) - np.log(2.0)
        return np.asarray(-values @ self.curvatures)

    def descent(self, y: Floats) -> Floats:
        """−∇g, whose Lipschitz constant is the largest of the curvatures."""
        along = y @ self.axes
        slopes = along if self.kind == "quadratic" else np.tanh(along)
        return np.asarray((slopes * self.curvatures) @ self.axes.T)

    @property
    def steepest(self) -> float:
        return float(self.curvatures.max())


@dataclass(frozen=True, eq=False)
class GroundTruth:
    """Two samples, and the h-optimal map between the measures they come from.

    Attributes
    ----------
    source, target
        Independent samples: the target is the image of source samples that are not in `source`.
    image
        T(x) of each row of `source`.
    cost, concave
        The cost h and the concave potential g.
    accuracy
        No row of `image` or `target` is farther than this from its exact place, which is proved, not estimated.

    Examples
    --------
    >>> import occamap as oc
    >>> truth = oc.datasets.ground_truth(oc.L1(2.0), 10, 100, 100)
    >>> truth.source.shape, truth.image.shape, truth.accuracy < 1e-8
    ((100, 10), (100, 10), True)
    >>> gap = oc.L1(2.0).value(truth.source - truth.image) - truth.potential(truth.source)
    >>> bool(abs(gap - truth.potential(truth.image, side="target")).max() < 1e-8)  # f(x) + g(T(x)) = h(x − T(x))
    True
    """

    source: Floats = field(repr=False)
    target: Floats = field(repr=False)
    image: Floats = field(repr=False)
    cost: Cost
    concave: Concave
    accuracy: float

    @property
    def support(self) -> NDArray[np.bool_]:
        """True where T moves a feature of a row of `source`."""
        return np.asarray(self.image != self.source)

    @property
    def curvature(self) -> Floats:
        """The matrix M of g(y) = −½ yᵀMy, or, for log cosh, minus the Hessian of g at the origin."""
        return np.asarray((self.concave.axes * self.concave.curvatures) @ self.concave.axes.T)

    def transform(self, X: Any) -> Floats:
        """T(x) of each row, dense, to about 1e-12 of the size of X."""
        return _push(self._dense(X, "X"), self.cost, self.concave)[0]

    def potential(self, Z: Any, side: str = "source") -> Floats:
        """The optimal dual potentials: f(x) = min_y h(x − y) − g(y) of the source, g(y) of the target.

        f(x) + g(y) ≤ h(x − y) for all x and y, with equality where y = T(x).
        """
        rows = self._dense(Z, "Z")
        if check_choice(side, "side", SIDES) == "target":
            return self.concave(rows)
        moved, _ = _push(rows, self.cost, self.concave)
        return np.asarray(self.cost.value(rows - moved) - self.concave(moved))

    def _dense(self, raw: Any, name: str) -> Floats:
        samples, d = check_samples(raw, name), self.concave.curvatures.size
        if samples.shape[1] != d:
            raise InputError(f"{name} must have {d} features, as the truth; got {samples.shape[1]}")
        return np.asarray(samples.csr().toarray() if samples.is_sparse else samples.data, dtype=np.float64)


def ground_truth(
    cost: Cost,
    d: int = 10,
    n_source: int = 500,
    n_target: int = 500,
    *,
    potential: str = "quadratic",
    pull: float = 2.0,
    random_state: int = 0,
) -> GroundTruth:
    """Draw two samples whose h-optimal map is known, for any elastic cost h.

    For a concave potential g, the map T(x) = argmin_y h(x − y) − g(y) is h-optimal between any measure and its image:
    f(x) = min_y h(x − y) − g(y) and g are then dual potentials that are tight along T. Here g falls off from the origin
    along random axes, at curvatures evenly spaced up to `pull`, so T draws samples towards the origin, in the features
    in which that pays.

    Parameters
    ----------
    cost
        h; any cost: of it, only the prox is used.
    d
        Features.
    n_source, n_target
        Samples; the source measure is the standard normal.
    potential
        "quadratic", −½ yᵀMy: T is piecewise linear for ℓ1, and linear for `SqL2()`. "logcosh", the sum of −c log cosh
        along the axes of M: T is curved, and pulls far samples no harder than near ones.
    pull
        The largest curvature of −g, at most 100; from some 10 on, most samples end up close to the origin.
    random_state
        Seed. The same seed gives the same samples and the same axes for every cost and potential.

    Returns
    -------
    GroundTruth
        `source`, `target`, the `image` T(x) of the source and its `support`; `transform` applies T to other samples,
        `potential` gives f and g.

    Examples
    --------
    >>> import occamap as oc
    >>> truth = oc.datasets.ground_truth(oc.L1(1.0), 5, 300, 300)
    >>> bool(((truth.image - truth.source) == 0).mean() > 0.4)
    True
    """
    if not isinstance(cost, Cost):
        raise InputError(f"cost must be a cost such as L1(1.0); got {cost!r}")
    check_choice(potential, "potential", POTENTIALS)
    d, n, m = (
        check_count(value, name) for value, name in ((d, "d"), (n_source, "n_source"), (n_target, "n_target"))
    )
    cost._check_features(d)
    check_number(pull, "pull", 0, 100, open_low=True)
    rng = np.random.default_rng(check_count(random_state, "random_state", 0))
    axes, triangle = np.linalg.qr(rng.normal(size=(d, d)))
    axes *= np.sign(np.diag(triangle))
    concave = Concave(potential, axes, np.linspace(pull / d, pull, d))
    source, other = rng.normal(size=(n, d)), rng.normal(size=(m, d))
    (image, near), (target, close) = (_push(x, cost, concave) for x in (source, other))
    return GroundTruth(source, target, image, cost, concave, max(near, close))


def _push(x: Floats, cost: Cost, concave: Concave) -> tuple[Floats, float]:
    """argmin_y h(x − y) − g(y) of each row, and a bound on how far any row is from it.

    Proximal gradient steps on z = x − y, with distances measured by the Bregman divergence of L·h instead of a square,
    L being the Lipschitz constant of ∇g over the modulus of strong convexity of h. Then a step is z ← prox_τ(w),
    w ← (L w − ∇g(x − z)) / (1 + L): it takes τ as it is, where a plain proximal step would need the prox of its
    multiples. Each brings the divergence to the minimiser down by a factor of at least L / (1 + L). The first half of
    the steps have momentum, taken from a row where it points uphill: most rows then need √(1 + L) times fewer.

    At every step w ∈ ∂h(z), so that −∇g(y) − w is a sub-gradient of what is minimised, which is strongly convex:
    its length over the modulus bounds the distance to the minimiser.
    """
    kappa = 1 + STEEPEST_PROX * concave.steepest
    momentum = (np.sqrt(kappa) - 1) / (np.sqrt(kappa) + 1)
    enough = max(TOLERANCE, 4 * np.finfo(np.float64).eps * kappa) * float(np.abs(x).max())
    steps = int(np.ceil(80 * kappa))
    y, farthest, rows = np.empty_like(x), 0.0, np.arange(x.shape[0])
    w = ahead = concave.descent(x) / kappa
    for step in range(steps):
        reached = x[rows] - cost.prox(ahead)
        residual = concave.descent(reached) - ahead
        largest = np.abs(residual).max(axis=1)
        done = largest <= enough
        if done.any():
            y[rows[done]] = reached[done]
            farthest = max(farthest, STEEPEST_PROX * float(np.linalg.norm(residual[done], axis=1).max()))
            rows, w, ahead, residual = (values[~done] for values in (rows, w, ahead, residual))
            if rows.size == 0:
                return y, farthest
        before, w = w, ahead + residual / kappa
        downhill = ((w - before) * residual).sum(axis=1) > 0
        ahead = w + momentum * (2 * step < steps) * downhill[:, None] * (w - before)
    raise InputError(
        f"cost must be strongly convex with modulus ½ at least, and its prox exact; {cost!r} left a residual of "
        f"{largest.max():.2g}"
    )
