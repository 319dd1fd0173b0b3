"""NDCG, and differences between groups in what they get in the top K, per list.

Each list is ranked once; all metrics are computed from sums over its top (`Tops`).

There are four definitions of what a group gets (`NOTIONS`). Softmax exposure, by Eq. 9 or the
released code, depends on the order and on the scale of scores; rank exposure on the order
alone; representation only on which items are in the top K. `groups` numbers the group of each
item; -1 is unknown: such an item takes part in the softmax and in the ranks and is left out of
every gap. What groups get has a column more for all such items.

With two groups a gap is |a - b|; with more it is the largest difference between two groups that
the list has. A list with fewer than two groups has none: NaN. A signed gap tells who is
favoured: group 0, the named group, minus all other known groups taken together. It is NaN where
either side is absent. The mean of a gap over lists is its MAE form, the mean of its square its
MSE form.

n_g is the size of group g in the whole list, e the softmax of the scores over the whole list,
items of unknown group included.
"""

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairtopk import tensors
from fairtopk.checks import checked_choice, checked_flag, checked_ks, checked_whole
from fairtopk.kernels import sums
from fairtopk.kernels.sums import Doubles, Lists, Places, list_sums, place_sums
from fairtopk.tensors import Values

Tops = sums.Tops[Tensor]
CheckedLists = sums.Lists[Tensor]
Notion = Callable[[Tops], Tensor]
Variant = Literal["paper", "released"]

# What stands for a table that a metric does not read; None from a user is refused.
NO_GRADES = torch.zeros(1, 1)
NO_GROUPS = torch.full((1, 1), -1, dtype=torch.int16)


def checked_lists(
    scores: Values,
    groups: Values,
    mask: Values | None,
    *,
    relevance: Values = NO_GRADES,
    count_unknown: bool = False,
) -> CheckedLists:
    """Return lists as a user gives them, every value checked.

    `count_unknown` makes items of unknown group, if there are any, one more group, the last.
    """
    given, valid = tensors.checked_scores(scores, mask)
    grades, (group, n_groups) = NO_GRADES.to(given), (NO_GROUPS.to(given.device), 2)
    if relevance is not NO_GRADES:
        grades = tensors.checked_relevance(relevance, given, valid)
    if groups is not NO_GROUPS:
        group, n_groups = tensors.checked_groups(groups, given, valid)
    if count_unknown and (unknown := valid & (group < 0)).any():
        group, n_groups = group.masked_fill(unknown, n_groups), n_groups + 1
    return CheckedLists(given, valid, grades, group, n_groups)


def measured(
    measure: Callable[[Tops], Tensor],
    lists: CheckedLists,
    ks: Sequence[int],
    *,
    worth: Doubles | None = None,
) -> Tensor:
    """Return what `measure` makes of the tops of lists at `ks`, which rise; a row per query.

    `worth` is that of each place, ``[L]``; left out, 1 / log2(1 + rank).
    """

    def block(*rows: Tensor) -> Tensor:
        scores, mask, grades, group = (one.contiguous().cpu().numpy() for one in rows)
        some = Lists(scores, mask, grades, group, lists.n_groups)
        found = list_sums(some, ks, worth)
        return measure(Tops(*map(torch.from_numpy, found))).to(rows[0])

    by_slot = [table.expand_as(lists.scores) for table in (lists.relevance, lists.group)]
    return tensors.by_blocks(block, lists.scores, lists.mask, *by_slot, n_groups=lists.n_groups)


def measured_at(
    measure: Callable[[Tops], Tensor],
    lists: CheckedLists,
    k: int,
    *,
    worth: Doubles | None = None,
) -> Tensor:
    """Return the same at one K as a user gives it, without an axis for it."""
    return measured(measure, lists, (checked_whole("k", k, least=1),), worth=worth)[..., 0]


def tops_of_places(
    places: Places, size: NDArray[np.int64], ideal: NDArray[np.float64], ks: Sequence[int]
) -> Tops:
    """Return the tops of lists of which only the first places are there; see `place_sums`."""
    return Tops(*map(torch.from_numpy, place_sums(places, size, ideal, ks)))


def softmax_exposure(tops: Tops) -> Tensor:
    """Return Eq. 9: the sum of e over the group's items in the top k, over n_g."""
    return tops.exposure / tops.size  # Eq. 9


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
    exposure, discount, members, size = (
        torch.stack([values[:, 0], values[:, 1:].sum(1)], dim=1)
        for values in (tops.exposure, tops.discount, tops.members, tops.size)
    )
    return tops._replace(exposure=exposure, discount=discount, members=members, size=size)


