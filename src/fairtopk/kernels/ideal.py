"""The ideal DCG of every user's ratings, from CSR arrays."""

import math

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled


@compiled
def ideal_dcg(
    offsets: NDArray[np.int64], rating: NDArray[np.floating], k: int
) -> NDArray[np.float64]:
    """Return sum over the best k ratings of (2^y - 1) / log2(1 + rank), ``[n_users]``."""
    ideal = np.zeros(len(offsets) - 1, np.float64)
    for user in range(len(offsets) - 1):
        rising = np.sort(rating[offsets[user] : offsets[user + 1]])
        for place in range(min(k, len(rising))):
            gain = 2.0 ** rising[len(rising) - 1 - place] - 1.0
            ideal[user] += gain / math.log2(2.0 + place)
    return ideal
