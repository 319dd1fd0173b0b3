"""The tables that an audit reads, of rankings and of items, and what they are called."""

import gzip
import hashlib
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from narwhals.typing import IntoDataFrame
from numpy.typing import NDArray

from fairtopk.data.columns import as_polars, first_line, require_column
from fairtopk.data.labelled import checksum
from fairtopk.data.origin import Origin
from fairtopk.data.table_files import PARQUET, read_table
from fairtopk.errors import InputError

Source = IntoDataFrame | str | Path

ITEMS = Origin("the table of items")
SEPARATORS = (";", "\t", "|", ",")


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
        return _sha256_of_columns(self.frame) if self.path is None else sha256_of(self.path)


def read_source(
    source: Source, columns: Columns, groups: Sequence[str], *, separator: str
) -> Table:
    """Return the columns that an audit needs of a file or frame.

    Args:
        source: CSV or Parquet file, or a polars, pandas or Arrow frame.
        columns: What is to be read.
        groups: Columns of labels.
        separator: What separates the fields of a CSV.
    """
    names = [*columns.names(), *groups]
    if not isinstance(source, str | Path):
        origin = Origin()
        return Table(as_polars(source, names, origin), origin, None)
    path = Path(source)
    if path.suffix.lower() in PARQUET and path.is_file():
        frame, origin = _read_parquet(path, names)
    else:
        ids, numbers = [columns.query, columns.item], columns.names()[2:]
        frame, origin = _read_file(path, ids, numbers, separator)
    return Table(as_polars(frame, names, origin), origin, path)


def read_items(items: Source, item: str, *, separator: str) -> tuple[IntoDataFrame, Origin]:
    """Return a table of items, refusing one without their ids, and where it came from."""
    if isinstance(items, str | Path):
        return _read_file(Path(items), [item], [], separator)
    as_polars(items, [item], ITEMS)
    return items, ITEMS


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_file(
    path: Path, ids: Sequence[str], numbers: Sequence[str], separator: str
) -> tuple[pl.DataFrame, Origin]:
    try:
        return read_table(path, ids=ids, numbers=numbers, separator=separator)
    except InputError as error:
        other = _other_separator(path, separator)
        if other is None:
            raise
        shown = other.replace("\t", "\\t")
        raise InputError(
            f"{path.name} has one column if its fields are separated by {separator!r}, and "
            f'looks separated by {other!r}: pass --separator "{shown}"'
        ) from error


def _other_separator(path: Path, separator: str) -> str | None:
    """Return what seems to separate the header of a text that `separator` does not split."""
    if path.suffix.lower() in PARQUET:
        return None
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            header = file.readline().decode("utf-8-sig").strip()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError):
        return None
    if separator in header or not header.replace("\t", "").isprintable():
        return None
    return next((mark for mark in SEPARATORS if mark in header), None)


def _read_parquet(path: Path, names: Sequence[str]) -> tuple[pl.DataFrame, Origin]:
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


def _sha256_of_columns(frame: pl.DataFrame) -> str:
    def arrays() -> Iterator[NDArray[Any]]:
        for name in sorted(frame.columns):
            texts = frame[name].cast(pl.String).fill_null("\0")
            yield texts.str.len_bytes().to_numpy()
            yield np.frombuffer(texts.str.join("").item().encode(), np.uint8)

    return checksum(arrays(), [])
