"""Disparity of exposure by position, smoothed: the experimental ``exposure = "rank"``.

Item i has exposure x_i = 1 / log2(1 + n g_i), where n g_i is the smoothed rank of
`functional.hinge`; group g has E_g, the mean of psi_i x_i over its items. Softmax exposure
shrinks when scores get flatter; this one hardly does, but then nothing holds the scale of
scores, so that it needs the anchor 1/2 (spread - 1)^2 beside it.
"""

import torch
from torch import Tensor, nn

from fairtopk.batches import Batch
from fairtopk.estimators.base import Disparity, Selection
from fairtopk.functional.groups import group_sums, pair_penalty, signed_gap, values_of_groups
from fairtopk.functional.hinge import mean_squared_hinge
from fairtopk.functional.ndcg import ndcg_slope, ndcg_term


class RankExposureDisparity(nn.Module):
    """Estimate the penalty on discount exposure and its gradient; it remembers nothing.

    Args:
        n_groups: Number of groups (G).
        margin: The hinge's c.
    """

    def __init__(self, n_groups: int, *, margin: float = 1.0) -> None:
        super().__init__()
        self.n_groups = n_groups
        self.margin = margin

    def forward(
        self, scores: Tensor, batch: Batch, selection: Selection, cost: Tensor
    ) -> Disparity:
        """Return the weighted penalty; see `ExposureDisparity`."""
        size = group_sums(batch.weight, batch.group, n_groups=self.n_groups)
        present, size = size > 0, size.clamp(min=torch.finfo(size.dtype).tiny)
        present &= (present.sum(-1) > 1)[:, None]
        share, length = batch.share, batch.whole[:, None]
        with torch.enable_grad():
            leaf = scores.detach().requires_grad_()
            mean_hinge = mean_squared_hinge(
                leaf, share, rows=scores.shape[1], margin=self.margin
            )
        # A slot drawn apart from the list lacks its own part of the mean, l(0) / n = c^2 / n,
        # without which an item above all others would have rank 0.
        fresh = mean_hinge.detach() + (share == 0) * self.margin**2 / length
        discount = -ndcg_term(fresh, torch.ones_like(fresh), length)
        weighted = batch.weight * selection.psi * discount
        total = group_sums(weighted, batch.group, n_groups=self.n_groups)
        exposure = total / size
        penalty, pull = pair_penalty(exposure, present)

        cost = cost / len(scores)
        pull = pull * cost[:, None] / size
        toward = batch.weight * values_of_groups(pull, batch.group)
        upstream = -ndcg_slope(fresh, selection.psi * toward, length)
        (grad,) = torch.autograd.grad(mean_hinge, leaf, upstream)
        selection.add_through(toward * discount, grad)
        return Disparity(
            value=(penalty * cost).sum(),
            grad=grad,
            gap=signed_gap(exposure, present),
            defined=present.any(-1),
        )
