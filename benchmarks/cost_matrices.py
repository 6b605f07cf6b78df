"""Cost matrices: ℓ1, STVS and k-overlap on cells, ℓ1, STVS and ½‖z‖² on dense samples, and the k-overlap prox."""

from __future__ import annotations

from functools import partial

import numpy as np

import occamap as oc
from benchmarks import peers
from benchmarks.machine import total_memory
from benchmarks.problems import Problems
from benchmarks.results import Record, Row, Target, at_least, within
from benchmarks.timing import Measured, agree, best, by_share

SQL2 = "½‖z‖² cost matrix"


def l1(problems: Problems, record: Record) -> None:
    """The ℓ1 cost matrix against OTT-JAX, and against scikit-learn and SciPy, of which the better has the target."""
    (X, Y), name, what = problems.cells, problems.cells_name, "ℓ1 cost matrix"
    seconds, C = best(lambda: oc.L1(1.0).pairwise(X, Y))
    ott = peers.measure(lambda: _ott_share("l1", problems, C, (1, 4, 32)))
    record.against(name, what, seconds, peers.OTT, ott, at_least(1000))

    shares = 64, min(256, X.shape[0])
    agree("scikit-learn", C[:8], peers.sklearn_l1(X[:8], Y))
    rivals = {"scikit-learn": by_share(lambda n: peers.sklearn_l1(X[:n], Y), X.shape[0], shares)}
    x, y = X[: max(shares)].toarray().astype(np.float64), Y.toarray().astype(np.float64)
    agree("SciPy", C[:8], peers.scipy_l1(x[:8], y))
    rivals["SciPy"] = by_share(lambda n: peers.scipy_l1(x[:n], y), X.shape[0], shares)
    better = min(rivals, key=lambda peer: rivals[peer].seconds)
    for peer, measured in rivals.items():
        record.against(name, what, seconds, peer, measured, at_least(150) if peer == better else None)


def stvs(problems: Problems, record: Record) -> None:
    """The STVS cost matrix against occamap's own ℓ1, and against OTT-JAX."""
    (X, Y), name, what = problems.cells, problems.cells_name, "STVS cost matrix"
    seconds, C = best(lambda: oc.STVS(1.0).pairwise(X, Y))
    own, _ = best(lambda: oc.L1(1.0).pairwise(X, Y))
    target = Target("ratio", 1 / 5, "≤ 5× the time of ℓ1", at_least=True)
    record.against(name, what, seconds, "occamap, ℓ1", Measured(own), target)
    ott = peers.measure(lambda: _ott_share("stvs", problems, C, (1, 2, 4)))
    record.against(name, what, seconds, peers.OTT, ott)


def koverlap(problems: Problems, record: Record) -> None:
    """The cost matrix of the squared k-overlap norm, and its prox."""
    for k in 10, 100, 1000:
        _koverlap_costs(k, problems, record)
    w = np.random.default_rng(0).normal(size=problems.n_genes)
    for k in 10, 100, 1000:
        seconds, _ = best(partial(oc.KOverlap(1.0, k).prox, w), repeats=20)
        record.add(Row(f"a vector of {w.size:,}", f"squared k-overlap prox, k = {k:,}", seconds, target=within(0.005)))
    _koverlap_prox_of_ott(w, 10, record)


def _koverlap_costs(k: int, problems: Problems, record: Record) -> None:
    seconds, C = best(partial(oc.KOverlap(1.0, k).pairwise, *problems.cells))
    ott = peers.measure(lambda: _ott_share("koverlap", problems, C, (1, 2), k))
    what = f"squared k-overlap cost matrix, k = {k:,}"
    record.against(problems.cells_name, what, seconds, peers.OTT, ott, within(60))


def _koverlap_prox_of_ott(w: peers.Floats, k: int, record: Record) -> None:
    """On as many features as OTT-JAX has memory for; no ratio where its result is not the prox."""
    part = w[:2000]
    seconds, ours = best(lambda: oc.KOverlap(1.0, k).prox(part), repeats=20)

    def run() -> Measured:
        prox = peers.OttProx(k)
        peer_seconds, theirs = best(lambda: prox(part))
        right = float(np.abs(theirs - ours).max() / np.abs(ours).max()) < 1e-5
        lows = prox.objective(ours, part), prox.objective(theirs, part)
        note = f"OTT-JAX asks for {prox.temporaries(w.size) / 1e9:.2g} GB at {w.size:,} features"
        if not right:
            note += f"; its result is not the minimum: {lows[1]:.1f} against {lows[0]:.1f} by its own penalty"
        return Measured(peer_seconds, note=note, comparable=right)

    what = f"squared k-overlap prox, k = {k:,}"
    record.against(f"a vector of {part.size:,}", what, seconds, peers.OTT, peers.measure(run))


def dense(problems: Problems, record: Record) -> None:
    """Dense float32 samples, without the sparsity that occamap was made for."""
    _dense("l1", oc.L1(1.0), "ℓ1 cost matrix", problems, record, at_least(15))
    _dense("stvs", oc.STVS(1.0), "STVS cost matrix", problems, record, at_least(15))
    seconds, C = _dense("none", oc.SqL2(), SQL2, problems, record)
    agree("scikit-learn", C, peers.sklearn_sql2(*problems.dense))
    whole = Measured(best(lambda: peers.sklearn_sql2(*problems.dense))[0])
    record.against(problems.dense_name, SQL2, seconds, "scikit-learn", whole)


def _dense(
    penalty: str, cost: oc.Cost, what: str, problems: Problems, record: Record, target: Target | None = None
) -> tuple[float, peers.Floats]:
    seconds, C = best(lambda: cost.pairwise(*problems.dense))
    ott = peers.measure(lambda: _ott_dense(penalty, problems, C))
    record.against(problems.dense_name, what, seconds, peers.OTT, ott, target)
    return seconds, C


def _ott_share(penalty: str, problems: Problems, C: peers.Floats, shares: tuple[int, ...], k: int = 1) -> Measured:
    pairs = peers.OttPairs(penalty, problems.first_cells(max(shares)), problems.cells[1].toarray(), k)
    agree(f"{peers.OTT}, {penalty}", C[: max(shares)], pairs(max(shares)))
    return by_share(pairs, problems.n_control, shares)


def _ott_dense(penalty: str, problems: Problems, C: peers.Floats) -> Measured:
    """The whole matrix where its temporaries take at most half the memory, else a share of the rows."""
    pairs = peers.OttPairs(penalty, *problems.dense)
    total, note = problems.n_dense, ""
    needed = pairs.temporaries(total)
    shares: tuple[int, ...] = (total,)
    if 2 * needed > total_memory():
        shares, note = (16, 32, 64), f"OTT-JAX asks for {needed / 1e9:,.0f} GB for the whole"
    agree(f"{peers.OTT}, {penalty}", C[: max(shares)], pairs(max(shares)))
    return by_share(pairs, total, shares, note=note)
