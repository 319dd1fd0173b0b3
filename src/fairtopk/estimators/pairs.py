"""Averages per (query, item) pair whose rows are given out as pairs appear.

The table is a hash table with open addressing: a pair's row is its place in it. So it needs
neither all pairs beforehand nor users x items rows, and looks up a batch at once on any device.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairtopk.estimators.state import MovingAverage
from fairtopk.kernels import hashing as loops
from fairtopk.kernels.random import GOLDEN, MIX_1

FREE = -1  # no pair's key
ITEM_BITS = 32
FIRST_SIZE = 1024
# The same words as signed numbers, which torch multiplies modulo 2^64 too.
SPREAD_1, SPREAD_2 = (int(word.view(np.int64)) for word in (GOLDEN, MIX_1))


class PairAverage(MovingAverage):
    """One average per (query, item) pair, in a table that grows.

    At most half of the table is ever taken. Keys are a buffer like the averages, and a table of
    any size can be loaded.

    Args:
        gamma: Weight of a new value; 1 forgets the past.
        start: What a row holds before its first visit; NaN takes the first value whole.
    """

    key: Tensor

    def __init__(self, *, gamma: float, start: float = math.nan) -> None:
        super().__init__(FIRST_SIZE, gamma=gamma, start=start)
        self.n_taken = 0
        self.register_buffer("key", torch.full((len(self.value),), FREE))

    def rows(self, query: Tensor, item: Tensor, *, where: Tensor) -> Tensor:
        """Return the row of each pair, -1 where it has none, ``[Q, L]``.

        A pair that is new gets a row, unless nothing is to be remembered.

        Args:
            query: Query numbers from 0, below 2^31, ``[Q]``.
            item: Item numbers from 0, below 2^32, ``[Q, L]``.
            where: Which pairs need a row, ``[Q, L]``.
        """
        if self.gamma == 1:
            return torch.full_like(item, -1)
        wanted = ((query[:, None] << ITEM_BITS) + item)[where]
        found = find_rows(self.key, wanted)
        new = wanted[found < 0]
        if len(new) and self.training and torch.is_grad_enabled():
            self._make_room(len(new))
            claim_rows(self.key, new)
            found = find_rows(self.key, wanted)
        return torch.full_like(item, -1).masked_scatter_(where, found)

    def _make_room(self, n_new: int) -> None:
        """Take `n_new` more pairs into account, moving to a larger table if there are many."""
        self.n_taken += n_new
        size = len(self.key)
        if 2 * self.n_taken <= size:
            return
        while 2 * self.n_taken > size:
            size *= 2
        taken = self.key != FREE
        key, value = self.key[taken], self.value[taken]
        self._resize(size)
        claim_rows(self.key, key)
        self.value[find_rows(self.key, key)] = value

    def _resize(self, size: int) -> None:
        self.key = self.key.new_full((size,), FREE)
        self.value = self.value.new_full((size,), self.start)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any
    ) -> None:
        if f"{prefix}key" in state_dict:
            self._resize(len(state_dict[f"{prefix}key"]))
        super()._load_from_state_dict(state_dict, prefix, *args)
        self.n_taken = int((self.key != FREE).sum())


def find_rows(key: Tensor, wanted: Tensor) -> Tensor:
    """Return where in the table `key` the keys `wanted` are, -1 for those that are not."""
    row, step = probe(wanted, len(key))
    if key.device.type == "cpu":  # in a tenth of the time
        place = row.numpy(), step.numpy()
        return torch.from_numpy(loops.find_rows(key.numpy(), wanted.numpy(), *place, FREE))
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


def probe(wanted: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return where to look first, and an odd step, which leads through a table of size 2^m."""
    word = wanted * SPREAD_1
    word = (word ^ (word >> 32)) * SPREAD_2
    return (word >> 33) & (size - 1), (word & (size - 1)) | 1
