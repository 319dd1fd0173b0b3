"""Hashing texts, and looking up keys in a hash table with open addressing."""

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled
from fairtopk.kernels.random import GOLDEN, mix

Words = NDArray[np.int64]


@compiled
def hash_texts(codes: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """Return a word for each text, the same on every machine, ``[n]``.

    Args:
        codes: The characters of each text, 0 beyond its end, ``[n, width]``.
    """
    words = np.empty(len(codes), np.uint64)
    for text in range(len(codes)):
        stop = codes.shape[1]
        while stop > 0 and codes[text, stop - 1] == 0:
            stop -= 1
        word = GOLDEN
        for place in range(stop):
            word = mix(word ^ np.uint64(codes[text, place])) + GOLDEN
        words[text] = word
    return words


@compiled
def find_rows(key: Words, wanted: Words, row: Words, step: Words, free: int) -> Words:
    """Return where in the table the keys `wanted` are, -1 for those that are not, ``[n]``.

    Args:
        key: The table, of size 2^m, not full.
        wanted: Keys to find, ``[n]``.
        row: Where to look for each first, ``[n]``.
        step: How far to go on from there, ``[n]``.
        free: What stands where there is no key.
    """
    found, last = np.full(len(wanted), -1), len(key) - 1
    for place in range(len(wanted)):
        here = row[place]
        while key[here] != free:
            if key[here] == wanted[place]:
                found[place] = here
                break
            here = (here + step[place]) & last
    return found
