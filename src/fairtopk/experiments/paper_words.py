"""What the page of the paper's experiments says at its top, and of what is missing."""

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from fairtopk import __version__
from fairtopk.data.files import read_text
from fairtopk.experiments.config import DataConfig
from fairtopk.experiments.grid import Cell
from fairtopk.experiments.paper_data import Found
from fairtopk.experiments.paper_plan import QUICK
from fairtopk.experiments.sweep import FAILURES
from fairtopk.reporting.paper_tables import Facts
from fairtopk.reporting.paper_views import folder
from fairtopk.reporting.results import Sweep

if TYPE_CHECKING:
    from fairtopk.experiments.reproduce import Plan

FAILED = TypeAdapter(dict[str, str])  # runs and why they failed
NAMED = 20  # runs that are not done, and are still told one by one
PAPER_DATA = ("MovieLens-20M-H", "MovieLens-20M-D", "Netflix-20M")


def missing_words(planned: "Plan", sweep: Sweep, done: set[str], runs: Path) -> list[str]:
    """Return in words what was planned and is not there, and data that the paper has."""
    failures = _failures(runs)
    absent = [cell for cell in planned.cells if cell.name not in done]
    found = [_failure(cell, failures) for cell in absent if cell.name in failures]
    found += _waiting([cell.name for cell in absent if cell.name not in failures])
    names = {cell.name for cell in planned.cells}
    told = [words for words in sweep.missing if words.split(" ")[0] not in names - done]
    others = {folder(one.run) for one in sweep.results} - names
    if others:
        told.append(f"{len(others):,} other runs in the folder are no part of this: left out.")
    at_hand = {one.paper for one in planned.found}
    not_here = [name for name in PAPER_DATA if name not in at_hand]
    if not_here:
        told.append(
            f"The paper's {', '.join(not_here)}: that data was not at hand, or not asked for."
        )
    return [*found, *told]


def _waiting(names: list[str]) -> list[str]:
    """Return what is said of runs that are not done: by name, or if there are many, by data."""
    if len(names) <= NAMED:
        return [f"{name}: not trained to the end." for name in names]
    counts = Counter(name.partition("/")[0] for name in names)
    return [f"{data}: {n:,} runs are not trained to the end." for data, n in counts.items()]


def _failure(cell: Cell, failures: dict[str, str]) -> str:
    # Where files are on this machine is nobody else's business.
    why = re.sub(r"[^\s'\"]*[/\\](?=[^\s/\\])", "", failures[cell.name])
    return f"{cell.name}: failed, for {why}"


def _failures(runs: Path) -> dict[str, str]:
    try:
        found: dict[str, str] = FAILED.validate_json(read_text(runs / FAILURES))
    except ValueError:
        return {}
    return found


def first_words(planned: "Plan", facts: Facts) -> list[str]:
    """Return what is said at the top of the page."""
    seeds = ", ".join(str(seed) for seed in planned.extent.seeds)
    methods = dict.fromkeys(cell.config.method.name for cell in planned.cells)
    spent = [(fact.get("seconds") or {}).get("training", 0.0) for fact in facts.values()]
    words = [
        f"{len(facts):,} of {len(planned.cells):,} runs of {len(methods)} methods "
        f"({', '.join(methods)}), seed {seeds}, by fairtopk {__version__}.",
        f"Data: {'; '.join(_data_words(planned.found, planned.cells, facts))}.",
        f"Training took {_span(sum(spent))}, added up over runs.",
    ]
    if planned.extent == QUICK:
        words.append(
            "This is the quick version: few weights and one seed. It shows that everything "
            "works, not what methods are worth."
        )
    return words


def _data_words(found: Iterable[Found], cells: list[Cell], facts: Facts) -> list[str]:
    words = []
    for one in found:
        data = DataConfig.model_validate(one.data)
        names = (
            facts[c.name]["data"] for c in cells if c.config.data == data and c.name in facts
        )
        words.append(f"{one.title} ({next(names, 'no run is done')})")
    return words


def _span(seconds: float) -> str:
    """Return a time as a person would say it."""
    minutes = seconds / 60
    return f"{minutes:.0f} minutes" if minutes < 120 else f"{minutes / 60:.1f} hours"
