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
    sums = GroupSums(*(np.empty((n_lists, rounds, n_groups, n_cuts)) for _ in range(3)))
    # One more place stands for all that are in no top, and one more cut holds it.
    worth = np.append(discounts(n_places), 0.0)
    cut_of = np.append(np.searchsorted(ks, np.arange(n_places), side="right"), n_cuts)
    _fill_shuffles(lists, cut_of, worth, key, sums)
    return sums


@compiled
def _fill_shuffles(
    lists: Ranked, cut_of: NDArray[np.int64], worth: Doubles, key: Key, sums: GroupSums
) -> None:
    """Fill in the sums of all shuffles; `cut_of` is the first top that each place is in."""
    _, rounds, n_groups, n_cuts = sums.members.shape
    (n_lists, n_slots), n_places = lists.group.shape, lists.exposure.shape[1]
    known, dealt = np.empty(n_slots, np.int64), np.empty(n_slots, np.int64)
    size, exposure = np.empty(n_groups, np.int64), np.zeros(n_places + 1)
    whole, found = np.empty((n_cuts + 1, 3)), np.empty((n_groups, n_cuts + 1, 3))
    for row in range(n_lists):
        group = lists.group[row]
        exposure[:n_places] = lists.exposure[row]
        n_known = _find_known(group, known, size)
        largest = int(np.argmax(size))
        n_dealt = 0
        whole[:] = 0.0
        for place in known[:n_known]:
            if group[place] != largest:
                dealt[n_dealt] = group[place]
                n_dealt += 1
            _add(min(place, n_places), cut_of, exposure, worth, whole)
        state = stream(key.seed, key.first_list + row, key.first_round)
        for one in range(rounds):
            found[:] = 0.0
            # What the last shuffle left is as good a start as any.
            for drawn in range(n_dealt):
                state = advance(state)
                other = drawn + below(state, n_known - drawn)
                place, known[other] = known[other], known[drawn]
                known[drawn] = place
                _add(min(place, n_places), cut_of, exposure, worth, found[dealt[drawn]])
            _finish(whole, largest, found)
            for of_group in range(n_groups):
                for cut in range(n_cuts):
                    sums.exposure[row, one, of_group, cut] = found[of_group, cut, 0]
                    sums.discount[row, one, of_group, cut] = found[of_group, cut, 1]
                    sums.members[row, one, of_group, cut] = found[of_group, cut, 2]


@compiled
def _add(
    place: int, cut_of: NDArray[np.int64], exposure: Doubles, worth: Doubles, found: Doubles
) -> None:
    """Add what a place gives to the first top that it is in."""
    cut = cut_of[place]
    found[cut, 0] += exposure[place]
    found[cut, 1] += worth[place]
    found[cut, 2] += 1


@compiled
def _find_known(group: Whole, known: NDArray[np.int64], size: NDArray[np.int64]) -> int:
    """Return how many labels are known; fill in their places and each group's size."""
    size[:] = 0
    count = 0
    for place in range(len(group)):
        if group[place] >= 0:
            known[count] = place
            count += 1
            size[group[place]] += 1
    return count


@compiled
def _finish(whole: Doubles, largest: int, found: Doubles) -> None:
    """Give the largest group what is left of the whole, and let each top hold the shorter."""
    n_groups, n_cuts, n_sums = found.shape
    for cut in range(n_cuts):
        for one in range(n_sums):
            left = whole[cut, one]
            for of_group in range(n_groups):
                left -= found[of_group, cut, one]
            found[largest, cut, one] = left
    for of_group in range(n_groups):
        for cut in range(1, n_cuts):
            for one in range(n_sums):
                found[of_group, cut, one] += found[of_group, cut - 1, one]
