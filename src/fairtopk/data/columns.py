"""Columns of a table as compact, checked arrays: ids to numbers, ratings, times, CSR.

Every value that enters the library as part of a table is checked here, once. An `Origin` knows
where rows came from, so that an error can name the bad one.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import narwhals as nw
import numpy as np
import polars as pl
from narwhals.typing import IntoDataFrame
from numpy.typing import NDArray

from fairtopk.checks import checked_text
from fairtopk.errors import InputError
from fairtopk.kernels import csr
from fairtopk.terminal import shown

# What frames of other packages raise when a column cannot be converted.
FRAME_ERRORS = (
    TypeError,
    ValueError,
    OverflowError,
    nw.exceptions.NarwhalsError,
    pl.exceptions.PolarsError,
)
OPAQUE = (pl.Binary, pl.Object)  # neither text nor numbers
MOST_SHOWN, LONGEST_SHOWN = 20, 60  # names of columns in an error, and letters of each


@dataclass(frozen=True)
class Origin:
    """The name of a table and, for a text file, the line of its first row.

    A table of several files has the first row of each and its origin in `parts`.
    """

    name: str = "the table"
    first_line: int | None = None
    parts: tuple[tuple[int, "Origin"], ...] = ()

    def row(self, index: int) -> str:
        """Return the place of row `index` in words: a line of a file, or a row from 0."""
        for start, part in reversed(self.parts):
            if index >= start:
                return part.row(index - start)
        if self.first_line is None:
            return f"row {index} of {self.name}"
        return f"{self.name}, line {self.first_line + index}"


def check_names(needed: Mapping[str, Any], optional: Mapping[str, Any]) -> None:
    """Refuse arguments, by name, that name no column; None is an optional one left out."""
    for argument, name in (*needed.items(), *optional.items()):
        if argument in needed or name is not None:
            checked_text(argument, name)


def as_polars(frame: IntoDataFrame, names: list[str], origin: Origin) -> pl.DataFrame:
    """Return the columns `names` of a polars, pandas or Arrow frame, refusing absent ones."""
    try:
        table = nw.from_native(frame, eager_only=True)
    except TypeError as error:
        kind = type(frame).__name__
        raise InputError(
            f"{origin.name} must be a polars, pandas or Arrow frame in memory, got {kind} "
            f"(a lazy frame becomes one by .collect())"
        ) from error
    except FRAME_ERRORS as error:
        raise InputError(f"{origin.name} cannot be read: {first_line(error)}") from error
    for name in names:
        require_column(name, table.columns, origin)
    if len(table) == 0:
        raise InputError(f"{origin.name} is empty: it has columns but no rows")
    try:
        return table.select(list(dict.fromkeys(names))).to_polars()
    except FRAME_ERRORS as error:
        raise InputError(f"{origin.name} cannot be read: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """Return what an error of another package says, without what it says at length."""
    return str(error).strip().split("\n", 1)[0].rstrip(".:")


def require_column(name: str, present: list[str], origin: Origin) -> None:
    """Refuse a name that no column of the table has."""
    if name in present:
        return
    hint = ""
    if len(present) == 1 and isinstance(present[0], str):
        separators = [mark for mark in (";", "\t", "|", "::", ",", " ") if mark in present[0]]
        if separators:
            hint = f"; its one column looks separated by {separators[0]!r}"
    some = ", ".join(str(one)[:LONGEST_SHOWN] for one in present[:MOST_SHOWN]) or "none"
    if len(present) > MOST_SHOWN:
        some += f" and {len(present) - MOST_SHOWN:,} more"
    raise InputError(f"{origin.name} has no column {shown(name)}: its columns are {some}{hint}")


def number_ids(ids: pl.Series, origin: Origin) -> tuple[NDArray[np.int32], pl.Series]:
    """Return each row's number and the ids by number, in order of first appearance."""
    if ids.dtype in (pl.Categorical, pl.Enum):
        ids = ids.cast(pl.String)
    if ids.dtype.is_integer() and str(ids.dtype).endswith("128"):  # which numpy has not
        narrow = ids.cast(pl.Int64, strict=False)
        ids = narrow if narrow.null_count() == ids.null_count() else ids.cast(pl.String)
    check_ids(ids, origin)
    if ids.dtype.is_integer():
        low, high = cast(int, ids.min()), cast(int, ids.max())
        # Where ids are not too sparse, a table over their range is far faster than hashing.
        if high - low < 4 * len(ids) + 1_000_000:
            table = np.full(high - low + 1, -1, np.int32)
            codes, first = csr.number_by_appearance(ids.to_numpy(), low, table)
            return codes, ids.gather(first)
    distinct = ids.unique(maintain_order=True)
    numbers = pl.DataFrame({"id": distinct}).with_row_index("number")
    numbered = ids.to_frame("id").join(numbers, on="id", how="left", maintain_order="left")
    return numbered["number"].to_numpy().astype(np.int32), distinct


