"""The signed multiplier of the gap: where the gap is what it shall be.

What the game is worth is convex in the multiplier, with the gap as its slope: the gap never
falls as the multiplier rises. So two are found with the one that is wanted between them, and it
is closed in on by their secants (the Illinois rule).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fairtopk.errors import InputError
from fairtopk.kernels.doubly_stochastic import Floats
from fairtopk.robust.sides import Flags, Sides

TOLERANCE = 1e-7  # of a gap
DOUBLINGS = 4
SECANTS = 100


class Multipliers(NamedTuple):
    """Multipliers, ``[N]``, and which of them do what they shall, ``[N]``.

    The others are the largest that were tried: their groups cannot get the same, however they
    are ranked. That does not happen by parity.
    """

    lam: Floats
    met: Flags

    def of_all(self) -> Floats:
        """Return the one multiplier of all lists, refusing one that is not met."""
        if not self.met.all():
            raise InputError(
                "robust: no ranking gives the groups exposure in proportion to their mean "
                'relevance; lower method.c, or set method.robust.notion to "parity"'
            )
        return self.lam


def reach(sides: Sides, *, mu: float) -> Floats:
    """Return the multiplier that puts all items of one side above the other's, ``[Q]``.

    Relevance is in [0, 1], so that this is a bonus of 1 in favour of them, or of mu where that
    is more, for prices move P by their ratio to mu; 0 where a list lacks a side.
    """
    lead = sides.rate[:, 0] - sides.rate[:, 1]
    bonus = max(mu, 1.0)
    found: Floats = np.where(sides.defined, bonus / np.where(sides.defined, lead, 1.0), 0.0)
    return found


def multipliers(gap: Callable[[Floats], Floats], first: Floats, *, share: float) -> Multipliers:
    """Return the multipliers that take a share of the gap away.

    Args:
        gap: Takes multipliers and returns the gap at each, ``[N]``.
        first: Which are tried first, whatever their sign, ``[N]``.
        share: Of the gap without a multiplier: 1 leaves none, 0 gives multipliers of 0.
    """
    near = np.zeros(len(first))
    without = gap(near)
    wanted = (1 - share) * without
    at_near = without - wanted
    far = first * np.sign(wanted - without)
    at_far = gap(far) - wanted
    for _ in range(DOUBLINGS):
        short = at_near * at_far > 0
        if not short.any():
            break
        near, at_near = np.where(short, far, near), np.where(short, at_far, at_near)
        far = np.where(short, 2 * far, far)
        at_far = gap(far) - wanted
    for _ in range(SECANTS):
        done = (at_near * at_far >= 0) | (np.abs(at_far) <= TOLERANCE)
        if done.all():
            break
        slope = np.where(done, 1.0, at_far - at_near)
        new = np.where(done, far, far - at_far * (far - near) / slope)
        at_new = gap(new) - wanted
        crossed = at_new * at_far < 0
        near, at_near = np.where(crossed, far, near), np.where(crossed, at_far, at_near / 2)
        far, at_far = new, at_new
    return Multipliers(far, np.abs(at_far) <= TOLERANCE)
