"""Divergence of the groups in the prefixes of a list from those in the whole."""

import torch
from torch import Tensor

from fairtopk.arguments import checked_whole
from fairtopk.kernels.divergence import mean_divergences
from fairtopk.metrics.inputs import Values, by_blocks, checked_groups, checked_scores


def ndkl(scores: Values, groups: Values, *, k: int, mask: Values | None = None) -> Tensor:
    """Return the normalised discounted divergence of the first `k` prefixes of each list.

    With D_i the shares of the groups among the first i items and D those in the whole list,
    which are the target,

        NDKL = (1 / Z) sum over i up to k of KL(D_i, D) / log2(1 + i),

    where KL is the sum of D_i log(D_i / D) over groups, in nats, and Z the sum of
    1 / log2(1 + i). It is 0 where every prefix has the groups of the whole list (Geyik, Ambler
    and Kenthapadi, 2019). The package FairRankTune adds 1e-7 to every share, which changes it
    by some 1e-6.

    An item of unknown group takes its rank and counts in no share; prefixes without a known
    item are left out, of Z too.

    Args:
        scores: Model scores, ``[Q, L]``; of equal scores the earlier slot ranks first.
        groups: Group numbers, -1 unknown, ``[Q, L]``; booleans mark the named group.
        k: Length of the longest prefix; from L on it is the whole list.
        mask: False on padding, ``[Q, L]``; left out, there is none.

    Returns:
        ``[Q]``, from 0 to the logarithm of one over the smallest group's share; NaN where a
        list lacks two groups or its top `k` a known item.

    Example:
        >>> import torch
        >>> scores, groups = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1, 1, 0]])
        >>> ndkl(scores, groups, k=3)
        tensor([0.3103])
    """
    lists, valid = checked_scores(scores, mask)
    labels, depth = checked_groups(groups, lists, valid), checked_whole("k", k, least=1)

    def block(*tensors: Tensor) -> Tensor:
        scores, mask, group = (tensor.contiguous().cpu().numpy() for tensor in tensors)
        found = mean_divergences(scores, mask, group, labels.n_groups, depth)
        return torch.from_numpy(found).to(tensors[0])

    return by_blocks(block, lists, valid, labels.group)
