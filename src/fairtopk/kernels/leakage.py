"""How well the scores of lists tell one group from the others."""

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.measures import Doubles, Floats, Whole
from fairtopk.kernels.top import top_of


def group_aucs(scores: Floats, mask: NDArray[np.bool_], group: Whole) -> Doubles:
    """Return the share of pairs in which the item of group 0 has the higher score, ``[Q]``.

    A pair is an item of group 0 and one of another known group; equal scores count half. NaN
    where a list has no such pair.

    Args:
        scores: Finite where the mask is True, ``[Q, L]``.
        mask: False on padding, ``[Q, L]``.
        group: Group numbers, -1 unknown and on padding, ``[Q, L]``.
    """
    found, n_slots = np.full(len(scores), np.nan), scores.shape[1]
    if not scores.size:
        return found
    known = np.where(mask & (group >= 0), scores, scores.dtype.type(-np.inf))
    top = top_of(known, n_slots, log_sums=False)
    there = top.column >= 0
    named = there & (np.take_along_axis(group, np.maximum(top.column, 0), -1) == 0)
    others = there & ~named
    # Of each place, the first and the last one with an equal score.
    place, begins = np.arange(n_slots), np.ones(named.shape, np.bool_)
    begins[:, 1:] = top.scores[:, 1:] != top.scores[:, :-1]
    ends = np.append(begins[:, 1:], np.ones((len(scores), 1), np.bool_), axis=-1)
    first = np.maximum.accumulate(np.where(begins, place, 0), axis=-1)
    last = np.minimum.accumulate(np.where(ends, place, n_slots)[:, ::-1], axis=-1)[:, ::-1]
    through = named.cumsum(-1)
    ahead = np.take_along_axis(through - named, first, -1)
    halves = ((ahead + np.take_along_axis(through, last, -1)) * others).sum(-1)  # of pairs won
    pairs = named.sum(-1) * others.sum(-1)
    np.divide(halves, 2.0 * pairs, out=found, where=pairs > 0)
    return found
