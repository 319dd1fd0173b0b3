"""The same items in two sets of lists, and labels that contradict each other.

Lists are CSR arrays: the items of list q are the slots ``offsets[q] : offsets[q + 1]``.
"""

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled

Slots = NDArray[np.int64]


@compiled
def label_holders(
    item: NDArray[np.int32], group: NDArray[np.int16], n_items: int
) -> tuple[Slots, int]:
    """Return the first slot in which each item has a known label, and a slot with another.

    Args:
        item: Item number of each slot.
        group: Group number of each slot, -1 unknown.
        n_items: How many different items there are.

    Returns:
        A slot of each item, -1 where none has a label, ``[n_items]``; the first slot whose
        label is not that of its item, -1 where there is none.
    """
    holder = np.full(n_items, -1, np.int64)
    for slot in range(len(item)):
        if group[slot] < 0:
            continue
        first = holder[item[slot]]
        if first < 0:
            holder[item[slot]] = slot
        elif group[first] != group[slot]:
            return holder, slot
    return holder, -1


@compiled
def slots_of_same(
    first: tuple[Slots, NDArray[np.int32]],
    second: tuple[Slots, NDArray[np.int32]],
    pairs: tuple[Slots, Slots],
    n_items: int,
) -> Slots:
    """Return where the items of each second list are in the first list that it is paired with.

    Args:
        first: Offsets, and the item number of each slot; no item twice in a list.
        second: The same of the other lists, with the same item numbers, -1 for other items.
        pairs: Numbers of the first lists, and of the second list of each.
        n_items: How many different items the first lists have.

    Returns:
        A slot of `first` for each of `second`; -1 where its item is not in the paired list, or
        its list in no pair.
    """
    (starts, items), (other_starts, other_items) = first, second
    found = np.full(len(other_items), -1, np.int64)
    slot_of = np.full(n_items, -1, np.int64)
    for one, other in zip(*pairs):  # noqa: B905 (numba knows no strict)
        for slot in range(starts[one], starts[one + 1]):
            slot_of[items[slot]] = slot
        for slot in range(other_starts[other], other_starts[other + 1]):
            item = other_items[slot]
            # What an earlier list left is in that list's slots.
            if item >= 0 and starts[one] <= slot_of[item] < starts[one + 1]:
                found[slot] = slot_of[item]
    return found
