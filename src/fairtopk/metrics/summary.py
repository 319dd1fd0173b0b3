"""Every metric of a set of lists at several K, from one sort."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fairtopk.functional.ranking import ranked
from fairtopk.metrics.grouped import NOTIONS, grouped, largest_gap, named_and_rest, named_gap
from fairtopk.metrics.inputs import (
    Values,
    blocks,
    checked_groups,
    checked_ks,
    checked_relevance,
    checked_scores,
)
from fairtopk.metrics.ndcg import ndcg_at


def summarise(
    scores: Values,
    relevance: Values,
    groups: Values,
    *,
    ks: Sequence[int],
    mask: Values | None = None,
) -> dict[str, Tensor]:
    """Return NDCG and every gap at each K, one value per query: name to ``[Q]``.

    The names are ``ndcg@K``, ``exposure_gap@K``, ``exposure_gap_mse@K`` (its square),
    ``exposure_gap_released@K``, ``rank_exposure_gap@K``, ``representation_gap@K``, and each gap
    but the square also as ``..._signed@K``. Definitions, arguments and what is NaN are those of
    `ndcg` and `exposure_gap`.

    Example:
        >>> import torch
        >>> scores, groups = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1, 1, 0]])
        >>> found = summarise(scores, torch.tensor([[0, 0, 1]]), groups, ks=[2, 3])
        >>> found["ndcg@3"], found["exposure_gap_signed@2"]
        (tensor([0.5000]), tensor([-0.4550]))
    """
    lists, valid = checked_scores(scores, mask)
    grades = checked_relevance(relevance, lists, valid)
    labels, distinct = checked_groups(groups, lists, valid), checked_ks(ks)
    measured = [
        _measured(block, labels.n_groups, distinct)
        for block in blocks(lists, valid, grades, labels.group, n_groups=labels.n_groups)
    ]
    return {
        f"{metric}@{k}": torch.cat([values[metric][:, column] for values in measured])
        for metric in measured[0]
        for column, k in enumerate(distinct)
    }


def _measured(block: tuple[Tensor, ...], n_groups: int, ks: Sequence[int]) -> dict[str, Tensor]:
    """Return each metric of a block of lists at each of `ks`, ``[Q, len(ks)]``."""
    scores, mask, relevance, group = block
    lists = ranked(scores, mask)
    each = grouped(lists, group, n_groups)
    two = each if n_groups == 2 else grouped(lists, named_and_rest(group), 2)
    found = {"ndcg": ndcg_at(lists, relevance, mask, ks)}
    for metric, notion in NOTIONS.items():
        values = notion(each, ks)
        found[metric] = largest_gap(values)
        found[f"{metric}_signed"] = named_gap(values if two is each else notion(two, ks))
    found["exposure_gap_mse"] = found["exposure_gap"] ** 2
    return found
