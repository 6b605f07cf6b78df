"""Pairs and moves of costs with norms of groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from occamap._kernels import group_moves, group_pairs
from occamap._kernels.jit import LANES
from occamap._validate import Samples
from occamap.costs.generic import Field, Floats, Gibbs, Pairs
from occamap.costs.group_norms import QUICK, GroupNorms
from occamap.costs.groups import Layout
from occamap.costs.l1 import L1, ElasticPairs
from occamap.costs.lanes import TILE_BYTES, LinearLanePairs, aligned
from occamap.errors import InputError

if TYPE_CHECKING:
    from occamap.costs.group_lasso import GroupLasso

CLOSE = {np.dtype(np.float32): 1e-9, np.dtype(np.float64): 1e-6}
"""‖x − y‖² of a group next to ‖x‖² + ‖y‖², below which the digits of its root are lost."""

ROOM = 2**18  # numbers in the dense rows that are moved at a time
SHORT = 32  # entries of a group whose products may be added in float32


class _Order(NamedTuple):
    """Features in the order of their groups, in tiles of whole groups."""

    place: NDArray[np.int32]  # of each feature; −1 for those in no group
    starts: NDArray[np.int64]  # the first place of each tile
    tile_at: NDArray[np.int32]  # the tile of each place
    atom_at: NDArray[np.int32]  # the group of each place
    width: int  # of the widest tile
    height: int  # groups in the tile that has most

    @classmethod
    def of(cls, layout: Layout) -> _Order:
        features = np.flatnonzero(layout.atoms >= 0)
        features = features[np.argsort(layout.atoms[features], kind="stable")]
        place = np.full(layout.atoms.size, -1, np.int32)
        place[features] = np.arange(features.size)
        ends = np.cumsum(np.bincount(layout.atoms[features]))
        room, starts, firsts = TILE_BYTES // (4 * LANES), [0], [0]
        for group in range(1, ends.size):
            if ends[group] - starts[-1] > room:
                starts.append(int(ends[group - 1]))
                firsts.append(group)
        sizes = np.diff([*starts, features.size])
        tile_at = np.repeat(np.arange(len(starts), dtype=np.int32), sizes)
        height = int(np.diff([*firsts, ends.size]).max())
        return cls(place, np.array(starts), tile_at, layout.atoms[features], int(sizes.max()), height)

    def entries(self, rows: Samples) -> tuple[NDArray[Any], ...]:
        """begins, features and values tile by tile, and in a tile row by row."""
        indptr, indices, data = rows.stored()
        begins = np.zeros(self.starts.size * rows.shape[0] + 1, np.int64)
        features, values = np.empty(data.size, np.int32), np.empty(data.size)
        given = self.place, self.tile_at, self.starts, begins, features, values
        count = group_pairs.group_entries(indptr, indices, data, *given)
        return begins, features[:count], values[:count]

    def runs(self, rows: Samples, layout: Layout) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The entries with those of a group side by side, and the runs that they make."""
        stored, n, size = rows.stored(), layout.n_atoms, self.starts.size * rows.shape[0] + 1
        edges = np.append(self.atom_at[self.starts], n)
        tile_of = np.repeat(np.arange(self.starts.size), np.diff(edges))
        begins, run_begins, middles = np.zeros((3, size), np.int64)
        group_pairs.count_runs(*stored, layout.atoms, tile_of, np.zeros(n, np.int64), begins, run_begins)
        entries = np.empty(begins[-1], np.int32), np.empty(begins[-1])
        count = int(run_begins[-1])
        runs = run_begins, middles, np.empty(count, np.int32), *np.empty((2, count), np.int64), np.empty(count)
        local = self.place - self.starts[np.where(self.place < 0, 0, self.tile_at[self.place])]
        given = layout.atoms, local, self.starts, edges, SHORT if rows.dtype == np.float32 else 0, begins
        group_pairs.group_runs(*stored, *given, entries, runs, *np.zeros((3, n), np.int64))
        return entries, runs


