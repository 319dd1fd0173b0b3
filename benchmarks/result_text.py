"""What pages of docs/results are made from, and how their tables put numbers."""

from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from fairtopk.metrics.names import number
from fairtopk.reproduce.views import SeedMean

NOTHING = "*No run of this is done yet.*"
NONE = number(None)  # a dash


class Read(NamedTuple):
    """What pages are made from.

    Attributes:
        results: A record for each number of each run.
        rows: Those of `read_rows`.
        chosen: Records of the tables of chosen points, with the data that they are of.
        falls: Records of the tables of flatter scores, likewise.
        tables: The folder of the tables.
        titles: What the data sets are called.
    """

    results: pl.DataFrame
    rows: pl.DataFrame
    chosen: pl.DataFrame
    falls: pl.DataFrame
    tables: Path
    titles: list[str]


def table(head: list[str], lines: list[list[str]]) -> str:
    """Return a table as Markdown; without lines, that there is nothing yet."""
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) if lines else NOTHING


def columns(at: str = "") -> list[str]:
    """Return the names of the cells of `changes`."""
    return [f"NDCG{at}", f"Eq. 9{at}", f"by rank{at}", f"by rank{at}, signed"]


def changes(row: dict[str, Any]) -> list[str]:
    """Return how a row of `read_rows` differs from K-SONG, and its signed gap."""
    found = [
        percent(row[f"{metric}_change"], row[f"{metric}_reach"])
        for metric in ("ndcg", "exposure_gap", "rank_exposure_gap")
    ]
    return [*found, signed(row["rank_exposure_gap_signed"])]


def percent(change: float | None, reach: float | None) -> str:
    """Return a change with half of its interval, if it has one."""
    if change is None:
        return NONE
    return f"{100 * change:+.1f} %" + ("" if reach is None else f" ±{100 * reach:.1f}")


def points(change: SeedMean) -> str:
    """Return a difference in percentage points, in bold where its interval leaves out 0."""
    if change.seeds == 0:
        return NONE
    text = f"{100 * change.mean:+.0f}"
    if change.seeds < 2:
        return text
    text += f" ±{100 * (change.high - change.mean):.0f}"
    return f"**{text}**" if change.low > 0 or change.high < 0 else text


def signed(value: float | None) -> str:
    """Return a signed gap in few digits."""
    return NONE if value is None else f"{value:+.2g}"
