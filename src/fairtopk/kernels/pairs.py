"""The pairs of users and items in a batch of lists: grouped by item, and their dropout."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled
from fairtopk.kernels.csr import offsets_of
from fairtopk.kernels.random import GOLDEN, mix, stream

CERTAIN = 256  # values of a draw, a byte
EACH = np.uint64(0x0101010101010101)  # 1 in each byte of a word
TOP = np.uint64(0x8080808080808080)  # the top bit of each


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


def group_pairs(item: NDArray[np.int32], n_items: int) -> Pairs:
    """Return the slots of lists, ``[Q, L]``, by item; those of an item in their given order."""
    offsets = offsets_of(item.ravel(), n_items)
    pairs = Pairs(offsets, np.empty(item.size, np.int32), np.empty(item.size, np.int32))
    _fill_pairs(item, offsets[:-1].copy(), pairs.row, pairs.slot)
    return pairs


@compiled
def _fill_pairs(
    item: NDArray[np.int32],
    following: NDArray[np.int64],
    rows: NDArray[np.int32],
    slots: NDArray[np.int32],
) -> None:
    """Fill in the pairs; `following` is where the next of each item goes."""
    for row in range(item.shape[0]):
        for slot in range(item.shape[1]):
            place = following[item[row, slot]]
            rows[place] = row
            slots[place] = slot
            following[item[row, slot]] += 1


@compiled
def draw_kept(dropout: Dropout, row: int, slot: int, words: NDArray[np.uint64]) -> None:
    """Fill the bytes of `words` with 1 for the units of a pair that are kept, else 0.

    A word is eight draws. Adding 256 - keep to a draw carries out of its byte unless the unit
    is kept. All eight are added at once, their top bits apart so that nothing is carried into
    the next: a loop over bytes took twice as long.
    """
    state = stream(
        dropout.seed, np.int64(row), np.int64(slot)
    )  # as elsewhere, to compile it once
    added = EACH * np.uint64(CERTAIN - dropout.keep)
    for place in range(len(words)):
        draws = mix(state)
        state += GOLDEN
        total = ((draws & ~TOP) + (added & ~TOP)) ^ ((draws ^ added) & TOP)
        carried = ((draws & added) | ((draws | added) & ~total)) & TOP
        words[place] = (carried >> np.uint64(7)) ^ EACH


@compiled
def kept_units(pairs: Pairs, dropout: Dropout, units: int) -> NDArray[np.uint8]:
    """Return 1 for units that are kept, else 0, for the pairs of some items, ``[n, units]``.

    Args:
        pairs: All pairs, with the offsets of these items only.
        dropout: What decides.
        units: Of the layer.
    """
    start, stop = pairs.offsets[0], pairs.offsets[-1]
    words = np.full((units + 7) // 8, EACH)
    kept = words.view(np.uint8)
    mask = np.empty((stop - start, units), np.uint8)
    for pair in range(start, stop):
        if dropout.keep < CERTAIN:
            draw_kept(dropout, pairs.row[pair], pairs.slot[pair], words)
        for unit in range(units):
            mask[pair - start, unit] = kept[unit]
    return mask