class GroupPairs(LinearLanePairs):
    """Squares and ℓ1 terms as for `L1`, and norms of groups: over the stored entries of y, or over all if dense.

    On sparse rows without an ℓ1 share the groups give the squares of their features, too, in the same pass.
    """

    cost: GroupLasso

    def __init__(self, cost: GroupLasso, Y: Samples) -> None:
        self.cost, self.Y, self._wide = cost, Y, None
        self.norms = cost._norms(Y.shape[1])
        overlapping, any_ = self.norms.layout.overlapping, self.norms.layout.n_atoms > 0
        self.apart = self.norms.grouped if Y.is_sparse and cost.l1_ratio == 0 else np.zeros(Y.shape[1], bool)
        self.rest = ElasticPairs(_uniform(cost._rest(Y.shape[1]), self.apart, cost.gamma), Y.without(self.apart))
        self.order = _Order.of(self.norms.layout) if any_ and not overlapping else None
        if self.order is not None and Y.is_sparse:
            self.sorted, self.y_parts = self.order.runs(Y, self.norms.layout), _squares(self.norms, Y)
        elif self.order is not None:
            self.features = np.argsort(self.order.place, kind="stable")[-self.order.tile_at.size :]
            self.dense = np.ascontiguousarray(Y.data[:, self.features])

    def _sums(self, X: Samples) -> Floats:
        out = self.rest._sums(X.without(self.apart))
        for part in self._group_sums(X):
            if part is not None:
                out[:, : X.shape[0]] += part
        return out

    def _part_sums(self, X: Samples) -> tuple[Floats, Floats]:
        half, penalty = self.rest._part_sums(X.without(self.apart))
        more, norms = self._group_sums(X)
        return half if more is None else half + more, penalty if norms is None else penalty + norms

    def _group_sums(self, X: Samples) -> tuple[Floats | None, Floats | None]:
        """Of the groups and at most LANES rows ½‖x − y‖², if they are `apart`, and the norms: [j, row]."""
        n, m = X.shape[0], self.Y.shape[0]
        if not self.norms.layout.n_atoms:
            return None, None
        square = aligned((m, LANES), np.float64, fill=0) if self.apart.any() else None
        norms = aligned((m, LANES), np.float64, fill=0)
        if self.order is None:
            i, j = (index.ravel() for index in np.indices((n, m)))
            self._pair_by_pair(X, i, j, square, norms)
        elif self.Y.is_sparse:
            self._overlaps(X, square, norms)
        else:
            tile = aligned((self.order.width, LANES), X.dtype, fill=0)
            ends = np.append(np.flatnonzero(np.diff(self.order.atom_at)) + 1, self.order.atom_at.size)
            rows = np.ascontiguousarray(X.data[:, self.features])
            group_pairs.group_sums(rows, self.dense, ends, self.norms.radii, tile, norms)
        return None if square is None else 0.5 * square[:, :n], norms[:, :n]

    def _overlaps(self, X: Samples, square: Floats | None, norms: Floats) -> None:
        assert self.order is not None
        n, order, dtype = X.shape[0], self.order, X.dtype
        low, tile = np.zeros(norms.shape, np.int8), aligned((order.width, LANES), dtype, 0)
        groups = order.height, LANES
        room = tile, aligned(groups, np.float64, 0), aligned(groups, dtype, 0), aligned(groups, dtype, 0)
        given = *self.sorted, order.starts, order.atom_at, self.norms.radii.astype(dtype), CLOSE[dtype]
        group_pairs.group_overlap(order.entries(X), *given, *room, low, square, norms)
        again = low[:, :n] > 0
        for part, x, y in zip((square, norms), _squares(self.norms, X), self.y_parts, strict=True):
            if part is not None:
                part[:, :n] += x
                again |= part[:, :n] < (0.2 if dtype == np.float32 else 0.01) * (x + y[:, None])
        i, j = np.nonzero(again.T)
        if i.size:
            self._pair_by_pair(X, i, j, square, norms)

    def _pair_by_pair(self, X: Samples, i: Any, j: Any, square: Floats | None, norms: Floats) -> None:
        pair = *X.stored(), *self.Y.stored()
        given = self.norms.groups, self.norms.latent(QUICK), i, j, self.norms.work()
        group_pairs.group_pairs(*pair, *given, square, norms)


