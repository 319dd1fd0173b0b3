"""Moving averages of Eqs. 17, 21 and 23, and their tables that grow.

u <- (1 - gamma) u + gamma x, one u per row of a table. A `gamma` weighs the new value, whereas
PyTorch's `momentum` weighs the old one. A row's first value is taken whole, so that the table's
start never leaks into a gradient; NaN marks a row that was never visited. Tables are buffers:
they follow ``.to()`` and are saved by ``state_dict()``. Nothing is remembered under ``eval()``
or ``no_grad``.

Averages per (query, item) pair live in a hash table, which needs neither all pairs beforehand
nor users x items rows.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from fairtopk.objectives._hash_table import FIRST_SIZE, FREE, claim_rows, find_rows, with_room

QUERY_BITS, ITEM_BITS = 30, 33  # a pair's key is one word below 2^63


class MovingAverage(nn.Module):
    """One average per row.

    Args:
        n_rows: Rows of the table.
        gamma: Weight of a new value; 1 forgets the past, and needs no table.
        start: What a row holds before its first visit; NaN takes the first value whole.
    """

    value: Tensor

    def __init__(self, n_rows: int, *, gamma: float, start: float = math.nan) -> None:
        super().__init__()
        self.gamma, self.start = gamma, start
        self.register_buffer("value", torch.full((n_rows if gamma < 1 else 0,), start))

    def update(self, rows: Tensor, fresh: Tensor, *, where: Tensor) -> Tensor:
        """Fold `fresh` into `rows` (no row twice) `where` True; return the new averages.

        Elsewhere nothing is remembered, and what is returned is `fresh`; there rows may be -1.
        """
        if self.gamma == 1:
            return fresh
        rows = rows.clamp(min=0)
        old = self.value[rows]
        current = torch.where(where & ~old.isnan(), self.blend(old, fresh), fresh)
        if self.training and torch.is_grad_enabled():
            self.value[rows[where]] = current[where].to(self.value.dtype)
        return current

    def blend(self, old: Tensor, fresh: Tensor) -> Tensor:
        """Return the average after a visit."""
        return (1 - self.gamma) * old + self.gamma * fresh  # Eqs. 17 and 23


class LogMovingAverage(MovingAverage):
    """One average per row, kept and given as its logarithm, for averages of exp(score).

    exp(score) overflows, and averages of it are comparable only on one scale; subtracting each
    batch's own maximum would silently mix scales.
    """

    def blend(self, old: Tensor, fresh: Tensor) -> Tensor:
        """Return the logarithm of the average after a visit."""
        keep = math.log(1 - self.gamma) if self.gamma < 1 else -math.inf
        return torch.logaddexp(old + keep, fresh + math.log(self.gamma))  # Eq. 21


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


class Numbering(nn.Module):
    """Gives ids numbers: small ones are their own, others get the next when they appear.

    Its table is held in buffers, and one of any size can be loaded. Nothing is remembered under
    ``eval()`` or ``no_grad``.

    Args:
        n_own: Ids from 0 on, below this, are their own numbers.
    """

    key: Tensor
    number: Tensor

    def __init__(self, n_own: int) -> None:
        super().__init__()
        self.n_own, self.n_taken = n_own, 0
        self.register_buffer("key", torch.full((FIRST_SIZE,), FREE))
        self.register_buffer("number", torch.full((FIRST_SIZE,), -1))

    @property
    def stop(self) -> int:
        """The number that the next new id gets; all so far are below."""
        return self.n_own + self.n_taken

    def numbers(self, ids: Tensor) -> Tensor:
        """Return the number of each id, -1 if it is new and not to be remembered, ``[n]``."""
        other = (ids < 0) | (ids >= self.n_own)
        if not other.any():
            return ids
        # One word of 2^64 marks free places: its id shares the number of the next.
        words = ids[other].clamp(min=FREE + 1)
        found = self._find(words)
        new = words[found < 0]
        if len(new) and self.training and torch.is_grad_enabled():
            self._take(new.unique())  # type: ignore[no-untyped-call]
            found = self._find(words)
        return ids.masked_scatter(other, found)

    def _find(self, words: Tensor) -> Tensor:
        rows = find_rows(self.key, words)
        return torch.where(rows < 0, -1, self.number[rows.clamp(min=0)])

    def _take(self, new: Tensor) -> None:
        """Give new ids, each named once, the next numbers."""
        number = self.stop + torch.arange(len(new), device=new.device)
        self.n_taken += len(new)
        self.key, self.number = with_room(self.key, self.number, self.n_taken, start=-1)
        claim_rows(self.key, new)
        self.number[find_rows(self.key, new)] = number

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any
    ) -> None:
        if f"{prefix}key" in state_dict:
            size = len(state_dict[f"{prefix}key"])
            self.key = self.key.new_full((size,), FREE)
            self.number = self.number.new_full((size,), -1)
        super()._load_from_state_dict(state_dict, prefix, *args)
        self.n_taken = int((self.key != FREE).sum())
