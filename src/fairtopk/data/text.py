"""Delimited text as a frame of declared types, with errors that name the line.

Polars reads fast and says little when it fails; only then the text is gone through again, line
by line, to find out what is wrong and where.
"""

import csv
import io
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import polars as pl

from fairtopk.data.columns import first_line
from fairtopk.data.origin import Origin
from fairtopk.errors import InputError

# Type of each column; None finds out from all of its values.
Schema = Mapping[str, type[pl.DataType] | None]

SAMPLE = 100  # values that tell whether a whole column is worth converting
ISO_TIMES = (
    "%Y-%m-%d",
    "%Y-%m-%d %H:%M:%S%.f",
    "%Y-%m-%dT%H:%M:%S%.f",
    "%Y-%m-%dT%H:%M:%S%.fZ",
)


def read_delimited(
    source: bytes | Path, schema: Schema, *, separator: str, header: bool, origin: Origin
) -> pl.DataFrame:
    """Return the columns of `schema`, by name if there is a header, else in their order.

    Raises:
        InputError: The text is not UTF-8, or a line has other fields than declared.
    """
    names = list(schema)
    # Polars would guess a type from the first rows and fail on the rest.
    declared = {name: dtype or pl.String for name, dtype in schema.items()}
    try:
        frame = pl.read_csv(
            source,
            separator=separator,
            has_header=header,
            columns=names if header else None,
            new_columns=None if header else names,
            schema_overrides=declared,
            null_values=[""],
            infer_schema=False,
        )
    except pl.exceptions.PolarsError as error:
        _explain(source, schema, separator=separator, header=header, origin=origin)
        raise InputError(
            f"{origin.name} cannot be read as a table: {first_line(error)}"
        ) from error
    if len(frame) == 0:
        raise InputError(f"{origin.name} is empty: it has a header but no rows")
    found = [name for name, dtype in schema.items() if dtype is None]
    return frame.select(names).with_columns(natural(frame[name]) for name in found)


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


def _as_time(values: pl.Series, dtype: type[pl.DataType], form: str) -> pl.Series:
    return values.str.strptime(dtype, form, strict=False)  # type: ignore[arg-type]


def header_of(source: bytes | Path, separator: str, origin: Origin) -> list[str]:
    """Return the column names in the first line of a text."""
    if isinstance(source, Path):
        with source.open("rb") as file:
            first = file.readline()
    else:
        first = source.split(b"\n", 1)[0]
    if not first.strip():
        raise InputError(f"{origin.name} is empty")
    line = _decode(first, 1, origin).removeprefix("\ufeff")
    return next(csv.reader([line.rstrip("\r\n")], delimiter=separator))


def _explain(
    source: bytes | Path, schema: Schema, *, separator: str, header: bool, origin: Origin
) -> None:
    """Raise for the first line that does not fit `schema`; return if every line does."""
    data = source.read_bytes() if isinstance(source, Path) else source
    lines = enumerate(io.BytesIO(data), start=1)
    text = "".join(_decode(line, number, origin) for number, line in lines)
    reader = csv.reader(
        io.StringIO(text.removeprefix("\ufeff"), newline=""), delimiter=separator
    )
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


def _decode(raw: bytes, number: int, origin: Origin) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{origin.name}, line {number} is not UTF-8 (byte 0x{raw[error.start]:02x}); "
            f"save the file as UTF-8"
        ) from error


def _fits(value: str, dtype: type[pl.DataType]) -> bool:
    try:
        pl.Series([value.strip()]).cast(dtype)
    except pl.exceptions.PolarsError:
        return False
    return True
