"""The search for a weight that reaches a goal, from what each weight that is tried gives.

A larger weight is taken to lower the gap and to cost accuracy, up to noise: the search steps up
or down until one weight is too weak and another too strong, and halves what is between them,
in logarithms where the weight has no upper end (`methods.md` 8.3). Gaps and accuracies are
relative to the colour-blind model's, which stands for a weight of 0.

A goal in place of a weight: how fair a model is to be, and how accurate still.

    [goal]
    target = { metric = "rank_exposure_gap@50", at_most = 0.5 }
    keep = { metric = "ndcg@50", at_least = 0.99 }

Both are relative to the colour-blind model, the same method with a weight of 0, and measured on
the validation lists of the protocol that the config evaluates by.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, ValidationError, field_validator

from fairtopk.checks import first_fault
from fairtopk.errors import InputError
from fairtopk.objectives.methods import ADVERSARIAL, DISTILL, ROBUST, is_fair
from fairtopk.runs.config import Config, Section
from fairtopk.runs.config_file import check_config, dump_config, read_config

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


WEIGHTS = ("c", "c_relative")
SHARES = (ROBUST, DISTILL)  # methods whose weight is a share, from 0 to 1
NOTIONS = ("exposure_gap", "exposure_gap_released", "rank_exposure_gap", "representation_gap")
GAPS = (*NOTIONS, *(f"{notion}_mse" for notion in NOTIONS), "rsp", "reo")
NDCG = "ndcg"
MOST_RUNS = 1_000
SELECTED = ("exposure_gap", "rank_exposure_gap", "representation_gap")  # can choose epochs


class Metric(NamedTuple):
    """A metric of files, ``name@k``."""

    name: str
    k: int

    @classmethod
    def read(cls, text: str, known: Sequence[str]) -> "Metric":
        """Return what `text` names, refusing other names than those known."""
        name, _, k = text.partition("@")
        if name not in known or not re.fullmatch("[0-9]{1,8}", k):
            raise ValueError(
                f"must be a metric and its K, such as {known[0]}@50, got {text!r}: the metrics "
                f"are {', '.join(known)}"
            )
        return cls(name, int(k))


class Target(Section):
    """Which gap, and what part of the colour-blind model's it may have."""

    metric: str
    at_most: Annotated[float, Field(ge=0, lt=1)]

    @field_validator("metric")
    @classmethod
    def _known(cls, metric: str) -> str:
        Metric.read(metric, GAPS)
        return metric


class Keep(Section):
    """What part of the colour-blind model's NDCG is to be left."""

    metric: str
    at_least: Annotated[float, Field(gt=0, le=1)]

    @field_validator("metric")
    @classmethod
    def _known(cls, metric: str) -> str:
        Metric.read(metric, (NDCG,))
        return metric


class Goal(Section):
    """The table ``[goal]``."""

    target: Target
    keep: Keep | None = None
    runs: Annotated[int, Field(gt=0, le=MOST_RUNS)] = (
        6  # weights that may be tried, beside the colour-blind model
    )

    @property
    def accuracy(self) -> str:
        """The metric of accuracy: where none is to be kept, NDCG at the target's K."""
        if self.keep:
            return self.keep.metric
        return f"{NDCG}@{Metric.read(self.target.metric, GAPS).k}"

    @property
    def bounds(self) -> Bounds:
        """Both bounds; where no accuracy is to be kept, any will do."""
        return Bounds(self.target.at_most, self.keep.at_least if self.keep else 0.0)


class _File(Section):
    goal: Goal


class Asked(NamedTuple):
    """A run as a TOML file has it: with a goal, its weight is where the search begins."""

    config: Config
    goal: Goal | None


def load_asked(path: Path, changes: Sequence[str] = ()) -> Asked:
    """Return the run of a TOML file, and its goal if it has one; see `load_config`."""
    values = read_config(path, changes)
    given = values.pop("goal", None)
    if given is None:
        return Asked(check_config(values, str(path)), None)
    try:
        goal = _File.model_validate({"goal": given}).goal
    except ValidationError as error:
        raise InputError(f"{path}: {first_fault(error, {'goal': given})}") from error
    method = values.get("method")
    if isinstance(method, dict):
        for key in WEIGHTS:
            if key in method:
                raise InputError(
                    f"{path}: the weight is chosen to reach the goal; leave out method.{key}, "
                    f"or the table goal"
                )
        name = str(method.get("name"))
        method[weight_key(name)] = scale_of(name).start
    _choose_epochs_by(goal.target, values)
    config = check_config(values, str(path))
    if fault := _misfit(goal, config):
        raise InputError(f"{path}: {fault}")
    return Asked(config, goal)


def dump_asked(config: Config, goal: Goal) -> str:
    """Return a run with a goal as TOML text, complete."""
    method = config.method.model_copy(update=dict.fromkeys(WEIGHTS))
    return dump_config(config.model_copy(update={"method": method}), goal=goal)


def with_weight(config: Config, weight: float) -> Config:
    """Return a config with another weight, checked."""
    values = config.model_dump()
    values["method"] |= dict.fromkeys(WEIGHTS) | {weight_key(config.method.name): weight}
    return check_config(values, f"{config.method.name} with a weight of {weight:g}")


def weight_key(method: str) -> str:
    """Return the key of the weight that is searched: C / n^2, which carries over, or C."""
    return "c" if method in (*ADVERSARIAL, *SHARES) else "c_relative"


def scale_of(method: str) -> Scale:
    """Return where the weight of a method is looked for."""
    if method in SHARES:
        return Scale(0.5, 1.0, None)
    if method in ADVERSARIAL:
        return Scale(ADVERSARIAL[method].c, 100.0, 5.0)
    # The paper's largest C, 1e9, is about 1e4 for lists of 310.
    return Scale(1.0, 1e4, 10.0)


def _choose_epochs_by(target: Target, values: dict[str, Any]) -> None:
    """Let what the goal is about choose between epochs, unless the file says what does."""
    metric = Metric.read(target.metric, GAPS)
    evaluation = values.setdefault("evaluation", {})
    if not isinstance(evaluation, dict):  # which is refused later
        return
    evaluation.setdefault("select_k", metric.k)
    if metric.name in SELECTED:
        evaluation.setdefault("select_gap", metric.name)
    if evaluation.get("protocol") == "full":
        evaluation.setdefault("select_on", "full")


def _misfit(goal: Goal, config: Config) -> str | None:
    """Return what of a goal does not go with its run, in a sentence; None if all does."""
    if not is_fair(config.method.name):
        return (
            f"{config.method.name} has no weight to choose; name a method with a fairness "
            f"part, or leave out the table goal"
        )
    for metric, known in ((goal.target.metric, GAPS), (goal.accuracy, (NDCG,))):
        k = Metric.read(metric, known).k
        if k not in config.evaluation.k:
            measured = ", ".join(map(str, config.evaluation.k))
            return f"the goal is about {metric}, and evaluation.k has {measured}; add {k}"
    return None
