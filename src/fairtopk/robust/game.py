"""The game on many lists: its two sides, its players, and the multiplier of the gap.

f_i is 1 / n_a for the n_a items of group 0, -1 / n_b for those of all other groups, 0 if the
group is unknown. By treatment each is divided by the mean relevance of its side.

The value of the game is convex in the signed multiplier, with the gap as its slope: the gap
never falls as the multiplier rises. So the search brackets the multiplier that leaves the
wanted gap, and closes in on it by secants (the Illinois rule).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairtopk.errors import InputError
from fairtopk.kernels.threads import run_all
from fairtopk.robust._kernels import KINDS, Floats, Precision, answer, project

TOLERANCE = 1e-8  # of the sums of rows and columns of P
GAP_TOLERANCE = 1e-7  # of a gap
DOUBLINGS = 4  # of a multiplier, at most, before it is given up
SECANTS = 100
PIECE = 32  # lists in a piece of work

Flags = NDArray[np.bool_]


class Play(NamedTuple):
    """The answers of both players."""

    relevance: Floats  # the adversary's q, 0 on padding, [Q, L]
    price: Floats  # the price of exposure of each item, q + lam f, [Q, L]
    exposure: Floats  # the ranker's P v, 0 on padding, [Q, L]
    value: Floats  # value of the game on each list, [Q]
    gap: Floats  # f^T P v, [Q]; 0 where a list lacks a side


class Game(NamedTuple):
    """The game on some lists, without the multiplier."""

    kind: NDArray[np.int8]  # side of an item: 0 group 0, 1 other groups, 2 neither, [Q, L]
    rate: Floats  # f of each kind, [Q, 3]; zeros where a list lacks a side
    defined: Flags  # which lists have both sides, [Q]
    mask: Flags  # False on padding, [Q, L]
    mu: float  # smoothing
    appeal: Floats = np.empty((0, 0))  # -X theta, which the adversary answers to, [Q, L]
    relevance: Floats | None = None  # q, if it is given; the ranker alone plays then, [Q, L]

    def play(self, lam: Floats) -> Play:
        """Return the best answers, given multipliers of the gap ``[Q]`` or ``[1]``."""
        f = np.take_along_axis(self.rate, self.kind.astype(np.int64), axis=-1)
        by_kind, bonus = lam[:, None] * self.rate, lam[:, None] * f
        exposure, value, relevance = np.zeros(f.shape), np.zeros(len(f)), np.zeros(f.shape)
        if self.relevance is not None:
            relevance = self.relevance
        price, precision = relevance + bonus, Precision(self.mu, TOLERANCE)
        pieces: list[Callable[[], None]] = []
        for start in range(0, len(f), PIECE):
            part = slice(start, start + PIECE)
            mask, filled = self.mask[part], (exposure[part], value[part])
            if self.relevance is not None:
                pieces.append(partial(project, price[part], mask, precision, filled))
            else:
                given = (self.appeal[part], self.kind[part], mask, by_kind[part])
                pieces.append(partial(answer, *given, precision, (relevance[part], *filled)))
        run_all(pieces)
        return Play(relevance, relevance + bonus, exposure, value, (f * exposure).sum(-1))


def game_of(group: NDArray[np.integer], mask: Flags, merit: Floats, *, mu: float) -> Game:
    """Return the game on lists.

    Args:
        group: Group numbers, -1 unknown, ``[Q, L]``.
        mask: False on padding, ``[Q, L]``.
        merit: What each side's exposure is divided by, ``[2]`` or ``[Q, 2]``.
        mu: Smoothing.
    """
    kind = np.where(mask & (group >= 0), np.minimum(group, 1), KINDS - 1).astype(np.int8)
    counts = np.stack([(kind == side).sum(-1) for side in (0, 1)], axis=-1)
    defined: Flags = counts.min(-1) > 0
    rate = np.zeros((len(kind), KINDS))
    rate[:, :2] = np.array([1.0, -1.0]) / (np.maximum(counts, 1) * merit)
    rate[~defined] = 0.0
    return Game(kind, rate, defined, mask, mu)


def multipliers(games: Sequence[Game], *, share: float, shared: bool) -> tuple[Floats, Flags]:
    """Return the multipliers that take a share of the gap away, and which of them do.

    The others are the largest of the search: no ranking makes those groups equal. That does not
    happen by parity.

    Args:
        games: The lists; one game, unless they share a multiplier.
        share: Share of the gap without a multiplier: 1 leaves none, 0 gives multipliers of 0.
        shared: Whether there is one for the mean gap of all lists, ``[1]``, which is refused if
            it misses the wanted gap, or one for the gap of each, ``[Q]``.
    """
    n_defined = max(sum(int(game.defined.sum()) for game in games), 1)
    # Relevance is in [0, 1], so that a bonus of 1 puts all items of one side above the other's;
    # or of mu if that is larger, because prices move P by their ratio to mu.
    firsts = []
    for game in games:
        lead = np.where(game.defined, game.rate[:, 0] - game.rate[:, 1], np.inf)
        firsts.append(max(game.mu, 1.0) / lead)
    first = np.concatenate(firsts or [np.zeros(1)])
    if shared:
        first = first.max(keepdims=True)

    def gap(lam: Floats) -> Floats:
        found = [game.play(lam).gap for game in games]
        if shared:
            return np.array([sum(one.sum() for one in found) / n_defined])
        return np.concatenate(found)

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
    met: Flags = np.abs(at_far) <= GAP_TOLERANCE
    if shared and not met.all():
        raise InputError(
            "robust: no ranking gives the groups exposure in proportion to their mean "
            'relevance; lower method.c, or set method.robust.notion to "parity"'
        )
    return far, met
