"""`fairtopk reproduce`."""

from pathlib import Path
from typing import Annotated

from typer import Exit, Option

from fairtopk.experiments.console import console
from fairtopk.experiments.sweep_commands import (
    SOME_FAILED,
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

    planned = plan(data, quick=quick)
    for one in planned.found:
        console.print(f"data: {one.title}", highlight=False)
    if data is not None and len(planned.found) == 1:
        wanted = "MovieLens 100K, which --quick takes" if quick else "the paper's data"
        console.print(f"{data} has nothing of {wanted}", highlight=False, soft_wrap=True)
    say_room(planned.cells, out / RUNS, processes)
    with SweepProgress(planned.cells) as progress, kept_so_far("the same command"):
        outcome = run(planned, out, processes=processes, watch=progress)
    if outcome.done:
        console.print(f"look at {out / PAGE}", highlight=False, soft_wrap=True, markup=False)
    if tell_failures(outcome):
        raise Exit(SOME_FAILED)
