"""How far a number may be off, and what is a fault.

The former is stated by the rounding that a number goes through:

- A cost is a sum of at most 32 terms at a time in the precision of the data, so that terms and sum are right to 36
  roundings; on sparse rows it is a difference of such sums, computed again where less than a fifth (float32) or a
  hundredth (float64) of them is left. So it is right to COST = 36/0.2 or 36/0.01 times half a unit of the last
  place; those of overlapping groups to 1e-5 more, as documented.
- δ = COST·u·C/ε + 8u₆₄ max(C + |f| + |g|)/ε is then what the exponent of an entry of the plan is off by,
  D = log Σ_j p_j e^δ_j what a potential is, in units of ε, and e^(δ + D) − 1 what a weight is, relative to itself. A
  marginal error is right to the sum of these over the plan. Where they exceed 1, nothing is left to compare, but that
  all is finite and weights sum to 1.
- A move, given the weights, is right to MOVE·u of what it is a difference of: the sample, the targets and the strength
  of the penalty; a penalty so strong that this exceeds WORST of the largest entry has to be refused. For ℓ1 it is
  between what it is with and without masses that rounding cannot tell from 0. For overlapping groups it is right to
  LATENT_MOVE of these, and what the slope of a feature is open by that is too small to count among costs right to 1e-5.
- A move of a neighbourhood is right to the same, of the largest samples in it. Its field has to be computed, so that
  the penalty of a subspace counts, too: 1 + γ times the largest entry, since its field mixes features.
- Where samples are matched on coordinates, weights and potentials follow from these in float64. Coordinates are right
  to 256 roundings of the sums that they are. Of neighbours whose squared distances differ by less than 1e-9 of the
  largest place, either may be the nearer one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from occamap.errors import InputWarning, NotConvergedWarning

Floats = NDArray[np.float64]

EPS = {np.dtype(np.float32): 2.0**-23, np.dtype(np.float64): 2.0**-52}
COST = {np.dtype(np.float32): 180.0, np.dtype(np.float64): 3600.0}
MOVE = 256.0
WORST = 1e-3  # of the largest entry: where a penalty is so strong that rounding moves more, it is to be refused
GROUPS = 5e-10  # norms of groups on sparse rows: the root of a difference that keeps 1e-6 of its terms
LATENT = 1e-5  # costs of overlapping groups, as documented
LATENT_MOVE = 1e-2


class FaultError(Exception):
    """Something that no caller should see."""


def ask(what: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[Any, bool]:
    """What the package gives, and whether it warned that it has not converged; any other warning is a fault."""
    with warnings.catch_warnings(record=True) as caught, np.errstate(all="warn", under="ignore"):
        warnings.simplefilter("always")
        given = what(*arguments, **options)
    for warning in caught:
        typed = issubclass(warning.category, NotConvergedWarning | InputWarning)
        if not typed and not str(warning.message).startswith("debias=True"):
            raise FaultError(f"{warning.category.__name__} at {warning.filename}:{warning.lineno}: {warning.message}")
    return given, any(issubclass(warning.category, NotConvergedWarning) for warning in caught)


def dense(values: Any) -> Floats:
    return (values.toarray() if sp.issparse(values) else np.asarray(values)).astype(np.float64)


def logs(weights: Floats) -> Floats:
    return np.log(weights, out=np.full_like(weights, -np.inf), where=weights > 0)


def spread_of(p: Floats, delta: Floats) -> Floats:
    """log Σ_j p_j e^δ_j of each row"""
    top = np.max(delta, axis=1, initial=0.0, where=p > 0)
    return top + np.log(np.sum(np.where(p > 0, p * np.exp(np.minimum(delta - top[:, None], 0.0)), 0.0), axis=1))


def require(holds: Any, what: str) -> None:
    if not holds:
        raise FaultError(what)


def finite(values: Any, what: str) -> None:
    require(np.isfinite(values).all(), f"{what} is not finite")


def close(got: Any, wanted: Any, allowed: Any, what: str) -> None:
    got, wanted, allowed = np.broadcast_arrays(np.asarray(got, float), wanted, allowed)
    finite(got, what)
    excess = np.abs(got - wanted) - allowed
    if (excess > 0).any():
        worst = np.unravel_index(np.argmax(np.abs(got - wanted) / np.maximum(allowed, 1e-320)), got.shape)
        raise FaultError(
            f"{what} is {got[worst]:.9g} at {tuple(map(int, worst))}, should be {wanted[worst]:.9g} ± "
            f"{allowed[worst]:.2g}, is off by {got[worst] - wanted[worst]:.2g}"
        )
