"""The runs of a search for a weight: trained, measured on validation lists, tested in the end.

Each is a run folder of its own, which `train --resume` would measure on test lists; the search
does that for the colour-blind run alone, and for the chosen one in the folder above.
"""

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from fairtopk.checkpoints import BEFORE, MODEL, STATE, load_pair, save_pair
from fairtopk.data.files import write_text
from fairtopk.errors import InputError
from fairtopk.experiments.build import AnyLists
from fairtopk.experiments.config import Config
from fairtopk.experiments.config_file import dump_config
from fairtopk.experiments.goal import Goal, weight_key, with_weight
from fairtopk.experiments.identity import identity_of
from fairtopk.experiments.measuring import measure
from fairtopk.experiments.result import (
    CONFIG,
    DamagedError,
    Owner,
    per_query,
    per_query_path,
    read_result,
    summary,
    write_result,
)
from fairtopk.experiments.run import LOG, Report, RunFolder, train_run
from fairtopk.experiments.stages import AnyTrainer

TRIES, BLIND = "tries", "colour-blind"
PART, VALIDATED = "validation", Path("validation.json")

Progress = Callable[[str], AbstractContextManager[Report]]


class Folder(NamedTuple):
    """Where a search is kept, and what all of its runs share.

    Attributes:
        out: The folder.
        asked: The run, with any weight.
        goal: What is to be reached.
        lists: The data.
        warmups: Folder where warm-ups are kept to be shared.
        progress: Shows the training of a run, given what it is in a few words.
        notice: Is told of stages of training that are reused.
    """

    out: Path
    asked: Config
    goal: Goal
    lists: AnyLists
    warmups: Path | None
    progress: Progress
    notice: Callable[[str], None]


class Tested(NamedTuple):
    """What metrics files say of test lists."""

    chosen: dict[str, Any]
    blind: dict[str, Any]


def measured(folder: Folder, weight: float) -> dict[str, Any]:
    """Return the validation metrics of a weight, trained as far as that is still to be done."""
    place = folder.out / TRIES / name_of(folder.asked, weight)
    config = with_weight(folder.asked, weight)
    if (place / VALIDATED).exists():
        return _kept(place / VALIDATED, Owner(config, identity_of(config, folder.lists), PART))
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


def _kept(path: Path, owner: Owner) -> dict[str, Any]:
    """Return the validation metrics that a try has left, refusing those of another run."""
    try:
        return read_result(path, owner)
    except DamagedError as error:
        raise InputError(
            f"{path} is damaged; remove it, and --resume measures again"
        ) from error


def settle(folder: Folder, weight: float) -> Tested:
    """Make the try of a weight the run of the folder; test it, and the colour-blind one."""
    config = with_weight(folder.asked, weight)
    place = folder.out / TRIES / name_of(folder.asked, weight)
    saved = load_pair(place)
    if saved is None:
        raise InputError(f"{place} has no checkpoint; remove it, and --resume trains again")
    save_pair(folder.out, *saved)
    for name in (LOG, VALIDATED, per_query_path(VALIDATED)):
        shutil.copyfile(place / name, folder.out / name)
    write_text(folder.out / CONFIG, dump_config(config))
    chosen = train_run(config, folder.out, resume=True, lists=folder.lists)
    blind = folder.out / TRIES / BLIND
    plain = with_weight(folder.asked, 0.0)
    return Tested(chosen, train_run(plain, blind, resume=True, lists=folder.lists))


def name_of(config: Config, weight: float) -> str:
    """Return the folder of a try, as seen from that of all tries."""
    return f"{weight_key(config.method.name)}-{weight:g}" if weight else BLIND


def _validate(run: RunFolder, trainer: AnyTrainer, seconds: float) -> dict[str, Any]:
    """Measure what was trained on validation lists; test lists are left alone."""
    config, out, lists = run.config, run.out, run.lists
    if trainer.chosen:
        trainer.scorer.load_state_dict(trainer.chosen)
    found = measure(trainer.scorer, lists, config, part=PART)
    result = {**summary(config, lists, found, part=PART), "finished": True}
    result["seconds"] = {"training": seconds}
    queries = per_query(config, lists, found, part=PART)
    result = write_result(out / VALIDATED, result, queries, run.identity)
    for name in (MODEL, STATE):  # all tries are kept, but one checkpoint of each is enough
        (out / f"{BEFORE}{name}").unlink(missing_ok=True)
    return result


def _words(config: Config, weight: float) -> str:
    with_what = f"{weight_key(config.method.name)} = {weight:g}" if weight else "colour-blind"
    return f"{config.method.name} on {config.data.source}, {with_what}"
