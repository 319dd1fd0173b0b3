"""CSV and Parquet files of ratings or features, with columns named by the user.

A damaged file is refused in one sentence. `guarded` keeps text that a spreadsheet would run as
a formula text (`--csv-safe`).
"""

import os
import threading
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairtopk.data.archive import Archive
from fairtopk.data.columns import Origin, first_line, require_column
from fairtopk.data.delimited import (
    check_separator,
    first_short_row,
    has_padded_number,
    header_of,
    read_delimited,
    refuse_odd_bytes,
)
from fairtopk.data.features import FeatureColumns, Features, feature_rows, features_from
from fairtopk.data.groups import GroupRule, Groups
from fairtopk.data.interactions import Columns, Tables
from fairtopk.errors import InputError
from fairtopk.paths import (
    MOST_COLUMNS,
    MOST_ROWS,
    check_file,
    open_file,
    refuse_large,
)

STDERR = 2
VALUE_BYTES = 8  # of a value in memory, at least
_lock = threading.Lock()
PARQUET = (".parquet", ".pq")
SHOWN = 60  # bytes of a bad line
RUN = r"^[=+\-@\t\r\n]"  # how a cell begins that is run, or that hides one


def read_ratings_file(
    path: str | Path,
    *,
    user: str = "user_id",
    item: str = "item_id",
    rating: str | None = "rating",
    time: str | None = None,
    items: str | Path | None = None,
    separator: str = ",",
) -> Tables:
    """Return the ratings of a file, and its table of items if there is one.

    Args:
        path: CSV (``.gz`` too) or Parquet.
        user: Column of user ids.
        item: Column of item ids, called the same in both files.
        rating: Column of ratings; None makes every row a rating of 1.
        time: Column of times.
        items: CSV or Parquet with one row per item, for groups; without it, groups are made
            from the other columns of the ratings.
        separator: What separates the fields of a CSV.
    """
    numbers = [rating] if rating is not None else []
    ratings, origin = read_table(path, ids=[user, item], numbers=numbers, separator=separator)
    catalogue, items_origin = ratings, origin
    if items is not None:
        catalogue, items_origin = read_table(items, ids=[item], separator=separator)
    return Tables(ratings, catalogue, origin, items_origin, Columns(user, item, rating, time))


def read_features_file(
    path: str | Path,
    *,
    query: str,
    relevance: str = "relevance",
    features: Sequence[str] | None = None,
    item: str | None = None,
    group: str | None = None,
    groups: Groups | GroupRule | None = None,
    separator: str = ",",
) -> Features:
    """Return the documents of a CSV or Parquet file; see `Features.from_frame`."""
    ids = [query] if item is None else [query, item]
    frame, origin = read_table(path, ids=ids, numbers=[relevance], separator=separator)
    columns = FeatureColumns(query, relevance, features, item, group)
    rows = feature_rows(frame, columns, groups=groups, origin=origin)
    return features_from(rows, name=Path(path).stem)


def read_table(
    path: str | Path, *, ids: Sequence[str], numbers: Sequence[str] = (), separator: str = ","
) -> tuple[pl.DataFrame, Origin]:
    """Return a CSV or Parquet file whole, refusing one without the columns named here.

    Args:
        path: The file; its ending tells which kind it is.
        ids: Columns of ids. In a CSV they are read as text, since a number would lose the
            zeros of 007, and become numbers only where none is lost.
        numbers: Columns that must hold numbers.
        separator: What separates the fields of a CSV.
    """
    path = Path(path)
    _refuse_other_files(path)
    check_separator(separator)
    if path.suffix.lower() in PARQUET:
        return read_parquet(path, [*ids, *numbers]), Origin(path.name)
    origin = Origin(path.name, first_line=2)
    source = Archive(path).read(path.name) if path.suffix == ".gz" else path
    refuse_odd_bytes(source, origin)
    header = header_of(source, separator, origin)
    for name in (*ids, *numbers):
        require_column(name, header, origin)
    return _read_csv(source, header, ids, numbers, separator, origin), origin


def read_parquet(
    path: Path, names: Sequence[str] = (), *, whole: bool = True, origin: Origin | None = None
) -> pl.DataFrame:
    """Return a Parquet file, refusing one without the columns `names`.

    Args:
        path: The file, by its literal name.
        names: Columns that it must have.
        whole: Whether to read the other columns too.
        origin: What errors call it; left out, by its name.
    """
    origin = origin or Origin(path.name)
    with open_file(path) as file, _parquet_errors(origin):
        lazy = pl.scan_parquet(file, glob=False)
        columns = lazy.collect_schema().names()
        for name in names:
            require_column(name, columns, origin)
        if not whole:
            columns = list(dict.fromkeys(names))
        n_rows = lazy.select(pl.len()).collect().item()
        _refuse_vast(n_rows, len(columns), origin)
        return lazy.select(columns).collect(engine="streaming")


def read_parquet_metadata(path: Path) -> dict[str, str]:
    """Return what the writer of a Parquet file noted in it."""
    with open_file(path) as file, _parquet_errors(Origin(path.name)):
        return pl.read_parquet_metadata(file)


