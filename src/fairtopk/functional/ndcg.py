"""The NDCG surrogate of SONG: f(g) = -(G / Z) / log2(1 + n g), Eq. 3 and 15.

G = 2^y - 1 is the gain, Z the ideal DCG, n the length of the whole list, and n g the smoothed
rank.
"""

import math

from torch import Tensor

# f' is infinite at g = 0. With the item itself in the mean, n g >= c^2; a list that leaves the
# item out, or a table started at 0, could reach 0 all the same.
SMALLEST_RANK = 1e-6


def ndcg_term(mean_hinge: Tensor, gain: Tensor, length: Tensor) -> Tensor:
    """Return f at g, with `gain` standing for G / Z; shapes broadcast."""
    rank = (length * mean_hinge).clamp(min=SMALLEST_RANK)
    return -gain / (1 + rank).log2()


def ndcg_slope(mean_hinge: Tensor, gain: Tensor, length: Tensor) -> Tensor:
    """Return f' at g: (G / Z) n / (ln 2 (1 + n g) log2(1 + n g)^2), Eq. 18."""
    rank = (length * mean_hinge).clamp(min=SMALLEST_RANK)
    return gain * length / (math.log(2) * (1 + rank) * (1 + rank).log2() ** 2)
