"""ListNet, Eq. 4, on the list at hand."""

from torch import Tensor, nn

from fairtopk.batches import Batch
from fairtopk.estimators.base import Estimate, Selection
from fairtopk.functional.listnet import listnet_loss


class ListNet(nn.Module):
    """Estimate the cross-entropy between softmax(y) and softmax(h), and its gradient."""

    def forward(self, scores: Tensor, batch: Batch, selection: Selection) -> Estimate:
        """Take one step; a cross-entropy is about whole lists, so `selection` is not read."""
        loss, grad = listnet_loss(scores, batch.relevance, batch.mask)
        return Estimate(value=loss.mean(), grad=grad / len(scores))
