"""Exposure disparity between groups, estimated from sampled lists.

Paper: penalty Eq. 7 (whole list) and Eq. 11 (top K), averages Eq. 21, gradient Eq. 22; for any
number of groups, the sum over pairs of groups that a list has.
"""

import math

import torch
from torch import Tensor, nn

from fairtopk.batches import Batch
from fairtopk.estimators.base import Disparity, Selection
from fairtopk.estimators.state import LogMovingAverage
from fairtopk.functional.groups import group_sums, pair_penalty, signed_gap, values_of_groups


class ExposureDisparity(nn.Module):
    """Estimate the penalty U and its gradient with respect to scores.

    With u_g the mean of psi exp(h) over group g, u_q the mean of exp(h) over the list and n the
    length of the list, or of the whole that a weighted list stands for, group g has mean
    exposure E_g = u_g / (n u_q), and the penalty is 1/2 sum_{g<h} (E_g - E_h)^2. Each group has
    a u_q of its own, which visits the same lists as its u_g: were one left out when a list
    lacks a group, a common drift of all scores between two visits would look like a gap.

    Args:
        n_queries: Rows of the per-query tables (N).
        n_groups: Number of groups (G).
        gamma: Weight of a fresh batch in each average (gamma_1 = gamma_2 = gamma_3; were they
            unequal, a common drift of all scores would look like a gap). 1 forgets the past
            and gives the plain mini-batch gradient.
        start: What the averages are before a first visit; NaN takes the first value whole.
    """

    def __init__(
        self, n_queries: int, n_groups: int, *, gamma: float, start: float = math.nan
    ) -> None:
        super().__init__()
        self.n_groups = n_groups
        log_start = math.log(start) if start > 0 else (-math.inf if start == 0 else math.nan)
        self.log_u_g = LogMovingAverage(n_queries * n_groups, gamma=gamma, start=log_start)
        self.log_u_q = LogMovingAverage(n_queries * n_groups, gamma=gamma, start=log_start)

    def forward(
        self, scores: Tensor, batch: Batch, selection: Selection, cost: Tensor
    ) -> Disparity:
        """Take one step.

        Args:
            scores: Model scores, finite also on padding, ``[Q, L]``.
            batch: The lists.
            selection: How much each slot counts: psi(h - lambda) in Eq. 11, ones in Eq. 7.
            cost: Weight of each list's penalty, C, ``[Q]``.
        """
        group, n_groups, length = batch.group, self.n_groups, batch.whole[:, None]
        size = group_sums(batch.weight, group, n_groups=n_groups)
        present, size = size > 0, size.clamp(min=torch.finfo(size.dtype).tiny)
        # A list with fewer than two groups has no disparity, and must not touch the averages.
        present &= (present.sum(-1) > 1)[:, None]
        some = present.any(-1)

        # Eq. 21, kept as logarithms because exp(score) overflows.
        rows = batch.query[:, None] * self.n_groups
        rows = rows + torch.arange(self.n_groups, device=scores.device)
        held = torch.where(batch.valid, scores, -torch.inf)
        highest = held.amax(-1, keepdim=True)
        scaled = (held - highest).exp()
        weighted = batch.weight * scaled
        total = group_sums(weighted * selection.psi, group, n_groups=n_groups)
        fresh = (total / size).log() + highest
        log_g = self.log_u_g.update(rows, fresh, where=present)
        shared = batch.share * scaled
        fresh = shared.sum(-1, keepdim=True).log() + highest
        log_q = self.log_u_q.update(rows, fresh.expand(rows.shape), where=present)
        # A mean exposure is at most 1; a stale average could claim more.
        exposure = ((log_g - log_q).exp() / length).clamp(max=1)
        exposure = torch.where(present, exposure, 0)
        penalty, pull = pair_penalty(exposure, present)

        # Eq. 22 at the new averages (the paper reads the old), for any number of groups.
        cost = cost / len(scores)
        pull = pull * cost[:, None] * (highest - log_q).exp().masked_fill(~present, 0)
        toward = weighted * values_of_groups(pull / (size * length), group)
        drift = (pull * exposure).sum(-1, keepdim=True)
        grad = selection.psi * toward - shared * drift
        selection.add_through(toward, grad)
        return Disparity(
            value=(penalty * cost).sum(),
            grad=grad,
            gap=signed_gap(exposure, present),
            defined=some,
        )
