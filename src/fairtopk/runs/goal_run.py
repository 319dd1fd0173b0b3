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

from pydantic import Field

from fairtopk import storage
from fairtopk.errors import InputError, TrainingError
from fairtopk.lists.queries import AnyLists
from fairtopk.runs import goal as goals
from fairtopk.runs import result as files
from fairtopk.runs.build import build_any_lists
from fairtopk.runs.config import Config
from fairtopk.runs.config_file import dump_config, read_config
from fairtopk.runs.goal import Goal, Trial, with_weight
from fairtopk.runs.measure import measure_run
from fairtopk.runs.open import OpenRun
from fairtopk.runs.run import NO_HOOKS, Hooks, is_begun, train_run

BLIND, PART = "colour-blind", "validation"

Progress = Callable[[str], AbstractContextManager[Hooks]]


class Folder(NamedTuple):
    """The folder of a search, and what all of its runs share."""

    out: Path
    config: Config  # the run, with any weight
    goal: Goal
    lists: AnyLists  # the data
    warmups: Path | None  # folder where warm-ups are kept to be shared
    progress: Progress  # shows the training of a run, given its description


def search_weight(
    config: Config,
    goal: Goal,
    out: Path,
    *,
    resume: bool = False,
    warmups: Path | None = None,
    progress: Progress = lambda description: nullcontext(NO_HOOKS),
) -> dict[str, Any]:
    """Choose the weight of a run by its goal; return the content of ``search.json``.

    Args:
        config: The run, as `check_goal` gives it.
        goal: The goal.
        out: A new folder, or with `resume` that of a search that was stopped.
        resume: Go on where it stopped; the result of a finished search is returned.
        warmups: Folder where warm-ups are kept to be shared between runs.
        progress: Shows the training of a run, given its description.
    """
    if is_begun(out):
        if not resume:
            raise InputError(
                f"{out} exists and is not empty; go on with --resume, or choose another"
            )
        if not (out / files.GOAL).exists():
            raise InputError(f"{out} holds something else than a search; choose another folder")
        path = out / files.GOAL
        if goals.check_goal(read_config(path), str(path)) != (config, goal):
            raise InputError(
                f"{out} was started with another config or goal; see its {files.GOAL}"
            )
    lists = build_any_lists(config.data, config.seed)
    folder = Folder(out, config, goal, lists, warmups, progress)
    if (kept := _kept(folder)) is not None:
        return kept
    if not len(lists.validation.user):
        raise InputError("a goal is searched on validation lists, and this data has none")
    with storage.alone_in(out):
        storage.remove_halves(out)
        storage.write_text(out / files.GOAL, goals.dump_goal(config, goal))
        return _search(folder)


def measured(folder: Folder, weight: float) -> dict[str, Any]:
    """Return the validation metrics of a weight, trained or resumed if need be."""
    config, row = with_weight(folder.config, weight), folder.config.method.row
    place = folder.out / files.TRIES / name_of(config, weight)
    if (place / files.VALIDATED).exists():
        owner = files.Owner(config, files.identity_of(config, folder.lists), PART)
        try:
            return files.read_result(place / files.VALIDATED, owner)
        except files.DamagedError as error:
            raise InputError(
                f"{place / files.VALIDATED} is damaged; remove it, and --resume measures again"
            ) from error
    with_what = f"{row.weight_key} = {weight:g}" if weight else BLIND
    description = f"{config.method.name} on {config.data.source}, {with_what}"
    with folder.progress(description) as hooks:
        return train_run(
            config,
            place,
            resume=True,
            hooks=hooks._replace(finish=_validate),
            warmups=folder.warmups,
            lists=folder.lists,
        )


def _validate(run: OpenRun, seconds: float) -> dict[str, Any]:
    """Measure a trained model on validation lists; test lists are left alone."""
    found = measure_run(run, PART)
    found.result["seconds"] = {"training": seconds}
    result = found.save(run.out / files.VALIDATED)
    for name in (storage.MODEL, storage.STATE):  # one checkpoint of each trial is enough
        (run.out / f"{storage.BEFORE}{name}").unlink(missing_ok=True)
    return result