def check_ids(ids: pl.Series, origin: Origin) -> None:
    """Refuse a column that holds no ids, or not one in every row."""
    if ids.dtype.is_nested() or ids.dtype in (pl.Binary, pl.Object, pl.Null):
        raise InputError(f"{origin.name}: {ids.name} must hold ids, text or numbers")
    _refuse_missing(ids, origin)


def ratings_array(
    ratings: pl.Series, bounds: tuple[float, float], origin: Origin
) -> NDArray[np.floating]:
    """Return the ratings, as float32 where that loses nothing, else as float64."""
    if not (ratings.dtype.is_numeric() or ratings.dtype == pl.Boolean):
        refuse_text(ratings, origin)
    if ratings.dtype == pl.Boolean or ratings.dtype.is_decimal():
        ratings = ratings.cast(pl.Float64)
    _refuse_missing(ratings, origin)
    low, high = bounds
    outside = ((ratings < low) | (ratings > high)).arg_true()
    if len(outside):
        row = int(outside[0])
        raise InputError(
            f"{origin.row(row)}: {ratings.name} must lie between {low:g} and {high:g}, got "
            f"{ratings[row]:g} (the gain is 2^{ratings.name} - 1; rescale the column)"
        )
    exact: NDArray[np.float64] = ratings.cast(pl.Float64).to_numpy()
    with np.errstate(over="ignore"):  # a number may be too large for float32
        compact = exact.astype(np.float32)
    return compact if np.array_equal(compact, exact) else exact


def times_array(times: pl.Series, origin: Origin) -> NDArray[np.int64] | NDArray[np.float64]:
    """Return times as int64 (dates as polars counts them), float64 if they have fractions."""
    if times.dtype == pl.String:
        refuse_text(times, origin, wanted="a number or a date like 2020-01-31")
    if not (times.dtype.is_numeric() or times.dtype.is_temporal()):
        raise InputError(
            f"{origin.name}: {times.name} must hold numbers or dates, not {times.dtype}"
        )
    if times.dtype.is_decimal():
        times = times.cast(pl.Float64)
    _refuse_missing(times, origin)
    if times.dtype.is_temporal():
        return times.to_physical().cast(pl.Int64).to_numpy()
    if times.dtype.is_float() and not (times == times.floor()).all():
        return times.cast(pl.Float64).to_numpy()
    try:
        return times.cast(pl.Int64).to_numpy()
    except pl.exceptions.PolarsError as error:
        raise InputError(
            f"{origin.name}: {times.name} must lie within 64-bit integers"
        ) from error


def refuse_text(values: pl.Series, origin: Origin, *, wanted: str = "a number") -> None:
    """Raise for a column that should hold numbers, naming its first value that does not."""
    for row, value in enumerate(values):
        try:
            float(value)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"{origin.row(row)}: {values.name} must be {wanted}, got {shown(value)}"
            ) from error
    raise InputError(f"{origin.name}: {values.name} holds numbers as text; convert the column")


def _refuse_missing(values: pl.Series, origin: Origin) -> None:
    missing = values.is_null()
    if values.dtype.is_float():
        missing = missing | ~values.is_finite().fill_null(False)
    rows = missing.arg_true()
    if len(rows):
        row = int(rows[0])
        shown = "missing" if values[row] is None or math.isnan(values[row]) else values[row]
        raise InputError(
            f"{origin.row(row)}: {values.name} is {shown}; "
            f"mend or remove the {len(rows):,} such row{'s'[: len(rows) > 1]}"
        )


def group_rows(
    owner: tuple[NDArray[np.int32], pl.Series],
    item: tuple[NDArray[np.int32], pl.Series],
    *,
    phrase: str,
    place: Callable[[int], str],
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64] | None]:
    """Return rows grouped by owner (user or query), refusing an item that an owner has twice.

    Owners and items are the number of each row, and the ids by number; `phrase` says in an
    error what an owner does: "user {} rates".

    Returns:
        Where each owner's rows start, ``[n_owners + 1]``; the item of each grouped row; and the
        row of the source that each was, None where they stood together already.
    """
    (owners, owner_ids), (items, item_ids) = owner, item
    offsets = csr.offsets_of(owners, len(owner_ids))
    order = None
    if (owners[1:] < owners[:-1]).any():  # published files are mostly sorted: nothing moves
        order = csr.stable_order(owners, offsets)
        items = items[order]
    earlier, later = csr.first_repeat(offsets, items, len(item_ids))
    if later >= 0:
        first, again = (int(row if order is None else order[row]) for row in (earlier, later))
        raise InputError(
            f"{place(again)}: {phrase.format(repr(owner_ids[int(owners[again])]))} item "
            f"{item_ids[int(items[later])]!r} again (first in {place(first)}); keep one"
        )
    return offsets, items, order