VARIANTS: dict[str, Notion] = {"paper": softmax_exposure, "released": released_exposure}


def exposure_gap(
    scores: Values,
    groups: Values,
    *,
    k: int,
    mask: Values | None = None,
    variant: Variant = "paper",
    signed: bool = False,
) -> Tensor:
    """Return the difference between groups in softmax exposure in the top `k`, per list.

    A group's exposure is the sum of softmax(scores), taken over the whole list, over its items
    in the top `k`, over its size in the whole list (Eq. 9); there is no discount by rank. With
    three or more groups it is the largest difference between two that the list has.

    Args:
        scores: Model scores, ``[Q, L]``; of equal scores the earlier slot ranks first.
        groups: Group numbers, -1 unknown, ``[Q, L]``; booleans mark the named group.
        k: Length of the top of the list; from L on it is the whole list.
        mask: False on padding, ``[Q, L]``; left out, there is none.
        variant: "paper" is Eq. 9, "released" what the authors' code computes; see
            `group_exposures`.
        signed: Return the named group minus the rest instead: group 0 minus all other known
            groups taken together as one.

    Returns:
        ``[Q]``, in [0, 1]; NaN where a list has fewer than two groups. If signed, in [-1, 1];
        NaN where it lacks group 0 or the rest.

    Example:
        >>> import torch
        >>> scores, groups = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1, 1, 0]])
        >>> exposure_gap(scores, groups, k=2)
        tensor([0.4550])
        >>> exposure_gap(scores, groups, k=2, variant="released", signed=True)
        tensor([-0.5000])
    """
    notion = VARIANTS[checked_choice("variant", variant, VARIANTS)]
    return _gap(notion, scores, groups, k, mask, signed)


def rank_exposure_gap(
    scores: Values, groups: Values, *, k: int, mask: Values | None = None, signed: bool = False
) -> Tensor:
    """Return the difference between groups in rank exposure in the top `k`, per list.

    A group's rank exposure is the sum of 1 / log2(1 + rank) over its items in the top `k`, over
    its size in the whole list; the first rank is 1. Arguments, ties, range and what is
    undefined are those of `exposure_gap`.

    Example:
        >>> import torch
        >>> scores, groups = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1, 1, 0]])
        >>> rank_exposure_gap(scores, groups, k=2)
        tensor([0.8155])
    """
    return _gap(rank_exposure, scores, groups, k, mask, signed)


def representation_gap(
    scores: Values, groups: Values, *, k: int, mask: Values | None = None, signed: bool = False
) -> Tensor:
    """Return the difference between groups in the share that is in the top `k`, per list.

    A group's share is the number of its items in the top `k` over its size in the whole list:
    ranks within the top do not count. Arguments, ties, range and what is undefined are those of
    `exposure_gap`.

    Example:
        >>> import torch
        >>> scores, groups = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1, 1, 0]])
        >>> representation_gap(scores, groups, k=1, signed=True)
        tensor([-0.5000])
    """
    return _gap(representation, scores, groups, k, mask, signed)


def group_exposures(
    scores: Values,
    groups: Values,
    *,
    k: int,
    mask: Values | None = None,
    variant: Variant = "paper",
) -> Tensor:
    """Return each group's softmax exposure in the top `k`, ``[Q, G]``; NaN where absent.

    "paper": the sum over the group's items in the top `k`, with the softmax over the whole
    list, over the group's size in the whole list. "released": the mean over the group's items
    in the top `k`, with the softmax over the top `k` only; 0 for a group with no item there.

    G is one more than the largest label, and at least 2. If an item of any list is of unknown
    group, one more column, the last, is what such items get, as if they were a group; no gap
    counts it. Arguments are those of `exposure_gap`.

    Example:
        >>> import torch
        >>> scores, groups = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1, 1, 0]])
        >>> group_exposures(scores, groups, k=2)
        tensor([[0.0000, 0.4550]])
        >>> group_exposures(scores, torch.tensor([[1, -1, 0]]), k=2)
        tensor([[0.0000, 0.6652, 0.2447]])
    """
    notion = VARIANTS[checked_choice("variant", variant, VARIANTS)]
    return measured_at(notion, checked_lists(scores, groups, mask, count_unknown=True), k)


