"""What is in the top of ranked lists: all that NDCG and gaps are computed from."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairtopk.checks import checked_whole
from fairtopk.kernels import sums
from fairtopk.kernels.sums import (
    Doubles,
    Lists,
    Places,
    discounts,
    list_sums,
    place_sums,
)
from fairtopk.tensors import Labels, Values, by_blocks, checked_groups, checked_scores

Tops = sums.Tops[Tensor]
Worth = Callable[[int], Doubles]
NO_GROUP = Labels(torch.full((1, 1), -1, dtype=torch.int16), 2)


def measured_lists(
    measure: Callable[[Tops], Tensor],
    scores: Tensor,
    mask: Tensor,
    ks: Sequence[int],
    *,
    relevance: Tensor | None = None,
    labels: Labels = NO_GROUP,
    worth: Worth = discounts,
) -> Tensor:
    """Return what `measure` makes of the top of lists, with a row per query.

    Args:
        measure: Takes the tops of some lists.
        scores: Model scores, ``[Q, L]``.
        mask: False on padding, ``[Q, L]``.
        ks: Where to cut; they rise.
        relevance: Grades, ``[Q, L]``; left out, nothing is relevant.
        labels: Groups of the items; left out, they are unknown.
        worth: Takes a number of places and says what each of them is worth.
    """
    grades = scores.new_zeros(1, 1) if relevance is None else relevance
    tables = [scores, mask, grades.expand_as(scores), labels.group.expand_as(scores)]

    def block(*tensors: Tensor) -> Tensor:
        lists = Lists(*(tensor.contiguous().cpu().numpy() for tensor in tensors))
        return measure(_tops(list_sums(lists, labels.n_groups, ks, worth))).to(tensors[0])

    return by_blocks(block, *tables, n_groups=labels.n_groups)


def measured_groups(
    measure: Callable[[Tops], Tensor],
    scores: Values,
    groups: Values,
    *,
    k: int,
    mask: Values | None,
    worth: Worth = discounts,
) -> Tensor:
    """Return what `measure` makes of the top `k` of lists as a user gives them."""
    lists, valid = checked_scores(scores, mask)
    labels, ks = checked_groups(groups, lists, valid), (checked_whole("k", k, least=1),)
    return measured_lists(measure, lists, valid, ks, labels=labels, worth=worth)[..., 0]


def measured_by_group(
    notion: Callable[[Tops], Tensor],
    scores: Values,
    groups: Values,
    *,
    k: int,
    mask: Values | None,
    worth: Worth = discounts,
) -> Tensor:
    """Return what each group gets in the top `k` of lists as a user gives them, ``[Q, G]``.

    Items of unknown group, if there are any, are one more group, the last: ``[Q, G + 1]``.
    """
    lists, valid = checked_scores(scores, mask)
    (group, n_groups), ks = (
        checked_groups(groups, lists, valid),
        (checked_whole("k", k, least=1),),
    )
    unknown = valid & (group < 0)
    if unknown.any():
        group, n_groups = group.masked_fill(unknown, n_groups), n_groups + 1
    labels = Labels(group, n_groups)
    return measured_lists(notion, lists, valid, ks, labels=labels, worth=worth)[..., 0]


def tops_of_places(
    places: Places, size: NDArray[np.int64], ideal: NDArray[np.float64], ks: Sequence[int]
) -> Tops:
    """Return the tops of lists of which only the first places are there; see `place_sums`."""
    return _tops(place_sums(places, size, ideal, ks))


def _tops(found: sums.Tops[NDArray[Any]]) -> Tops:
    return Tops(*map(torch.from_numpy, found))
