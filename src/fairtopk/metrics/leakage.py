"""How well groups can be told from scores: what a score gives away without being asked."""

import torch
from torch import Tensor

from fairtopk.kernels.leakage import group_aucs
from fairtopk.metrics.inputs import Values, by_blocks, checked_groups, checked_scores


def group_auc(scores: Values, groups: Values, *, mask: Values | None = None) -> Tensor:
    """Return how well each list's scores tell the named group from the rest, ``[Q]``.

    It is the area under the ROC curve of the scores as a guess of the group: the share of pairs
    of an item of group 0 and one of another known group in which the first has the higher
    score, equal scores counting half. At 0.5 scores tell nothing; at 1 the named group is on
    top, at 0 at the bottom, and both give it away alike. Only the order of scores counts.

    Args:
        scores: Model scores, ``[Q, L]``.
        groups: Group numbers, -1 unknown, ``[Q, L]``; booleans mark the named group.
        mask: False on padding, ``[Q, L]``; left out, there is none.

    Returns:
        ``[Q]``, in [0, 1]; NaN where group 0 or the rest is absent.

    Example:
        >>> import torch
        >>> scores, groups = torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[0, 1, 1]])
        >>> group_auc(scores, groups), group_auc(torch.zeros(1, 3), groups)
        (tensor([1.]), tensor([0.5000]))
    """
    lists, valid = checked_scores(scores, mask)
    labels = checked_groups(groups, lists, valid)

    def block(*tensors: Tensor) -> Tensor:
        found = group_aucs(*(tensor.contiguous().cpu().numpy() for tensor in tensors))
        return torch.from_numpy(found).to(tensors[0])

    return by_blocks(block, lists, valid, labels.group)
