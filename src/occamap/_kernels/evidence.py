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
LEAST = 1e-12  # share of a replicate
LEAST_INNER = 1e-4  # of a variance: what is left of it within replicates at the least


@kernel
def variance_of(mean, square, size, rounding):
    """Of a weighted mean; at least `rounding` times the mean square."""
    return size * max(square - mean * mean, rounding * square)


@kernel
def is_constant(mean, square, goal, goal_square, rounding):
    """Whether neither side varies by more than rounding."""
    return (square - mean * mean <= rounding * square) & (goal_square - goal * goal <= rounding * goal_square)


@kernel
def variance_of_difference(source, target, rest, goal_rest):
    """The larger of Welch's and Student's; `rest` and `goal_rest` are the effective numbers of samples, less one."""
    n, m = rest + 1, goal_rest + 1
    common = (source * n * rest + target * m * goal_rest) / (rest + goal_rest)
    return max(source + target, common * (1 / n + 1 / m))


@kernel
def squared_ratios(means, squares, goals, goal_squares, sizes, rounding, source, target, ratios):
    """Of one feature, for all lanes: variances of both means, and difference² over that of the difference.

    It is −1 where nothing can be tested: no variance, or a feature that is the same everywhere on both sides.

    The variance of a difference is the larger of Welch's, the sum of both, and Student's, of sides that vary alike:
    where the smaller side shows none of a rare feature, it has no variance of its own.
    """
    for lane in range(ratios.shape[0]):  # without branches, so that it fills the vector units
        mean, goal = np.float64(means[lane]), np.float64(goals[lane])
        source[lane] = variance_of(mean, np.float64(squares[lane]), sizes[0, lane], rounding)
        target[lane] = variance_of(goal, np.float64(goal_squares[lane]), sizes[2, lane], rounding)
        variance = variance_of_difference(source[lane], target[lane], sizes[1, lane], sizes[3, lane])
        square, goal_square = np.float64(squares[lane]), np.float64(goal_squares[lane])
        squared = (goal - mean) * (goal - mean)
        same = is_constant(mean, square, goal, goal_square, rounding) & (squared <= rounding * (square + goal_square))
        ratios[lane] = squared / variance if (variance > 0) & (not same) else UNTESTED


@kernel
def normal_score(ratio, source, target, sizes, lane, known, borrowed):
    """The z-score with the same p-value as Student's t, whose square is `ratio`; and the degrees of freedom.

    These are those of Welch or, with replicates, at most as many: 1/(1/known + borrowed/Welch), where `known` are those
    of the variance between replicates (0: there are none), and `borrowed` is the squared share of it that was taken
    from the variance of samples. The deviate is Wallace's approximation.
    """
    variance = source + target
    degrees = variance * variance / (source * source / sizes[1, lane] + target * target / sizes[3, lane])
    if known > 0:
        degrees = min(degrees, 1 / (1 / known + borrowed / degrees))
    return shrinkage(degrees) * math.sqrt(degrees * math.log1p(ratio / degrees)), degrees


@kernel
def shrinkage(degrees):
    """Wallace's factor: the z-score of t is about this times √(ν log(1 + t²/ν))."""
    return (8 * degrees + 1) / (8 * degrees + 3)


@kernel
def replicate_ratios(
    means, squares, goals, goal_squares, sizes, inner_sizes, rounding, parts, goal_parts, shares, goal_shares, left,
    inner, ratios,
):  # fmt: skip
    """ratios[t, lane]: the variance between replicates over that of the spread within them; −1 where there is none, and
    0 where neither side varies. inner[t, lane]: the share of the variance of samples that is within replicates.

    `parts` and `goal_parts` [replicate, feature, lane] are what each replicate adds to a mean, and `shares`,
    `goal_shares` and `left` [replicate, lane] are as for `Shares`. `inner_sizes` [side, lane] are Σw²/(1 − λ), where λ
    is the sum of Σw² of each replicate over its share; 0 if each replicate has one sample.
    """
    lanes = sizes.shape[1]
    lost, goal_lost = np.empty(lanes), np.empty(lanes)
    for t in range(means.shape[0]):
        between = ratios[t]
        between[:], lost[:], goal_lost[:] = 0.0, 0.0, 0.0
        for r in range(parts.shape[0]):
            mine, theirs, share, goal_share, rest = parts[r, t], goal_parts[r, t], shares[r], goal_shares[r], left[r]
            for lane in range(lanes):  # in a loop of its own, which fills the vector units
                own = mine[lane] - share[lane] * means[t, lane]
                goal_own = theirs[lane] - goal_share[lane] * goals[t, lane]
                lost[lane] += own * own / max(share[lane], LEAST)
                goal_lost[lane] += goal_own * goal_own / max(goal_share[lane], LEAST)
                between[lane] += (goal_own - own) ** 2 / rest[lane]
        for lane in range(lanes):
            mean, goal = np.float64(means[t, lane]), np.float64(goals[t, lane])
            square, goal_square = np.float64(squares[t, lane]), np.float64(goal_squares[t, lane])
            source = variance_of(mean, square, sizes[0, lane], rounding)
            target = variance_of(goal, goal_square, sizes[2, lane], rounding)
            variance = variance_of_difference(source, target, sizes[1, lane], sizes[3, lane])
            within = inner_sizes[0, lane] * max(square - mean * mean - lost[lane], 0.0)
            within += inner_sizes[1, lane] * max(goal_square - goal * goal - goal_lost[lane], 0.0)
            inner[t, lane] = 1.0
            if source + target > 0 and inner_sizes[0, lane] > 0 and inner_sizes[1, lane] > 0:
                inner[t, lane] = min(max(within / (source + target), LEAST_INNER), 1.0)
            if is_constant(mean, square, goal, goal_square, rounding):
                between[lane] = 0.0
            between[lane] = between[lane] / (inner[t, lane] * variance) if variance > 0 else UNTESTED


