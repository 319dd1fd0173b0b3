"""The pairs of users and items in a batch of lists: grouped by item, and their dropout."""

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled
from fairtopk.kernels.random import GOLDEN, mix, stream

CERTAIN = 256  # draws are bytes
ALL_KEPT = np.uint64(0x0101010101010101)  # eight units


class Pairs(NamedTuple):
    """The slots of a batch of lists, grouped by item.

    Attributes:
        offsets: Where the pairs of each item start, ``[n_items + 1]``.
        row: The list of each pair, ``[n_pairs]``.
        slot: Its place in the list, ``[n_pairs]``.
    """

    offsets: NDArray[np.int64]
    row: NDArray[np.int32]
    slot: NDArray[np.int32]


class Dropout(NamedTuple):
    """Which units are kept: a function of seed, list, slot and unit, the same at every call.

    Attributes:
        seed: Key of all draws.
        keep: How many of a draw's 256 values keep a unit, from 1; at 256 nothing is drawn.
    """

    seed: int
    keep: int


@compiled
def group_pairs(item: NDArray[np.int32], n_items: int) -> Pairs:
    """Return the slots of lists of items, ``[Q, L]``, those of one item in their given order."""
    n_rows, n_slots = item.shape
    offsets = np.zeros(n_items + 1, np.int64)
    for row in range(n_rows):
        for slot in range(n_slots):
            offsets[item[row, slot] + 1] += 1
    for one in range(n_items):
        offsets[one + 1] += offsets[one]
    following = offsets[:-1].copy()
    pairs = Pairs(offsets, np.empty(item.size, np.int32), np.empty(item.size, np.int32))
    for row in range(n_rows):
        for slot in range(n_slots):
            place = following[item[row, slot]]
            pairs.row[place] = row
            pairs.slot[place] = slot
            following[item[row, slot]] += 1
    return pairs


@numba.njit(inline="always")
def draw_kept(
    dropout: Dropout, row: int, slot: int, words: NDArray[np.uint64], kept: NDArray[np.uint8]
) -> None:
    """Fill `kept`, the bytes of `words`, with 1 for the units of a pair that are kept, else 0."""
    state, limit = stream(dropout.seed, row, slot), np.uint8(dropout.keep - 1)
    for place in range(len(words)):
        words[place] = mix(state)
        state += GOLDEN
    for unit in range(len(kept)):
        kept[unit] = kept[unit] <= limit


@compiled
def kept_units(pairs: Pairs, dropout: Dropout, units: int) -> NDArray[np.uint8]:
    """Return 1 for the units that are kept, else 0, ``[n_pairs, units]``.

    Only the pairs between the first and the last of the offsets are looked at.
    """
    start, stop = pairs.offsets[0], pairs.offsets[-1]
    words = np.full((units + 7) // 8, ALL_KEPT)
    kept = words.view(np.uint8)
    mask = np.empty((stop - start, units), np.uint8)
    for pair in range(start, stop):
        if dropout.keep < CERTAIN:
            draw_kept(dropout, pairs.row[pair], pairs.slot[pair], words, kept)
        for unit in range(units):
            mask[pair - start, unit] = kept[unit]
    return mask
