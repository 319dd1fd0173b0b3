"""The search for a weight that reaches a goal: its folder and its trial runs.

`goal.toml` (the run and its goal), `tries/` (a run folder for each weight), `search.json` (what
was tried and chosen), and once the search is over the files of an ordinary run, the chosen one.
Trials are measured on validation lists only; test lists are read at the end, for the chosen
model and the colour-blind one. A search that was killed is resumed to the same numbers, because
the next weight follows from the trials before it.
"""

import json
import math
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, Field, model_validator

from fairtopk.errors import InputError, TrainingError
from fairtopk.lists.queries import AnyLists
from fairtopk.runs.build import build_any_lists
from fairtopk.runs.config import Config
from fairtopk.runs.config_file import dump_config
from fairtopk.runs.goal import (
    End,
    Goal,
    Scale,
    SearchResult,
    Trial,
    dump_run_file,
    load_run_file,
    search,
    with_weight,
)
from fairtopk.runs.measure import measure_run
from fairtopk.runs.result import (
    CONFIG,
    GOAL,
    IDENTITY,
    LOG,
    METRICS,
    SEARCH,
    TRIES,
    VALIDATED,
    DamagedError,
    Owner,
    identity_of,
    per_query_path,
    read_result,
)
from fairtopk.runs.result_format import is_sealed, sealed
from fairtopk.runs.run import Report, RunFolder, is_begun, train_run
from fairtopk.runs.stages import AnyTrainer
from fairtopk.storage import (
    BEFORE,
    MODEL,
    STATE,
    alone_in,
    load_pair,
    read_text,
    remove_halves,
    save_pair,
    write_text,
)

BLIND, PART = "colour-blind", "validation"

Progress = Callable[[str], AbstractContextManager[Report]]


class Folder(NamedTuple):
    """The folder of a search, and what all of its runs share.

    Attributes:
        out: The folder.
        asked: The run, with any weight.
        goal: The goal.
        lists: The data.
        warmups: Folder where warm-ups are kept to be shared.
        progress: Shows the training of a run, given its description.
        notice: Called with a sentence for each stage of training that is reused.
    """

    out: Path
    asked: Config
    goal: Goal
    lists: AnyLists
    warmups: Path | None
    progress: Progress
    notice: Callable[[str], None]


def search_weight(
    config: Config,
    goal: Goal,
    out: Path,
    *,
    resume: bool = False,
    warmups: Path | None = None,
    progress: Progress = lambda words: nullcontext(lambda trainer, record: None),
    notice: Callable[[str], None] = lambda sentence: None,
) -> dict[str, Any]:
    """Choose the weight of a run by its goal; return the content of ``search.json``.

    Args:
        config: The run, as `load_run_file` gives it.
        goal: The goal.
        out: A new folder, or with `resume` that of a search that was stopped.
        resume: Go on where it stopped; the result of a finished search is returned.
        warmups: Folder where warm-ups are kept to be shared between runs.
        progress: Shows the training of a run, given its description.
        notice: Called with a sentence for each stage of training that is reused.
    """
    _check_folder(config, goal, out, resume=resume)
    lists = build_any_lists(config.data, seed=config.seed)
    folder = Folder(out, config, goal, lists, warmups, progress, notice)
    if (kept := _kept(folder)) is not None:
        return kept
    if not len(lists.validation.user):
        raise InputError("a goal is searched on validation lists, and this data has none")
    with alone_in(out):
        remove_halves(out)
        write_text(out / GOAL, dump_run_file(config, goal))
        return _search(folder)


class Tested(NamedTuple):
    """The metrics files of both models on test lists."""

    chosen: dict[str, Any]
    blind: dict[str, Any]


