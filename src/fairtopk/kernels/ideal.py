"""The ideal DCG of every user's ratings, from CSR arrays."""

import math

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled
from fairtopk.kernels.ranking import Work, rank_row, room_for


def ideal_dcg(
    offsets: NDArray[np.int64], rating: NDArray[np.floating], k: int
) -> NDArray[np.float64]:
    """Return sum over the best k ratings of (2^y - 1) / log2(1 + rank), ``[n_users]``."""
    ideal = np.zeros(len(offsets) - 1)
    most = int(np.diff(offsets).max(initial=0))
    _fill(offsets, rating, k, room_for(most, rating.dtype), ideal)
    return ideal


@compiled
def _fill(
    offsets: NDArray[np.int64],
    rating: NDArray[np.floating],
    k: int,
    work: Work,
    ideal: NDArray[np.float64],
) -> None:
    for user in range(len(ideal)):
        start, n_rated = offsets[user], offsets[user + 1] - offsets[user]
        for place in range(n_rated):
            work.row[place] = rating[start + place]
        if n_rated > 0:
            for place in range(rank_row(work, n_rated, k)):
                gain = 2.0 ** work.row[work.column[0, place]] - 1.0
                ideal[user] += gain / math.log2(2.0 + place)