def settle(folder: Folder, weight: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """Make the trial of a weight the run of the folder; test it and the colour-blind one.

    Returns the metrics files of both on test lists.
    """
    out, lists, config = folder.out, folder.lists, with_weight(folder.config, weight)
    place = out / files.TRIES / name_of(config, weight)
    saved = storage.load_pair(place)
    if saved is None:
        raise InputError(f"{place} has no checkpoint; remove it, and --resume trains again")
    storage.save_pair(out, *saved)
    for name in (files.LOG, files.VALIDATED, files.per_query_path(Path(files.VALIDATED))):
        shutil.copyfile(place / name, out / name)
    storage.write_text(out / files.CONFIG, dump_config(config))
    chosen = train_run(config, out, resume=True, lists=lists)
    blind = with_weight(folder.config, 0.0)
    place = out / files.TRIES / BLIND
    return chosen, train_run(blind, place, resume=True, lists=lists)


def name_of(config: Config, weight: float) -> str:
    """Return the folder of a trial, relative to that of all trials."""
    return f"{config.method.row.weight_key}-{weight:g}" if weight else BLIND


# What of ``search.json`` cannot be computed from the rest.
class _Values(files.FilePart):
    target: float | None
    keep: float | None


class _Try(_Values):
    weight: float
    failure: str = ""


class _Blind(files.FilePart):
    target: Annotated[float, Field(gt=0)]
    keep: Annotated[float, Field(gt=0)]
    by_chance: float | None


class _Relative(_Values):
    target_relative: float | None
    keep_relative: float | None


class _Test(files.FilePart):
    chosen: _Relative
    colour_blind: _Values


class _Search(files.FilePart):
    colour_blind: _Blind
    tries: list[_Try]
    test: _Test


def _search(folder: Folder) -> dict[str, Any]:
    """Train until the goal is reached or cannot be; write and return ``search.json``."""
    goal, result = folder.goal, measured(folder, 0.0)
    blind = _values(result, goal)
    if not (blind.gap > 0 and blind.accuracy > 0):
        raise InputError(
            f"{goal.target.metric} or {goal.accuracy} of the colour-blind model is 0 or "
            f"undefined on validation lists, and nothing can be relative to it"
        )
    chance = result["metrics"].get(goal.target.metric.replace("@", "_floor@"))
    colour_blind = {
        "run": f"{files.TRIES}/{BLIND}",
        "target": blind.gap,
        "by_chance": chance["mean"] if chance else None,
        "keep": blind.accuracy,
    }

    def trained(weight: float) -> Trial:
        try:
            return _values(measured(folder, weight), goal, weight)
        except TrainingError as error:  # the weight is too large
            return Trial(weight, math.nan, math.nan, str(error))

    content = _content(folder, colour_blind, trained)
    tested = settle(folder, content["chosen"]["weight"])
    chosen, blind = (_values(one, goal) for one in tested)
    figures = _compared(blind, blind)[1]
    content["test"] = {
        "chosen": _compared(chosen, blind)[1],
        "colour_blind": {name: figures[name] for name in ("target", "keep")},
    }
    content = files.sealed(content)
    storage.write_text(folder.out / files.SEARCH, json.dumps(content, indent=2) + "\n")
    return content


def _kept(folder: Folder) -> dict[str, Any] | None:
    """Return the content of ``search.json`` of a finished search; None if it is not finished.

    A file that was edited, belongs to another search or does not follow from its trials is
    written anew from the trials themselves.
    """
    out = folder.out
    if not ((out / files.METRICS).exists() and (out / files.SEARCH).exists()):
        return None
    text = storage.read_text(out / files.SEARCH)
    try:
        recorded = _Search.model_validate_json(text).tries
        found: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError):
        return None
    trials: dict[float, Trial] = {}
    for one in recorded:
        gap, accuracy = (math.nan if it is None else it for it in (one.target, one.keep))
        trials[one.weight] = Trial(one.weight, gap, accuracy, one.failure)
    try:
        wanted = _content(folder, found["colour_blind"], trials.__getitem__)
    except KeyError:  # another weight would have been tried
        return None
    if found != files.sealed(wanted | {"test": found["test"]}):
        return None
    config = with_weight(folder.config, found["chosen"]["weight"])
    owner = files.Owner(config, files.identity_of(config, folder.lists))
    files.read_result(out / files.METRICS, owner)
    return found


def _content(
    folder: Folder, colour_blind: dict[str, Any], values: Callable[[float], Trial]
) -> dict[str, Any]:
    """Search for the weight; return the content of ``search.json``, without the test.

    All is relative to `colour_blind`, the part about that model; `values` returns the gap and
    the accuracy of a weight, not relative.
    """
    config, goal = folder.config, folder.goal
    bounds = goals.Bounds(goal.target.at_most, goal.keep.at_least if goal.keep else 0.0)
    blind = Trial(0.0, colour_blind["target"], colour_blind["keep"])
    tries: list[dict[str, Any]] = []

    def tried(weight: float) -> Trial:
        found = values(weight)
        relative, figures = _compared(found, blind)
        fair, accurate = relative.meets(bounds)
        run = f"{files.TRIES}/{name_of(config, weight)}"
        record = {"run": run, "weight": weight, **figures, "fair": fair, "accurate": accurate}
        tries.append(record | ({"failure": found.failure} if found.failure else {}))
        return relative

    scale = goals.Scale(*config.method.row.search_scale)
    found = goals.search(tried, scale, bounds, runs=goal.runs)
    weight = found.chosen.weight if found.chosen is not None else 0.0
    return {
        files.IDENTITY: files.identity_of(with_weight(config, weight), folder.lists)._asdict(),
        "method": config.method.name,
        "goal": goal.model_dump(mode="json"),
        "parameter": config.method.row.weight_key,
        "data": folder.lists.data.name,
        "seed": config.seed,
        "part": PART,
        "protocol": config.evaluation.protocol,
        "accuracy": goal.accuracy,
        "colour_blind": colour_blind,
        "tries": tries,
        "ended": found.end,
        "reached": found.reached,
        "chosen": {"weight": weight, "run": f"{files.TRIES}/{name_of(config, weight)}"},
    }


def _values(result: dict[str, Any], goal: Goal, weight: float = 0.0) -> Trial:
    """Return gap and accuracy in a metrics file, not relative."""
    names, cells = (goal.target.metric, goal.accuracy), result["metrics"]
    if absent := [name for name in names if name not in cells]:
        raise InputError(f"the goal is about {absent[0]}, which was not measured")
    means = (cells[name]["mean"] for name in names)
    gap, accuracy = (math.nan if mean is None else float(mean) for mean in means)
    return Trial(weight, gap, accuracy)


def _compared(found: Trial, blind: Trial) -> tuple[Trial, dict[str, float | None]]:
    """Return a trial relative to the colour-blind one, and both as ``search.json`` has them.

    What is relative to 0 or to something undefined is NaN, and null in the file.
    """
    gap = found.gap / blind.gap if blind.gap > 0 else math.nan
    accuracy = found.accuracy / blind.accuracy if blind.accuracy > 0 else math.nan
    figures = {
        "target": found.gap,
        "target_relative": gap,
        "keep": found.accuracy,
        "keep_relative": accuracy,
    }
    return (
        Trial(found.weight, gap, accuracy),
        {name: None if math.isnan(one) else one for name, one in figures.items()},
    )
