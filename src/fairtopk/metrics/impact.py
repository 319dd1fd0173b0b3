"""The impact ratio: what the group that gets least gets, over what the one with most gets."""

import torch
from torch import Tensor

from fairtopk.arguments import checked_choice
from fairtopk.metrics.grouped import NOTIONS
from fairtopk.metrics.inputs import Values
from fairtopk.metrics.overall import Overall, of_groups, overall
from fairtopk.metrics.tops import Tops, measured_groups

BY_RANK = "rank_exposure_gap"


def impact_ratio(
    scores: Values,
    groups: Values,
    *,
    k: int,
    mask: Values | None = None,
    metric: str = BY_RANK,
    seed: int = 0,
) -> Overall:
    """Return what the group that gets least gets, over what the one that gets most gets.

    What a group gets is the mean over the lists that have it, by default of its rank exposure
    in the top `k`; see `group_rank_exposures`. The four-fifths rule asks for 0.8 or more.

    Args:
        scores: Model scores, ``[Q, L]``; of equal scores the earlier slot ranks first.
        groups: Group numbers, -1 unknown, ``[Q, L]``; booleans mark the named group.
        k: Length of the top of the list; from L on it is the whole list.
        mask: False on padding, ``[Q, L]``; left out, there is none.
        metric: The gap whose notion of getting something is meant: "rank_exposure_gap",
            "exposure_gap", "exposure_gap_released" or "representation_gap".
        seed: Of the 1,000 resamples.

    Returns:
        The value, in [0, 1], and what each group gets; NaN where the lists have fewer than two
        groups, or none gets anything. For the interval, least and most are found anew in each
        resample: where groups are close, it may lie below the value.

    Example:
        >>> import torch
        >>> scores, groups = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1, 1, 0]])
        >>> round(impact_ratio(scores, groups, k=3).value, 4)
        0.6131
    """
    notion = NOTIONS[checked_choice("metric", metric, NOTIONS)]

    def gets(tops: Tops) -> Tensor:
        values = notion(tops)
        return of_groups(values.nan_to_num(0.0), ~values.isnan())

    return overall(measured_groups(gets, scores, groups, k=k, mask=mask), _low_to_high, seed)


def impact_ratios(
    scores: Values,
    groups: Values,
    *,
    k: int,
    mask: Values | None = None,
    metric: str = BY_RANK,
) -> Tensor:
    """Return the impact ratio of each list by itself, ``[Q]``.

    It is the least that a group of the list gets over the most: 0 wherever a group has no item
    in a short top, so the mean over lists is no measure of who is favoured; `impact_ratio` is.
    NaN where a list has fewer than two groups, or none of them an item in the top `k`.
    Arguments are those of `impact_ratio`.

    Example:
        >>> import torch
        >>> scores, groups = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1, 1, 0]])
        >>> impact_ratios(scores, groups, k=3), impact_ratios(scores, groups, k=2)
        (tensor([0.6131]), tensor([0.]))
    """
    notion = NOTIONS[checked_choice("metric", metric, NOTIONS)]

    def ratio(tops: Tops) -> Tensor:
        values = notion(tops)
        absent = values.isnan()
        high = values.masked_fill(absent, -torch.inf).amax(-2)
        low = values.masked_fill(absent, torch.inf).amin(-2)
        return (low / high).masked_fill((~absent).sum(-2) < 2, torch.nan)

    return measured_groups(ratio, scores, groups, k=k, mask=mask)


def _low_to_high(values: Tensor) -> Tensor:
    return values.amin(-1) / values.amax(-1)
