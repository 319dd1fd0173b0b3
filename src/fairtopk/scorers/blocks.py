"""The items of a batch of lists, in blocks of about equal work."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairtopk.kernels.pairs import Pairs, group_pairs

# Blocks depend on the batch alone. More than a few cost more than they balance: at 27,000 items
# a pass forward and backward takes 6 % longer with 16 of them than with 8.
MAX_BLOCKS = 8
BLOCK_COST = 24_000  # work, in pairs, that is worth a block
ROW_COST = 4  # of the matrix products of an item, in pairs

# Where less than this share of all items is in the lists, only those are looked at.
FEW = 0.7


class Blocks(NamedTuple):
    """Pairs grouped by item, and items by block.

    Attributes:
        pairs: The pairs of the items.
        rows: The items, ``[n]``; None if they are all there are.
        slices: The blocks, as parts of the items.
    """

    pairs: Pairs
    rows: Tensor | None
    slices: list[slice]

    def pairs_of(self, block: slice) -> Pairs:
        """Return all pairs with the offsets of the items in `block` only."""
        return self.pairs._replace(offsets=self.pairs.offsets[block.start : block.stop + 1])


def blocks_of(item: NDArray[np.int32], n_items: int) -> Blocks:
    """Return the blocks of lists of items, ``[Q, L]``, out of `n_items`."""
    pairs, rows = group_pairs(item, n_items), None
    in_lists = np.diff(pairs.offsets) > 0
    if np.count_nonzero(in_lists) < FEW * n_items:
        touched = np.flatnonzero(in_lists)
        rows = torch.from_numpy(touched)
        pairs = pairs._replace(offsets=np.append(pairs.offsets[touched], item.size))
    cost = pairs.offsets + ROW_COST * np.arange(len(pairs.offsets))
    count = min(1 + int(cost[-1]) // BLOCK_COST, MAX_BLOCKS)
    edges = np.unique(np.searchsorted(cost, np.linspace(0, cost[-1], count + 1))).tolist()
    slices = [slice(start, stop) for start, stop in pairwise(edges)]
    return Blocks(pairs, rows, slices or [slice(0, 0)])
