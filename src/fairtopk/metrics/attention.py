"""Attention-weighted rank fairness: what groups get if readers stop at random.

Whoever has come to a place gives it the share p of the attention that is left, so that the
place of rank r has p (1 - p)^(r - 1): far more for the first places than 1 / log2(1 + rank).
"""

import numpy as np
from torch import Tensor

from fairtopk.arguments import checked_share
from fairtopk.kernels.measures import Doubles
from fairtopk.metrics.grouped import largest_gap, rank_exposure
from fairtopk.metrics.inputs import Values
from fairtopk.metrics.tops import Tops, Worth, measured_by_group, measured_groups


def awrf(
    scores: Values, groups: Values, *, k: int, p: float = 0.5, mask: Values | None = None
) -> Tensor:
    """Return the difference between groups in mean attention in the top `k`, per list.

    A group's mean attention is the sum of p (1 - p)^(rank - 1) over its items in the top `k`,
    over its size in the whole list. The target is that all groups have the same, so that
    attention is shared as items are. With three or more groups it is the largest difference
    between two that the list has. For the whole list, times 100, this is AWRF (Sapiezynski and
    others, 2019) as the package FairRankTune has it with ``MaxMinDiff``.

    Args:
        scores: Model scores, ``[Q, L]``; of equal scores the earlier slot ranks first.
        groups: Group numbers, -1 unknown, ``[Q, L]``; booleans mark the named group.
        k: Length of the top of the list; from L on it is the whole list.
        p: Share of attention that the first place has, above 0 and at most 1.
        mask: False on padding, ``[Q, L]``; left out, there is none.

    Returns:
        ``[Q]``, in [0, p]; NaN where a list lacks two groups.

    Example:
        >>> import torch
        >>> scores, groups = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1, 1, 0]])
        >>> awrf(scores, groups, k=3)
        tensor([0.2500])
    """

    def gap(tops: Tops) -> Tensor:
        return largest_gap(rank_exposure(tops))

    return measured_groups(gap, scores, groups, k=k, mask=mask, worth=_attention(p))


def group_attentions(
    scores: Values, groups: Values, *, k: int, p: float = 0.5, mask: Values | None = None
) -> Tensor:
    """Return each group's mean attention in the top `k`, ``[Q, G]``; NaN where absent.

    Definition and arguments are those of `awrf`. Items of unknown group, if there are any, have
    one more column, the last, as in `group_exposures`.

    Example:
        >>> import torch
        >>> scores, groups = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1, 1, 0]])
        >>> group_attentions(scores, groups, k=3)
        tensor([[0.1250, 0.3750]])
    """
    worth = _attention(p)
    return measured_by_group(rank_exposure, scores, groups, k=k, mask=mask, worth=worth)


def _attention(p: float) -> Worth:
    share = checked_share("p", p)

    def attention(places: int) -> Doubles:
        return share * np.power(1 - share, np.arange(places), dtype=np.float64)

    return attention
