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

from fairtopk.kernels.compiled import compiled, inlined
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


class Room(NamedTuple):
    """Room to shuffle one list of up to L places, n of them in a top.

    Attributes:
        known: Places with a known label, ``[L]``.
        dealt: Labels that are drawn for, ``[L]``.
        size: Items of each group, ``[G]``.
        gives: Exposure, worth and number of each place; of the last, which stands for all in no
            top, only the number, ``[n + 1, 3]``.
        whole: Sums of what places give from the end of one top to that of the next, and beyond
            the last, ``[K + 1, 3]``.
        found: The same of each group, ``[G, K + 1, 3]``.
    """

    known: NDArray[np.int64]
    dealt: NDArray[np.int64]
    size: NDArray[np.int64]
    gives: Doubles
    whole: Doubles
    found: Doubles


def shuffled_sums(
    lists: Ranked, n_groups: int, ks: Sequence[int], *, rounds: int, key: Key
) -> GroupSums:
    """Return the sums of each list after each of `rounds` shuffles of its labels."""
    (n_lists, n_places), n_cuts = lists.exposure.shape, len(ks)
    n_slots = lists.group.shape[1]
    sums = GroupSums(*(np.empty((n_lists, rounds, n_groups, n_cuts)) for _ in range(3)))
    cut_of = np.append(np.searchsorted(ks, np.arange(n_places), side="right"), n_cuts)
    gives = np.zeros((n_places + 1, 3))
    gives[:-1, 1], gives[:, 2] = discounts(n_places), 1.0
    room = Room(
        known=np.empty(n_slots, np.int64),
        dealt=np.empty(n_slots, np.int64),
        size=np.empty(n_groups, np.int64),
        gives=gives,
        whole=np.empty((n_cuts + 1, 3)),
        found=np.empty((n_groups, n_cuts + 1, 3)),
    )
    _fill_shuffles(lists, cut_of, key, room, sums)
    return sums


@compiled
def _fill_shuffles(
    lists: Ranked, cut_of: NDArray[np.int64], key: Key, room: Room, sums: GroupSums
) -> None:
    """Fill in the sums of all shuffles; `cut_of` is the first top that each place is in."""
    n_lists, rounds, n_groups, n_cuts = sums.members.shape
    n_places, known = lists.exposure.shape[1], room.known
    gives, found = room.gives, room.found
    for row in range(n_lists):
        for place in range(n_places):
            gives[place, 0] = lists.exposure[row, place]
        n_known, largest, n_dealt = _find_labels(lists.group[row], cut_of, room)
        state = stream(key.seed, key.first_list + row, key.first_round)
        for one in range(rounds):
            _clear(found)
            # What the last shuffle left is as good a start as any.
            for drawn in range(n_dealt):
                state = advance(state)
                other = drawn + below(state, n_known - drawn)
                place, known[other] = known[other], known[drawn]
                known[drawn] = place
                _add(gives, min(place, n_places), cut_of, found[room.dealt[drawn]])
            _finish(room.whole, largest, found)
            for of_group in range(n_groups):
                for cut in range(n_cuts):
                    sums.exposure[row, one, of_group, cut] = found[of_group, cut, 0]
                    sums.discount[row, one, of_group, cut] = found[of_group, cut, 1]
                    sums.members[row, one, of_group, cut] = found[of_group, cut, 2]


@compiled
def _find_labels(group: Whole, cut_of: NDArray[np.int64], room: Room) -> tuple[int, int, int]:
    """Return how many labels are known, the largest group, how many labels it leaves.

    The places of the known labels, those that are left, and what all places give are filled in.
    """
    for one in range(len(room.size)):
        room.size[one] = 0
    for cut in range(len(room.whole)):
        for one in range(room.whole.shape[1]):
            room.whole[cut, one] = 0.0
    n_known, largest, n_dealt = 0, 0, 0
    for slot in range(len(group)):
        if group[slot] >= 0:
            room.known[n_known] = slot
            n_known += 1
            room.size[group[slot]] += 1
            _add(room.gives, min(slot, len(cut_of) - 1), cut_of, room.whole)
    for one in range(len(room.size)):
        if room.size[one] > room.size[largest]:
            largest = one
    for slot in range(len(group)):
        if group[slot] >= 0 and group[slot] != largest:
            room.dealt[n_dealt] = group[slot]
            n_dealt += 1
    return n_known, largest, n_dealt


@inlined
def _clear(found: Doubles) -> None:
    """Fill with 0, in loops: an assignment to the whole takes long to compile."""
    for one in range(found.shape[0]):
        for cut in range(found.shape[1]):
            for part in range(found.shape[2]):
                found[one, cut, part] = 0.0


@compiled
def _add(gives: Doubles, place: int, cut_of: NDArray[np.int64], found: Doubles) -> None:
    """Add what a place gives to the first top that it is in."""
    cut = cut_of[place]
    found[cut, 0] += gives[place, 0]
    found[cut, 1] += gives[place, 1]
    found[cut, 2] += gives[place, 2]


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
