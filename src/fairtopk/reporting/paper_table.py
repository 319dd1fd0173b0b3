"""A table of the paper's experiments: as a page shows it, and its numbers in full."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fairtopk.reporting.curves import Point
from fairtopk.reporting.tables import with_interval
from fairtopk.reporting.words import number

NOT_RUN, UNDEFINED = "not run", "undefined"


class Row(NamedTuple):
    """A row.

    Attributes:
        cells: A text per column.
        runs: The folders that its numbers come from, as seen from that of all runs.
        begins: Whether a line is above it.
    """

    cells: tuple[str, ...]
    runs: tuple[str, ...] = ()
    begins: bool = False


@dataclass(frozen=True)
class PaperTable:
    """A table.

    Attributes:
        name: Of its files.
        title: What it shows.
        header: A text per column.
        rows: What is shown.
        records: The same with all figures, a record per number or row, for a CSV file.
        notes: What must be said of it.
        texts: How many columns, from the first, hold words.
    """

    name: str
    title: str
    header: tuple[str, ...]
    rows: list[Row]
    records: Sequence[Mapping[str, Any]]
    notes: list[str] = field(default_factory=list)
    texts: int = 1


def shown(value: float | None) -> str:
    """Return a number as a table shows it, and in words that it is undefined."""
    return UNDEFINED if value is None or value != value else number(value)


def measured(point: Point, metric: str) -> str:
    """Return a metric of a point with its interval, and in words that it is undefined."""
    if metric not in point.values or point.mean(metric) != point.mean(metric):
        return UNDEFINED
    return with_interval(point.values[metric])


def percent(share: float) -> str:
    """Return a share with its sign, ``-12.3 %``."""
    return UNDEFINED if share != share else f"{100 * share:+.1f} %"


def joined(runs: tuple[str, ...]) -> str:
    """Return folders as one cell of a CSV file."""
    return " ".join(runs)
