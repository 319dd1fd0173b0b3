"""A goal in place of a weight, and the search for a weight that reaches it.

    [goal]
    target = { metric = "rank_exposure_gap@50", at_most = 0.5 }
    keep = { metric = "ndcg@50", at_least = 0.99 }

Both are relative to the colour-blind model, the same method with a weight of 0, and measured on
the validation lists of the protocol that the config evaluates by.

The search assumes that a larger weight lowers the gap and costs accuracy, up to noise: it steps
up or down until one weight is too weak and another too strong, and halves the interval between
them, on a logarithmic scale if the weight has no upper end (`methods.md` 8.3).
"""

import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, Field, ValidationError

from fairtopk.checks import first_fault
from fairtopk.errors import InputError
from fairtopk.objectives.methods import Method, find_method
from fairtopk.runs.config import Config, Section
from fairtopk.runs.config_file import check_config, dump_config

WEIGHTS = ("c", "c_relative")
NOTIONS = ("exposure_gap", "exposure_gap_released", "rank_exposure_gap", "representation_gap")
GAPS = (*NOTIONS, *(f"{notion}_mse" for notion in NOTIONS), "rsp", "reo")
NDCG = "ndcg"
SELECTED = ("exposure_gap", "rank_exposure_gap", "representation_gap")  # can choose epochs
MOST_RUNS = 1_000
MARGIN = 0.02  # of the colour-blind model's gap: closer values count as equal
DIGITS = 3  # of a weight

End = Literal["enough", "narrow", "flat", "top", "runs"]


class Bounds(NamedTuple):
    """A goal in numbers: a gap of at most, and an accuracy of at least so much."""

    at_most: float
    at_least: float


def _checked_metric(text: str, known: Sequence[str]) -> str:
    """Return ``name@k``, refused unless the name is known."""
    name, _, k = text.partition("@")
    if name not in known or not re.fullmatch("[0-9]{1,8}", k):
        raise ValueError(
            f"must be a metric and its K, such as {known[0]}@50, got {text!r}: the metrics are "
            f"{', '.join(known)}"
        )
    return text


class Target(Section):
    """Which gap, and its largest share of the colour-blind model's."""

    metric: Annotated[str, AfterValidator(partial(_checked_metric, known=GAPS))]
    at_most: Annotated[float, Field(ge=0, lt=1)]


class Keep(Section):
    """Which NDCG, and its smallest share of the colour-blind model's."""

    metric: Annotated[str, AfterValidator(partial(_checked_metric, known=(NDCG,)))]
    at_least: Annotated[float, Field(gt=0, le=1)]


class Goal(Section):
    """The table ``[goal]``."""

    target: Target
    keep: Keep | None = None
    # Weights that may be tried; the colour-blind model is not counted.
    runs: Annotated[int, Field(gt=0, le=MOST_RUNS)] = 6

    @property
    def accuracy(self) -> str:
        """The metric of accuracy: without `keep`, NDCG at the target's K."""
        if self.keep:
            return self.keep.metric
        return f"{NDCG}@{int(self.target.metric.partition('@')[2])}"


class _File(Section):
    goal: Goal


def check_goal(values: dict[str, Any], where: str) -> tuple[Config, Goal]:
    """Return the run and the goal of some values, refusing the first that is wrong.

    The config has the weight to start from.
    """
    given = {"goal": values.pop("goal", None)}
    try:
        goal = _File.model_validate(given).goal
    except ValidationError as error:
        raise InputError(f"{where}: {first_fault(error, given)}") from error
    method = values.get("method")
    if isinstance(method, dict):
        for key in WEIGHTS:
            if key in method:
                raise InputError(
                    f"{where}: the weight is chosen to reach the goal; leave out method.{key}, "
                    f"or the table goal"
                )
        row = find_method(str(method.get("name"))) or Method()  # a wrong name is refused later
        method[row.weight_key] = row.search_scale[0]
    evaluation = values.setdefault("evaluation", {})
    if isinstance(evaluation, dict):  # else it is refused later
        # The target chooses between epochs, unless the file sets how they are chosen.
        gap, _, k = goal.target.metric.partition("@")
        evaluation.setdefault("select_k", int(k))
        if gap in SELECTED:
            evaluation.setdefault("select_gap", gap)
        if evaluation.get("protocol") == "full":
            evaluation.setdefault("select_on", "full")
    config = check_config(values, where)
    if not config.method.row.is_fair:
        raise InputError(
            f"{where}: {config.method.name} has no weight to choose; name a method with a "
            f"fairness part, or leave out the table goal"
        )
    for metric in (goal.target.metric, goal.accuracy):
        k = metric.partition("@")[2]
        if int(k) not in config.evaluation.k:
            ks = ", ".join(map(str, config.evaluation.k))
            raise InputError(
                f"{where}: the goal is about {metric}, and evaluation.k has {ks}; add {int(k)}"
            )
    return config, goal


