"""Numbering ids and grouping rows: from columns of a table to CSR arrays.

CSR: the rows of key k are the slots ``offsets[k] : offsets[k + 1]``.
"""

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled


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


@compiled
def is_sorted(keys: NDArray[np.integer]) -> bool:
    """Return whether `keys` never fall."""
    for row in range(1, len(keys)):  # noqa: SIM110 (a loop is what numba compiles well)
        if keys[row] < keys[row - 1]:
            return False
    return True


def offsets_of(keys: NDArray[np.integer], n_keys: int) -> NDArray[np.int64]:
    """Return where the rows of each key start once grouped, ``[n_keys + 1]``."""
    offsets = np.zeros(n_keys + 1, np.int64)
    np.cumsum(np.bincount(keys, minlength=n_keys), out=offsets[1:])
    return offsets


def stable_order(keys: NDArray[np.integer], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows grouped by key, those of one key in their given order (counting sort)."""
    order = np.empty(len(keys), np.int64)
    _fill_order(keys, offsets[:-1].copy(), order)
    return order


@compiled
def _fill_order(
    keys: NDArray[np.integer], following: NDArray[np.int64], order: NDArray[np.int64]
) -> None:
    """Fill in the order; `following` is where the next row of each key goes."""
    for row in range(len(keys)):
        order[following[keys[row]]] = row
        following[keys[row]] += 1


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
