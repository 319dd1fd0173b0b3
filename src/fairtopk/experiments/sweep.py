"""Many runs: cells of a grid in parallel processes, each in a folder of its own.

What is done is not done again, so a sweep that was killed goes on where it was. Of cells that
share a warm-up one goes first. A cell that fails is told of and does not stop the others.
"""

import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from fairtopk.data.files import remove_halves, replacing, write_text
from fairtopk.errors import InputError
from fairtopk.experiments.build import reads_features_alone
from fairtopk.experiments.cells import WARMUPS, is_done, run_cell, tidy_up
from fairtopk.experiments.config_file import dump_config, load_config, what_differs
from fairtopk.experiments.grid import Cell
from fairtopk.experiments.keys import warmup_settings
from fairtopk.experiments.locks import alone_in
from fairtopk.experiments.result import CONFIG, METRICS, Owner, read_result
from fairtopk.experiments.workers import Workers

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
    if config.training.warmup_epochs == 0 or reads_features_alone(config):
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