def measured(folder: Folder, weight: float) -> dict[str, Any]:
    """Return the validation metrics of a weight, trained or resumed if need be."""
    place = folder.out / TRIES / name_of(folder.asked, weight)
    config = with_weight(folder.asked, weight)
    if (place / VALIDATED).exists():
        return _kept_result(
            place / VALIDATED, Owner(config, identity_of(config, folder.lists), PART)
        )
    with folder.progress(_words(config, weight)) as report:
        return train_run(
            config,
            place,
            resume=True,
            report=report,
            notice=folder.notice,
            warmups=folder.warmups,
            lists=folder.lists,
            finish=_validate,
        )


def _kept_result(path: Path, owner: Owner) -> dict[str, Any]:
    """Return the validation metrics that a trial has left, refusing those of another run."""
    try:
        return read_result(path, owner)
    except DamagedError as error:
        raise InputError(
            f"{path} is damaged; remove it, and --resume measures again"
        ) from error


def settle(folder: Folder, weight: float) -> Tested:
    """Make the trial of a weight the run of the folder; test it and the colour-blind one."""
    config = with_weight(folder.asked, weight)
    place = folder.out / TRIES / name_of(folder.asked, weight)
    saved = load_pair(place)
    if saved is None:
        raise InputError(f"{place} has no checkpoint; remove it, and --resume trains again")
    save_pair(folder.out, *saved)
    for name in (LOG, VALIDATED, per_query_path(Path(VALIDATED))):
        shutil.copyfile(place / name, folder.out / name)
    write_text(folder.out / CONFIG, dump_config(config))
    chosen = train_run(config, folder.out, resume=True, lists=folder.lists)
    blind = folder.out / TRIES / BLIND
    plain = with_weight(folder.asked, 0.0)
    return Tested(chosen, train_run(plain, blind, resume=True, lists=folder.lists))


def name_of(config: Config, weight: float) -> str:
    """Return the folder of a trial, relative to that of all trials."""
    return f"{config.method.row.weight_key}-{weight:g}" if weight else BLIND


def _validate(run: RunFolder, trainer: AnyTrainer, seconds: float) -> dict[str, Any]:
    """Measure a trained model on validation lists; test lists are left alone."""
    found = measure_run(run.trained(trainer), PART)
    found.result["seconds"] = {"training": seconds}
    result = found.save(run.out / VALIDATED)
    for name in (MODEL, STATE):  # one checkpoint of each trial is enough
        (run.out / f"{BEFORE}{name}").unlink(missing_ok=True)
    return result


def _words(config: Config, weight: float) -> str:
    with_what = f"{config.method.row.weight_key} = {weight:g}" if weight else "colour-blind"
    return f"{config.method.name} on {config.data.source}, {with_what}"


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
            raise ValueError("a value without its share of the colour-blind model's")
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
    """The layout of ``search.json``, checked when it is read."""

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


def _search(folder: Folder) -> dict[str, Any]:
    config, goal, out = folder.asked, folder.goal, folder.out
    blind = _colour_blind(folder)
    tries: list[dict[str, Any]] = []

    def tried(weight: float) -> Trial:
        try:
            found, failure = _values(measured(folder, weight), goal, weight), {}
        except TrainingError as error:  # the weight is too large
            found, failure = Trial(weight, math.nan, math.nan), {"failure": str(error)}
        tries.append(_record(folder, found, blind) | failure)
        return _relative(found, blind)

    found = search(tried, Scale(*config.method.row.search_scale), goal.bounds, runs=goal.runs)
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
    if load_run_file(out / GOAL) != (config, goal):
        raise InputError(f"{out} was started with another config or goal; see its {GOAL}")


