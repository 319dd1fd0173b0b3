"""What each group of a list gets, by four notions of getting something.

Each notion takes ranked lists with marked groups and returns one value per group and K,
``[Q, G, len(ks)]``, NaN for a group that a list lacks. n_g is the size of group g in the whole
list, e the softmax of the scores over the whole list, items of unknown group included.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fairtopk.functional.ranking import Ranked, discounted, top_sums


class Grouped(NamedTuple):
    """Ranked lists with the members of each group marked.

    Attributes:
        exposure: Softmax of the scores, by place, ``[Q, 1, L]``.
        member: 1 where the item at a place is of the group, else 0, ``[Q, G, L]``.
        size: Members in the whole list, ``[Q, G, 1]``; NaN for none, so that what is divided by
            it is undefined.
    """

    exposure: Tensor
    member: Tensor
    size: Tensor


Notion = Callable[[Grouped, Sequence[int]], Tensor]


def grouped(lists: Ranked, group: Tensor, n_groups: int) -> Grouped:
    """Return ranked lists with their groups; `group` is a number per slot, -1 for none."""
    return grouped_places(lists.scores, group.gather(-1, lists.slot), n_groups)


def grouped_places(scores: Tensor, group: Tensor, n_groups: int) -> Grouped:
    """Return the same for scores and group numbers by place, ``[Q, L]`` each."""
    numbers = torch.arange(n_groups, dtype=group.dtype, device=group.device)[:, None]
    member = (group[:, None, :] == numbers).to(scores.dtype)
    size = member.sum(-1, keepdim=True)
    return Grouped(
        scores.softmax(-1)[:, None, :], member, size.masked_fill(size == 0, torch.nan)
    )


def softmax_exposure(lists: Grouped, ks: Sequence[int]) -> Tensor:
    """Return Eq. 9: the sum of e over the group's items in the top k, over n_g."""
    return top_sums(lists.member * lists.exposure, ks) / lists.size


def released_exposure(lists: Grouped, ks: Sequence[int]) -> Tensor:
    """Return what the authors' code computes: the mean exposure of members in the top k.

    The softmax is over the top k only, and a group with no item there has 0.
    """
    inside = top_sums(lists.member * lists.exposure, ks) / top_sums(lists.exposure, ks)
    means = inside / top_sums(lists.member, ks).clamp(min=1)
    return means.masked_fill(lists.size.isnan(), torch.nan)


def rank_exposure(lists: Grouped, ks: Sequence[int]) -> Tensor:
    """Return the sum of 1 / log2(1 + rank) over the group's items in the top k, over n_g."""
    return top_sums(discounted(lists.member), ks) / lists.size


def representation(lists: Grouped, ks: Sequence[int]) -> Tensor:
    """Return the number of the group's items in the top k, over n_g."""
    return top_sums(lists.member, ks) / lists.size


NOTIONS: dict[str, Notion] = {
    "exposure_gap": softmax_exposure,
    "exposure_gap_released": released_exposure,
    "rank_exposure_gap": rank_exposure,
    "representation_gap": representation,
}


def largest_gap(values: Tensor) -> Tensor:
    """Return the largest difference between two groups, dimension 1; NaN if under two."""
    absent = values.isnan()
    high = values.masked_fill(absent, -torch.inf).amax(1)
    low = values.masked_fill(absent, torch.inf).amin(1)
    return (high - low).masked_fill((~absent).sum(1) < 2, torch.nan)


def named_gap(values: Tensor) -> Tensor:
    """Return group 0 minus group 1, dimension 1."""
    return values[:, 0] - values[:, 1]


def named_and_rest(group: Tensor) -> Tensor:
    """Return the labels with all known groups but number 0 taken together as number 1."""
    return group.clamp(max=1)
