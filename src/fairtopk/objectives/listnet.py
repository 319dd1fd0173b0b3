"""The ListNet loss: cross-entropy between softmax(y) and softmax(h), Eq. 4."""

import torch
from torch import Tensor, nn

from fairtopk.lists.batch import Batch
from fairtopk.objectives.base import Estimate, Selection


class ListNet(nn.Module):
    """Estimate the ListNet loss and its gradient with respect to scores."""

    def forward(self, scores: Tensor, batch: Batch, selection: Selection) -> Estimate:
        """Take one step; the loss covers whole lists, so `selection` is ignored."""
        loss, grad = listnet_loss(scores, batch.relevance, batch.mask, batch.weight)
        return Estimate(value=loss.mean(), grad=grad / len(scores))


def listnet_loss(
    scores: Tensor, relevance: Tensor, mask: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the loss of each list, ``[Q]``, and its gradient softmax(h) - softmax(y).

    A slot that stands for w items counts w times in both sums of exponentials.

    Args:
        scores: Model scores, ``[Q, L]``.
        relevance: Grades, ``[Q, L]``.
        mask: False on padding, ``[Q, L]``.
        weight: How many items each slot stands for, above 0 where `mask` is, ``[Q, L]``.
    """
    log_weight = weight.log()
    log_model = (scores + log_weight).masked_fill(~mask, -torch.inf).log_softmax(-1)
    target = (relevance + log_weight).masked_fill(~mask, -torch.inf).softmax(-1)
    loss = -(target * (log_model - log_weight).masked_fill(~mask, 0)).sum(-1)  # Eq. 4
    return loss, log_model.exp() - target
