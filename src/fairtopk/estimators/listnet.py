"""ListNet, Eq. 4, on the list at hand, or where slots are weighted on what it stands for."""

from torch import Tensor, nn

from fairtopk.batches import Batch
from fairtopk.estimators.base import Estimate, Selection
from fairtopk.functional.listnet import listnet_loss


class ListNet(nn.Module):
    """Estimate the cross-entropy between softmax(y) and softmax(h), and its gradient."""

    def forward(self, scores: Tensor, batch: Batch, selection: Selection) -> Estimate:
        """Take one step; a cross-entropy is about whole lists, so `selection` is not read."""
        loss, grad = listnet_loss(scores, batch.relevance, batch.mask, batch.weight)
        return Estimate(value=loss.mean(), grad=grad / len(scores))
