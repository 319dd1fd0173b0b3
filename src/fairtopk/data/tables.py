"""CSV and Parquet files of ratings or features, with columns named by the user.

Polars reads fast and says little when it fails; only then a text is gone through again, line by
line, to find out what is wrong and where. Compiled loops look for rows that lack fields, and
for numbers such as 007 that would lose their zeros. `guarded` keeps text that a spreadsheet
would run as a formula text (`--csv-safe`).
"""

import csv
import io
import os
import threading
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairtopk import storage
from fairtopk.data.archive import Archive
from fairtopk.data.columns import Origin, first_line, require_column
from fairtopk.data.features import FeatureColumns, Features, read_rows
from fairtopk.data.groups import GroupRule, Groups
from fairtopk.data.interactions import Columns, Tables
from fairtopk.errors import InputError
from fairtopk.kernels.compiled import compiled
from fairtopk.storage import MOST_COLUMNS, MOST_LINE_BYTES, MOST_ROWS
from fairtopk.terminal import shown

STDERR = 2
VALUE_BYTES = 8  # of a value in memory, at least
_lock = threading.Lock()
PARQUET = (".parquet", ".pq")
SHOWN = 60  # bytes of a bad line
RUN = r"^[=+\-@\t\r\n]"  # how a cell begins that is run, or that hides one
GUARDED = "'${0}"

# Type of each column; None finds out from all of its values.
Schema = Mapping[str, type[pl.DataType] | None]
FORBIDDEN = '\0\r\n"'  # as separators
SAMPLE = 100  # values that tell whether a whole column is worth converting
ISO_TIMES = (
    "%Y-%m-%d",
    "%Y-%m-%d %H:%M:%S%.f",
    "%Y-%m-%dT%H:%M:%S%.f",
    "%Y-%m-%dT%H:%M:%S%.fZ",
)
NEWLINE, RETURN, QUOTE, PLUS, MINUS, ZERO, NINE = b'\n\r"+-09'


def read_ratings_file(
    path: str | Path,
    columns: Columns,
    *,
    items: str | Path | None = None,
    separator: str = ",",
) -> Tables:
    """Return the ratings of a CSV (``.gz`` too) or Parquet file, and its table of items.

    `items` is a file with one row per item, for groups, whose column of item ids is called the
    same; without it, groups are made from the other columns of the ratings.
    """
    numbers = [] if columns.rating is None else [columns.rating]
    ids = [columns.user, columns.item]
    ratings, origin = read_table(path, ids=ids, numbers=numbers, separator=separator)
    catalogue, items_origin = ratings, origin
    if items is not None:
        catalogue, items_origin = read_table(items, ids=[columns.item], separator=separator)
    return Tables(ratings, catalogue, origin, items_origin, columns)


