"""Numbers for ids that are any 64-bit words, given out as they appear."""

from typing import Any

import torch
from torch import Tensor, nn

from fairtopk.estimators.hash_table import FIRST_SIZE, FREE, claim_rows, find_rows, with_room


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
