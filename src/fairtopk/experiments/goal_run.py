"""The search for a weight that reaches a goal, and its folder.

`goal.toml` (what is asked for), `tries/` (a run folder for each weight), `search.json` (what
was tried and chosen), and once the search is over the files of an ordinary run, the chosen one.
Tries are measured on validation lists alone; test lists are looked at in the end, for the
chosen model and the colour-blind one. A search that was killed goes on to the same numbers:
what is tried next follows from what was measured before.
"""

import json
import math
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, model_validator

from fairtopk.data.files import read_text, remove_halves, write_text
from fairtopk.errors import InputError, TrainingError
from fairtopk.experiments.build import build_any_lists
from fairtopk.experiments.config import Config
from fairtopk.experiments.goal import (
    Goal,
    dump_asked,
    load_asked,
    scale_of,
    weight_key,
    with_weight,
)
from fairtopk.experiments.goal_search import End, Found, Tried, search
from fairtopk.experiments.goal_tries import (
    BLIND,
    PART,
    TRIES,
    Folder,
    Progress,
    Tested,
    measured,
    name_of,
    settle,
)
from fairtopk.experiments.identity import IDENTITY, identity_of
from fairtopk.experiments.locks import alone_in
from fairtopk.experiments.result import METRICS, Owner, read_result
from fairtopk.experiments.result_schema import is_sealed, sealed
from fairtopk.experiments.run import is_begun

GOAL, SEARCH = "goal.toml", "search.json"


class _Part(BaseModel, strict=True, allow_inf_nan=False):
    """A part of ``search.json``."""


class _Values(_Part):
    target: float | None
    target_relative: float | None
    keep: float | None
    keep_relative: float | None


class _Try(_Values):
    run: str
    weight: float
    fair: bool
    accurate: bool
    failure: str = ""

    @model_validator(mode="after")
    def _whole(self) -> "_Try":
        both = ((self.target, self.target_relative), (self.keep, self.keep_relative))
        if any((value is None) != (relative is None) for value, relative in both):
            raise ValueError("a value without what it is of the colour-blind model's")
        return self


class _Blind(_Part):
    run: str
    target: Annotated[float, Field(gt=0)]
    keep: Annotated[float, Field(gt=0)]
    by_chance: float | None


class _Tested(_Part):
    target: float | None
    keep: float | None


class _Chosen(_Part):
    weight: float
    run: str


class _Test(_Part):
    chosen: _Values
    colour_blind: _Tested


class _Search(_Part):
    """``search.json``, as it is checked when it is read."""

    identity: dict[str, str]
    checksum: str
    method: str
    goal: Goal
    parameter: str
    data: str
    seed: int
    part: str
    protocol: str
    accuracy: str
    colour_blind: _Blind
    tries: list[_Try]
    ended: End
    reached: bool
    chosen: _Chosen
    test: _Test


def reach(
    config: Config,
    goal: Goal,
    out: Path,
    *,
    resume: bool = False,
    warmups: Path | None = None,
    progress: Progress = lambda words: nullcontext(lambda trainer, record: None),
    notice: Callable[[str], None] = lambda sentence: None,
) -> dict[str, Any]:
    """Choose the weight of a run by its goal; return what ``search.json`` holds.

    Args:
        config: The run, as `load_asked` gives it.
        goal: What is to be reached.
        out: A new folder, or with `resume` that of a search that was stopped.
        resume: Go on where it stopped; one that is over is returned as it is.
        warmups: Folder where warm-ups are kept to be shared between runs.
        progress: Shows the training of a run, given what it is in a few words.
        notice: Is told in a sentence of each stage of training that is reused.
    """
    _check_folder(config, goal, out, resume=resume)
    lists = build_any_lists(config.data, seed=config.seed)
    folder = Folder(out, config, goal, lists, warmups, progress, notice)
    if (kept := _kept(folder)) is not None:
        return kept
    if not len(lists.validation.user):
        raise InputError("a goal is looked for on validation lists, and this data has none")
    with alone_in(out):
        remove_halves(out)
        write_text(out / GOAL, dump_asked(config, goal))
        return _search(folder)


def _search(folder: Folder) -> dict[str, Any]:
    config, goal, out = folder.asked, folder.goal, folder.out
    blind = _colour_blind(folder)
    tries: list[dict[str, Any]] = []

    def tried(weight: float) -> Tried:
        try:
            found, failure = _values(measured(folder, weight), goal, weight), {}
        except TrainingError as error:  # of a weight that is too large for it
            found, failure = Tried(weight, math.nan, math.nan), {"failure": str(error)}
        tries.append(_record(folder, found, blind) | failure)
        return _relative(found, blind)

    found = search(tried, scale_of(config.method.name), goal.bounds, runs=goal.runs)
    told = _told(folder, blind, tries, found)
    told["test"] = _test(settle(folder, told["chosen"]["weight"]), goal)
    told = sealed(told)
    write_text(out / SEARCH, json.dumps(told, indent=2) + "\n")
    return told


def _check_folder(config: Config, goal: Goal, out: Path, *, resume: bool) -> None:
    """Refuse a folder that holds something else, or a search that was begun before."""
    if not is_begun(out):
        return
    if not resume:
        raise InputError(
            f"{out} exists and is not empty; go on with --resume, or choose another"
        )
    if not (out / GOAL).exists():
        raise InputError(f"{out} holds something else than a search; choose another folder")
    if load_asked(out / GOAL) != (config, goal):
        raise InputError(f"{out} was started with another config or goal; see its {GOAL}")