def group_bytes(Y: Samples) -> int:
    """Bytes of what is prepared of Y for pairs beside that of `L1`, at most: its entries by groups, and their runs."""
    if not Y.is_sparse:  # its features in another order, and as CSR
        return 2 * Y.data.nbytes + 4 * Y.data.size
    return 40 * Y.data.size + 16 * Y.shape[0] * (Y.shape[1] // (TILE_BYTES // (4 * LANES)) + 2)


def _uniform(rest: L1, apart: NDArray[np.bool_], gamma: float) -> L1:
    """The same for samples that are 0 in the features `apart`, with one strength for all where that will do."""
    weights = np.where(apart, gamma, np.asarray(rest.weights))
    same = np.isfinite(weights[0]) and np.all(weights == weights[0])
    return L1(float(weights[0])) if same else L1(1.0, weights)


def _squares(norms: GroupNorms, rows: Samples) -> tuple[Floats, Floats]:
    """Σ of the squares in groups, and the norms, of each row."""
    sums, penalty = np.empty((2, rows.shape[0]))
    group_pairs.group_sizes(*rows.stored(), norms.groups, *norms.scratch()[:2], sums, penalty)
    return sums, penalty


class GroupDisplacer:
    """The field row by row, then the prox."""

    by_feature, dtype = False, np.dtype(np.float64)

    def __init__(self, pairs: GroupPairs) -> None:
        self.pairs: Pairs = pairs
        self.cost, self.Y, self.norms = pairs.cost, pairs.Y, pairs.norms
        self.targets = pairs.Y.stored()
        strengths = pairs.cost._rest(pairs.Y.shape[1])._strengths(pairs.Y.shape[1])
        self.strengths = np.where(np.isinf(strengths), 0.0, strengths)  # frozen features are at 0 on both sides

    def block(self, X: Samples, gibbs: Gibbs, ties: int, relax: float, C: Floats | None = None) -> sp.csr_array:
        if ties:
            check_ties(self.norms.layout)
        weights = gibbs(self.pairs.block(X) if C is None else C)
        step = max(1, ROOM // X.shape[1])
        spans = [(start, min(start + step, X.shape[0])) for start in range(0, X.shape[0], step)]
        moved = [self._rows(X.rows(*span), weights[slice(*span)], ties, relax) for span in spans]
        return moved[0] if len(moved) == 1 else sp.csr_array(sp.vstack(moved))

    def field(self, X: Samples, weights: Floats, out: Field, start: int = 0) -> None:
        slack, balls = np.empty((0, 0)), np.empty((0, 0))
        if out.slack.size:
            check_ties(self.norms.layout)
            slack, balls = np.empty(X.shape), np.zeros((X.shape[0], self.norms.layout.n_atoms))
        field, mean = self._fields(X, weights, 0, slack, balls)
        wanted = slice(start, start + out.slopes.shape[1])
        out.put(field[:, wanted], (mean - X.dense())[:, wanted], slack[:, wanted] if slack.size else None, balls)

    def _fields(
        self, X: Samples, weights: Floats, ties: int, slack: Floats, balls: Floats
    ) -> tuple[Floats, Floats]:
        """Σ_j p_j ∇h(x − y_j) and Σ_j p_j y_j of each row, dense."""
        (n, d), atoms = X.shape, self.norms.layout.n_atoms
        field, mean = np.empty((2, n, d))
        sums = *np.empty((3, d)), *np.empty((3, atoms))
        given = self.norms.groups, self.norms.latent(QUICK), self.strengths, ties, self.norms.work(), sums
        group_moves.group_field(*X.stored(), *self.targets, weights, *given, field, mean, slack, balls)
        return field, mean

    def _rows(self, X: Samples, weights: Floats, ties: int, relax: float) -> sp.csr_array:
        field, mean = self._fields(X, weights, ties, np.empty((0, 0)), np.empty((0, 0)))
        moves = -self.cost._prox(Samples(X.shape, field))
        if relax > 0:
            shift = mean - X.dense()
            moves = np.where(moves != 0, moves + relax * (shift - moves), 0.0)
        return sp.csr_array(moves.astype(X.dtype))


def check_ties(layout: Layout) -> None:
    """Raise where no least element is known."""
    if layout.overlapping:
        raise InputError("ties must be 'zero' for groups that overlap; got 'occam': take groups that do not")
