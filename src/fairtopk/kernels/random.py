"""A counter-based random stream (splitmix64) for compiled loops.

A stream is one 64-bit word made from a key. Keys are hashed, so the stream of (seed, epoch,
user) does not depend on which other streams were read before it, nor on the number of threads.
"""

import numpy as np

from fairtopk.kernels.compiled import compiled

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
    word = mix(np.uint64(seed) + GOLDEN)
    word = mix(word ^ (np.uint64(first) * GOLDEN))
    return mix(word ^ (np.uint64(second) * GOLDEN))


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
