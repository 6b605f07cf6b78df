"""One split of a condition: every method and baseline learned on the train cells, scored on the held-out ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from occamap._kernels.columns import column_sums, count_above
from occamap._memory import Budget
from occamap._validate import check_samples
from occamap._workers import Workers
from occamap.costs import SqL2
from occamap.errors import InputError
from occamap.evaluation.markers import moments, welch_t
from occamap.evaluation.protocol import SQL2, SQL2_PCA, Protocol
from occamap.evaluation.scores import Floats, Means, Prediction, Row
from occamap.evaluation.shared import Shared
from occamap.maps.side import Side
from occamap.metrics.against import Against
from occamap.selection.evaluation import NO_EPSILON, SCORE_FAILED, Candidates
from occamap.selection.plan import Chain, chains
from occamap.sinkhorn import Solver, Status, cost_blocks
from occamap.sinkhorn.solution import describe

MOVES = 1e-8  # what counts as a move, as in the paper
REST = "baselines"
BLOCK = 64  # rows of dense moves at a time

LONGEST = 3  # γ that are solved one after the other: others may be under way at the same time, on other machines

Step = tuple[Row, Prediction | None]  # None: the rule led to no ε
Part = Chain | str  # of the rows of a split


def parts(protocol: Protocol) -> list[Part]:
    """What a split consists of, in the order of its rows; each can be computed without the others."""
    found: list[Part] = [*chains([gammas for _, _, gammas in protocol.penalties()], len(protocol.epsilon), LONGEST)]
    return [*found, *([SQL2_PCA] if SQL2_PCA in protocol.costs else []), REST]


def score_split(shared: Shared, k: int, workers: Workers, tick: Callable[[int], None]) -> list[Row]:
    """A row a method, γ and ε; tick(1) is called after each and tick(0) in between: it may raise."""
    scoring = Scoring(shared, Held(shared, k, workers, tick), workers, tick)
    return [row for part in parts(shared.protocol) for row in scoring.rows(part)]


class Held:
    """What all methods of a split are compared with, and the components that they are compared on."""

    def __init__(self, shared: Shared, k: int, workers: Workers, tick: Callable[[int], None]) -> None:
        split, protocol, problem = shared.split(k), shared.protocol, shared.problem
        self.k = k
        self.drawn = _drawn(split.target_train.size, split.target_test.size, protocol.random_state, k)
        others = np.delete(split.target_train, self.drawn)
        self.components = shared.gram.components(split.source_train, others, protocol.components)
        tick(0)
        control, target = (
            side.take(rows).csr()
            for side, rows in ((problem.source, split.source_test), (problem.target, split.target_test))
        )
        self.here = self.components(control)
        self.against = Against(self.components(target), workers)
        averages = (_mean(control), _mean(target))
        self.learned = (
            moments(problem.source.take(split.source_train).csr()),
            moments(problem.target.take(split.target_train).csr()),
        )
        t = welch_t(self.learned[1], self.learned[0])
        self.means = [
            Means(*averages, scores, protocol.markers, suffix) for scores, suffix in ((shared.t, "all"), (t, "train"))
        ]
        self.genes = None
        if shared.condition.label in protocol.close_ups:
            self.genes = Against(target, workers)

    def __sizeof__(self) -> int:
        """Bytes of the arrays, so that a cluster knows what it would cost to move them."""
        genes = self.means[0].control.nbytes * 11  # means, spreads and scores
        return self.components.__sizeof__() + self.here.nbytes + genes + sum(
            against.__sizeof__() for against in (self.against, self.genes) if against is not None
        )


class Scoring:
    """The methods of a split, part by part, learned on its train cells and scored on the others."""

    def __init__(self, shared: Shared, held: Held, workers: Workers, tick: Callable[[int], None]) -> None:
        self.shared, self.held, self.workers, self.tick = shared, held, workers, tick
        self.candidates = Candidates(shared.plan, shared.split(held.k), workers, tick)
        self.control = self.candidates.test.source.csr()

    def rows(self, part: Part) -> list[Row]:
        """Those of a part."""
        if isinstance(part, Chain):
            steps = self._maps(part)
        else:
            steps = self._reduced() if part == SQL2_PCA else self._baselines()
        rows = []
        for told, prediction in steps:
            rows.append({**self._about(), **told, **self._scores(told, prediction)})
            self.tick(1)
        return rows

    def _about(self) -> Row:
        condition, train, test = self.shared.condition, self.candidates.train, self.candidates.test
        sizes = {"control_train": train.a, "target_train": train.b, "control_test": test.a, "target_test": test.b}
        return {
            "within": condition.within,
            "target": condition.target,
            "split": self.held.k,
            "replicate": condition.splits.replicate(self.held.k),
            **{f"n_{name}": int(masses.size) for name, masses in sizes.items()},
        }

    def _scores(self, told: Row, prediction: Prediction | None) -> Row:
        if prediction is None:
            return {}
        found = self.held.against(prediction.components)
        scores: Row = {
            "density": prediction.density,
            "divergence": found.divergence.value,
            "mmd": found.mmd,
            "energy": found.energy,
            "divergence_genes": float("nan"),
        }
        trouble = found.divergence.trouble
        if self.held.genes is not None:
            found = self.held.genes(prediction.cells())
            scores["divergence_genes"], trouble = found.divergence.value, trouble or found.divergence.trouble
        if trouble and not told["message"]:
            scores |= {"status": SCORE_FAILED, "message": trouble}
        for means in self.held.means:
            scores |= means(prediction.change)
        return scores

    # -- what is predicted -------------------------------------------------------------------------------------

    def _maps(self, chain: Chain) -> Iterator[Step]:
        """The maps in gene space."""
        name, solver = self.shared.protocol.penalties()[chain.family][0], self.shared.plan.solvers[chain.solver]
        for gamma, found in zip(chain.gammas, self.candidates.chain(chain), strict=True):
            told = _told(SQL2 if gamma == 0 else name, gamma, solver, found.status, found.message)
            told |= {"epsilon_used": found.epsilon, "effective_targets": found.effective_targets}
            yield told, None if found.moves is None else self._moved(found.moves)

    def _moved(self, moves: sp.csr_array) -> Prediction:
        return Prediction(
            components=self.held.here + self.held.components.directions(moves),
            change=_mean(moves),
            density=count_above(moves.data, MOVES) / (moves.shape[0] * moves.shape[1]),
            cells=lambda: self.control + moves,
        )

    def _reduced(self) -> Iterator[Step]:
        """½ℓ2² between principal components, mapped back."""
        train = self.candidates.train
        source, target = (
            check_samples(self.held.components(side.csr()), "components") for side in (train.source, train.target)
        )
        costs = cost_blocks(SqL2(), source, target, Budget(None), self.workers)
        here = check_samples(self.held.here, "here")
        for solver in self.shared.plan.solvers:
            try:
                solution = solver(costs, train.a, train.b, self.workers, None, lambda *_: self.tick(0))
            except InputError as error:
                yield _told(SQL2_PCA, np.nan, solver, NO_EPSILON, str(error)), None
                continue
            side = Side(SqL2(), target, train.b, solution.g, solution.epsilon)
            steps = side.displace(here, lambda _, rows: rows, 0, 0.0, self.workers, Budget(None)).toarray()
            fine = solution.status is Status.CONVERGED
            message = "" if fine else describe(solution.status, solution.error, solver.tol, solver.max_iter)
            told = _told(SQL2_PCA, np.nan, solver, str(solution.status), message)
            told |= {"epsilon_used": solution.epsilon, "effective_targets": solution.effective_targets}
            yield told, self._lifted(steps)

    def _lifted(self, steps: Floats) -> Prediction:
        axes = self.held.components.axes
        blocks = (steps[i : i + BLOCK].astype(axes.dtype) @ axes.T for i in range(0, len(steps), BLOCK))
        moving = sum(count_above(block.ravel(), MOVES) for block in blocks)
        return Prediction(
            components=self.held.here + steps,
            change=steps.mean(axis=0) @ axes.T,
            density=moving / (len(steps) * axes.shape[0]),
            cells=lambda: self.control.toarray() + steps.astype(axes.dtype) @ axes.T,
        )

    def _baselines(self) -> Iterator[Step]:
        train = self.candidates.train
        nothing = sp.csr_array(self.control.shape, dtype=self.control.dtype)
        yield _told("identity"), self._moved(nothing)

        shift = self.held.learned[1].mean - self.held.learned[0].mean
        step = np.asarray(shift @ self.held.components.axes, dtype=np.float64)
        shifted = Prediction(
            components=self.held.here + step,
            change=shift,
            density=float(np.mean(np.abs(shift) > MOVES)),
            cells=lambda: self.control.toarray() + shift.astype(self.control.dtype),
        )
        yield _told("mean_shift"), shifted
        others = train.target.take(self.held.drawn).csr()
        change = _mean(others) - _mean(self.control)
        yield _told("treated"), Prediction(self.held.components(others), change, float("nan"), lambda: others)


def _drawn(n_train: int, n_test: int, seed: int, k: int) -> NDArray[np.int64]:
    """Which of the train targets stand for a perfect prediction: as many as are held out, at most half.

    They are kept from the components, which vary more in cells that they were learned on than in others.
    """
    rng = np.random.default_rng([seed, k])
    return np.sort(rng.permutation(n_train)[: max(1, min(n_test, n_train // 2))])


def _told(name: str, gamma: float = np.nan, solver: Solver | None = None, status: str = "", message: str = "") -> Row:
    """What a row says of the method."""
    return {
        "method": name,
        "gamma": float(gamma),
        "epsilon": float("nan") if solver is None else solver.rule.value,
        "status": status,
        "message": message,
        "epsilon_used": float("nan"),
        "effective_targets": float("nan"),
    }


def _mean(cells: Any) -> Floats:
    return column_sums(cells)[0] / cells.shape[0]
