"""What groups have in the top of lists once their labels are shuffled, from the top alone.

The labels of all known items of a list are an urn. Its places are gone through from the first,
and each known one gets a label drawn from what is left: that is what a shuffle of the whole
list does to its first places. So a shuffle costs a draw for each place of the longest top, and
nothing past it has to be there. Where whole lists are, `shuffles` is quicker.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled
from fairtopk.kernels.measures import Doubles, discounts
from fairtopk.kernels.random import advance, below, stream
from fairtopk.kernels.shuffles import GroupSums, Key, Ranked


def drawn_sums(
    heads: Ranked, size: NDArray[np.int64], ks: Sequence[int], *, rounds: int, key: Key
) -> GroupSums:
    """Return the sums of each list after each of `rounds` shuffles of its labels.

    Args:
        heads: The first places, at least as many as the longest top has; labels past those
            with an exposure are not needed.
        size: Known items of each group in the whole list, ``[Q, G]``.
        ks: Where to cut.
        rounds: How many shuffles.
        key: Of the random numbers.
    """
    (n_lists, n_groups), n_places = size.shape, min(heads.exposure.shape[1], ks[-1])
    shape = (n_lists, rounds, n_groups, len(ks))
    sums = GroupSums(np.zeros(shape), np.zeros(shape), np.zeros(shape))
    cut_of = np.searchsorted(ks, np.arange(n_places), side="right")
    left = np.empty(n_groups, np.int64)
    exposure = heads.exposure.astype(np.float64, copy=False)
    known = np.ascontiguousarray(heads.group[:, :n_places] >= 0)
    _add_draws(exposure, discounts(n_places), cut_of, known, size, left, *key, *sums)
    for part in sums:
        np.cumsum(part, axis=-1, out=part)
    return sums


@compiled
def _add_draws(
    exposure: Doubles,
    worth: Doubles,
    cut_of: NDArray[np.int64],
    known: NDArray[np.bool_],
    size: NDArray[np.int64],
    left: NDArray[np.int64],
    seed: int,
    first_list: int,
    first_round: int,
    exposures: Doubles,
    discount: Doubles,
    members: Doubles,
) -> None:
    """Add what each place gives to the first top that it is in, `cut_of`; `left` is room."""
    for row in range(len(size)):
        state = stream(seed, first_list + row, first_round)
        for one in range(members.shape[1]):
            n_left = np.int64(0)  # numba would compile `below` for a plain 0 by itself
            for label in range(len(left)):
                left[label] = size[row, label]
                n_left += left[label]
            for place in range(len(worth)):
                if known[row, place]:
                    state = advance(state)
                    drawn, label, cut = below(state, n_left), 0, cut_of[place]
                    while drawn >= left[label]:
                        drawn -= left[label]
                        label += 1
                    left[label] -= 1
                    n_left -= 1
                    exposures[row, one, label, cut] += exposure[row, place]
                    discount[row, one, label, cut] += worth[place]
                    members[row, one, label, cut] += 1
