"""OTT-JAX, scikit-learn, SciPy and POT doing the same work; each is imported when it is first used."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from benchmarks.timing import Measured, best

Floats = NDArray[Any]

OTT = "OTT-JAX"


def measure(run: Callable[[], Measured]) -> Measured | str:
    """What was measured of a peer, or why nothing was: it is not installed, or memory ran out."""
    try:
        return run()
    except ModuleNotFoundError:
        return "not installed"
    except MemoryError:
        return "out of memory"
    except RuntimeError as error:  # JAX has its own error for it
        if "RESOURCE_EXHAUSTED" in str(error):
            return "out of memory"
        raise


def _jax() -> tuple[Any, Any]:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    import jax
    import jax.numpy as jnp

    return jax, jnp


def _ott_cost(penalty: str, k: int = 1) -> Any:
    """½‖z‖² + penalty of weight 1; "none" is ‖z‖², which OTT-JAX computes by a matrix product."""
    _jax()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAXopt, which OTT-JAX imports, warns that it is retired
        from ott.geometry import costs, regularizers
    if penalty == "none":
        return costs.SqEuclidean()
    penalties = {"l1": regularizers.L1, "stvs": regularizers.STVS}
    regularizer = regularizers.SqKOverlap(k) if penalty == "koverlap" else penalties[penalty]()
    return costs.RegTICost(regularizer, lam=1.0)


class OttPairs:
    """`RegTICost.all_pairs` (½ `SqEuclidean` for "none"), compiled, on dense float32."""

    def __init__(self, penalty: str, X: Floats, Y: Floats, k: int = 1) -> None:
        self.cost = _ott_cost(penalty, k)
        self.jax, jnp = _jax()
        self.X, self.Y = jnp.asarray(X, jnp.float32), jnp.asarray(Y, jnp.float32)
        scale = 0.5 if penalty == "none" else 1.0
        self.run = self.jax.jit(lambda x, y: scale * self.cost.all_pairs(x, y))

    def __call__(self, rows: int) -> Floats:
        """The costs of the first rows."""
        return np.asarray(self.run(self.X[:rows], self.Y).block_until_ready())

    def temporaries(self, rows: int) -> int:
        """Bytes that the compiled program allocates beside its input and output."""
        shape = self.jax.ShapeDtypeStruct((rows, self.X.shape[1]), self.X.dtype)
        return int(self.run.lower(shape, self.Y).compile().memory_analysis().temp_size_in_bytes)


def ott_map(X: Floats, Y: Floats, potentials: Floats, epsilon: float) -> Callable[[Floats], Floats]:
    """`DualPotentials.transport`, compiled, for the ℓ1 cost and given potentials of the targets Y."""
    cost = _ott_cost("l1")
    jax, jnp = _jax()
    from ott.geometry import pointcloud
    from ott.problems.linear import linear_problem
    from ott.problems.linear import potentials as dual

    x, y = jnp.asarray(X, jnp.float32), jnp.asarray(Y, jnp.float32)
    problem = linear_problem.LinearProblem(pointcloud.PointCloud(x, y, cost_fn=cost, epsilon=epsilon))
    f = problem.potential_fn_from_dual_vec(jnp.asarray(potentials, jnp.float32), axis=1)
    run = jax.jit(dual.DualPotentials(f, None, cost_fn=cost).transport)
    return lambda cells: np.asarray(run(jnp.asarray(cells)).block_until_ready())


class OttProx:
    """`SqKOverlap.prox`, compiled, and what it is to minimise."""

    def __init__(self, k: int) -> None:
        self.penalty = _ott_cost("koverlap", k).regularizer.f
        self.jax, self.jnp = _jax()
        self.run = self.jax.jit(self.penalty.prox)

    def __call__(self, w: Floats) -> Floats:
        return np.asarray(self.run(self.jnp.asarray(w, self.jnp.float32)).block_until_ready())

    def objective(self, z: Floats, w: Floats) -> float:
        """½‖z − w‖² + τ(z), with OTT-JAX's own τ."""
        return 0.5 * float(np.sum((z - w) ** 2)) + float(self.penalty(self.jnp.asarray(z, self.jnp.float32)))

    def temporaries(self, d: int) -> int:
        """Bytes that the compiled prox of one vector of d features would allocate."""
        shape = self.jax.ShapeDtypeStruct((d,), self.jnp.float32)
        return int(self.run.lower(shape).compile().memory_analysis().temp_size_in_bytes)