def _kept(folder: Folder) -> dict[str, Any] | None:
    """Return what a search that is over has left; None if it is not over.

    One that was edited, is of another search or does not follow from its tries is made again
    from the tries themselves.
    """
    config, out = folder.asked, folder.out
    if not ((out / METRICS).exists() and (out / SEARCH).exists()):
        return None
    text = read_text(out / SEARCH)
    try:
        chosen = _Search.model_validate_json(text).chosen.weight
        found: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not (is_sealed(found) and _follows(found, folder)):
        return None
    of_chosen = with_weight(config, chosen)
    read_result(out / METRICS, Owner(of_chosen, identity_of(of_chosen, folder.lists)))
    return found


def _follows(told: dict[str, Any], folder: Folder) -> bool:
    """Return whether ``search.json`` is of this search, and its end follows from its tries."""
    config, goal = folder.asked, folder.goal
    blind = Tried(0.0, told["colour_blind"]["target"], told["colour_blind"]["keep"])
    records = {one["weight"]: one for one in told["tries"]}

    def tried(weight: float) -> Tried:
        one = records[weight]
        values = (math.nan if one[key] is None else one[key] for key in ("target", "keep"))
        return Tried(weight, *values)

    try:
        found = search(
            lambda weight: _relative(tried(weight), blind),
            scale_of(config.method.name),
            goal.bounds,
            runs=goal.runs,
        )
    except KeyError:  # another weight would have been tried
        return False
    weight = found.chosen.weight if found.chosen is not None else 0.0
    wanted = _asked(folder, weight) | {
        "ended": found.end,
        "reached": found.reached,
        "chosen": _chosen(config, weight),
    }
    tries = [_record(folder, tried(one.weight), blind) for one in found.tries]
    bare = [
        {name: value for name, value in one.items() if name != "failure"}
        for one in told["tries"]
    ]
    return bare == tries and all(told[name] == value for name, value in wanted.items())


def _colour_blind(folder: Folder) -> Tried:
    """Return what a weight of 0 gives, to which all else is relative."""
    goal = folder.goal
    blind = _values(measured(folder, 0.0), goal, 0.0)
    if not (blind.gap > 0 and blind.accuracy > 0):
        raise InputError(
            f"{goal.target.metric} or {goal.accuracy} of the colour-blind model is 0 or "
            f"undefined on validation lists, and nothing can be relative to it"
        )
    return blind


def _told(
    folder: Folder, blind: Tried, tries: list[dict[str, Any]], found: Found
) -> dict[str, Any]:
    """Return what ``search.json`` says, but of the test."""
    config, goal = folder.asked, folder.goal
    chance = measured(folder, 0.0)["metrics"].get(goal.target.metric.replace("@", "_floor@"))
    weight = found.chosen.weight if found.chosen is not None else 0.0
    return {
        **_asked(folder, weight),
        "colour_blind": {
            "run": f"{TRIES}/{BLIND}",
            "target": blind.gap,
            "by_chance": chance["mean"] if chance else None,
            "keep": blind.accuracy,
        },
        "tries": tries,
        "ended": found.end,
        "reached": found.reached,
        "chosen": _chosen(config, weight),
    }


def _asked(folder: Folder, weight: float) -> dict[str, Any]:
    """Return what ``search.json`` says of what was asked for, and of which run was chosen."""
    config, goal = folder.asked, folder.goal
    return {
        IDENTITY: identity_of(with_weight(config, weight), folder.lists)._asdict(),
        "method": config.method.name,
        "goal": goal.model_dump(mode="json"),
        "parameter": weight_key(config.method.name),
        "data": folder.lists.data.name,
        "seed": config.seed,
        "part": PART,
        "protocol": config.evaluation.protocol,
        "accuracy": goal.accuracy,
    }


def _chosen(config: Config, weight: float) -> dict[str, Any]:
    return {"weight": weight, "run": f"{TRIES}/{name_of(config, weight)}"}


def _test(tested: Tested, goal: Goal) -> dict[str, Any]:
    """Return what ``search.json`` says of the test."""
    chosen, blind = (_values(one, goal) for one in tested)
    figures = _figures(blind, blind)
    colour_blind = {name: figures[name] for name in ("target", "keep")}
    return {"chosen": _figures(chosen, blind), "colour_blind": colour_blind}


def _record(folder: Folder, found: Tried, blind: Tried) -> dict[str, Any]:
    """Return what ``search.json`` says of a try."""
    bounds, relative = folder.goal.bounds, _relative(found, blind)
    return {
        "run": f"{TRIES}/{name_of(folder.asked, found.weight)}",
        "weight": found.weight,
        **_figures(found, blind),
        "fair": relative.is_fair(bounds),
        "accurate": relative.is_accurate(bounds),
    }


def _figures(found: Tried, blind: Tried) -> dict[str, float | None]:
    relative = _relative(found, blind)
    figures = {
        "target": found.gap,
        "target_relative": relative.gap,
        "keep": found.accuracy,
        "keep_relative": relative.accuracy,
    }
    return {name: None if math.isnan(one) else one for name, one in figures.items()}


def _values(result: dict[str, Any], goal: Goal, weight: float = math.nan) -> Tried:
    """Return what a metrics file says of the goal, as it is."""
    names, cells = (goal.target.metric, goal.accuracy), result["metrics"]
    if absent := [name for name in names if name not in cells]:
        raise InputError(f"the goal is about {absent[0]}, which was not measured")
    means = (cells[name]["mean"] for name in names)
    gap, accuracy = (math.nan if mean is None else float(mean) for mean in means)
    return Tried(weight, gap, accuracy)


def _relative(found: Tried, blind: Tried) -> Tried:
    gap, accuracy = _ratio(found.gap, blind.gap), _ratio(found.accuracy, blind.accuracy)
    return Tried(found.weight, gap, accuracy)


def _ratio(value: float, base: float) -> float:
    """Return what part a value is of another; NaN where that is 0 or undefined."""
    return value / base if base > 0 else math.nan
