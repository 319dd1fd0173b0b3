"""Parquet files as frames; a damaged one is refused in one sentence."""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from fairtopk.data.bounds import MOST_COLUMNS, MOST_ROWS
from fairtopk.data.columns import first_line, require_column
from fairtopk.data.origin import Origin
from fairtopk.data.paths import open_file, refuse_large
from fairtopk.errors import InputError

STDERR = 2
VALUE_BYTES = 8  # of a value in memory, at least

_lock = threading.Lock()


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
