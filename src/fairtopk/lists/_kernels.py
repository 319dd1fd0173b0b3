"""Drawing ranking lists from CSR arrays: some rated items of a user, and unrated ones.

Each list has its own random stream, keyed by (seed, round, user): what a user's list holds does
not depend on the batch it is drawn in, nor on the number of threads. Rounds of training are
epochs, from 0; those of evaluation are parts, from -2 down (-1 is a random split's), so that no
two streams are one. Otherwise a model would be trained on the very items it is measured with.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled
from fairtopk.kernels.random import advance, below, stream, uniform
from fairtopk.kernels.ranking import UserItems


class Drawn(NamedTuple):
    """Lists of L slots, of which some hold an item that the user has rated.

    Attributes:
        item: Item numbers, ``[Q, L]``; 0 on padding.
        slot: Where the rated items stand among all ratings, -1 elsewhere, ``[Q, L]``, or
            ``[Q, R]`` if they can be in the first R slots only.
        mask: False on padding, ``[Q, L]``.
    """

    item: NDArray[np.int32]
    slot: NDArray[np.int64]
    mask: NDArray[np.bool_]


def training_lists(
    rated: UserItems,
    head: NDArray[np.int32],
    n_items: int,
    sizes: tuple[int, int, int],
    key: tuple[int, int],
) -> Drawn:
    """Return lists of rated items, of other ones, and of each user's head.

    Each of the three parts of a list is drawn without replacement; the second from the items
    that are neither rated nor in the head.

    Args:
        rated: The users, and the items of their training ratings.
        head: Items that the users have not rated, -1 past the last, ``[Q, M]``.
        n_items: Size of the catalogue.
        sizes: How many items of each part a list should hold. Where a user has fewer, the rest
            of that part of the list is padding.
        key: Seed and round (epoch) of the random streams.
    """
    n_users, length = len(rated.user), sum(sizes)
    drawn = Drawn(
        np.zeros((n_users, length), np.int32),
        np.full((n_users, sizes[0]), -1, np.int64),
        np.zeros((n_users, length), np.bool_),
    )
    taken, known = np.zeros(n_items, np.bool_), np.empty(n_items, np.int32)
    room = (taken, known, np.empty(sizes[2], np.int64))
    _fill_training(rated, head, sizes[1], key, room, drawn)
    return drawn


@compiled
def _fill_training(
    rated: UserItems,
    head: NDArray[np.int32],
    unrated: int,
    key: tuple[int, int],
    room: tuple[NDArray[np.bool_], NDArray[np.int32], NDArray[np.int64]],
    drawn: Drawn,
) -> None:
    """Fill the lists; `room` is for flags of items, known items, and places in the head."""
    taken, known, places = room
    n_rated = drawn.slot.shape[1]
    for row in range(len(rated.user)):
        user = rated.user[row]
        start, stop = rated.offsets[user], rated.offsets[user + 1]
        items, mask, slots = drawn.item[row], drawn.mask[row], drawn.slot[row]
        state = draw_slots(start, stop, stream(key[0], key[1], user), slots)
        for place in range(min(n_rated, stop - start)):
            items[place] = rated.item[slots[place]]
            mask[place] = True
        n_known, n_head = 0, 0
        for slot in range(start, stop):
            known[n_known] = rated.item[slot]
            n_known += 1
        while n_head < head.shape[1] and head[row, n_head] >= 0:
            known[n_known] = head[row, n_head]
            n_known += 1
            n_head += 1
        others = items[n_rated : n_rated + unrated]
        count, state = draw_others(known[:n_known], taken, state, others)
        for place in range(n_rated, n_rated + count):
            mask[place] = True
        state = draw_slots(0, n_head, state, places)
        for place in range(min(len(places), n_head)):
            items[n_rated + unrated + place] = head[row, places[place]]
            mask[n_rated + unrated + place] = True


def evaluation_lists(
    rated: UserItems,
    held_out: NDArray[np.bool_],
    n_items: int,
    sizes: tuple[int, int],
    key: tuple[int, int],
) -> Drawn:
    """Return each user's held-out items among items the user never rated, shuffled.

    The order is shuffled so that a tie of scores, broken by position, favours no one; padding
    comes last.

    Args:
        rated: The users, and the items of all their ratings.
        held_out: Which ratings are to be ranked.
        n_items: Size of the catalogue.
        sizes: The most held-out items of a user, and how many others a list should hold.
        key: Seed of the random streams, and number of the part, from 1.
    """
    shape = (len(rated.user), sum(sizes))
    drawn = Drawn(
        np.zeros(shape, np.int32), np.full(shape, -1, np.int64), np.zeros(shape, np.bool_)
    )
    taken, stream_key = np.zeros(n_items, np.bool_), (key[0], -1 - key[1])
    _fill_evaluation(rated, held_out, sizes[1], stream_key, taken, drawn)
    return drawn


@compiled
def _fill_evaluation(
    rated: UserItems,
    held_out: NDArray[np.bool_],
    unrated: int,
    key: tuple[int, int],
    taken: NDArray[np.bool_],
    drawn: Drawn,
) -> None:
    for row in range(len(rated.user)):
        user = rated.user[row]
        start, stop = rated.offsets[user], rated.offsets[user + 1]
        items, slots = drawn.item[row], drawn.slot[row]
        count = 0
        for slot in range(start, stop):
            if held_out[slot]:
                items[count] = rated.item[slot]
                slots[count] = slot
                count += 1
        state, others = stream(key[0], key[1], user), items[count : count + unrated]
        found, state = draw_others(rated.item[start:stop], taken, state, others)
        count += found
        for place in range(count - 1, 0, -1):
            state = advance(state)
            other = below(state, place + 1)
            items[place], items[other] = items[other], items[place]
            slots[place], slots[other] = slots[other], slots[place]
        for place in range(count):
            drawn.mask[row, place] = True


def group_lists(
    users: NDArray[np.integer],
    groups: tuple[NDArray[np.int64], NDArray[np.int32]],
    size: int,
    key: tuple[int, int],
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return `size` items of each group for each user, drawn without replacement.

    Args:
        users: For whom, ``[Q]``.
        groups: CSR offsets of the groups, and the items of each.
        size: How many of each group; a smaller group has padding.
        key: Seed and round (epoch) of the random streams.

    Returns:
        Items ``[Q, G * size]`` (0 on padding) and their groups (-1 on padding).
    """
    shape = (len(users), (len(groups[0]) - 1) * size)
    lists, label = np.zeros(shape, np.int32), np.full(shape, -1, np.int32)
    _fill_groups(users, groups, key, np.empty(size, np.int64), lists, label)
    return lists, label


