"""How well the scores of lists tell one group from the others."""

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled
from fairtopk.kernels.measures import Doubles, Floats, Whole
from fairtopk.kernels.ranking import Work, rank_row, room_for


def group_aucs(scores: Floats, mask: NDArray[np.bool_], group: Whole) -> Doubles:
    """Return the share of pairs in which the item of group 0 has the higher score, ``[Q]``.

    A pair is an item of group 0 and one of another known group; equal scores count half. NaN
    where a list has no such pair.

    Args:
        scores: Finite where the mask is True, ``[Q, L]``.
        mask: False on padding, ``[Q, L]``.
        group: Group numbers, -1 unknown and on padding, ``[Q, L]``.
    """
    found = np.full(len(scores), np.nan)
    _fill(scores, mask, group, room_for(scores.shape[1], scores.dtype), found)
    return found


@compiled
def _fill(
    scores: Floats, mask: NDArray[np.bool_], group: Whole, work: Work, found: Doubles
) -> None:
    n_slots = scores.shape[1]
    for row in range(len(scores)):
        for slot in range(n_slots):
            known = mask[row, slot] and group[row, slot] >= 0
            work.row[slot] = scores[row, slot] if known else -np.inf
        count = rank_row(work, n_slots, n_slots)
        halves, named, others, place = 0, 0, 0, 0  # pairs won count two halves
        while place < count:
            score = scores[row, work.column[0, place]]
            named_here, others_here = 0, 0
            while place < count and scores[row, work.column[0, place]] == score:
                if group[row, work.column[0, place]] == 0:
                    named_here += 1
                else:
                    others_here += 1
                place += 1
            halves += (2 * named + named_here) * others_here
            named += named_here
            others += others_here
        if named > 0 and others > 0:
            found[row] = halves / (2.0 * named * others)
