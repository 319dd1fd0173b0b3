"""`fairtopk sweep` and `fairtopk reproduce`: many runs, with a table of their progress."""

import re
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.live import Live
from typer import Argument, Option

from fairtopk.cli.console import console, say
from fairtopk.data.prepared import refuse_used
from fairtopk.errors import STOPS, Exit, InputError
from fairtopk.terminal import add_row, count, table

if TYPE_CHECKING:
    from fairtopk.runs.grid import Cell
    from fairtopk.runs.sweep import Event


COLUMNS = ("done", "running", "failed", "of")
Processes = Annotated[
    int | None, Option(min=1, help="runs at a time; default: one for each core")
]


def sweep(
    config: Annotated[Path, Argument(help="a TOML file with a [sweep] table")],
    out: Annotated[Path, Option(help="new folder for all runs")],
    set_: Annotated[
        list[str] | None, Option("--set", help="change a key of the config: training.epochs=5")
    ] = None,
    resume: Annotated[
        bool, Option("--resume", help="start, or continue; finished runs are kept")
    ] = False,
    processes: Processes = None,
) -> None:
    """Train every combination of the data sets, methods, weights, K and seeds in [sweep].

    Example: fairtopk sweep examples/sweep.toml --out runs/sweep
    """
    from fairtopk.runs.grid import load_sweep

    cells = load_sweep(config, set_ or ())
    if not resume:
        try:
            refuse_used(out)
        except InputError as error:
            raise InputError(f"{error}, or continue with --resume") from None

    from fairtopk.reporting.page import report
    from fairtopk.runs.result import RESULTS
    from fairtopk.runs.sweep import run_sweep

    say_room(cells, out, processes)
    with sweep_progress(cells, "the same command and --resume") as progress:
        failures = run_sweep(cells, out, processes=processes, watch=progress)
    if done := len(cells) - len(failures):
        with warnings.catch_warnings():
            for name in failures:  # which are printed below
                warnings.filterwarnings("ignore", f".*{re.escape(name)} is not finished")
            page = report(out)
        say(f"{count(done, 'run')} done: {out / RESULTS}; open {page}")
    if say_failures(failures, "rerun with --resume"):
        raise typer.Exit(Exit.MISSED)


def say_failures(failures: dict[str, str], again: str) -> bool:
    """Say why runs failed and how to try `again`; return whether any failed."""
    for name, why in failures.items():
        say(f"failed: {name}: {why}")
    if failures:
        say(f"{count(len(failures), 'run')} failed; fix the cause and {again}")
    return bool(failures)


def say_room(cells: "list[Cell]", out: Path, processes: int | None) -> None:
    """Say how much disk space unfinished runs need, and refuse a disk with less."""
    from fairtopk.runs.sweep import cores, in_words, is_done, refuse_too_little, room_of

    left = [cell for cell in cells if not is_done(cell, out)]
    if not left:
        return
    kept, at_work = room_of(left)
    at_work *= processes or cores()
    refuse_too_little(kept + at_work, out)
    say(
        f"{count(len(left), 'run')}, at most {in_words(kept)} on disk, plus "
        f"{in_words(at_work)} while they train"
    )


@contextmanager
def sweep_progress(cells: "list[Cell]", again: str) -> Iterator[Callable[["Event"], None]]:
    """Yield a function that shows what happened to a run of a sweep, and how far the sweep is.

    A terminal has a table by method, anything else a line per run. Ctrl-C says how to go on.
    """
    row = {
        cell.name: f"{cell.name.partition('/')[0]}, {cell.config.method.name}" for cell in cells
    }
    count_of = {name: Counter(of=n) for name, n in Counter(row.values()).items()}
    started: dict[str, float] = {}  # of the runs at work
    begin, finished = time.monotonic(), 0
    live = Live(console=console, auto_refresh=False)

    def show(event: "Event") -> None:
        nonlocal finished
        name, now = event.cell.name, time.monotonic()
        counts, seconds = count_of[row[name]], None
        counts[event.what] += 1
        if event.what == "running":
            started[name] = now
        elif name in started:
            seconds = now - started.pop(name)
            counts["running"] -= 1
            finished += 1
        ended = sum(counts["done"] + counts["failed"] for counts in count_of.values())
        place = f"{ended:,} of {len(cells):,} runs"
        if finished and ended < len(cells):
            left = (now - begin) / finished * (len(cells) - ended)
            duration = f"{left:.0f} s" if left < 90 else f"{left / 60:.0f} min"
            place += f", about {duration if left < 5400 else f'{left / 3600:.1f} h'} left"
        if console.is_terminal:
            shown = table("", "data, method", *COLUMNS)
            for name, counts in count_of.items():
                add_row(shown, name, *(f"{counts[column]:,}" for column in COLUMNS))
            live.update(Group(shown, place), refresh=True)
        elif seconds is not None:
            result = event.result or {}
            means = {of: cell["mean"] for of, cell in result.get("metrics", {}).items()}
            ks = [int(of.partition("@")[2]) for of in means if of.startswith("ndcg@")]
            names = [f"{of}@{min(ks)}" for of in ("ndcg", "exposure_gap")] if ks else []
            figures = [f"{of} {means[of]:.4g}" for of in names if means.get(of) is not None]
            say(f"{place}: {name}, {event.failure or ', '.join(figures)} ({seconds:.0f} s)")
            for warning in result.get("warnings", []):
                say(f"warning: {name}: {warning}")

    try:
        if console.is_terminal:
            live.start()
        yield show
    except STOPS:
        say(f"finished runs are kept; continue with {again}")
        raise
    finally:
        live.stop()


def reproduce(
    out: Annotated[Path, Option(help="folder for the runs, figures, tables and the page")],
    data: Annotated[
        Path | None, Option(help="folder with the published archives of MovieLens or Netflix")
    ] = None,
    quick: Annotated[
        bool, Option("--quick", help="embedded data and MovieLens 100K, few weights, one seed")
    ] = False,
    processes: Processes = None,
) -> None:
    """Run the paper's experiments on the available data; write its figures and tables.

    Finished runs are kept: the same command continues where it was stopped.

    Example: fairtopk reproduce --data downloads --out paper --quick
    """
    from fairtopk.reproduce.output import PAGE, RUNS, plan
    from fairtopk.reproduce.output import reproduce as run

    if not (out / RUNS).is_dir():  # no earlier reproduction to continue
        refuse_used(out)
    planned = plan(data, quick=quick)
    if data is not None and len(planned.found) == 1:
        wanted = "MovieLens 100K, which --quick uses" if quick else "the paper's data"
        raise InputError(
            f"{data} does not contain {wanted}; give the folder with the published archives, "
            f"or leave --data out to use the embedded data alone"
        )
    for one in planned.found:
        say(f"data: {one.title}")
    say_room(planned.cells, out / RUNS, processes)
    with sweep_progress(planned.cells, "the same command") as progress:
        failures = run(planned, out, processes=processes, watch=progress)
    if len(failures) < len(planned.cells):
        say(f"written to {out / PAGE}; open it in a browser")
    if say_failures(failures, "rerun the command"):
        raise typer.Exit(Exit.MISSED)
