"""Norms of groups of features, row by row. Rows are ragged: entries indptr[i]:indptr[i+1], features `indices` or, if
that is None, all of them in order.

`groups` are (atoms, radii, begins, members): the atom of each feature (−1: none), the strength λ of each group, and the
groups members[begins[a]:begins[a+1]] of atom a. Without overlap, an atom is a group. The penalty of a vector depends on
the squares E[a] = ‖z_a‖² of its atoms alone, its gradient is z_a times a number of the atom, and so is its prox.
`latent` is None without overlap, and else what `occamap._kernels.latent.balance` needs.
"""

from __future__ import annotations

import math

import numpy as np

from occamap._kernels.jit import kernel
from occamap._kernels.latent import balance, forget

SLOPE, SHRINK = 0, 1
FEW = 1e-3  # of the squares of an atom: less than that is no difference of sums


@kernel
def scales(touched, n, E, groups, latent, mode, out):
    """out[a] for the atoms touched[:n]: z_a times it is the gradient (SLOPE) or the prox (SHRINK). Returns the penalty.

    For SHRINK the penalty is not computed.
    """
    if latent is not None:
        return balance(touched, n, E, groups, latent, mode, out)
    radii = groups[1]
    total = 0.0
    for k in range(n):
        a = touched[k]
        size = math.sqrt(E[a])
        if mode == SHRINK:
            out[a] = 1.0 - radii[a] / size if size > radii[a] else 0.0
        else:
            out[a] = radii[a] / size if size > 0 else 0.0
            total += radii[a] * size
    return total


@kernel
def _feature(indices, first, e):
    return e - first if indices is None else np.int64(indices[e])


@kernel
def row_squares(first, last, indices, data, atoms, E, touched):
    """E[a] of one row, and in touched[:n] the atoms with E > 0; E is 0 before. Returns n."""
    n = 0
    for e in range(first, last):
        z = np.float64(data[e])
        a = atoms[_feature(indices, first, e)]
        if a >= 0 and z != 0:
            square = z * z
            if E[a] == 0 and square > 0:
                touched[n] = a
                n += 1
            E[a] += square
    return n


@kernel
def row_scales(indptr, indices, data, groups, latent, mode, E, touched, scale, penalty, out):
    """out[e] = the factor of each entry, penalty[i] that of each row; E and `scale` are 0 at entry and exit."""
    for i in range(indptr.shape[0] - 1):
        first, last = indptr[i], indptr[i + 1]
        n = row_squares(first, last, indices, data, groups[0], E, touched)
        forget(latent)
        penalty[i] = scales(touched, n, E, groups, latent, mode, scale)
        for e in range(first, last):
            a = groups[0][_feature(indices, first, e)]
            out[e] = np.float64(mode) if a < 0 else scale[a]  # one that is in no group adds 0, and is shrunk by 1
        for k in range(n):
            E[touched[k]] = 0.0
            scale[touched[k]] = 0.0


@kernel
def kink_sums(indptr, indices, steps, yptr, yind, yval, groups, latent, E, touched, held, scale, left, out):
    """out[i] = sup ⟨u, step⟩ over what ∂τ(y) leaves open: the u of the atoms in which y is 0.

    `held` is 0 at entry and exit, one place an atom; `left` has one place a group.
    """
    atoms, radii, begins, members = groups
    for i in range(indptr.shape[0] - 1):
        first, last = yptr[i], yptr[i + 1]
        n = row_squares(first, last, yind, yval, atoms, E, touched)
        forget(latent)
        scales(touched, n, E, groups, latent, SLOPE, scale)
        left[:] = radii * radii
        for k in range(n):  # what the atoms of y use of each group
            a = touched[k]
            held[a] = 1
            used = E[a] * scale[a] * scale[a]
            for e in range(begins[a], begins[a + 1]):
                g = members[e]
                left[g] = left[g] - used if left[g] - used > 1e-12 * radii[g] * radii[g] else 0.0
        for k in range(n):
            E[touched[k]] = 0.0
            scale[touched[k]] = 0.0
        first, last = indptr[i], indptr[i + 1]
        n = row_squares(first, last, indices, steps, atoms, E, touched)
        kept = 0
        for k in range(n):
            a = touched[k]
            open_ = held[a] == 0
            for e in range(begins[a], begins[a + 1]):
                open_ = open_ and left[members[e]] > 0
            if open_:
                touched[kept] = a
                kept += 1
            else:
                E[a] = 0.0
        for g in range(left.shape[0]):
            left[g] = math.sqrt(left[g])
        forget(latent)
        out[i] = scales(touched, kept, E, (atoms, left, begins, members), latent, SLOPE, scale)
        for k in range(kept):
            E[touched[k]] = 0.0
            scale[touched[k]] = 0.0
        for e in range(yptr[i], yptr[i + 1]):
            a = atoms[_feature(yind, yptr[i], e)]
            if a >= 0:
                held[a] = 0


