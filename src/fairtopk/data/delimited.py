"""Delimited text as a frame of declared types, with errors that name the line.

Polars reads fast and says little when it fails; only then the text is gone through again, line
by line, to find out what is wrong and where. Compiled loops look for rows that lack fields, and
for numbers such as 007 that would lose their zeros.
"""

import csv
import io
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from io import BufferedReader
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairtopk.data.columns import Origin, first_line
from fairtopk.errors import InputError
from fairtopk.kernels.compiled import compiled
from fairtopk.paths import (
    MOST_COLUMNS,
    MOST_LINE_BYTES,
    open_file,
    refuse_large,
)
from fairtopk.terminal import shown

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


def read_delimited(
    source: bytes | Path, schema: Schema, *, separator: str, header: bool, origin: Origin
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
        _explain(source, schema, separator=separator, header=header, origin=origin)
        raise InputError(
            f"{origin.name} cannot be read as a table: {first_line(error)}{_unclosed(error)}"
        ) from error
    if len(frame) == 0:
        raise InputError(f"{origin.name} is empty: it has a header but no rows")
    found = [name for name, dtype in schema.items() if dtype is None]
    return frame.select(names).with_columns(natural(frame[name]) for name in found)


def header_of(source: bytes | Path, separator: str, origin: Origin) -> list[str]:
    """Return the column names in the first line of a text, each of them once."""
    with _opened(source) as file:
        first = file.readline(MOST_LINE_BYTES + 1)
    if len(first) > MOST_LINE_BYTES:
        raise _too_long(1, origin)
    if not first.strip():
        raise InputError(f"{origin.name} is empty")
    line = _decode(first, 1, origin).removeprefix("\ufeff")
    with _csv_errors(origin):
        names = next(csv.reader([line.rstrip("\r\n")], delimiter=separator))
    if len(names) > MOST_COLUMNS:
        raise InputError(
            f"{origin.name} has {len(names):,} columns; at most {MOST_COLUMNS:,} are read"
        )
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise InputError(
            f"{origin.name} has {names.count(twice[0])} columns called {twice[0]!r}; rename or "
            f"remove all but one"
        )
    return names


def check_separator(separator: str) -> str:
    """Return what separates fields, refusing what cannot."""
    one = isinstance(separator, str) and len(separator) == 1
    if not one or not separator.isascii() or separator in FORBIDDEN:
        raise InputError(
            f"separator must be one ASCII character other than a quote, a line break and NUL, "
            f"got {shown(separator)}"
        )
    return separator


def refuse_odd_bytes(source: bytes | Path, origin: Origin) -> None:
    """Refuse a text that no memory holds, with NUL in it, or with a line past the bound."""
    if isinstance(source, Path):
        refuse_large(source.stat().st_size, origin.name)
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
                raise _too_long(line, origin)
            if end >= 0:
                line += chunk.count(b"\n")
                length = len(chunk) - 1 - chunk.rfind(b"\n")


def natural(values: pl.Series) -> pl.Series:
    """Return a column of text as integers, numbers, dates or times, if all of it is that."""
    kinds = [
        partial(pl.Series.cast, dtype=dtype, strict=False) for dtype in (pl.Int64, pl.Float64)
    ]
    for form in ISO_TIMES:
        dtype = pl.Date if form == ISO_TIMES[0] else pl.Datetime
        kinds.append(partial(_as_time, dtype=dtype, form=form))
    for convert in kinds:
        for part in (values.head(SAMPLE), values):
            converted = convert(part)
            if converted.null_count() > part.null_count():
                break
        else:
            return converted
    return values


@compiled
def first_short_row(text: NDArray[np.uint8], separator: int, n_fields: int) -> int:
    """Return where the first row with fewer than `n_fields` begins, -1 if there is none.

    A separator or a line break between quotes belongs to its field; blank lines are no rows.
    """
    start = 0
    fields = 1
    quoted = False
    starts = True  # whether a field begins here
    for place in range(len(text)):
        byte = text[place]
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
            if fields < n_fields and not is_blank(text, start, place):
                return start
            start, fields, starts = place + 1, 1, True
    if not quoted and fields < n_fields and not is_blank(text, start, len(text)):
        return start
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


@compiled
def is_blank(text: NDArray[np.uint8], start: int, end: int) -> bool:
    """Return whether a line holds nothing but a carriage return."""
    return end == start or (end == start + 1 and text[start] == RETURN)


def _as_time(values: pl.Series, dtype: type[pl.DataType], form: str) -> pl.Series:
    return values.str.strptime(dtype, form, strict=False)  # type: ignore[arg-type]


def _explain(
    source: bytes | Path, schema: Schema, *, separator: str, header: bool, origin: Origin
) -> None:
    """Raise for the first line that does not fit `schema`; return if every line does."""
    with _opened(source) as file:
        text = "".join(_decode(line, n, origin) for n, line in enumerate(file, start=1))
    reader = csv.reader(
        io.StringIO(text.removeprefix("\ufeff"), newline=""), delimiter=separator
    )
    with _csv_errors(origin):
        names = next(reader) if header else list(schema)
        for fields in reader:
            place = f"{origin.name}, line {reader.line_num}"
            if len(fields) != len(names):
                raise InputError(
                    f"{place}: expected {len(names)} fields separated by {separator!r}, "
                    f"got {len(fields)} in {separator.join(fields)[:60]!r}"
                )
            for name, value in zip(names, fields, strict=True):
                dtype = schema.get(name)
                if dtype is not None and value and not _fits(value, dtype):
                    wanted = "a whole number" if dtype.is_integer() else "a number"
                    raise InputError(f"{place}: {name} must be {wanted}, got {value[:60]!r}")


def _fits(value: str, dtype: type[pl.DataType]) -> bool:
    try:
        pl.Series([value.strip()]).cast(dtype)
    except pl.exceptions.PolarsError:
        return False
    return True


def _decode(raw: bytes, number: int, origin: Origin) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{origin.name}, line {number} is not UTF-8 (byte 0x{raw[error.start]:02x}); "
            f"save the file as UTF-8"
        ) from error


@contextmanager
def _csv_errors(origin: Origin) -> Iterator[None]:
    """Refuse what Python's own reader of CSV cannot take, such as a field of 128 KiB."""
    try:
        yield
    except csv.Error as error:
        raise InputError(f"{origin.name} cannot be read as a table: {error}") from error


def _opened(source: bytes | Path) -> BufferedReader | io.BytesIO:
    return open_file(source) if isinstance(source, Path) else io.BytesIO(source)


def _too_long(line: int, origin: Origin) -> InputError:
    return InputError(
        f"{origin.name}, line {line} is longer than {MOST_LINE_BYTES:,} bytes, the most that a "
        f"line may have; is it a table?"
    )


def _unclosed(error: Exception) -> str:
    return "; is a quote not closed?" if '"' in first_line(error) else ""
