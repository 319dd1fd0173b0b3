"""The NDCG surrogate on sampled lists: SONG, and K-SONG when a top K is selected.

Paper: surrogate Eq. 15, averages u_{q,i} Eq. 17, gradient Eq. 18. K-SONG weighs each relevant
item's term by psi(h_i - lambda).
"""

import math

import torch
from torch import Tensor, nn

from fairtopk.batches import Batch
from fairtopk.estimators.base import Estimate, Selection
from fairtopk.estimators.state import MovingAverage
from fairtopk.functional.hinge import mean_squared_hinge
from fairtopk.functional.ndcg import ndcg_slope, ndcg_term


class NdcgSurrogate(nn.Module):
    """Estimate -NDCG, smoothed, and its gradient with respect to scores.

    Args:
        n_pairs: Rows of the table of surrogate ranks u_{q,i}.
        gamma_0: Weight of a fresh surrogate rank in its average; 1 forgets the past.
        margin: The hinge's c.
        start: What the table holds before a pair's first visit, see `MovingAverage`.
    """

    def __init__(
        self, n_pairs: int, *, gamma_0: float, margin: float = 1.0, start: float = math.nan
    ) -> None:
        super().__init__()
        self.margin = margin
        self.u_qi = MovingAverage(n_pairs, gamma=gamma_0, start=start)

    def forward(self, scores: Tensor, batch: Batch, selection: Selection) -> Estimate:
        """Take one step; `selection` says how much each slot counts."""
        rows = batch.pair.shape[1]
        relevance = batch.relevance[:, :rows]
        relevant = (relevance > 0) & batch.mask[:, :rows]
        # The sampled relevant items stand for all relevant items of the query.
        found = relevant.sum(-1).clamp(min=1).to(scores.dtype)
        scale = batch.n_relevant / found / len(scores)
        gain = torch.where(relevant, (2**relevance - 1) / batch.ideal_dcg[:, None], 0)
        gain, length = gain * scale[:, None], batch.length[:, None]

        with torch.enable_grad():
            leaf = scores.detach().requires_grad_()
            mean_hinge = mean_squared_hinge(leaf, batch.share, rows=rows, margin=self.margin)
        fresh = mean_hinge.detach()
        # Eq. 17. Eq. 18 reads the old averages; we read the new, which exist from the first
        # visit on.
        u = self.u_qi.update(batch.pair, fresh, where=relevant & (batch.pair >= 0))
        term, psi = ndcg_term(u, gain, length), selection.psi[:, :rows]
        (grad,) = torch.autograd.grad(mean_hinge, leaf, psi * ndcg_slope(u, gain, length))
        selection.add_through(term, grad)
        return Estimate(value=(psi * term).sum(), grad=grad)
