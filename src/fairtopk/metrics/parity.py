"""Whether groups have the same chance of the top K, over a whole set of lists."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fairtopk.arguments import checked_ks, checked_whole
from fairtopk.errors import InputError
from fairtopk.metrics.inputs import (
    Labels,
    Values,
    checked_groups,
    checked_relevance,
    checked_scores,
)
from fairtopk.metrics.overall import Overall, of_groups, overall, overalls
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
    counted = measured_groups(group_counts, scores, groups, k=k, mask=mask)
    return overall(counted, _spread, seed)


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
    labels, ks = checked_groups(groups, lists, valid), (checked_whole("k", k, least=1),)
    counted = measured_lists(
        group_counts, lists, valid, ks, labels=_relevant_only(labels, grades)
    )
    return overall(counted[..., 0], _spread, seed)


def parities(
    scores: Values,
    relevance: Values,
    groups: Values,
    *,
    ks: Sequence[int],
    mask: Values | None = None,
    seed: int = 0,
    member: Tensor | None = None,
) -> dict[str, Overall]:
    """Return `rsp` and `reo` at every K, from one set of resamples.

    The keys are names like ``rsp@50``. Arguments are those of `reo`, and `member`: which of
    other groups items of each group are in, 1 or 0, ``[G, P]``. An item may be in several of
    these; their parity has names like ``rsp_split@50``.

    Example:
        >>> import torch
        >>> scores, groups = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1, 1, 0]])
        >>> found = parities(scores, torch.tensor([[5, 0, 1]]), groups, ks=[1, 2])
        >>> {name: one.value for name, one in found.items()}
        {'rsp@1': 1.0, 'rsp@2': 1.0, 'reo@1': 1.0, 'reo@2': 1.0}
    """
    lists, valid = checked_scores(scores, mask)
    grades = checked_relevance(relevance, lists, valid)
    labels, distinct = checked_groups(groups, lists, valid), checked_ks(ks)
    if member is not None and (member.ndim != 2 or len(member) < labels.n_groups):
        raise InputError(
            f"member must have a row for each of {labels.n_groups} groups and a column for "
            f"each that they are in, got shape {list(member.shape)}"
        )
    counts = {
        name: measured_lists(group_counts, lists, valid, distinct, labels=some)
        for name, some in (("rsp", labels), ("reo", _relevant_only(labels, grades)))
    }
    return parities_of_counts(counts, distinct, seed=seed, member=member)


def group_counts(tops: Tops) -> Tensor:
    """Return the items of each group in each top, then in the whole list, ``[Q, 2 G, K]``."""
    return of_groups(tops.members, tops.size.expand_as(tops.members))


def parities_of_counts(
    counts: Mapping[str, Tensor], ks: Sequence[int], *, seed: int, member: Tensor | None = None
) -> dict[str, Overall]:
    """Return parity at every K, given `group_counts` of the items that count, by name."""
    if member is not None:
        split = {f"{name}_split": _split(one, member) for name, one in counts.items()}
        counts = {**counts, **split}
    sums = {
        f"{name}@{k}": counted[..., column]
        for name, counted in counts.items()
        for column, k in enumerate(ks)
    }
    return overalls(sums, _spread, seed)


def _split(counted: Tensor, member: Tensor) -> Tensor:
    """Return `group_counts` of the groups that `member` says."""
    halves = counted.chunk(2, dim=1)
    table = member[: halves[0].shape[1]].to(counted)
    return torch.cat([torch.einsum("qgk,gp->qpk", half, table) for half in halves], dim=1)


def _relevant_only(labels: Labels, grades: Tensor) -> Labels:
    return labels._replace(group=labels.group.masked_fill(grades <= 0, -1))


def _spread(chances: Tensor) -> Tensor:
    return chances.std(-1, correction=0) / chances.mean(-1)
