"""The ideal DCG of every user's ratings, from CSR arrays."""

import numpy as np
from numpy.typing import NDArray


def ideal_dcg(
    offsets: NDArray[np.int64], rating: NDArray[np.floating], k: int
) -> NDArray[np.float64]:
    """Return sum over the best k ratings of (2^y - 1) / log2(1 + rank), ``[n_users]``."""
    n_rated = np.diff(offsets)
    user = np.repeat(np.arange(len(n_rated)), n_rated)
    place = np.arange(len(rating)) - np.repeat(offsets[:-1], n_rated)
    # Sorted as whole numbers: by user, then by grade, of which the best has the lowest number.
    grades = np.unique(-rating)
    key = user * len(grades) + np.searchsorted(grades, -rating)
    key.sort()
    gain = (np.exp2(-grades.astype(np.float64)) - 1)[key - user * len(grades)]
    gain /= np.log2(2.0 + place)
    gain[place >= k] = 0
    return np.bincount(user, gain, minlength=len(n_rated)).astype(np.float64)