def check_csv_safe(csv_safe: bool, out: Path) -> None:
    """Refuse to guard a file that is no CSV."""
    if csv_safe and out.suffix.lower() != ".csv":
        raise InputError(f"--csv-safe is for .csv files, and --out is {out}; leave it out")


def guarded(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a table with an apostrophe before text that would be run; numbers stay.

    Names of columns are text too.
    """
    texts = (pl.String, pl.Categorical, pl.Enum)
    columns = [
        _guarded(column.cast(pl.String)) if isinstance(column.dtype, texts) else column
        for column in frame
    ]
    names = _guarded(pl.Series(frame.columns, dtype=pl.String))
    return pl.DataFrame([one.alias(name) for one, name in zip(columns, names, strict=True)])


def _read_csv(
    source: bytes | Path,
    header: list[str],
    ids: Sequence[str],
    numbers: Sequence[str],
    separator: str,
    origin: Origin,
) -> pl.DataFrame:
    schema: dict[str, type[pl.DataType] | None] = dict.fromkeys(header)
    schema.update(dict.fromkeys(numbers, pl.Float64))
    text = (
        np.memmap(source, np.uint8, mode="r")
        if isinstance(source, Path)
        else np.frombuffer(source, "u1")
    )
    short = first_short_row(text, ord(separator), len(header))
    if short >= 0:
        _refuse_short(text, short, len(header), separator, origin)
    if not has_padded_number(text, ord(separator)):
        # Ids that are numbers are read as such, several times faster than as text.
        schema.update(dict.fromkeys(ids, pl.Int64))
        try:
            return read_delimited(
                source, schema, separator=separator, header=True, origin=origin
            )
        except InputError:
            pass  # some id is no number, or something else is wrong: the text will tell
    schema.update(dict.fromkeys(ids, pl.String))
    frame = read_delimited(source, schema, separator=separator, header=True, origin=origin)
    return frame.with_columns(_numbers_where_exact(frame[name]) for name in ids)


def _refuse_short(
    text: NDArray[np.uint8], start: int, wanted: int, separator: str, origin: Origin
) -> None:
    """Refuse a row that lacks fields, which would be read as if they were empty."""
    line = int(np.count_nonzero(text[:start] == ord("\n"))) + 1
    raw = text[start : start + SHOWN].tobytes().split(b"\n")[0]
    raise InputError(
        f"{origin.name}, line {line}: expected {wanted} fields separated by {separator!r}, got "
        f"fewer in {raw.decode('utf-8', 'replace').rstrip()!r}"
    )


def _refuse_other_files(path: Path) -> None:
    check_file(path)
    if path.stat().st_size == 0:
        raise InputError(f"{path.name} is empty")
    if zipfile.is_zipfile(path):
        raise InputError(f"{path.name} is a zip; unpack it and give the table in it")


def _numbers_where_exact(ids: pl.Series) -> pl.Series:
    """Return text ids as integers if every one is written just as its number is.

    Where all others are numbers, NaN is a number that is missing, not a name.
    """
    numbers = ids.cast(pl.Int64, strict=False)
    if ids.eq_missing(numbers.cast(pl.String)).all():
        return numbers
    named = ids.is_in(["nan", "NaN"]).fill_null(False)
    others = ids.filter(~named)
    if (
        named.any()
        and others.cast(pl.Float64, strict=False).null_count() == others.null_count()
    ):
        return ids.set(named, None)
    return ids


def _refuse_vast(n_rows: int, n_columns: int, origin: Origin) -> None:
    """Refuse a file that unpacks to more than a machine can hold, however small it is."""
    if n_rows > MOST_ROWS:
        raise InputError(f"{origin.name} has {n_rows:,} rows; at most {MOST_ROWS:,} are read")
    if n_columns > MOST_COLUMNS:
        raise InputError(
            f"{origin.name} has {n_columns:,} columns; at most {MOST_COLUMNS:,} are read"
        )
    n_bytes = VALUE_BYTES * n_rows * n_columns
    refuse_large(n_bytes, f"{origin.name}, {n_rows:,} rows by {n_columns:,} columns,")


@contextmanager
def _parquet_errors(origin: Origin) -> Iterator[None]:
    """Refuse a damaged file in one sentence, whatever polars makes of it.

    On some damaged files it panics, and its Rust writes lines about that straight to standard
    error; for as long as a file is read, nothing is shown there.
    """
    try:
        with _lock, _without_stderr():
            yield
    except InputError:
        raise
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise InputError(
            f"{origin.name} is not a readable Parquet file ({first_line(error)})"
        ) from error


@contextmanager
def _without_stderr() -> Iterator[None]:
    try:
        kept = os.dup(STDERR)
    except OSError:  # a process may have none
        yield
        return
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), STDERR)
    try:
        yield
    finally:
        os.dup2(kept, STDERR)
        os.close(kept)


def _guarded(text: pl.Series) -> pl.Series:
    return text.str.replace(RUN, "'${0}")
