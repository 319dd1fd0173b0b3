"""Means over the groups of a list.

A group's mean is a weighted sum over its slots; the weights of each group that is present add
up to 1. Labels are integers from 0; -1 is unknown and belongs to no group.
"""

import torch
from torch import Tensor


def group_weights(group: Tensor, weight: Tensor, *, n_groups: int) -> Tensor:
    """Return the weight of each slot in each group's mean, ``[Q, G, L]``; zeros where absent.

    Args:
        group: Label of each slot, -1 for none, ``[Q, L]``.
        weight: Weight of each slot, not negative, ``[Q, L]``.
        n_groups: Number of groups, G.
    """
    labels = torch.arange(n_groups, device=group.device)[:, None]
    inside = (group[:, None, :] == labels) * weight[:, None, :]
    return inside / inside.sum(-1, keepdim=True).clamp(min=torch.finfo(weight.dtype).tiny)


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
