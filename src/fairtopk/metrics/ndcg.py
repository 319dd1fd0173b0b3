"""NDCG: how well an order puts relevant items first."""

from collections.abc import Sequence

from torch import Tensor

from fairtopk.functional.ranking import Ranked, best_gains, discounted, gain, ranked, top_sums
from fairtopk.metrics.inputs import (
    Values,
    by_blocks,
    checked_ks,
    checked_relevance,
    checked_scores,
)


def ndcg(scores: Values, relevance: Values, *, k: int, mask: Values | None = None) -> Tensor:
    """Return NDCG@k of each list: its DCG over that of the best order of the same list.

    DCG is the sum of (2^y - 1) / log2(1 + rank) over the top `k`. Ranks are ordinal: of equal
    scores the earlier slot is first.

    Args:
        scores: Model scores, ``[Q, L]``.
        relevance: Grades y, from 0, ``[Q, L]``.
        k: Length of the top of the list; from L on it is the whole list.
        mask: False on padding, ``[Q, L]``; left out, there is none.

    Returns:
        ``[Q]``, in [0, 1]; NaN where no item of a list is relevant.

    Example:
        >>> import torch
        >>> ndcg(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[0, 0, 1]]), k=3)
        tensor([0.5000])
    """
    lists, valid = checked_scores(scores, mask)
    grades = checked_relevance(relevance, lists, valid)
    ks = checked_ks([k])

    def measure(scores: Tensor, mask: Tensor, relevance: Tensor) -> Tensor:
        return ndcg_at(ranked(scores, mask), relevance, mask, ks)[:, 0]

    return by_blocks(measure, lists, valid, grades)


def ndcg_at(lists: Ranked, relevance: Tensor, mask: Tensor, ks: Sequence[int]) -> Tensor:
    """Return NDCG at each of `ks`, ``[Q, len(ks)]``; `relevance` and `mask` are by slot."""
    gains = gain(relevance).masked_fill(~mask, 0)
    achieved = top_sums(discounted(gains.gather(-1, lists.slot)), ks)
    # Without a relevant item both are 0, and 0 / 0 is NaN.
    return achieved / top_sums(discounted(best_gains(gains, max(ks))), ks)
