"""The score that separates the top K of a list from the rest: exact, and as a smooth problem.

Eq. 10: lambda is the (K+1)-th largest score. Eq. 13 smooths the problem it solves,

    G(l) = (K + eps)/n l + tau_2/2 l^2 + tau_1 mean_i softplus((h_i - l) / tau_1)

so that it can be tracked by stochastic steps. With s_i = sigmoid((h_i - l) / tau_1):
slope G' = (K + eps)/n + tau_2 l - mean(s), curvature G'' = tau_2 + mean(s (1 - s)) / tau_1.
Means are weighted; `share` below is the weight of each slot, summing to 1 over a list.
"""

import torch
from torch import Tensor

from fairtopk.kernels.selection import are_flags, slots_past_top


def topk_threshold(scores: Tensor, weight: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first score past the top, ``[Q]``, and a slot that holds it, ``[Q]``.

    With weights of 1 that is the (k+1)-th largest score. Where the list has no more than k, all
    of it is the top: the threshold is -inf.

    Args:
        scores: Model scores, ``[Q, L]``.
        weight: How many items each slot stands for, 0 on padding, ``[Q, L]``.
        k: How many items are the top, ``[Q]``.
    """
    if scores.device.type == "cpu" and scores.dtype in (torch.float32, torch.float64):
        arrays = scores.contiguous().numpy(), weight.contiguous().numpy()
        if are_flags(arrays[1]):
            # The usual case by selection, in a fraction of the time of a sort.
            slot = torch.from_numpy(slots_past_top(*arrays, k.long().numpy()))
            lam = scores.gather(-1, slot.clamp(min=0)[:, None])[:, 0]
            return lam.masked_fill(slot < 0, -torch.inf), slot.clamp(min=0)
    held = scores.masked_fill(weight == 0, -torch.inf)
    descending, place = held.sort(dim=-1, descending=True, stable=True)
    within = weight.gather(-1, place).cumsum(-1) <= k[:, None]
    first = within.sum(-1)
    whole = first >= (weight > 0).sum(-1)
    first = first.clamp(max=scores.shape[-1] - 1)[:, None]
    lam = descending.gather(-1, first)[:, 0]
    return lam.masked_fill(whole, -torch.inf), place.gather(-1, first)[:, 0]


def threshold_slope(
    scores: Tensor, share: Tensor, lam: Tensor, top: Tensor, *, tau_1: float, tau_2: float
) -> Tensor:
    """Return G'(lambda), ``[Q]``; `top` is (K + eps) / n, ``[Q]``."""
    above = torch.sigmoid((scores - lam[:, None]) / tau_1)
    return top + tau_2 * lam - (share * above).sum(-1)


def threshold_curvature(
    scores: Tensor, share: Tensor, lam: Tensor, *, tau_1: float, tau_2: float
) -> tuple[Tensor, Tensor]:
    """Return G''(lambda), ``[Q]``, and minus its cross derivative d2G / (dl dh), ``[Q, L]``.

    The implicit function theorem gives d lambda / d h as the second over the first.
    """
    above = torch.sigmoid((scores - lam[:, None]) / tau_1)
    cross = share * above * (1 - above) / tau_1
    return tau_2 + cross.sum(-1), cross
