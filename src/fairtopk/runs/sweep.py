"""One cell of a sweep: trained, measured, tidied up.

Many runs: cells of a grid in parallel processes, each in a folder of its own.

What is done is not done again, so a sweep that was killed goes on where it was. Of cells that
share a warm-up one goes first. A cell that fails is told of and does not stop the others.

How much room on disk the runs of a sweep take, told before it begins.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from pydantic import TypeAdapter

from fairtopk.checkpoints import BEFORE, MODEL, STATE
from fairtopk.errors import InputError
from fairtopk.lists.users import Lists
from fairtopk.reranking.request import RerankRequest
from fairtopk.runs.build import AnyLists, build_any_lists, build_model, shares_stages
from fairtopk.runs.config import Config
from fairtopk.runs.config_file import check_config, dump_config, load_config, what_differs
from fairtopk.runs.grid import Cell
from fairtopk.runs.measure import has_other, measure
from fairtopk.runs.open import load_model, loader
from fairtopk.runs.rerank import OpenRun, rerank_run, result_name
from fairtopk.runs.result import (
    CONFIG,
    METRICS,
    Measures,
    Owner,
    identity_of,
    metrics_name,
    per_query,
    read_result,
    summary,
    write_result,
)
from fairtopk.runs.run import shares_teacher, teacher_settings, train_run, warmup_settings
from fairtopk.runs.workers import Workers
from fairtopk.storage import ORPHANS, alone_in, read_text, remove_halves, replacing, write_text

WARMUPS = "warmups"
AFTERWARDS = "afterwards.json"  # what was done with a run once it was trained

DONE = TypeAdapter(dict[Literal["protocols", "rerank"], list[Any]])

_load = loader()  # one for each process


def is_done(cell: Cell, out: Path) -> bool:
    """Return whether nothing is left to do for a cell."""
    folder = out / cell.name
    try:
        read_result(folder / METRICS, Owner(cell.config))
    except (OSError, InputError):  # a damaged one is told of when its turn comes
        return False
    return nothing_left(cell, _done(folder))


def nothing_left(cell: Cell, done: dict[str, list[Any]]) -> bool:
    """Return whether all that is asked of a trained cell is among what was done with it."""
    return all(one in done[what] for what, asked in _asked(cell).items() for one in asked)


def run_cell(cell: Cell, out: Path) -> dict[str, Any]:
    """Train and measure a cell as far as that is still to be done; return its metrics file."""
    folder = out / cell.name
    with alone_in(folder, patience=ORPHANS):
        return _run_cell(cell, folder, out)


def _run_cell(cell: Cell, folder: Path, out: Path) -> dict[str, Any]:
    lists = _load(cell.config.data, cell.config.seed)
    train_run(cell.config, folder, resume=True, warmups=out / WARMUPS, lists=lists)
    owner = Owner(cell.config, identity_of(cell.config, lists))
    for protocol in cell.protocols:
        if not has_other(folder, owner, protocol):
            _measure_by(protocol, cell, folder, lists)
    done = _done(folder)
    if left := [asked for asked in cell.reranked if _plain(asked) not in done["rerank"]]:
        _rerank(left, cell, folder, lists)
    for what, asked in _asked(cell).items():
        done[what] += [one for one in asked if one not in done[what]]
    write_text(folder / AFTERWARDS, json.dumps(done, indent=2) + "\n")
    tidy_up(cell, out)
    return read_result(folder / METRICS, owner)


def tidy_up(cell: Cell, out: Path) -> None:
    """Remove what a finished cell has no use for: state to go on from, older checkpoints."""
    folder = out / cell.name
    names = [f"{prefix}{name}" for prefix in (BEFORE, "new-") for name in (MODEL, STATE)]
    for name in [*names, STATE, *([] if cell.keep_model else [MODEL])]:
        (folder / name).unlink(missing_ok=True)
    remove_halves(folder)


def _measure_by(protocol: str, cell: Cell, folder: Path, lists: AnyLists) -> None:
    values = cell.config.model_dump()
    values["evaluation"]["protocol"] = protocol
    config = check_config(values, cell.name)
    found = measure(_model(folder, lists, config), lists, config)
    result = {**summary(config, lists, found, part="test"), "finished": True}
    queries = per_query(config, lists, found, part="test")
    identity = identity_of(cell.config, lists)
    write_result(folder / metrics_name(result), result, queries, identity)


def _rerank(left: list[RerankRequest], cell: Cell, folder: Path, lists: AnyLists) -> None:
    assert isinstance(lists, Lists)  # `cells_of` refuses others
    model = _model(folder, lists, cell.config)
    run = OpenRun(folder, cell.config, lists, model, "test", Measures({}, None))
    for asked in left:
        result, queries, identity = rerank_run(run, asked).measured
        write_result(folder / result_name(result), result, queries, identity)


def _model(folder: Path, lists: AnyLists, config: Config) -> torch.nn.Module:
    if not (folder / MODEL).exists():
        raise InputError(
            f"{folder} has not kept its model, and cannot be measured in new ways; remove it, "
            f"and it is trained again"
        )
    return load_model(folder, lists, config)


def _asked(cell: Cell) -> dict[str, list[Any]]:
    """Return what is to be done with a cell once it is trained."""
    return {"protocols": [*cell.protocols], "rerank": [_plain(one) for one in cell.reranked]}


def _done(folder: Path) -> dict[str, list[Any]]:
    """Return what was done of it, now or for an earlier sweep."""
    try:
        found = DONE.validate_json(read_text(folder / AFTERWARDS))
    except ValueError:
        found = {}
    return {what: found.get(what, []) for what in ("protocols", "rerank")}


def _plain(asked: RerankRequest) -> dict[str, Any]:
    """Return a request as JSON would give it back."""
    found: dict[str, Any] = json.loads(json.dumps(asked._asdict()))
    return found


RESULTS, FAILURES = "results.json", "failures.json"


class Event(NamedTuple):
    """What happened to a cell.

    Attributes:
        cell: Which.
        what: What it is now.
        result: Its metrics file, once it is done.
        failure: Why it failed, if it did.
    """

    cell: Cell
    what: Literal["running", "done", "failed"]
    result: dict[str, Any] | None = None
    failure: str | None = None


class Outcome(NamedTuple):
    """How a sweep ended.

    Attributes:
        done: How many cells are done, now or before.
        failures: Name of a cell to why it failed.
    """

    done: int
    failures: dict[str, str]


def run_sweep(
    cells: Sequence[Cell],
    out: Path,
    *,
    processes: int | None = None,
    watch: Callable[[Event], None] = lambda event: None,
) -> Outcome:
    """Train and measure every cell that is not done yet, and write ``results.json``.

    Args:
        cells: What to do.
        out: A folder for all of them; what it holds of them already is gone on with.
        processes: How many cells at a time; None: one for each core. Threads are divided
            among them.
        watch: Is told of each cell when it begins, and when it is done, perhaps long since, or
            has failed.
    """
    with alone_in(out):
        return _run(cells, out, processes or cores(), watch)


def _run(
    cells: Sequence[Cell], out: Path, at_once: int, watch: Callable[[Event], None]
) -> Outcome:
    _refuse_others(cells, out)
    waiting = [cell for cell in cells if not is_done(cell, out)]
    done = [cell for cell in cells if cell not in waiting]
    remove_halves(out / WARMUPS)
    for cell in done:
        tidy_up(cell, out)  # perhaps it was killed before it could
        watch(Event(cell, "done"))
    warm = {None, *(_warmup(cell) for cell in done)}
    running: dict[str, Cell] = {}
    failures: dict[str, str] = {}
    # However few are left: the last digits of a mean depend on the number of threads.
    with Workers(at_once, threads=max(1, cores() // at_once)) as workers:
        while waiting or running:
            while workers.is_free() and (chosen := _next(waiting, running.values(), warm)):
                waiting.remove(chosen)
                running[chosen.name] = chosen
                watch(Event(chosen, "running"))
                workers.begin(chosen.name, run_cell, chosen, out)
            for piece in workers.finished():
                cell = running.pop(piece.name)
                if piece.failure is None:
                    warm.add(_warmup(cell))
                    watch(Event(cell, "done", piece.value))
                else:
                    failures[cell.name] = piece.failure
                    watch(Event(cell, "failed", failure=piece.failure))
    _write_failures(failures, out)
    _write_results(cells, out)
    return Outcome(len(cells) - len(failures), failures)


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _next(waiting: list[Cell], running: Iterable[Cell], warm: set[str | None]) -> Cell | None:
    """Return the first cell whose warm-up no other is training at the moment."""
    busy = {_warmup(cell) for cell in running} - warm
    return next((cell for cell in waiting if _warmup(cell) not in busy), None)


def _warmup(cell: Cell) -> str | None:
    """Return what is alike for cells that share a warm-up; None for one that has none."""
    config = cell.config
    if config.training.warmup_epochs == 0 or not shares_stages(config):
        return None
    data = config.data.model_dump(mode="json")
    if not config.data.of_documents:  # whose groups may be features too
        del data["groups"]
    return json.dumps({"data": data, **warmup_settings(config)})


def _refuse_others(cells: Iterable[Cell], out: Path) -> None:
    """Refuse a folder in which a cell was begun with another config."""
    for cell in cells:
        path = out / cell.name / CONFIG
        if not path.exists():
            continue
        kept = load_config(path)
        if dump_config(kept) != dump_config(cell.config):
            raise InputError(
                f"{path} is not what the sweep now asks of that run: "
                f"{what_differs(kept, cell.config)}; choose another --out, or remove the run"
            )


def _write_failures(failures: dict[str, str], out: Path) -> None:
    if failures:
        write_text(out / FAILURES, json.dumps(failures, indent=2) + "\n")
    else:
        (out / FAILURES).unlink(missing_ok=True)


def _result(cell: Cell, out: Path) -> dict[str, Any]:
    """Return what the metrics file of a cell says."""
    return read_result(out / cell.name / METRICS, Owner(cell.config))


def _write_results(cells: Iterable[Cell], out: Path) -> None:
    """Write the metrics of all cells that are done as a list, one at a time."""
    with replacing(out / RESULTS) as temporary, temporary.open("w", encoding="utf-8") as file:
        separator = "["
        for cell in cells:
            if is_done(cell, out):
                result = {"run": cell.name} | _result(cell, out)
                file.write(f"{separator}\n{json.dumps(result)}")
                separator = ","
        file.write("\n]\n" if separator == "," else "[]\n")


BYTES = 4  # of a number
PER_K = 40  # metrics of a query at one K, at most; see `metrics.summary`
SMALL_FILES = 200_000  # config, metrics and provenance of a run
PER_EPOCH = 4_000  # of its log
COPIES = 3  # of a checkpoint: the last two, and the one that is being written
MODELS_IN_STATE = (
    5  # a checkpoint in models: the kept one, the last, two of an optimizer, a teacher
)


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
        at_work = max(at_work, COPIES * (MODELS_IN_STATE * model + (pairs + heads) * BYTES))
        for stage in _shared(config):  # which has tables of its phase too
            stages[stage] = MODELS_IN_STATE * model + pairs * BYTES
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
