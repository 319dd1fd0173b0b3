"""Rankings made elsewhere, read from a table of (query, item, score or rank[, relevance])."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from narwhals.typing import IntoDataFrame
from numpy.typing import NDArray

from fairtopk.data.columns import (
    as_polars,
    first_line,
    number_ids,
    ratings_array,
    require_column,
)
from fairtopk.data.labelled import checksum
from fairtopk.data.origin import Origin
from fairtopk.data.table_files import PARQUET, read_table
from fairtopk.errors import InputError
from fairtopk.kernels.csr import first_repeat, is_sorted, offsets_of, stable_order
from fairtopk.metrics.inputs import LARGEST_RELEVANCE

EVERYTHING = (-np.inf, np.inf)


class Columns(NamedTuple):
    """Which columns of a table hold what; a list is ordered by score or by rank."""

    query: str
    item: str
    score: str | None = None
    rank: str | None = None
    relevance: str | None = None

    def ordering(self) -> str:
        """Return the column that orders lists, refusing none and two."""
        if (self.score is None) == (self.rank is None):
            got = "neither" if self.score is None else "both"
            raise InputError(f"give a column of scores or a column of ranks, got {got}")
        return self.score or self.rank or ""

    def names(self) -> list[str]:
        """Return the columns that are to be read."""
        given = (self.query, self.item, self.ordering(), self.relevance)
        return [name for name in given if name is not None]


class Table(NamedTuple):
    """The columns of a table that are needed, and where its rows came from."""

    frame: pl.DataFrame
    origin: Origin
    path: Path | None

    def sha256(self) -> str:
        """Return the SHA-256 of the file, or of the columns of a frame."""
        if self.path is not None:
            return sha256_of(self.path)
        names = sorted(self.frame.columns)
        texts = (self.frame[name].cast(pl.String).fill_null("\0") for name in names)
        return checksum([], texts)


@dataclass(frozen=True, eq=False, repr=False)
class Rankings:
    """Lists of items, grouped by query (CSR); rows of a query keep the order of the table.

    Attributes:
        offsets: Start of each query's rows, ``[n_queries + 1]``.
        item: Item number of each row.
        score: By which lists fall; minus the rank where ranks were given.
        relevance: Grade of each row, or None.
        row: Row of the table that each came from, or None where they are in its order.
        query_ids: Original id of each query.
        item_ids: Original id of each item.
        scored: Whether there were scores; of ranks no softmax can be taken.
        table: Where all this came from.
    """

    offsets: NDArray[np.int64]
    item: NDArray[np.int32]
    score: NDArray[np.floating]
    relevance: NDArray[np.floating] | None
    row: NDArray[np.int64] | None
    query_ids: pl.Series
    item_ids: pl.Series
    scored: bool
    table: Table

    @property
    def length(self) -> NDArray[np.int64]:
        """Number of items of each list."""
        return np.diff(self.offsets)


def read_source(
    source: IntoDataFrame | str | Path, columns: Columns, groups: list[str], *, separator: str
) -> Table:
    """Return the columns that an audit needs of a file or frame; others are not read.

    Args:
        source: CSV or Parquet file, or a polars, pandas or Arrow frame.
        columns: What is to be read.
        groups: Columns of labels.
        separator: What separates the fields of a CSV.
    """
    names = [*columns.names(), *groups]
    if not isinstance(source, str | Path):
        origin = Origin()
        frame = as_polars(source, names, origin)
        return Table(frame, origin, None)
    path = Path(source)
    if path.suffix.lower() in PARQUET and path.is_file():
        frame, origin = _read_parquet(path, names)
    else:
        ids, numbers = [columns.query, columns.item], columns.names()[2:]
        frame, origin = read_table(path, ids=ids, numbers=numbers, separator=separator)
    return Table(as_polars(frame, names, origin), origin, path)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def rankings_of(table: Table, columns: Columns) -> Rankings:
    """Return the lists of a table, refusing values missing and an item twice in a list."""
    frame, origin, _ = table
    ordering = columns.ordering()
    query, query_ids = number_ids(frame[columns.query], origin)
    item, item_ids = number_ids(frame[columns.item], origin)
    with np.errstate(over="ignore"):  # a score may be too large for float32
        score = ratings_array(frame[ordering], EVERYTHING, origin)
    if columns.score is None:
        if len(score) and score.min() < 0:
            raise InputError(
                f"{origin.row(int(score.argmin()))}: the rank in {ordering!r} is "
                f"{score.min():g}, but ranks rise from 1; a column of scores goes to score"
            )
        score = -score
    relevance = None
    if columns.relevance is not None:
        grades = (0.0, LARGEST_RELEVANCE)
        relevance = ratings_array(frame[columns.relevance], grades, origin)
    offsets, row = offsets_of(query, len(query_ids)), None
    if not is_sorted(query):
        row = stable_order(query, offsets)
        item, score = item[row], score[row]
        relevance = relevance[row] if relevance is not None else None
    earlier, later = first_repeat(offsets, item, len(item_ids))
    if later >= 0:
        rows = (earlier, later) if row is None else (int(row[earlier]), int(row[later]))
        raise InputError(
            f"{origin.row(rows[1])}: query {query_ids[int(query[rows[1]])]!r} ranks item "
            f"{item_ids[int(item[later])]!r} again (first in {origin.row(rows[0])}); keep one"
        )
    return Rankings(
        offsets=offsets,
        item=item,
        score=score,
        relevance=relevance,
        row=row,
        query_ids=query_ids,
        item_ids=item_ids,
        scored=columns.score is not None,
        table=table,
    )


def _read_parquet(path: Path, names: list[str]) -> tuple[pl.DataFrame, Origin]:
    origin = Origin(path.name)
    try:
        lazy = pl.scan_parquet(path, glob=False)
        for name in names:
            require_column(name, lazy.collect_schema().names(), origin)
        frame = lazy.select(list(dict.fromkeys(names))).collect(engine="streaming")
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(
            f"{path.name} is not a readable Parquet file ({first_line(error)})"
        ) from error
    return frame, origin
