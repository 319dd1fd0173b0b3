"""Lists in which equal scores leave it to the order of rows who comes first."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled
from fairtopk.kernels.measures import Floats, Whole


def count_ties(
    scores: Floats, length: NDArray[np.int64], labels: Whole | Floats, ks: Sequence[int]
) -> NDArray[np.int64]:
    """Return how many lists have a tie across each cut, and how many one in the top.

    A tie is a run of equal scores whose labels differ: among items with one label it matters to
    nobody who comes first. One across the cut has items on both sides of it; one in the top
    begins there, wherever it ends.

    Args:
        scores: In ranked order, ``[Q, L]``.
        length: Items of each list, ``[Q]``; what follows is padding.
        labels: In ranked order, ``[Q, L]``.
        ks: Where to cut.

    Returns:
        Numbers of lists, ``[2, len(ks)]``; the second are never below the first.
    """
    counts = np.zeros((2, len(ks)), np.int64)
    # Numbers of groups and grades of relevance are exact in float64: one loop serves all.
    _count(scores, length, labels.astype(np.float64), np.array(ks), counts)
    return counts


@compiled
def _count(
    scores: Floats,
    length: NDArray[np.int64],
    labels: NDArray[np.float64],
    ks: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> None:
    found = np.empty(counts.shape, np.bool_)
    for row in range(len(length)):
        found[:] = False
        start = 0
        while start < min(length[row], ks[-1]):
            stop, differ = start + 1, False
            while stop < length[row] and scores[row, stop] == scores[row, start]:
                differ = differ or labels[row, stop] != labels[row, start]
                stop += 1
            if differ:
                for cut in range(len(ks)):
                    found[0, cut] |= start < ks[cut] < stop
                    found[1, cut] |= start < ks[cut]
            start = stop
        counts += found
