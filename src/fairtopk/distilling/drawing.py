"""Drawing from lists so that nothing is drawn twice, and what a place in a list counts."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

FALL = 3.0  # how fast an item counts less with its place
Values = TypeVar("Values", NDArray[np.float64], Tensor)


def evenly_spaced(
    length: NDArray[np.int64], n: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return `n` places of each list, -1 where it has fewer, ``[Q, n]``.

    They lie evenly spaced, the first of them at random: every place is drawn equally often, and
    none twice. Of a list that has no more than `n`, all are drawn.

    Args:
        length: Of each list, ``[Q]``.
        n: How many places.
        rng: What chance comes from.
    """
    length = length[:, None]
    chance = rng.random((len(length), 1)) * (length > n)
    place = ((np.arange(n) + chance) * np.maximum(length / n, 1)).astype(np.int64)
    return np.where(np.arange(n) < length, np.minimum(place, length - 1), -1)


def counted(place: Values, reach: float) -> Values:
    """Return what items at places count, from 0: (1 + place / reach)^-3."""
    return (1 + place / reach) ** -FALL


def counted_behind(
    first: NDArray[np.int64], length: NDArray[np.int64], reach: float
) -> NDArray[np.float64]:
    """Return what all items from a place on count together, by the integral for the sum."""
    power = 1 - FALL
    ends = ((1 + place / reach) ** power for place in (first, length))
    return reach / -power * (next(ends) - next(ends))
