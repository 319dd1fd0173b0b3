"""Means over seeds, and how models of the same seeds differ.

Intervals are by Student's t, which is wide for few seeds, as it should be.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fairtopk.reporting.curves import Point

T95 = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)  # of 2 to 10 seeds

BySeed = Mapping[int, float]  # seed to value


class SeedMean(NamedTuple):
    """A mean over seeds.

    Attributes:
        mean: NaN without any.
        low: Lower end of a 95 % interval; NaN with one seed.
        high: Its upper end.
        seeds: How many.
    """

    mean: float
    low: float
    high: float
    seeds: int

    @property
    def reach(self) -> float:
        """Half of the interval."""
        return self.high - self.mean


def seed_mean(values: Sequence[float]) -> SeedMean:
    """Return the mean of a value for each seed, with its interval."""
    n = len(values)
    mean = sum(values) / n if n else math.nan
    if n < 2:
        return SeedMean(mean, math.nan, math.nan, n)
    error = math.sqrt(sum((value - mean) ** 2 for value in values) / (n - 1) / n)
    reach = T95[min(n - 2, len(T95) - 1)] * error
    return SeedMean(mean, mean - reach, mean + reach, n)


def change_of(values: BySeed, blind: BySeed) -> SeedMean:
    """Return how a metric changes from one model to another, as a share of the other's."""
    return seed_mean([values[s] / blind[s] - 1 for s in values if blind.get(s)])


def difference_of(values: BySeed, others: BySeed) -> SeedMean:
    """Return by how much a metric of one model is above another's."""
    return seed_mean([values[s] - others[s] for s in values if s in others])


def by_seed(point: Point, metric: str) -> dict[int, float]:
    """Return a metric of each seed of a point that has it."""
    found = {one.run.seed: one.metrics.get(metric, {}).get("mean") for one in point.results}
    return {seed: float(mean) for seed, mean in found.items() if mean is not None}
