"""FA*IR: how many protected items each prefix needs, and lists that have them.

If each item is protected with probability p, a prefix of i items has Binomial(i, p) of them. It
is unfair if it has fewer than m(i), the alpha-quantile. An order fails as a whole if one of its
prefixes does, so that a fair process fails more often than alpha.
"""

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled

ROUNDING = 1e-10  # of alpha: a sum that should equal it may be off by so much
NARROW = 1e-9  # of a level: steps that are nearer to each other may be one, but for rounding


@compiled
def minimum_counts(k: int, p: float, alpha: float) -> NDArray[np.int64]:
    """Return the least m with P(Binomial(i, p) <= m) >= alpha for i from 1 to k, ``[k]``."""
    counts = np.zeros(k, np.int64)
    if p >= 1.0:
        for i in range(1, k + 1):
            counts[i - 1] = i
        return counts
    wanted = alpha * (1.0 - ROUNDING)
    # P(X = m) and P(X <= m), carried from i - 1 to i and, where m rises, from m to m + 1. It
    # rises by one at most, as a single trial does.
    m, chance, below = 0, 1.0, 1.0
    for i in range(1, k + 1):
        below -= p * chance
        chance *= (1.0 - p) * i / (i - m)
        if below < wanted:
            chance *= p / (1.0 - p) * (i - m) / (m + 1)
            below += chance
            m += 1
        counts[i - 1] = m
    return counts


@compiled
def failure(counts: NDArray[np.int64], p: float) -> float:
    """Return the probability that some prefix of i items has fewer than ``counts[i - 1]``.

    Each item is protected with probability p, whatever the others are.
    """
    enough = 0  # so many never fail any more
    for count in counts:
        enough = max(enough, count)
    chance = np.zeros(enough + 1, np.float64)  # of each number of protected items so far
    chance[0] = 1.0
    failed, least = 0.0, 0
    for i in range(1, len(counts) + 1):
        for count in range(min(i, enough), least, -1):
            chance[count] = chance[count] * (1.0 - p) + chance[count - 1] * p
        chance[least] *= 1.0 - p
        while least < counts[i - 1]:
            failed += chance[least]
            chance[least] = 0.0
            least += 1
    return failed


@compiled
def adjusted_counts(
    k: int, p: float, alpha: float, conservative: bool
) -> tuple[NDArray[np.int64], float]:
    """Return the `minimum_counts` that fail with probability alpha, and their own level.

    Failure is a step function of the level, so alpha lies between two steps in general: it is
    the lower one if `conservative`, else the one nearest to alpha.
    """
    high, high_level = minimum_counts(k, p, alpha), alpha
    high_failure, allowed = failure(high, p), alpha * (1.0 + ROUNDING)
    if high_failure <= allowed:
        return high, high_level
    low, low_level, low_failure = np.zeros(k, np.int64), 0.0, 0.0
    while high.sum() - low.sum() > 1 and high_level - low_level > NARROW * high_level:
        level = (low_level + high_level) / 2.0
        counts = minimum_counts(k, p, level)
        failed = failure(counts, p)
        if failed <= allowed:
            low, low_level, low_failure = counts, level, failed
        else:
            high, high_level, high_failure = counts, level, failed
    if conservative or alpha - low_failure <= high_failure - alpha:
        return low, low_level
    return high, high_level


@compiled
def fill_fair_prefixes(
    scores: NDArray[np.floating],
    protected: NDArray[np.bool_],
    n_items: NDArray[np.int64],
    counts: NDArray[np.int64],
    row: NDArray[np.int64],
    order: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Fill `order` with the best order that has its counts; return which lists have them.

    A list that runs out of protected items goes on with the others. Of equal scores, that of a
    protected item comes first.

    Args:
        scores: By place, never rising, ``[Q, L]``.
        protected: By place, ``[Q, L]``.
        n_items: Places of each list that are no padding, ``[Q]``.
        counts: Least numbers of protected items in prefixes, ``[n_tables, K]``.
        row: Which of the tables is that of a list, ``[Q]``.
        order: The old place of the item at each new place, ``[Q, L]``.
    """
    met = np.ones(len(n_items), np.bool_)
    for query in range(len(n_items)):
        n, taken, first, other = n_items[query], 0, -1, -1
        first = _following(protected[query], n, first, True)
        other = _following(protected[query], n, other, False)
        for place in range(n):
            least = counts[row[query], place] if place < counts.shape[1] else 0
            if first < n and (
                taken < least or other >= n or scores[query, first] >= scores[query, other]
            ):
                order[query, place] = first
                taken += 1
                first = _following(protected[query], n, first, True)
            else:
                order[query, place] = other
                other = _following(protected[query], n, other, False)
            met[query] &= taken >= least
        for place in range(n, order.shape[1]):
            order[query, place] = place
    return met


@compiled
def _following(protected: NDArray[np.bool_], n: int, place: int, wanted: bool) -> int:
    """Return the next place after `place` whose flag is `wanted`, or n."""
    place += 1
    while place < n and protected[place] != wanted:
        place += 1
    return place