def dump_goal(config: Config, goal: Goal) -> str:
    """Return a run with a goal as TOML text, complete."""
    method = config.method.model_copy(update=dict.fromkeys(WEIGHTS))
    return dump_config(config.model_copy(update={"method": method}), goal=goal)


def with_weight(config: Config, weight: float) -> Config:
    """Return a config with another weight, checked."""
    values = config.model_dump()
    values["method"] |= dict.fromkeys(WEIGHTS) | {config.method.row.weight_key: weight}
    return check_config(values, f"{config.method.name} with a weight of {weight:g}")


class Trial(NamedTuple):
    """A weight, its gap and its accuracy, NaN if undefined; why training failed, if it did."""

    weight: float
    gap: float
    accuracy: float
    failure: str = ""

    def meets(self, bounds: Bounds) -> tuple[bool, bool]:
        """Return whether the gap is small enough, and whether the accuracy is high enough."""
        return self.gap <= bounds.at_most, self.accuracy >= bounds.at_least


class SearchResult(NamedTuple):
    """How a search ended."""

    tries: list[Trial]  # the trials, in order
    chosen: Trial | None  # the best of them; None if that is the colour-blind model
    reached: bool  # whether it meets both bounds
    # Why the search ended: the goal is reached and little is left to gain (`enough`), weights
    # lie too close together (`narrow`), the gap no longer falls although the weight rises
    # (`flat`), the weight is at the `top`, or all `runs` are used up.
    end: End


class Scale(NamedTuple):
    """The weights that a search may try: above 0, at most `top`, `start` first."""

    start: float  # the first weight
    top: float  # the largest
    # That of a step up or down while nothing is known on that side; None for a share: a step up
    # goes to the top, a step down to half.
    factor: float | None


def search(
    measure: Callable[[float], Trial], scale: Scale, bounds: Bounds, *, runs: int
) -> SearchResult:
    """Search for the weight that meets both bounds, in at most `runs` trials.

    `measure` trains with a weight and measures the result, relative to a weight of 0.
    """
    tries: list[Trial] = []
    following = _next(tries, scale, bounds)
    while not isinstance(following, str) and len(tries) < runs:
        tries.append(measure(float(f"{following:.{DIGITS}g}")))
        following = _next(tries, scale, bounds)
    end = following if isinstance(following, str) else "runs"
    # The most accurate trial that reaches the goal, else the fairest that is accurate enough
    # and lowers the gap.
    if there := [one for one in tries if all(one.meets(bounds))]:
        chosen = min(there, key=lambda one: (-one.accuracy, one.weight))
        return SearchResult(tries, chosen, True, end)
    lower = [one for one in tries if one.meets(bounds)[1] and one.gap < 1]
    return SearchResult(tries, min(lower, key=lambda one: one.gap, default=None), False, end)


def _next(tries: Sequence[Trial], scale: Scale, bounds: Bounds) -> float | End:
    """Return the weight to try next, or why there is none."""
    if not tries:
        return scale.start
    last = tries[-1]
    near = last.gap >= bounds.at_most - MARGIN or last.accuracy >= 1
    if all(last.meets(bounds)) and near:
        return "enough"
    low, high = _bracket(tries, bounds)
    if high is None:
        assert low is not None  # every trial is one or the other
        if len(tries) >= 3:  # the gap had fallen, and two steps up have not lowered it further
            first, second, third = (one.gap for one in tries[-3:])
            if first < 1 - MARGIN and first - second < MARGIN and second - third < MARGIN:
                return "flat"
        if low.weight >= scale.top:
            return "top"
        if scale.factor is None:
            return scale.top
        return min(low.weight * scale.factor, scale.top)
    if low is None:
        return high.weight / (scale.factor or 2)
    if scale.factor is None:
        apart = high.weight - low.weight > MARGIN * scale.top
        return (low.weight + high.weight) / 2 if apart else "narrow"
    apart = high.weight / low.weight > 1 + 2 * MARGIN
    return math.sqrt(low.weight * high.weight) if apart else "narrow"


def _bracket(tries: Sequence[Trial], bounds: Bounds) -> tuple[Trial | None, Trial | None]:
    """Return the largest weight that is too weak and the smallest that is strong enough.

    One that costs too much accuracy is too strong, whatever its gap. If the gap rises again,
    it is lowest on one side of the weak one; we take the side of the neighbour with the smaller
    gap.
    """
    low: Trial | None = None
    high: Trial | None = None
    weak: list[Trial] = []
    for one in tries:
        fair, accurate = one.meets(bounds)
        if fair or not accurate or math.isnan(one.gap):
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
