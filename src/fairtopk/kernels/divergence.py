"""How far the groups in each prefix of ranked lists are from those in the whole list."""

import math

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled
from fairtopk.kernels.measures import Doubles, Floats, Whole, discounts
from fairtopk.kernels.ranking import Work, rank_row, room_for


def mean_divergences(
    scores: Floats, mask: NDArray[np.bool_], group: Whole, n_groups: int, k: int
) -> Doubles:
    """Return the discounted mean divergence of the first `k` prefixes of each list, ``[Q]``.

    The prefix of length i weighs 1 / log2(1 + i). Its divergence is that of Kullback and
    Leibler, in nats, of the groups among its known items from those among the known items of
    the whole list. Prefixes without a known item count for nothing; NaN without any other, or
    where a list has fewer than two groups.

    Args:
        scores: Finite where the mask is True, ``[Q, L]``.
        mask: False on padding, ``[Q, L]``.
        group: Group numbers, -1 unknown and on padding, ``[Q, L]``.
        n_groups: How many groups there are.
        k: Length of the longest prefix.
    """
    found, n_slots = np.full(len(scores), np.nan), scores.shape[1]
    work, worth = room_for(n_slots, scores.dtype), discounts(min(k, n_slots))
    _fill(scores, mask, group, np.zeros((2, n_groups), np.int64), worth, work, found)
    return found


@compiled
def _fill(
    scores: Floats,
    mask: NDArray[np.bool_],
    group: Whole,
    counts: NDArray[np.int64],
    worth: Doubles,
    work: Work,
    found: Doubles,
) -> None:
    n_queries, n_slots = scores.shape
    size, inside = counts
    log = np.zeros(n_slots + 2)  # of 0 it is 0: a group that is not there adds nothing
    for number in range(2, len(log)):
        log[number] = math.log(number)
    for row in range(n_queries):
        size[:], inside[:], n_known = 0, 0, 0
        for slot in range(n_slots):
            work.row[slot] = scores[row, slot] if mask[row, slot] else -np.inf
            if group[row, slot] >= 0:
                size[group[row, slot]] += 1
                n_known += 1
        if size.max() == n_known:
            continue
        total, weight, surprise, m = 0.0, 0.0, 0.0, 0
        for place in range(rank_row(work, n_slots, len(worth))):
            one = group[row, work.column[0, place]]
            if one >= 0:
                # With m_g of m items, the divergence is
                # sum_g m_g (log m_g - log share_g) / m - log m: only one term changes.
                before = inside[one]
                surprise += (before + 1) * log[before + 1] - before * log[before]
                surprise -= log[size[one]] - log[n_known]
                inside[one] += 1
                m += 1
            if m > 0:
                total += worth[place] * max(surprise / m - log[m], 0.0)
                weight += worth[place]
        if weight > 0:
            found[row] = total / weight
