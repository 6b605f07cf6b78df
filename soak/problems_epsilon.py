"""The ε of a fit, next to its rule."""

from __future__ import annotations

from typing import Any

import numpy as np

from soak import reference
from soak.problems_bounds import Floats, close, require, spread_of


def check_epsilon(model: Any, C: Floats, off: float, delta: Floats) -> None:
    """ε is what its rule says of the costs C, which are right to `off`, and their exponents to `delta`."""
    a, b, rule, value = model.a_, model.b_, model.epsilon_scale, model.epsilon
    mean = float(a @ C @ b)
    got = model.epsilon_ / value
    instead = abs(got - (mean or 1.0)) <= off * (mean or 1.0)  # where the statistic is 0, the mean is taken
    mass, order = np.outer(a, b).ravel(), np.argsort(C, axis=None)
    if rule == "absolute":
        close(got, 1.0, 1e-12, "epsilon_")
    elif rule == "mean":
        close(got, mean or 1.0, off * (mean or 1.0), "epsilon_")
    elif rule == "max":
        top = float(C[np.ix_(a > 0, b > 0)].max()) or mean or 1.0
        close(got, top, off * top, "epsilon_")
    elif rule == "std":
        std = float(np.sqrt(np.sum(mass * (C.ravel() - mean) ** 2)))
        slack = off * C.max() + 1e-10 * mean
        require(abs(got - std) <= slack or (std <= slack and instead), f"epsilon_ {got:g} is not the std {std:g}")
    elif rule == "median":
        total = np.cumsum(mass[order])
        low, high = (C.ravel()[order][min(np.searchsorted(total, 0.5 + s), C.size - 1)] for s in (-1e-6, 1e-6))
        fine = low * (1 - off) <= got <= high * (1 + off)
        require(fine or (low == 0 and instead), f"epsilon_ {got:g} is not the median between {low:g} and {high:g}")
    elif model.converged_:
        p, _ = reference.gibbs(C, model.g_, b, model.epsilon_)
        entropy = -np.sum(np.where(p > 0, p * np.log(np.where(p > 0, p, 1.0)), 0.0), axis=1)
        found = float(a @ np.exp(entropy))
        spread = float(np.minimum(spread_of(p, delta), 1.0).max())
        slack, told = 0.05 + 3 * spread, model.report_.epsilon_rule
        if "effective target" in told:  # another number, since the one wanted is out of reach
            require(f" {value:g}, {'raised' if found > value else 'lowered'} to " in told, f"{found:.4g}, but {told}")
            value = model.report_.effective_targets
        require(abs(np.log(found / value)) <= slack, f"{found:.4g} effective targets, wanted {value:.4g}")
