"""ListNet, Eq. 4: the cross-entropy between softmax(y) and softmax(h)."""

import torch
from torch import Tensor


def listnet_loss(scores: Tensor, relevance: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return the loss of each list, ``[Q]``, and softmax(h) - softmax(y), its gradient."""
    log_model = scores.masked_fill(~mask, -torch.inf).log_softmax(-1)
    target = relevance.masked_fill(~mask, -torch.inf).softmax(-1)
    loss = -(target * log_model.masked_fill(~mask, 0)).sum(-1)
    return loss, log_model.exp() - target
