"""A goal in place of a weight: how fair a model is to be, and how accurate still.

    [goal]
    target = { metric = "rank_exposure_gap@50", at_most = 0.5 }
    keep = { metric = "ndcg@50", at_least = 0.99 }

Both are relative to the colour-blind model, the same method with a weight of 0, and measured on
the validation lists of the protocol that the config evaluates by.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field, ValidationError, field_validator

from fairtopk.errors import InputError
from fairtopk.estimators.methods import ADVERSARIAL, DISTILL, ROBUST, is_fair
from fairtopk.experiments.config import Config, Section
from fairtopk.experiments.config_file import check_config, dump_config, read_config
from fairtopk.experiments.faults import first_fault
from fairtopk.experiments.goal_search import Bounds, Scale

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
