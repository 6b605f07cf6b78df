"""The field Σ_j p_j ∇h(x − y_j) of costs with norms of groups, row by row over the stored entries of y."""

from __future__ import annotations

import math

import numpy as np

from occamap._kernels.groups import SLOPE, enter, leave, own_atoms, pair_squares, scales
from occamap._kernels.jit import kernel
from occamap._kernels.latent import forget

NEAR = 1e-4  # ‖x − y‖² of an atom next to ‖x‖²
LEAST = 1e-13  # of the largest weight: what is below it changes no digit that counts


@kernel
def group_field(xptr, xind, xval, yptr, yind, yval, p, groups, latent, g, ties, work, sums, field, mean, slack, balls):
    """field[i] and mean[i] = Σ_j p_ij y_j of each row, dense.

    With s[a] = Σ_j p_j s_j[a] of the factors of each pair, the field is x(1 + s) − Σ_j p_j (1 + s_j) y_j, and the ℓ1
    terms Σ_j p_j g sign(x − y_j). Where x and y_j nearly agree in an atom, s_j is large and the difference of the two
    would lose the digits: s_j(x − y_j) is then added entry by entry. With `ties` it is the element of ∂f that moves
    least. `sums` are three vectors of d and three of the atoms, `work` is that of `group_pairs`. `slack` and
    `balls` get the widths of that set by feature, and by group as a mass, unless they are empty.
    """
    x, Ex, nx, E, lost, hits, touched, mine, scale = work
    taken, signs, apart, slopes, own, differ = sums
    atoms, radii = groups[0], groups[1]
    for i in range(p.shape[0]):
        first, last = xptr[i], xptr[i + 1]
        enter(first, last, xind, xval, atoms, x, Ex, nx)
        forget(latent)
        n_mine = own_atoms(first, last, xind, atoms, Ex, mine, scale)
        taken[:], signs[:], apart[:], slopes[:], own[:], differ[:] = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        mean[i, :], field[i, :] = 0.0, 0.0
        if latent is None:  # the factors of a group that y has no entry in are those of x alone
            scales(mine, n_mine, Ex, groups, latent, SLOPE, scale)
            for k in range(n_mine):
                own[mine[k]] = slopes[mine[k]] = scale[mine[k]]
                scale[mine[k]] = 0.0
        cut, kept = LEAST * p[i].max(), 0.0
        for j in range(p.shape[1]):
            kept += p[i, j] if p[i, j] > cut else 0.0
        for j in range(p.shape[1]):
            if p[i, j] <= cut:
                continue
            weight = p[i, j] / kept
            y_row = yptr[j], yptr[j + 1], yind, yval
            n = pair_squares(first, last, xind, x, Ex, nx, y_row, atoms, E, lost, hits, touched)
            if latent is not None:
                for k in range(n_mine):
                    if E[mine[k]] < 0:
                        E[mine[k]] = Ex[mine[k]]
                        touched[n] = mine[k]
                        n += 1
            scales(touched, n, E, groups, latent, SLOPE, scale)
            near = False
            for k in range(n):
                a = touched[k]
                if E[a] < NEAR * Ex[a]:
                    lost[a], scale[a], near = scale[a], 0.0, True
                slopes[a] += weight * (scale[a] - own[a])
                differ[a] += weight * ((1.0 if E[a] > 0 else 0.0) - (1.0 if nx[a] > 0 else 0.0))
                E[a] = -1.0
            if near:
                _add_near(first, last, xind, y_row, x, atoms, weight, lost, field[i])
            for e in range(yptr[j], yptr[j + 1]):
                t, y = yind[e], np.float64(yval[e])
                mean[i, t] += weight * y
                taken[t] += weight * (1.0 + scale[atoms[t]]) * y if atoms[t] >= 0 else weight * y
                signs[t] += weight * (_sign(x[t] - y) - _sign(x[t]))
                apart[t] += weight * ((1.0 if x[t] != y else 0.0) - (1.0 if x[t] != 0 else 0.0))
            for k in range(n):
                scale[touched[k]] = lost[touched[k]] = 0.0
        for t in range(x.shape[0]):
            slope = slopes[atoms[t]] if atoms[t] >= 0 else 0.0
            field[i, t] += x[t] * (1.0 + slope) - taken[t] + g[t] * (_sign(x[t]) + signs[t])
            tied = max(0.0, 1.0 - (1.0 if x[t] != 0 else 0.0) - apart[t])
            if slack.shape[0] > 0:
                slack[i, t] = g[t] * tied
            if ties:
                size = abs(field[i, t]) - g[t] * tied
                field[i, t] = math.copysign(size, field[i, t]) if size > 0 else 0.0
        if balls.shape[0] > 0:
            for a in range(balls.shape[1]):
                balls[i, a] = max(0.0, 1.0 - (1.0 if nx[a] > 0 else 0.0) - differ[a])
        if ties:
            _shrink_groups(field[i], atoms, radii, nx, differ, slopes)
        leave(first, last, xind, atoms, x, Ex, nx)


@kernel
def _add_near(x_at, x_end, xind, y_row, x, atoms, weight, factors, field):
    """field += weight·factor·(x − y) in the atoms that have a factor other than 0; features of both rows rise."""
    y_at, y_end, yind, yval = y_row
    while x_at < x_end or y_at < y_end:
        if y_at == y_end or (x_at < x_end and xind[x_at] < yind[y_at]):
            t, z = np.int64(xind[x_at]), x[xind[x_at]]
        else:
            t, z = np.int64(yind[y_at]), x[yind[y_at]] - np.float64(yval[y_at])
            y_at += 1
        if x_at < x_end and xind[x_at] == t:
            x_at += 1
        if atoms[t] >= 0 and factors[atoms[t]] != 0:
            field[t] += weight * factors[atoms[t]] * z


@kernel
def _shrink_groups(field, atoms, radii, nx, differ, norms):
    """Each group nearer to 0 by λ times the mass of the targets that agree with x in all of it."""
    norms[:] = 0.0
    for t in range(field.shape[0]):
        if atoms[t] >= 0:
            norms[atoms[t]] += field[t] * field[t]
    for a in range(norms.shape[0]):
        tied = max(0.0, 1.0 - (1.0 if nx[a] > 0 else 0.0) - differ[a])
        size = math.sqrt(norms[a])
        norms[a] = 1.0 - radii[a] * tied / size if size > radii[a] * tied else 0.0
    for t in range(field.shape[0]):
        if atoms[t] >= 0:
            field[t] *= norms[atoms[t]]


@kernel
def _sign(value):
    return (1.0 if value > 0 else 0.0) - (1.0 if value < 0 else 0.0)
