"""The search for a weight that reaches a goal, from what each weight that is tried gives.

A larger weight is taken to lower the gap and to cost accuracy, up to noise: the search steps up
or down until one weight is too weak and another too strong, and halves what is between them,
in logarithms where the weight has no upper end (`methods.md` 8.3). Gaps and accuracies are
relative to the colour-blind model's, which stands for a weight of 0.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

MARGIN = 0.02  # of the colour-blind model's gap: what lies closer together is alike
DIGITS = 3  # of a weight that is tried

End = Literal["enough", "narrow", "flat", "top", "runs"]


class Bounds(NamedTuple):
    """What is asked for: a gap of at most, and an accuracy of at least so much."""

    at_most: float
    at_least: float


class Tried(NamedTuple):
    """A weight and what it gives; NaN where that is undefined."""

    weight: float
    gap: float
    accuracy: float

    def is_fair(self, asked: Bounds) -> bool:
        """Return whether the gap is what was asked for."""
        return self.gap <= asked.at_most

    def is_accurate(self, asked: Bounds) -> bool:
        """Return whether the accuracy is what was asked for."""
        return self.accuracy >= asked.at_least


class Found(NamedTuple):
    """How a search ended.

    Attributes:
        tries: What was tried, in order.
        chosen: The best of it; None if that is the colour-blind model.
        reached: Whether it is what was asked for.
        end: Why the search ended: the goal is reached and little is left to gain (`enough`),
            weights lie too close together (`narrow`), the gap no longer falls although the
            weight rises (`flat`), the weight is at the `top`, or all `runs` are used up.
    """

    tries: list[Tried]
    chosen: Tried | None
    reached: bool
    end: End


@dataclass(frozen=True)
class Scale:
    """Where weights are looked for: above 0, at most `top`, `start` first.

    Attributes:
        start: The first weight.
        top: The largest.
        factor: Of a step up or down while nothing is known on that side; None for a share, of
            which half is tried below and the top above.
    """

    start: float
    top: float
    factor: float | None

    def above(self, weight: float) -> float:
        """Return the next larger weight to try."""
        return self.top if self.factor is None else min(_round(weight * self.factor), self.top)

    def below(self, weight: float) -> float:
        """Return the next smaller weight to try."""
        return _round(weight / (self.factor or 2))

    def between(self, low: float, high: float) -> float | None:
        """Return the weight halfway; None if both are close together."""
        if self.factor is None:
            return _round((low + high) / 2) if high - low > MARGIN * self.top else None
        return _round(math.sqrt(low * high)) if high / low > 1 + 2 * MARGIN else None


def search(
    measure: Callable[[float], Tried], scale: Scale, asked: Bounds, *, runs: int
) -> Found:
    """Return what a search finds in at most `runs` tries.

    Args:
        measure: Trains with a weight, and says what that gives.
        scale: Where weights are looked for.
        asked: The goal.
        runs: How many weights may be tried.
    """
    tries: list[Tried] = []
    following = _next(tries, scale, asked)
    while not isinstance(following, str) and len(tries) < runs:
        tries.append(measure(following))
        following = _next(tries, scale, asked)
    chosen = _best(tries, asked)
    reached = chosen is not None and chosen.is_fair(asked) and chosen.is_accurate(asked)
    return Found(tries, chosen, reached, following if isinstance(following, str) else "runs")


def _next(tries: Sequence[Tried], scale: Scale, asked: Bounds) -> float | End:
    """Return the weight to try next, or why there is none."""
    if not tries:
        return scale.start
    last = tries[-1]
    near = last.gap >= asked.at_most - MARGIN or last.accuracy >= 1
    if last.is_fair(asked) and last.is_accurate(asked) and near:
        return "enough"
    low, high = _bracket(tries, asked)
    if high is None:
        assert low is not None  # a try is one or the other
        if _is_flat(tries):
            return "flat"
        return "top" if low.weight >= scale.top else scale.above(low.weight)
    if low is None:
        return scale.below(high.weight)
    return scale.between(low.weight, high.weight) or "narrow"


def _bracket(tries: Sequence[Tried], asked: Bounds) -> tuple[Tried | None, Tried | None]:
    """Return the largest weight that is too weak and the smallest that is strong enough.

    One that costs more accuracy than may be is too strong, whatever its gap. Where the gap
    rises again, it is lowest on one side of the weak one, taken to be that of the neighbour
    with the smaller gap.
    """
    low: Tried | None = None
    high: Tried | None = None
    weak: list[Tried] = []
    for one in tries:
        if one.is_fair(asked) or not one.is_accurate(asked) or math.isnan(one.gap):
            high = one
        elif low is None or one.gap <= low.gap + MARGIN:
            low = one
            weak.append(one)
        else:
            before = [other for other in weak if other.weight < low.weight]
            nearest = max(before, key=lambda other: other.weight, default=None)
            if one.gap > (nearest.gap if nearest else 1.0):
                low, high = nearest, low
            else:
                high = one
    return low, high


def _is_flat(tries: Sequence[Tried]) -> bool:
    """Return whether the gap had fallen, and two steps up have not lowered it further."""
    if len(tries) < 3:
        return False
    first, second, third = (one.gap for one in tries[-3:])
    return first < 1 - MARGIN and first - second < MARGIN and second - third < MARGIN


def _best(tries: Sequence[Tried], asked: Bounds) -> Tried | None:
    """Return the most accurate of what reaches the goal, else the fairest that is accurate.

    None, the colour-blind model, where no try that is accurate enough lowers the gap.
    """
    accurate = [one for one in tries if one.is_accurate(asked)]
    if there := [one for one in accurate if one.is_fair(asked)]:
        return min(there, key=lambda one: (-one.accuracy, one.weight))
    lower = [one for one in accurate if one.gap < 1]
    return min(lower, key=lambda one: one.gap, default=None)


def _round(weight: float) -> float:
    return float(f"{weight:.{DIGITS}g}")