def sklearn_l1(X: sp.csr_array, Y: sp.csr_array) -> Floats:
    """‖x − y‖₁ + ½‖x − y‖² on CSR."""
    from sklearn.metrics.pairwise import euclidean_distances, manhattan_distances

    return np.asarray(manhattan_distances(X, Y) + 0.5 * euclidean_distances(X, Y, squared=True))


def sklearn_sql2(X: Floats, Y: Floats) -> Floats:
    from sklearn.metrics.pairwise import euclidean_distances

    return np.asarray(0.5 * euclidean_distances(X, Y, squared=True))


def scipy_l1(X: Floats, Y: Floats) -> Floats:
    """‖x − y‖₁ + ½‖x − y‖² on dense float64, which is what cdist works on."""
    from scipy.spatial.distance import cdist

    return np.asarray(cdist(X, Y, "cityblock") + 0.5 * cdist(X, Y, "sqeuclidean"))


@dataclass(frozen=True)
class Plan:
    """A coupling, how long it took, and whether its marginals are right to the tolerance."""

    plan: Floats
    seconds: float
    iterations: int
    error: float

    def measured(self, tol: float) -> Measured:
        met = self.error <= tol
        note = f"{self.iterations} iterations to a marginal error of {self.error:.1g}"
        return Measured(self.seconds, "whole" if met else "did not converge", note, comparable=met)


def pot_sinkhorn(C: Floats, epsilon: float, tol: float, method: str, max_iter: int = 2000) -> Plan:
    """`ot.sinkhorn`. Its error is a 2-norm: tol/√m makes sure of the 1-norm, at most a check later than needed."""
    import ot

    n, m = C.shape
    a, b = np.full(n, 1 / n), np.full(m, 1 / m)
    options = {"method": method, "numItermax": max_iter, "stopThr": tol / np.sqrt(m), "log": True, "warn": False}
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a kernel that underflows is seen by the error of its plan
        seconds, (plan, log) = best(lambda: ot.sinkhorn(a, b, C, epsilon, **options))
    return Plan(plan, seconds, int(log["niter"]), _error(plan))


def ott_sinkhorn(C: Floats, epsilon: float, tol: float, dtype: str, max_iter: int = 2000) -> Plan:
    """OTT-JAX's `Sinkhorn` as it comes, compiled, in float32 (its default) or float64."""
    _ott_cost("none")
    jax, jnp = _jax()
    from ott.geometry import geometry
    from ott.problems.linear import linear_problem
    from ott.solvers.linear import sinkhorn

    solver = sinkhorn.Sinkhorn(threshold=tol, max_iterations=max_iter)
    with jax.enable_x64(dtype == "float64"):
        costs = jnp.asarray(C, dtype)

        def run(costs: Any) -> Any:
            return solver(linear_problem.LinearProblem(geometry.Geometry(cost_matrix=costs, epsilon=epsilon)))

        compiled = jax.jit(run)
        seconds, out = best(lambda: jax.block_until_ready(compiled(costs)))
        plan = np.asarray(out.matrix, np.float64)
        return Plan(plan, seconds, int(out.n_iters), _error(plan))


def _error(plan: Floats) -> float:
    """Σ|row sums − a| + Σ|column sums − b| for uniform weights; the peers keep one of them exact."""
    n, m = plan.shape
    return float(np.abs(plan.sum(axis=1) - 1 / n).sum() + np.abs(plan.sum(axis=0) - 1 / m).sum())


def release() -> None:
    """Let go of what JAX keeps compiled, if it is there at all."""
    import gc
    import sys

    if sys.modules.get("jax") is not None:
        sys.modules["jax"].clear_caches()
    gc.collect()
