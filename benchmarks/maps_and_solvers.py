"""The map of cells that were not fitted, and fits at three ε with and without acceleration."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

import occamap as oc
from benchmarks import peers
from benchmarks.peers import Floats
from benchmarks.problems import Problems
from benchmarks.results import Record, Row, at_least
from benchmarks.timing import Measured, agree, best, by_share
from occamap._workers import Workers
from occamap.sinkhorn import Solution, StoredCost, solve
from occamap.sinkhorn.epsilon import schedule

TOL = 1e-4
PLANS_AGREE = 30 * TOL  # in total variation: each plan is off by its marginal error, times how slowly it converges


def unseen(problems: Problems, record: Record) -> None:
    """Seconds a cell of the displacement of cells that were not fitted, after a fit on 80 % of the control cells."""
    X, Y = problems.cells
    split = int(0.8 * X.shape[0])
    fitted = oc.MongeMap(oc.L1(1.0)).fit(X[:split], Y)
    rest = X[split:]
    seconds, _ = best(lambda: fitted.displacement(rest))
    each = seconds / rest.shape[0]

    def run() -> Measured:
        shares = 1, 4, 8
        x = rest[: max(shares)].toarray()
        ott = peers.ott_map(x, Y.toarray(), fitted.g_, fitted.epsilon_)
        _check_map(fitted, ott, x[:2])
        whole = by_share(lambda n: ott(x[:n]), rest.shape[0], shares, "cells")
        note = "equal where no x and y tie; there JAX takes the slope of |z| at 0 for 1, occamap for 0"
        return Measured(whole.seconds / rest.shape[0], whole.how, note)

    what = f"map of {rest.shape[0]:,} unseen cells, a cell"
    record.against(problems.cells_name, what, each, peers.OTT, peers.measure(run), at_least(1000))


def _check_map(fitted: oc.MongeMap, ott: Callable[[Floats], Floats], x: Floats) -> None:
    """The same moves, of cells raised by a little noise in every gene: without ties there is one right answer."""
    noise = np.random.default_rng(0).uniform(0.01, 0.02, size=x.shape)
    raised = (x + noise).astype(np.float32)
    moves = fitted.displacement(raised).toarray()
    agree(f"{peers.OTT}, map", moves, ott(raised) - raised, scale=float(np.abs(moves).max()))


def fit(problems: Problems, record: Record) -> None:
    """Whole fits, and the Sinkhorn part alone beside the peers, on one cost matrix and to one marginal error."""
    C = oc.L1(1.0).pairwise(*problems.cells)
    for share in 0.1, 0.01, 0.003:
        name = f"{problems.cells_name}, ε = {share:g} × mean"
        seconds, fitted = best(partial(oc.MongeMap(oc.L1(1.0), epsilon=share, tol=TOL).fit, *problems.cells))
        report = fitted.report_
        note = f"{report.n_iter} iterations; {report.effective_targets:.0f} effective targets"
        record.add(Row(name, "fit, costs included", seconds, note=note))
        _solvers(C, share * float(C.mean()), name, record)


def _solvers(C: Floats, epsilon: float, name: str, record: Record) -> None:
    ours, plain = (_occamap(C, epsilon, accelerate) for accelerate in (True, False))
    what = f"Sinkhorn to {TOL:g} ({ours.iterations} iterations)"
    record.against(name, what, ours.seconds, "occamap, no acceleration", plain.measured(TOL))
    rivals: dict[str, Callable[[], peers.Plan]] = {
        "POT, sinkhorn_log": lambda: peers.pot_sinkhorn(C, epsilon, TOL, "sinkhorn_log"),
        "POT, sinkhorn": lambda: peers.pot_sinkhorn(C, epsilon, TOL, "sinkhorn"),
        f"{peers.OTT}, float32": lambda: peers.ott_sinkhorn(C, epsilon, TOL, "float32"),
        f"{peers.OTT}, float64": lambda: peers.ott_sinkhorn(C, epsilon, TOL, "float64"),
    }
    for peer, run in rivals.items():
        measured = peers.measure(partial(_same_plan, peer, run, ours.plan))
        record.against(name, what, ours.seconds, peer, measured)


def _same_plan(peer: str, run: Callable[[], peers.Plan], plan: Floats) -> Measured:
    theirs = run()
    if theirs.error <= TOL:
        agree(peer, np.abs(plan - theirs.plan).sum(), 0.0, PLANS_AGREE, scale=1.0)
    return theirs.measured(TOL)


def _occamap(C: Floats, epsilon: float, accelerate: bool) -> peers.Plan:
    """The solver of a fit, with the steps towards ε that a fit takes."""
    n, m = C.shape
    a, b, epsilons = np.full(n, 1 / n), np.full(m, 1 / m), schedule(epsilon, float(C.mean()))

    def run() -> Solution:
        with Workers() as workers:
            return solve(StoredCost(C), a, b, epsilons, tol=TOL, workers=workers, accelerate=accelerate)

    seconds, found = best(run)
    plan: Floats = np.exp((found.f[:, None] + found.g - C) / epsilon) / (n * m)
    return peers.Plan(plan, seconds, len(found.errors), found.errors[-1])
