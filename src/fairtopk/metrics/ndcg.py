"""NDCG: how well an order puts relevant items first."""

from torch import Tensor

from fairtopk.arguments import checked_whole
from fairtopk.metrics.inputs import Values, checked_relevance, checked_scores
from fairtopk.metrics.tops import Tops, measured_lists


def ndcg(scores: Values, relevance: Values, *, k: int, mask: Values | None = None) -> Tensor:
    """Return NDCG@k of each list: its DCG over that of the best order of the same list.

    DCG is the sum of (2^y - 1) / log2(1 + rank) over the top `k`: gains are exponential, the
    discount is logarithmic. Ranks are ordinal: of equal scores the earlier slot is first.

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
    ks = (checked_whole("k", k, least=1),)
    return measured_lists(ndcg_at, lists, valid, ks, relevance=grades)[:, 0]


def ndcg_at(tops: Tops) -> Tensor:
    """Return NDCG at each K, ``[Q, len(ks)]``."""
    return tops.dcg / tops.ideal  # without a relevant item both are 0, and 0 / 0 is NaN