@kernel
def moderate_ratios(ratios, inner, degrees, priors, known, borrowed):
    """Mix ratios with their priors, in place, and multiply them by `inner`: 1 or more, or 0 with too few replicates.

    `priors` [3, feature] as `learn_priors` has them; `degrees` [lane] are those of the variance between replicates.
    `known` and `borrowed` [feature, lane] become what `normal_score` takes.
    """
    for t in range(ratios.shape[0]):
        for lane in range(ratios.shape[1]):
            ratio, own = np.float64(ratios[t, lane]), degrees[lane]
            if own <= 0 or ratio < 0:
                ratios[t, lane], known[t, lane], borrowed[t, lane] = 0.0, 1.0, 0.0
                continue
            worth = 0.0 if ratio > priors[2, t] else priors[1, t]
            mixed = (worth * priors[0, t] + own * ratio) / (worth + own)
            wider = mixed * inner[t, lane]
            share = worth * priors[0, t] / (worth + own) / mixed if wider > 1 else 1.0
            ratios[t, lane] = max(1.0, wider)
            known[t, lane], borrowed[t, lane] = worth + own, share * share


@kernel
def count_scores(
    means, squares, goals, goal_squares, sizes, wider, known, borrowed, times, rounding, per_unit, counts
):
    """Add each tested entry to the bin of its score, as often as `times` says for its lane.

    `wider` [feature, lane] is what variances are multiplied by, 0 where nothing is tested, and `known` and `borrowed`
    are as for `normal_score`; all are empty without replicates. A unit of the score has `per_unit` bins; the first
    takes all scores below 1, and the last all that are beyond it.
    """
    last, lanes = counts.shape[0] - 1, times.shape[0]
    source, target, ratios = np.empty(lanes), np.empty(lanes), np.empty(lanes)
    for t in range(means.shape[0]):
        squared_ratios(means[t], squares[t], goals[t], goal_squares[t], sizes, rounding, source, target, ratios)
        for lane in range(lanes):
            ratio, degrees, share = ratios[lane], 0.0, 0.0
            if wider.shape[0] > 0:
                ratio = ratio / wider[t, lane] if wider[t, lane] > 0 else UNTESTED
                degrees, share = known[t, lane], borrowed[t, lane]
            if ratio >= 1:
                score, _ = normal_score(ratio, source[lane], target[lane], sizes, lane, degrees, share)
                counts[min(last, int(score * per_unit)) if score >= 1 else 0] += times[lane]
            elif ratio >= 0:
                counts[0] += times[lane]


@kernel
def find_scores(
    means, squares, goals, goal_squares, sizes, wider, known, borrowed, rounding, critical,
    features, lanes, differences, scores, penalties,
):  # fmt: skip
    """The entries whose score is at least `critical`, and the difference that has this score; returns their number.

    `wider`, `known` and `borrowed` are as for `count_scores`.
    """
    count, width = 0, sizes.shape[1]
    source, target, ratios = np.empty(width), np.empty(width), np.empty(width)
    for t in range(means.shape[0]):
        squared_ratios(means[t], squares[t], goals[t], goal_squares[t], sizes, rounding, source, target, ratios)
        for lane in range(width):
            ratio, factor, degrees, share = ratios[lane], 1.0, 0.0, 0.0
            if wider.shape[0] > 0:
                factor, degrees, share = wider[t, lane], known[t, lane], borrowed[t, lane]
                ratio = ratio / factor if factor > 0 else UNTESTED
            if ratio < 0 or ratio < critical * critical:  # a score is never above its t
                continue
            score, degrees = normal_score(ratio, source[lane], target[lane], sizes, lane, degrees, share)
            if score >= critical:
                features[count], lanes[count] = t, lane
                differences[count], scores[count] = np.float64(goals[t, lane]) - np.float64(means[t, lane]), score
                least = (critical / shrinkage(degrees)) ** 2
                variance = variance_of_difference(source[lane], target[lane], sizes[1, lane], sizes[3, lane])
                penalties[count] = math.sqrt(factor * variance * degrees * math.expm1(least / degrees))
                count += 1
    return count
