"""Many runs: the cells of a grid in parallel processes, each in a folder of its own.

What is done is not done again, so a sweep that was killed can be resumed. Of cells that share a
warm-up one goes first. A cell that fails is reported and does not stop the others. The room
that all runs take on disk is estimated before they begin.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import TypeAdapter

from fairtopk import storage
from fairtopk.errors import InputError
from fairtopk.runs import result as files
from fairtopk.runs.build import build_any_lists, build_model
from fairtopk.runs.config_file import what_differs
from fairtopk.runs.grid import Cell
from fairtopk.runs.measure import measure_run
from fairtopk.runs.open import cached_loader, open_run
from fairtopk.runs.run import stage_settings, train_run
from fairtopk.runs.workers import Workers

DONE = TypeAdapter(dict[Literal["protocols", "rerank"], list[Any]])

BYTES = 4  # of a number
PER_K = 40  # metrics of a query at one K, at most; see `metrics.summarise`
SMALL_FILES = 200_000  # bytes of config, metrics and provenance of a run
PER_EPOCH = 4_000  # bytes of its log
COPIES = 3  # of a checkpoint: the last two, and the one that is being written
# Size of a checkpoint in models: the kept one, the last, two of an optimizer, a teacher.
MODELS_IN_STATE = 5

_load = cached_loader()  # one for each process


class Event(NamedTuple):
    """A cell that began, is done or failed."""

    cell: Cell
    what: Literal["running", "done", "failed"]
    result: dict[str, Any] | None = None  # its metrics file, if it was done just now
    failure: str | None = None  # why it failed, if it did


def run_sweep(
    cells: Sequence[Cell],
    out: Path,
    *,
    processes: int | None = None,
    watch: Callable[[Event], None] = lambda event: None,
) -> dict[str, str]:
    """Train and measure every cell that is not done yet, and write ``results.json``.

    Returns the names of cells that failed, each with the reason.

    Args:
        cells: What to do.
        out: A folder for all of them; a sweep that was stopped there is resumed.
        processes: How many cells at a time; None: one for each core. Threads are divided
            among them.
        watch: Called when a cell begins, is done (also by an earlier sweep) or has failed.
    """
    at_once = processes or cores()
    with storage.alone_in(out):
        for cell in cells:
            path = out / cell.name / files.CONFIG
            change = what_differs(path, cell.config) if path.exists() else None
            if change is not None:
                raise InputError(
                    f"{path} is not what the sweep now asks of that run: {change}; choose "
                    f"another --out, or remove the run"
                )
        waiting = [cell for cell in cells if not is_done(cell, out)]
        done = [cell for cell in cells if cell not in waiting]
        storage.remove_halves(out / files.WARMUPS)
        for cell in done:
            tidy_up(cell, out)  # perhaps it was killed before it could
            watch(Event(cell, "done"))
        warm = {None, *(_warmup(cell) for cell in done)}
        running: dict[str, Cell] = {}
        failures: dict[str, str] = {}
        # However few are left: the last digits of a mean depend on the number of threads.
        with Workers(at_once, threads=max(1, cores() // at_once)) as workers:
            while waiting or running:
                while workers.is_free():
                    # The first cell whose warm-up no other is training at the moment.
                    busy = {_warmup(cell) for cell in running.values()} - warm
                    chosen = next((one for one in waiting if _warmup(one) not in busy), None)
                    if chosen is None:
                        break
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
        if failures:
            storage.write_text(out / files.FAILURES, json.dumps(failures, indent=2) + "\n")
        else:
            (out / files.FAILURES).unlink(missing_ok=True)
        _write_results(cells, out)
        return failures


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _warmup(cell: Cell) -> str | None:
    """Return a key that is equal for cells that share a warm-up; None without a warm-up."""
    config, stages = cell.config, stage_settings(cell.config)
    if config.training.warmup_epochs == 0 or not stages:
        return None
    data = config.data.model_dump(mode="json")
    if not config.data.of_documents:  # whose groups may be features too
        del data["groups"]
    return json.dumps({"data": data, **stages[0]})


def _write_results(cells: Iterable[Cell], out: Path) -> None:
    """Write the metrics of all cells that are done as a list, one at a time."""
    with (
        storage.replacing(out / files.RESULTS) as temporary,
        temporary.open("w", encoding="utf-8") as file,
    ):
        separator = "["
        for cell in cells:
            if is_done(cell, out):
                result = files.read_result(
                    out / cell.name / files.METRICS, files.Owner(cell.config)
                )
                file.write(f"{separator}\n{json.dumps({'run': cell.name} | result)}")
                separator = ","
        file.write("\n]\n" if separator == "," else "[]\n")


def is_done(cell: Cell, out: Path) -> bool:
    """Return whether nothing is left to do for a cell."""
    folder = out / cell.name
    try:
        files.read_result(folder / files.METRICS, files.Owner(cell.config))
    except (OSError, InputError):  # a damaged one is reported when its turn comes
        return False
    return nothing_left(cell, _done(folder))


def nothing_left(cell: Cell, done: dict[str, list[Any]]) -> bool:
    """Return whether a trained cell was measured and re-ranked in every way it should be."""
    return all(one in done[what] for what, wanted in _wanted(cell).items() for one in wanted)


def run_cell(cell: Cell, out: Path) -> dict[str, Any]:
    """Train and measure a cell as far as that is not done yet; return its metrics file."""
    folder = out / cell.name
    with storage.alone_in(folder, patience=storage.ORPHANS):
        lists = _load(cell.config.data, cell.config.seed)
        train_run(cell.config, folder, resume=True, warmups=out / files.WARMUPS, lists=lists)
        owner = files.Owner(cell.config, files.identity_of(cell.config, lists))
        done, wanted = _done(folder), _wanted(cell)
        # A run ends with its other protocol, but perhaps only for a sample of the users.
        other = files.read_result(folder / files.METRICS, owner).get("other_protocol") or {}
        whole = None
        with suppress(InputError, OSError, KeyError):
            found = files.read_result(folder / other["file"], owner._replace(part=None))
            whole = None if files.is_user_sample(found) else found["protocol"]
        left: list[dict[str, Any]] = [
            {"protocol": one}
            for one in cell.protocols
            if not one == other.get("protocol") == whole
        ]
        for request, plain in zip(cell.reranked, wanted["rerank"], strict=True):
            if plain not in done["rerank"]:
                left.append({"rerank": request})
        if left:
            if not (folder / storage.MODEL).exists():
                raise InputError(
                    f"{folder} has not kept its model, and cannot be measured in new ways; "
                    f"remove it, and it is trained again"
                )
            run = open_run(folder, load=_load)
            for how in left:
                evaluation = measure_run(run, **how)
                evaluation.save(folder / evaluation.name)
        for what, those in wanted.items():
            done[what] += [one for one in those if one not in done[what]]
        storage.write_text(folder / files.AFTERWARDS, json.dumps(done, indent=2) + "\n")
        tidy_up(cell, out)
        return files.read_result(folder / files.METRICS, owner)


def tidy_up(cell: Cell, out: Path) -> None:
    """Remove what a finished cell does not need: the state of training, older checkpoints."""
    folder = out / cell.name
    names = [
        f"{prefix}{name}"
        for prefix in (storage.BEFORE, storage.NEW)
        for name in (storage.MODEL, storage.STATE)
    ]
    for name in [*names, storage.STATE, *([] if cell.keep_model else [storage.MODEL])]:
        (folder / name).unlink(missing_ok=True)
    storage.remove_halves(folder)


def _wanted(cell: Cell) -> dict[str, list[Any]]:
    """Return the protocols and re-rankings of a trained cell, as JSON gives them back."""
    requests = json.loads(json.dumps([one._asdict() for one in cell.reranked]))
    return {"protocols": [*cell.protocols], "rerank": requests}


def _done(folder: Path) -> dict[str, list[Any]]:
    """Return those that were done, now or for an earlier sweep."""
    try:
        found = DONE.validate_json(storage.read_text(folder / files.AFTERWARDS))
    except ValueError:
        found = {}
    return {what: found.get(what, []) for what in ("protocols", "rerank")}


def room_of(cells: Iterable[Cell]) -> tuple[int, int]:
    """Return an upper bound of the bytes that runs take on disk; their data is loaded for that.

    The first number is what is left when all runs are done, the second what the largest run
    needs in addition while it trains.
    """
    kept, at_work, stages = 0, 0, {}
    sizes: dict[str, tuple[int, int, int]] = {}
    for cell in cells:
        config = cell.config
        key = config.model_dump_json(include={"data": True, "model": True})
        if key not in sizes:
            lists = build_any_lists(config.data, config.seed)
            weights = build_model(config, lists).state_dict().values()
            model = sum(one.numel() * one.element_size() for one in weights)
            sizes[key] = model, len(lists.test.user), lists.n_pairs
        model, users, pairs = sizes[key]
        n_files = 2 + len(cell.reranked)  # both protocols
        kept += SMALL_FILES + n_files * users * len(config.evaluation.k) * PER_K * BYTES
        kept += PER_EPOCH * (config.training.warmup_epochs + config.training.epochs)
        kept += model if cell.keep_model else 0
        drawn = config.training.lists
        heads = users * drawn.head if drawn.top else 0
        at_work = max(at_work, COPIES * (MODELS_IN_STATE * model + (pairs + heads) * BYTES))
        for stage in stage_settings(config):  # which has tables of its phase too
            which = json.dumps([config.data.model_dump(mode="json"), stage])
            stages[which] = MODELS_IN_STATE * model + pairs * BYTES
    return kept + sum(stages.values()), at_work


def refuse_too_little(needed: int, out: Path) -> None:
    """Refuse a folder on a disk with less than so many bytes."""
    there = next(place for place in (out, *out.resolve().parents) if place.exists())
    free = shutil.disk_usage(there).free
    if needed > free:
        raise InputError(
            f"{out} needs {in_words(needed)} and its disk has {in_words(free)} free; choose "
            f"another --out, or set sweep.keep_models to false"
        )


def in_words(size: int) -> str:
    """Return bytes as a person would say them."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