def group_rank_exposures(
    scores: Values, groups: Values, *, k: int, mask: Values | None = None
) -> Tensor:
    """Return each group's rank exposure in the top `k`, ``[Q, G]``; NaN where absent.

    The definition is that of `rank_exposure_gap`. Items of unknown group have a column of their
    own, as in `group_exposures`.
    """
    lists = checked_lists(scores, groups, mask, count_unknown=True)
    return measured_at(rank_exposure, lists, k)


def group_representations(
    scores: Values, groups: Values, *, k: int, mask: Values | None = None
) -> Tensor:
    """Return the share of each group that is in the top `k`, ``[Q, G]``; NaN where absent.

    The definition is that of `representation_gap`. Items of unknown group have a column of
    their own, as in `group_exposures`.
    """
    lists = checked_lists(scores, groups, mask, count_unknown=True)
    return measured_at(representation, lists, k)


def _gap(
    notion: Notion, scores: Values, groups: Values, k: int, mask: Values | None, signed: bool
) -> Tensor:
    checked_flag("signed", signed)
    lists = checked_lists(scores, groups, mask)
    if signed:
        return measured_at(lambda tops: named_gap(notion(named_and_rest(tops))), lists, k)
    return measured_at(lambda tops: largest_gap(notion(tops)), lists, k)


def ndcg(scores: Values, relevance: Values, *, k: int, mask: Values | None = None) -> Tensor:
    """Return NDCG@k of each list: its DCG over that of the best order of the same list.

    DCG is the sum of (2^y - 1) / log2(1 + rank) over the top `k`: gains are exponential, the
    discount is logarithmic. Ranks are ordinal: of equal scores the earlier slot is first.

    Args:
        scores: Model scores, ``[Q, L]``.
        relevance: Grades y, from 0, ``[Q, L]``.
        k: Length of the top of the list; from L on it is the whole list.
        mask: False on padding, ``[Q, L]``; left out, there is none.

    Returns:
        ``[Q]``, in [0, 1]; NaN where no item of a list is relevant.

    Example:
        >>> import torch
        >>> ndcg(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[0, 0, 1]]), k=3)
        tensor([0.5000])
    """
    # Without a relevant item both are 0, and 0 / 0 is NaN.
    lists = checked_lists(scores, NO_GROUPS, mask, relevance=relevance)
    return measured_at(lambda tops: tops.dcg / tops.ideal, lists, k)  # Eq. 1


METRICS = (
    "ndcg",
    *(f"{gap}{form}" for form in ("", "_signed", "_mse") for gap in NOTIONS),
)


def summarise(
    scores: Values,
    relevance: Values,
    groups: Values,
    *,
    ks: Sequence[int],
    mask: Values | None = None,
) -> dict[str, Tensor]:
    """Return NDCG and every gap at each K, one value per query: name to ``[Q]``.

    The names are ``ndcg@K``, ``exposure_gap@K``, ``exposure_gap_released@K``,
    ``rank_exposure_gap@K``, ``representation_gap@K``, and each gap also as ``..._signed@K`` and
    ``..._mse@K``, its square. Definitions, also of the gap of three or more groups, arguments
    and what is NaN are those of `ndcg` and `exposure_gap`.

    Example:
        >>> import torch
        >>> scores, groups = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1, 1, 0]])
        >>> found = summarise(scores, torch.tensor([[0, 0, 1]]), groups, ks=[2, 3])
        >>> found["ndcg@3"], found["exposure_gap_signed@2"]
        (tensor([0.5000]), tensor([-0.4550]))
    """
    lists = checked_lists(scores, groups, mask, relevance=relevance)
    distinct = checked_ks(ks)
    values = measured(
        lambda tops: torch.stack([*summarise_tops(tops, distinct).values()], dim=1),
        *(lists, distinct),
    )
    names = [f"{metric}@{k}" for metric in METRICS for k in distinct]
    return {name: one.contiguous() for name, one in zip(names, values.unbind(1), strict=True)}


def summarise_tops(tops: Tops, ks: Sequence[int]) -> dict[str, Tensor]:
    """Return the same for the tops of lists at `ks`."""
    by_group = two = torch.stack([notion(tops) for notion in NOTIONS.values()], dim=1)
    if tops.size.shape[1] > 2:
        two_groups = named_and_rest(tops)
        two = torch.stack([notion(two_groups) for notion in NOTIONS.values()], dim=1)
    gaps = largest_gap(by_group)
    values = torch.cat([(tops.dcg / tops.ideal)[:, None], gaps, named_gap(two), gaps**2], dim=1)
    return {
        f"{metric}@{k}": values[:, row, column].contiguous()
        for row, metric in enumerate(METRICS)
        for column, k in enumerate(ks)
    }
