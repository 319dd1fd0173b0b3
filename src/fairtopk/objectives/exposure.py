"""Group exposure and the penalty on its disparity: Eqs. 5, 7, 11 and 19 to 22.

Item i has exposure e_i = exp(h_i) / sum_j exp(h_j) (Eq. 5), and group g of a list the mean
exposure E_g = mean of psi_i e_i over its items, with psi = 1 for whole lists. The penalty is
U = 1/2 sum_{g<h} (E_g - E_h)^2 over the pairs of groups in the list; with two groups that is
Eq. 7 for whole lists and Eq. 11 for the top K. Group numbers count from 0; -1 is unknown and
belongs to no group.

With ``exposure = "rank"`` the exposure of an item at rank r up to K is d_r = 1 / log2(1 + r),
behind K 0, as a share of the list's, so that exposures add up to 1 as those of Eq. 5 do. This
discount is a positive mixture of top-k's: d_r = sum_{k >= r} (d_k - d_{k+1}), d_{K+1} = 0. With
soft ones, p_i = F((h_i - b) / alpha) with the b of `threshold.soft_threshold`, the gap by rank
itself has a gradient (`RankExposureDisparity`).
"""

import math
from functools import cache, partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fairtopk.kernels.compiled import compiled, summing
from fairtopk.lists.batch import Batch
from fairtopk.objectives.averages import MovingAverage
from fairtopk.objectives.threshold import Selection, soft_threshold

Floats = NDArray[np.floating]
Labels = NDArray[np.signedinteger]
FEW_GROUPS = 8  # up to which one pass over the list per group is faster
SOFT_TOPS = 12  # that stand for the top-k's of a rank discount, at most


class Disparity(NamedTuple):
    """The value of a penalty on unequal exposure, its gradient, and the gaps behind it."""

    value: Tensor  # weighted mean over the queries, a scalar
    grad: Tensor  # of the value with respect to scores, [Q, L]
    gap: Tensor  # `signed_gap` of each list, [Q]
    defined: Tensor  # which lists have two groups, [Q]


def group_exposure(log_u_g: Tensor, log_u_q: Tensor, n_items: Tensor) -> Tensor:
    """Return E_g, the mean of psi_i e_i over each group's items, ``[Q, G]``.

    By Eq. 5, with u_g the mean of psi exp(h) over the group and u_q the mean of exp(h) over the
    list of n items, E_g = u_g / (n u_q).

    Args:
        log_u_g: ln u_g, ``[Q, G]``.
        log_u_q: ln u_q, ``[Q, G]`` or ``[Q, 1]``.
        n_items: n, ``[Q, 1]``.
    """
    # A mean exposure is at most 1; a stale average could claim more.
    return ((log_u_g - log_u_q).exp() / n_items).clamp(max=1)  # Eq. 5, averaged over a group


