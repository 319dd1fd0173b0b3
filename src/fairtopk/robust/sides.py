"""The two sides of a list that are to get the same, and by how much they do not.

f_i is 1 / n_a for the n_a items of group 0, -1 / n_b for those of all other groups, 0 where the
group is unknown. By treatment each is divided by the mean relevance of its side.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.doubly_stochastic import Floats
from fairtopk.kernels.minimax import KINDS

Flags = NDArray[np.bool_]


class Sides(NamedTuple):
    """Which side each item is on, and what its exposure counts for.

    Attributes:
        kind: 0 for group 0, 1 for the other groups, 2 for neither, ``[Q, L]``.
        rate: f of each kind, ``[Q, 3]``; zeros where a list lacks a side.
        defined: Which lists have both sides, ``[Q]``.
    """

    kind: NDArray[np.int8]
    rate: Floats
    defined: Flags


def sides_of(group: NDArray[np.integer], mask: Flags, merit: Floats) -> Sides:
    """Return the sides of lists.

    Args:
        group: Group numbers, -1 unknown, ``[Q, L]``.
        mask: False on padding, ``[Q, L]``.
        merit: What each side's exposure is divided by, ``[2]`` or ``[Q, 2]``.
    """
    kind = np.where(mask & (group >= 0), np.minimum(group, 1), KINDS - 1).astype(np.int8)
    counts = np.stack([(kind == side).sum(-1) for side in (0, 1)], axis=-1)
    defined: Flags = counts.min(-1) > 0
    rate = np.zeros((len(kind), KINDS))
    rate[:, :2] = np.array([1.0, -1.0]) / (np.maximum(counts, 1) * merit)
    rate[~defined] = 0.0
    return Sides(kind, rate, defined)


def gaps(exposure: Floats, sides: Sides) -> Floats:
    """Return f^T P v, ``[Q]``, given the exposure P v; 0 where a list lacks a side."""
    found: Floats = (bonuses(sides, np.ones(1)) * exposure).sum(-1)
    return found


def bonuses(sides: Sides, lam: Floats) -> Floats:
    """Return lam f of each item, ``[Q, L]``, with multipliers ``[Q]`` or ``[1]``."""
    kind = sides.kind.astype(np.int64)
    found: Floats = np.take_along_axis(lam[:, None] * sides.rate, kind, axis=-1)
    return found