@compiled
def _fill_groups(
    users: NDArray[np.integer],
    groups: tuple[NDArray[np.int64], NDArray[np.int32]],
    key: tuple[int, int],
    slots: NDArray[np.int64],
    lists: NDArray[np.int32],
    label: NDArray[np.int32],
) -> None:
    offsets, item = groups
    n_groups, size = len(offsets) - 1, len(slots)
    for row in range(len(users)):
        # The complement of the user keeps this stream apart from that of the user's list.
        state = stream(key[0], key[1], -1 - users[row])
        for group in range(n_groups):
            start, stop = offsets[group], offsets[group + 1]
            state = draw_slots(start, stop, state, slots)
            for place in range(min(size, stop - start)):
                lists[row, group * size + place] = item[slots[place]]
                label[row, group * size + place] = group


@compiled
def draw_slots(start: int, stop: int, state: np.uint64, out: NDArray[np.int64]) -> np.uint64:
    """Fill `out` with distinct slots of ``[start, stop)``, all of them if they are too few.

    Floyd's algorithm: every set of slots is equally likely; the rest of `out` is left alone.
    """
    wanted = min(len(out), stop - start)
    for place in range(wanted):
        newest = stop - wanted + place
        state = advance(state)
        drawn = start + below(state, newest - start + 1)
        for earlier in range(place):
            if out[earlier] == drawn:
                drawn = newest
                break
        out[place] = drawn
    return state


@compiled
def draw_others(
    owned: NDArray[np.int32], taken: NDArray[np.bool_], state: np.uint64, out: NDArray[np.int32]
) -> tuple[int, np.uint64]:
    """Fill `out` with distinct items outside `owned`; return how many, and the new state.

    Args:
        owned: Items to leave out, no item twice.
        taken: Scratch, one flag per item of the catalogue, all False before and after.
        state: The random stream.
        out: Where to write; left alone past the returned count.
    """
    n_items = len(taken)
    free = n_items - len(owned)
    wanted = min(len(out), free)
    for one in owned:
        taken[one] = True
    if 2 * wanted <= free and 2 * free >= n_items:  # at least every fourth draw is accepted
        for place in range(wanted):
            state = advance(state)
            drawn = below(state, n_items)
            while taken[drawn]:
                state = advance(state)
                drawn = below(state, n_items)
            taken[drawn] = True
            out[place] = drawn
    else:  # selection sampling over the catalogue
        place, to_come = 0, free
        for one in range(n_items):
            if taken[one]:
                continue
            state = advance(state)
            if uniform(state) * to_come < wanted - place:
                out[place] = one
                place += 1
            to_come -= 1
    for one in owned:
        taken[one] = False
    for place in range(wanted):
        taken[out[place]] = False
    return wanted, state
