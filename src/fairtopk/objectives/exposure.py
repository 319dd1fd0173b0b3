"""Sums over the groups of a list, and the penalty on what they differ by.

Labels are integers from 0; -1 is unknown and belongs to no group.

Exposure disparity between groups, estimated from sampled lists.

Paper: penalty Eq. 7 (whole list) and Eq. 11 (top K), averages Eq. 21, gradient Eq. 22; for any
number of groups, the sum over pairs of groups that a list has.

Disparity of exposure by position, smoothed: the experimental ``exposure = "rank"``.

Item i has exposure x_i = 1 / log2(1 + n g_i), where n g_i is the smoothed rank of
`functional.hinge`; group g has E_g, the mean of psi_i x_i over its items. Softmax exposure
shrinks when scores get flatter; this one hardly does, but then nothing holds the scale of
scores, so that it needs the anchor 1/2 (spread - 1)^2 beside it.
"""

import math

import torch
from torch import Tensor, nn

from fairtopk.kernels import sums as loops
from fairtopk.lists.batch import Batch
from fairtopk.objectives.averages import LogMovingAverage
from fairtopk.objectives.base import Disparity, Selection
from fairtopk.objectives.ndcg import mean_squared_hinge, ndcg_slope, ndcg_term


def group_sums(values: Tensor, group: Tensor, *, n_groups: int) -> Tensor:
    """Return the sum of `values` over the slots of each group, ``[Q, G]``.

    Args:
        values: Of each slot, ``[Q, L]``.
        group: Label of each slot, -1 for none, ``[Q, L]``.
        n_groups: Number of groups, G.
    """
    if values.device.type == "cpu":  # in a fifth of the time that torch takes
        sums = values.new_zeros(len(values), n_groups)
        loops.group_sums(values.contiguous().numpy(), group.numpy(), sums.numpy())
        return sums
    # Not by scatter_add_, which elsewhere adds in any order.
    labels = torch.arange(n_groups, device=group.device)[:, None]
    return torch.einsum("qgl,ql->qg", (group[:, None, :] == labels).to(values.dtype), values)


def values_of_groups(table: Tensor, group: Tensor) -> Tensor:
    """Return for each slot what `table` has for its group, 0 for none, ``[Q, L]``.

    Args:
        table: A value for each group of each list, ``[Q, G]``.
        group: Label of each slot, -1 for none, ``[Q, L]``.
    """
    if table.device.type == "cpu":
        values = table.new_empty(group.shape)
        loops.values_of_groups(table.contiguous().numpy(), group.numpy(), values.numpy())
        return values
    padded = torch.nn.functional.pad(table, (0, 1))
    return padded.gather(1, group.long() % padded.shape[1])


def signed_gap(exposure: Tensor, present: Tensor) -> Tensor:
    """Return the exposure of group 0 less the mean of the other groups present, ``[Q]``.

    It is NaN where group 0 or all others are absent. Arguments are those of `pair_penalty`.
    """
    others = (exposure * present)[:, 1:].sum(-1) / present[:, 1:].sum(-1)
    return torch.where(present[:, 0], exposure[:, 0] - others, torch.nan)


def pair_penalty(exposure: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
    """Return the penalty 1/2 sum_{g<h} (E_g - E_h)^2 ``[Q]`` and its slope in E ``[Q, G]``.

    Only pairs of groups that are present count. With two groups this is the paper's 1/2 D^2 and
    the slope is (D, -D).

    Args:
        exposure: Exposure of each group, finite also where absent, ``[Q, G]``.
        present: Which groups a list has, ``[Q, G]``.
    """
    known = present.to(exposure.dtype)
    kept, n_present = exposure * known, known.sum(-1, keepdim=True)
    slope = known * (n_present * kept - kept.sum(-1, keepdim=True))
    # By squares of differences: never below 0, and precise where exposures are near.
    return (slope**2).sum(-1) / (2 * n_present[:, 0].clamp(min=1)), slope


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
        group, n_groups, length = batch.group, self.n_groups, batch.n_represented[:, None]
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
        shared = batch.slot_weights * scaled
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
        share, length = batch.slot_weights, batch.n_represented[:, None]
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
