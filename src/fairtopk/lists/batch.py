"""Ranking lists as padded tensors, their order, and the best DCG that an order can have.

A tie of scores is broken by position, the earlier slot first, so exactly K items are in the top
K. Padding comes last. Scores are finite wherever the mask is True; ranks count from 1.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Columns(NamedTuple):
    """What a batch holds: Q queries with L slots each, relevant items in the first R slots.

    A list stands for a longer one, of which it is a sample, or for itself. In the terms of
    Algorithm 1, the slots in `mask` are B_q and those with a label in `group` are B_a and B_b:
    mostly the same slots, but the groups may also be drawn apart.

    Attributes:
        query: Query (user) numbers, ``[Q]``.
        item: Item numbers, ``[Q, L]``; 0 on padding.
        relevance: Grades, 0 for unrated items, ``[Q, L]``.
        group: The group that a slot speaks for, -1 for none, ``[Q, L]``.
        mask: Whether a slot is part of the list, ``[Q, L]``; False on padding.
        pair: The row of each (query, item) in tables kept per pair, -1 where there is none,
            ``[Q, R]``.
        weight: How many items of the whole list a slot stands for, ``[Q, L]``; 0 on padding,
            ones where the sample counts as uniform and stands for itself.
        n_items: Length of the whole list, N_q, ``[Q]``.
        n_relevant: Relevant items of the whole list, ``[Q]``.
        ideal_dcg: Ideal DCG of the whole list, Z_q, ``[Q]``.
    """

    query: Tensor
    item: Tensor
    relevance: Tensor
    group: Tensor
    mask: Tensor
    pair: Tensor
    weight: Tensor
    n_items: Tensor
    n_relevant: Tensor
    ideal_dcg: Tensor


class Batch(Columns):
    """Lists of Q queries, with what several parts of an objective ask of them, found once."""

    @cached_property
    def valid(self) -> Tensor:
        """Which slots hold an item, of the list or drawn apart from it, ``[Q, L]``."""
        return self.weight > 0

    @cached_property
    def n_slots(self) -> Tensor:
        """How many slots each list has at hand, in the type of weights, ``[Q]``."""
        return self.mask.to(self.weight.dtype).sum(-1)

    @cached_property
    def slot_counts(self) -> Tensor:
        """How many items each slot of the list stands for, ``[Q, L]``; 0 off the list."""
        return self.weight * self.mask

    @cached_property
    def n_represented(self) -> Tensor:
        """How many items the slots of a list stand for together, ``[Q]``.

        A sample that is weighted stands for the catalogue, one that counts as uniform for
        itself: it has as many as `n_slots`.
        """
        return self.slot_counts.sum(-1)

    @cached_property
    def slot_weights(self) -> Tensor:
        """The weight of each slot in a mean over its list, ``[Q, L]``; 0 off the list."""
        return self.slot_counts / self.n_represented[:, None]

    @cached_property
    def unrated(self) -> "Batch":
        """The same lists without the items that the user has rated in training.

        Those are never recommended; how groups fare among them says nothing of what is.
        """
        rows = self.pair.shape[1]
        rated = torch.zeros_like(self.mask)
        rated[:, :rows] = self.pair >= 0
        left_out = (self.slot_counts * rated).sum(-1)
        return self._replace(
            group=self.group.masked_fill(rated, -1),
            mask=self.mask & ~rated,
            weight=self.weight.masked_fill(rated, 0),
            n_items=self.n_items - left_out.round().to(self.n_items.dtype),
        )


@dataclass(frozen=True, eq=False)
class Candidates:
    """Lists to be ranked, as arrays of queries by slots.

    Attributes:
        user: The users, ``[Q]``.
        item: Item numbers, ``[Q, L]``; 0 on padding.
        relevance: The held-out rating, 0 for unrated items, ``[Q, L]``.
        mask: False on padding, ``[Q, L]``.
    """

    user: NDArray[np.int64]
    item: NDArray[np.int32]
    relevance: NDArray[np.float32]
    mask: NDArray[np.bool_]


def list_batch(
    query: Tensor,
    relevance: Tensor,
    group: Tensor,
    mask: Tensor,
    *,
    item: Tensor | None = None,
    ideal_k: int | None = None,
) -> Batch:
    """Return lists that stand for themselves as a batch.

    Any slot may be relevant, but what follows the last that is costs less.

    Args:
        query: Query numbers, ``[Q]``.
        relevance: Grades, ``[Q, L]``.
        group: Group numbers, -1 unknown, ``[Q, L]``.
        mask: False on padding, ``[Q, L]``.
        item: Item numbers, for a scorer that reads them, ``[Q, L]``.
        ideal_k: Where the ideal DCG is cut; None is nowhere.
    """
    relevance = relevance.masked_fill(~mask, 0)
    relevant = relevance > 0
    n_rows = int(relevant.any(0).nonzero().max()) + 1 if relevant.any() else 0
    return Batch(
        query=query,
        item=item if item is not None else torch.zeros_like(group),
        relevance=relevance,
        group=group.masked_fill(~mask, -1),
        mask=mask,
        pair=torch.full((len(relevance), n_rows), -1, device=relevance.device),
        weight=mask.to(relevance.dtype),
        n_items=mask.sum(-1),
        n_relevant=relevant.sum(-1),
        ideal_dcg=ideal_dcg(relevance[:, :n_rows], mask[:, :n_rows], ideal_k),
    )


def candidate_batch(lists: Candidates, group: NDArray[np.int32]) -> Batch:
    """Return evaluation lists as a batch; `group` is the group number of each item."""
    arrays = (lists.user, lists.relevance, group[lists.item], lists.mask, lists.item)
    query, relevance, label, mask, item = (
        torch.from_numpy(np.array(array)) for array in arrays
    )
    return list_batch(query, relevance, label, mask, item=item)


def order(scores: Tensor, mask: Tensor) -> Tensor:
    """Return the slots of each list from best to worst, padding last, ``[Q, L]`` int64."""
    held = scores.detach().masked_fill(~mask, -torch.inf)
    if held.dtype != torch.float32 or held.device.type != "cpu":
        return held.argsort(dim=-1, descending=True, stable=True)
    # A key has the score in its upper half and the slot in its lower half, so no two keys of a
    # list are equal. numpy sorts such numbers with vector instructions, several times faster
    # than a stable sort of pairs.
    bits = (held + 0.0).view(torch.int32)  # adding 0 makes -0 the same as 0
    # IEEE 754: below zero, the larger the bits the smaller the number.
    falling = ~torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    keys = (falling.long() << 32) | torch.arange(held.shape[-1])
    return torch.from_numpy(np.sort(keys.numpy(), axis=-1)) & 0xFFFFFFFF


def rank(scores: Tensor, mask: Tensor) -> Tensor:
    """Return the ordinal rank of each slot, ``[Q, L]`` int64.

    A list of n items uses the ranks 1 to n; its padding has those from n + 1 to L.
    """
    slot = order(scores, mask)
    # Eq. 2; ties keep the order of the slots, where the paper's share the last of their ranks
    ranks = torch.arange(1, slot.shape[-1] + 1, device=slot.device)
    return torch.empty_like(slot).scatter_(-1, slot, ranks.expand_as(slot))


def ideal_dcg(relevance: Tensor, mask: Tensor, k: int | None) -> Tensor:
    """Return the largest DCG that an order of the list has at `k`, None for all, ``[Q]``.

    The gain of relevance y is 2^y - 1, the discount of rank r is 1 / log2(1 + r). Where no item
    is relevant, it is 0. Relevance is not negative.
    """
    gains = (torch.exp2(relevance) - 1).masked_fill(~mask, 0)
    # Most lists have few relevant items, and a short selection is far cheaper than a sort.
    deepest = int((gains > 0).sum(-1).amax())
    best = gains.topk(deepest if k is None else min(k, deepest), dim=-1).values
    ranks = torch.arange(1, best.shape[-1] + 1, device=best.device, dtype=best.dtype)
    return (best * (1 / torch.log2(1 + ranks))).sum(-1)
