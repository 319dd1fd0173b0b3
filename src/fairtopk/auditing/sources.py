"""The tables that an audit reads, of rankings and of items, and what they are called."""

import glob
import gzip
import hashlib
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from narwhals.typing import IntoDataFrame
from numpy.typing import NDArray

from fairtopk.arguments import checked_path
from fairtopk.data.bounds import MOST_FILES, MOST_LINE_BYTES
from fairtopk.data.columns import as_polars, first_line
from fairtopk.data.labelled import checksum
from fairtopk.data.origin import Origin
from fairtopk.data.parquet import read_parquet
from fairtopk.data.paths import check_input, open_file, sha256_of
from fairtopk.data.table_files import PARQUET, read_table
from fairtopk.data.text import check_separator
from fairtopk.errors import InputError

OneSource = IntoDataFrame | str | Path
Source = OneSource | Sequence[str | Path]

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
    """The columns of a table that are needed, and where its rows came from.

    Attributes:
        frame: The columns.
        origin: What errors call its rows.
        paths: Its files, none where it was a frame.
    """

    frame: pl.DataFrame
    origin: Origin
    paths: tuple[Path, ...] = ()

    def sha256(self) -> str:
        """Return the SHA-256 of the file, of a list of several, or of a frame's columns."""
        if not self.paths:
            return _sha256_of_columns(self.frame)
        if len(self.paths) == 1:
            return sha256_of(self.paths[0])
        lines = "".join(f"{sha256_of(path)}  {path.name}\n" for path in self.paths)
        return hashlib.sha256(lines.encode()).hexdigest()


def read_source(
    source: Source, columns: Columns, groups: Sequence[str], *, separator: str
) -> Table:
    """Return the columns that an audit needs of files or a frame.

    Args:
        source: CSV or Parquet files, a folder of Parquet files, or a polars, pandas or Arrow
            frame.
        columns: What is to be read.
        groups: Columns of labels.
        separator: What separates the fields of a CSV.
    """
    names = [*columns.names(), *groups]
    if not isinstance(source, str | Path | Sequence):
        origin = Origin()
        return Table(as_polars(source, names, origin), origin)
    paths = _files_of(source)
    tables = [_read_one(path, columns, names, separator) for path in paths]
    return tables[0] if len(tables) == 1 else _joined(tables)


def matching(pattern: str) -> list[Path]:
    """Return the files that a pattern such as ``parts/*.parquet`` matches, sorted by name."""
    found = [
        path
        for path in map(Path, islice(glob.iglob(pattern, recursive=True), MOST_FILES + 1))
        if not path.is_dir()
    ]
    if not found:
        raise InputError(f"no file matches the pattern {pattern!r}")
    return sorted(found)


def check_source(name: str, source: Any) -> None:
    """Refuse paths that are none; a frame is checked when it is read."""
    if isinstance(source, str | bytes | Path):
        checked_path(name, source)
    elif isinstance(source, Sequence):
        for path in source:
            checked_path(f"each of {name}", path)
        if not source:
            raise InputError(f"{name} must be a frame, a path or a list of paths, got none")


def name_of(source: Source) -> str:
    """Return what to call a source in words."""
    if isinstance(source, str | Path):
        return Path(source).name
    if not isinstance(source, Sequence):
        return "the table"
    first, *others = (Path(path).name for path in source)
    return f"{first} and {len(others):,} more" if others else first


def read_items(items: OneSource, item: str, *, separator: str) -> tuple[IntoDataFrame, Origin]:
    """Return a table of items, refusing one without their ids, and where it came from."""
    if isinstance(items, str | Path):
        return _read_file(Path(items), [item], [], separator)
    as_polars(items, [item], ITEMS)
    return items, ITEMS


def _files_of(source: str | Path | Sequence[str | Path]) -> list[Path]:
    """Return the files behind one or more paths; a folder stands for its Parquet files."""
    given = [source] if isinstance(source, str | Path) else source
    files: list[Path] = []
    for path in map(Path, given):
        check_input(path)
        if not path.is_dir():
            files.append(path)
            continue
        parts = [
            part
            for part in sorted(path.iterdir())
            if part.suffix.lower() in PARQUET and not part.name.startswith((".", "_"))
        ]
        if not parts:
            raise InputError(f"{path} is a folder without Parquet files; give the files in it")
        files += parts
    if len(files) > MOST_FILES:
        raise InputError(f"{len(files):,} files are given; at most {MOST_FILES:,} are read")
    return files


def _read_one(path: Path, columns: Columns, names: list[str], separator: str) -> Table:
    if path.suffix.lower() in PARQUET:
        origin = Origin(path.name)
        frame = read_parquet(path, names, whole=False, origin=origin)
    else:
        ids, numbers = [columns.query, columns.item], columns.names()[2:]
        frame, origin = _read_file(path, ids, numbers, separator)
    return Table(as_polars(frame, names, origin), origin, (path,))


def _joined(tables: Sequence[Table]) -> Table:
    """Return tables one below the other; a column of numbers here and text there is text."""
    paths = tuple(path for table in tables for path in table.paths)
    starts = np.cumsum([0, *(len(table.frame) for table in tables)]).tolist()
    parts = tuple((start, table.origin) for start, table in zip(starts, tables, strict=False))
    as_text = [
        name
        for name in tables[0].frame.columns
        if len({table.frame[name].dtype for table in tables}) > 1
        and not all(table.frame[name].dtype.is_numeric() for table in tables)
    ]
    try:
        frame = pl.concat(
            (table.frame.with_columns(pl.col(as_text).cast(pl.String)) for table in tables),
            how="vertical_relaxed",
        )
    except pl.exceptions.PolarsError as error:
        raise InputError(
            f"{name_of(paths)} do not fit together as one table: {first_line(error)}"
        ) from error
    return Table(frame, Origin(name_of(paths), parts=parts), paths)


def _read_file(
    path: Path, ids: Sequence[str], numbers: Sequence[str], separator: str
) -> tuple[pl.DataFrame, Origin]:
    check_separator(separator)
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
        with open_file(path) as file:
            text = gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file
            header = text.readline(MOST_LINE_BYTES).decode("utf-8-sig").strip()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, InputError):
        return None
    if separator in header or not header.replace("\t", "").isprintable():
        return None
    return next((mark for mark in SEPARATORS if mark in header), None)


def _sha256_of_columns(frame: pl.DataFrame) -> str:
    def arrays() -> Iterator[NDArray[Any]]:
        for name in sorted(frame.columns):
            texts = frame[name].cast(pl.String).fill_null("\0")
            yield texts.str.len_bytes().to_numpy()
            yield np.frombuffer(texts.str.join("").item().encode(), np.uint8)

    return checksum(arrays(), [])
