"""ListNet, Eq. 4: the cross-entropy between softmax(y) and softmax(h).

ListNet, Eq. 4, on the list at hand, or where slots are weighted on what it stands for.
"""

import torch
from torch import Tensor, nn

from fairtopk.lists.batch import Batch
from fairtopk.objectives.base import Estimate, Selection


def listnet_loss(
    scores: Tensor, relevance: Tensor, mask: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the loss of each list, ``[Q]``, and softmax(h) - softmax(y), its gradient.

    A slot that stands for w items is w times in both sums of exponentials, in the target too.

    Args:
        scores: Model scores, ``[Q, L]``.
        relevance: Grades, ``[Q, L]``.
        mask: False on padding, ``[Q, L]``.
        weight: How many items each slot stands for, above 0 where `mask` is, ``[Q, L]``.
    """
    many = weight.log()
    log_model = (scores + many).masked_fill(~mask, -torch.inf).log_softmax(-1)
    target = (relevance + many).masked_fill(~mask, -torch.inf).softmax(-1)
    loss = -(target * (log_model - many).masked_fill(~mask, 0)).sum(-1)
    return loss, log_model.exp() - target


class ListNet(nn.Module):
    """Estimate the cross-entropy between softmax(y) and softmax(h), and its gradient."""

    def forward(self, scores: Tensor, batch: Batch, selection: Selection) -> Estimate:
        """Take one step; a cross-entropy is about whole lists, so `selection` is not read."""
        loss, grad = listnet_loss(scores, batch.relevance, batch.mask, batch.weight)
        return Estimate(value=loss.mean(), grad=grad / len(scores))
