"""What groups have in the top of ranked lists once their labels are shuffled.

The known labels of a list are dealt out to its known places at random. Those of the largest
group are not drawn for: they go where no other fell, and what that group has is what the others
leave. So a shuffle costs one draw for each item of the smaller groups, whatever the length of
the list.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled
from fairtopk.kernels.measures import Doubles, Floats, Whole, discounts
from fairtopk.kernels.random import advance, below, stream

Slots = NDArray[np.int64]


class Ranked(NamedTuple):
    """Lists in ranked order.

    Attributes:
        exposure: Softmax over the whole list, by place, as far as the longest top, ``[Q, H]``.
        group: Group numbers by place, -1 unknown and on padding, ``[Q, L]``.
    """

    exposure: Floats
    group: Whole


class Key(NamedTuple):
    """Where the random numbers of some shuffles come from.

    Attributes:
        seed: Of all shuffles.
        first_list: Number of the first list among all that are shuffled.
        first_round: Number of the first shuffle of each list.
    """

    seed: int
    first_list: int
    first_round: int


class GroupSums(NamedTuple):
    """Sums over the items of each group in each top, ``[Q, R, G, K]``; see `Sums`."""

    exposure: Doubles
    discount: Doubles
    members: Doubles


def shuffled_sums(
    lists: Ranked, n_groups: int, ks: Sequence[int], *, rounds: int, key: Key
) -> GroupSums:
    """Return the sums of each list after each of `rounds` shuffles of its labels."""
    (n_lists, n_places), n_cuts = lists.exposure.shape, len(ks)
    n_slots = lists.group.shape[1]
    # What each place gives: exposure, worth and number. One more stands for all that are in no
    # top, and gives nothing.
    gives = np.zeros((n_places + 1, 3))
    gives[:-1, 1], gives[:-1, 2] = discounts(n_places), 1
    sums = np.empty((3, n_lists, rounds, n_groups * n_cuts))
    _fill_shuffles(
        lists.exposure.astype(np.float64, copy=False),
        lists.group,
        gives,
        np.searchsorted(ks[:-1], np.arange(n_places + 1), side="right"),
        *key,
        np.empty((2, n_slots), np.int64),
        np.empty(n_groups, np.int64),
        np.empty((3, n_cuts)),
        np.empty((3, n_groups * n_cuts)),
        sums,
    )
    return GroupSums(*(part.reshape(n_lists, rounds, n_groups, n_cuts) for part in sums))


@compiled
def _fill_shuffles(
    exposure: Doubles,
    group: Whole,
    gives: Doubles,
    cut_of: Slots,
    seed: int,
    first_list: int,
    first_round: int,
    room: Slots,
    size: Slots,
    whole: Doubles,
    found: Doubles,
    sums: Doubles,
) -> None:
    """Fill in the sums of all shuffles.

    Args:
        exposure: See `Ranked`.
        group: See `Ranked`.
        gives: What each place gives; exposures are filled in, ``[H + 1, 3]``.
        cut_of: The first top that each place is in, ``[H + 1]``.
        seed: See `Key`, as the next two.
        first_list: See `Key`.
        first_round: See `Key`.
        room: For places with a known label, and labels that are drawn for, ``[2, L]``.
        size: Room for the number of items with each label, ``[G]``.
        whole: Room for what all known places of a list give to each top, ``[3, K]``.
        found: Room for what those of each label give, ``[3, G * K]``.
        sums: Filled, ``[3, Q, R, G * K]``.
    """
    places, labels = room[0], room[1]
    n_places, n_cuts, n_cells = exposure.shape[1], whole.shape[1], found.shape[1]
    for row in range(len(group)):
        for place in range(n_places):
            gives[place, 0] = exposure[row, place]
        for label in range(len(size)):
            size[label] = 0
        n_known, n_drawn, largest = 0, 0, 0
        for slot in range(group.shape[1]):
            label = group[row, slot]
            if label >= 0:
                size[label] += 1
                places[n_known] = min(slot, n_places)
                n_known += 1
        for label in range(len(size)):
            if size[label] > size[largest]:
                largest = label
        for slot in range(group.shape[1]):
            label = group[row, slot]
            if label >= 0 and label != largest:
                labels[n_drawn] = label * n_cuts
                n_drawn += 1
        for part in range(3):
            for cut in range(n_cuts):
                whole[part, cut] = 0.0
            for known in range(n_known):
                whole[part, cut_of[places[known]]] += gives[places[known], part]
        state = stream(seed, first_list + row, first_round)
        for one in range(sums.shape[2]):
            for part in range(3):
                for cell in range(n_cells):
                    found[part, cell] = 0.0
            # What the last shuffle left is as good a start as any.
            for drawn in range(n_drawn):
                state = advance(state)
                other = drawn + below(state, n_known - drawn)
                place = places[other]
                places[other] = places[drawn]
                places[drawn] = place
                cell = labels[drawn] + cut_of[place]
                found[0, cell] += gives[place, 0]
                found[1, cell] += gives[place, 1]
                found[2, cell] += gives[place, 2]
            # The largest group has what is left of the whole; a top holds the shorter ones.
            for part in range(3):
                for cut in range(n_cuts):
                    left = whole[part, cut]
                    for cell in range(cut, n_cells, n_cuts):
                        left -= found[part, cell]
                    found[part, largest * n_cuts + cut] = left
                for first in range(0, n_cells, n_cuts):
                    total = 0.0
                    for cell in range(first, first + n_cuts):
                        total += found[part, cell]
                        sums[part, row, one, cell] = total
