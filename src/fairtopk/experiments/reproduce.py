"""The paper's experiments from end to end: data, runs, figures, tables, one page.

Runs are in ``runs``, where `fairtopk report` can read them too; everything else in the folder
is made from them, and made again at every call.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from fairtopk.experiments.grid import Cell
from fairtopk.experiments.paper_data import Found, find_data
from fairtopk.experiments.paper_outputs import RUNS, write_paper
from fairtopk.experiments.paper_plan import FULL, QUICK, Extent, paper_cells
from fairtopk.experiments.sweep import Event, Outcome, run_sweep


class Plan(NamedTuple):
    """What there is to do.

    Attributes:
        found: The data at hand.
        extent: How much is done with it.
        cells: The runs.
    """

    found: list[Found]
    extent: Extent
    cells: list[Cell]


def plan(data: Path | None, *, quick: bool) -> Plan:
    """Return the runs of all experiments on the data in a folder."""
    found, extent = find_data(data, quick=quick), QUICK if quick else FULL
    return Plan(found, extent, paper_cells(found, extent))


def reproduce(
    planned: Plan,
    out: Path,
    *,
    processes: int | None = None,
    watch: Callable[[Event], None] = lambda event: None,
) -> Outcome:
    """Train what is not trained yet, and write figures, tables and page into a folder.

    Arguments are those of `run_sweep`.
    """
    outcome = run_sweep(planned.cells, out / RUNS, processes=processes, watch=watch)
    if outcome.done:
        write_paper(planned, out)
    return outcome
