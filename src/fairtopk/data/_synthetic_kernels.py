"""Generated ratings, user by user: what they come to rate, what they feel, and when.

Every user has a random stream of their own, so users can be filled in any order and in any
number of threads, with the same result.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled, inlined
from fairtopk.kernels.random import advance, below, normal, stream, uniform

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


class Slots(NamedTuple):
    """The ratings to be filled, grouped by user.

    Attributes:
        offsets: Start of each user's slots, ``[n_users + 1]``.
        item: Filled where negative; items given here stay with their user, ``[n_ratings]``.
        recorded: Filled with utility less handicap plus noise, ``[n_ratings]``.
        time: Filled with times that never fall within a user, ``[n_ratings]``.
    """

    offsets: NDArray[np.int64]
    item: NDArray[np.int32]
    recorded: NDArray[np.float32]
    time: NDArray[np.int64]


class Search(NamedTuple):
    """The choice of a user's items, which passes from compiled code to numpy and back.

    Attributes:
        limit: Draws after which one look at every item is the quicker way.
        resumed: Whether the first user's items were chosen by such a look.
        state: State of that user's stream, ``[1]``.
        taken: False for every item between users, ``[n_items]``.
        log_wait: Logarithms of that user's waits for the items, ``[n_items]``.
    """

    limit: int
    resumed: bool
    state: NDArray[np.uint64]
    taken: NDArray[np.bool_]
    log_wait: NDArray[np.float64]


def fill_users(
    seed: int,
    tastes: NDArray[np.float32],
    catalogue: Catalogue,
    slots: Slots,
    block: tuple[int, int],
    *,
    limit: int | None = None,
) -> None:
    """Fill the slots of the users from ``block[0]`` up to, not including, ``block[1]``.

    A user's items are distinct. Each is drawn in proportion to weight times chance to be rated,
    among those not yet taken: by rejection, and after `limit` draws by one look at every item,
    which has the same distribution. Of exponential waits with rates w, the shortest are a draw
    without replacement in proportion to w (Efraimidis and Spirakis).

    Args:
        seed: Key of the users' streams.
        tastes: Latent tastes, ``[n_users, d]``.
        catalogue: The items.
        slots: What is filled.
        block: The first user and the one after the last.
        limit: Draws for one user; left out, two for each item.
    """
    n_items, (user, stop) = len(catalogue.quality), block
    search = Search(
        limit=2 * n_items if limit is None else limit,
        resumed=False,
        state=np.zeros(1, np.uint64),
        taken=np.zeros(n_items, np.bool_),
        log_wait=np.empty(n_items),
    )
    while user < stop:
        user = _fill_users(seed, tastes, catalogue, slots, (user, stop), search)
        search = search._replace(resumed=user < stop)
        if search.resumed:
            mine = slots.item[slots.offsets[user] : slots.offsets[user + 1]]
            missing = mine < 0
            mine[missing] = np.argsort(search.log_wait)[: missing.sum()]


@compiled
def _fill_users(
    seed: int,
    tastes: NDArray[np.float32],
    catalogue: Catalogue,
    slots: Slots,
    block: tuple[int, int],
    search: Search,
) -> int:
    """Fill the slots of the users of `block`, and return the first that is not filled.

    That user needs a look at every item: `search` has the logarithms of their waits, which hold
    for any rates, and the state of the stream with which the user is resumed once the items are
    chosen.
    """
    first, last = block
    offsets, item, recorded, time = slots
    taken, log_wait = search.taken, search.log_wait
    for user in range(first, last):
        start, stop = offsets[user], offsets[user + 1]
        taste, missing, left = tastes[user], 0, search.limit
        state = stream(seed, np.int64(ROWS), user)
        if search.resumed and user == first:
            state = search.state[0]
        for slot in range(start, stop):
            if item[slot] >= 0:
                taken[item[slot]] = True
            else:
                missing += 1
        slot = start
        while missing > 0 and left > 0:
            if item[slot] >= 0:
                slot += 1
                continue
            left -= 1
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
                missing -= 1
        if missing > 0:
            for seen in range(len(taken)):
                state = advance(state)
                log_wait[seen] = np.inf
                if not taken[seen]:
                    chance = _chance(_utility(taste, catalogue, seen))
                    log_rate = catalogue.log_weight[seen] + math.log(chance)
                    log_wait[seen] = math.log(-math.log(1.0 - uniform(state))) - log_rate
            search.state[0] = state
            return user
        for slot in range(start, stop):
            taken[item[slot]] = False
        # What is likeliest is chosen first, but not rated first.
        for slot in range(stop - 1, start, -1):
            state = advance(state)
            other = start + below(state, slot - start + 1)
            item[slot], item[other] = item[other], item[slot]
        for slot in range(start, stop):
            state = advance(state)
            rated = np.int64(item[slot])  # as above, or numba types `_utility` twice
            felt = _utility(taste, catalogue, rated) + NOISE * normal(state)
            state = advance(state)
            recorded[slot] = felt - catalogue.handicap[rated]
        state = advance(state)
        now = EARLIEST + below(state, np.int64(YEARS))
        for slot in range(start, stop):
            time[slot] = now
            state = advance(state)
            mean = MEAN_PAUSE if uniform(state) < PAUSE_CHANCE else MEAN_GAP
            state = advance(state)
            now += int(-math.log(1.0 - uniform(state)) * mean)
    return last


@inlined
def _utility(taste: NDArray[np.float32], catalogue: Catalogue, item: int | np.int64) -> float:
    total = np.float64(catalogue.quality[item])
    for factor in range(len(taste)):
        total += taste[factor] * catalogue.factors[item, factor]
    return total


@inlined
def _chance(utility: float) -> float:
    return 1.0 / (1.0 + math.exp(RELUCTANCE - LIKING * utility))
