"""NDCG, and differences between groups in what they get in the top K, per list.

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

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from fairtopk.checks import checked_choice, checked_flag, checked_whole
from fairtopk.metrics.tops import Tops, measured_by_group, measured_groups, measured_lists
from fairtopk.tensors import Values, checked_relevance, checked_scores

Notion = Callable[[Tops], Tensor]

Variant = Literal["paper", "released"]


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
    return _gap(_notion(variant), scores, groups, k, mask, signed)


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
    return measured_by_group(_notion(variant), scores, groups, k=k, mask=mask)


def group_rank_exposures(
    scores: Values, groups: Values, *, k: int, mask: Values | None = None
) -> Tensor:
    """Return each group's rank exposure in the top `k`, ``[Q, G]``; NaN where absent.

    The definition is that of `rank_exposure_gap`. Items of unknown group have a column of their
    own, as in `group_exposures`.
    """
    return measured_by_group(rank_exposure, scores, groups, k=k, mask=mask)


def group_representations(
    scores: Values, groups: Values, *, k: int, mask: Values | None = None
) -> Tensor:
    """Return the share of each group that is in the top `k`, ``[Q, G]``; NaN where absent.

    The definition is that of `representation_gap`. Items of unknown group have a column of
    their own, as in `group_exposures`.
    """
    return measured_by_group(representation, scores, groups, k=k, mask=mask)


def _gap(
    notion: Notion, scores: Values, groups: Values, k: int, mask: Values | None, signed: bool
) -> Tensor:
    checked_flag("signed", signed)

    def gap(tops: Tops) -> Tensor:
        return named_gap(notion(named_and_rest(tops))) if signed else largest_gap(notion(tops))

    return measured_groups(gap, scores, groups, k=k, mask=mask)


def _notion(variant: str) -> Notion:
    return VARIANTS[checked_choice("variant", variant, VARIANTS)]


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
    lists, valid = checked_scores(scores, mask)
    grades = checked_relevance(relevance, lists, valid)
    ks = (checked_whole("k", k, least=1),)
    return measured_lists(ndcg_at, lists, valid, ks, relevance=grades)[:, 0]


def ndcg_at(tops: Tops) -> Tensor:
    """Return NDCG at each K, ``[Q, len(ks)]``."""
    return tops.dcg / tops.ideal  # without a relevant item both are 0, and 0 / 0 is NaN
