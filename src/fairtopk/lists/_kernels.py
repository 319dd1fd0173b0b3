"""Drawing ranking lists from CSR arrays: some rated items of a user, and unrated ones.

Each list has its own random stream, keyed by (seed, round, user): what a user's list holds does
not depend on the batch it is drawn in, nor on the number of threads. Rounds of training are
epochs, from 0; those of evaluation are parts, from -2 down (-1 is a random split's), so that no
two streams are one. Otherwise a model would be trained on the very items it is measured with.
"""

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled, inlined
from fairtopk.kernels.random import advance, below, stream, uniform


def training_lists(
    users: NDArray[np.integer],
    offsets: NDArray[np.int64],
    item: NDArray[np.int32],
    n_items: int,
    sizes: tuple[int, int],
    key: tuple[int, int],
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.bool_]]:
    """Return lists of rated and unrated items, drawn without replacement.

    Args:
        users: Whose lists, ``[Q]``.
        offsets: CSR offsets of the training ratings.
        item: Their items.
        n_items: Size of the catalogue.
        sizes: How many rated and how many unrated items a list should hold, R and U. Where a
            user has fewer, the rest of that part of the list is padding.
        key: Seed and round (epoch) of the random streams.

    Returns:
        Items ``[Q, R + U]``, rated ones first (0 on padding); the slot of each rated item
        ``[Q, R]`` (-1 on padding); and a mask ``[Q, R + U]``, False on padding.
    """
    rated, unrated = sizes
    lists = np.zeros((len(users), rated + unrated), np.int32)
    slots = np.full((len(users), rated), -1, np.int64)
    mask = np.zeros((len(users), rated + unrated), np.bool_)
    _fill_training(users, offsets, item, np.zeros(n_items, np.bool_), key, lists, slots, mask)
    return lists, slots, mask


@compiled
def _fill_training(
    users: NDArray[np.integer],
    offsets: NDArray[np.int64],
    item: NDArray[np.int32],
    taken: NDArray[np.bool_],
    key: tuple[int, int],
    lists: NDArray[np.int32],
    slots: NDArray[np.int64],
    mask: NDArray[np.bool_],
) -> None:
    rated = slots.shape[1]
    for row in range(len(users)):
        user = users[row]
        start, stop = offsets[user], offsets[user + 1]
        state = stream(key[0], key[1], user)
        state = draw_rated(start, stop, item, state, slots[row], lists[row], mask[row])
        count, state = draw_others(item[start:stop], taken, state, lists[row, rated:])
        for place in range(rated, rated + count):
            mask[row, place] = True


@compiled
def catalogue_lists(
    users: NDArray[np.integer],
    offsets: NDArray[np.int64],
    item: NDArray[np.int32],
    head: NDArray[np.int32],
    n_items: int,
    sizes: tuple[int, int, int],
    key: tuple[int, int],
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.bool_]]:
    """Return lists of rated items, of other ones, and of the head of each user.

    Arguments and results are those of `training_lists`, with a third part of T slots: `sizes`
    are R, U and T, and `head` holds items that the user has not rated, -1 past the last,
    ``[Q, M]``. The second part of a list is drawn from what is neither rated nor in the head,
    the third from the head.
    """
    rated, unrated, top = sizes
    length = rated + unrated + top
    lists = np.zeros((len(users), length), np.int32)
    slots = np.full((len(users), rated), -1, np.int64)
    mask = np.zeros((len(users), length), np.bool_)
    taken = np.zeros(n_items, np.bool_)
    places = np.empty(top, np.int64)
    for row in range(len(users)):
        user = users[row]
        start, stop = offsets[user], offsets[user + 1]
        state = stream(key[0], key[1], user)
        state = draw_rated(start, stop, item, state, slots[row], lists[row], mask[row])
        n_head = 0
        while n_head < head.shape[1] and head[row, n_head] >= 0:
            n_head += 1
        known = np.concatenate((item[start:stop], head[row, :n_head]))
        past = lists[row, rated : rated + unrated]
        count, state = draw_others(known, taken, state, past)
        mask[row, rated : rated + count] = True
        state = draw_slots(0, n_head, state, places)
        for place in range(min(top, n_head)):
            lists[row, rated + unrated + place] = head[row, places[place]]
            mask[row, rated + unrated + place] = True
    return lists, slots, mask


