"""Which weight of a method is chosen: the smallest gap for 1 % of NDCG."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from fairtopk.reporting.curves import Point
from fairtopk.reporting.paper_tables import Facts
from fairtopk.reporting.results import Result

LOSS = 0.01  # of K-SONG's NDCG, that a chosen model may lose


class Choice(NamedTuple):
    """The point of a method that is chosen for 1 % of NDCG.

    Attributes:
        point: The chosen one; where all lose more, the one that loses least.
        within: Whether it loses no more, by what it was chosen by.
        how: In words, by what.
        judged: On which lists a loss was counted.
    """

    point: Point
    within: bool
    how: str
    judged: str

    @property
    def label(self) -> str:
        """The weight of the point, and whether more is lost for it."""
        return self.point.label + ("" if self.within else f", loses more on {self.judged}")


def choose(points: Sequence[Point], base: Point, gap: str, k: int, facts: Facts) -> Choice:
    """Return which point of a method is chosen for a loss of at most 1 % of the base's NDCG.

    Args:
        points: Penalised, one or more.
        base: Whose NDCG may be lost.
        gap: Such as ``exposure_gap``.
        k: Of both.
        facts: Of each run; they tell which epoch was kept.
    """
    metrics = (f"ndcg@{k}", f"{gap}@{k}")
    names = tuple(f"valid_{metric}" for metric in metrics)
    tried = [
        _tried(point, base, lambda result: _kept(result, facts), names) for point in points
    ]
    how, judged = "on validation", "validation"
    if any(math.isnan(one.ndcg + one.gap) for one in tried):
        how, judged = "in hindsight", "test"
        tried = [_tried(point, base, _means, metrics) for point in points]
    if len(points) == 1:
        how = "one setting"
    within = [one for one in tried if one.ndcg >= 1 - LOSS]
    if within:
        return Choice(min(within, key=lambda one: _last(one.gap)).point, True, how, judged)
    return Choice(max(tried, key=lambda one: -_last(-one.ndcg)).point, False, how, judged)


class Tried(NamedTuple):
    """A point that may be chosen.

    Attributes:
        point: Which.
        ndcg: As a share of the base's of the same seeds.
        gap: Its mean over seeds.
    """

    point: Point
    ndcg: float
    gap: float


def _tried(
    point: Point,
    base: Point,
    read: Callable[[Result], Mapping[str, float]],
    names: tuple[str, ...],
) -> Tried:
    """Return a point by what is read of each of its runs; NaN where that is not known."""
    seeds = {result.run.seed for result in point.results}
    blind = [result for result in base.results if result.run.seed in seeds]
    ndcg, gap = (_mean_of(point.results, read, name) for name in names)
    return Tried(point, ndcg / _mean_of(blind, read, names[0]), gap)


def _mean_of(
    results: Sequence[Result], read: Callable[[Result], Mapping[str, float]], name: str
) -> float:
    values = [read(result).get(name, math.nan) for result in results]
    return sum(values) / len(values) if values else math.nan


def _means(result: Result) -> dict[str, float]:
    """Return what was measured on test lists, as far as it is defined."""
    means = {name: cell["mean"] for name, cell in result.metrics.items()}
    return {name: mean for name, mean in means.items() if mean is not None}


def _last(value: float) -> float:
    """Return a value, or infinity where it is not known."""
    return math.inf if math.isnan(value) else value


def _kept(result: Result, facts: Facts) -> Mapping[str, Any]:
    """Return the record of the epoch that was kept; epochs count anew in each phase."""
    epoch = facts.get(result.run.name, {}).get("chosen_epoch")
    kept = [record for record in result.run.log if record.get("epoch") == epoch]
    return kept[-1] if kept and epoch is not None else {}
