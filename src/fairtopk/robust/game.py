"""The game on many lists: its two sides, its players, and the multiplier of the gap.

f_i is 1 / n_a for the n_a items of group 0, -1 / n_b for those of all other groups, 0 if the
group is unknown. By treatment each is divided by the mean relevance of its side.

The value of the game is convex in the signed multiplier, with the gap as its slope: the gap
never falls as the multiplier rises. So the search brackets the multiplier that leaves the
wanted gap, and closes in on it by secants (the Illinois rule).
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairtopk.errors import InputError
from fairtopk.kernels.threads import run_all
from fairtopk.robust._kernels import KINDS, Floats, Play, Precision, answer, project

TOLERANCE = 1e-8  # of the sums of rows and columns of P
GAP_TOLERANCE = 1e-7  # of a gap
DOUBLINGS = 4  # of a multiplier, at most, before it is given up
SECANTS = 100
PIECE = 32  # lists in a piece of work

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


def exposures(relevance: Floats, sides: Sides, mask: Flags, lam: Floats, *, mu: float) -> Play:
    """Return the ranker's best P v, given relevance.

    Args:
        relevance: q, ``[Q, L]``.
        sides: Sides of the lists.
        mask: False on padding, ``[Q, L]``.
        lam: Multiplier of the gap, ``[Q]`` or ``[1]``.
        mu: Smoothing.
    """
    price, precision = relevance + bonuses(sides, lam), Precision(mu, TOLERANCE)
    found = Play(relevance, np.zeros(mask.shape), np.zeros(len(mask)))

    def work(part: slice) -> None:
        project(price[part], mask[part], precision, found.exposure[part], found.value[part])

    _by_pieces(work, len(mask))
    return found


def play(appeal: Floats, sides: Sides, mask: Flags, lam: Floats, *, mu: float) -> Play:
    """Return the answers of both players, given the appeal of items, -X theta.

    Args:
        appeal: ``[Q, L]``.
        sides: Sides of the lists.
        mask: False on padding, ``[Q, L]``.
        lam: Multiplier of the gap, ``[Q]`` or ``[1]``.
        mu: Smoothing.
    """
    bonus, precision = lam[:, None] * sides.rate, Precision(mu, TOLERANCE)
    found = Play(np.zeros(mask.shape), np.zeros(mask.shape), np.zeros(len(mask)))

    def work(part: slice) -> None:
        into = Play(*(one[part] for one in found))
        answer(appeal[part], sides.kind[part], mask[part], bonus[part], precision, into)

    _by_pieces(work, len(mask))
    return found


def _by_pieces(work: Callable[[slice], None], n_lists: int) -> None:
    run_all([partial(work, slice(start, start + PIECE)) for start in range(0, n_lists, PIECE)])


class Multipliers(NamedTuple):
    """Multipliers, ``[N]``, and which of them leave the wanted gap, ``[N]``.

    The others are the largest that were tried: no ranking makes those groups equal. That does
    not happen by parity.
    """

    lam: Floats
    met: Flags

    def of_all(self) -> Floats:
        """Return the one multiplier of all lists, refusing one that misses the wanted gap."""
        if not self.met.all():
            raise InputError(
                "robust: no ranking gives the groups exposure in proportion to their mean "
                'relevance; lower method.c, or set method.robust.notion to "parity"'
            )
        return self.lam


def first_multipliers(sides: Sides, *, mu: float) -> Floats:
    """Return the multiplier that puts all items of one side above the other's, ``[Q]``.

    Relevance is in [0, 1], so this is a bonus of 1, or of mu if that is larger, because prices
    move P by their ratio to mu; 0 if a list lacks a side.
    """
    lead = sides.rate[:, 0] - sides.rate[:, 1]
    bonus = max(mu, 1.0)
    found: Floats = np.where(sides.defined, bonus / np.where(sides.defined, lead, 1.0), 0.0)
    return found


def multipliers(gap: Callable[[Floats], Floats], first: Floats, *, share: float) -> Multipliers:
    """Return the multipliers that take a share of the gap away.

    Args:
        gap: Takes multipliers and returns the gap at each, ``[N]``.
        first: The first to try, whatever their sign, ``[N]``.
        share: Share of the gap without a multiplier: 1 leaves none, 0 gives multipliers of 0.
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
        done = (at_near * at_far >= 0) | (np.abs(at_far) <= GAP_TOLERANCE)
        if done.all():
            break
        slope = np.where(done, 1.0, at_far - at_near)
        new = np.where(done, far, far - at_far * (far - near) / slope)
        at_new = gap(new) - wanted
        crossed = at_new * at_far < 0
        near, at_near = np.where(crossed, far, near), np.where(crossed, at_far, at_near / 2)
        far, at_far = new, at_new
    return Multipliers(far, np.abs(at_far) <= GAP_TOLERANCE)