def read_features_file(
    path: str | Path,
    columns: FeatureColumns,
    *,
    groups: Groups | GroupRule | None = None,
    separator: str = ",",
) -> Features:
    """Return the documents of a CSV or Parquet file; see `Features.from_frame`."""
    ids = [columns.query] if columns.item is None else [columns.query, columns.item]
    frame, origin = read_table(path, ids=ids, numbers=[columns.relevance], separator=separator)
    return read_rows(frame, columns, groups=groups, origin=origin, name=Path(path).stem)


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
    storage.check_file(path)
    if path.stat().st_size == 0:
        raise InputError(f"{path.name} is empty")
    if zipfile.is_zipfile(path):
        raise InputError(f"{path.name} is a zip; unpack it and give the table in it")
    check_separator(separator)
    if path.suffix.lower() in PARQUET:
        return read_parquet(path, [*ids, *numbers]), Origin(path.name)
    origin = Origin(path.name, first_line=2)
    source = Archive(path).read(path.name) if path.suffix == ".gz" else path
    refuse_odd_bytes(source, origin)
    with _opened(source) as file:
        first = file.readline()
    if not first.strip():
        raise InputError(f"{origin.name} is empty")
    line = _decode(first, 1, origin).removeprefix("\ufeff").rstrip("\r\n")
    header = next(_csv_rows([line], separator, origin))[1]
    if len(header) > MOST_COLUMNS:
        raise InputError(
            f"{origin.name} has {len(header):,} columns; at most {MOST_COLUMNS:,} are read"
        )
    if twice := [name for name, count in Counter(header).items() if count > 1]:
        raise InputError(
            f"{origin.name} has {header.count(twice[0])} columns called {twice[0]!r}; rename "
            f"or remove all but one"
        )
    for name in (*ids, *numbers):
        require_column(name, header, origin)
    text = (
        np.memmap(source, np.uint8, mode="r")
        if isinstance(source, Path)
        else np.frombuffer(source, np.uint8)
    )
    short = first_short_row(text, ord(separator), len(header))
    if short >= 0:  # what it lacks would be read as if it were empty
        number = int(np.count_nonzero(text[:short] == ord("\n"))) + 1
        raw = text[short : short + SHOWN].tobytes().split(b"\n")[0]
        raise InputError(
            f"{origin.name}, line {number}: expected {len(header)} fields separated by "
            f"{separator!r}, got fewer in {raw.decode('utf-8', 'replace').rstrip()!r}"
        )
    schema: Schema = dict.fromkeys(header) | dict.fromkeys(numbers, pl.Float64)
    if not has_padded_number(text, ord(separator)):
        # Ids that are numbers are read as such, several times faster than as text.
        whole = {**schema, **dict.fromkeys(ids, pl.Int64)}
        try:
            return read_delimited(source, whole, separator, header=True, origin=origin), origin
        except InputError:
            pass  # some id is no number, or something else is wrong: the text will tell
    schema = {**schema, **dict.fromkeys(ids, pl.String)}
    frame = read_delimited(source, schema, separator, header=True, origin=origin)
    return frame.with_columns(_numbers_where_exact(frame[name]) for name in ids), origin


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


def check_separator(separator: str) -> None:
    """Refuse what cannot separate the fields of a CSV."""
    one = isinstance(separator, str) and len(separator) == 1
    if not one or not separator.isascii() or separator in FORBIDDEN:
        raise InputError(
            f"separator must be one ASCII character other than a quote, a line break and NUL, "
            f"got {shown(separator)}"
        )


def refuse_odd_bytes(source: bytes | Path, origin: Origin) -> None:
    """Refuse a text that no memory holds, with NUL in it, or with a line past the bound."""
    if isinstance(source, Path):
        storage.refuse_large(source.stat().st_size, origin.name)
    line, length = 1, 0  # that a chunk begins in, and how much of it came before
    with _opened(source) as file:
        while chunk := file.read(MOST_LINE_BYTES):
            nul, end = chunk.find(b"\0"), chunk.find(b"\n")
            if nul >= 0:
                line += chunk.count(b"\n", 0, nul)
                raise InputError(
                    f"{origin.name}, line {line} holds a NUL byte; save the file as UTF-8 text"
                )
            # No line within a chunk is too long, since a chunk is as long as a line may be.
            length += len(chunk) if end < 0 else end
            if length > MOST_LINE_BYTES:
                raise InputError(
                    f"{origin.name}, line {line} is longer than {MOST_LINE_BYTES:,} bytes, the "
                    f"most that a line may have; is it a table?"
                )
            if end >= 0:
                line += chunk.count(b"\n")
                length = len(chunk) - 1 - chunk.rfind(b"\n")


