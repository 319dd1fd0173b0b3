"""Every metric of a set of lists at several K, from one ranking of each list."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fairtopk.checks import checked_ks
from fairtopk.metrics.gaps import NOTIONS, largest_gap, named_and_rest, named_gap, ndcg_at
from fairtopk.metrics.tops import Tops, measured_lists
from fairtopk.tensors import Values, checked_groups, checked_relevance, checked_scores

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
    lists, valid = checked_scores(scores, mask)
    grades = checked_relevance(relevance, lists, valid)
    labels, distinct = checked_groups(groups, lists, valid), checked_ks(ks)

    values = measured_lists(_measured, lists, valid, distinct, relevance=grades, labels=labels)
    return _named(values, distinct)


def summarise_tops(tops: Tops, ks: Sequence[int]) -> dict[str, Tensor]:
    """Return the same for the tops of lists at `ks`."""
    return _named(_measured(tops), ks)


def _measured(tops: Tops) -> Tensor:
    """Return each of `METRICS` at each K, ``[Q, metrics, len(ks)]``."""
    values = two = _each_notion(tops)
    if tops.size.shape[1] > 2:
        two = _each_notion(named_and_rest(tops))
    gaps = largest_gap(values)
    found = [ndcg_at(tops)[:, None], gaps, named_gap(two), gaps**2]
    return torch.cat(found, dim=1)


def _each_notion(tops: Tops) -> Tensor:
    """Return what each group gets by each of `NOTIONS`, ``[Q, notions, G, len(ks)]``."""
    return torch.stack([notion(tops) for notion in NOTIONS.values()], dim=1)


def _named(values: Tensor, ks: Sequence[int]) -> dict[str, Tensor]:
    return {
        f"{metric}@{k}": values[:, row, column].contiguous()
        for row, metric in enumerate(METRICS)
        for column, k in enumerate(ks)
    }
