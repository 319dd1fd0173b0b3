"""Putting lists in order, and what a place in that order is worth.

A tie of scores is broken by position, the earlier slot first, so exactly K items are in the top
K. Padding comes last. Scores are finite wherever the mask is True; ranks count from 1.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Ranked(NamedTuple):
    """Lists in ranked order.

    Attributes:
        slot: The slot that the item at each place came from, ``[Q, L]``.
        scores: Never rising, -inf on padding, ``[Q, L]``.
    """

    slot: Tensor
    scores: Tensor


def ranked(scores: Tensor, mask: Tensor) -> Ranked:
    """Return the lists in ranked order; `scores` and `mask` are ``[Q, L]``."""
    slot = order(scores, mask)
    return Ranked(slot, scores.masked_fill(~mask, -torch.inf).gather(-1, slot))


def order(scores: Tensor, mask: Tensor) -> Tensor:
    """Return the slots of each list from best to worst, padding last, ``[Q, L]`` int64."""
    held = scores.detach().masked_fill(~mask, -torch.inf)
    if held.dtype == torch.float32 and held.device.type == "cpu":
        return _order_by_keys(held)
    return held.argsort(dim=-1, descending=True, stable=True)


def rank(scores: Tensor, mask: Tensor) -> Tensor:
    """Return the ordinal rank of each slot, ``[Q, L]`` int64.

    A list of n items uses the ranks 1 to n; its padding has those from n + 1 to L.
    """
    slot = order(scores, mask)
    ranks = torch.arange(1, slot.shape[-1] + 1, device=slot.device)
    return torch.empty_like(slot).scatter_(-1, slot, ranks.expand_as(slot))


def discount(rank: Tensor) -> Tensor:
    """Return 1 / log2(1 + rank), in the type of `rank` (torch's default if that is whole)."""
    return 1 / torch.log2(1 + rank)


def gain(relevance: Tensor) -> Tensor:
    """Return 2^y - 1."""
    return torch.exp2(relevance) - 1


def discounted(values: Tensor) -> Tensor:
    """Return values by place, ``[..., L]``, times the discount of their place."""
    ranks = torch.arange(1, values.shape[-1] + 1, device=values.device, dtype=values.dtype)
    return values * discount(ranks)


def best_gains(gains: Tensor, k: int) -> Tensor:
    """Return the gains of an ideal ranking's first places, ``[Q, at most k]``.

    Gains are ``[Q, L]``, not negative. The places left out have no gain in any list.
    """
    # Most lists have few relevant items, and a short selection is far cheaper than a sort.
    deepest = int((gains > 0).sum(-1).amax())
    return gains.topk(min(k, deepest), dim=-1).values


def ideal_dcg(relevance: Tensor, mask: Tensor, k: int | None) -> Tensor:
    """Return the largest DCG that an order of the list has at `k`, None for all, ``[Q]``.

    It is 0 where no item is relevant. Relevance is not negative.
    """
    gains = gain(relevance).masked_fill(~mask, 0)
    return discounted(best_gains(gains, gains.shape[-1] if k is None else k)).sum(-1)


def _order_by_keys(scores: Tensor) -> Tensor:
    """Return the stable descending order of float32 scores by a plain sort of whole numbers.

    A key has the score in its upper half and the slot in its lower half, so no two keys of a
    list are equal. numpy sorts such numbers with vector instructions, several times faster than
    a stable sort of pairs.
    """
    bits = (scores + 0.0).view(torch.int32)  # adding 0 makes -0 the same as 0
    # IEEE 754: below zero, the larger the bits the smaller the number.
    falling = ~torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    slots = torch.arange(scores.shape[-1])
    keys = (falling.long() << 32) | slots
    return torch.from_numpy(np.sort(keys.numpy(), axis=-1)) & 0xFFFFFFFF