def read_delimited(
    source: bytes | Path, schema: Schema, separator: str, *, header: bool, origin: Origin
) -> pl.DataFrame:
    """Return the columns of `schema`, by name if there is a header, else in their order.

    `refuse_odd_bytes` is to be called before.

    Raises:
        InputError: The text is not UTF-8, or a line has other fields than declared.
    """
    names = list(schema)
    # Polars would guess a type from the first rows and fail on the rest.
    declared = {name: dtype or pl.String for name, dtype in schema.items()}
    try:
        with _opened(source) as file:
            frame = pl.read_csv(
                file,
                separator=separator,
                has_header=header,
                columns=names if header else None,
                new_columns=None if header else names,
                schema_overrides=declared,
                null_values=[""],
                infer_schema=False,
                glob=False,
            )
    except pl.exceptions.PolarsError as error:
        _explain(source, schema, separator, header=header, origin=origin)
        reason = first_line(error)
        hint = "; is a quote not closed?" if '"' in reason else ""
        raise InputError(f"{origin.name} cannot be read as a table: {reason}{hint}") from error
    if len(frame) == 0:
        raise InputError(f"{origin.name} is empty: it has a header but no rows")
    found = [name for name, dtype in schema.items() if dtype is None]
    return frame.select(names).with_columns(_natural(frame[name]) for name in found)


def _explain(
    source: bytes | Path, schema: Schema, separator: str, *, header: bool, origin: Origin
) -> None:
    """Raise for the first line that does not fit `schema`; return if every line does."""
    with _opened(source) as file:
        text = "".join(_decode(line, n, origin) for n, line in enumerate(file, start=1))
    rows = _csv_rows(io.StringIO(text.removeprefix("\ufeff"), newline=""), separator, origin)
    names = next(rows)[1] if header else list(schema)
    for line, fields in rows:
        place = f"{origin.name}, line {line}"
        if len(fields) != len(names):
            raise InputError(
                f"{place}: expected {len(names)} fields separated by {separator!r}, "
                f"got {len(fields)} in {separator.join(fields)[:60]!r}"
            )
        for name, value in zip(names, fields, strict=True):
            dtype = schema.get(name)
            if dtype is None or not value:
                continue
            try:
                pl.Series([value.strip()]).cast(dtype)
            except pl.exceptions.PolarsError as error:
                wanted = "a whole number" if dtype.is_integer() else "a number"
                raise InputError(
                    f"{place}: {name} must be {wanted}, got {value[:60]!r}"
                ) from error


def _csv_rows(
    lines: Iterable[str], separator: str, origin: Origin
) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and the fields of each row, as Python's own reader splits them."""
    reader = csv.reader(lines, delimiter=separator)
    try:
        for fields in reader:
            yield reader.line_num, fields
    except csv.Error as error:  # such as a field of 128 KiB
        raise InputError(f"{origin.name} cannot be read as a table: {error}") from error


def _decode(raw: bytes, number: int, origin: Origin) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{origin.name}, line {number} is not UTF-8 (byte 0x{raw[error.start]:02x}); "
            f"save the file as UTF-8"
        ) from error


def _opened(source: bytes | Path) -> BufferedReader | io.BytesIO:
    return storage.open_file(source) if isinstance(source, Path) else io.BytesIO(source)


def _natural(values: pl.Series) -> pl.Series:
    """Return a column of text as integers, numbers, dates or times, if all of it is that."""
    kinds: list[tuple[Any, str | None]] = [(pl.Int64, None), (pl.Float64, None)]
    kinds += [(pl.Datetime if "%H" in form else pl.Date, form) for form in ISO_TIMES]
    for dtype, form in kinds:
        for part in (values.head(SAMPLE), values):
            if form is None:
                converted = part.cast(dtype, strict=False)
            else:
                converted = part.str.strptime(dtype, form, strict=False)
            if converted.null_count() > part.null_count():
                break
        else:
            return converted
    return values


