"""Whether groups have the same chance of the top K, over a whole set of lists."""

from torch import Tensor

from fairtopk.metrics.inputs import (
    Values,
    checked_groups,
    checked_ks,
    checked_relevance,
    checked_scores,
)
from fairtopk.metrics.overall import Overall, of_groups, overall
from fairtopk.metrics.tops import Tops, measured_groups, measured_lists


def rsp(
    scores: Values, groups: Values, *, k: int, mask: Values | None = None, seed: int = 0
) -> Overall:
    """Return RSP@k, ranking-based statistical parity, of all lists together.

    The chance of a group is the number of its items in the top `k` of all lists over the number
    of its items in all lists. RSP is the population standard deviation of the groups' chances
    over their mean: 0 where all have the same (Zhu, Wang and Caverlee, 2020).

    Args:
        scores: Model scores, ``[Q, L]``; of equal scores the earlier slot ranks first.
        groups: Group numbers, -1 unknown, ``[Q, L]``; booleans mark the named group. Items of
            unknown group take places in the top and count in no group.
        k: Length of the top of the list; from L on it is the whole list.
        mask: False on padding, and on items that are not to be ranked, ``[Q, L]``.
        seed: Of the 1,000 resamples.

    Returns:
        The value, from 0 to sqrt(G - 1), and the chance of each group; NaN where fewer than two
        groups have items, or none has one in a top.

    Example:
        >>> import torch
        >>> scores, groups = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1, 1, 0]])
        >>> found = rsp(scores, groups, k=1)
        >>> found.value, found.by_group
        (1.0, (0.0, 0.5))
    """
    return overall(measured_groups(_counts, scores, groups, k=k, mask=mask), _spread, seed)


def reo(
    scores: Values,
    relevance: Values,
    groups: Values,
    *,
    k: int,
    mask: Values | None = None,
    seed: int = 0,
) -> Overall:
    """Return REO@k, ranking-based equal opportunity, of all lists together.

    It is `rsp` with relevant items only: the chance of a group is the number of its relevant
    items in the top `k` of all lists over the number of its relevant items in all lists. All
    items are ranked. An item is relevant if its grade is above 0. Arguments and what is
    undefined are those of `rsp`.

    Example:
        >>> import torch
        >>> scores, groups = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1, 1, 0]])
        >>> reo(scores, torch.tensor([[5, 0, 1]]), groups, k=1).by_group
        (0.0, 1.0)
    """
    lists, valid = checked_scores(scores, mask)
    grades = checked_relevance(relevance, lists, valid)
    labels, ks = checked_groups(groups, lists, valid), checked_ks([k])
    relevant = labels._replace(group=labels.group.masked_fill(grades <= 0, -1))
    return overall(
        measured_lists(_counts, lists, valid, ks, labels=relevant)[..., 0], _spread, seed
    )


def _counts(tops: Tops) -> Tensor:
    return of_groups(tops.members, tops.size)


def _spread(chances: Tensor) -> Tensor:
    return chances.std(-1, correction=0) / chances.mean(-1)
