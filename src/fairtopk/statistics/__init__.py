"""Comparing results: two runs query by query, many tests at once, fronts of trade-offs."""

from fairtopk.statistics.fronts import Front, cut_at_loss, front, hypervolume, non_dominated
from fairtopk.statistics.holm import holm
from fairtopk.statistics.paired import Difference, paired_difference, paired_differences

__all__ = [
    "Difference",
    "Front",
    "cut_at_loss",
    "front",
    "holm",
    "hypervolume",
    "non_dominated",
    "paired_difference",
    "paired_differences",
]
