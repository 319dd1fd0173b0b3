"""A hash table with open addressing in tensors; hashes of texts.

A key's row is its place in the table, so that a batch is looked up at once on any device, and
the table is saved without conversion. Its size is a power of 2, and at most half of it is used.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairtopk.kernels.compiled import compiled
from fairtopk.kernels.random import GOLDEN, MIX_1, mix

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
def probe_rows(key: Words, wanted: Words, row: Words, step: Words, free: int) -> Words:
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


FREE = -(2**63)  # below every key
FIRST_SIZE = 1024
# The same words as signed numbers, which torch multiplies modulo 2^64 too.
SPREAD_1, SPREAD_2 = (int(word.view(np.int64)) for word in (GOLDEN, MIX_1))


def find_rows(key: Tensor, wanted: Tensor) -> Tensor:
    """Return where in the table `key` the keys `wanted` are, -1 for those that are not."""
    row, step = probe(wanted, len(key))
    if key.device.type == "cpu":  # in a tenth of the time
        place = row.numpy(), step.numpy()
        return torch.from_numpy(probe_rows(key.numpy(), wanted.numpy(), *place, FREE))
    return find_rows_by_torch(key, wanted, row, step)


def find_rows_by_torch(key: Tensor, wanted: Tensor, row: Tensor, step: Tensor) -> Tensor:
    """Return the same on any device; `row` and `step` are where to look, and how to go on."""
    rows = torch.full_like(wanted, -1)
    places = torch.arange(len(wanted), device=wanted.device)
    while len(places):
        held = key[row]
        found = held == wanted
        rows[places[found]] = row[found]
        on = ~found & (held != FREE)
        places, wanted, step = places[on], wanted[on], step[on]
        row = (row[on] + step) & (len(key) - 1)
    return rows


def claim_rows(key: Tensor, new: Tensor) -> None:
    """Write keys into free places of the table `key`, which has room for them."""
    row, step = probe(new, len(key))
    while len(new):
        free = key[row] == FREE
        # Of several that want one free place the largest gets it, in any order of writing; the
        # others go on.
        key.scatter_reduce_(0, row[free], new[free], reduce="amax")
        on = key[row] != new
        new, step = new[on], step[on]
        row = (row[on] + step) & (len(key) - 1)


def with_room(
    key: Tensor, kept: Tensor, n_taken: int, *, start: float
) -> tuple[Tensor, Tensor]:
    """Return a table, and what is kept beside its keys, with room for `n_taken` keys in all.

    Args:
        key: The table, which is left as it is.
        kept: What belongs to each row.
        n_taken: How many keys there will be.
        start: What belongs to a free row.
    """
    size = len(key)
    while 2 * n_taken > size:
        size *= 2
    if size == len(key):
        return key, kept
    taken = key != FREE
    larger, moved = key.new_full((size,), FREE), kept.new_full((size,), start)
    claim_rows(larger, key[taken])
    moved[find_rows(larger, key[taken])] = kept[taken]
    return larger, moved


def probe(wanted: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return where to look first, and an odd step, which leads through a table of size 2^m."""
    word = wanted * SPREAD_1
    word = (word ^ (word >> 32)) * SPREAD_2
    return (word >> 33) & (size - 1), (word & (size - 1)) | 1
