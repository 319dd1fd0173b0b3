"""CSR arrays: numbering ids, grouping rows by key, splits and ideal DCG per user.

The rows of key k are the slots ``offsets[k] : offsets[k + 1]``. A split is one code per slot:
`TRAIN`, `VALIDATION` or `TEST`.
"""

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled
from fairtopk.kernels.random import advance, stream, uniform

TRAIN, VALIDATION, TEST = np.int8(0), np.int8(1), np.int8(2)


@compiled
def number_by_appearance(
    ids: NDArray[np.integer], low: int, table: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return each id's number in order of first appearance, and the row where each first stood.

    Args:
        ids: Integers, all in ``[low, low + len(table))``.
        low: The smallest id.
        table: Scratch, filled with -1.
    """
    codes = np.empty(len(ids), np.int32)
    first = np.empty(min(len(table), len(ids)), np.int64)
    count = 0
    for row in range(len(ids)):
        place = ids[row] - low
        if table[place] < 0:
            table[place] = count
            first[count] = row
            count += 1
        codes[row] = table[place]
    return codes, first[:count].copy()


def offsets_of(keys: NDArray[np.integer], n_keys: int) -> NDArray[np.int64]:
    """Return where the rows of each key start once grouped, ``[n_keys + 1]``."""
    offsets = np.zeros(n_keys + 1, np.int64)
    np.cumsum(np.bincount(keys, minlength=n_keys), out=offsets[1:])
    return offsets


@compiled
def stable_order(keys: NDArray[np.integer], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows grouped by key, those of one key in their given order (counting sort)."""
    order = np.empty(len(keys), np.int64)
    following = offsets.copy()  # where the next row of each key goes
    for row in range(len(keys)):
        order[following[keys[row]]] = row
        following[keys[row]] += 1
    return order


@compiled
def first_repeat(
    offsets: NDArray[np.int64], item: NDArray[np.int32], n_items: int
) -> tuple[int, int]:
    """Return two slots of one key that hold the same item, or (-1, -1)."""
    slot_of = np.full(n_items, -1, np.int64)
    for key in range(len(offsets) - 1):
        for slot in range(offsets[key], offsets[key + 1]):
            if slot_of[item[slot]] >= offsets[key]:
                return slot_of[item[slot]], slot
            slot_of[item[slot]] = slot
    return -1, -1


@compiled
def hold_out_last(
    offsets: NDArray[np.int64],
    time: NDArray[np.int64] | NDArray[np.float64],
    test: int,
    min_ratings: int,
    latest: NDArray[np.int64],
    part: NDArray[np.int8],
) -> None:
    """Mark in `part` the last `test` ratings of a user by time for testing.

    Those before are for validation, as many as `latest` has room for. Of equal times, the later
    slot is the later rating. Users with fewer than `min_ratings` stay in training.
    """
    for user in range(len(offsets) - 1):
        if offsets[user + 1] - offsets[user] < min_ratings:
            continue
        filled = 0  # of `latest`: slots, from the latest to the earliest
        # From the back: a slot displaces another only if its time is strictly later.
        for slot in range(offsets[user + 1] - 1, offsets[user] - 1, -1):
            place = filled
            while place > 0 and time[slot] > time[latest[place - 1]]:
                place -= 1
            if place == len(latest):
                continue
            filled = min(filled + 1, len(latest))
            for moved in range(filled - 1, place, -1):
                latest[moved] = latest[moved - 1]
            latest[place] = slot
        for place in range(filled):
            part[latest[place]] = TEST if place < test else VALIDATION


@compiled
def hold_out_random(
    offsets: NDArray[np.int64], test: int, validation: int, min_ratings: int, seed: int
) -> NDArray[np.int8]:
    """Return the parts when each user's held-out ratings are a uniform draw.

    Users with fewer than `min_ratings` stay in training. Selection sampling: a slot is taken
    with probability (still wanted) / (still to come), which draws exactly the number wanted.
    """
    part = np.full(offsets[-1], TRAIN, np.int8)
    for user in range(len(offsets) - 1):
        to_come = offsets[user + 1] - offsets[user]
        if to_come < min_ratings:
            continue
        state = stream(seed, -1, user)
        for_test, for_validation = test, validation
        for slot in range(offsets[user], offsets[user + 1]):
            state = advance(state)
            drawn = uniform(state) * to_come
            if drawn < for_test:
                part[slot] = TEST
                for_test -= 1
            elif drawn < for_test + for_validation:
                part[slot] = VALIDATION
                for_validation -= 1
            to_come -= 1
    return part


def ideal_dcg(
    offsets: NDArray[np.int64], rating: NDArray[np.floating], k: int
) -> NDArray[np.float64]:
    """Return sum over the best k ratings of (2^y - 1) / log2(1 + rank), ``[n_users]``."""
    n_rated = np.diff(offsets)
    user = np.repeat(np.arange(len(n_rated)), n_rated)
    place = np.arange(len(rating)) - np.repeat(offsets[:-1], n_rated)
    # Sorted as whole numbers: by user, then by grade, of which the best has the lowest number.
    grades = np.unique(-rating)
    key = user * len(grades) + np.searchsorted(grades, -rating)
    key.sort()
    gain = (np.exp2(-grades.astype(np.float64)) - 1)[key - user * len(grades)]
    gain /= np.log2(2.0 + place)
    gain[place >= k] = 0
    return np.bincount(user, gain, minlength=len(n_rated)).astype(np.float64)