@compiled
def first_short_row(text: NDArray[np.uint8], separator: int, n_fields: int) -> int:
    """Return where the first row with fewer than `n_fields` begins, -1 if there is none.

    A separator or a line break between quotes belongs to its field. A blank line, or one that
    holds nothing but a carriage return, is no row.
    """
    start = 0
    fields = 1
    quoted = False
    starts = True  # whether a field begins here
    for place in range(len(text) + 1):
        byte = text[place] if place < len(text) else NEWLINE  # which the last line may lack
        if byte == QUOTE and (starts or quoted):
            quoted = not quoted
            # What follows a closing quote may be its double, which opens again.
            starts = not quoted
            continue
        starts = False
        if quoted:
            continue
        if byte == separator:
            fields += 1
            starts = True
        elif byte == NEWLINE:
            is_return = place == start + 1 and text[start] == RETURN
            if fields < n_fields and place > start and not is_return:
                return start
            start, fields, starts = place + 1, 1, True
    return -1


@compiled
def has_padded_number(text: NDArray[np.uint8], separator: int) -> bool:
    """Return whether some field starts with a plus, or with a zero and another digit.

    Read as a number, such a field would lose what it is written with: 007 would be 7.
    """
    starts = True
    for place in range(len(text)):
        byte = text[place]
        if starts and byte != QUOTE and byte != MINUS:
            starts = False
            if byte == PLUS:
                return True
            following = text[place + 1] if place + 1 < len(text) else NEWLINE
            if byte == ZERO and ZERO <= following <= NINE:
                return True
        if byte in (separator, NEWLINE):
            starts = True
    return False


def read_parquet(
    path: Path, names: Sequence[str] = (), *, whole: bool = True, origin: Origin | None = None
) -> pl.DataFrame:
    """Return a Parquet file, refusing one without the columns `names`.

    `whole` reads the other columns too; errors call the file by `origin`, or else by its name.
    """
    origin = origin or Origin(path.name)
    with opened_parquet(path, origin) as file:
        lazy = pl.scan_parquet(file, glob=False)
        columns = lazy.collect_schema().names()
        for name in names:
            require_column(name, columns, origin)
        if not whole:
            columns = list(dict.fromkeys(names))
        n_rows = lazy.select(pl.len()).collect().item()
        # However small a file is, it may unpack to more than a machine can hold.
        if n_rows > MOST_ROWS:
            raise InputError(
                f"{origin.name} has {n_rows:,} rows; at most {MOST_ROWS:,} are read"
            )
        if len(columns) > MOST_COLUMNS:
            raise InputError(
                f"{origin.name} has {len(columns):,} columns; at most {MOST_COLUMNS:,} are read"
            )
        size = f"{n_rows:,} rows by {len(columns):,} columns"
        storage.refuse_large(VALUE_BYTES * n_rows * len(columns), f"{origin.name}, {size},")
        return lazy.select(columns).collect(engine="streaming")


@contextmanager
def opened_parquet(path: Path, origin: Origin) -> Iterator[BufferedReader]:
    """Yield an open Parquet file, refusing a damaged one in one sentence.

    On some damaged files polars panics, and its Rust writes lines about that straight to
    standard error; for as long as a file is read, nothing is shown there.
    """
    with storage.open_file(path) as file, _lock:
        try:
            kept = os.dup(STDERR)
        except OSError:  # a process may have none
            kept = None
        else:
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), STDERR)
        try:
            yield file
        except InputError:
            raise
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
            raise InputError(
                f"{origin.name} is not a readable Parquet file ({first_line(error)})"
            ) from error
        finally:
            if kept is not None:
                os.dup2(kept, STDERR)
                os.close(kept)


def check_csv_safe(csv_safe: bool, out: Path) -> None:
    """Refuse to guard a file that is no CSV."""
    if csv_safe and out.suffix.lower() != ".csv":
        raise InputError(f"--csv-safe is for .csv files, and --out is {out}; leave it out")


def guarded(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a table with an apostrophe before text that would be run; numbers stay.

    Names of columns are text too.
    """
    texts = pl.col(pl.String, pl.Categorical, pl.Enum).cast(pl.String)
    safe = frame.with_columns(texts.str.replace(RUN, GUARDED))
    safe.columns = pl.Series(frame.columns, dtype=pl.String).str.replace(RUN, GUARDED).to_list()
    return safe