def evaluation_lists(
    users: NDArray[np.integer],
    offsets: NDArray[np.int64],
    item: NDArray[np.int32],
    held_out: NDArray[np.bool_],
    n_items: int,
    sizes: tuple[int, int],
    key: tuple[int, int],
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.bool_]]:
    """Return each user's held-out items among items the user never rated, shuffled.

    The order is shuffled so that a tie of scores, broken by position, favours no one. Arguments
    are those of `training_lists`, except that `offsets` and `item` cover all ratings,
    `held_out` marks those to be ranked, and the round is the number of their part, from 1.

    Returns:
        Items ``[Q, R + U]`` (0 on padding, which comes last); the slot of each held-out item
        ``[Q, R + U]`` (-1 elsewhere); and a mask ``[Q, R + U]``, False on padding.
    """
    rated, unrated = sizes
    lists = np.zeros((len(users), rated + unrated), np.int32)
    slots = np.full((len(users), rated + unrated), -1, np.int64)
    taken, length = np.zeros(n_items, np.bool_), np.empty(len(users), np.int64)
    stream_key = (key[0], -1 - key[1])
    _fill_evaluation(
        users, offsets, item, held_out, unrated, taken, stream_key, lists, slots, length
    )
    return lists, slots, np.arange(rated + unrated) < length[:, None]


@compiled
def _fill_evaluation(
    users: NDArray[np.integer],
    offsets: NDArray[np.int64],
    item: NDArray[np.int32],
    held_out: NDArray[np.bool_],
    unrated: int,
    taken: NDArray[np.bool_],
    key: tuple[int, int],
    lists: NDArray[np.int32],
    slots: NDArray[np.int64],
    length: NDArray[np.int64],
) -> None:
    for row in range(len(users)):
        user = users[row]
        start, stop = offsets[user], offsets[user + 1]
        count = 0
        for slot in range(start, stop):
            if held_out[slot]:
                lists[row, count] = item[slot]
                slots[row, count] = slot
                count += 1
        state = stream(key[0], key[1], user)
        others = lists[row, count : count + unrated]
        drawn, state = draw_others(item[start:stop], taken, state, others)
        count += drawn
        length[row] = count
        for place in range(count - 1, 0, -1):
            state = advance(state)
            other = below(state, place + 1)
            lists[row, place], lists[row, other] = lists[row, other], lists[row, place]
            slots[row, place], slots[row, other] = slots[row, other], slots[row, place]


def group_lists(
    users: NDArray[np.integer],
    offsets: NDArray[np.int64],
    item: NDArray[np.int32],
    size: int,
    key: tuple[int, int],
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return `size` items of each group for each user, drawn without replacement.

    Args:
        users: For whom, ``[Q]``.
        offsets: CSR offsets of the groups.
        item: The items of each group.
        size: How many of each group; a smaller group has padding.
        key: Seed and round (epoch) of the random streams.

    Returns:
        Items ``[Q, G * size]`` (0 on padding) and their groups (-1 on padding).
    """
    n_groups = len(offsets) - 1
    lists = np.zeros((len(users), n_groups * size), np.int32)
    label = np.full((len(users), n_groups * size), -1, np.int32)
    _fill_groups(users, offsets, item, key, np.empty(size, np.int64), lists, label)
    return lists, label


@compiled
def _fill_groups(
    users: NDArray[np.integer],
    offsets: NDArray[np.int64],
    item: NDArray[np.int32],
    key: tuple[int, int],
    slots: NDArray[np.int64],
    lists: NDArray[np.int32],
    label: NDArray[np.int32],
) -> None:
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


@inlined
def draw_rated(
    start: int,
    stop: int,
    item: NDArray[np.int32],
    state: np.uint64,
    slots: NDArray[np.int64],
    items: NDArray[np.int32],
    mask: NDArray[np.bool_],
) -> np.uint64:
    """Fill `slots` with some of the user's ratings, and the front of a list with their items.

    Returns:
        The state of the random stream after that.
    """
    state = draw_slots(start, stop, state, slots)
    for place in range(min(len(slots), stop - start)):
        items[place] = item[slots[place]]
        mask[place] = True
    return state


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
    if (
        2 * wanted <= free and 2 * free >= n_items
    ):  # a draw is accepted at least every fourth time
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