def pair_penalty(exposure: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
    """Return U = 1/2 sum_{g<h} (E_g - E_h)^2, ``[Q]``, and dU / dE, ``[Q, G]``.

    Only pairs of groups that are present count. With two groups and their gap D = E_a - E_b
    this is the 1/2 D^2 of Eqs. 7 and 11, and the derivative is (D, -D).

    Args:
        exposure: E_g, finite also where absent, ``[Q, G]``.
        present: Which groups a list has, ``[Q, G]``.
    """
    known = present.to(exposure.dtype)
    kept, n_present = exposure * known, known.sum(-1, keepdim=True)
    slope = known * (n_present * kept - kept.sum(-1, keepdim=True))
    # sum_g slope_g^2 = n sum_{g<h} (E_g - E_h)^2: never below 0, and precise where exposures
    # are close.
    return (slope**2).sum(-1) / (2 * n_present[:, 0].clamp(min=1)), slope  # Eqs. 7 and 11


class ExposureDisparity(nn.Module):
    """Estimate the penalty U and its gradient with respect to scores.

    With the averages u_g and u_q of Eq. 21, U = f(u_1, ..., u_G, u_q), where
    E_g = u_g / (n u_q). n is the number of items that the list represents (the paper's |S_q|; a
    uniform sample stands for itself). Each group keeps a u_q of its own, which is updated by
    the same lists as its u_g. With a common one, a shift of all scores while a list lacks the
    group would look like a gap.

    Args:
        n_queries: Rows of the per-query tables (N).
        n_groups: Number of groups (G).
        gamma: Weight of a fresh batch in each average (gamma_1 = gamma_2 = gamma_3; if they
            differed, a shift of all scores would look like a gap). 1 forgets the past and gives
            the plain mini-batch gradient.
        start: The averages before a first visit; NaN takes the first value whole.
    """

    def __init__(
        self, n_queries: int, n_groups: int, *, gamma: float, start: float = math.nan
    ) -> None:
        super().__init__()
        self.n_groups = n_groups
        log_start = math.log(start) if start > 0 else (-math.inf if start == 0 else math.nan)
        average = partial(MovingAverage, gamma=gamma, start=log_start, of_logs=True)
        self.log_u_g = average(n_queries * n_groups)
        self.log_u_q = average(n_queries * n_groups)

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
        n_items, group = batch.n_represented[:, None], batch.group
        size, present = _group_sizes(batch, self.n_groups)

        # g_g and g_q (below Eq. 19) and their averages u_g, u_q, kept as logarithms because
        # exp(score) overflows.
        rows = batch.query[:, None] * self.n_groups
        rows = rows + torch.arange(self.n_groups, device=scores.device)
        held = torch.where(batch.valid, scores, -torch.inf)
        highest = held.amax(-1, keepdim=True)
        scaled = (held - highest).exp()
        item_exp, list_exp = batch.weight * scaled, batch.slot_weights * scaled
        total = group_sums(item_exp * selection.psi, group, n_groups=self.n_groups)
        log_g_g = (total / size).log() + highest
        log_u_g = self.log_u_g.update(rows, log_g_g, where=present)  # Eq. 21
        log_g_q = (list_exp.sum(-1, keepdim=True).log() + highest).expand(rows.shape)
        log_u_q = self.log_u_q.update(rows, log_g_q, where=present)  # Eq. 21

        exposure = group_exposure(log_u_g, log_u_q, n_items)
        exposure = torch.where(present, exposure, 0)
        penalty, d_penalty_d_exposure = pair_penalty(exposure, present)

        # Eq. 22 at the new averages (the paper reads the old ones). With D_g = dU / dE_g,
        #   nabla_1 f, nabla_2 f:  df/du_g = D_g / (n u_q),
        #   nabla_3 f:             df/du_q = -sum_g D_g E_g / u_q,
        # and (Eq. 20) d g_g / d h_i = psi_i exp(h_i) / |B_g|, d g_q / d h_i = exp(h_i) / |B_q|.
        # exp(h) and u_q are both divided by exp(highest).
        cost = cost / len(scores)  # C / |B_Q|
        inverse_u_q = (highest - log_u_q).exp().masked_fill(~present, 0)
        d_over_u_q = d_penalty_d_exposure * cost[:, None] * inverse_u_q
        nabla_12_f = d_over_u_q / (size * n_items)  # with the 1 / |B_g| of d g_g
        nabla_3_f = -(d_over_u_q * exposure).sum(-1, keepdim=True)
        d_penalty_d_psi = item_exp * values_of_groups(nabla_12_f, group)
        grad = selection.psi * d_penalty_d_psi + list_exp * nabla_3_f  # C G2, psi frozen
        selection.add_selector_gradient(grad, d_penalty_d_psi)  # Eq. 20: through psi, lambda
        gap = signed_gap(exposure, present)
        return Disparity((penalty * cost).sum(), grad, gap, defined=present.any(-1))


class RankExposureDisparity(nn.Module):
    """Estimate the penalty on the gap by rank and its gradient, without memory.

    Args:
        n_groups: Number of groups (G).
        k: K, behind which there is no exposure; None: the length of the longest list.
        k_of: What K counts positions of, see `TopThreshold`.
    """

    def __init__(self, n_groups: int, k: int | None, k_of: str = "list") -> None:
        super().__init__()
        self.n_groups, self.k, self.k_of = n_groups, k, k_of

    def forward(self, scores: Tensor, batch: Batch, alpha: Tensor, cost: Tensor) -> Disparity:
        """Return the weighted penalty; see `ExposureDisparity`.

        `alpha` is the temperature of the soft top-k's, ``[Q]``. Towards 0 the gap becomes that
        of `metrics.rank_exposure_gap` over the sum of d_r, and the gradient ends.
        """
        size, present = _group_sizes(batch, self.n_groups)
        counts = batch.slot_counts
        length = batch.n_items if self.k_of == "catalogue" else batch.n_slots
        tops = discount_as_tops(self.k or int(length.max()))
        k, worth = (scores.new_tensor(one) for one in tops)
        n_items = batch.n_represented[:, None]
        k = k * (n_items / length[:, None])
        worth = worth / (worth * k.minimum(n_items)).sum(-1, keepdim=True)
        b = soft_threshold(scores, counts, k, alpha)
        x = (scores[:, None, :] - b[:, :, None]) / alpha[:, None, None]
        slope = (-x.abs()).exp() / 2  # F', [Q, M, L]
        p = torch.where(x > 0, 1 - slope, slope)  # F, [Q, M, L]
        weighted = batch.weight * torch.einsum("qml,qm->ql", p, worth)
        exposure = group_sums(weighted, batch.group, n_groups=self.n_groups) / size
        penalty, d_penalty_d_exposure = pair_penalty(exposure, present)

        # b keeps sum_l w_l p_l = k, and so
        #   d p_i / d h_j = F'_i (delta_ij - w_j F'_j / sum_l w_l F'_l) / alpha.
        cost = cost / len(scores)
        by_group = d_penalty_d_exposure * cost[:, None] / size
        d_item = batch.weight * values_of_groups(by_group, batch.group)
        moved, near = (torch.einsum("qml,ql->qm", slope, one) for one in (d_item, counts))
        by_b = worth * moved / near.clamp(min=torch.finfo(near.dtype).tiny)
        grad = d_item * torch.einsum("qml,qm->ql", slope, worth)
        grad = (grad - counts * torch.einsum("qml,qm->ql", slope, by_b)) / alpha[:, None]
        gap = signed_gap(exposure, present)
        return Disparity((penalty * cost).sum(), grad, gap, defined=present.any(-1))


@cache
def discount_as_tops(k: int) -> tuple[list[float], list[float]]:
    """Return few top-k's and their weights, whose sum is the discount of ranks up to `k`.

    There is one for each rank, or, of more than `SOFT_TOPS`, neighbours are merged into one at
    their weighted mean, so that the exposure of the first rank and that of all ranks stay.
    """
    ranks = np.arange(1, k + 1)
    discount = 1 / np.log2(1 + ranks)  # d_r
    weight = -np.diff(discount, append=0)  # d_k - d_{k+1}
    first = ranks
    if k > SOFT_TOPS:  # dense at the top; K itself is merged with none
        first = np.unique(np.geomspace(1, k, SOFT_TOPS).round().astype(int))
    merged, moment = (np.add.reduceat(one, first - 1) for one in (weight, weight * ranks))
    return (moment / merged).tolist(), merged.tolist()


def signed_gap(exposure: Tensor, present: Tensor) -> Tensor:
    """Return the exposure of group 0 minus the mean of the other groups present, ``[Q]``.

    It is NaN without group 0 or without any other. The arguments are those of `pair_penalty`.
    """
    others = (exposure * present)[:, 1:].sum(-1) / present[:, 1:].sum(-1)
    return torch.where(present[:, 0], exposure[:, 0] - others, torch.nan)


def _group_sizes(batch: Batch, n_groups: int) -> tuple[Tensor, Tensor]:
    """Return the weight of each group's slots, above 0, and which groups count, ``[Q, G]``.

    No group of a list counts unless it has two: such a list has no disparity, and must not
    touch the averages.
    """
    size = group_sums(batch.weight, batch.group, n_groups=n_groups)
    present = size > 0
    present &= (present.sum(-1) > 1)[:, None]
    return size.clamp(min=torch.finfo(size.dtype).tiny), present


def group_sums(values: Tensor, group: Tensor, *, n_groups: int) -> Tensor:
    """Return the sum of `values` over the slots of each group, ``[Q, G]``.

    Args:
        values: One per slot, ``[Q, L]``.
        group: Group of each slot, -1 for none, ``[Q, L]``.
        n_groups: Number of groups, G.
    """
    if values.device.type == "cpu":  # in a fifth of the time of torch
        sums = values.new_zeros(len(values), n_groups)
        _add_group_sums(values.contiguous().numpy(), group.numpy(), sums.numpy())
        return sums
    # Not by scatter_add_, which on other devices adds in any order.
    labels = torch.arange(n_groups, device=group.device)[:, None]
    return torch.einsum("qgl,ql->qg", (group[:, None, :] == labels).to(values.dtype), values)


def values_of_groups(table: Tensor, group: Tensor) -> Tensor:
    """Return the entry of `table` for the group of each slot, 0 for none, ``[Q, L]``.

    Args:
        table: One value per group of each list, ``[Q, G]``.
        group: Group of each slot, -1 for none, ``[Q, L]``.
    """
    if table.device.type == "cpu":
        values = table.new_empty(group.shape)
        _fill_by_group(table.contiguous().numpy(), group.numpy(), values.numpy())
        return values
    padded = torch.nn.functional.pad(table, (0, 1))
    return padded.gather(1, group.long() % padded.shape[1])


@summing
def _add_group_sums(values: Floats, group: Labels, sums: Floats) -> None:
    zero = values.dtype.type(0)
    for row in range(values.shape[0]):
        if sums.shape[1] > FEW_GROUPS:
            for slot in range(values.shape[1]):
                label = group[row, slot]
                if 0 <= label < sums.shape[1]:
                    sums[row, label] += values[row, slot]
        else:  # without one sum waiting for the other
            for label in range(sums.shape[1]):
                total = zero
                for slot in range(values.shape[1]):
                    total += values[row, slot] if group[row, slot] == label else zero
                sums[row, label] += total


@compiled
def _fill_by_group(table: Floats, group: Labels, values: Floats) -> None:
    zero = values.dtype.type(0)
    for row in range(values.shape[0]):
        for slot in range(values.shape[1]):
            label = group[row, slot]
            known = 0 <= label < table.shape[1]
            values[row, slot] = table[row, label] if known else zero
