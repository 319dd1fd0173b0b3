"""Metrics of rankings: functions of tensors or arrays, one value per query.

NaN is undefined: it is counted and reported, never averaged as 0. With three or more groups a
gap is the largest difference between two that the list has; a signed gap is group 0 less all
other known groups taken together. `rsp`, `reo` and `impact_ratio` are one value of all queries.
"""

from fairtopk.metrics.chance import (
    Floor,
    PValue,
    chance_floor,
    chance_floors,
    gap_p_value,
    gap_p_values,
)
from fairtopk.metrics.gaps import (
    exposure_gap,
    group_exposures,
    group_rank_exposures,
    group_representations,
    ndcg,
    rank_exposure_gap,
    representation_gap,
    summarise,
)
from fairtopk.metrics.intervals import (
    Mean,
    Overall,
    impact_ratio,
    impact_ratios,
    mean_with_interval,
    means_with_intervals,
    parities,
    reo,
    rsp,
)
from fairtopk.metrics.other import (
    awrf,
    entropy,
    group_attentions,
    group_auc,
    matched_temperature,
    ndkl,
    score_spread,
)

__all__ = [
    "Floor",
    "Mean",
    "Overall",
    "PValue",
    "awrf",
    "chance_floor",
    "chance_floors",
    "entropy",
    "exposure_gap",
    "gap_p_value",
    "gap_p_values",
    "group_attentions",
    "group_auc",
    "group_exposures",
    "group_rank_exposures",
    "group_representations",
    "impact_ratio",
    "impact_ratios",
    "matched_temperature",
    "mean_with_interval",
    "means_with_intervals",
    "ndcg",
    "ndkl",
    "parities",
    "rank_exposure_gap",
    "reo",
    "representation_gap",
    "rsp",
    "score_spread",
    "summarise",
]