def _kept(folder: Folder) -> dict[str, Any] | None:
    """Return the content of ``search.json`` of a finished search; None if it is not finished.

    A file that was edited, belongs to another search or does not follow from its trials is
    written anew from the trials themselves.
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
    """Return whether ``search.json`` is of this search and follows from its trials."""
    config, goal = folder.asked, folder.goal
    blind = Trial(0.0, told["colour_blind"]["target"], told["colour_blind"]["keep"])
    records = {one["weight"]: one for one in told["tries"]}

    def tried(weight: float) -> Trial:
        one = records[weight]
        values = (math.nan if one[key] is None else one[key] for key in ("target", "keep"))
        return Trial(weight, *values)

    try:
        found = search(
            lambda weight: _relative(tried(weight), blind),
            Scale(*config.method.row.search_scale),
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


def _colour_blind(folder: Folder) -> Trial:
    """Return the trial with a weight of 0, to which all others are relative."""
    goal = folder.goal
    blind = _values(measured(folder, 0.0), goal, 0.0)
    if not (blind.gap > 0 and blind.accuracy > 0):
        raise InputError(
            f"{goal.target.metric} or {goal.accuracy} of the colour-blind model is 0 or "
            f"undefined on validation lists, and nothing can be relative to it"
        )
    return blind


def _told(
    folder: Folder, blind: Trial, tries: list[dict[str, Any]], found: SearchResult
) -> dict[str, Any]:
    """Return the content of ``search.json``, without the test."""
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
    """Return the part of ``search.json`` about the goal and the identity of the chosen run."""
    config, goal = folder.asked, folder.goal
    return {
        IDENTITY: identity_of(with_weight(config, weight), folder.lists)._asdict(),
        "method": config.method.name,
        "goal": goal.model_dump(mode="json"),
        "parameter": config.method.row.weight_key,
        "data": folder.lists.data.name,
        "seed": config.seed,
        "part": PART,
        "protocol": config.evaluation.protocol,
        "accuracy": goal.accuracy,
    }


def _chosen(config: Config, weight: float) -> dict[str, Any]:
    return {"weight": weight, "run": f"{TRIES}/{name_of(config, weight)}"}


def _test(tested: Tested, goal: Goal) -> dict[str, Any]:
    """Return the part of ``search.json`` about the test."""
    chosen, blind = (_values(one, goal) for one in tested)
    figures = _figures(blind, blind)
    colour_blind = {name: figures[name] for name in ("target", "keep")}
    return {"chosen": _figures(chosen, blind), "colour_blind": colour_blind}


def _record(folder: Folder, found: Trial, blind: Trial) -> dict[str, Any]:
    """Return the part of ``search.json`` about a trial."""
    bounds, relative = folder.goal.bounds, _relative(found, blind)
    return {
        "run": f"{TRIES}/{name_of(folder.asked, found.weight)}",
        "weight": found.weight,
        **_figures(found, blind),
        "fair": relative.is_fair(bounds),
        "accurate": relative.is_accurate(bounds),
    }


def _figures(found: Trial, blind: Trial) -> dict[str, float | None]:
    relative = _relative(found, blind)
    figures = {
        "target": found.gap,
        "target_relative": relative.gap,
        "keep": found.accuracy,
        "keep_relative": relative.accuracy,
    }
    return {name: None if math.isnan(one) else one for name, one in figures.items()}


def _values(result: dict[str, Any], goal: Goal, weight: float = math.nan) -> Trial:
    """Return gap and accuracy in a metrics file, not relative."""
    names, cells = (goal.target.metric, goal.accuracy), result["metrics"]
    if absent := [name for name in names if name not in cells]:
        raise InputError(f"the goal is about {absent[0]}, which was not measured")
    means = (cells[name]["mean"] for name in names)
    gap, accuracy = (math.nan if mean is None else float(mean) for mean in means)
    return Trial(weight, gap, accuracy)


def _relative(found: Trial, blind: Trial) -> Trial:
    gap, accuracy = _ratio(found.gap, blind.gap), _ratio(found.accuracy, blind.accuracy)
    return Trial(found.weight, gap, accuracy)


def _ratio(value: float, base: float) -> float:
    """Return a value over another; NaN if that is 0 or undefined."""
    return value / base if base > 0 else math.nan