@kernel
def enter(first, last, indices, data, atoms, x, Ex, nx):
    """Write one row to the dense x, with the squares of its atoms and the number of entries in each."""
    for e in range(first, last):
        z = np.float64(data[e])
        x[indices[e]] = z
        a = atoms[indices[e]]
        if a >= 0 and z != 0:
            Ex[a] += z * z
            nx[a] += 1


@kernel
def leave(first, last, indices, atoms, x, Ex, nx):
    """Undo `enter`."""
    for e in range(first, last):
        x[indices[e]] = 0.0
        a = atoms[indices[e]]
        if a >= 0:
            Ex[a] = 0.0
            nx[a] = 0


@kernel
def own_atoms(first, last, indices, atoms, Ex, mine, mark):
    """The atoms with Ex > 0 into mine[:n]; `mark` is 0 at entry and exit. Returns n."""
    n = 0
    for e in range(first, last):
        a = atoms[indices[e]]
        if a >= 0 and Ex[a] > 0 and mark[a] == 0:
            mark[a] = 1.0
            mine[n] = a
            n += 1
    for k in range(n):
        mark[mine[k]] = 0.0
    return n


@kernel
def pair_squares(x_first, x_last, xind, x, Ex, nx, y_row, atoms, E, lost, hits, touched):
    """E[a] of x − y in the atoms touched[:n] that y has entries in; in the others it is Ex[a]. Returns n.

    The squares of x where y has no entry are Ex less what `lost` collects, and exactly 0 where no entry of x is left;
    where so little is left that digits are, they are summed. `lost` and `hits` are 0 at entry and exit; E[a] is −1 for
    atoms that are not touched. x has the entries x_first:x_last of xind; features of both rows rise.
    """
    first, last, indices, data = y_row
    n = 0
    for e in range(first, last):
        t = indices[e]
        a = atoms[t]
        if a < 0:
            continue
        if E[a] < 0:
            E[a] = 0.0
            touched[n] = a
            n += 1
        z = x[t] - np.float64(data[e])
        E[a] += z * z
        if x[t] != 0:
            lost[a] += x[t] * x[t]
            hits[a] += 1
    few = False
    for k in range(n):
        a = touched[k]
        left = Ex[a] - lost[a] if hits[a] < nx[a] else 0.0
        hits[a] = 1 if hits[a] < nx[a] and left < FEW * Ex[a] else 0
        few = few or hits[a] > 0
        E[a] += left if hits[a] == 0 else 0.0
        lost[a] = 0.0
    if few:
        _add_left(x_first, x_last, xind, first, last, indices, x, atoms, hits, E)
        for k in range(n):
            hits[touched[k]] = 0
    return n


@kernel
def _add_left(x_at, x_last, xind, y_at, y_last, yind, x, atoms, chosen, E):
    """E[a] += x_t² over the features t of the chosen atoms in which y has no entry."""
    while x_at < x_last:
        t = xind[x_at]
        while y_at < y_last and yind[y_at] < t:
            y_at += 1
        if (y_at == y_last or yind[y_at] != t) and atoms[t] >= 0 and chosen[atoms[t]] > 0:
            E[atoms[t]] += x[t] * x[t]
        x_at += 1
