"""Choosing, per user, the ratings that are held out of training.

`part` holds one code per slot of the CSR arrays: what a slot is used for.
"""

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled
from fairtopk.kernels.random import advance, stream, uniform

TRAIN, VALIDATION, TEST = np.int8(0), np.int8(1), np.int8(2)


def hold_out_last(
    offsets: NDArray[np.int64],
    time: NDArray[np.int64] | NDArray[np.float64],
    test: int,
    validation: int,
    min_ratings: int,
) -> NDArray[np.int8]:
    """Return the parts when the last `test` ratings of a user by time are for testing.

    The `validation` ratings before those are for validation. Of equal times, the later slot is
    the later rating. Users with fewer than `min_ratings` stay in training.
    """
    part = np.full(len(time), TRAIN, np.int8)
    _mark_last(offsets, time, test, min_ratings, np.empty(test + validation, np.int64), part)
    return part


@compiled
def _mark_last(
    offsets: NDArray[np.int64],
    time: NDArray[np.int64] | NDArray[np.float64],
    test: int,
    min_ratings: int,
    latest: NDArray[np.int64],
    part: NDArray[np.int8],
) -> None:
    """Mark what is held out; `latest` is room for slots, from the latest to the earliest."""
    for user in range(len(offsets) - 1):
        if offsets[user + 1] - offsets[user] < min_ratings:
            continue
        filled = 0
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
