"""Bayesian personalised ranking (BPR): relevant items above others, pair by pair.

Each other item of a list is paired with one of its relevant items, in turn, so that every
relevant item has its share of the others. By grades, each item is paired with one of those that
have a higher one, in turn.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus


class ListPairs(NamedTuple):
    """Pairs of a relevant, or more relevant, item and another of the same list.

    Attributes:
        query: The list of each pair, ``[n]``.
        above: The slot of its relevant item, ``[n]``.
        below: The slot of the other, ``[n]``.
    """

    query: Tensor
    above: Tensor
    below: Tensor


def list_pairs(relevance: Tensor, mask: Tensor) -> ListPairs:
    """Return the pairs of all lists; one without a relevant item, or without others, has none.

    Args:
        relevance: Grades, ``[Q, L]``; above 0 is relevant.
        mask: False on padding, ``[Q, L]``.
    """
    relevant = (relevance > 0) & mask
    count = relevant.sum(-1)
    first = torch.where(relevant, 0, 1).argsort(dim=-1, stable=True)[:, : int(count.max())]
    others = ~relevant & mask & (count > 0)[:, None]
    query, below = others.nonzero().T
    turn = (others.cumsum(-1) - 1)[query, below] % count[query]
    return ListPairs(query, first[query, turn], below)


def graded_pairs(relevance: Tensor, mask: Tensor) -> ListPairs:
    """Return the pairs of all lists by grades, which may be any numbers.

    Where they are 0 or 1, they are those of `list_pairs`, whose arguments these are.
    """
    grade = relevance.masked_fill(~mask, -torch.inf)
    order = grade.argsort(dim=-1, descending=True, stable=True)
    falling = grade.gather(-1, order)
    # Those before the first of the same grade have a higher one.
    higher = torch.searchsorted(-falling, -falling)
    query, place = ((higher > 0) & falling.isfinite()).nonzero().T
    count = higher[query, place]
    above = order[query, (place - count) % count]
    below = order[query, place]
    return ListPairs(query, above, below)


def bpr_loss(scores: Tensor, pairs: ListPairs) -> tuple[Tensor, Tensor]:
    """Return the loss of each list, ``[Q]``, and its gradient, ``[Q, L]``.

    It is the mean of -ln sigmoid(h_above - h_below) over the list's pairs, 0 without any.
    """
    query, above, below = pairs
    behind = scores[query, below] - scores[query, above]
    share = 1 / torch.bincount(query, minlength=len(scores)).to(scores.dtype)[query]
    loss = scores.new_zeros(len(scores)).index_add_(0, query, share * softplus(behind))
    slope = share * behind.sigmoid()
    grad = torch.zeros_like(scores)
    grad.index_put_((query, above), -slope, accumulate=True)
    grad.index_put_((query, below), slope, accumulate=True)
    return loss, grad
