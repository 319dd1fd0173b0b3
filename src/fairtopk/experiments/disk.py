"""How much room on disk the runs of a sweep take, told before it begins."""

import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from fairtopk.errors import InputError
from fairtopk.experiments.build import AnyLists, build_any_lists, build_model
from fairtopk.experiments.config import Config
from fairtopk.experiments.grid import Cell
from fairtopk.experiments.keys import teacher_settings, warmup_settings
from fairtopk.experiments.stages import shares_teacher
from fairtopk.lists import Lists

BYTES = 4  # of a number
PER_K = 40  # metrics of a query at one K, at most; see `metrics.summary`
SMALL_FILES = 200_000  # config, metrics and provenance of a run
PER_EPOCH = 4_000  # of its log
COPIES = 3  # of a checkpoint: the last two, and the one that is being written
STATE = 5  # a checkpoint in models: the kept one, the last, two of an optimizer, a teacher


class Room(NamedTuple):
    """Bytes on disk.

    Attributes:
        kept: By what is left when all runs are done.
        at_work: By the largest run while it trains, beside that.
    """

    kept: int
    at_work: int


def room_of(cells: Iterable[Cell]) -> Room:
    """Return an upper bound of the room that runs take; data is loaded to tell their size."""
    kept, at_work, stages = 0, 0, {}
    sizes: dict[str, tuple[int, int, int]] = {}
    for cell in cells:
        config = cell.config
        key = config.model_dump_json(include={"data": True, "model": True})
        if key not in sizes:
            lists = build_any_lists(config.data, seed=config.seed)
            weights = build_model(config, lists).state_dict().values()
            model = sum(one.numel() * one.element_size() for one in weights)
            sizes[key] = model, len(lists.test.user), _n_pairs(lists)
        model, users, pairs = sizes[key]
        files = 2 + len(cell.reranked)  # both protocols
        kept += SMALL_FILES + files * users * len(config.evaluation.k) * PER_K * BYTES
        kept += PER_EPOCH * (config.training.warmup_epochs + config.training.epochs)
        kept += model if cell.keep_model else 0
        drawn = config.training.lists
        heads = users * drawn.head if drawn.top else 0
        at_work = max(at_work, COPIES * (STATE * model + (pairs + heads) * BYTES))
        for stage in _shared(config):  # which has tables of its phase too
            stages[stage] = STATE * model + pairs * BYTES
    return Room(kept + sum(stages.values()), at_work)


def _shared(config: Config) -> Iterator[str]:
    """Yield a name for each stage that a run keeps for others."""
    yield json.dumps([config.data.model_dump(mode="json"), warmup_settings(config)])
    if shares_teacher(config):
        yield json.dumps(teacher_settings(config))


def _n_pairs(lists: AnyLists) -> int:
    return lists.data.n_ratings if isinstance(lists, Lists) else lists.data.n_rows


def refuse_too_little(room: Room, out: Path, *, at_once: int) -> None:
    """Refuse a folder on a disk that has not the room."""
    there = next(place for place in (out, *out.resolve().parents) if place.exists())
    free, needed = shutil.disk_usage(there).free, room.kept + at_once * room.at_work
    if needed > free:
        raise InputError(
            f"{out} needs {in_words(needed)} and its disk has {in_words(free)} free; choose "
            f"another --out, or set sweep.keep_models to false"
        )


def in_words(size: int) -> str:
    """Return bytes as a person would say them."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
