"""Ratings or features in a CSV or Parquet file of one's own, its columns named by the user."""

import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairtopk.data.archive import Archive
from fairtopk.data.columns import require_column
from fairtopk.data.feature_rows import FeatureColumns, feature_rows
from fairtopk.data.features import Features, features_from
from fairtopk.data.groups import GroupRule, Groups
from fairtopk.data.interactions import Columns
from fairtopk.data.origin import Origin
from fairtopk.data.parquet import read_parquet
from fairtopk.data.paths import check_file
from fairtopk.data.tables import Tables
from fairtopk.data.text import check_separator, header_of, read_delimited, refuse_odd_bytes
from fairtopk.errors import InputError
from fairtopk.kernels.fields import first_short_row, has_padded_number

PARQUET = (".parquet", ".pq")
SHOWN = 60  # bytes of a bad line


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
