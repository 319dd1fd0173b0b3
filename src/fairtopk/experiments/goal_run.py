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
from typing import Any

from pydantic import BaseModel

from fairtopk.data.files import read_text, remove_halves, write_text
from fairtopk.errors import InputError, TrainingError
from fairtopk.experiments.build import AnyLists, build_any_lists
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
from fairtopk.experiments.identity import identity_of
from fairtopk.experiments.locks import alone_in
from fairtopk.experiments.result import METRICS, read_result
from fairtopk.experiments.run import is_begun

GOAL, SEARCH = "goal.toml", "search.json"


class _Values(BaseModel, strict=True):
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


class _Blind(BaseModel, strict=True):
    target: float
    keep: float
    by_chance: float | None = None


class _Chosen(BaseModel, strict=True):
    weight: float
    run: str


class _Test(BaseModel, strict=True):
    chosen: _Values
    colour_blind: _Blind


class _Search(BaseModel, strict=True):
    """``search.json``, as it is checked when it is read."""

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
    if (kept := _kept(config, out, lists)) is not None:
        return kept
    if not len(lists.validation.user):
        raise InputError("a goal is looked for on validation lists, and this data has none")
    folder = Folder(out, config, goal, lists, warmups, progress, notice)
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
            found, failure = _values(measured(folder, weight), goal), {}
        except TrainingError as error:  # of a weight that is too large for it
            found, failure = Tried(weight, math.nan, math.nan), {"failure": str(error)}
        tries.append(_record(folder, found, blind) | failure)
        return _relative(found, blind)

    found = search(tried, scale_of(config.method.name), goal.bounds, runs=goal.runs)
    told = _told(folder, blind, tries, found)
    told["test"] = _test(settle(folder, told["chosen"]["weight"]), goal)
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


def _kept(config: Config, out: Path, lists: AnyLists) -> dict[str, Any] | None:
    """Return what a search that is over has left; None if it is not over."""
    if not ((out / METRICS).exists() and (out / SEARCH).exists()):
        return None
    text = read_text(out / SEARCH)
    try:
        chosen = _Search.model_validate_json(text).chosen.weight
        found: dict[str, Any] = json.loads(text)
    except ValueError:  # it is made again from the tries
        return None
    identity = identity_of(with_weight(config, chosen), lists)
    identity.refuse_other(read_result(out / METRICS), out / METRICS)
    return found


def _colour_blind(folder: Folder) -> Tried:
    """Return what a weight of 0 gives, to which all else is relative."""
    goal = folder.goal
    blind = _values(measured(folder, 0.0), goal)
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
        "method": config.method.name,
        "goal": goal.model_dump(mode="json"),
        "parameter": weight_key(config.method.name),
        "data": folder.lists.data.name,
        "seed": config.seed,
        "part": PART,
        "protocol": config.evaluation.protocol,
        "accuracy": goal.accuracy,
        "colour_blind": {
            "run": f"{TRIES}/{BLIND}",
            "target": blind.gap,
            "by_chance": chance["mean"] if chance else None,
            "keep": blind.accuracy,
        },
        "tries": tries,
        "ended": found.end,
        "reached": found.reached,
        "chosen": {"weight": weight, "run": f"{TRIES}/{name_of(config, weight)}"},
    }


def _test(tested: Tested, goal: Goal) -> dict[str, Any]:
    """Return what ``search.json`` says of the test."""
    chosen, blind = (_values(one, goal) for one in tested)
    colour_blind = {"target": blind.gap, "keep": blind.accuracy}
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


def _values(result: dict[str, Any], goal: Goal) -> Tried:
    """Return what a metrics file says of the goal, as it is."""
    means = (result["metrics"][name]["mean"] for name in (goal.target.metric, goal.accuracy))
    gap, accuracy = (math.nan if mean is None else float(mean) for mean in means)
    weight = result["c"] if result["c"] is not None else result["c_relative"]
    return Tried(weight, gap, accuracy)


def _relative(found: Tried, blind: Tried) -> Tried:
    return Tried(found.weight, found.gap / blind.gap, found.accuracy / blind.accuracy)
