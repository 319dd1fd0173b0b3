"""What each group of a list gets, by four notions of getting something.

Each notion takes the tops of ranked lists and returns one value per group and K,
``[Q, G, len(ks)]``, NaN for a group that a list lacks. n_g is the size of group g in the whole
list, e the softmax of the scores over the whole list, items of unknown group included.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from fairtopk.metrics.tops import Tops

Notion = Callable[[Tops], Tensor]


def softmax_exposure(tops: Tops) -> Tensor:
    """Return Eq. 9: the sum of e over the group's items in the top k, over n_g."""
    return tops.exposure / tops.size


def released_exposure(tops: Tops) -> Tensor:
    """Return what the authors' code computes: the mean exposure of members in the top k.

    The softmax is over the top k only, and a group with no item there has 0.
    """
    means = tops.exposure / tops.everyone / tops.members.clamp(min=1)
    return means.masked_fill(tops.size == 0, torch.nan)


def rank_exposure(tops: Tops) -> Tensor:
    """Return the sum of 1 / log2(1 + rank) over the group's items in the top k, over n_g."""
    return tops.discount / tops.size


def representation(tops: Tops) -> Tensor:
    """Return the number of the group's items in the top k, over n_g."""
    return tops.members / tops.size


NOTIONS: dict[str, Notion] = {
    "exposure_gap": softmax_exposure,
    "exposure_gap_released": released_exposure,
    "rank_exposure_gap": rank_exposure,
    "representation_gap": representation,
}


def largest_gap(values: Tensor) -> Tensor:
    """Return the largest difference between two groups, ``[..., G, n]``; NaN if under two."""
    absent = values.isnan()
    high = values.masked_fill(absent, -torch.inf).amax(-2)
    low = values.masked_fill(absent, torch.inf).amin(-2)
    return (high - low).masked_fill((~absent).sum(-2) < 2, torch.nan)


def named_gap(values: Tensor) -> Tensor:
    """Return group 0 minus group 1, of values ``[..., 2, n]``."""
    return values[..., 0, :] - values[..., 1, :]


def named_and_rest(tops: Tops) -> Tops:
    """Return the tops with two groups: number 0, and all other known groups taken together."""
    by_group = {
        name: getattr(tops, name) for name in ("exposure", "discount", "members", "size")
    }
    two = {
        name: torch.stack([values[:, 0], values[:, 1:].sum(1)], dim=1)
        for name, values in by_group.items()
    }
    return tops._replace(**two)
