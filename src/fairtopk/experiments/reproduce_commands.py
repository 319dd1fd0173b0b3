"""`fairtopk reproduce`."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from fairtopk.data.prepared import refuse_used
from fairtopk.errors import Exit, InputError
from fairtopk.experiments.console import say
from fairtopk.experiments.sweep_commands import (
    SweepProgress,
    kept_so_far,
    say_room,
    tell_failures,
)


def reproduce(
    out: Annotated[Path, Option(help="folder for runs, figures, tables and page")],
    data: Annotated[
        Path | None, Option(help="folder with published archives: MovieLens, Netflix")
    ] = None,
    quick: Annotated[
        bool, Option("--quick", help="embedded data and MovieLens 100K, few weights, one seed")
    ] = False,
    processes: Annotated[
        int | None, Option(min=1, help="runs at a time; default: one for each core")
    ] = None,
) -> None:
    """Run the paper's experiments on the data at hand, and draw its figures and tables.

    What is done is not done again: the same command goes on where it was stopped.

    Example: fairtopk reproduce --data downloads --out paper --quick
    """
    from fairtopk.experiments.paper_outputs import PAGE, RUNS
    from fairtopk.experiments.reproduce import plan
    from fairtopk.experiments.reproduce import reproduce as run

    if not (out / RUNS).is_dir():  # not a folder to go on in
        refuse_used(out)
    planned = plan(data, quick=quick)
    if data is not None and len(planned.found) == 1:
        wanted = "MovieLens 100K, which --quick takes" if quick else "the paper's data"
        raise InputError(
            f"{data} has nothing of {wanted}; give the folder with the published archives, or "
            f"leave --data out for the embedded data alone"
        )
    for one in planned.found:
        say(f"data: {one.title}")
    say_room(planned.cells, out / RUNS, processes)
    with SweepProgress(planned.cells) as progress, kept_so_far("the same command"):
        outcome = run(planned, out, processes=processes, watch=progress)
    if outcome.done:
        say(f"look at {out / PAGE}")
    if tell_failures(outcome, "rerun the command"):
        raise typer.Exit(Exit.MISSED)
