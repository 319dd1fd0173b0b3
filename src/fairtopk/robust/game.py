"""Both players of the game on many lists, piece by piece on all threads."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from fairtopk.kernels.doubly_stochastic import Floats, Precision, project
from fairtopk.kernels.minimax import answer
from fairtopk.kernels.threads import run_all
from fairtopk.robust.sides import Flags, Sides, bonuses

TOLERANCE = 1e-8  # of the sums of rows and columns of P
PIECE = 32  # lists


class Play(NamedTuple):
    """What the players do.

    Attributes:
        relevance: The adversary's q, 0 on padding, ``[Q, L]``.
        exposure: The ranker's P v, 0 on padding, ``[Q, L]``.
        value: What the game is worth on each list, ``[Q]``.
    """

    relevance: Floats
    exposure: Floats
    value: Floats


def exposures(relevance: Floats, sides: Sides, mask: Flags, lam: Floats, *, mu: float) -> Play:
    """Return the ranker's best P v where relevance is given.

    Args:
        relevance: q, ``[Q, L]``.
        sides: Of the lists.
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
    """Return what both players do where the appeal of items, -X theta, is given.

    Args:
        appeal: ``[Q, L]``.
        sides: Of the lists.
        mask: False on padding, ``[Q, L]``.
        lam: Multiplier of the gap, ``[Q]`` or ``[1]``.
        mu: Smoothing.
    """
    bonus, precision = lam[:, None] * sides.rate, Precision(mu, TOLERANCE)
    found = Play(np.zeros(mask.shape), np.zeros(mask.shape), np.zeros(len(mask)))

    def work(part: slice) -> None:
        outs = (one[part] for one in found)
        answer(appeal[part], sides.kind[part], mask[part], bonus[part], precision, *outs)

    _by_pieces(work, len(mask))
    return found


def _by_pieces(work: Callable[[slice], None], n_lists: int) -> None:
    run_all([partial(work, slice(start, start + PIECE)) for start in range(0, n_lists, PIECE)])
