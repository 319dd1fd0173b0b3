"""Generated ratings, user by user: what they come to rate, what they feel, and when.

Every user has a random stream of their own, so users can be filled in any order and in any
number of threads, with the same result.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled, inlined
from fairtopk.kernels.drawing import normal
from fairtopk.kernels.heaps import put_smallest_last
from fairtopk.kernels.random import advance, below, stream, uniform

# First key of the users' streams, far from the epochs that are keys elsewhere.
ROWS = 2**32

# Someone who comes across an item rates it with chance sigmoid(LIKING * utility - RELUCTANCE).
LIKING = 2.0
RELUCTANCE = 1.0
NOISE = 0.5  # spread of what is recorded around what is felt

# Seconds. Users start in the ten years from the start of 2000 and rate in sittings.
EARLIEST = 946_684_800
YEARS = 315_576_000
MEAN_GAP = 30.0
MEAN_PAUSE = 864_000.0
PAUSE_CHANCE = 0.02


class Catalogue(NamedTuple):
    """What drawing ratings needs to know of each item.

    Attributes:
        factors: Latent factors, ``[n_items, d]``.
        quality: Added to everyone's utility, ``[n_items]``.
        log_weight: Logarithm of how often people come across it, ``[n_items]``.
        keep: From `alias_table` of the weights, ``[n_items]``.
        alias: From `alias_table` of the weights, ``[n_items]``.
        handicap: Taken off the utility before it is recorded, ``[n_items]``.
    """

    factors: NDArray[np.float32]
    quality: NDArray[np.float32]
    log_weight: NDArray[np.float64]
    keep: NDArray[np.float64]
    alias: NDArray[np.int32]
    handicap: NDArray[np.float32]


def fill_users(
    seed: int,
    tastes: NDArray[np.float32],
    catalogue: Catalogue,
    offsets: NDArray[np.int64],
    block: tuple[int, int],
    item: NDArray[np.int32],
    recorded: NDArray[np.float32],
    time: NDArray[np.int64],
) -> None:
    """Fill the slots of the users from ``block[0]`` up to, not including, ``block[1]``.

    Args:
        seed: Key of the users' streams.
        tastes: Latent tastes, ``[n_users, d]``.
        catalogue: The items.
        offsets: Start of each user's slots, ``[n_users + 1]``.
        block: The first user and the one after the last.
        item: Filled where negative; items given here stay with their user, ``[n_ratings]``.
        recorded: Filled with utility less handicap plus noise, ``[n_ratings]``.
        time: Filled with times that never fall within a user, ``[n_ratings]``.
    """
    taken = np.zeros(len(catalogue.quality), np.bool_)
    _fill_users(seed, tastes, catalogue, offsets, block, taken, item, recorded, time)


@compiled
def _fill_users(
    seed: int,
    tastes: NDArray[np.float32],
    catalogue: Catalogue,
    offsets: NDArray[np.int64],
    block: tuple[int, int],
    taken: NDArray[np.bool_],
    item: NDArray[np.int32],
    recorded: NDArray[np.float32],
    time: NDArray[np.int64],
) -> None:
    n_items = len(taken)
    for user in range(block[0], block[1]):
        start, stop = offsets[user], offsets[user + 1]
        taste, mine = tastes[user], item[start:stop]
        state = stream(seed, np.int64(ROWS), user)
        # Past some draws per item, one look at every item is the quicker way.
        state = choose(state, taste, catalogue, 2 * n_items, mine, taken)
        state = _shuffle(state, mine)
        state = _record(state, taste, catalogue, mine, recorded[start:stop])
        _tick(state, time[start:stop])
        for slot in range(len(mine)):
            taken[mine[slot]] = False


@inlined
def choose(
    state: np.uint64,
    taste: NDArray[np.float32],
    catalogue: Catalogue,
    tries: int,
    item: NDArray[np.int32],
    taken: NDArray[np.bool_],
) -> np.uint64:
    """Return the stream's next state after filling the negative slots with distinct items.

    Each draw is in proportion to weight times chance to be rated, among the items not yet
    taken: by rejection, and after so many `tries` by `_choose_exactly`, which has the same
    distribution. All items of the user are marked in `taken`, ``[n_items]``.
    """
    for slot in range(len(item)):
        if item[slot] >= 0:
            taken[item[slot]] = True
    slot = 0
    while slot < len(item) and tries > 0:
        if item[slot] >= 0:
            slot += 1
            continue
        tries -= 1
        state = advance(state)
        place = uniform(state) * len(taken)
        seen = int(place)
        if place - seen >= catalogue.keep[seen]:
            seen = catalogue.alias[seen]
        if taken[seen]:
            continue
        state = advance(state)
        if uniform(state) < _chance(_utility(taste, catalogue, seen)):
            item[slot] = seen
            taken[seen] = True
    if slot < len(item):
        state = _choose_exactly(state, taste, catalogue, item, taken)
    return state


@inlined
def _choose_exactly(
    state: np.uint64,
    taste: NDArray[np.float32],
    catalogue: Catalogue,
    item: NDArray[np.int32],
    taken: NDArray[np.bool_],
) -> np.uint64:
    """Return the next state after filling the negative slots by one look at every item.

    Of exponential waits with rates w, the shortest are a draw without replacement in
    proportion to w (Efraimidis and Spirakis); as logarithms they hold for any w.
    """
    n_items = len(taken)
    log_wait, order = np.empty(n_items, np.float64), np.empty(n_items, np.int64)
    for seen in range(n_items):
        state = advance(state)
        order[seen] = seen
        log_wait[seen] = np.inf
        if not taken[seen]:
            chance = _chance(_utility(taste, catalogue, seen))
            log_rate = catalogue.log_weight[seen] + math.log(chance)
            log_wait[seen] = math.log(-math.log(1.0 - uniform(state))) - log_rate
    put_smallest_last(log_wait, order, len(item))
    place = n_items
    for slot in range(len(item)):
        if item[slot] < 0:
            place -= 1
            item[slot] = order[place]
            taken[order[place]] = True
    return state


@inlined
def _shuffle(state: np.uint64, item: NDArray[np.int32]) -> np.uint64:
    """Return the next state; what is likeliest is chosen first, but not rated first."""
    for last in range(len(item) - 1, 0, -1):
        state = advance(state)
        other = below(state, last + 1)
        item[last], item[other] = item[other], item[last]
    return state


@inlined
def _record(
    state: np.uint64,
    taste: NDArray[np.float32],
    catalogue: Catalogue,
    item: NDArray[np.int32],
    recorded: NDArray[np.float32],
) -> np.uint64:
    for slot in range(len(item)):
        state = advance(state)
        rated = np.int64(item[slot])  # as in `choose`, or `_utility` is compiled twice
        felt = _utility(taste, catalogue, rated) + NOISE * normal(state)
        state = advance(state)
        recorded[slot] = felt - catalogue.handicap[rated]
    return state


@inlined
def _tick(state: np.uint64, time: NDArray[np.int64]) -> None:
    state = advance(state)
    now = EARLIEST + below(state, np.int64(YEARS))
    for slot in range(len(time)):
        time[slot] = now
        state = advance(state)
        mean = MEAN_PAUSE if uniform(state) < PAUSE_CHANCE else MEAN_GAP
        state = advance(state)
        now += int(-math.log(1.0 - uniform(state)) * mean)


@inlined
def _utility(taste: NDArray[np.float32], catalogue: Catalogue, item: int | np.int64) -> float:
    total = np.float64(catalogue.quality[item])
    for factor in range(len(taste)):
        total += taste[factor] * catalogue.factors[item, factor]
    return total


@inlined
def _chance(utility: float) -> float:
    return 1.0 / (1.0 + math.exp(RELUCTANCE - LIKING * utility))
