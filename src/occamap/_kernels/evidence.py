"""How far the means of two neighbourhoods are apart, in standard errors: tiles of features × neighbourhoods.

A tile holds four arrays [feature, lane], a lane per neighbourhood: weighted means and mean squares of the source
samples and of their targets. `sizes` has four rows of lanes: Σw²/(1 − Σw²) and 1/Σw² − 1 of the source, then of the
targets; the first is 0 in lanes without a neighbourhood and in those that cannot be tested.
"""

from __future__ import annotations

import math

import numpy as np

from occamap._kernels.jit import kernel

UNTESTED = -1.0


@kernel
def standard_score(mean, square, goal, goal_square, sizes, lane, rounding):
    """|difference| in standard errors, as the normal deviate that is as rare as Welch's t; variance, degrees.

    The score is −1 where both sides are 0 or cannot be tested, and 0 for any difference below one standard error. A
    variance is at least `rounding` times the mean square. Student's t is made normal by Wallace's approximation.
    """
    if sizes[0, lane] <= 0 or (square == 0 and goal_square == 0):
        return UNTESTED, 0.0, 0.0
    difference = goal - mean
    source = sizes[0, lane] * max(square - mean * mean, rounding * square)
    target = sizes[2, lane] * max(goal_square - goal * goal, rounding * goal_square)
    variance = source + target
    if difference * difference < variance:
        return 0.0, variance, 0.0
    degrees = variance * variance / (source * source / sizes[1, lane] + target * target / sizes[3, lane])
    ratio = difference * difference / variance
    score = shrinkage(degrees) * math.sqrt(degrees * math.log1p(ratio / degrees))
    return score, variance, degrees


@kernel
def shrinkage(degrees):
    """Wallace's factor: the normal deviate of t is about this times √(ν log(1 + t²/ν))."""
    return (8 * degrees + 1) / (8 * degrees + 3)


@kernel
def count_scores(means, squares, goals, goal_squares, sizes, times, rounding, per_unit, counts):
    """Add each tested entry to the bin of its score, as often as `times` says for its lane.

    A unit of the score has `per_unit` bins; the last bin takes all that is beyond.
    """
    last = counts.shape[0] - 1
    for t in range(means.shape[0]):
        for lane in range(times.shape[0]):
            score, _, _ = standard_score(
                np.float64(means[t, lane]), np.float64(squares[t, lane]), np.float64(goals[t, lane]),
                np.float64(goal_squares[t, lane]), sizes, lane, rounding,
            )  # fmt: skip
            if score >= 0:
                counts[min(last, int(score * per_unit))] += times[lane]


@kernel
def find_scores(
    means, squares, goals, goal_squares, sizes, rounding, critical, features, lanes, differences, scores, penalties
):
    """The entries whose score is at least `critical`, and the difference that has this score; returns their number.

    Nothing is written if `features` is empty.
    """
    count = 0
    for t in range(means.shape[0]):
        for lane in range(sizes.shape[1]):
            mean, goal = np.float64(means[t, lane]), np.float64(goals[t, lane])
            score, variance, degrees = standard_score(
                mean, np.float64(squares[t, lane]), goal, np.float64(goal_squares[t, lane]), sizes, lane, rounding
            )
            if score >= critical:
                if features.shape[0] > 0:
                    features[count], lanes[count] = t, lane
                    differences[count], scores[count] = goal - mean, score
                    least = (critical / shrinkage(degrees)) ** 2
                    penalties[count] = math.sqrt(variance * degrees * math.expm1(least / degrees))
                count += 1
    return count
