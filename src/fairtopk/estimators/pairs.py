"""Averages per (query, item) pair whose rows are given out as pairs appear.

The table is a hash table, so that it needs neither all pairs beforehand nor users x items rows.
"""

import math
from typing import Any

import torch
from torch import Tensor

from fairtopk.estimators.hash_table import FIRST_SIZE, FREE, claim_rows, find_rows, with_room
from fairtopk.estimators.state import MovingAverage

# A pair's key is one word below 2^63.
QUERY_BITS, ITEM_BITS = 30, 33


class PairAverage(MovingAverage):
    """One average per (query, item) pair, in a table that grows.

    Keys are a buffer like the averages, and a table of any size can be loaded.

    Args:
        gamma: Weight of a new value; 1 forgets the past.
        start: What a row holds before its first visit; NaN takes the first value whole.
    """

    key: Tensor

    def __init__(self, *, gamma: float, start: float = math.nan) -> None:
        super().__init__(FIRST_SIZE, gamma=gamma, start=start)
        self.n_taken = 0
        self.register_buffer("key", torch.full((len(self.value),), FREE))

    def rows(self, query: Tensor, item: Tensor) -> Tensor:
        """Return the row of each pair, -1 where it has none, ``[n]``.

        A pair that is new gets a row, unless nothing is to be remembered.

        Args:
            query: Query numbers from 0, below 2^30, ``[n]``.
            item: Item numbers from 0, below 2^33, ``[n]``; with -1 there is no pair.
        """
        if self.gamma == 1:
            return torch.full_like(item, -1)
        wanted = ((query << ITEM_BITS) + item).masked_fill(item < 0, -1)
        found = find_rows(self.key, wanted)
        new = wanted[(found < 0) & (wanted >= 0)]
        if len(new) and self.training and torch.is_grad_enabled():
            self.n_taken += len(new)
            self.key, self.value = with_room(
                self.key, self.value, self.n_taken, start=self.start
            )
            claim_rows(self.key, new)
            found = find_rows(self.key, wanted)
        return found

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any
    ) -> None:
        if f"{prefix}key" in state_dict:
            size = len(state_dict[f"{prefix}key"])
            self.key = self.key.new_full((size,), FREE)
            self.value = self.value.new_full((size,), self.start)
        super()._load_from_state_dict(state_dict, prefix, *args)
        self.n_taken = int((self.key != FREE).sum())
