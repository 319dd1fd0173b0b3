"""Counter-based random streams (splitmix64) for compiled loops, and draws from them.

A stream is one 64-bit word made from a key. Keys are hashed, so the stream of (seed, epoch,
user) does not depend on which other streams were read before it, nor on the number of threads.
"""

import math

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled, inlined

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio, splitmix64's increment
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)
HALF, LOW_HALF = np.uint64(32), np.uint64(2**32 - 1)
UNIT = 2.0**-53


@compiled
def mix(word: np.uint64) -> np.uint64:
    """Return `word` with its bits scrambled, one to one."""
    word = (word ^ (word >> np.uint64(30))) * MIX_1
    word = (word ^ (word >> np.uint64(27))) * MIX_2
    return word ^ (word >> np.uint64(31))


@compiled
def stream(seed: int, first: int | np.int64, second: int | np.int64) -> np.uint64:
    """Return the start of the stream that belongs to the key (seed, first, second)."""
    # By way of int64: without numba, uint64 refuses numbers below 0.
    word = mix(np.uint64(np.int64(seed)) + GOLDEN)
    word = mix(word ^ (np.uint64(np.int64(first)) * GOLDEN))
    return mix(word ^ (np.uint64(np.int64(second)) * GOLDEN))


@compiled
def advance(state: np.uint64) -> np.uint64:
    """Return the next state of a stream; `uniform` and `below` read a state."""
    return state + GOLDEN


@compiled
def uniform(state: np.uint64) -> float:
    """Return the number in [0, 1) that `state` stands for."""
    return np.float64(mix(state) >> np.uint64(11)) * UNIT


@compiled
def below(state: np.uint64, bound: int | np.int64) -> int:
    """Return the integer in [0, bound) that `state` stands for; bound is below 2^32.

    It is the upper half of a 128-bit product, word * bound / 2^64, put together from two halves
    of the word: faster than by way of a float, and with a bias of at most bound / 2^64.
    """
    word, size = mix(state), np.uint64(bound)
    carried = ((word & LOW_HALF) * size) >> HALF
    return int(((word >> HALF) * size + carried) >> HALF)


def key_of(*parts: int) -> int:
    """Return one 63-bit seed that depends on all parts, and on how many they are."""
    return int(
        np.random.SeedSequence((len(parts), *parts)).generate_state(1, np.uint64)[0] >> 1
    )


@inlined
def normal(state: np.uint64) -> float:
    """Return a standard normal number made of `state` and the next (Box and Muller)."""
    radius = math.sqrt(-2.0 * math.log(1.0 - uniform(state)))
    return radius * math.cos(2.0 * math.pi * uniform(advance(state)))


@compiled
def normals(seed: int, purpose: int, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return `values`, filled with a standard normal number of each (seed, purpose, row)."""
    for row in range(len(values)):
        values[row] = normal(stream(seed, purpose, row))
    return values


def alias_table(weight: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Return a table for drawing rows in proportion to `weight` in constant time (Vose).

    A place k drawn uniformly stands for itself with chance ``keep[k]``, else for ``alias[k]``.
    """
    count = len(weight)
    keep: list[float] = (weight * (count / np.cumsum(weight)[-1])).tolist()
    alias = list(range(count))
    # Places with chance to spare will stand for rows with too much. To compile the loop takes
    # longer than it does for all items of a catalogue.
    spare = [row for row in range(count) if keep[row] < 1.0]
    excess = [row for row in range(count) if keep[row] >= 1.0]
    while spare and excess:
        place, giver = spare.pop(), excess[-1]
        alias[place] = giver
        keep[giver] -= 1.0 - keep[place]
        if keep[giver] < 1.0:
            spare.append(excess.pop())
    return np.array(keep), np.array(alias, np.int32)


@compiled
def draws(seed: int, purpose: int, row: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return a number in [0, 1) of the stream (seed, purpose, row) of each row, ``[n]``."""
    values = np.empty(len(row), np.float64)
    for place in range(len(row)):
        values[place] = uniform(stream(seed, purpose, row[place]))
    return values
